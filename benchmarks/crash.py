"""Kill a process in the middle of writing, again and again, and count what was acknowledged and is gone.

Nine kinds of work take turns. Five are the store's: single appends, imports in bulk, a rebuild of the index, vectors
saved to a VMEM file, and a migration. Four are the engine's: requests, compactions by rule and by a model, and the
extraction of facts. Each has a store of its own that is used through all of its kills.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final, TypedDict

from holdfast.context.edits import Edit
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.memory.learning_queue import EXTRACT
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.models.scripted import Scripted
from holdfast.providers import FORMATS
from holdfast.providers import check as violations
from holdfast.report import Window
from holdfast.settings import Embedding, Recall, Settings
from holdfast.store.base import Scope, Select, Store
from holdfast.store.connection import MIGRATIONS, connect, migrate
from holdfast.store.folder import FolderStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check, reindex
from holdfast.store.vmem import read_vectors
from holdfast.testing.processes import acknowledged_until_killed, child, run_writers
from holdfast.testing.rows import HERE, MODEL, find_messages, make_message, make_query, use_store, vectors, word

__all__ = ["TRIALS", "Crashes", "measure"]

STORE: Final = "store.db"
MAX_ROWS: Final = 20_000
"""Rows after which a new store is begun: checking all of it would soon take longer than the work."""
READY: Final = "ready"
"""A report that acknowledges nothing."""
WRITERS: Final = 8
_MAX_PAUSE: Final = 0.03


class Crashes(TypedDict):
    """The number of kills, of rows acknowledged, of those that are gone, and of damaged stores."""

    kills: int
    acknowledged: int
    lost: int
    corrupt: int


def measure(
    *, kills: int, seed: int = 1, minutes: float = 0.0, progress: Callable[[int], None] = lambda _: None
) -> Crashes:
    """Kill so many times; then let eight processes write and read at once for so many minutes."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrecy
    with TemporaryDirectory(prefix="holdfast-crash-") as folder:
        trials = [trial(Path(folder) / trial.__name__.lower()) for trial in TRIALS]
        found: list[Crashes] = []
        for kill in range(kills):
            found.append(trials[kill % len(trials)].kill(kill, chance))
            progress(1)
        if minutes:
            found.append(_crowd(Path(folder) / "crowd", seconds=60 * minutes))
    return Crashes(
        kills=kills,
        acknowledged=sum(one["acknowledged"] for one in found),
        lost=sum(one["lost"] for one in found),
        corrupt=sum(one["corrupt"] for one in found),
    )


def _crowd(folder: Path, *, seconds: float) -> Crashes:
    try:
        kept = run_writers(_open_sqlite, folder, writers=WRITERS, turns=10**9, seconds=seconds)
    except AssertionError:
        return Crashes(kills=0, acknowledged=0, lost=0, corrupt=1)
    with use_store(_open_sqlite, folder) as store:
        lost = len(kept.items() - _texts(store, across=True).items())
    return Crashes(kills=0, acknowledged=len(kept), lost=lost, corrupt=int(not check(folder / STORE).sound))


def _open_sqlite(folder: Path) -> Store:
    return SqliteStore(folder / STORE)


def _texts(store: Store, *, across: bool = False) -> Mapping[int, str]:
    """Return the text of every message by its number."""
    scope = Scope(project=HERE.project) if across else HERE
    return {row.id: row.message.text for row in store.read_messages(Select(scope=scope, across=across))}


