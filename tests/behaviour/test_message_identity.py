"""Every message of a conversation is archived once, whatever was forgotten and whichever request ends first."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import AsyncEngine, Engine, Settings
from holdfast.memory.memory import Memory
from holdfast.settings import Embedding, Recall
from holdfast.store.base import MessageRow
from support import postgres_server
from support.forked import Holdfast

QUIET = Settings(embedding=Embedding(provider="none"), recall=Recall(automatic=False))
LIMIT = 200_000

Talk = list[dict[str, Any]]
Opener = Callable[[Path], Engine]


def open_file(folder: Path) -> Engine:
    """Open the memory in a folder, without a background thread."""
    return Engine.open(folder, settings=QUIET, background=False)


def open_server(folder: Path) -> Engine:
    """Open a memory on a PostgreSQL server in place of a folder."""
    return Engine(Memory(store=postgres_server.open_postgres(folder), settings=QUIET))


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Return a function that opens the memory of a folder; each call opens the same memory."""
    return {"sqlite": open_file, "postgres": open_server}[request.param]


def conversation(turns: int) -> Talk:
    """Return a conversation in which many messages have the same words."""
    messages: Talk = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Look at module {turn}." if turn % 3 == 0 else "Go on."})
        messages.append({"role": "assistant", "content": "Done." if turn % 2 else f"Module {turn} is fine."})
    return messages


def texts(messages: Talk) -> Counter[str]:
    """Count the texts of a conversation."""
    return Counter(message["content"] for message in messages)


def archived(engine: Engine, session: str = "s") -> Counter[str]:
    """Count the texts in the archive of a session."""
    return Counter(row.message.text for row in engine.session(session).messages())


def find(engine: Engine, text: str) -> MessageRow:
    """Return the first archived message with a text."""
    return next(row for row in engine.session("s").messages() if row.message.text == text)


class TestForgotten:
    """A message after a forgotten one is the same message as before."""

    @pytest.mark.variants
    @pytest.mark.parametrize("place", range(6))
    def test_a_history_read_from_the_archive_continues(self, tmp_path: Path, opener: Opener, place: int) -> None:
        """Forget a message, start again, and continue as docs/agent-loop.md says."""
        messages = conversation(3)
        with opener(tmp_path) as engine:
            for stop in range(1, len(messages), 2):
                engine.session("s").assemble(messages[:stop], limit=LIMIT)
                engine.session("s").append(messages[stop : stop + 1])
            rows = engine.session("s").messages()
            engine.session("s").forget([rows[place].id])
        expected = texts(messages[:place] + messages[place + 1 :])
        with opener(tmp_path) as engine:
            history: list[Any] = [row.message for row in engine.session("s").messages()]
            history.append({"role": "user", "content": "And now?"})
            engine.session("s").assemble(history, limit=LIMIT)
            assert archived(engine) == expected + Counter(["And now?"])
            engine.session("s").append([{"role": "assistant", "content": "All is well."}])
        with opener(tmp_path) as engine:
            history.append({"role": "assistant", "content": "All is well."})
            engine.session("s").assemble([*history, {"role": "user", "content": "Go on."}], limit=LIMIT)
            assert archived(engine) == expected + Counter(["And now?", "All is well.", "Go on."])

    @pytest.mark.variants
    @pytest.mark.parametrize("place", range(5))
    @pytest.mark.parametrize("keeps", [True, False])
    def test_a_client_continues_with_its_own_history(self, tmp_path: Path, place: int, *, keeps: bool) -> None:
        """Whether the client drops the forgotten message from its history or not."""
        messages = conversation(3)[:-1]
        with open_file(tmp_path) as engine:
            engine.session("s").assemble(messages, limit=LIMIT)
            engine.session("s").forget([engine.session("s").messages()[place].id])
        expected = texts(messages[:place] + messages[place + 1 :])
        left = messages if keeps else messages[:place] + messages[place + 1 :]
        with open_file(tmp_path) as engine:
            reply = {"role": "assistant", "content": "It is fine."}
            engine.session("s").assemble(left, limit=LIMIT)
            engine.session("s").append([reply])
            engine.session("s").assemble([*left, reply, {"role": "user", "content": "Go on."}], limit=LIMIT)
            assert archived(engine) == expected + Counter(["It is fine.", "Go on."])

    def test_a_reply_comes_after_its_question_was_forgotten(self, tmp_path: Path) -> None:
        messages = conversation(2)
        with open_file(tmp_path) as engine:
            engine.session("s").assemble(messages[:3], limit=LIMIT)
            engine.session("s").forget([engine.session("s").messages()[2].id])
        with open_file(tmp_path) as engine:
            engine.session("s").append(messages[3:])
            for history in (messages, [*messages[:2], *messages[3:]]):
                engine.session("s").assemble([*history, {"role": "user", "content": "Next."}], limit=LIMIT)
        with open_file(tmp_path) as engine:
            assert archived(engine) == texts([messages[0], messages[1], messages[3]]) + Counter(["Next."])

    def test_the_system_prompt_is_no_message_of_the_conversation(self, tmp_path: Path) -> None:
        """A new system prompt is the newest row, but the reply still follows the question."""
        messages = conversation(2)
        with open_file(tmp_path) as engine:
            engine.session("s").assemble([{"role": "system", "content": "Monday."}, *messages[:3]], limit=LIMIT)
            engine.session("s").assemble([{"role": "system", "content": "Tuesday."}, *messages[:3]], limit=LIMIT)
        with open_file(tmp_path) as engine:
            engine.session("s").append(messages[3:])
            engine.session("s").assemble([*messages, {"role": "user", "content": "Next."}], limit=LIMIT)
            assert archived(engine) == texts(messages) + Counter(["Monday.", "Tuesday.", "Next."])


