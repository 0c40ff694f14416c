"""The last step: make a window valid for its provider, or raise an error before it is sent.

Calls and results are paired first: every call has its result right after it, and every result belongs to a call. A
message that is correct stays the same object, so that it is rendered unchanged. Anything else is repaired with the
smallest possible change, and reported. Then the window is shaped, rendered and checked by the rules of its provider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Final, TypeAlias

from holdfast import providers
from holdfast.context.edits import Item
from holdfast.errors import InvalidWindowError
from holdfast.messages import (
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.providers import Log, Repair, Violation
from holdfast.providers.shaping import is_blank, is_empty
from holdfast.providers.wire import leading_system, wire_of
from holdfast.text import join_surrogates


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidWindow:
    """A window that can be sent.

    Attributes:
        provider: The provider whose rules it follows.
        messages: Its messages, with the system prompt.
        wire: The message list of the request, without the system prompt if the provider wants that separately.
        repairs: What was repaired.
        violations: The rules that were still broken after the repairs; then every block of an unknown type was left
            out.
    """

    provider: str
    messages: tuple[Message, ...]
    wire: tuple[Mapping[str, Any], ...]
    repairs: tuple[Repair, ...]
    violations: tuple[Violation, ...] = ()

    def begins_like(self, first: Message) -> bool:
        """Return whether it breaks no rule and begins on the same side as `first`, the message it was made from."""
        if first.role == "system" or not self.messages or self.violations:
            return False
        if any(repair.rule == "first-user" for repair in self.repairs):  # a user message was inserted
            return False
        return (self.messages[0].role == "assistant") == (first.role == "assistant")


_NO_LINKS: Final[Mapping[str, str]] = {}


def validate(messages: Sequence[Message], provider: str, *, reasoning: Mapping[str, str] = _NO_LINKS) -> ValidWindow:
    """Make a message list valid for a provider. Valid messages are left unchanged.

    `reasoning` maps items of the conversation to the reasoning item before them, as `link_reasoning` returns it.

    Raises:
        FormatError: There is no such provider.
        InvalidWindowError: The list still breaks a rule after the repairs. It must not be sent.
    """
    log = Log(providers.expect_format(provider).name, reasoning=reasoning)
    encodable: list[Message] = []
    for index, message in enumerate(messages):
        if message.is_encodable:
            encodable.append(message)
        else:
            log.note("surrogates", index, "replaced lone surrogates, which cannot be sent, with U+FFFD")
            encodable.append(join_surrogates(message))
    first = _repair_and_check(encodable, log)
    if not first.violations:
        return first
    log.note("unknown", None, f"left out every block of an unknown type, because of {first.violations[0]}")
    second = _repair_and_check([_keep_understood(message) for message in encodable], log)
    if not second.wire:
        raise InvalidWindowError(provider, [_explain_empty(messages)])
    if second.violations:
        raise InvalidWindowError(provider, second.violations)
    return replace(second, violations=first.violations)


def _explain_empty(messages: Sequence[Message]) -> Violation:
    """Explain why nothing in a message list can be sent, and what to do."""
    empty = [f"messages[{index}] ({message.role})" for index, message in enumerate(messages) if is_empty(message)]
    if len(empty) > 1:
        why = f"{', '.join(empty[:_MAX_NAMED])} are empty: give one of them text, or do not send them"
    elif empty:
        why = f"{empty[0]} is empty: give it text, or do not send it"
    else:
        why = "add a message of the user"
    return Violation("empty-window", "messages", f"there is no message with content; {why}")


_MAX_NAMED: Final = 5
"""How many empty messages an error names."""


def _repair_and_check(messages: Sequence[Message], log: Log) -> ValidWindow:
    paired = repair(messages)
    form = providers.FORMATS[log.format]
    shaped = form.shape(paired.messages, log)
    wire = form.render(shaped[leading_system(shaped, form.name) :])
    return ValidWindow(
        provider=log.format,
        messages=tuple(shaped),
        wire=tuple(wire),
        repairs=(*paired.repairs, *log.repairs),
        violations=tuple(providers.check(wire, log.format, reasoning=log.reasoning)),
    )


def _keep_understood(message: Message) -> Message:
    """Keep only parts of known types, without their wire forms, and no thinking."""
    parts = [part for part in message.parts if not isinstance(part, Opaque | Thinking | RedactedThinking)]
    for index, part in enumerate(parts):
        if isinstance(part, ToolResult):
            content = tuple(replace(block, origin=None) for block in part.content if not isinstance(block, Opaque))
            part = replace(part, content=content)  # noqa: PLW2901 - the part of the new list
        parts[index] = replace(part, origin=None)
    return replace(message, parts=tuple(parts), origin=None)


# --- calls and results -------------------------------------------------------

MISSING: Final = "[holdfast] The result of this call is missing from the history; this error was inserted in its place."
"""The text of an inserted result."""
UNKNOWN: Final = "unknown"
"""The name of a tool whose name was lost."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Messages whose calls and results are paired, and what had to be changed."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...]


