"""The recorded edits of a session: conflicts, branches, forgetting and replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.context.edits import EDIT, Edit, Item, Pinned, Recalled, Restored, Summarised, Trimmed
from holdfast.edit_log import EditLog
from holdfast.memory.memory import Memory
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Record, Scope, Select
from support.conversations import items as make_items
from support.conversations import reply, system, user

SCOPE = Scope(session="s")
LIMIT = 1_000
SYSTEM = Item(message=system(), id=99, tokens=5, kind="system")
MESSAGES = make_items([user("one"), reply("two"), user("three"), reply("four"), user("five")])
MORE = make_items([*[user("-")] * 5, reply("six"), user("seven")])[5:]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Open a memory without vectors."""
    with Memory.open(tmp_path, settings=Settings(embedding=Embedding(provider="none"))) as opened:
        yield opened


@pytest.fixture
def log(memory: Memory) -> EditLog:
    """Make the log of a session that has no edits."""
    return EditLog(SCOPE, memory.store)


def trim(*numbers: int, limit: int = LIMIT, anchors: tuple[int, ...] = ()) -> Edit:
    """Make an edit that removes messages."""
    return Edit(
        change=Trimmed(limit=limit), ids=numbers, reason="test", tokens_before=9, tokens_after=0, anchors=anchors
    )


def recall(into: int | None, text: str = "<block>") -> Edit:
    """Make an edit that places a block."""
    return Edit(change=Recalled(text=text, into=into), ids=(), reason="test", tokens_before=0, tokens_after=5)


def read_words(items: Sequence[Item]) -> list[str]:
    """Read the texts of a window, as they are sent."""
    return [item.sent.text for item in items]


def replay(log: EditLog, messages: Sequence[Item], *, limit: int = LIMIT) -> list[str]:
    """Replay the edits of a log, and read the window."""
    return read_words(log.replay([SYSTEM], messages, limit=limit).items)


def test_what_was_read_before_something_was_forgotten_is_not_recorded(memory: Memory, log: EditLog) -> None:
    """A block may quote it. The next try is made with what is left."""
    log.load()
    (number,) = memory.ingest([user("The codename is zebraquartz.")], scope=SCOPE)
    memory.forget(scope=SCOPE, ids=[number])
    recorded = log.record([recall(None, "zebraquartz")], time=0)
    assert recorded.conflict is not None
    assert recorded.numbers is None
    assert memory.store.read_records(Select(scope=SCOPE), kind=EDIT)[-1].data["change"]["kind"] == "forgotten"
    assert log.record([recall(None, "other words")], time=0).conflict is None


class TestRecord:
    def test_recorded_edits_are_numbered_and_known_to_other_processes(self, log: EditLog, memory: Memory) -> None:
        assert log.record([trim(1, 2)], time=1).numbers == (0, 1)
        assert log.record([recall(5), trim(3)], time=1).numbers == (1, 3)
        other = EditLog(SCOPE, memory.store)
        assert other.load().warnings == ()
        assert other.edits == log.edits

    def test_nothing_is_recorded_for_no_edits(self, log: EditLog, memory: Memory) -> None:
        assert log.record([], time=1).numbers == (0, 0)
        assert not memory.store.read_records(Select(scope=SCOPE), kind=EDIT)

    def test_of_two_processes_the_second_learns_of_the_first(self, log: EditLog, memory: Memory) -> None:
        other = EditLog(SCOPE, memory.store)
        log.record([trim(1, 2)], time=1)
        result = other.record([trim(3)], time=1)
        assert result.numbers is None
        assert result.conflict is not None
        assert other.edits == log.edits
        assert other.record([trim(3)], time=1).numbers == (1, 2)

    def test_an_edit_is_anchored_to_the_newest_message(self, log: EditLog) -> None:
        pin = Edit(change=Pinned(), ids=(1,), reason="test", tokens_before=0, tokens_after=0)
        log.record([trim(1), trim(2, anchors=(3,)), pin], time=1, newest=5)
        assert [edit.anchors for edit in log.edits] == [(5,), (3,), ()]

    def test_an_edit_that_cannot_be_read_is_reported_and_skipped(self, log: EditLog, memory: Memory) -> None:
        log.record([trim(1)], time=1)
        row = Record(scope=SCOPE, kind=EDIT, key="00000001", data={"change": {"kind": "unknown"}})
        memory.store.add_records([row])
        other = EditLog(SCOPE, memory.store)
        (warning,) = other.load().warnings
        assert "edit 00000001 of the session is ignored" in warning
        assert other.record([trim(2)], time=1).numbers == (2, 3)
        # A process that has not read the damaged row runs into it, and goes on after it.
        assert log.record([trim(3)], time=1).conflict is not None
        assert log.record([trim(3)], time=1).numbers == (3, 4)

    def test_what_another_process_forgot_is_returned(self, log: EditLog, memory: Memory) -> None:
        numbers = memory.ingest([user("one"), reply("two")], scope=SCOPE)
        log.record([trim(numbers[0])], time=1)
        memory.forget(scope=SCOPE, ids=[numbers[0]])
        assert log.load().forgotten == {numbers[0]}
        assert log.load().forgotten == frozenset()