class TestOverlappingRequests:
    """Two requests of one session are open at once."""

    def test_a_history_comes_before_the_reply_in_it(self, tmp_path: Path, opener: Opener) -> None:
        """The client sends a reply back before `append` gets it."""
        messages = conversation(4)
        with opener(tmp_path) as engine:
            session = engine.session("s")
            first = session.assemble(messages[:5], limit=LIMIT)
            second = session.assemble(messages[:7], limit=LIMIT)
            session.append(messages[5:6], after=first.place)
            session.append(messages[7:8], after=second.place)
            assert archived(engine) == texts(messages)

    @pytest.mark.parametrize("first", [0, 1])
    def test_replies_come_in_any_order(self, tmp_path: Path, opener: Opener, first: int) -> None:
        """Two branches of a conversation wait for their replies; each reply is archived once."""
        messages = conversation(2)
        questions = [{"role": "user", "content": f"Question {name}."} for name in "AB"]
        replies = [{"role": "assistant", "content": f"Reply {name}."} for name in "AB"]
        more = {"role": "user", "content": "Go on."}
        with opener(tmp_path) as engine:
            session = engine.session("s")
            for question in questions:
                session.assemble([*messages, question], limit=LIMIT)
            session.append([replies[first]])
            session.append([replies[1 - first]])
            for question, reply in zip(questions, replies, strict=True):
                session.assemble([*messages, question, reply, more], limit=LIMIT)
        with opener(tmp_path) as engine:
            for question, reply in zip(questions, replies, strict=True):
                engine.session("s").assemble([*messages, question, reply, more], limit=LIMIT)
            assert archived(engine) == texts([*messages, *questions, *replies, more, more])

    def test_threads_go_through_one_conversation(self, tmp_path: Path) -> None:
        """Threads send the same turns, each at its own pace."""
        messages = conversation(12)

        def work(engine: Engine) -> None:
            for stop in range(1, len(messages), 2):
                engine.session("s").assemble(messages[:stop], limit=LIMIT)
                engine.session("s").append(messages[stop : stop + 1])

        with open_file(tmp_path) as engine, open_file(tmp_path) as other, ThreadPoolExecutor(4) as pool:
            list(pool.map(work, [engine, other, engine, other]))
            assert archived(engine) == texts(messages)

    def test_tasks_go_through_one_conversation(self, tmp_path: Path) -> None:
        messages = conversation(8)

        async def work(engine: AsyncEngine) -> None:
            session = engine.session("s")
            for stop in range(1, len(messages), 2):
                await session.assemble(messages[:stop], limit=LIMIT)
                await session.append(messages[stop : stop + 1])

        async def run() -> Counter[str]:
            async with await AsyncEngine.open(tmp_path, settings=QUIET, background=False) as engine:
                await asyncio.gather(*(work(engine) for _ in range(4)))
                return archived(engine.sync)

        assert asyncio.run(run()) == texts(messages)

    def test_processes_go_through_one_conversation(self, tmp_path: Path) -> None:
        messages = conversation(8)
        history = tmp_path / "history.json"
        history.write_text(json.dumps(messages), encoding="utf-8")
        started = [Holdfast[str](str(tmp_path / "store"), str(history), code=PROCESS) for _ in range(3)]
        assert [process.wait() for process in started] == [0, 0, 0]
        with open_file(tmp_path / "store") as engine:
            assert archived(engine) == texts(messages)


