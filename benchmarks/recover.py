"""What can be had back after many compactions: needles planted in real transcripts, asked for much later.

Transcripts are joined to long conversations and played through the engine request by request. At seeded places
something is said in passing, and after a number of compactions it is asked for, in other words. It counts when the
answer stands in the window that the engine makes for the question: no tool is called. Two baselines are asked the
same: the newest messages that fit into the window, and what compaction alone leaves, the summary and what is recent.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any, Final, TypeAlias

from benchmarks import load_texts
from holdfast.cli.replay import find_requests
from holdfast.compaction.events import Hooks
from holdfast.context.budget import budget
from holdfast.engine import Engine
from holdfast.errors import CompactionError, InputError, WindowTooSmallError
from holdfast.messages import Message, Text, ToolCall, ToolResult, units
from holdfast.report import Window
from holdfast.settings import Settings, load
from holdfast.tokens import count_message, count_messages

__all__ = [
    "COMPACTIONS",
    "KINDS",
    "OFF_TOPIC",
    "ROUNDS",
    "USELESS",
    "Found",
    "Needle",
    "conversations",
    "measure",
    "needles",
]

COMPACTIONS: Final = (1, 2, 5, 10, 20)
"""After how many compactions a needle is asked for."""
SYSTEMS: Final = ("holdfast", "last_n", "summary_only")
ROUNDS: Final = max(COMPACTIONS) + 2
"""Compactions of a conversation at least, so that the last needles can be asked for."""
EVERY: Final = 16_000
"""Tokens between two compactions, where the transcripts have as many."""
DISTANCES: Final = (("under 25k", 25_000), ("25k-50k", 50_000), ("50k-100k", 100_000), ("100k-200k", 200_000))
FARTHEST: Final = "over 200k"
USELESS: Final = "The conversation went on and some work was done."
"""A summary that says nothing."""
_PIECES: Final = 4
"""A conversation is joined from at least so many pieces of transcripts, where there are enough."""
_SESSION: Final = "recover"
_PROVIDER: Final = "anthropic"
_WAIT_MS: Final = 600_000
"""A loaded machine must not change the result."""

_NEEDLES: Final = load_texts("needles")
_WORDS: Final[Mapping[str, list[str]]] = _NEEDLES["words"]
KINDS: Final = tuple(_NEEDLES["forms"])
"""The kinds of needles, such as paths and decisions."""
OFF_TOPIC: Final[Sequence[str]] = _NEEDLES["off_topic"]
"""Questions that have nothing to do with the work of an agent, English and Chinese."""

Talk: TypeAlias = Sequence[Message]


# --- needles -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One thing to be remembered.

    Attributes:
        kind: What it is, such as a path or a decision.
        said: The messages that say it.
        question: What is asked about it.
        answer: The words that must be found.
    """

    kind: str
    said: tuple[Message, ...]
    question: str
    answer: str


def needles(chance: Random, *, each: int) -> list[Needle]:
    """So many needles of each kind, at most 24; no two of a kind are about the same subject."""
    seconds = _WORDS["second"]
    names = [f"{word} {seconds[number % len(seconds)]}" for number, word in enumerate(_WORDS["first"])]
    return [
        _needle(kind, name, zh, chance)
        for kind in KINDS
        for name, zh in zip(chance.sample(names, each), chance.sample(_WORDS["zh"], each), strict=True)
    ]


def _needle(kind: str, name: str, zh: str, chance: Random) -> Needle:
    form = chance.choice(_NEEDLES["forms"][kind])
    values = _values(name, zh, chance)
    text = {field: template.format_map(values) for field, template in form.items()}
    said = [_spoken("user", text["user"])]
    if "command" in text:
        call = ToolCall(id=f"call_{values['hash']}", name="bash", arguments={"command": text["command"]})
        result = ToolResult(call_id=call.id, content=(Text(text=text["output"]),), name="bash")
        said += [Message(role="assistant", parts=(call,)), Message(role="tool", parts=(result,))]
    said.append(_spoken("assistant", text["reply"]))
    return Needle(kind=kind, said=tuple(said), question=text["question"], answer=text["answer"])


