"""The last step: make a window valid for its provider, or raise an error before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def validate(messages: Sequence[Message], provider: str, *, reasoning: Mapping[str, str] = _NO_LINKS) -> ValidWindow:
    """Make a message list valid for a provider. What is valid already is left as it is.

    Args:
        messages: What is to be sent.
        provider: The provider whose rules it must follow.
        reasoning: The reasoning item that each item of the conversation came after, as `link_reasoning` returns it.

    Raises:
        FormatError: There is no such provider.
        InvalidWindowError: It still breaks a rule. It must not be sent.
    """
    log = Log(providers.expect_format(provider).name, reasoning=reasoning)
    encodable: list[Message] = []
    for index, message in enumerate(messages):
        if not message.is_encodable:
            log.note("surrogates", index, "replaced halves of surrogate pairs, which cannot be sent, by U+FFFD")
        encodable.append(message if message.is_encodable else _join_surrogates(message))
    first = _repair_and_check(encodable, log)
    if not first.violations:
        return first
    log.note("unknown", None, f"left out every block that is not understood, because of {first.violations[0]}")
    second = _repair_and_check([_keep_understood(message) for message in encodable], log)
    if second.violations:
        raise InvalidWindowError(provider, second.violations)
    return replace(second, violations=first.violations)


def _repair_and_check(messages: Sequence[Message], log: Log) -> ValidWindow:
    paired = repair(messages)
    shaped = providers.shape(paired.messages, log)
    wire = providers.render_list(shaped, log.format)
    return ValidWindow(
        provider=log.format,
        messages=tuple(shaped),
        wire=tuple(wire),
        repairs=(*paired.repairs, *log.repairs),
        violations=tuple(providers.check(wire, log.format, reasoning=log.reasoning)),
    )


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
        whole = self._extend(rest, make, is_last=True) or make(messages_of(items))
        stop = _last_change(rest) if len(rest) >= MIN_CACHED else 0
        longer = self._extend(rest[:stop], make, is_last=False) if stop else None
        if longer and not longer.repairs and not longer.violations:
            self.ids |= _ids([*rest[:stop], *longer.messages], provider)
            self.items = list(items[: len(self.items) + stop])
            self.valid = longer
        return whole

    def _extend(self, rest: Sequence[Message], make: _Make, *, is_last: bool) -> ValidWindow | None:
        """Validate what comes after the cached beginning; None where they cannot be separated."""
        start = self.valid
        if start is None and is_last:
            return None
        end = _validate_part(rest, make, is_first=start is None, is_last=is_last)
        if end is None or not self.ids.isdisjoint(_ids([*rest, *end.messages], self.provider)):
            return None
        if start is None:
            return end
        messages, wire = (*start.messages, *end.messages), (*start.wire, *end.wire)
        return replace(end, messages=messages, wire=wire, repairs=_shift(end.repairs, by=len(self.items)))


def _last_change(messages: Sequence[Message]) -> int:
    """Return the index of the last message that begins another side; 0 where there is none."""
    for index in range(len(messages) - 1, 0, -1):
        before, after = messages[index - 1], messages[index]
        if after.role != "system" and (before.role == "assistant") != (after.role == "assistant"):
            return index
    return 0


def _validate_part(messages: Sequence[Message], make: _Make, *, is_first: bool, is_last: bool) -> ValidWindow | None:
    """Validate a part of a window as if the other side came before and after it; None where it matters what does."""
    before = [_FILLER] * (not is_first and messages[0].role == "assistant")
    after = [_FILLER] * (not is_last and messages[-1].role == "assistant")
    try:
        whole = make([*before, *messages, *after])
    except InvalidWindowError:
        return None
    fillers = (*whole.messages[: len(before)], *whole.messages[len(whole.messages) - len(after) :])
    if any(message.parts != _FILLER.parts for message in fillers):
        return None
    part = replace(
        whole,
        messages=whole.messages[len(before) : len(whole.messages) - len(after)],
        wire=whole.wire[len(before) : len(whole.wire) - len(after)],
        repairs=_shift(whole.repairs, by=-len(before)),
    )
    return part if is_first or _is_separate(messages[0], part) else None


def _is_separate(first: Message, part: ValidWindow) -> bool:
    """Whether a part begins as it did before it was validated, and breaks no rule."""
    is_inserted = any(repair.rule == "first-user" for repair in part.repairs)
    if first.role == "system" or not part.messages or is_inserted or part.violations:
        return False
    return (part.messages[0].role == "assistant") == (first.role == "assistant")


def _shift(repairs: Iterable[Repair], *, by: int) -> tuple[Repair, ...]:
    """Move the positions of repairs."""
    return tuple(one if one.where is None else replace(one, where=one.where + by) for one in repairs)


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