@dataclass(slots=True, eq=False)
class _Slot:
    """A message during a repair: its source, the list of repairs, and the turn that owns each of its results."""

    message: Message
    source: int
    repairs: list[Repair]
    owners: dict[int, _Turn] = field(default_factory=dict)

    def note(self, rule: str, what: str) -> None:
        self.repairs.append(Repair(rule=rule, where=self.source, what=what))

    def make_usable(self, answered: Collection[str]) -> list[_Slot]:
        """Return the message with calls that have ids and names, in a role that may contain its parts."""
        message = self.message
        if is_empty(message):
            self.note("empty-message", "dropped a message without content")
            return []
        parts: list[Part] = []
        for part in message.parts:
            usable = self.make_part_usable(part, answered)
            if usable is not None:
                parts.append(usable)
        if len(parts) != len(message.parts) or not all(map(is_, parts, message.parts)):
            self.note("unusable-part", "dropped or named a call without id or name, or dropped incomplete thinking")
            self.message = replace(message, parts=tuple(parts))
        if is_empty(self.message):
            return []
        return self.split_by_role()

    def make_part_usable(self, part: Part, answered: Collection[str]) -> Part | None:
        """Return a part, a call with a name if its name was lost, or None if the part cannot be sent."""
        if isinstance(part, ToolCall):
            if not part.id.strip():
                return None
            if part.name.strip():
                return part
            if part.id in answered:
                return replace(part, name=UNKNOWN)
            return None
        if isinstance(part, Thinking) and part.signature is None and self.message.is_broken:
            return None  # the reply may have broken off inside its thinking
        return part

    def split_by_role(self) -> list[_Slot]:
        """Split a message so that calls are the assistant's, and results in a tool message."""
        message = self.message
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        role = message.role
        if message.calls:
            role = "assistant"
        elif role != "assistant" and message.results:
            role = "tool"
        elif role == "tool":
            role = "user"
        is_whole = role == "tool" or len(others) == len(message.parts)
        if role == message.role and is_whole:
            return [self]
        self.note("wrong-role", f"a message of the role {message.role} cannot contain all of its parts")
        if is_whole:
            self.message = replace(message, role=role)
            return [self]
        self.message = replace(message, role=role, parts=others, origin=None)
        results = _Slot(Message(role="tool", parts=message.results), self.source, self.repairs)
        if not others:
            return [results]
        return [self, results]

    def give_id(self, result: ToolResult, at: int, turn: _Turn) -> ToolResult:
        """Give a result without an id the id of the only open call."""
        if result.call_id or len(turn.open_calls) != 1:
            return result
        known = replace(result, call_id=turn.open_calls[0].id)
        parts = self.message.parts
        self.message = replace(self.message, parts=(*parts[:at], known, *parts[at + 1 :]))
        self.note("nameless-result", "gave a result the id of the only open call")
        return known

    def match_result(self, result: ToolResult, at: int, turn: _Turn, candidates: Sequence[_Turn]) -> None:
        """Assign a result to the last of the turns with its call that has no result of it yet."""
        owner = None
        for candidate in reversed(candidates):
            if result.call_id not in candidate.answered:
                owner = candidate
                break
        if owner is None:
            name = f"call {result.call_id[:40]!r}"
            if candidates:
                self.note("repeated-result", f"dropped a second result of {name}")
            else:
                self.note("orphan-result", f"dropped a result of {name}, which is missing")
            return
        owner.answered.add(result.call_id)
        self.owners[at] = owner
        if owner is not turn:
            owner.late.append(result)
            self.note("displaced-result", "moved a result to its call")

    def join(self, turns: list[_Turn]) -> None:
        """Add the message to the last turn, or to a new one; drop calls whose id was used before in the same reply."""
        turn = turns[-1]
        message = self.message
        if message.role != "assistant":
            turn.after.append(self)
            return
        if turn.after or message.is_broken or (turn.reply and turn.reply[-1].message.is_broken):
            turn = _Turn()
            turns.append(turn)
        turn.reply.append(self)
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in turn.calls:
                    self.note("repeated-call", "dropped a call whose id was used before in the same reply")
                    continue
                turn.calls[part.id] = part
            parts.append(part)
        if len(parts) != len(message.parts):
            self.message = replace(message, parts=tuple(parts))


