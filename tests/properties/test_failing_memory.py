"""If memory fails or hangs, a window still fits, is valid, and says why (I2, I3, I10)."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import providers
from holdfast.context.budget import budget
from holdfast.engine import Engine
from holdfast.errors import FormatError, WindowTooSmallError
from holdfast.messages import Message
from holdfast.providers import FORMATS, check
from holdfast.report import Window
from holdfast.session import MAX_HANGING
from holdfast.settings import Archive, Compaction, Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.opening import STORE_NAME
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_messages
from support.conversations import answer, call, reply, results, system, user
from support.failing_stores import FAULTS, FailingStore, HangingStore, open_engine
from support.strategies import examples
from support.waiting import UNHURRIED, until

few = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
more = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
NO_VECTORS = Embedding(provider="none")
QUIET = Settings(embedding=NO_VECTORS, compaction=Compaction(timeout_seconds=1), recall=UNHURRIED)
LIMITS = st.sampled_from([4_000, 8_000, 40_000])
SMALL = 4_000
EXPECTED = ("words alone", "of the reserve for the reply")
"""Warnings that are no failure."""


class Requests(list[list[Message]]):
    """The requests of a session, with a short representation."""

    def __repr__(self) -> str:
        return f"<{len(self)} requests, the last of {len(self[-1])} messages>"


@st.composite
def histories(draw: st.DrawFn, *, longest: int = 6) -> Requests:
    """Draw the requests of an agent, most of which do not fit: each is the one before and new messages."""
    conversation = [system()]
    requests = Requests()
    for number in range(draw(st.integers(2, longest))):
        words = draw(st.sampled_from(["port ", "修复签名验证 ", "error: exit code 2\n"])) * draw(
            st.sampled_from([1, 300])
        )
        conversation = [*conversation, user(f"Request {number}: {words}")]
        requests.append(conversation)
        for step in range(draw(st.integers(0, 2))):
            names = [f"c{number}.{step}.{index}" for index in range(draw(st.integers(1, 2)))]
            output = draw(st.sampled_from(["line of output\n", "输出 "])) * draw(st.sampled_from([1, 100, 1_000]))
            calls = [call(name, command=f"cat {name}.txt") for name in names]
            conversation = [
                *conversation,
                reply("", *calls, thought="so" if draw(st.booleans()) else None),
                results(*(answer(name, f"{name} {output}", name="bash") for name in names)),
            ]
            requests.append(conversation)
        conversation = [*conversation, reply(f"Answer {number}. " + "mot " * draw(st.sampled_from([1, 300])))]
    return requests


def wires(conversation: Sequence[Message], format: str) -> list[Message | dict[str, Any]]:
    """Return the messages as a client sends them, each as it was added to its history, and the system prompt."""
    first, *rest = conversation
    return [first, *(dict(wire) for message in rest for wire in providers.render([message], format))]


def trouble(window: Window) -> list[str]:
    """List the failures that were skipped."""
    return [text for text in window.report.warnings if not any(words in text for words in EXPECTED)]


def last_request(conversation: Sequence[Message]) -> str:
    """Return the beginning of the user's last message."""
    return next(message.text for message in reversed(conversation) if message.role == "user")[:10]


def require_promises(window: Window, conversation: Sequence[Message], limit: int) -> None:
    """Check that the window is valid, fits, and has the system prompt and the last request."""
    assert check(window.render(), window.provider) == []
    assert count_messages(window.messages) <= budget(QUIET, window=limit).ceiling
    sent = str(window.request())
    assert "You are careful." in sent
    assert last_request(conversation) in sent
    assert all(item.id >= 0 for item in window.items)


def archived(engine: Engine) -> list[tuple[Any, ...]]:
    """List the parts of every message in the archive."""
    rows = engine._memory.store.read_messages(Select(scope=Scope(session="s")))
    return [row.message.parts for row in rows]


def require_everything(engine: Engine, conversation: Sequence[Message]) -> None:
    """Check that every message is archived, and that every edit is about archived messages."""
    held = archived(engine)
    assert all(message.parts in held for message in conversation)
    rows = engine._memory.store.read_messages(Select(scope=Scope(session="s")))
    known = {row.id for row in rows}
    assert all(known.issuperset(edit.ids) for edit in engine.session("s").edits())


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for a store, inside one that is deleted afterwards."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "memory"
        folder.mkdir()
        yield folder


