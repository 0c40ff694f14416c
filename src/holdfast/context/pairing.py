"""Calls and results in their places: every call answered right after it, every answer asked for.

Whatever was right comes back as the same object, so that it is rendered as it came. What was not is mended by
the least that helps, and reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final, NamedTuple

from holdfast.messages import Message, Part, RedactedThinking, Role, Text, Thinking, ToolCall, ToolResult, Unit, units

__all__ = [
    "MISSING",
    "UNKNOWN",
    "Repair",
    "Repaired",
    "additions",
    "additions_of",
    "is_blank",
    "repair",
    "says_nothing",
]

MISSING: Final = "[holdfast] The result of this call is missing from the history; this error was inserted in its place."
"""What a synthetic result says."""
UNKNOWN: Final = "unknown"
"""What a tool is called whose name was lost."""
_MISSING_TOKENS: Final = 64
_MARGIN: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that was mended.

    Attributes:
        rule: What was wrong, as a short name.
        where: Which message of those handed in; None where it is about several.
        what: What was done about it.
    """

    rule: str
    where: int | None = None
    what: str

    def __str__(self) -> str:
        return f"{'' if self.where is None else f'message {self.where}: '}{self.what} ({self.rule})"


@dataclass(frozen=True, slots=True)
class Repaired:
    """Messages in order, and what had to be mended for it."""

    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...]


def repair(messages: Sequence[Message], *, known_tools: Collection[str] | None = None) -> Repaired:
    """Put calls and results in their places. Repairing again changes nothing.

    Results that nobody asked for, or that were given before, are dropped; displaced ones are moved to their
    call; missing ones become marked errors, except after a broken reply, whose unanswered calls go. Calls
    without an id go, those without a name unless they were answered, and those of tools that are not among
    `known_tools`, where that is given.
    """
    work = _Work()
    tools = _Tools({result.call_id for message in messages for result in message.results}, known_tools)
    for index, message in enumerate(messages):
        for whole in _whole(message, index, tools, work.repairs):
            work.said.append(whole)
            work.where.append(index)
    turns = _turns(work)
    _match(turns, work)
    found = tuple(message for number, turn in enumerate(turns) for message in _told(turn, number, work))
    return Repaired(found, tuple(sorted(work.repairs, key=lambda repair: repair.where or 0)))


def is_blank(part: Part) -> bool:
    """Tell whether a part is a text without a word."""
    return isinstance(part, Text) and (not part.text or part.text.isspace())


def says_nothing(message: Message) -> bool:
    """Tell whether a message holds nothing but blank text."""
    return all(map(is_blank, message.parts))


def additions(grouped: Iterable[Unit]) -> int:
    """The most tokens that may have to be added before units can be sent: missing results, a first word of the user."""
    return _MARGIN + _MISSING_TOKENS * sum(len(unit.pending) for unit in grouped)


def additions_of(messages: Sequence[Message]) -> int:
    """The same for a conversation; where every call is answered before the assistant goes on, without grouping it."""
    waiting: set[str] = set()
    for message in messages:
        if message.role == "assistant" and not waiting:
            waiting.update(call.id for call in message.calls)
        elif message.role == "assistant" or message.calls:
            return additions(units(messages))
        elif waiting:
            waiting.difference_update(result.call_id for result in message.results)
    return additions(units(messages)) if waiting else _MARGIN


# --- each message by itself --------------------------------------------------


class _Tools(NamedTuple):
    """Which calls were answered at all, and which tools there are, where that is known."""

    answered: AbstractSet[str]
    known: Collection[str] | None


def _whole(message: Message, index: int, tools: _Tools, repairs: list[Repair]) -> list[Message]:
    """A message as it can be paired: with calls that have ids and names, in a role that may say what it says."""
    if says_nothing(message):
        repairs.append(Repair(rule="empty-message", where=index, what="dropped a message that says nothing"))
        return []
    parts = tuple(new for part in message.parts if (new := _usable(part, message, tools)) is not None)
    if not all(map(is_, parts, message.parts)) or len(parts) != len(message.parts):
        what = "dropped or named a call without id or name or of an unknown tool, or dropped half a thought"
        repairs.append(Repair(rule="unusable-part", where=index, what=what))
        message = replace(message, parts=parts)
    return [] if says_nothing(message) else _by_role(message, index, repairs)