@dataclass(slots=True, eq=False)
class _Turn:
    """One reply of the assistant, what followed until the next one, and results of its calls from later turns."""

    reply: list[_Slot] = field(default_factory=list)
    after: list[_Slot] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    late: list[ToolResult] = field(default_factory=list)

    @property
    def open_calls(self) -> list[ToolCall]:
        return [call for call in self.calls.values() if call.id not in self.answered]

    def rebuild(self) -> list[Message]:
        """Return the messages of the turn in order: the reply, its results, and everything else that followed."""
        if self.open_calls and self.reply[-1].message.is_broken:
            self.drop_open_calls()
        results, rest = self.split_following()
        if self.late:
            results.append(Message(role="tool", parts=tuple(self.late)))
        missing: list[Part] = []
        for call in self.open_calls:
            missing.append(ToolResult(call_id=call.id, name=call.name, content=(Text(text=MISSING),), is_error=True))
        if missing:
            self.reply[-1].note("missing-result", f"inserted {len(missing)} error(s) for missing results")
            results.append(Message(role="tool", parts=tuple(missing)))
        replies = [slot.message for slot in self.reply if not is_empty(slot.message)]
        return [*replies, *results, *rest]

    def split_following(self) -> tuple[list[Message], list[Message]]:
        """Split what followed a reply into messages with its results, and all others."""
        results: list[Message] = []
        rest: list[Message] = []
        for slot in self.after:
            message = slot.message
            own = [part for at, part in enumerate(message.parts) if slot.owners.get(at) is self]
            others = [part for part in message.parts if not isinstance(part, ToolResult)]
            if own and not rest:
                results.append(_keep_parts(message, [*own, *others]))
                continue
            if own:  # something is between the call and its result: it has to come after
                slot.note("displaced-result", "moved a result to its call")
                results.append(_keep_parts(message, own))
            if not all(map(is_blank, others)):
                rest.append(_keep_parts(message, others))
        return results, rest

    def drop_open_calls(self) -> None:
        """Drop the open calls of a broken reply, and the reply if nothing but thinking is left."""
        unanswered = {call.id for call in self.open_calls}
        for slot in self.reply:
            parts = [part for part in slot.message.parts if not (isinstance(part, ToolCall) and part.id in unanswered)]
            if all(isinstance(part, Thinking | RedactedThinking) for part in parts):
                parts = []
            slot.message = replace(slot.message, parts=tuple(parts))
            slot.note("broken-reply", "dropped open calls of a broken reply")
        self.answered |= unanswered