class TestBranches:
    def test_edits_of_another_branch_do_not_hold(self, log: EditLog) -> None:
        log.record([trim(1, 2)], time=1, newest=5)
        assert replay(log, MESSAGES) == ["You are careful.", "three", "four", "five"]
        assert replay(log, MESSAGES[:3]) == ["You are careful.", "one", "two", "three"]

    def test_a_client_that_drops_old_messages_itself_keeps_older_edits(self, log: EditLog) -> None:
        log.record([recall(4)], time=1, newest=2)
        assert replay(log, MESSAGES[2:]) == ["You are careful.", "three", "four\n<block>", "five"]


class TestReplay:
    def test_a_replay_that_continues_the_last_one_is_that_of_the_whole_history(
        self, log: EditLog, memory: Memory
    ) -> None:
        log.record([trim(1, 2), recall(5)], time=1, newest=5)
        window = log.replay([SYSTEM], MESSAGES, limit=LIMIT).items
        log.remember_window(window, system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        fresh = EditLog(SCOPE, memory.store)
        fresh.load()
        for messages in (MESSAGES, [*MESSAGES, *MORE], MESSAGES[:4], [*MESSAGES[:4], *MORE]):
            for limit in (LIMIT, 10 * LIMIT):
                assert replay(log, messages, limit=limit) == replay(fresh, messages, limit=limit)

    def test_unchanged_items_stay_the_same_objects(self, log: EditLog) -> None:
        """Then the provider's cache and the cache of validated messages hold."""
        log.record([recall(5)], time=1, newest=5)
        window = log.replay([SYSTEM], MESSAGES, limit=LIMIT).items
        log.remember_window(window, system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        longer = log.replay([SYSTEM], [*MESSAGES, *MORE], limit=LIMIT).items
        assert all(old is new for old, new in zip(window, longer, strict=False))

    def test_a_new_edit_ends_it(self, log: EditLog) -> None:
        log.remember_window((SYSTEM, *MESSAGES), system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        log.record([trim(1, 2)], time=1, newest=5)
        assert replay(log, MESSAGES) == ["You are careful.", "three", "four", "five"]

    def test_a_change_of_the_last_message_ends_it(self, log: EditLog) -> None:
        """It has another number: the client went back, and says something else."""
        log.remember_window((SYSTEM, *MESSAGES), system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        assert replay(log, [*MESSAGES[:4], *MORE]) == [
            "You are careful.",
            "one",
            "two",
            "three",
            "four",
            "six",
            "seven",
        ]

    def test_forgetting_ends_it(self, log: EditLog, memory: Memory) -> None:
        (number,) = memory.ingest([user("one")], scope=SCOPE)
        assert number == 1
        log.remember_window((SYSTEM, *MESSAGES), system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        memory.forget(scope=SCOPE, ids=[1])
        assert log.load().forgotten == {1}
        forgotten = make_items([user("one")])
        messages = [Item(message=forgotten[0].message, id=0, tokens=1), *MESSAGES[1:]]
        assert replay(log, messages) == ["You are careful.", "two", "three", "four", "five"]

    def test_a_block_at_the_head_holds_for_one_request(self, log: EditLog) -> None:
        log.record([recall(None)], time=1, newest=5)
        block = Item(message=user("<block>"), id=0, tokens=5, kind="recall")
        log.remember_window((SYSTEM, block, *MESSAGES), system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        assert "<block>" not in replay(log, MESSAGES)

    def test_the_system_prompt_may_be_another_one(self, log: EditLog) -> None:
        log.remember_window((SYSTEM, *MESSAGES), system=[SYSTEM], messages=MESSAGES, limit=LIMIT)
        (other,) = make_items([system("Today is Tuesday.")])
        assert read_words(log.replay([other], MESSAGES, limit=LIMIT).items)[:2] == ["Today is Tuesday.", "one"]


class TestLastTrim:
    def test_the_last_cut_that_nothing_brought_back(self, log: EditLog) -> None:
        log.record([trim(1), trim(2, 3)], time=1)
        assert log.find_last_trim(MESSAGES) == (2, 3)
        restored = Edit(change=Restored(), ids=(2, 3), reason="test", tokens_before=0, tokens_after=0)
        log.record([restored], time=1)
        assert log.find_last_trim(MESSAGES) == (1,)

    def test_nothing_after_a_compaction(self, log: EditLog) -> None:
        compacted = Edit(change=Summarised(summary="s"), ids=(1, 2), reason="test", tokens_before=9, tokens_after=1)
        log.record([trim(1), compacted], time=1)
        assert log.find_last_trim(MESSAGES) == ()
