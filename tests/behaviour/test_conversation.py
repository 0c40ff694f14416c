"""The state of a session between two requests, and what other processes do to the session meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import CompactionError, StorageError
from holdfast.memory.memory import Memory
from holdfast.memory.recall import Recall
from holdfast.messages import Message
from holdfast.models.base import Prompt
from holdfast.models.scripted import Scripted
from holdfast.settings import Embedding, Pruning, Settings
from support.conversations import answer, call, reply, results, system, user
from support.waiting import SHY

QUIET = Settings(embedding=Embedding(provider="none"), recall=SHY)
LIMIT = 20_000
HOUR = 3_600_000


def open_engine(path: Path, settings: Settings = QUIET) -> Engine:
    """Open an engine without a thread."""
    return Engine.open(path, settings=settings, background=False)


def make_conversation(turns: int) -> list[Message]:
    """Return a conversation of about 300 tokens a turn."""
    messages = [system(), user("The staging database listens on port 6543."), reply("Noted.")]
    for turn in range(turns):
        messages += [user(f"Step {turn}. " + f"detail{turn} " * 40), reply("Done. " + f"change{turn} " * 40)]
    return messages


def summaries(engine: Engine, messages: list[Message]) -> int:
    """Count the summaries in the next window."""
    return [item.kind for item in engine.session("s").assemble(messages, limit=LIMIT).items].count("summary")


class TestTwoProcesses:
    def test_an_edit_in_between_is_not_passed_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An edit that another process records while a window is made applies to that window."""
        recall = Memory.recall
        with open_engine(tmp_path) as engine, open_engine(tmp_path) as other:
            messages = make_conversation(60)
            engine.session("s").assemble(messages, limit=LIMIT)

            def meanwhile(memory: Memory, texts: Sequence[str], **options: Any) -> Recall:
                monkeypatch.setattr(Memory, "recall", recall)
                other.session("s").compact(messages, limit=LIMIT)
                return recall(memory, texts, **options)

            monkeypatch.setattr(Memory, "recall", meanwhile)
            messages.append(user("Which port does the staging database listen on?"))
            window = engine.session("s").assemble(messages, limit=LIMIT)
            assert [item.kind for item in window.items].count("summary") == 1
            assert window.report.changes[-1].kind == "recalled"
            assert engine.session("s").edits() == other.session("s").edits()
            assert summaries(engine, [*messages, reply("6543"), user("Thanks!")]) == 1

    def test_a_summary_never_hides_another_one(self, tmp_path: Path) -> None:
        """If two compactions run at once, the later one is dropped: it does not know what the other removed."""
        with open_engine(tmp_path) as engine, open_engine(tmp_path) as other:
            messages = make_conversation(30)
            longer = [*messages, *make_conversation(15)[1:]]

            def slow(_: Prompt) -> str:
                if not other.session("s").edits():
                    other.session("s").compact(longer, limit=LIMIT)
                return "## Goal\nRefactor.\n\n## Key facts\nThe port is 6543.\n"

            with pytest.raises(CompactionError, match="compacted by another call"):
                engine.session("s").compact(messages, limit=LIMIT, model=Scripted(slow))
            assert [edit.kind for edit in engine.session("s").edits()].count("compacted") == 1


class TestGoingBack:
    def test_a_summary_of_what_was_taken_back_is_not_shown(self, tmp_path: Path) -> None:
        """A client that goes back to before a compaction gets its own messages, not the summary."""
        with open_engine(tmp_path) as engine:
            messages = make_conversation(30)
            engine.session("s").compact(messages, limit=LIMIT)
            assert summaries(engine, [*messages, user("Go on.")]) == 1
            back = [*messages[:5], user("Something else.")]
            window = engine.session("s").assemble(back, limit=LIMIT)
            assert [message.text for message in window.messages] == [message.text for message in back]
            assert summaries(engine, [*messages, user("Go on.")]) == 1

    def test_a_client_that_drops_old_messages_itself_keeps_it(self, tmp_path: Path) -> None:
        """The messages that were kept with the summary are still sent, so the summary still stands for those before."""
        with open_engine(tmp_path) as engine:
            messages = make_conversation(30)
            engine.session("s").compact(messages, limit=LIMIT)
            assert summaries(engine, [*messages[:3], *messages[-6:], user("Go on.")]) == 1
            assert summaries(engine, [*messages[-6:], user("Go on.")]) == 1