def _values(name: str, zh: str, chance: Random) -> dict[str, Any]:
    word = name.partition(" ")[0]
    folder, file = chance.sample(["limits", "policy", "core", "wire", "state", "edges", "intake"], 2)
    return {
        "name": name,
        "word": word,
        "zh": zh,
        "path": f"services/{word}/{folder}/{file}_{chance.randint(100, 999)}.py",
        "date": f"2026-0{chance.randint(1, 9)}-{chance.randint(10, 28)}",
        "time": f"{chance.randint(10, 23)}:{chance.randint(10, 59)}:{chance.randint(10, 59)}",
        "clock": f"0{chance.randint(1, 9)}:{chance.randint(10, 59)}",
        "count": chance.randint(113, 989),
        "number": chance.randint(2011, 9887),
        "small": chance.randint(12, 88),
        "port": chance.randint(20_011, 48_991),
        "code": chance.randint(65, 245),
        "hash": f"{chance.getrandbits(40):010x}",
        "store": chance.choice(_WORDS["stores"]),
        "person": chance.choice(_WORDS["people"]),
        "zh_person": chance.choice(_WORDS["zh_people"]),
        "zh_hour": chance.choice("一二三四五六"),
        "zh_minute": chance.choice(_WORDS["zh_minutes"]),
    }