def _usable(part: Part, message: Message, tools: _Tools) -> Part | None:
    if isinstance(part, ToolCall):
        return _usable_call(part, tools)
    # A reply that broke off may have broken off in its thought.
    half = isinstance(part, Thinking) and part.signature is None and message.is_broken
    return None if half else part


def _usable_call(call: ToolCall, tools: _Tools) -> ToolCall | None:
    if not call.id.strip() or (tools.known is not None and call.name not in tools.known):
        return None
    if call.name.strip():
        return call
    return replace(call, name=UNKNOWN) if call.id in tools.answered else None


def _by_role(message: Message, index: int, repairs: list[Repair]) -> list[Message]:
    """Calls belong to the assistant, results to a tool message: anything else is split."""
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    role = _role(message)
    if role == message.role and (role == "tool" or len(others) == len(message.parts)):
        return [message]
    repairs.append(Repair(rule="wrong-role", where=index, what=f"a {message.role} message cannot hold all of this"))
    if role == "tool" or len(others) == len(message.parts):
        return [replace(message, role=role)]
    asked = [replace(message, role=role, parts=others, origin=None)] if others else []
    return [*asked, Message(role="tool", parts=message.results)]


def _role(message: Message) -> Role:
    """Whose message it is, by what it holds."""
    if message.calls or message.role == "assistant":
        return "assistant"
    if message.results:
        return "tool"
    return "user" if message.role == "tool" else message.role


# --- turns -------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """What was said, from which message it came, which turn each result belongs to, and what was mended."""

    said: list[Message] = field(default_factory=list)
    where: list[int] = field(default_factory=list)
    homes: dict[tuple[int, int], int] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)

    def note(self, rule: str, place: int, what: str) -> None:
        self.repairs.append(Repair(rule=rule, where=self.where[place], what=what))


@dataclass(slots=True)
class _Turn:
    """What the assistant said in one go, and what followed until it spoke again, as places in what was said."""

    reply: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    late: list[ToolResult] = field(default_factory=list)

    @property
    def open(self) -> list[ToolCall]:
        return [call for call in self.calls.values() if call.id not in self.answered]


def _turns(work: _Work) -> list[_Turn]:
    turns = [_Turn()]
    for place, message in enumerate(work.said):
        turn = turns[-1]
        if message.role != "assistant":
            turn.after.append(place)
            continue
        broken = message.is_broken or (bool(turn.reply) and work.said[turn.reply[-1]].is_broken)
        if turn.after or broken:
            turn = _Turn()
            turns.append(turn)
        turn.reply.append(place)
        work.said[place] = _unrepeated(message, place, turn, work)
    return turns