def repair(messages: Sequence[Message]) -> Repaired:
    """Pair calls and results. Repairing again changes nothing.

    Results without a call, and second results of a call, are dropped; displaced ones are moved to their call; missing
    ones become marked errors, except after a broken reply, whose open calls are dropped. Calls without an id are
    dropped, and calls without a name unless they were answered.
    """
    repairs: list[Repair] = []
    answered: set[str] = set()
    for message in messages:
        answered.update(result.call_id for result in message.results)
    turns = [_Turn()]
    for index, message in enumerate(messages):
        for slot in _Slot(message, index, repairs).make_usable(answered):
            slot.join(turns)
    _match_results(turns)
    paired: list[Message] = []
    for turn in turns:
        paired += turn.rebuild()
    repairs.sort(key=lambda repair: repair.where or 0)
    return Repaired(tuple(paired), tuple(repairs))


def _match_results(turns: Sequence[_Turn]) -> None:
    """Assign every result to the last call with its id that has no result yet; drop results without a call."""
    asking: dict[str, list[_Turn]] = {}
    for turn in turns:
        for call_id in turn.calls:
            asking.setdefault(call_id, []).append(turn)
        for slot in turn.after:
            for at, part in enumerate(slot.message.parts):
                if isinstance(part, ToolResult):
                    result = slot.give_id(part, at, turn)
                    slot.match_result(result, at, turn, asking.get(result.call_id, []))


def _keep_parts(message: Message, parts: Sequence[Part]) -> Message:
    """Return a message with some of its parts, in the role that they need; the message itself if these are all."""
    if len(parts) == len(message.parts):
        return message
    kept = replace(message, parts=tuple(parts))
    if kept.role == "tool" and not kept.results:
        kept = replace(kept, role="user")
    return kept


# --- windows that grow -------------------------------------------------------

_Make: TypeAlias = Callable[[Sequence[Message]], ValidWindow]
"""Makes messages valid for one provider."""
MIN_CACHED: Final = 8
"""How many messages are validated again each time before their beginning is cached."""
_RESPONSES: Final = "openai_responses"
_UNIQUE_IDS: Final = frozenset({"anthropic", _RESPONSES})
"""Providers that require every id to be unique."""
_SENT: Final[Callable[[Item], Message]] = attrgetter("sent")
_FILLER: Final = Message(role="user", parts=(Text(text="?"),))
"""Stands for the user's side before or after a part of a window that is validated alone."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A valid part of a window: its items, their valid form, and the ids in it."""

    items: Sequence[Item]
    valid: ValidWindow
    ids: set[str]


