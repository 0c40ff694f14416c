"""The last step: a window that its provider will take, or an error before it is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.context.pairing import Repair, repair
from holdfast.context.shape import Log, render, shape
from holdfast.context.verify import PROVIDERS, Violation, check
from holdfast.errors import FormatError, InvalidWindowError
from holdfast.messages import Message, Opaque, RedactedThinking, Thinking, ToolResult

__all__ = ["Finished", "finish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A window that can be sent.

    Attributes:
        provider: Whose rules it keeps.
        messages: What is sent, the system prompt included.
        wire: The message list of the request; the system prompt is beside it where the provider wants that.
        repairs: What had to be changed for it.
        violations: What was still wrong after that, and mended by leaving out what cannot be vouched for.
    """

    provider: str
    messages: tuple[Message, ...]
    wire: tuple[Mapping[str, Any], ...]
    repairs: tuple[Repair, ...]
    violations: tuple[Violation, ...] = ()


def finish(messages: Sequence[Message], provider: str, *, known_tools: Collection[str] | None = None) -> Finished:
    """Make a message list valid for a provider. What is valid already is left as it is.

    Raises:
        InvalidWindowError: It still breaks a rule. Nothing may be sent.
    """
    if provider not in PROVIDERS:
        raise FormatError(f"provider {provider!r} is not one of {', '.join(PROVIDERS)}", format=provider)
    first = _finished(messages, provider, known_tools)
    if not first.violations:
        return first
    again = _finished([_plain(message) for message in messages], provider, known_tools)
    if again.violations:
        raise InvalidWindowError(provider, again.violations)
    return replace(again, repairs=(*first.repairs, *again.repairs), violations=first.violations)


def _finished(messages: Sequence[Message], provider: str, known_tools: Collection[str] | None) -> Finished:
    paired = repair(messages, known_tools=known_tools)
    log = Log(provider)
    shaped = shape(paired.messages, provider, log)
    wire = render(shaped, provider)
    return Finished(
        provider=provider,
        messages=tuple(shaped),
        wire=tuple(wire),
        repairs=(*paired.repairs, *log.repairs),
        violations=tuple(check(wire, provider)),
    )


def _plain(message: Message) -> Message:
    """A message by what we know of it alone: nothing as it came, nothing that we cannot read, no sealed thought."""
    kept = (part for part in message.parts if not isinstance(part, Opaque | Thinking | RedactedThinking))
    parts = tuple(_plain_result(part) if isinstance(part, ToolResult) else replace(part, origin=None) for part in kept)
    return replace(message, parts=parts, origin=None)


def _plain_result(result: ToolResult) -> ToolResult:
    content = tuple(replace(block, origin=None) for block in result.content if not isinstance(block, Opaque))
    return replace(result, content=content, origin=None)
