"""Pair calls and results: every call is answered right after it, every result belongs to a call.

A message that is correct is returned as the same object, so that it is rendered as it came. Anything else is repaired
by the smallest change that helps, and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

from holdfast.messages import Message, Part, RedactedThinking, Role, Text, Thinking, ToolCall, ToolResult, Unit, units
from holdfast.providers.shaping import Repair, is_blank, is_empty

__all__ = ["MISSING", "UNKNOWN", "Repaired", "added_tokens", "added_tokens_of", "repair"]

MISSING: Final = "[holdfast] The result of this call is missing from the history; this error was inserted in its place."
"""The text of an inserted result."""
UNKNOWN: Final = "unknown"
"""The name of a tool whose name was lost."""
_MISSING_TOKENS: Final = 64
_MARGIN: Final = 32


@dataclass(frozen=True, slots=True)
class Repaired:
    """Messages whose calls and results are paired, and what had to be changed."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...]


def repair(messages: Sequence[Message], *, known_tools: Collection[str] | None = None) -> Repaired:
    """Pair calls and results. Repairing again changes nothing.

    Results without a call, and second results of a call, are dropped; displaced ones are moved to their call; missing
    ones become marked errors, except after a broken reply, whose open calls are dropped. Calls without an id are
    dropped, calls without a name unless they were answered, and calls of tools that are not among `known_tools`, where
    that is given.
    """
    work = _Work()
    answered = {result.call_id for message in messages for result in message.results}
    for index, message in enumerate(messages):
        for usable in _make_usable(message, index, work.repairs, answered=answered, known_tools=known_tools):
            work.messages.append(usable)
            work.sources.append(index)
    turns = _group_turns(work)
    _match_results(turns, work)
    paired = tuple(message for number, turn in enumerate(turns) for message in _rebuild_turn(turn, number, work))
    return Repaired(paired, tuple(sorted(work.repairs, key=lambda repair: repair.where or 0)))


def added_tokens(grouped: Iterable[Unit]) -> int:
    """Return the most tokens that validation may add to units: missing results, and a first user message."""
    return _MARGIN + _MISSING_TOKENS * sum(len(unit.pending) for unit in grouped)


def added_tokens_of(messages: Sequence[Message]) -> int:
    """Return `added_tokens` of a conversation; where every call is answered in place, without grouping it."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "assistant" and not waiting:
            waiting.update(call.id for call in message.calls)
        elif message.role == "assistant" or message.calls:
            return added_tokens(units(messages))
        elif waiting:
            waiting.difference_update(result.call_id for result in message.results)
    return added_tokens(units(messages)) if waiting else _MARGIN


# --- each message by itself --------------------------------------------------


def _make_usable(
    message: Message,
    index: int,
    repairs: list[Repair],
    *,
    answered: Collection[str],
    known_tools: Collection[str] | None,
) -> list[Message]:
    """Return a message with calls that have ids and names, in a role that may hold its parts."""
    if is_empty(message):
        repairs.append(Repair(rule="empty-message", where=index, what="dropped a message without content"))
        return []

    def change(part: Part) -> Part | None:
        if isinstance(part, ToolCall):
            if not part.id.strip() or (known_tools is not None and part.name not in known_tools):
                return None
            if part.name.strip():
                return part
            return replace(part, name=UNKNOWN) if part.id in answered else None
        # A broken reply may have ended inside its thinking.
        is_cut_off = isinstance(part, Thinking) and part.signature is None and message.is_broken
        return None if is_cut_off else part

    parts = tuple(new for part in message.parts if (new := change(part)) is not None)
    if len(parts) != len(message.parts) or not all(map(is_, parts, message.parts)):
        what = "dropped or named a call without id or name or of an unknown tool, or dropped incomplete thinking"
        repairs.append(Repair(rule="unusable-part", where=index, what=what))
        message = replace(message, parts=parts)
    return [] if is_empty(message) else _split_by_role(message, index, repairs)


def _split_by_role(message: Message, index: int, repairs: list[Repair]) -> list[Message]:
    """Split a message so that calls are the assistant's, and results in a tool message."""
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    role: Role = message.role
    if message.calls or role == "assistant":
        role = "assistant"
    elif message.results:
        role = "tool"
    elif role == "tool":
        role = "user"
    is_whole = role == "tool" or len(others) == len(message.parts)
    if role == message.role and is_whole:
        return [message]
    repairs.append(Repair(rule="wrong-role", where=index, what=f"a {message.role} message cannot hold all of this"))
    if is_whole:
        return [replace(message, role=role)]
    words = [replace(message, role=role, parts=others, origin=None)] if others else []
    return [*words, Message(role="tool", parts=message.results)]


