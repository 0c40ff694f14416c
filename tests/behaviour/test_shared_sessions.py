"""One session used from threads, tasks and processes at once, and what counts as the same message."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pytest

from holdfast import Engine, Settings
from holdfast.settings import Embedding, ServerSettings
from holdfast.store.base import MessageRow, Scope, Select
from support.conversations import reply, user
from support.forked import Holdfast
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 2_000
THREADS = 6


def open_engine(path: Path) -> Engine:
    """Open an engine without a background thread."""
    return Engine.open(path, settings=QUIET, background=False)


def conversation(turns: int) -> list[dict[str, Any]]:
    """Return a plain conversation with repeated words, about 200 tokens a turn, that ends with a user message."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are careful."}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Step {turn}. " + f"detail{turn} " * 40})
        messages.append({"role": "assistant", "content": "Done."})
        messages.append({"role": "user", "content": "ok"})
        messages.append({"role": "assistant", "content": f"Changed {turn}. " + f"change{turn} " * 30})
    return messages[:-1]


def archived(engine: Engine, session: str = "s") -> list[MessageRow]:
    """Return every archived message of a session."""
    return engine._memory.store.read_messages(Select(scope=Scope(session=session)))


def sent(engine: Engine, messages: Sequence[dict[str, Any]], _: int) -> list[Any]:
    """Return what is sent for a history."""
    return engine.session("s").assemble(messages, limit=LIMIT).render()


def at_once(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Run a function in this many threads that start together."""
    barrier = Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class TestThreads:
    def test_the_same_history_gives_the_same_window(self, tmp_path: Path) -> None:
        """Six threads that send the same messages get the same window, and archive each message once."""
        messages = conversation(10)
        with open_engine(tmp_path) as engine:
            windows = at_once(lambda _: engine.session("s").assemble(messages, limit=200_000).render())
            assert all(window == messages for window in windows)
            assert len(archived(engine)) == len(messages)

    def test_a_session_that_is_cut_is_the_same_for_all(self, tmp_path: Path) -> None:
        """Threads that send the same growing conversation in a small window get the same cuts."""
        messages = conversation(11)
        with open_engine(tmp_path) as engine:
            for stop in range(2, len(messages) + 1, 4):
                windows = at_once(partial(sent, engine, messages[:stop]), 3)
                assert windows[0] == windows[1] == windows[2]
            assert len(archived(engine)) == len(messages[:stop])
            assert any(edit.kind == "trimmed" for edit in engine.session("s").edits())

    def test_many_sessions_at_once_stay_apart(self, tmp_path: Path) -> None:
        """More sessions than the engine keeps in memory, each used by two threads."""
        forgetful = msgspec.structs.replace(QUIET, server=ServerSettings(max_session_bytes=0))
        with Engine.open(tmp_path, settings=forgetful, background=False) as engine:

            def run(number: int) -> None:
                for session in range(number % 2, 20, 2):
                    messages = [{"role": "user", "content": f"session {session}"}]
                    engine.session(f"s{session}").assemble(messages)
                    engine.session(f"s{session}").append([{"role": "assistant", "content": "ok"}])

            at_once(run, 4)
            for session in range(20):
                assert [row.message.text for row in archived(engine, f"s{session}")] == [f"session {session}", "ok"]

    def test_a_task_that_times_out_and_tries_again_adds_nothing(self, tmp_path: Path) -> None:
        """The first try continues in its thread; the second one gets the same window."""
        messages = conversation(15)
        with open_engine(tmp_path) as engine:

            async def turn(stop: int) -> Any:
                try:
                    async with asyncio.timeout(0.0001):
                        return await asyncio.to_thread(engine.session("s").assemble, messages[:stop], limit=LIMIT)
                except TimeoutError:
                    return await asyncio.to_thread(engine.session("s").assemble, messages[:stop], limit=LIMIT)

            async def run() -> Any:
                for stop in range(2, len(messages) + 1, 6):
                    window = await turn(stop)
                return window

            window = asyncio.run(run())
            assert window.render()[-1]["content"].startswith(messages[-1]["content"])
            again = engine.session("s").assemble(messages, limit=LIMIT)
            assert len(archived(engine)) == len(messages)
            assert again.render()[-1]["content"].startswith("ok")


PROCESS = """
import json, sys
from pathlib import Path
from holdfast import Engine, Settings
from holdfast.settings import Embedding, Recall
said, limit = json.load(open(sys.argv[2])), int(sys.argv[3])
quiet = Settings(embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000))
with Engine.open(Path(sys.argv[1]), settings=quiet, background=False) as engine:
    for stop in range(2, len(said) + 1, 2):
        window = engine.session("s").assemble(said[:stop], limit=limit)
        newest = said[stop - 1]
        if newest["role"] == "user":
            assert window.render()[-1]["content"].startswith(newest["content"]), stop
    print(json.dumps(engine.session("s").assemble(said, limit=limit).render()))