def _unrepeated(message: Message, place: int, turn: _Turn, work: _Work) -> Message:
    """The message without calls whose id was used in this reply before."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.id in turn.calls:
                work.note("repeated-call", place, "dropped a call whose id was used before in the same reply")
                continue
            turn.calls[part.id] = part
        parts.append(part)
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))


# --- matching ----------------------------------------------------------------


def _match(turns: Sequence[_Turn], work: _Work) -> None:
    """Give every result to the last call of its id that has none yet; one without such a call has no home."""
    asked: dict[str, list[_Turn]] = {}
    numbers = {id(turn): number for number, turn in enumerate(turns)}
    for turn in turns:
        for call_id in turn.calls:
            asked.setdefault(call_id, []).append(turn)
        for place, at, result in _results(turn, work):
            known = _identified(result, place, at, turn, work)
            owner = next((t for t in reversed(asked.get(known.call_id, [])) if known.call_id not in t.answered), None)
            if owner is None:
                _drop(known, place, work, repeated=known.call_id in asked)
                continue
            owner.answered.add(known.call_id)
            work.homes[place, at] = numbers[id(owner)]
            if owner is not turn:
                owner.late.append(known)
                work.note("displaced-result", place, "moved a result to its call")


def _results(turn: _Turn, work: _Work) -> Iterator[tuple[int, int, ToolResult]]:
    for place in turn.after:
        for at, part in enumerate(work.said[place].parts):
            if isinstance(part, ToolResult):
                yield place, at, part


def _identified(result: ToolResult, place: int, at: int, turn: _Turn, work: _Work) -> ToolResult:
    """An answer without an id can only be to the one open question; then it takes its id."""
    if result.call_id or len(turn.open) != 1:
        return result
    known = replace(result, call_id=turn.open[0].id)
    parts = work.said[place].parts
    work.said[place] = replace(work.said[place], parts=(*parts[:at], known, *parts[at + 1 :]))
    work.note("nameless-result", place, "gave a result the id of the one open call")
    return known


def _drop(result: ToolResult, place: int, work: _Work, *, repeated: bool) -> None:
    if repeated:
        work.note("repeated-result", place, f"dropped a second result of call {result.call_id[:40]!r}")
    else:
        work.note("orphan-result", place, f"dropped a result of call {result.call_id[:40]!r}, which is not there")


# --- telling it again --------------------------------------------------------


def _told(turn: _Turn, number: int, work: _Work) -> list[Message]:
    """A turn as it should have been: the reply, its results, and then everything else that followed."""
    if turn.open and work.said[turn.reply[-1]].is_broken:
        _forget_open(turn, work)
    answered, rest = _sorted(turn, number, work)
    replies = [work.said[place] for place in turn.reply if not says_nothing(work.said[place])]
    return [*replies, *answered, *_late(turn), *_synthetic(turn, work), *rest]


def _sorted(turn: _Turn, number: int, work: _Work) -> tuple[list[Message], list[Message]]:
    """What followed a reply: its results, and everything else."""
    answered: list[Message] = []
    rest: list[Message] = []
    for place in turn.after:
        message = work.said[place]
        own = [part for at, part in enumerate(message.parts) if work.homes.get((place, at)) == number]
        others = [part for part in message.parts if not isinstance(part, ToolResult)]
        if own and rest:  # something stands between the call and its result: that has to wait
            work.note("displaced-result", place, "moved a result to its call")
            answered.append(_with(message, own))
        elif own:
            answered.append(_with(message, [*own, *others]))
            continue
        if not all(map(is_blank, others)):
            rest.append(_with(message, others))
    return answered, rest


def _with(message: Message, parts: Sequence[Part]) -> Message:
    """The message with these of its parts, in the role that they need; itself where they are all it has."""
    if len(parts) == len(message.parts):
        return message
    role: Role = message.role
    if role == "tool" and not any(isinstance(part, ToolResult) for part in parts):
        role = "user"
    return replace(message, role=role, parts=tuple(parts))


def _forget_open(turn: _Turn, work: _Work) -> None:
    """Drop the calls that a broken reply left open, and the reply where nothing but thought is left of it."""
    unanswered = {call.id for call in turn.open}
    for place in turn.reply:
        message = work.said[place]
        parts = [part for part in message.parts if not (isinstance(part, ToolCall) and part.id in unanswered)]
        said = any(not isinstance(part, Thinking | RedactedThinking) for part in parts)
        work.said[place] = replace(message, parts=tuple(parts) if said else ())
        work.note("broken-reply", place, "dropped calls that a broken reply left open")
    turn.answered |= unanswered


def _late(turn: _Turn) -> list[Message]:
    return [Message(role="tool", parts=tuple(turn.late))] if turn.late else []


def _synthetic(turn: _Turn, work: _Work) -> list[Message]:
    missing = tuple(
        ToolResult(call_id=call.id, name=call.name, content=(Text(text=MISSING),), is_error=True) for call in turn.open
    )
    if not missing:
        return []
    work.note("missing-result", turn.reply[-1], f"inserted {len(missing)} error(s) for results that are not there")
    return [Message(role="tool", parts=missing)]
