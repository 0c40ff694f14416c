"""The client against a real model: text that streams, a schema, an overflow, a request that is called off."""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Event

import pytest

from holdfast.errors import ModelCancelledError, ModelOverflowError
from holdfast.messages import Message, Text
from holdfast.models import Prompt, Reply
from support.real_model import RecordingModel

SECONDS = 600


def asks(text: str, *, schema: Mapping[str, object] | None = None, most: int = 24) -> Prompt:
    """A prompt of one message."""
    return Prompt(messages=[Message(role="user", parts=(Text(text=text),))], max_tokens=most, schema=schema)


def test_text_streams_and_tokens_are_counted(model: RecordingModel) -> None:
    """The pieces are the reply, and the server says how many tokens it took."""
    heard: list[str] = []
    reply = model.ask(asks("Say hello."), on_text=heard.append, timeout=SECONDS)
    assert "".join(heard) == reply.text
    assert reply.usage is not None
    assert reply.usage.output > 0


def test_a_schema_is_followed(model: RecordingModel) -> None:
    """A server with a grammar keeps even a weak model to the schema."""
    schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
    reply = model.ask(asks("PostgreSQL listens on port 5433. Which port?", schema=schema), timeout=SECONDS)
    assert isinstance(json.loads(reply.text)["port"], int)


def test_a_request_that_is_too_long_is_an_overflow(model: RecordingModel) -> None:
    """Servers that truncate it without an error are found by the tokens that they report."""
    error: ModelOverflowError | None = None
    reply: Reply | None = None
    try:
        reply = model.ask(asks("word " * 8_000), timeout=SECONDS)
    except ModelOverflowError as refusal:
        error = refusal
    if error is not None:
        assert error.limit in {None, model.context_tokens}
    else:
        assert reply is not None
        assert reply.usage is not None
        assert reply.usage.input < 8_000


def test_a_long_reply_can_be_called_off(model: RecordingModel) -> None:
    """Once the first words are here, so that it is the reply that is called off."""
    cancel = Event()
    with pytest.raises(ModelCancelledError):
        model.ask(
            asks("Tell a very long story.", most=1_500),
            timeout=SECONDS,
            cancel=cancel,
            on_text=lambda _: cancel.set(),
        )
