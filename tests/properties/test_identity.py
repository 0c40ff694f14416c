"""Every message of a conversation is archived once, in any order of requests, replies and restarts."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Engine, Message, Session, Settings
from holdfast.memory.memory import Memory
from holdfast.settings import Embedding
from support import postgres_server
from support.conversations import answer, call, reply, results, user
from support.strategies import examples
from support.waiting import UNHURRIED

T = TypeVar("T")

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 200_000
WORKERS = 3

Opener = Callable[[Path], Engine]


def open_file(folder: Path) -> Engine:
    """Open the memory in a folder, without a background thread."""
    return Engine.open(folder, settings=QUIET, background=False)


def open_server(folder: Path) -> Engine:
    """Open a memory on a PostgreSQL server in place of a folder."""
    return Engine(Memory(store=postgres_server.open_postgres(folder), settings=QUIET))


# --- conversations ---------------------------------------------------------------

QUESTIONS = ("yes", "go on", "好", "Look at the importer again.")
REPLIES = ("Done.", "OK", "完了しました。", "The importer skips empty rows.")


class Talk(list[Message]):
    """A conversation, represented by its texts."""

    def __repr__(self) -> str:
        return repr([message.text or message.digest[:6] for message in self])


@st.composite
def turns(draw: st.DrawFn, *, most: int = 5, mark: str = "") -> Talk:
    """Draw a conversation that ends with a reply, and in which most messages have the words of another one."""
    conversation = Talk()
    for turn in range(draw(st.integers(1, most))):
        conversation.append(user(draw(st.sampled_from(QUESTIONS)) + mark))
        if draw(st.booleans()):
            name = f"c{turn}{mark}"
            conversation.append(reply("", call(name, command="ls")))
            conversation.append(results(answer(name, "a.py")))
        conversation.append(reply(draw(st.sampled_from(REPLIES))))
    return conversation


@st.composite
def branches(draw: st.DrawFn) -> list[Talk]:
    """Draw a conversation, and others that go back in it and continue with other questions."""
    talks = [draw(turns())]
    for number in range(draw(st.integers(0, 2))):
        first = draw(st.sampled_from(talks))
        questions = [index for index, message in enumerate(first) if message.role == "user"]
        kept = first[: draw(st.sampled_from(questions))]
        talks.append(Talk([*kept, *draw(turns(most=3, mark=f" ({number})"))]))
    return talks


def count(talks: Sequence[Talk]) -> Counter[str]:
    """Count the messages of branches by digest; a common beginning counts once."""
    places = {
        tuple(message.digest for message in conversation[: stop + 1])
        for conversation in talks
        for stop in range(len(conversation))
    }
    return Counter(place[-1] for place in places)


# --- workers -----------------------------------------------------------------------


@dataclass
class Worker:
    """A thread that makes one request after the other.

    `asked` is the request that it waits for, `reply` the reply that will come, and `place` where it belongs.
    """

    engine: int
    thread: ThreadPoolExecutor
    reply: Message | None = None
    place: str = ""

    def run(self, work: Callable[[], T]) -> T:
        """Do something in the thread of the worker, and wait for it."""
        return self.thread.submit(work).result()


@dataclass
class World:
    """Two processes that share a session, and their workers.

    `gone` are the places of forgotten messages in the conversations.
    """

    folder: Path
    open: Opener
    talks: list[Talk]
    engines: list[Engine] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    gone: set[tuple[str, ...]] = field(default_factory=set)

    def session(self, worker: Worker) -> Session:
        """Return the session of a worker."""
        return self.engines[worker.engine].session("s")

    def ask(self, worker: Worker, share: int, branch: int, *, drops: bool) -> None:
        """Send a conversation up to one of its replies; if the worker `drops`, without forgotten messages."""
        conversation = self.talks[branch % len(self.talks)]
        stops = [index for index, message in enumerate(conversation) if message.role == "assistant"]
        stop = stops[share % len(stops)]
        history = self.left(conversation[:stop]) if drops else conversation[:stop]
        window = worker.run(lambda: self.session(worker).assemble(history, limit=LIMIT, recall=False))
        worker.reply, worker.place = conversation[stop], window.place

    def left(self, talk: Sequence[Message]) -> list[Message]:
        """Return a conversation without its forgotten messages, except for the question at its end."""
        digests = tuple(message.digest for message in talk)
        kept = [message for index, message in enumerate(talk[:-1]) if digests[: index + 1] not in self.gone]
        return [*kept, talk[-1]]

    def answer(self, worker: Worker, *, named: bool) -> None:
        """Append the reply that a worker waits for."""
        if worker.reply is not None:
            message = worker.reply
            worker.reply = None
            worker.run(lambda: self.session(worker).append([message], after=worker.place if named else None))

    def forget(self, worker: Worker, share: int, branch: int) -> None:
        """Forget a message of an archived conversation."""
        conversation = self.talks[branch % len(self.talks)]
        session = self.session(worker)
        window = worker.run(lambda: session.assemble(conversation, limit=LIMIT, recall=False))
        digests = tuple(message.digest for message in conversation)
        places = [digests[: index + 1] for index in range(len(conversation))]
        known = [place for place in places if place not in self.gone]
        if not known:
            return
        place = known[share % len(known)]
        numbers = dict(zip(places, session._state.history.numbers, strict=True))
        assert len(window.items) >= len(known)
        assert worker.run(lambda: session.forget([numbers[place]])) == 1
        self.gone.add(place)

    def resume(self, worker: Worker) -> None:
        """Continue with the messages in the archive, as a program does that kept none."""
        session = self.session(worker)
        history = [row.message for row in session.messages()]
        if history:
            worker.run(lambda: session.assemble(history, limit=LIMIT, recall=False))

    def restart(self, number: int) -> None:
        """Restart a process: its workers lose their requests."""
        self.engines[number].close()
        self.engines[number] = self.open(self.folder)
        for worker in self.workers:
            if worker.engine == number:
                worker.reply = None

    def close(self) -> None:
        """Close both engines."""
        for engine in self.engines:
            engine.close()

    def check(self) -> None:
        """Check that nothing is archived twice."""
        extra = self.archived() - self.expected()
        assert not extra, f"{extra.total()} extra copies"

    def archived(self) -> Counter[str]:
        """Count the archived messages by digest."""
        return Counter(row.message.digest for row in self.engines[0].session("s").messages())

    def expected(self) -> Counter[str]:
        """Count the messages that should be in the archive at the end."""
        return count(self.talks) - Counter(place[-1] for place in self.gone)

    def finish(self) -> None:
        """Check that whole conversations add what is missing, and nothing when they are sent again."""
        for engine in (*self.engines, *self.engines):
            for conversation in self.talks:
                engine.session("s").assemble(conversation, limit=LIMIT, recall=False)
            self.check()
        assert self.archived() == self.expected()


@contextmanager
def world(opener: Opener, talks: list[Talk]) -> Iterator[World]:
    """Make two processes with three workers."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = World(Path(folder), opener, talks)
        made.engines += [opener(made.folder), opener(made.folder)]
        stack.callback(made.close)
        for number in range(WORKERS):
            thread = stack.enter_context(ThreadPoolExecutor(1))
            made.workers.append(Worker(engine=number % 2, thread=thread))
        yield made


