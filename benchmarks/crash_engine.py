"""An engine that is killed while it makes requests, compacts, or reads facts: what it promised must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from benchmarks.crash_trial import READY, STORE, Trial
from holdfast.context.edits import Edit
from holdfast.engine import Engine
from holdfast.memory.learning import EXTRACT
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.models.scripted import Scripted
from holdfast.providers import FORMATS
from holdfast.providers import check as violations
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.check import check
from holdfast.testing.rows import word
from holdfast.window import Window

__all__ = ["ENGINE_TRIALS", "Digest", "Learn", "Told", "Turns"]

LIMIT: Final = 8_000
EVERY: Final = 5
"""Turns between two compactions."""
_FACTS: Final = 40
_SETTINGS: Final = Settings(embedding=Embedding(provider="hash"))
_SUMMARY: Final = "## Goal\nGive every service its port.\n\n## Progress\nThe ports are written down one by one.\n"


def turn_of(kill: int, turn: int) -> list[Message]:
    """What is said in a turn: a fact, a call, its result and a reply."""
    name = word("service", turn)
    call = f"c{kill}.{turn}"
    return [
        Message(role="user", parts=(Text(text=_fact(kill, turn)),)),
        Message(role="assistant", parts=(ToolCall(id=call, name="bash", arguments={"command": f"cat {name}.toml"}),)),
        Message(role="tool", parts=(ToolResult(call_id=call, content=(Text(text=f"{name} = true\n" * 80),)),)),
        Message(role="assistant", parts=(Text(text=f"Kill {kill}, turn {turn}: {name} is set up."),)),
    ]


def _fact(kill: int, turn: int) -> str:
    return f"Remember that the {word('service', turn)} of run {kill} listens on port {20_000 + turn}."


def _conversation(kill: int, turns: int) -> list[Message]:
    return [message for turn in range(turns) for message in turn_of(kill, turn)]


def _open(folder: Path, model: Scripted | None = None) -> Engine:
    return Engine.open(folder / STORE, settings=_SETTINGS, model=model, background=False)


@dataclass(slots=True)
class _EngineTrial(Trial):
    """Work of an engine. Every kill has a session of its own, in a store that all of them share.

    `number` is the kill, `turns` how many turns of its session were acknowledged.
    """

    number: int = 0
    turns: int = 0

    def prepare(self, number: int) -> None:
        """Begin a session."""
        self.number, self.turns = number, 0

    def most_reports(self) -> int:
        """Early and late, before and after several cuts."""
        return 12

    def take(self, report: Any) -> None:
        """Note which turn was acknowledged last, and what was said in it."""
        if report == READY:
            return
        self.turns = report + 1
        for message in turn_of(self.number, report):
            self.kept[len(self.kept)] = _said(message)

    def missing(self) -> int:
        """How many acknowledged messages are gone; what else was promised raises where it does not hold."""
        with _open(self.folder) as engine:
            rows = engine.memory.store.read_messages(Select(scope=Scope(), across=True))
            held = {_said(row.message) for row in rows}
            self.look(engine)
        assert check(self.folder / STORE).sound
        return len(set(self.kept.values()) - held)

    def look(self, engine: Engine) -> None:
        """Look at the session that was killed, and go on with it."""
        session = f"s{self.number}"
        known = {row.id for row in engine.memory.store.read_messages(Select(scope=Scope(session=session)))}
        edits = engine.session(session).edits()
        assert all(known.issuperset(edit.ids) for edit in edits), "an edit stands for a message that is not archived"
        again = engine.session(session).assemble(_conversation(self.number, self.turns + 1), limit=LIMIT)
        _agrees(again, edits)
        assert all("words alone" in warning for warning in again.report.warnings), "memory is in trouble"
        self.resume(engine, edits)

    def resume(self, engine: Engine, edits: Sequence[Edit]) -> None:
        """Do the work that was left, and see that it was all there."""
        engine.work()
        assert engine.memory.store.waiting(EXTRACT, limit=1) == []
        learned = {row.content for row in engine.session(f"s{self.number}").facts(across=False)}
        gone = {number for edit in edits if edit.kind == "compacted" for number in edit.ids}
        for row in engine.session(f"s{self.number}").get(sorted(gone)):
            if row.message.role == "user":
                port = row.message.text.split()[-1]
                assert any(port.rstrip(".") in fact for fact in learned), "a compacted fact was not learned"


def _said(message: Message) -> str:
    """The words of a message, whoever said them."""
    return "\n".join([message.text, *(str(call.arguments) for call in message.calls), *_results(message)])


def _results(message: Message) -> list[str]:
    return [result.text for result in message.results]


def _agrees(window: Window, edits: Sequence[Edit]) -> None:
    """A window is valid, and shows every recorded compaction whole."""
    for provider in FORMATS:
        assert violations(window.render(provider), provider) == []
    compacted = [edit for edit in edits if edit.kind == "compacted"]
    gone = {number for edit in compacted for number in edit.ids}
    assert gone.isdisjoint(item.id for item in window.items)
    assert [item.kind for item in window.items].count("summary") == min(1, len(compacted))


class Turns(_EngineTrial):
    """Requests of a session that outgrows its window."""

    def work(self) -> Callable[..., None]:
        """Assemble without end."""
        return _turns


class Digest(_EngineTrial):
    """Compactions by rule."""

    def work(self) -> Callable[..., None]:
        """Compact again and again."""
        return _digest


class Told(_EngineTrial):
    """Compactions that a model tells."""

    def work(self) -> Callable[..., None]:
        """Compact again and again."""
        return _told


class Learn(_EngineTrial):
    """Facts read out of a session, and its passages embedded."""

    def prepare(self, number: int) -> None:
        """A session with much to learn, in the queue."""
        _EngineTrial.prepare(self, number)
        with _open(self.folder) as engine:
            for turn in range(_FACTS):
                engine.session(f"s{number}").append(turn_of(number, turn))
                self.take(turn)
            engine.session(f"s{number}").learn()

    def work(self) -> Callable[..., None]:
        """Learn it again and again."""
        return _learn

    def most_reports(self) -> int:
        """While it is learned for the first time, or again."""
        return 3

    def resume(self, engine: Engine, edits: Sequence[Edit]) -> None:
        """Every fact is learned, and none twice."""
        _EngineTrial.resume(self, engine, edits)
        learned = [row.content for row in engine.session(f"s{self.number}").facts(across=False)]
        ports = [sum(f"{20_000 + turn}" in content for content in learned) for turn in range(_FACTS)]
        assert ports == [1] * _FACTS, "a fact was not learned, or learned twice"
        assert engine.memory.waiting() == 0


ENGINE_TRIALS: Final = (Turns, Digest, Told, Learn)


# --- what the processes do -----------------------------------------------------


def _turns(folder: Path, kill: int, reports: Connection) -> None:
    with _open(folder) as engine:
        said: list[Message] = []
        for turn in range(10**9):
            *said_before, reply = turn_of(kill, turn)
            engine.session(f"s{kill}").assemble([*said, *said_before], limit=LIMIT)
            engine.session(f"s{kill}").append([reply])
            said += [*said_before, reply]
            reports.send(turn)


def _digest(folder: Path, kill: int, reports: Connection) -> None:
    _compact(folder, kill, reports, model=None)


def _told(folder: Path, kill: int, reports: Connection) -> None:
    _compact(folder, kill, reports, model=Scripted(lambda _: _SUMMARY))


def _compact(folder: Path, kill: int, reports: Connection, *, model: Scripted | None) -> None:
    with _open(folder, model) as engine:
        said: list[Message] = []
        for turn in range(10**9):
            said += turn_of(kill, turn)
            engine.session(f"s{kill}").assemble(said, limit=LIMIT)
            reports.send(turn)
            if turn % EVERY == EVERY - 1:
                engine.session(f"s{kill}").compact(limit=LIMIT)
                reports.send(READY)


def _learn(folder: Path, kill: int, reports: Connection) -> None:
    with _open(folder) as engine:
        while True:
            reports.send(READY)
            engine.work()
            engine.session(f"s{kill}").learn()
