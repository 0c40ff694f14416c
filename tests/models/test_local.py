"""A real model behind a real server, where one is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Event, Timer

import pytest

from holdfast.errors import ModelCancelledError, ModelOverflowError
from holdfast.messages import Message, Text
from holdfast.models import Prompt, open_model
from holdfast.settings import Settings
from support.local_model import local_model, needs_local_model


def asks(text: str, *, schema: Mapping[str, object] | None = None, most: int = 24) -> Prompt:
    """A prompt of one message."""
    return Prompt(messages=[Message(role="user", parts=(Text(text=text),))], max_tokens=most, schema=schema)


@needs_local_model
def test_a_real_model_answers() -> None:
    """Words stream, a schema is kept, an overflow has its figures, and a long answer can be called off."""
    with local_model() as name:
        model = open_model(name, settings=Settings(), environ={})
        heard: list[str] = []
        reply = model.ask(asks("Say hello."), on_text=heard.append, timeout=120)
        assert "".join(heard) == reply.text
        assert reply.usage is not None
        assert reply.usage.output > 0
        schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
        output = model.ask(asks("PostgreSQL listens on port 5433. Which port?", schema=schema), timeout=120)
        assert isinstance(json.loads(output.text)["port"], int)
        with pytest.raises(ModelOverflowError) as caught:
            model.ask(asks("word " * 4_000), timeout=120)
        assert caught.value.limit == 2_048
        cancel = Event()
        Timer(0.5, cancel.set).start()
        with pytest.raises(ModelCancelledError):
            model.ask(asks("Tell a very long story.", most=1_500), timeout=120, cancel=cancel)