# --- steps ---------------------------------------------------------------------------

WHO = st.integers(0, WORKERS - 1)
SHARE = st.integers(0, 9)
BRANCH = st.integers(0, 2)
ASK = st.tuples(st.just("ask"), WHO, SHARE, BRANCH)
ANSWER = st.tuples(st.just("answer"), WHO, SHARE, BRANCH)
RESTART = st.tuples(st.just("restart"), WHO, SHARE, BRANCH)
FORGET = st.tuples(st.just("forget"), WHO, SHARE, BRANCH)
RESUME = st.tuples(st.just("resume"), WHO, SHARE, BRANCH)

Step = tuple[str, int, int, int]


def take(there: World, steps: Sequence[Step]) -> None:
    """Take the steps, and check the archive after each."""
    for name, who, share, branch in steps:
        worker = there.workers[who]
        match name:
            case "ask":
                there.ask(worker, share, branch, drops=who == 0)
            case "answer":
                there.answer(worker, named=branch == 0)
            case "forget":
                there.forget(worker, share, branch)
            case "resume":
                there.resume(worker)
            case "restart":
                there.restart(worker.engine)
        there.check()
    there.finish()


@settings(max_examples=examples(80), deadline=None)
@given(conversation=turns(), steps=st.lists(ASK | ASK | ANSWER | ANSWER | RESTART, max_size=16))
def test_requests_and_replies_come_in_any_order(conversation: Talk, steps: list[Step]) -> None:
    """I1, I6: two processes, three threads, one conversation; requests are repeated and replies are late."""
    with world(open_file, [conversation]) as there:
        take(there, steps)


@settings(max_examples=examples(20), deadline=None)
@given(talks=branches(), steps=st.lists(ASK | ASK | ANSWER | ANSWER | RESTART | FORGET, max_size=12))
def test_requests_and_replies_come_in_any_order_on_a_server(talks: list[Talk], steps: list[Step]) -> None:
    """I1, I6: the same on PostgreSQL, with branches and forgotten messages."""
    with world(open_server, talks) as there:
        take(there, steps)


@settings(max_examples=examples(80), deadline=None)
@given(talks=branches(), steps=st.lists(ASK | ASK | ANSWER | ANSWER | RESTART, max_size=16))
def test_branches_are_kept_apart(talks: list[Talk], steps: list[Step]) -> None:
    """I1, I6: a client goes back and asks something else while other requests are open."""
    with world(open_file, talks) as there:
        take(there, steps)


@settings(max_examples=examples(80), deadline=None)
@given(conversation=turns(), steps=st.lists(ASK | ANSWER | RESTART | FORGET | RESUME, max_size=12))
def test_what_follows_a_forgotten_message_stays_the_same(conversation: Talk, steps: list[Step]) -> None:
    """I1, I6, I13: messages are forgotten meanwhile; some clients drop them from their history, others do not."""
    with world(open_file, [conversation]) as there:
        take(there, steps)
