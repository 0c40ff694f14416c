"""The last step: a window that its provider will take, or an error before it is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from holdfast.context.pairing import Repair, repair
from holdfast.context.shape import Log, render, shape
from holdfast.context.verify import PROVIDERS, Violation, check
from holdfast.errors import FormatError, InvalidWindowError
from holdfast.messages import Message, Opaque, Origin, RedactedThinking, Thinking, ToolResult

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


_NOTHING: Final[Mapping[str, str]] = {}


def finish(
    messages: Sequence[Message],
    provider: str,
    *,
    known_tools: Collection[str] | None = None,
    reasoned: Mapping[str, str] = _NOTHING,
) -> Finished:
    """Make a message list valid for a provider. What is valid already is left as it is.

    Args:
        messages: What is to be sent.
        provider: Whose rules it must keep.
        known_tools: The tools that there are, where that is known: calls of others go.
        reasoned: The reasoning item that each item of the conversation came after, by their ids.

    Raises:
        InvalidWindowError: It still breaks a rule. Nothing may be sent.
    """
    if provider not in PROVIDERS:
        raise FormatError(f"provider {provider!r} is not one of {', '.join(PROVIDERS)}", format=provider)
    log = Log(provider, reasoned=reasoned)
    sendable = [_encodable(message, index, log) for index, message in enumerate(messages)]
    first = _finished(sendable, log, known_tools)
    if not first.violations:
        return first
    log.note("unknown", None, f"left out every block that is not understood, because of {first.violations[0]}")
    again = _finished([_plain(message) for message in sendable], log, known_tools)
    if again.violations:
        raise InvalidWindowError(provider, again.violations)
    return replace(again, violations=first.violations)


def _finished(messages: Sequence[Message], log: Log, known_tools: Collection[str] | None) -> Finished:
    provider = log.format
    paired = repair(messages, known_tools=known_tools)
    shaped = shape(paired.messages, provider, log)
    wire = render(shaped, provider)
    return Finished(
        provider=provider,
        messages=tuple(shaped),
        wire=tuple(wire),
        repairs=(*paired.repairs, *log.repairs),
        violations=tuple(check(wire, provider, reasoned=log.reasoned)),
    )


def _encodable(message: Message, index: int, log: Log) -> Message:
    """The message as it can be written as UTF-8."""
    if message.is_encodable:
        return message
    log.note("surrogates", index, "replaced halves of surrogate pairs, which cannot be sent, by U+FFFD")
    whole: Message = _whole(message)
    return whole


def _whole(value: Any) -> Any:
    """The value without halves of surrogate pairs; two halves that belong together become one character."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, Origin):
        return Origin(*map(_whole, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_whole, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _whole(getattr(value, field.name)) for field in fields(value)})
    return value


def _plain(message: Message) -> Message:
    """A message by what we know of it alone: nothing as it came, nothing that we cannot read, no sealed thought."""
    kept = (part for part in message.parts if not isinstance(part, Opaque | Thinking | RedactedThinking))
    parts = tuple(_plain_result(part) if isinstance(part, ToolResult) else replace(part, origin=None) for part in kept)
    return replace(message, parts=parts, origin=None)


def _plain_result(result: ToolResult) -> ToolResult:
    content = tuple(replace(block, origin=None) for block in result.content if not isinstance(block, Opaque))
    return replace(result, content=content, origin=None)