def _spoken(role: Any, words: str) -> Message:
    return Message(role=role, parts=(Text(text=words),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one needle.

    Attributes:
        needle: Which.
        compactions: How many there were between the saying and the asking.
        distance: How many tokens.
        systems: Which systems had the answer in their windows.
    """

    needle: Needle
    compactions: int
    distance: int
    systems: frozenset[str]


# --- conversations -------------------------------------------------------------


def conversations(transcripts: Sequence[Talk], *, count: int, seed: int, every: int = EVERY) -> list[list[Message]]:
    """Transcripts cut into pieces and joined to long conversations, each of real turns, none twice.

    Raises:
        InputError: There is nothing in the transcripts.
    """
    size = ROUNDS * every
    pieces = [piece for talk in transcripts for piece in _pieces(talk, most=size // _PIECES)]
    if not pieces:
        raise InputError("there are no messages in these transcripts: name files or folders of an agent's sessions")
    Random(seed).shuffle(pieces)  # noqa: S311 - chance, not secrecy
    joined: list[list[Message]] = [[]]
    held = 0
    for piece in pieces:
        if held >= size:
            joined.append([])
            held = 0
        joined[-1] += piece
        held += count_messages(piece)
    whole = joined if held >= size or len(joined) == 1 else joined[:-1]
    return whole[:count]


def _pieces(talk: Talk, *, most: int) -> Iterator[list[Message]]:
    """A transcript in stretches of about so many tokens, cut between units, without its system prompts."""
    said = [message for message in talk if message.role != "system"]
    piece: list[Message] = []
    held = 0
    for unit in units(said):
        together = said[unit.start : unit.stop]
        piece += together
        held += count_messages(together)
        if held >= most:
            yield piece
            piece, held = [], 0
    if piece:
        yield piece


# --- one conversation ----------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Plan:
    """When a needle is said and asked for: in which round, and after how many tokens of it."""

    needle: Needle
    said_in: int
    said_after: int
    asked_in: int
    asked_after: int
    said_at: int | None = None

    @property
    def compactions(self) -> int:
        return self.asked_in - self.said_in


@dataclass(slots=True)
class _Player:
    """One conversation on its way through the engine.

    `said` is what was said so far, `total` its tokens; `since` is how many of them came after the last compaction,
    and `left` what that compaction left: the summary, and what was recent.
    """

    engine: Engine
    limit: int
    plans: list[_Plan]
    said: list[Message] = field(default_factory=list)
    total: int = 0
    since: int = 0
    rounds: int = 0
    left: list[Message] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    largest: int = 0

    def play(self, talk: Talk, *, every: int, progress: Callable[[int], None]) -> None:
        """Make every request; say and ask what is due; compact each time that so many tokens were said."""
        start = 0
        for stop in find_requests(talk):
            self._add(talk[start:stop])
            start = stop
            self._due()
            self._assemble()
            if self.since >= every and self._compact():
                progress(1)
            if self.rounds >= ROUNDS:
                return

    def _add(self, messages: Sequence[Message]) -> None:
        size = count_messages(messages)
        self.said += messages
        self.left += messages
        self.total += size
        self.since += size

    def _due(self) -> None:
        for plan in self.plans:
            if plan.said_at is None and _is_due(self, plan.said_in, plan.said_after):
                self._add([replace(message, timestamp=self.said[-1].timestamp) for message in plan.needle.said])
                plan.said_at = self.total
        asked = [plan for plan in self.plans if plan.said_at and _is_due(self, plan.asked_in, plan.asked_after)]
        for plan in asked:
            self.found.append(self._ask(plan))
        self.plans = [plan for plan in self.plans if plan not in asked]

    def _ask(self, plan: _Plan) -> Found:
        window = self.asked(plan.needle.question)
        held = {
            "holdfast": _words(window.messages) if window else "",
            "last_n": _words(_newest(self.said, budget(self.engine.settings, window=self.limit).prompt)),
            "summary_only": _words(self.left),
        }
        return Found(
            needle=plan.needle,
            compactions=plan.compactions,
            distance=self.total - (plan.said_at or 0),
            systems=frozenset(name for name, words in held.items() if plan.needle.answer in words),
        )

    def asked(self, question: str) -> Window | None:
        """The window for a question; the user takes it back, so that the next one is asked of the same history."""
        window = self._assemble(Message(role="user", parts=(Text(text=question),)))
        if window is not None:
            blocks = (item.block.tokens for item in window.items if item.block)
            self.largest = max(self.largest, *blocks, 0)
        return window

    def _assemble(self, *more: Message) -> Window | None:
        try:
            return self.engine.session(_SESSION).assemble([*self.said, *more], limit=self.limit, provider=_PROVIDER)
        except WindowTooSmallError:  # such as a single result that is larger than the window
            return None

    def _compact(self) -> bool:
        try:
            done = self.engine.session(_SESSION).compact(limit=self.limit)
        except CompactionError:  # the last unit is all there is; another request will do
            return False
        self.engine.work()
        told = done.summary.framed if done.summary else ""
        self.left = [Message(role="user", parts=(Text(text=told),)), *(item.message for item in done.plan.kept)]
        self.rounds, self.since = self.rounds + 1, 0
        return True


def _is_due(player: _Player, in_round: int, after: int) -> bool:
    return (player.rounds, player.since) >= (in_round, after)


def _newest(said: Sequence[Message], size: int) -> list[Message]:
    """The newest messages that fit."""
    newest: list[Message] = []
    for message in reversed(said):
        size -= count_message(message)
        if size < 0:
            break
        newest.append(message)
    return newest[::-1]


def _words(messages: Sequence[Message]) -> str:
    """All that a model could read."""
    said: list[str] = []
    for message in messages:
        said += [message.text, *(result.text for result in message.results)]
        said += [json.dumps(part.arguments, ensure_ascii=False) for part in message.parts if isinstance(part, ToolCall)]
    return "\n".join(said)


# --- the measurement -------------------------------------------------------------


def measure(
    talks: Sequence[Talk],
    *,
    useless: bool,
    limit: int = 64_000,
    each: int = 4,
    seed: int = 1,
    every: int = EVERY,
    tables: dict[str, Any] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Plant needles in conversations, compact them, ask; the figures of `python -m benchmarks recover`.

    Args:
        talks: Long conversations.
        useless: Whether every summary is one useless sentence; otherwise it is put together by rule.
        limit: Tokens of the window.
        each: Needles of each kind and number of compactions in one conversation, at most 4.
        seed: What the needles are made from.
        every: Tokens between two compactions; fewer where a conversation is short.
        tables: Settings that differ from those that come with Holdfast.
        progress: Told about every compaction.
    """
    found: list[Found] = []
    told: list[bool] = []
    largest = 0
    settings = load(files=(), environ={}, **{"recall": {"deadline_ms": _WAIT_MS}, **(tables or {})}).settings
    for number, talk in enumerate(talks):
        with tempfile.TemporaryDirectory() as home, _engine(home, settings, useless=useless) as engine:
            interval = min(every, _interval(talk))
            chance = Random(seed + number)  # noqa: S311 - chance, not secrecy
            player = _Player(engine, limit, _plans(chance, each=each, every=interval))
            player.play(talk, every=interval, progress=progress)
            told += [_is_told(player, question) for question in OFF_TOPIC[number :: len(talks)]]
            found += player.found
            largest = max(largest, player.largest)
    cap = budget(settings, window=limit).recall
    return {"cap": cap, **_figures(found, told, largest)}


def _interval(talk: Talk) -> int:
    """Tokens between two compactions, so that there are enough of them: a request may be much longer than that."""
    stops = [0, *find_requests(talk)]
    sizes = [count_messages(talk[start:stop]) for start, stop in pairwise(stops)]
    least, most = 1, max(1, sum(sizes) // ROUNDS)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if _rounds(sizes, middle) > ROUNDS else (least, middle - 1)
    return least


def _rounds(sizes: Sequence[int], interval: int) -> int:
    """How often so many tokens come together."""
    rounds = held = 0
    for size in sizes:
        held += size
        if held >= interval:
            rounds, held = rounds + 1, 0
    return rounds


def _engine(home: str, settings: Settings, *, useless: bool) -> Engine:
    def nothing(_: object) -> str:
        return USELESS

    return Engine.open(home, settings=settings, hooks=Hooks(summary=nothing if useless else None), background=False)


def _plans(chance: Random, *, each: int, every: int) -> list[_Plan]:
    made = needles(chance, each=each * len(COMPACTIONS))
    return [
        _Plan(
            needle=needle,
            said_in=(first := chance.randint(0, ROUNDS - 1 - compactions)),
            said_after=chance.randint(0, every - 1),
            asked_in=first + compactions,
            asked_after=chance.randint(0, every - 1),
        )
        for needle, compactions in zip(made, COMPACTIONS * (len(made) // len(COMPACTIONS)), strict=True)
    ]


def _is_told(player: _Player, question: str) -> bool:
    """Whether a question gets a block of its own."""
    window = player.asked(question)
    return window is not None and window.items[-1].block is not None


def _figures(found: Sequence[Found], told: Sequence[bool], largest: int) -> dict[str, Any]:
    return {
        "needles": len(found),
        "by_compactions": _shares(found, [(str(count), count) for count in COMPACTIONS], lambda one: one.compactions),
        "by_type": _shares(found, [(one, one) for one in _kinds(found)], lambda one: one.needle.kind),
        "by_distance": _shares(found, [(name, name) for name, _ in DISTANCES] + [(FARTHEST, FARTHEST)], _bucket),
        "offtopic_injected": round(sum(told) / len(told), 4) if told else None,
        "offtopic_questions": len(told),
        "largest_block": largest,
        "missed": [_as_data(one) for one in found if "holdfast" not in one.systems],
    }


def _kinds(found: Sequence[Found]) -> list[str]:
    return list(dict.fromkeys(one.needle.kind for one in found))


def _bucket(one: Found) -> str:
    return next((name for name, end in DISTANCES if one.distance < end), FARTHEST)


def _shares(
    found: Sequence[Found], keys: Sequence[tuple[str, Any]], key: Callable[[Found], Any]
) -> dict[str, dict[str, float]]:
    """For each key what share of its needles each system had, and how many needles there were."""
    grouped = {name: [one for one in found if key(one) == wanted] for name, wanted in keys}
    return {
        name: {system: round(sum(system in one.systems for one in group) / len(group), 4) for system in SYSTEMS}
        | {"needles": len(group)}
        for name, group in grouped.items()
        if group
    }


def _as_data(one: Found) -> dict[str, Any]:
    return {
        "type": one.needle.kind,
        "compactions": one.compactions,
        "distance": one.distance,
        "question": one.needle.question,
        "answer": one.needle.answer,
    }