# --- turns -------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """The state of a repair.

    Attributes:
        messages: The usable messages.
        sources: The index of the message that each of them came from.
        owners: The number of the turn that each result belongs to, by the place of its message and its part.
        repairs: What was changed.
    """

    messages: list[Message] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    owners: dict[tuple[int, int], int] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)

    def note(self, rule: str, place: int, what: str) -> None:
        self.repairs.append(Repair(rule=rule, where=self.sources[place], what=what))


@dataclass(slots=True)
class _Turn:
    """One reply of the assistant and what followed until the next one, as places in the list of messages."""

    reply: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    late: list[ToolResult] = field(default_factory=list)

    @property
    def open_calls(self) -> list[ToolCall]:
        return [call for call in self.calls.values() if call.id not in self.answered]


def _group_turns(work: _Work) -> list[_Turn]:
    turns = [_Turn()]
    for place, message in enumerate(work.messages):
        turn = turns[-1]
        if message.role != "assistant":
            turn.after.append(place)
            continue
        is_broken = message.is_broken or (bool(turn.reply) and work.messages[turn.reply[-1]].is_broken)
        if turn.after or is_broken:
            turn = _Turn()
            turns.append(turn)
        turn.reply.append(place)
        work.messages[place] = _drop_repeated_calls(message, place, turn, work)
    return turns


def _drop_repeated_calls(message: Message, place: int, turn: _Turn, work: _Work) -> Message:
    """Drop calls whose id was used before in the same reply."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in turn.calls:
                work.note("repeated-call", place, "dropped a call whose id was used before in the same reply")
                continue
            turn.calls[part.id] = part
        parts.append(part)
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))


def _match_results(turns: Sequence[_Turn], work: _Work) -> None:
    """Assign every result to the last call of its id that has none yet; drop those without such a call."""
    asking: dict[str, list[tuple[int, _Turn]]] = {}
    for number, turn in enumerate(turns):
        for call_id in turn.calls:
            asking.setdefault(call_id, []).append((number, turn))
        for place, at, part in _results(turn, work):
            result = _give_id(part, place, at, turn, work)
            candidates = asking.get(result.call_id, [])
            owner = next((pair for pair in reversed(candidates) if result.call_id not in pair[1].answered), None)
            if owner is None:
                name = f"call {result.call_id[:40]!r}"
                if candidates:
                    work.note("repeated-result", place, f"dropped a second result of {name}")
                else:
                    work.note("orphan-result", place, f"dropped a result of {name}, which is missing")
                continue
            owner[1].answered.add(result.call_id)
            work.owners[place, at] = owner[0]
            if owner[1] is not turn:
                owner[1].late.append(result)
                work.note("displaced-result", place, "moved a result to its call")


def _results(turn: _Turn, work: _Work) -> Iterator[tuple[int, int, ToolResult]]:
    for place in turn.after:
        for at, part in enumerate(work.messages[place].parts):
            if isinstance(part, ToolResult):
                yield place, at, part


def _give_id(result: ToolResult, place: int, at: int, turn: _Turn, work: _Work) -> ToolResult:
    """Give a result without an id that of the only open call."""
    if result.call_id or len(turn.open_calls) != 1:
        return result
    known = replace(result, call_id=turn.open_calls[0].id)
    parts = work.messages[place].parts
    work.messages[place] = replace(work.messages[place], parts=(*parts[:at], known, *parts[at + 1 :]))
    work.note("nameless-result", place, "gave a result the id of the only open call")
    return known


def _rebuild_turn(turn: _Turn, number: int, work: _Work) -> list[Message]:
    """Return the messages of a turn in order: the reply, its results, and everything else that followed."""
    if turn.open_calls and work.messages[turn.reply[-1]].is_broken:
        _drop_open_calls(turn, work)
    results, rest = _split_following(turn, number, work)
    replies = [work.messages[place] for place in turn.reply if not is_empty(work.messages[place])]
    if turn.late:
        results.append(Message(role="tool", parts=tuple(turn.late)))
    missing = tuple(
        ToolResult(call_id=call.id, name=call.name, content=(Text(text=MISSING),), is_error=True)
        for call in turn.open_calls
    )
    if missing:
        work.note("missing-result", turn.reply[-1], f"inserted {len(missing)} error(s) for missing results")
        results.append(Message(role="tool", parts=missing))
    return [*replies, *results, *rest]


def _split_following(turn: _Turn, number: int, work: _Work) -> tuple[list[Message], list[Message]]:
    """Split what followed a reply into messages with its results, and all others."""
    results: list[Message] = []
    rest: list[Message] = []
    for place in turn.after:
        message = work.messages[place]
        own = [part for at, part in enumerate(message.parts) if work.owners.get((place, at)) == number]
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        if own and rest:  # something is between the call and its result: it has to come after
            work.note("displaced-result", place, "moved a result to its call")
            results.append(_keep_parts(message, own))
        elif own:
            results.append(_keep_parts(message, [*own, *others]))
            continue
        if not all(map(is_blank, others)):
            rest.append(_keep_parts(message, others))
    return results, rest


def _keep_parts(message: Message, parts: Sequence[Part]) -> Message:
    """Return a message with some of its parts, in the role that they need; the message itself where it has no other."""
    if len(parts) == len(message.parts):
        return message
    role: Role = message.role
    if role == "tool" and not any(isinstance(part, ToolResult) for part in parts):
        role = "user"
    return replace(message, role=role, parts=tuple(parts))


def _drop_open_calls(turn: _Turn, work: _Work) -> None:
    """Drop the open calls of a broken reply, and the reply where nothing but thinking is left."""
    unanswered = {call.id for call in turn.open_calls}
    for place in turn.reply:
        message = work.messages[place]
        parts = [part for part in message.parts if not (isinstance(part, ToolCall) and part.id in unanswered)]
        has_content = any(not isinstance(part, Thinking | RedactedThinking) for part in parts)
        work.messages[place] = replace(message, parts=tuple(parts) if has_content else ())
        work.note("broken-reply", place, "dropped open calls of a broken reply")
    turn.answered |= unanswered