@pytest.mark.parametrize("fault", sorted(FAULTS))
@few
@given(
    format=st.sampled_from(sorted(FORMATS)),
    requests=histories(longest=4),
    healthy=st.integers(0, 4),
    limit=st.sampled_from([4_000, 8_000]),
)
def test_a_fault_of_the_store_keeps_the_limit(
    fault: str, *, format: str, requests: Requests, healthy: int, limit: int
) -> None:
    """After some turns, the store is deleted, full, locked, newer or corrupt; then it works again."""
    with temporary_folder() as folder:
        store = SqliteStore(folder / STORE_NAME, wait=0)
        with open_engine(store, QUIET) as engine:
            session = engine.session("s")
            for conversation in requests[:healthy]:
                session.assemble(wires(conversation, format), format=format, limit=limit)
            with FAULTS[fault](folder):
                for conversation in requests[healthy:]:
                    window = session.assemble(wires(conversation, format), format=format, limit=limit)
                    require_promises(window, conversation, limit)
                    assert trouble(window)
            window = session.assemble(wires(requests[-1], format), format=format, limit=100_000)
            assert not trouble(window)
            held = str(archived(engine))
            assert all(message.text[:10] in held for message in requests[-1])


SHORT = Requests([[system(), user("Request 0")], [system(), user("Request 0"), reply("Answer 0"), user("Request 1")]])


@more
@example(requests=SHORT, kinds=frozenset({"add"}), first=3, count=1, limit=SMALL, format="anthropic")  # the mark
@example(requests=SHORT, kinds=frozenset({"add"}), first=6, count=1, limit=SMALL, format="anthropic")  # the reply
@given(
    requests=histories(),
    kinds=st.frozensets(st.sampled_from(["add", "read", "search"]), min_size=1),
    first=st.integers(0, 12),
    count=st.sampled_from([1, 2, 100]),
    limit=LIMITS,
    format=st.sampled_from(sorted(FORMATS)),
)
def test_a_call_that_fails_blocks_nothing_and_is_reported(
    *, requests: Requests, kinds: frozenset[str], first: int, count: int, limit: int, format: str
) -> None:
    """Any call of a store fails for any time; once it works again, everything is archived."""
    with temporary_folder() as folder:
        store = FailingStore(folder / STORE_NAME, kinds=kinds, first=first, count=count)
        with open_engine(store, QUIET) as engine:
            for conversation in requests:
                before = store.failed
                window = engine.session("s").assemble(conversation, limit=limit, provider=format)
                require_promises(window, conversation, limit)
                assert store.failed == before or trouble(window)
            store.heal()
            conversation = [*requests[-1], user("And now?")]
            window = engine.session("s").assemble(conversation, limit=limit, provider=format)
            assert not trouble(window)
            require_everything(engine, requests[-1])


@pytest.mark.parametrize("kind", ["read", "add", "search"])
def test_a_store_that_hangs_is_given_up(kind: str) -> None:
    """The first request waits for it; later ones do not, until the store answers again."""
    conversation = [system(), user("Which port does the staging database listen on?")]
    for number in range(12):
        conversation += [
            reply(f"Answer {number}. " + "mot " * 300),
            user(f"Request {number}: which port was it again?"),
        ]
    with temporary_folder() as folder:
        store = HangingStore(folder / STORE_NAME, kinds=frozenset([kind]))
        with open_engine(store, HASTY) as engine:
            session = engine.session("s")
            session.assemble(conversation[:4], limit=SMALL)
            store.hang()
            for end in (len(conversation) - 4, len(conversation) - 2, len(conversation)):
                window = session.assemble(conversation[:end], limit=SMALL)
                require_promises(window, conversation[:end], SMALL)
                assert "memory does not answer" in trouble(window)[0]
            store.release()
            until(lambda: not engine._is_memory_hanging())
        with Engine.open(folder, settings=QUIET, background=False) as engine:
            window = engine.session("s").assemble([*conversation, reply("Done."), user("And now?")], limit=SMALL)
            assert not trouble(window)
            require_everything(engine, conversation)
            assert len(archived(engine)) == len(conversation) + 2


HASTY = Settings(embedding=NO_VECTORS, recall=UNHURRIED, archive=Archive(timeout_seconds=1))


def test_a_session_that_hangs_does_not_take_the_memory_of_others() -> None:
    """Its own requests continue without memory; another session of the same caller is archived."""
    conversation = [system(), user("Which port does the staging database listen on?")]
    with temporary_folder() as folder:
        store = HangingStore(folder / STORE_NAME, kinds=frozenset(["read"]))
        with open_engine(store, HASTY) as engine:
            store.hang()
            assert "it took longer than" in trouble(engine.session("a").assemble(conversation, limit=SMALL))[0]
            store.hang_no_more()
            other = engine.session("b")
            until(
                lambda: not trouble(other.assemble(conversation, limit=SMALL))
            )  # a busy machine may take more than a second
            assert [row.message.text for row in other.messages()] == [message.text for message in conversation]
            assert "has not returned yet" in trouble(engine.session("a").assemble(conversation, limit=SMALL))[0]
            store.release()
            until(lambda: not engine._is_memory_hanging())


