"""One turn as values: the window of an archived history, and what was decided for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import turn
from holdfast.context.budget import budget
from holdfast.context.edits import EDIT
from holdfast.context.validate import ValidationCache
from holdfast.edit_log import EditLog
from holdfast.errors import WindowTooSmallError
from holdfast.history import History
from holdfast.memory.memory import Memory
from holdfast.messages import Message
from holdfast.report import Window
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.figures import TURN
from holdfast.store.opening import STORE_NAME
from holdfast.timeline import Timeline
from holdfast.tokens import count_text
from holdfast.turn import Outcome, Request
from support.conversations import reply, system, user
from support.failing_stores import FailingStore
from support.waiting import UNHURRIED

SCOPE = Scope(session="s")
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
NOW = 1_790_000_000_000


class World:
    """The values of a session's turn, over a real store."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.history = History(SCOPE, memory, count_text)
        self.edits = EditLog(SCOPE, memory.store)
        self.timeline = Timeline(SCOPE, memory, count_text)

    def request(self, *, limit: int = 8_000, **more: Any) -> Request:
        """Make a request."""
        return Request(limits=budget(self.memory.settings, window=limit), now=NOW, **more)

    def assemble(self, *, limit: int = 8_000, **more: Any) -> tuple[Window, Outcome]:
        """Assemble a window of the history."""
        request = self.request(limit=limit, **more)
        return turn.assemble(
            self.history, self.edits, self.timeline, self.memory, request, validation=ValidationCache()
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Open a memory without vectors that knows one fact."""
    with Memory.open(tmp_path, settings=SETTINGS) as memory:
        memory.remember("The staging database listens on port 6543.", scope=SCOPE)
        yield World(memory)


def make_conversation(turns: int) -> list[Message]:
    """Make a conversation of about 240 tokens a turn that ends with a question about a fact."""
    messages = [system(), user("Let us go through the plan."), reply("Yes.")]
    for number in range(turns):
        messages.append(user(f"Step {number} of the plan. " + f"detail{number} " * 40))
        messages.append(reply("Done. " + f"change{number} " * 40))
    return [*messages, user("Which port does the staging database listen on?")]


class TestAssemble:
    def test_a_short_history_is_sent_as_it_is(self, world: World) -> None:
        messages = make_conversation(1)
        world.history.update(messages)
        window, outcome = world.assemble(is_recalling=False)
        assert [message.text for message in window.messages] == [message.text for message in messages]
        assert outcome.edits == ()
        assert outcome.failures == ()
        assert outcome.recall.reason == "no recall was asked for"

    def test_nothing_is_recorded(self, world: World) -> None:
        """Neither the new edits nor the turn: the session does that."""
        world.history.update(make_conversation(60))
        window, outcome = world.assemble()
        assert {edit.kind for edit in outcome.edits} == {"trimmed", "overview", "recalled"}
        assert window.report.turn == 1
        assert not world.memory.store.read_records(Select(scope=SCOPE), kind=EDIT)
        assert not world.memory.store.read_records(Select(scope=SCOPE), kind=TURN)
        assert world.edits.edits == []
        assert world.timeline.turn == 0
        assert world.timeline.sent == ()

    def test_the_same_values_make_the_same_window(self, world: World) -> None:
        world.history.update(make_conversation(60))
        one, _ = world.assemble()
        other, _ = world.assemble()
        assert one.render() == other.render()

    def test_recorded_edits_make_the_same_window(self, world: World) -> None:
        world.history.update(make_conversation(60))
        window, outcome = world.assemble()
        world.edits.record(outcome.edits, time=NOW, newest=world.history.newest_number)
        again, more = world.assemble()
        assert again.render() == window.render()
        assert more.edits == ()
        assert more.recall.reason == "this question has its block already"

    def test_a_fact_is_recalled_into_the_question(self, world: World) -> None:
        world.history.update(make_conversation(60))
        window, outcome = world.assemble()
        assert "port 6543" in outcome.recall.block
        assert window.messages[-1].text.endswith(outcome.recall.block)
        reasons = {edit.kind: edit.reason for edit in outcome.edits}
        assert reasons["recalled"] == outcome.recall.match
        assert reasons["recalled"].endswith("the question")
        assert window.block == ""

    def test_the_block_for_a_question_after_the_window_is_not_placed(self, world: World) -> None:
        world.history.update(make_conversation(60)[:-1])
        window, outcome = world.assemble(question="Which port does the staging database listen on?")
        assert "port 6543" in window.block
        assert window.block not in "".join(message.text for message in window.messages)
        assert "recalled" not in {edit.kind for edit in outcome.edits}
        assert [change.reason for change in window.report.changes if change.kind == "recalled"] == [
            outcome.recall.match
        ]

    def test_a_question_that_was_sent_without_a_block_stays_so(self, world: World) -> None:
        """A block would change a message that the provider's cache has."""
        world.history.update(make_conversation(60))
        window, outcome = world.assemble(is_recalling=False)
        world.edits.record(outcome.edits, time=NOW, newest=world.history.newest_number)
        world.timeline.add_turn(window.report, window.items, edits=len(world.edits.edits))
        _, outcome = world.assemble()
        assert outcome.recall.reason == "this question was sent without a block"

    def test_a_window_that_is_too_small_is_an_error(self, world: World) -> None:
        world.history.update([user("word " * 20_000)])
        with pytest.raises(WindowTooSmallError):
            world.assemble(limit=4_000)

    def test_the_report_compares_the_window_with_the_one_before(self, world: World) -> None:
        messages = make_conversation(2)
        world.history.update(messages)
        window, _ = world.assemble(is_recalling=False)
        assert window.report.prefix_kept is None
        world.timeline.add_turn(window.report, window.items, edits=0)
        world.history.update([*messages, reply("6543."), user("Thanks.")])
        window, _ = world.assemble(is_recalling=False)
        assert window.report.prefix_kept == 1.0
        assert window.report.turn == 2


def test_a_search_that_fails_is_reported_and_skipped(tmp_path: Path) -> None:
    """The oldest messages are then trimmed, and nothing is recalled."""
    store = FailingStore(tmp_path / STORE_NAME, kinds=frozenset({"search"}), first=0, count=1_000)
    with Memory(store=store, settings=SETTINGS) as memory:
        world = World(memory)
        world.history.update(make_conversation(60))
        window, outcome = world.assemble()
    assert any("the disk is gone" in failure for failure in outcome.failures)
    assert window.failures == outcome.failures
    assert set(outcome.failures) <= set(window.report.warnings)
    assert window.report.recall_reason == "memory failed"
    assert "trimmed" in {edit.kind for edit in outcome.edits}


class TestWithoutMemory:
    def test_the_newest_messages_that_fit_are_sent(self, world: World) -> None:
        items = world.history.read_unarchived(make_conversation(60))
        window, outcome = turn.assemble_without_memory(
            items, world.edits, world.timeline, SETTINGS, world.request(), reason="archive: the disk is gone"
        )
        assert not window.has_memory
        assert window.messages[-1].text == "Which port does the staging database listen on?"
        assert window.failures[0] == "archive: the disk is gone"
        assert "older messages do not fit" in window.failures[1]
        assert all(item.id == 0 for item in window.items)
        assert all(edit.ids == () for edit in outcome.edits)
        assert window.report.recall_reason == "memory failed"

    def test_known_edits_are_applied(self, world: World) -> None:
        """So the beginning of the window stays the same while memory fails."""
        messages = make_conversation(60)
        world.history.update(messages)
        window, outcome = world.assemble()
        world.edits.record(outcome.edits, time=NOW, newest=world.history.newest_number)
        items = world.history.read_unarchived([*messages, reply("6543."), user("Thanks.")])
        later, _ = turn.assemble_without_memory(
            items, world.edits, world.timeline, SETTINGS, world.request(), reason="archive: the disk is gone"
        )
        before = [message.text for message in window.messages]
        assert [message.text for message in later.messages] == [*before, "6543.", "Thanks."]