class TestPinning:
    def test_a_result_comes_back_with_its_call(self, tmp_path: Path) -> None:
        """A pinned result is sent with its call: alone it would be dropped."""
        messages = [
            system(),
            user("Look."),
            reply("", call("c1")),
            results(answer("c1", "The door is green.")),
            reply("Seen."),
        ]
        messages += make_conversation(30)[1:]
        with open_engine(tmp_path) as engine:
            engine.session("s").compact(messages, limit=LIMIT)
            found = engine.session("s").search("green door")[0].message
            assert engine.session("s").pin([found]) == 1
            window = engine.session("s").assemble([*messages, user("Go on.")], limit=LIMIT)
            assert "The door is green." in str(window.messages)
            engine.session("s").pin([found], pinned=False)
            assert not any(item.pinned for item in engine.session("s").assemble(messages, limit=LIMIT).items)


class TestUndoing:
    def test_what_came_back_does_not_come_back_again(self, tmp_path: Path) -> None:
        """A cut is undone once; after a compaction there is nothing to undo."""
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble(make_conversation(60), limit=LIMIT)
            assert engine.session("s").undo_trim() > 0
            assert engine.session("s").undo_trim() == 0
            engine.session("s").assemble([*make_conversation(60), user("Go on.")], limit=LIMIT)
            assert engine.session("s").undo_trim() > 0
            engine.session("s").assemble(make_conversation(60), limit=LIMIT)
            engine.session("s").compact(limit=LIMIT)
            assert engine.session("s").undo_trim() == 0


def test_a_cut_without_any_room_is_sticky_in_another_process(tmp_path: Path) -> None:
    """If tools leave no room at all, trimmed messages still stay out: not every request is a cut."""
    said, cuts = [system()], 0
    for turn in range(20):
        said.append(user(f"question {turn} about " + "several words " * 2))
        with open_engine(tmp_path) as engine:
            window = engine.session("s").assemble(said, limit=8_000, reserve=4_000, overhead=3_300)
        cuts += [change.kind for change in window.report.changes].count("trimmed")
        said.append(reply(f"answer {turn} of text " + "several words " * 2))
    assert 0 < cuts < 5


def test_a_cold_cache_is_known_after_a_restart(tmp_path: Path) -> None:
    """With `cache-ttl`, the time of the last request of another process decides whether results are pruned."""
    cold = Settings(embedding=Embedding(provider="none"), pruning=Pruning(mode="cache-ttl", ttl=timedelta(hours=1)))
    messages = [system(), user("go")]
    for turn in range(12):
        messages += [
            reply("Look.", call(f"c{turn}")),
            results(answer(f"c{turn}", "y " * 6_000)),
            reply("Seen."),
            user("Go on."),
        ]
    pruned = []
    for moment in (0, 3 * HOUR):
        with open_engine(tmp_path, cold) as engine:
            engine._memory.clock = partial(int, 1_790_000_000_000 + moment)
            pruned.append(len(engine.session("s").assemble(messages, limit=120_000).report.changes))
    assert pruned[0] == 0 < pruned[1]


def test_without_memory_the_tokens_are_still_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that passes unchanged is counted, so that decisions by its size are right."""

    def full(*_: object) -> list[int]:
        raise StorageError("the disk is full", path=tmp_path)

    with open_engine(tmp_path) as engine:
        monkeypatch.setattr(type(engine._memory.store), "merge_messages", full)
        window = engine.session("s").assemble(make_conversation(5), limit=LIMIT)
    assert window.report.warnings
    assert window.report.total_tokens > 1_000