@dataclass(slots=True)
class Trial(ABC):
    """One kind of work, the folder of its stores, and every row that was acknowledged in the newest one."""

    place: Path
    kept: dict[int, str] = field(default_factory=dict)
    stores: int = 1
    max_reports: ClassVar[int] = 60
    """The work is killed after so many reports at the latest."""

    @property
    def folder(self) -> Path:
        """The folder of the store."""
        folder = self.place / f"{self.stores}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def kill(self, number: int, chance: random.Random) -> Crashes:
        """Start the work, kill it a moment later, and check what is left."""
        if len(self.kept) > MAX_ROWS:
            self.kept, self.stores = {}, self.stores + 1
        before = len(self.kept)
        self.prepare(number)
        with child(self.work, self.folder, number) as (process, reports):
            after, pause = chance.randint(1, self.max_reports), chance.uniform(0, _MAX_PAUSE)
            for report in acknowledged_until_killed(reports, process, after=after, pause=pause):
                self.take(report)
        try:
            lost, corrupt = self.missing(), 0
        except (HoldfastError, AssertionError):
            lost, corrupt = 0, 1
        return Crashes(kills=1, acknowledged=len(self.kept) - before, lost=lost, corrupt=corrupt)

    def prepare(self, number: int) -> None:  # noqa: B027 - most need nothing
        """Make what the work needs."""

    @staticmethod
    @abstractmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Work without end, and report every acknowledged row."""

    def take(self, report: Any) -> None:
        """Record what was acknowledged."""
        if report != READY:
            number, text = report
            self.kept[number] = text

    def missing(self) -> int:
        """Return how many acknowledged rows are gone; raise if the store is damaged."""
        with use_store(_open_sqlite, self.folder) as store:
            held = _texts(store)
            lost = len(self.kept.items() - held.items())
            # A message of its own is one passage, so that all of them are candidates.
            found = find_messages(store.search(make_query("killed", limit=len(held))))
            assert lost or set(self.kept) <= set(found), "an acknowledged message is not found"
        assert check(self.folder / STORE).sound
        return lost


# --- work of a store -----------------------------------------------------------


class Append(Trial):
    """One message after the other."""

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Add without end."""
        with use_store(_open_sqlite, folder) as store:
            for turn in range(10**9):
                text = f"killed {kill} {turn}"
                reports.send((*store.add_messages([make_message(text)]), text))


class Import(Trial):
    """Hundreds of messages at once, killed early and late in a batch."""

    max_reports = 2000

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Add without end, in bulk."""
        with use_store(_open_sqlite, folder) as store:
            for turn in range(10**9):
                texts = [f"killed {kill} {turn} {part}" for part in range(700)]
                for number, text in zip(store.add_messages([make_message(text) for text in texts]), texts, strict=True):
                    reports.send((number, text))


class Reindex(Trial):
    """The index dropped and built again, killed in the first rebuild or a later one."""

    max_reports = 3

    def prepare(self, number: int) -> None:
        """Add something to index."""
        with use_store(_open_sqlite, self.folder) as store:
            texts = [f"killed {number} {part}" for part in range(200)]
            self.kept.update(zip(store.add_messages([make_message(text) for text in texts]), texts, strict=True))

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:  # noqa: ARG004 - the same for every kill
        """Rebuild without end."""
        while True:
            reports.send(READY)
            reindex(folder / STORE)


class Vmem(Trial):
    """Messages in a memory-context folder, and their vectors, each time the whole file."""

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Add messages and save vectors without end."""
        with FolderStore(folder) as store:
            for turn in range(10**9):
                text = f"killed {kill} {turn}"
                (number,) = store.add_messages([make_message(text)])
                reports.send((number, text))
                passages = store.read_passages(Select(scope=HERE, newest=True, limit=1))
                store.add_vectors([vectors(passage.number, [number], space=MODEL) for passage in passages])

    def missing(self) -> int:
        """Return how many messages are gone; raise if vectors are."""
        with FolderStore(self.folder) as store:
            lost = len(self.kept.items() - _texts(store).items())
        saved = read_vectors(self.folder / "vectors.bin")
        assert saved is None or saved.missing == 0
        return lost


_STEP: Final = (
    "CREATE TABLE step{0}(id INTEGER PRIMARY KEY, body BLOB);\nINSERT INTO step{0} SELECT id, body FROM messages"
)
_LATER: Final = (*MIGRATIONS, *(_STEP.format(step) for step in range(60)))
_KILL: Final = 1_000_000
"""More rows than a store of a migration has: a row is identified by `kill * _KILL + number`."""