PROCESS = """
import json, sys
from pathlib import Path
from holdfast import Engine, Settings
from holdfast.settings import Embedding, Recall
talk = json.load(open(sys.argv[2]))
quiet = Settings(embedding=Embedding(provider="none"), recall=Recall(automatic=False))
with Engine.open(Path(sys.argv[1]), settings=quiet, background=False) as engine:
    for stop in range(1, len(talk), 2):
        engine.session("s").assemble(talk[:stop], limit=200_000)
        engine.session("s").append(talk[stop : stop + 1])
"""


class TestTruncatedHistories:
    def test_only_the_newest_message_is_left(self, tmp_path: Path) -> None:
        """A client that drops everything before its newest message, or summarises it, still sends that message."""
        messages = conversation(3)[:-1]
        with open_file(tmp_path) as engine:
            engine.session("s").assemble(messages, limit=LIMIT)
            engine.session("s").assemble(messages[-1:], limit=LIMIT)
            engine.session("s").assemble([{"role": "user", "content": "A summary."}, *messages[-1:]], limit=LIMIT)
            assert archived(engine) == texts(messages) + Counter(["A summary."])


class TestAppendedMessages:
    """Messages with the words of the newest one, from an engine that has not written that one."""

    def test_without_a_place_they_count_as_a_repetition(self, tmp_path: Path, opener: Opener) -> None:
        done = {"role": "assistant", "content": "Done."}
        with opener(tmp_path) as engine:
            first = engine.session("s").append([{"role": "user", "content": "Run the tests."}, done])
        with opener(tmp_path) as engine:
            assert engine.session("s").append([done]) == first[1:]

    @pytest.mark.parametrize("is_known", [False, True], ids=["other engine", "same engine"])
    def test_after_a_named_place_they_are_new(self, tmp_path: Path, opener: Opener, *, is_known: bool) -> None:
        done = {"role": "assistant", "content": "Done."}
        with opener(tmp_path) as engine:
            first = engine.session("s").append([{"role": "user", "content": "Run the tests."}, done])
        with opener(tmp_path) as engine:
            session = engine.session("s")
            if is_known:
                session.append([done])
            second = session.append([done], after=first.place)
            assert session.append([done], after=first.place) == second
            third = session.append([done], after=second.place)
            assert len({first[-1], second[0], third[0]}) == 3
            assert archived(engine) == Counter({"Run the tests.": 1, "Done.": 3})


class TestIdenticalMessages:
    """The work for a history that repeats one message grows with its length."""

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("dropped", [0, 1])
    def test_work_grows_with_the_length_of_a_history(self, tmp_path: Path, dropped: int) -> None:
        """After a restart, twice the history takes twice the calls, even without its first message."""
        counts = []
        for length in (100, 200):
            messages = [
                {"role": "user" if index % 2 == 0 else "assistant", "content": "ok"} for index in range(length + 1)
            ]
            folder = tmp_path / str(length)
            with open_file(folder) as engine:
                engine.session("s").assemble(messages, limit=LIMIT)
            with open_file(folder) as engine, counted_calls() as count:
                engine.session("s").assemble(messages[2 * dropped :], limit=LIMIT)
                counts.append(count())
        assert counts[1] < 2.5 * counts[0], counts


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Count the calls of functions in this thread and in new ones."""
    calls = itertools.count()

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        if event in {"call", "c_call"}:
            next(calls)

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield lambda: next(calls)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
