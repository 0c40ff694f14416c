"""Pair calls and results: every call is answered right after it, every result belongs to a call.

A message that is correct is returned as the same object, so that it is rendered as it came. Anything else is repaired
by the smallest change that helps, and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
_WITHOUT_RESULTS: Final[dict[Role, Role]] = {"tool": "user"}


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


def repair(messages: Sequence[Message]) -> Repaired:
    """Pair calls and results. Repairing again changes nothing.

    Results without a call, and second results of a call, are dropped; displaced ones are moved to their call; missing
    ones become marked errors, except after a broken reply, whose open calls are dropped. Calls without an id are
    dropped, and calls without a name unless they were answered.
    """
    repairs: list[Repair] = []
    answered = {result.call_id for message in messages for result in message.results}
    turns = [_Turn()]
    for index, message in enumerate(messages):
        for slot in _make_usable(_Slot(message, index, repairs), answered):
            _add_to_turn(slot, turns)
    _match_results(turns)
    paired = tuple(message for turn in turns for message in _rebuild_turn(turn))
    return Repaired(paired, tuple(sorted(repairs, key=lambda repair: repair.where or 0)))


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


def _make_usable(slot: _Slot, answered: Collection[str]) -> list[_Slot]:
    """Return a message with calls that have ids and names, in a role that may hold its parts."""
    message = slot.message
    if is_empty(message):
        slot.note("empty-message", "dropped a message without content")
        return []
    usable = (_make_part_usable(part, answered, is_broken=message.is_broken) for part in message.parts)
    parts = tuple(part for part in usable if part is not None)
    if len(parts) != len(message.parts) or not all(map(is_, parts, message.parts)):
        slot.note("unusable-part", "dropped or named a call without id or name, or dropped incomplete thinking")
        slot.message = replace(message, parts=parts)
    return [] if is_empty(slot.message) else _split_by_role(slot)


def _split_by_role(slot: _Slot) -> list[_Slot]:
    """Split a message so that calls are the assistant's, and results in a tool message."""
    message = slot.message
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    role = message.role
    if message.calls:
        role = "assistant"
    elif role != "assistant":
        role = "tool" if message.results else _WITHOUT_RESULTS.get(role, role)
    is_whole = role == "tool" or len(others) == len(message.parts)
    if role == message.role and is_whole:
        return [slot]
    slot.note("wrong-role", f"a {message.role} message cannot hold all of this")
    if is_whole:
        slot.message = replace(message, role=role)
        return [slot]
    slot.message = replace(message, role=role, parts=others, origin=None)
    results = _Slot(Message(role="tool", parts=message.results), slot.source, slot.repairs)
    return [slot, results] if others else [results]


def _make_part_usable(part: Part, answered: Collection[str], *, is_broken: bool) -> Part | None:
    """Return a part, a call with a name if that was lost, or None where the part cannot be sent."""
    if isinstance(part, ToolCall):
        if not part.id.strip() or not (part.name.strip() or part.id in answered):
            return None
        return part if part.name.strip() else replace(part, name=UNKNOWN)
    # A broken reply may have ended inside its thinking.
    return None if isinstance(part, Thinking) and part.signature is None and is_broken else part


# --- turns -------------------------------------------------------------------


def _add_to_turn(slot: _Slot, turns: list[_Turn]) -> None:
    """Add a message to the last turn, or to a new one; drop calls whose id was used before in the same reply."""
    turn, message = turns[-1], slot.message
    if message.role != "assistant":
        turn.after.append(slot)
        return
    if turn.after or message.is_broken or (turn.reply and turn.reply[-1].message.is_broken):
        turn = _Turn()
        turns.append(turn)
    turn.reply.append(slot)
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in turn.calls:
                slot.note("repeated-call", "dropped a call whose id was used before in the same reply")
                continue
            turn.calls[part.id] = part
        parts.append(part)
    if len(parts) != len(message.parts):
        slot.message = replace(message, parts=tuple(parts))


def _match_results(turns: Sequence[_Turn]) -> None:
    """Assign every result to the last call of its id that has none yet; drop those without such a call."""
    asking: dict[str, list[_Turn]] = {}
    for turn in turns:
        for call_id in turn.calls:
            asking.setdefault(call_id, []).append(turn)
        for slot in turn.after:
            for at, part in enumerate(slot.message.parts):
                if isinstance(part, ToolResult):
                    result = _give_id(part, at, slot, turn)
                    _match_result(result, at, slot, turn, asking.get(result.call_id, []))


def _match_result(result: ToolResult, at: int, slot: _Slot, turn: _Turn, candidates: Sequence[_Turn]) -> None:
    owner = next((asked for asked in reversed(candidates) if result.call_id not in asked.answered), None)
    if owner is None:
        name = f"call {result.call_id[:40]!r}"
        if candidates:
            slot.note("repeated-result", f"dropped a second result of {name}")
        else:
            slot.note("orphan-result", f"dropped a result of {name}, which is missing")
        return
    owner.answered.add(result.call_id)
    slot.owners[at] = owner
    if owner is not turn:
        owner.late.append(result)
        slot.note("displaced-result", "moved a result to its call")


def _give_id(result: ToolResult, at: int, slot: _Slot, turn: _Turn) -> ToolResult:
    """Give a result without an id that of the only open call."""
    if result.call_id or len(turn.open_calls) != 1:
        return result
    known = replace(result, call_id=turn.open_calls[0].id)
    parts = slot.message.parts
    slot.message = replace(slot.message, parts=(*parts[:at], known, *parts[at + 1 :]))
    slot.note("nameless-result", "gave a result the id of the only open call")
    return known


def _rebuild_turn(turn: _Turn) -> list[Message]:
    """Return the messages of a turn in order: the reply, its results, and everything else that followed."""
    if turn.open_calls and turn.reply[-1].message.is_broken:
        _drop_open_calls(turn)
    results, rest = _split_following(turn)
    missing = [
        ToolResult(call_id=call.id, name=call.name, content=(Text(text=MISSING),), is_error=True)
        for call in turn.open_calls
    ]
    if missing:
        turn.reply[-1].note("missing-result", f"inserted {len(missing)} error(s) for missing results")
    added = [Message(role="tool", parts=tuple(parts)) for parts in (turn.late, missing) if parts]
    return [*(slot.message for slot in turn.reply if not is_empty(slot.message)), *results, *added, *rest]


def _split_following(turn: _Turn) -> tuple[list[Message], list[Message]]:
    """Split what followed a reply into messages with its results, and all others."""
    results: list[Message] = []
    rest: list[Message] = []
    for slot in turn.after:
        message = slot.message
        own = [part for at, part in enumerate(message.parts) if slot.owners.get(at) is turn]
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


def _keep_parts(message: Message, parts: Sequence[Part]) -> Message:
    """Return a message with some of its parts, in the role that they need; the message itself where it has no other."""
    if len(parts) == len(message.parts):
        return message
    kept = replace(message, parts=tuple(parts))
    return replace(kept, role="user") if kept.role == "tool" and not kept.results else kept


def _drop_open_calls(turn: _Turn) -> None:
    """Drop the open calls of a broken reply, and the reply where nothing but thinking is left."""
    unanswered = {call.id for call in turn.open_calls}
    for slot in turn.reply:
        parts = [part for part in slot.message.parts if not (isinstance(part, ToolCall) and part.id in unanswered)]
        has_content = any(not isinstance(part, Thinking | RedactedThinking) for part in parts)
        slot.message = replace(slot.message, parts=tuple(parts) if has_content else ())
        slot.note("broken-reply", "dropped open calls of a broken reply")
    turn.answered |= unanswered