class Migration(Trial):
    """A store that is migrated step by step, killed before the last one."""

    max_reports = 1

    def prepare(self, number: int) -> None:
        """Make an old store with messages in it."""
        folder = self.folder / f"{number}"
        folder.mkdir(exist_ok=True)
        with use_store(_open_sqlite, folder) as store:
            rows = [make_message(f"killed {number} {part}") for part in range(200)]
            added = zip(store.add_messages(rows), rows, strict=True)
            self.kept.update((number * _KILL + row_id, row.nonce) for row_id, row in added)

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Migrate to the end."""
        path = folder / f"{kill}" / STORE
        with closing(connect(path, wait=60)) as connection:
            reports.send(READY)
            migrate(connection, path=path, migrations=_LATER)
            time.sleep(600)

    def missing(self) -> int:
        """Return how many rows are gone after the migration was repeated."""
        newest = max(self.folder.iterdir(), key=lambda folder: int(folder.name))
        with closing(connect(newest / STORE, wait=60)) as connection:
            migrate(connection, path=newest / STORE, migrations=_LATER)
            (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
            assert whole == "ok"
            held = {number for (number,) in connection.execute("SELECT id FROM step0")}
        own = [number % _KILL for number in self.kept if number // _KILL == int(newest.name)]
        return sum(number not in held for number in own)


# --- work of an engine ---------------------------------------------------------

LIMIT: Final = 8_000
_TURNS_PER_COMPACTION: Final = 5
_FACTS: Final = 40
_SETTINGS: Final = Settings(
    embedding=Embedding(provider="hash"),
    recall=Recall(deadline_ms=600_000),  # memory that is slow on a busy machine is not in trouble
)
_SUMMARY: Final = "## Goal\nGive every service its port.\n\n## Progress\nThe ports are written down one by one.\n"


def make_turn(kill: int, turn: int) -> list[Message]:
    """Make the messages of a turn: a fact, a call, its result and a reply."""
    name = word("service", turn)
    call = f"c{kill}.{turn}"
    fact = f"Remember that the {name} of run {kill} listens on port {20_000 + turn}."
    return [
        Message(role="user", parts=(Text(text=fact),)),
        Message(role="assistant", parts=(ToolCall(id=call, name="bash", arguments={"command": f"cat {name}.toml"}),)),
        Message(role="tool", parts=(ToolResult(call_id=call, content=(Text(text=f"{name} = true\n" * 80),)),)),
        Message(role="assistant", parts=(Text(text=f"Kill {kill}, turn {turn}: {name} is set up."),)),
    ]


def _open(folder: Path, model: Scripted | None = None) -> Engine:
    return Engine.open(folder / STORE, settings=_SETTINGS, model=model, background=False)


@dataclass(slots=True)
class _EngineTrial(Trial):
    """Work of an engine. Every kill has a session of its own, in a store that all of them share.

    `number` is the kill, `turns` how many turns of its session were acknowledged.
    """

    number: int = 0
    turns: int = 0
    max_reports: ClassVar[int] = 12

    def prepare(self, number: int) -> None:
        """Begin a session."""
        self.number, self.turns = number, 0

    def take(self, report: Any) -> None:
        """Record which turn was acknowledged last, and its messages."""
        if report == READY:
            return
        self.turns = report + 1
        for message in make_turn(self.number, report):
            self.kept[len(self.kept)] = _words(message)

    def missing(self) -> int:
        """Return how many acknowledged messages are gone; raise where anything else does not hold."""
        with _open(self.folder) as engine:
            rows = engine._memory.store.read_messages(Select(scope=Scope(), across=True))
            held = {_words(row.message) for row in rows}
            self._continue(engine)
        assert check(self.folder / STORE).sound
        return len(set(self.kept.values()) - held)

    def _continue(self, engine: Engine) -> None:
        """Check the session that was killed, and continue it."""
        session = engine.session(f"s{self.number}")
        rows = engine._memory.store.read_messages(Select(scope=Scope(session=session.id)))
        edits = session.edits()
        known = {row.id for row in rows}
        assert all(known.issuperset(edit.ids) for edit in edits), "an edit stands for a message that is not archived"
        history = [message for turn in range(self.turns + 1) for message in make_turn(self.number, turn)]
        again = session.assemble(history, limit=LIMIT)
        _check_window(again, edits)
        assert all("words alone" in warning for warning in again.report.warnings), "memory is in trouble"
        self.resume(engine, edits)

    def resume(self, engine: Engine, edits: Sequence[Edit]) -> None:
        """Do the work that was left, and check that it was complete."""
        engine.work()
        assert engine._memory.store.waiting(EXTRACT, limit=1) == []
        session = engine.session(f"s{self.number}")
        learned = {row.content for row in session.facts(across=False)}
        gone = {number for edit in edits if edit.kind == "compacted" for number in edit.ids}
        for row in session.get(sorted(gone)):
            if row.message.role == "user":
                port = row.message.text.split()[-1]
                assert any(port.rstrip(".") in fact for fact in learned), "a compacted fact was not learned"


def _words(message: Message) -> str:
    calls = (str(call.arguments) for call in message.calls)
    return "\n".join([message.text, *calls, *(result.text for result in message.results)])


def _check_window(window: Window, edits: Sequence[Edit]) -> None:
    """Check that a window is valid, and that every recorded compaction is complete in it."""
    for provider in FORMATS:
        assert violations(window.render(provider), provider) == []
    compacted = [edit for edit in edits if edit.kind == "compacted"]
    gone = {number for edit in compacted for number in edit.ids}
    assert gone.isdisjoint(item.id for item in window.items)
    assert [item.kind for item in window.items].count("summary") == min(1, len(compacted))


class Turns(_EngineTrial):
    """Requests of a session that outgrows its window."""

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Assemble without end."""
        with _open(folder) as engine:
            session, history = engine.session(f"s{kill}"), list[Message]()
            for turn in range(10**9):
                *new, reply = make_turn(kill, turn)
                session.assemble([*history, *new], limit=LIMIT)
                session.append([reply])
                history += [*new, reply]
                reports.send(turn)


