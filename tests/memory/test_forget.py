"""Forgetting: nothing that was made of the words stays, in whatever process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from holdfast.engine import Engine
from holdfast.memory.forget import FORGOTTEN
from holdfast.memory.memory import Memory
from holdfast.messages import Message
from holdfast.models.base import Prompt
from holdfast.models.scripted import Scripted
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from support.conversations import reply, system, user
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 40_000


def open_engine(path: Path, model: Scripted | None = None) -> Engine:
    """An engine without a thread."""
    return Engine.open(path, settings=QUIET, model=model, background=False)


def make_conversation(
    turns: int, *, about: str = "modules", first: str = "We decided: the codename is zebraquartz."
) -> list[Message]:
    """A conversation of about 300 tokens a turn that begins with something to forget."""
    messages = [system(), user(first), reply("Noted.")]
    for turn in range(turns):
        messages += [user(f"Step {turn} of {about}. " + f"detail{turn} " * 40), reply("Done. " + f"change{turn} " * 40)]
    return messages


def number(engine: Engine, word: str) -> int:
    """The archived message that says a word."""
    rows = engine._memory.store.read_messages(Select(scope=Scope(session="s")))
    return int(next(row.id for row in rows if word in row.message.text))


def numbers(engine: Engine, words: str) -> list[int]:
    """The archived messages that say exactly this."""
    rows = engine._memory.store.read_messages(Select(scope=Scope(session="s")))
    return [row.id for row in rows if row.message.text == words]


def shown(engine: Engine, messages: list[Message], words: str) -> int:
    """How many messages of the next window say exactly this."""
    window = engine.session("s").assemble(messages, limit=LIMIT)
    return sum(message.text == words for message in window.messages)


def in_records(engine: Engine, word: str) -> bool:
    """Whether any record of the session says a word."""
    rows = engine._memory.store.read_records(Select(scope=Scope(session="s")))
    return any(word in json.dumps(row.data) for row in rows)


def in_window(engine: Engine, messages: list[Message], word: str) -> bool:
    """Whether the next window says a word."""
    window = engine.session("s").assemble(messages, limit=LIMIT)
    return any(word in message.text for message in window.messages)


class TestSummaries:
    def test_one_that_took_it_over_goes_too(self, tmp_path: Path) -> None:
        """A later summary says what the first one said: both are emptied, and the message does not come back."""
        with open_engine(tmp_path) as engine:
            messages = make_conversation(60)
            engine.session("s").compact(messages, limit=LIMIT)
            messages += make_conversation(40, about="tests", first="Go on.")[1:]
            second = engine.session("s").compact(messages, limit=LIMIT)
            assert second.summary is not None
            assert "zebraquartz" in second.summary.framed
            engine.session("s").forget(ids=[number(engine, "zebraquartz")])
            assert not in_records(engine, "zebraquartz")
            assert not in_window(engine, messages, "zebraquartz")
            assert in_window(engine, [*messages, user("And now?")], FORGOTTEN)

    def test_one_that_quotes_the_request_goes_too(self, tmp_path: Path) -> None:
        """What the user asked for last stays in the window and is told in the summary as well."""
        with open_engine(tmp_path) as engine:
            messages = [*make_conversation(60), user("Now open the walruskey drawer.")]
            engine.session("s").compact(messages, limit=LIMIT)
            assert in_records(engine, "walruskey")
            engine.session("s").forget(ids=[number(engine, "walruskey")])
            assert not in_records(engine, "walruskey")

    def test_later_messages_do_not_change_it(self, tmp_path: Path) -> None:
        """A summary that cannot know a message is not harmed."""
        with open_engine(tmp_path) as engine:
            messages = make_conversation(60)
            engine.session("s").compact(messages, limit=LIMIT)
            engine.session("s").append([user("A walruskey.")])
            engine.session("s").forget(ids=[number(engine, "walruskey")])
            assert in_records(engine, "zebraquartz")


class TestOthersAtWork:
    """Another thread or process may have read what is forgotten, and record it a moment later."""

    def test_what_it_recorded_meanwhile_is_cleaned(self, tmp_path: Path) -> None:
        """Two threads: one recalls the words in new sessions all the time, the other one forgets them."""
        with open_engine(tmp_path) as engine:
            told = engine.session("told")
            forgotten: list[str] = []
            is_over = Event()

            def recall_all_the_time() -> None:
                for turn in range(500):
                    question = user(f"What is the codename of door {len(forgotten)}? ({turn})")
                    engine.session(f"asking{turn % 3}").assemble([question], limit=LIMIT)
                    if is_over.is_set():
                        return

            with ThreadPoolExecutor(1) as others:
                asking = others.submit(recall_all_the_time)
                for door in range(12):
                    word = f"walruskey{door}"
                    told.append([user(f"Remember that the codename of door {door} is {word}.")])
                    told.learn()
                    engine.work()
                    told.forget([row.id for row in told.messages()])
                    forgotten.append(word)
                is_over.set()
                asking.result()
            records = engine._memory.store.read_records(Select(scope=told.scope, across=True))
            data = json.dumps([row.data for row in records])
            assert [word for word in forgotten if word in data] == []

    def test_the_messages_and_facts_of_another_session_stay(self, tmp_path: Path) -> None:
        """A search finds them, but only their own session forgets them."""
        with open_engine(tmp_path) as engine:
            own = engine.session("own")
            own.append([user("Remember that the codename is zebraquartz.")])
            own.learn()
            engine.work()
            (row,) = own.messages()
            assert engine.session("other").forget([row.id]) == 0
            assert [fact.content for fact in own.facts()] == ["Remember that the codename is zebraquartz."]
            assert own.forget([row.id]) == 2
            assert own.facts() == []


class TestFacts:
    def test_earlier_versions_of_a_fact_go_with_it(self, tmp_path: Path) -> None:
        """A fact that another took the place of is an earlier version of that one; one that came later stays."""
        with Memory.open(tmp_path, settings=QUIET) as memory:
            scope = Scope(session="s")
            facts = [
                memory.remember(f"The port is {word}", scope=scope, subject="gateway", slot="port")
                for word in ("zebraone", "zebratwo", "zebrathree")
            ]
            memory.forget(scope=scope, fact_ids=[facts[1].id])
            kept = memory.store.read_facts(Select(scope=scope))
        assert {row.content for row in kept} == {"The port is zebrathree"}
        files = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
        assert b"zebraone" not in files
        assert b"zebratwo" not in files
        assert b"zebrathree" in files

    @pytest.mark.parametrize("across", [False, True])
    def test_a_block_with_a_forgotten_fact_is_removed(self, tmp_path: Path, across: bool) -> None:  # noqa: FBT001
        """The fact is in no record and in no window, though the block was placed to stay."""
        with open_engine(tmp_path) as engine:
            fact = engine.session("s").remember("The vault code of the Lisbon office is giraffe")
            messages = [system(), user("What is the vault code of the Lisbon office?")]
            assert in_window(engine, messages, "giraffe")
            engine.session("s").forget_facts([fact.id], across=across)
            assert not in_records(engine, "giraffe")
            assert not in_window(engine, [*messages, reply("Hm."), user("Well?")], "giraffe")

    def test_one_that_is_read_meanwhile_is_not_learned(self, tmp_path: Path) -> None:
        """A message that is forgotten while a model reads it leaves no fact behind."""
        with open_engine(tmp_path) as other:
            other.session("s").append([user("Remember that the codename is zebraquartz.")])
            found = number(other, "zebraquartz")
            fact = {"type": "decision", "content": "The codename is zebraquartz", "evidence": [found]}

            def reads(_: Prompt) -> str:
                other.session("s").forget(ids=[found])
                return json.dumps({"facts": [fact | {"quote": "the codename is zebraquartz"}]})

            with open_engine(tmp_path, Scripted(reads)) as engine:
                engine.session("s").learn()
                engine.work()
                assert engine.session("s").facts() == []


class TestIdentity:
    @pytest.mark.parametrize("word", ["no", "不要"])
    def test_the_same_words_again_are_another_message(self, tmp_path: Path, word: str) -> None:
        """Of three equal answers one is forgotten: the others stay, and a fourth is archived and sent."""
        messages = [system()]
        for turn in range(3):
            messages += [user(word), reply(f"Question {turn}?")]
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble([*messages, user("Go on.")], limit=LIMIT)
            _, second, _ = numbers(engine, word)
            engine.session("s").forget(ids=[second])
        for _ in range(2):  # by a process that knows nothing, and by one that has seen it
            with open_engine(tmp_path) as engine:
                later = [*messages, user("Go on."), reply("Well?"), user(word)]
                assert shown(engine, later, word) == 3
                assert len(numbers(engine, word)) == 3
                assert second not in numbers(engine, word)
                later += [reply("Once more?"), user("What now?")]
                assert shown(engine, later, word) == 3
                assert len(numbers(engine, word)) == 3

    def test_the_same_message_imported_again_stays_forgotten(self, tmp_path: Path) -> None:
        """A message is told by its id or its moment: that one stays out, another of the same words is taken."""
        first, again = (replace(user("no"), id=name) for name in ("a1", "a2"))
        early, late = (replace(user("no"), timestamp=time) for time in (1_000, 2_000))
        with open_engine(tmp_path) as engine:
            engine.session("s").append([first, early])
            engine.session("s").forget(ids=numbers(engine, "no"))
        with open_engine(tmp_path) as engine:
            assert engine.session("s").append([first, early]) == [0, 0]
            assert all(engine.session("s").append([again, late]))
            assert len(numbers(engine, "no")) == 2


class TestGoingOn:
    def test_another_process_hears_of_it(self, tmp_path: Path) -> None:
        """One that had the summary in mind shows it no more."""
        with open_engine(tmp_path) as engine, open_engine(tmp_path) as other:
            messages = make_conversation(60)
            engine.session("s").compact(messages, limit=LIMIT)
            assert in_window(other, messages, "zebraquartz")
            engine.session("s").forget(ids=[number(engine, "zebraquartz")])
            assert not in_window(other, [*messages, user("Go on.")], "zebraquartz")

    def test_another_process_that_made_no_edit_hears_of_it_too(self, tmp_path: Path) -> None:
        """A message that it has seen before leaves its windows."""
        with open_engine(tmp_path) as engine, open_engine(tmp_path) as other:
            messages = make_conversation(1)
            assert in_window(other, messages, "zebraquartz")
            engine.session("s").forget(ids=[number(engine, "zebraquartz")])
            assert not in_window(other, [*messages, user("Go on.")], "zebraquartz")

    def test_a_client_that_sends_it_again_is_not_blocked(self, tmp_path: Path) -> None:
        """A session that was forgotten continues with what is asked now, however long the history that comes along."""
        with open_engine(tmp_path) as engine:
            messages = make_conversation(40)
            engine.session("s").assemble(messages, limit=6_000)
            engine.session("s").forget()
            window = engine.session("s").assemble([*messages, user("Go on.")], limit=6_000)
        assert [message.text for message in window.messages] == ["You are careful.", "Go on."]

    def test_what_is_asked_now_is_sent_though_it_was_forgotten_before(self, tmp_path: Path) -> None:
        """The same words again are a question like any other."""
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble([user("Which way?")], limit=LIMIT)
            engine.session("s").forget()
            assert in_window(engine, [user("Which way?")], "Which way?")
