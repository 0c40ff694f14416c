"""A session records what a turn decides: edits before the window is sent, and a record of every turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.engine import Engine
from holdfast.messages import Message
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.figures import TURN
from holdfast.store.opening import STORE_NAME
from holdfast.store.sqlite import SqliteStore
from holdfast.timeline import WINDOW
from support.conversations import reply, system, user
from support.failing_stores import FailingStore, open_engine
from support.waiting import UNHURRIED

SCOPE = Scope(session="s")
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 8_000


def make_conversation(turns: int) -> list[Message]:
    """Make a conversation of about 240 tokens a turn."""
    messages = [system(), user("The staging database listens on port 6543."), reply("Noted.")]
    for number in range(turns):
        messages.append(user(f"Step {number} of the plan. " + f"detail{number} " * 40))
        messages.append(reply("Done. " + f"change{number} " * 40))
    return [*messages, user("Which port does the staging database listen on?")]


class InterruptedStore(SqliteStore):
    """A store in which another process acts right before the next transaction, once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before_transaction: Callable[[], object] | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        act = self.before_transaction
        self.before_transaction = None
        if act is not None:
            act()
        with super().transaction():
            yield


class TestRecording:
    def test_a_window_is_planned_again_after_a_conflict(self, tmp_path: Path) -> None:
        """Another process pins a message after the window was planned: it is in the window, which has all edits."""
        messages = make_conversation(60)
        store = InterruptedStore(tmp_path / STORE_NAME)
        with (
            open_engine(store, SETTINGS) as engine,
            Engine.open(tmp_path, settings=SETTINGS, background=False) as other,
        ):
            other.session("s").append(messages)  # then only its edits are left to write for the request
            (row,) = [row for row in other.session("s").messages() if row.message.text == "Noted."]
            store.before_transaction = lambda: other.session("s").pin([row.id])
            window = engine.session("s").assemble(messages, limit=LIMIT)
            assert "Noted." in [message.text for message in window.messages]
            kinds = [edit.kind for edit in engine.session("s").edits()]
            assert kinds == ["pinned", *(change.kind for change in window.report.changes)]
            assert engine.session("s").assemble(messages, limit=LIMIT).render() == window.render()

    def test_a_turn_and_its_window_are_recorded(self, tmp_path: Path) -> None:
        with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
            window = engine.session("s").assemble(make_conversation(60), limit=LIMIT)
            for kind in (TURN, WINDOW):
                assert len(engine._memory.store.read_records(Select(scope=SCOPE), kind=kind)) == 1
            assert engine.session("s").timeline() == [window.report]
            assert set(window.report.milliseconds) >= {"archive", "compact", "plan", "recall", "record", "verify"}

    def test_edits_that_cannot_be_recorded_are_reported(self, tmp_path: Path) -> None:
        """The window is sent, and what was cut is cut again with the next request."""
        store = FailingStore(tmp_path / STORE_NAME, kinds=frozenset({"add"}), first=0, count=0)
        with open_engine(store, SETTINGS) as engine:
            messages = make_conversation(60)
            engine.session("s").append(messages)
            store.fail()
            window = engine.session("s").assemble(messages, limit=LIMIT)
            assert window.has_memory
            assert any(failure.startswith("record: ") for failure in window.failures)
            assert set(window.failures) <= set(window.report.warnings)
            assert window.report.warnings[-1].startswith("report: ")
            assert engine.session("s").edits() == ()
            store.heal()
            later = engine.session("s").assemble(messages, limit=LIMIT)
            assert later.failures == ()
            assert [edit.kind for edit in engine.session("s").edits()] == [one.kind for one in later.report.changes]


def test_notes_are_reported_once(tmp_path: Path) -> None:
    """They are what failed since the last request, such as a compaction in the background."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        session._warnings.append("compaction: the model did not answer")
        window = session.assemble(make_conversation(1), limit=LIMIT)
        assert window.failures == ("compaction: the model did not answer",)
        assert window.failures[0] in window.report.warnings
        assert session.assemble(make_conversation(1), limit=LIMIT).failures == ()


def test_forgetting_drops_what_is_known_but_not_who_waits(tmp_path: Path) -> None:
    """The reply to a request that was made before is archived in its place."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        messages = make_conversation(1)
        window = session.assemble(messages, limit=LIMIT)
        session.forget([row.id for row in session.messages() if "port 6543" in row.message.text])
        session.append([reply("I do not know.")])
        again = session.assemble([*messages, reply("I do not know."), user("Well?")], limit=LIMIT)
        assert [row.message.text for row in session.messages()].count("I do not know.") == 1
        assert "port 6543" not in "".join(message.text for message in again.messages)
        assert window.place