class Digest(_EngineTrial):
    """Compactions by rule."""

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Compact again and again."""
        _compact(folder, kill, reports, model=None)


class Told(_EngineTrial):
    """Compactions by a model."""

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Compact again and again."""
        _compact(folder, kill, reports, model=Scripted(lambda _: _SUMMARY))


def _compact(folder: Path, kill: int, reports: Connection, *, model: Scripted | None) -> None:
    with _open(folder, model) as engine:
        session, history = engine.session(f"s{kill}"), list[Message]()
        for turn in range(10**9):
            history += make_turn(kill, turn)
            session.assemble(history, limit=LIMIT)
            reports.send(turn)
            if turn % _TURNS_PER_COMPACTION == _TURNS_PER_COMPACTION - 1:
                session.compact(limit=LIMIT)
                reports.send(READY)


class Learn(_EngineTrial):
    """Facts extracted from a session, and its passages embedded; killed during the first time or a repetition."""

    max_reports = 3

    def prepare(self, number: int) -> None:
        """Queue a session with many facts."""
        _EngineTrial.prepare(self, number)
        with _open(self.folder) as engine:
            for turn in range(_FACTS):
                engine.session(f"s{number}").append(make_turn(number, turn))
                self.take(turn)
            engine.session(f"s{number}").learn()

    @staticmethod
    def work(folder: Path, kill: int, reports: Connection) -> None:
        """Extract again and again."""
        with _open(folder) as engine:
            while True:
                reports.send(READY)
                engine.work()
                engine.session(f"s{kill}").learn()

    def resume(self, engine: Engine, edits: Sequence[Edit]) -> None:
        """Check that every fact is learned, and none twice."""
        _EngineTrial.resume(self, engine, edits)
        learned = [row.content for row in engine.session(f"s{self.number}").facts(across=False)]
        ports = [sum(f"{20_000 + turn}" in content for content in learned) for turn in range(_FACTS)]
        assert ports == [1] * _FACTS, "a fact was not learned, or learned twice"
        assert engine._memory.waiting() == 0


TRIALS: Final[tuple[type[Trial], ...]] = (Append, Import, Reindex, Vmem, Migration, Turns, Digest, Told, Learn)
