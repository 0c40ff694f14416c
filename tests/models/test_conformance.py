"""Every model of ours passes the suite that any model must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

import pytest

from holdfast.messages import Text
from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import Model, Prompt, Reply
from holdfast.models.openai import OpenAIModel, ResponsesModel
from holdfast.models.retry import Fallback, Retrying
from holdfast.models.scripted import Answer, Scripted
from holdfast.testing.model import CHECKS, Check, Opener, check_model
from holdfast.testing.provider import ScriptedProvider, Step


def _served(steps: Sequence[Answer]) -> list[Step]:
    """The steps as the provider knows them: there are no whole messages in the suite."""
    return [step for step in steps if not hasattr(step, "role")]


@contextmanager
def open_anthropic(steps: Sequence[Answer]) -> Iterator[Model]:
    """Anthropic's SDK against a provider on this machine."""
    with ScriptedProvider(_served(steps)) as provider:
        yield AnthropicModel("claude-opus-5-5", api_key="key", base_url=provider.url)


@contextmanager
def open_openai(steps: Sequence[Answer]) -> Iterator[Model]:
    """OpenAI's SDK against a provider on this machine."""
    with ScriptedProvider(_served(steps)) as provider:
        yield OpenAIModel("gpt-5", api_key="key", base_url=f"{provider.url}/v1")


@contextmanager
def open_responses(steps: Sequence[Answer]) -> Iterator[Model]:
    """OpenAI's SDK and its other interface against a provider on this machine."""
    with ScriptedProvider(_served(steps)) as provider:
        yield ResponsesModel("gpt-6-sol", api_key="key", base_url=f"{provider.url}/v1")


@contextmanager
def open_scripted(steps: Sequence[Answer]) -> Iterator[Model]:
    """The model for tests."""
    yield Scripted(steps)


@contextmanager
def open_wrapped(steps: Sequence[Answer]) -> Iterator[Model]:
    """A model made of models."""
    yield Fallback([Retrying(model=Scripted(steps), attempts=1)])


@pytest.mark.parametrize("open_model", [open_anthropic, open_openai, open_responses, open_scripted, open_wrapped])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_model_passes_every_check(check: Check, open_model: Opener) -> None:
    """Each of our models passes each check of a model."""
    check(open_model)


class _Loud(Scripted):
    """A model that changes what was said."""

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        reply = super().ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        parts = (Text(text=reply.text.upper()),)
        return replace(reply, message=replace(reply.message, parts=parts))


@contextmanager
def _open_loud(steps: Sequence[Answer]) -> Iterator[Model]:
    yield _Loud(steps)


def test_a_failed_check_is_named() -> None:
    """A model that fails a check raises the name of the check and what it requires."""
    with pytest.raises(AssertionError, match=r"^text_is_returned_and_streamed: A reply is an assistant message"):
        check_model(_open_loud)


def test_a_good_model_passes_in_one_go() -> None:
    """The suite as a whole is silent about a model that passes every check."""
    check_model(open_scripted)