def test_a_caller_has_few_calls_that_hang() -> None:
    """After a few sessions, further ones of the same caller are refused at once; another caller has memory."""
    conversation = [user("Which port does the staging database listen on?")]
    with temporary_folder() as folder:
        store = HangingStore(folder / STORE_NAME, kinds=frozenset(["read"]))
        with open_engine(store, HASTY) as engine:
            store.hang()
            for number in range(MAX_HANGING + 3):
                window = engine.session(f"s{number}").assemble(conversation, limit=SMALL)
                reason = "it took longer than" if number < MAX_HANGING else "has not returned yet"
                assert reason in trouble(window)[0]
            assert [thread.name for thread in enumerate_threads()].count("holdfast-memory") == MAX_HANGING
            store.hang_no_more()
            other = engine.session("s0", agent="another")
            until(lambda: not trouble(other.assemble(conversation, limit=SMALL)))
            store.release()
            until(lambda: not engine._is_memory_hanging())


def test_errors_of_the_memory_are_not_kept() -> None:
    """Each error would keep the messages of its request in memory until the garbage collector runs."""
    with temporary_folder() as folder, Engine.open(folder, settings=QUIET, background=False) as engine:
        session = engine.session("s")
        gc.collect()
        gc.disable()
        kept_before = count_format_errors()  # of other tests
        try:
            for _ in range(3):
                with pytest.raises(FormatError):
                    session.append([{"role": 7}], format="openai_chat")
            assert count_format_errors() <= kept_before
        finally:
            gc.enable()


def count_format_errors() -> int:
    """Count the errors of this kind that are still in memory."""
    # Not `isinstance`: it asks objects for their class, and some import a whole SDK to answer.
    return sum(issubclass(type(thing), FormatError) for thing in gc.get_objects())


@few
@given(requests=histories(), limit=st.sampled_from([8_000, 16_000]))
@example(
    requests=Requests([[system(), user("Request 0: a"), reply("Answer 0."), user("Request 1: b")]]),
    limit=8_000,
)
def test_what_only_a_failure_removed_comes_back(requests: Requests, limit: int) -> None:
    """Nothing was recorded about it: in a larger window, once memory works, every message is there."""
    with temporary_folder() as folder:
        store = FailingStore(folder / STORE_NAME, kinds=frozenset(["add", "read"]), first=0, count=10_000)
        with open_engine(store, QUIET) as engine:
            for conversation in requests:
                engine.session("s").assemble(conversation, limit=limit)
            store.heal()
            assert engine.session("s").edits() == ()
            window = engine.session("s").assemble(requests[-1], limit=1_000_000, recall=False)
            assert [message.parts for message in window.messages] == [message.parts for message in requests[-1]]


def test_known_edits_hold_and_the_beginning_stays_while_memory_fails() -> None:
    """The provider's cache stays valid: cuts are as rare as with memory, and the first request continues the window."""
    conversation = [system()]
    with temporary_folder() as folder:
        store = FailingStore(folder / STORE_NAME, kinds=frozenset(["add"]), first=0, count=0)
        with open_engine(store, QUIET) as engine:
            for number in range(40):
                conversation += [user(f"Request {number}: " + "port " * 50), reply(f"Answer {number}. " + "mot " * 100)]
            conversation.append(user("Request 40: and now?"))
            before = engine.session("s").assemble(conversation, limit=8_000, recall=False)
            assert before.report.changes
            store.fail()
            changes = 0
            for number in range(41, 81):
                conversation += [reply(f"Answer {number}. " + "mot " * 100), user(f"Request {number}: and now?")]
                window = engine.session("s").assemble(conversation, limit=8_000, recall=False)
                require_promises(window, conversation, 8_000)
                changes += window.messages[: len(before.messages)] != before.messages
                before = window
    assert 1 <= changes <= 8


def test_what_must_stay_and_does_not_fit_is_a_typed_error() -> None:
    """This is so without memory too."""
    with temporary_folder() as folder:
        store = FailingStore(folder / STORE_NAME, kinds=frozenset(["add", "read"]), first=0, count=10_000)
        with open_engine(store, QUIET) as engine, pytest.raises(WindowTooSmallError):
            engine.session("s").assemble([user("word " * 20_000)], limit=SMALL)


def test_an_oversized_result_is_shortened_without_memory() -> None:
    """The note names no number, because nothing can be shown yet."""
    conversation = [system(), user("Read it."), reply("", call("a")), results(answer("a", "line of output\n" * 4_000))]
    with temporary_folder() as folder:
        store = FailingStore(folder / STORE_NAME, kinds=frozenset(["add", "read"]), first=0, count=10_000)
        with open_engine(store, QUIET) as engine:
            window = engine.session("s").assemble(conversation, limit=SMALL)
    require_promises(window, conversation, SMALL)
    assert "line of output" in str(window.render())
    assert "holdfast id" not in str(window.render())