"""


def processes(path: Path, messages: Sequence[dict[str, Any]], count: int) -> list[Any]:
    """Return what each of N processes prints that use the same session."""
    history = path / "history.json"
    history.write_text(json.dumps(messages), encoding="utf-8")
    arguments = [str(path / "store"), str(history), str(LIMIT)]
    started = [Holdfast[str](*arguments, code=PROCESS, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    outputs = [process.communicate()[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    return [json.loads(output) for output in outputs]


def test_processes_share_a_session(tmp_path: Path) -> None:
    """Processes with one session always send the newest message; nothing is archived twice, and no edit is lost."""
    messages = conversation(11)
    processes(tmp_path, messages, 3)
    with open_engine(tmp_path / "store") as engine, open_engine(tmp_path / "store") as other:
        assert len(archived(engine)) == len(messages)
        assert any(edit.kind == "trimmed" for edit in engine.session("s").edits())
        window = engine.session("s").assemble(messages, limit=LIMIT).render()
        assert other.session("s").assemble(messages, limit=LIMIT).render() == window


class TestTheSameWordsAgain:
    def test_the_same_words_three_times_are_three_messages(self, tmp_path: Path) -> None:
        """Repeated words are new messages; a history that is sent again is not."""
        messages: list[dict[str, Any]] = []
        with open_engine(tmp_path) as engine:
            for number in range(3):
                messages.append({"role": "user", "content": "ok"})
                engine.session("s").assemble(messages)
                messages.append({"role": "assistant", "content": "Done."})
                engine.session("s").append(messages[-1:])
                assert len(archived(engine)) == 2 * (number + 1)
            engine.session("s").assemble(messages)
            engine.session("s").append(messages)
            assert len(archived(engine)) == 6
        with open_engine(tmp_path) as engine:
            engine.session("s").append(messages)
            engine.session("s").assemble(messages)
            engine.session("s").append(messages[-2:])
            assert len(archived(engine)) == 6

    @pytest.mark.parametrize("reopen", [False, True])
    def test_appended_one_by_one(self, tmp_path: Path, *, reopen: bool) -> None:
        """A user who says "ok" three times has said it three times; a reply that is appended twice is one reply."""
        engine = open_engine(tmp_path)
        for _ in range(3):
            engine.session("s").append([{"role": "user", "content": "ok"}])
            for _ in range(2):
                engine.session("s").append([{"role": "assistant", "content": "Done."}])
                if reopen:
                    engine.close()
                    engine = open_engine(tmp_path)
        assert [row.message.text for row in archived(engine)] == ["ok", "Done."] * 3
        engine.close()

    def test_three_times_in_a_row(self, tmp_path: Path) -> None:
        """No reply is needed in between."""
        with open_engine(tmp_path) as engine:
            for _ in range(3):
                engine.session("s").append([{"role": "user", "content": "好"}])
            assert len(archived(engine)) == 3

    @pytest.mark.parametrize("is_same_thread", [True, False])
    def test_a_reply_in_the_words_of_an_earlier_one(self, tmp_path: Path, *, is_same_thread: bool) -> None:
        """The earlier reply came with the next history, so what is appended answers the last request."""
        with open_engine(tmp_path) as engine, ThreadPoolExecutor(1) as pool:
            session = engine.session("s")
            messages = [user("ok"), reply("ok"), user("ok"), reply("ok"), user("ok")]
            for stop in (1, 3, 5):
                if is_same_thread:
                    session.assemble(messages[:stop], limit=6_000)
                else:
                    pool.submit(session.assemble, messages[:stop], limit=6_000).result()
            session.append([reply("ok")])
            session.append([reply("ok")])
            assert len(session.messages()) == 6

    def test_a_history_that_grows_is_appended_once(self, tmp_path: Path) -> None:
        """Appending the whole history each time adds what is new."""
        messages = conversation(10)
        with open_engine(tmp_path) as engine:
            for stop in range(2, len(messages) + 1, 3):
                engine.session("s").append(messages[1:stop])
            assert len(archived(engine)) == len(messages[1:stop])

    def test_a_client_that_drops_or_changes_old_messages_repeats_nothing(self, tmp_path: Path) -> None:
        """A message after a dropped or shortened one is still the same message; a new "ok" is new."""
        messages = conversation(10)
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble(messages)
            rows = len(archived(engine))
            dropped = [messages[0], *messages[9:]]
            engine.session("s").assemble(dropped)
            assert len(archived(engine)) == rows
            shortened = [*messages[:5], {"role": "user", "content": "[shortened]"}, *messages[6:]]
            engine.session("s").assemble(shortened)
            assert len(archived(engine)) == rows + 1
            more = [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "ok"}]
            engine.session("s").assemble([*dropped, *more])
            assert len(archived(engine)) == rows + 3

    @pytest.mark.parametrize("changed", [0, 5, 8])
    def test_what_a_client_has_changed_repeats_nothing_after_a_restart(self, tmp_path: Path, changed: int) -> None:
        """The changed message is newer than those after it, and the message after these is newer than it."""
        messages = conversation(10)
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble(messages)
            messages[changed] = {**messages[changed], "content": "[shortened]"}
            messages.append({"role": "user", "content": "ok"})
            engine.session("s").assemble(messages)
            rows = len(archived(engine))
            assert rows == len(messages) + 1
        for number in range(2):
            messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": f"ok {number}"}]
            with open_engine(tmp_path) as engine:
                engine.session("s").assemble(messages)
                assert len(archived(engine)) == rows + 2 * (number + 1)
                engine.session("s").assemble(messages[:-1])
                assert len(archived(engine)) == rows + 2 * (number + 1)


def test_what_was_forgotten_stays_so_while_a_client_drops_old_messages(tmp_path: Path) -> None:
    """A client that sends only its newest messages moves a forgotten one to the front; said again, it is new."""
    messages = conversation(3)[1:]
    messages[4]["content"] = "My secret is 桑给巴尔9876."
    with open_engine(tmp_path) as engine:
        engine.session("s").assemble(messages)
        rows = archived(engine)
        number = next(row.id for row in rows if "9876" in row.message.text)
        engine.session("s").forget(ids=[number])
        for start in range(6):
            window = engine.session("s").assemble(messages[start:])
            assert "9876" not in str(window.render())
        assert len(archived(engine)) == len(rows) - 1
        again = [*messages[4:], {"role": "assistant", "content": "Yes?"}, messages[4]]
        assert engine.session("s").assemble(again).render()[-1] == messages[4]
        assert "9876" in archived(engine)[-1].message.text


class TestBranches:
    def drive(self, engine: Engine, messages: Sequence[dict[str, Any]]) -> None:
        for stop in range(2, len(messages) + 1, 2):
            engine.session("s").assemble(messages[:stop], limit=LIMIT)

    def test_going_back_keeps_the_question(self, tmp_path: Path) -> None:
        """A client may go back to any message: its newest one is sent whole, in this process and in another."""
        messages = conversation(11)
        with open_engine(tmp_path) as engine, open_engine(tmp_path) as other:
            self.drive(engine, messages)
            assert any(edit.kind == "trimmed" for edit in engine.session("s").edits())
            for stop in range(2, len(messages) + 1, 2):
                for one in (engine, other):
                    sent = one.session("s").assemble(messages[:stop], limit=LIMIT).render()
                    assert sent[-1]["content"].startswith(messages[stop - 1]["content"]), stop

    def test_another_branch_is_not_cut_by_edits_of_the_first(self, tmp_path: Path) -> None:
        """Messages that were cut in a long branch are in the short one, and the long one stays as it was."""
        messages = conversation(16)
        with open_engine(tmp_path) as engine:
            self.drive(engine, messages)
            before = engine.session("s").assemble(messages, limit=LIMIT).render()
            branch = [*messages[:10], {"role": "user", "content": "ok"}]
            assert engine.session("s").assemble(branch, limit=LIMIT).render() == branch
            branch += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "ok"}]
            assert engine.session("s").assemble(branch, limit=LIMIT).render() == branch
            assert engine.session("s").assemble(messages, limit=LIMIT).render() == before


class TestMessagesChangedInPlace:
    def test_a_block_that_is_added_is_archived(self, tmp_path: Path) -> None:
        """A client that appends to the list that it passed in sends a new message, and it is archived."""
        content = [{"type": "text", "text": "First half."}]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "Write."},
            {"role": "assistant", "content": content},
        ]
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble([*messages, {"role": "user", "content": "Go on."}])
            content.append({"type": "text", "text": "Second half about zirconium."})
            window = engine.session("s").assemble([*messages, {"role": "user", "content": "Go on."}])
            assert window.render()[1] == messages[1]
            assert engine.session("s").search("zirconium")

    def test_a_streamed_reply_is_archived_as_it_ends(self, tmp_path: Path) -> None:
        """A reply that grows with += is archived in its last form."""
        messages = [{"role": "user", "content": "Write."}, {"role": "assistant", "content": ""}]
        with open_engine(tmp_path) as engine:
            for piece in ("The cap", "ital of ", "Iceland is Reykjavik."):
                messages[1]["content"] += piece
                engine.session("s").assemble([*messages, {"role": "user", "content": "Go on."}])
            assert "The capital of Iceland is Reykjavik." in [row.message.text for row in archived(engine)]

    def test_what_is_sent_is_not_changed_by_the_caller_later(self, tmp_path: Path) -> None:
        """A window does not change after it is made."""
        messages = [{"role": "user", "content": [{"type": "text", "text": "One."}]}]
        with open_engine(tmp_path) as engine:
            window = engine.session("s").assemble(messages)
            messages[0]["content"][0]["text"] = "Two."  # type: ignore[index]
            assert window.render()[0]["content"][0]["text"] == "One."


def test_messages_without_a_time_get_the_time_of_arrival(tmp_path: Path) -> None:
    """Recalled passages have dates even if no message had one."""
    now = int(datetime(2026, 3, 2, 13, 47, tzinfo=UTC).timestamp() * 1000)
    with Engine.open(tmp_path, settings=QUIET, background=False, clock=lambda: now) as engine:
        engine.session("s").assemble([{"role": "user", "content": "The staging port is 6543."}])
        engine.session("s").append([{"role": "assistant", "content": "The production port is 8443."}])
        assert [row.message.timestamp for row in archived(engine)] == [now, now]
        assert "2026-03-02" in engine.session("s").recall("Which port has production?").block