@dataclass(slots=True)
class ValidationCache:
    """The valid beginning of a session's windows, in parts.

    Between two cuts a window only grows at its end, so its beginning stays valid, and only the messages after the last
    change of sides have to be validated again. If an item changes, the parts before it stay valid. The result is that
    of `validate` for the whole window.
    """

    provider: str = ""
    parts: list[_Part] = field(default_factory=list)

    def validate(
        self, items: Sequence[Item], provider: str, *, reasoning: Mapping[str, str] = _NO_LINKS
    ) -> ValidWindow:
        """Make a window valid for a provider, as `validate` does."""
        if provider != self.provider:
            self.provider = provider
            self.parts = []
        make: _Make = partial(validate, provider=provider, reasoning=reasoning)
        start = self._drop_changed(items)
        # The last messages may come in another form with the next request, such as without a cache mark. So they are in
        # a part of their own.
        for stop in (len(items) - MIN_CACHED, len(items)):
            if stop - start >= MIN_CACHED:
                start += self._add_part(items[start:stop], make)
        end = None
        if self.parts:
            end = self._extend(items[start:], make, is_last=True)
        if end is None:
            return make(list(map(_SENT, items)))
        windows = [part.valid for part in (*self.parts, end)]
        messages = tuple(chain.from_iterable(map(attrgetter("messages"), windows)))
        wire = tuple(chain.from_iterable(map(attrgetter("wire"), windows)))
        return replace(end.valid, messages=messages, wire=wire, repairs=_shift(end.valid.repairs, by=start))

    def _add_part(self, items: Sequence[Item], make: _Make) -> int:
        """Keep the beginning of some items, up to the last change of sides, as the next part; return its length."""
        stop = _last_change(items)
        if not stop:
            return 0
        part = self._extend(items[:stop], make, is_last=False)
        if part is None or part.valid.repairs or part.valid.violations:
            return 0
        self.parts.append(part)
        return stop

    def _drop_changed(self, items: Sequence[Item]) -> int:
        """Drop the parts that a window no longer begins with or ends in; return the number of items of the others."""
        start = 0
        for number, part in enumerate(self.parts):
            stop = start + len(part.items)
            if not all(map(is_, part.items, items[start:stop])) or not _last_change(items[stop - 1 : stop + 1]):
                del self.parts[number:]
                break
            start = stop
        return start

    def _extend(self, items: Sequence[Item], make: _Make, *, is_last: bool) -> _Part | None:
        """Validate the items after the cached beginning; None if the two cannot be validated separately."""
        rest = list(map(_SENT, items))
        valid = _validate_part(rest, make, is_first=not self.parts, is_last=is_last)
        if valid is None:
            return None
        ids = _ids([*rest, *valid.messages], self.provider)
        if not all(ids.isdisjoint(part.ids) for part in self.parts):
            return None
        return _Part(items, valid, ids)


def _last_change(items: Sequence[Item]) -> int:
    """Return the index of the last message that is on another side than the one before it; 0 if there is none."""
    for index in range(len(items) - 1, 0, -1):
        before = items[index - 1].message
        after = items[index].message
        if after.role != "system" and (before.role == "assistant") != (after.role == "assistant"):
            return index
    return 0


def _validate_part(messages: Sequence[Message], make: _Make, *, is_first: bool, is_last: bool) -> ValidWindow | None:
    """Validate a part of a window as if the other side came before and after it; None if it depends on them."""
    for message in messages:
        if not all(call.name.strip() for call in message.calls):  # a result elsewhere decides whether it is dropped
            return None
    before: list[Message] = []
    if not is_first and messages[0].role == "assistant":
        before.append(_FILLER)
    after: list[Message] = []
    if not is_last and messages[-1].role == "assistant":
        after.append(_FILLER)
    try:
        whole = make([*before, *messages, *after])
    except InvalidWindowError:
        return None
    fillers = (*whole.messages[: len(before)], *whole.messages[len(whole.messages) - len(after) :])
    if any(message.parts != _FILLER.parts for message in fillers):  # something was joined to one of them
        return None
    part = replace(
        whole,
        messages=whole.messages[len(before) : len(whole.messages) - len(after)],
        wire=whole.wire[len(before) : len(whole.wire) - len(after)],
        repairs=_shift(whole.repairs, by=-len(before)),
    )
    if not is_first and not part.begins_like(messages[0]):
        return None
    return part


def _shift(repairs: Iterable[Repair], *, by: int) -> tuple[Repair, ...]:
    """Move the index of each repair that has one."""
    shifted: list[Repair] = []
    for repair in repairs:
        if repair.where is None:
            shifted.append(repair)
        else:
            shifted.append(replace(repair, where=repair.where + by))
    return tuple(shifted)


def _ids(messages: Iterable[Message], provider: str) -> set[str]:
    """Collect the ids by which one part of a conversation may refer to another, if they must be unique."""
    ids: set[str] = set()
    if provider not in _UNIQUE_IDS:
        return ids
    for message in messages:
        ids.update(call.id for call in message.calls)
        ids.update(result.call_id for result in message.results)
        for value in (message, *message.parts):
            item_id = wire_of(value, _RESPONSES).get("id")
            if isinstance(item_id, str):
                ids.add(item_id)
    return ids
