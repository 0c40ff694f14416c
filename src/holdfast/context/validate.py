"""The last step: make a window valid for its provider, or raise an error before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from operator import is_
from typing import Any, Final, TypeAlias

from holdfast import providers
from holdfast.context.edits import Item, messages_of
from holdfast.context.pairing import repair
from holdfast.errors import InvalidWindowError
from holdfast.messages import Message, Opaque, Origin, RedactedThinking, Text, Thinking, ToolResult
from holdfast.providers import Log, Repair, Violation
from holdfast.providers.wire import wire_of

__all__ = ["ValidWindow", "ValidationCache", "validate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidWindow:
    """A window that can be sent.

    Attributes:
        provider: The provider whose rules it follows.
        messages: What is sent, the system prompt included.
        wire: The message list of the request; the system prompt is beside it where the provider wants that.
        repairs: What had to be changed.
        violations: What was still wrong after the repairs; then every block that is not understood was left out.
    """

    provider: str
    messages: tuple[Message, ...]
    wire: tuple[Mapping[str, Any], ...]
    repairs: tuple[Repair, ...]
    violations: tuple[Violation, ...] = ()


_NO_LINKS: Final[Mapping[str, str]] = {}


def validate(
    messages: Sequence[Message],
    provider: str,
    *,
    known_tools: Collection[str] | None = None,
    reasoning: Mapping[str, str] = _NO_LINKS,
) -> ValidWindow:
    """Make a message list valid for a provider. What is valid already is left as it is.

    Args:
        messages: What is to be sent.
        provider: The provider whose rules it must follow.
        known_tools: The tools that exist, where that is known: calls of others are dropped.
        reasoning: The reasoning item that each item of the conversation came after, as `link_reasoning` returns it.

    Raises:
        FormatError: There is no such provider.
        InvalidWindowError: It still breaks a rule. It must not be sent.
    """
    log = Log(providers.expect_format(provider).name, reasoning=reasoning)
    encodable = [_make_encodable(message, index, log) for index, message in enumerate(messages)]
    first = _repair_and_check(encodable, log, known_tools)
    if not first.violations:
        return first
    log.note("unknown", None, f"left out every block that is not understood, because of {first.violations[0]}")
    second = _repair_and_check([_keep_understood(message) for message in encodable], log, known_tools)
    if second.violations:
        raise InvalidWindowError(provider, second.violations)
    return replace(second, violations=first.violations)


def _repair_and_check(messages: Sequence[Message], log: Log, known_tools: Collection[str] | None) -> ValidWindow:
    paired = repair(messages, known_tools=known_tools)
    shaped = providers.shape(paired.messages, log)
    wire = providers.render_list(shaped, log.format)
    return ValidWindow(
        provider=log.format,
        messages=tuple(shaped),
        wire=tuple(wire),
        repairs=(*paired.repairs, *log.repairs),
        violations=tuple(providers.check(wire, log.format, reasoning=log.reasoning)),
    )


def _make_encodable(message: Message, index: int, log: Log) -> Message:
    """Replace what cannot be encoded as UTF-8."""
    if message.is_encodable:
        return message
    log.note("surrogates", index, "replaced halves of surrogate pairs, which cannot be sent, by U+FFFD")
    encodable: Message = _join_surrogates(message)
    return encodable


def _join_surrogates(value: Any) -> Any:
    """Replace halves of surrogate pairs in a value; two halves that belong together become one character."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {_join_surrogates(key): _join_surrogates(item) for key, item in value.items()}
    if isinstance(value, Origin):
        return Origin(*map(_join_surrogates, value))
    if isinstance(value, list | tuple):
        return type(value)(map(_join_surrogates, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _join_surrogates(getattr(value, field.name)) for field in fields(value)})
    return value


def _keep_understood(message: Message) -> Message:
    """Keep only the parts that are understood, without their wire forms, and no thinking."""
    parts = [part for part in message.parts if not isinstance(part, Opaque | Thinking | RedactedThinking)]
    for index, part in enumerate(parts):
        if isinstance(part, ToolResult):
            content = tuple(replace(block, origin=None) for block in part.content if not isinstance(block, Opaque))
            part = replace(part, content=content)  # noqa: PLW2901 - the part of the new list
        parts[index] = replace(part, origin=None)
    return replace(message, parts=tuple(parts), origin=None)


# --- windows that grow -------------------------------------------------------

_Make: TypeAlias = Callable[[Sequence[Message]], ValidWindow]
"""Makes messages valid for one provider."""
MIN_CACHED: Final = 24
"""Messages that are validated again each time, before their beginning is cached."""
_RESPONSES: Final = "openai_responses"
_UNIQUE_IDS: Final = frozenset({"anthropic", _RESPONSES})
"""Providers that require every id to be unique."""
_FILLER: Final = Message(role="user", parts=(Text(text="?"),))


