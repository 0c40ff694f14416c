"""Messages as each provider takes them, with as little change as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast import formats
from holdfast.context.shape import anthropic, gemini, openai_chat, openai_responses, pi
from holdfast.context.shape.parts import CONTINUED, Log
from holdfast.messages import Message

__all__ = ["CONTINUED", "Log", "render", "shape"]

_SHAPES: Final[dict[str, Callable[[Sequence[Message], Log], list[Message]]]] = {
    "anthropic": anthropic.shape,
    "openai_chat": openai_chat.shape,
    "openai_responses": openai_responses.shape,
    "gemini": gemini.shape,
    "pi": pi.shape,
}


def shape(messages: Sequence[Message], provider: str, log: Log) -> list[Message]:
    """Messages whose calls and results are in order, as a provider takes them; every change is logged."""
    return _SHAPES[provider](messages, log)


def render(messages: Sequence[Message], provider: str) -> list[Mapping[str, Any]]:
    """The message list of a request. The system prompt is not in it where the provider wants it beside."""
    return formats.render(messages[formats.leading_system(messages, provider) :], provider)