@dataclass(slots=True)
class ValidationCache:
    """The valid beginning of a session's windows.

    Between two cuts a window only grows at its end: what was valid stays valid, and only what came after the last
    change of sides has to be validated again. The result is what `validate` makes of the whole window.
    """

    provider: str = ""
    items: list[Item] = field(default_factory=list)
    valid: ValidWindow | None = None
    ids: set[str] = field(default_factory=set)

    def validate(
        self, items: Sequence[Item], provider: str, *, reasoning: Mapping[str, str] = _NO_LINKS
    ) -> ValidWindow:
        """Make a window valid for a provider, as `validate` does.

        Raises:
            InvalidWindowError: It still breaks a rule. It must not be sent.
        """
        is_continued = len(items) > len(self.items) and all(map(is_, self.items, items))
        if provider != self.provider or not is_continued:
            self.provider, self.items, self.valid, self.ids = provider, [], None, set()
        make: _Make = partial(validate, provider=provider, reasoning=reasoning)
        rest = messages_of(items[len(self.items) :])
        whole = self._extend(rest, make) or make(messages_of(items))
        if len(rest) >= MIN_CACHED:
            self._cache(items, rest, make)
        return whole

    def _extend(self, rest: Sequence[Message], make: _Make) -> ValidWindow | None:
        """Validate the rest after the cached beginning; None where they cannot be separated."""
        if self.valid is None:
            return None
        end = _validate_alone(rest, make)
        if end is None or not self.ids.isdisjoint(_ids([*rest, *end.messages], self.provider)):
            return None
        return replace(_concatenate(self.valid, end), repairs=_shift(end.repairs, by=len(self.items)))

    def _cache(self, items: Sequence[Item], rest: Sequence[Message], make: _Make) -> None:
        """Cache everything up to the last change of sides, where nothing in it had to be repaired."""
        stop = _last_change(rest)
        before = rest[:stop]
        end = _validate_closed(before, make, is_first=self.valid is None) if stop else None
        if end is None or end.repairs or end.violations:
            return
        ids = _ids([*before, *end.messages], self.provider)
        if not self.ids.isdisjoint(ids):
            return
        self.ids |= ids
        self.items = list(items[: len(self.items) + stop])
        self.valid = end if self.valid is None else _concatenate(self.valid, end)


def _concatenate(first: ValidWindow, second: ValidWindow) -> ValidWindow:
    messages, wire = (*first.messages, *second.messages), (*first.wire, *second.wire)
    return replace(second, messages=messages, wire=wire)


def _last_change(messages: Sequence[Message]) -> int:
    """Return the index of the last message that begins another side; 0 where there is none."""
    for index in range(len(messages) - 1, 0, -1):
        before, after = messages[index - 1], messages[index]
        if after.role != "system" and (before.role == "assistant") != (after.role == "assistant"):
            return index
    return 0


def _validate_alone(messages: Sequence[Message], make: _Make) -> ValidWindow | None:
    """Validate messages as if the other side came before them; None where it matters what came before."""
    if messages[0].role == "system":
        return None
    if messages[0].role != "assistant":
        valid = _try(messages, make)
        return valid if valid is not None and _starts_with(valid, "user", "tool") else None
    valid = _try([_FILLER, *messages], make)
    if valid is None or valid.messages[0].parts != _FILLER.parts:
        return None
    rest = replace(valid, messages=valid.messages[1:], wire=valid.wire[1:], repairs=_shift(valid.repairs, by=-1))
    return rest if _starts_with(rest, "assistant") else None


def _starts_with(valid: ValidWindow, *roles: str) -> bool:
    """Whether the first message has one of the roles without a repair, and no rule was broken."""
    is_inserted = any(repair.rule == "first-user" for repair in valid.repairs)
    return bool(valid.messages) and valid.messages[0].role in roles and not is_inserted and not valid.violations


def _shift(repairs: Iterable[Repair], *, by: int) -> tuple[Repair, ...]:
    """Move the positions of repairs."""
    return tuple(one if one.where is None else replace(one, where=one.where + by) for one in repairs)


def _validate_closed(messages: Sequence[Message], make: _Make, *, is_first: bool) -> ValidWindow | None:
    """Validate messages as if the other side came after them."""
    is_reply = messages[-1].role == "assistant"
    closed = [*messages, _FILLER] if is_reply else messages
    valid = _try(closed, make) if is_first else _validate_alone(closed, make)
    if valid is None or not is_reply:
        return valid
    if valid.messages[-1].parts != _FILLER.parts:
        return None
    return replace(valid, messages=valid.messages[:-1], wire=valid.wire[:-1])


def _try(messages: Sequence[Message], make: _Make) -> ValidWindow | None:
    """Validate a part of a window; None where it cannot be sent by itself."""
    try:
        return make(messages)
    except InvalidWindowError:
        return None


def _ids(messages: Iterable[Message], provider: str) -> set[str]:
    """Collect the ids by which one part of a conversation may refer to another.

    Where ids of calls need not be unique, those that are answered do not matter to what comes later.
    """
    ids: set[str] = set()
    for message in messages if provider in _UNIQUE_IDS else ():
        ids.update(call.id for call in message.calls)
        ids.update(result.call_id for result in message.results)
        for value in (message, *message.parts):
            item_id = wire_of(value, _RESPONSES).get("id")
            if isinstance(item_id, str):
                ids.add(item_id)
    return ids
