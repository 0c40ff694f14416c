"""The history of a session: what the client sent, archived and numbered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import providers
from holdfast.context.edits import Item
from holdfast.history import History
from holdfast.memory.memory import Memory
from holdfast.messages import Message
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.tokens import count_text
from support.conversations import answer, call, reply, results, system, user
from support.waiting import UNHURRIED

SCOPE = Scope(session="s")
TALK = [system(), user("Which port does the database use?"), reply("Port 5433."), user("And the replica?")]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """Open a memory without vectors."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Memory.open(tmp_path, settings=settings) as opened:
        yield opened


@pytest.fixture
def history(memory: Memory) -> History:
    """Make an empty history."""
    return History(SCOPE, memory, count_text)


def read_texts(memory: Memory) -> list[str]:
    """Read the texts of all archived messages."""
    return [row.message.text for row in memory.store.read_messages(Select(scope=SCOPE))]


class TestUpdate:
    def test_all_messages_of_a_first_request_are_new(self, history: History, memory: Memory) -> None:
        update = history.update(TALK)
        assert update.new == tuple(TALK[1:])
        assert not update.is_continued
        assert [item.id for item in history.messages] == history.numbers
        assert [item.message.text for item in history.system] == ["You are careful."]
        assert read_texts(memory) == [message.text for message in TALK]

    def test_only_the_messages_after_the_last_request_are_new(self, history: History) -> None:
        history.update(TALK)
        before = list(history.messages)
        update = history.update([*TALK, reply("Port 5434."), user("Thanks.")])
        assert [message.text for message in update.new] == ["Port 5434.", "Thanks."]
        assert update.is_continued
        # The edit log recognises an unchanged beginning by the identity of its items.
        assert all(old is new for old, new in zip(before, history.messages, strict=False))

    def test_a_client_that_goes_back_drops_what_it_no_longer_sends(self, history: History, memory: Memory) -> None:
        history.update(TALK)
        first = history.numbers[0]
        history.update([*TALK[:2], reply("I do not know.")])
        assert [item.message.text for item in history.messages] == [TALK[1].text, "I do not know."]
        assert history.numbers[0] == first
        assert "And the replica?" in read_texts(memory)

    def test_a_changed_system_prompt_leaves_the_messages_alone(self, history: History) -> None:
        history.update(TALK)
        before = list(history.numbers)
        update = history.update([system("Today is Tuesday."), *TALK[1:]])
        assert update.new == ()
        assert history.numbers == before
        assert history.system[0].message.text == "Today is Tuesday."

    def test_recalled_text_is_removed_and_reported(self, history: History, memory: Memory) -> None:
        memory.remember("The database listens on port 5433.", scope=SCOPE)
        block = memory.recall(("Which port does the database use?",), scope=SCOPE).block
        assert block
        update = history.update([user(f"Which port?\n\n{block}")])
        assert len(update.stripped) == 1
        assert read_texts(memory) == ["Which port?"]

    def test_a_message_of_recalled_text_alone_is_no_message(self, history: History, memory: Memory) -> None:
        memory.remember("The database listens on port 5433.", scope=SCOPE)
        block = memory.recall(("Which port does the database use?",), scope=SCOPE).block
        history.update([user("Which port?"), user(block)])
        assert len(history.messages) == 1
        # It is still known as a message that the client sent.
        assert history.update([user("Which port?"), user(block), reply("5433.")]).is_continued
        assert [item.message.text for item in history.messages] == ["Which port?", "5433."]

    def test_secrets_are_masked_in_the_archive_only(self, history: History, memory: Memory) -> None:
        secret = "sk-ant-api03-" + "A1b2C3d4" * 10
        history.update([user(f"The key is {secret}.")])
        assert secret in history.messages[0].message.text
        assert secret not in read_texts(memory)[0]


def make_marked(marked: int, *, texts: int) -> list[Message]:
    """Read a conversation whose message `marked` has a cache mark, as clients move it with every request."""
    listed: list[dict[str, Any]] = []
    for index in range(texts):
        block: dict[str, Any] = {"type": "text", "text": f"text {index}"}
        if index == marked:
            block["cache_control"] = {"type": "ephemeral"}
        listed.append({"role": ["system", "user", "assistant"][min(index, 2 - index % 2)], "content": [block]})
    return providers.read(listed, format="openai_chat")


def find_marks(items: Sequence[Item]) -> list[str]:
    """List the texts of the messages with a cache mark."""
    return [item.message.text for item in items if "cache_control" in str(item.message.origin)]


class TestForms:
    def test_the_last_form_of_a_message_is_kept(self, history: History, memory: Memory) -> None:
        """A provider refuses a request with all the cache marks of the requests before it."""
        for marked in (0, 1, 3, 5):
            update = history.update(make_marked(marked, texts=6))
            assert find_marks(history.items) == [f"text {marked}"]
            assert update.is_continued == (marked > 0)
        assert update.new == ()
        assert read_texts(memory) == [f"text {index}" for index in range(6)]

    def test_messages_before_one_in_another_form_stay(self, history: History) -> None:
        history.update(make_marked(3, texts=4))
        before = list(history.messages)
        update = history.update(make_marked(5, texts=6))
        assert [message.text for message in update.new] == ["text 4", "text 5"]
        assert update.is_continued
        assert [old is new for old, new in zip(before, history.messages, strict=False)] == [True, True, False]
        assert [item.id for item in history.messages] == history.numbers == sorted(history.numbers)

    def test_a_value_of_another_type_is_another_message(self, history: History, memory: Memory) -> None:
        """`1 == True`, but it is not what the client sends."""
        for value in (1, True):
            history.update([user("Run it."), reply("", call("c1", all=value)), results(answer("c1"))])
            assert str(history.messages[1].message.calls[0].arguments) == str({"all": value})
        rows = memory.store.read_messages(Select(scope=SCOPE))
        assert [str(one.arguments) for row in rows for one in row.message.calls] == ["{'all': 1}", "{'all': True}"]

    def test_a_continuation_and_a_history_without_the_store_have_the_forms_of_now(self, history: History) -> None:
        history.update(make_marked(3, texts=4))
        now = make_marked(5, texts=6)
        continuation = history.read_continuation(now)
        assert continuation is not None
        assert find_marks([*map(continuation.renew, history.messages), *continuation.new]) == ["text 5"]
        assert find_marks(history.read_unarchived(now)) == ["text 5"]


class TestForget:
    def test_forgotten_messages_lose_their_numbers(self, history: History) -> None:
        history.update(TALK)
        first, *others = history.numbers
        history.forget({first})
        assert history.numbers == [0, *others]
        assert [item.id for item in history.messages] == [0, *others]

    def test_forgotten_messages_are_not_shown_unless_the_reply_answers_them(self, history: History) -> None:
        history.update(TALK)
        history.forget(set(history.numbers))
        assert [item.message.text for item in history.items] == ["You are careful.", "And the replica?"]


class TestReading:
    def test_a_continuation_has_the_new_messages_only(self, history: History, memory: Memory) -> None:
        history.update(TALK)
        found = history.read_continuation([*TALK, reply("Port 5434.")])
        assert found is not None
        assert [item.message.text for item in found.new] == ["Port 5434."]
        assert [item.kind for item in found.system] == ["system"]
        assert "Port 5434." not in read_texts(memory)

    def test_another_history_is_no_continuation(self, history: History) -> None:
        assert history.read_continuation(TALK) is None
        history.update(TALK)
        assert history.read_continuation([user("Something else."), *TALK]) is None

    def test_messages_that_cannot_be_archived_get_negative_numbers(self, history: History) -> None:
        history.update(TALK)
        items = history.read_unarchived([*TALK, reply("Port 5434."), user("Thanks.")])
        assert [item.id for item in items] == [0, *history.numbers, -1, -2]

    def test_archived_messages_are_restored(self, history: History, memory: Memory) -> None:
        history.update(TALK)
        later = History(SCOPE, memory, count_text)
        later.restore()
        assert later.numbers == history.numbers
        later.update(TALK)  # the restored messages have a time, and those of the client have none
        assert later.numbers == history.numbers

    def test_nothing_is_restored_over_a_request(self, history: History) -> None:
        history.update([user("Hello.")])
        history.restore()
        assert [item.message.text for item in history.messages] == ["Hello."]

    def test_the_question_is_read_with_the_messages_before_it(self, history: History) -> None:
        history.update(TALK)
        assert history.find_question(max_messages=2) == (TALK[1].text, TALK[3].text)
        assert history.find_question(max_messages=1) == (TALK[3].text,)
        long = "How many connections does the pool of the staging replica allow at once?"
        assert history.find_question(max_messages=1, newest=long) == (long,)

    def test_pairs_are_added(self, history: History) -> None:
        conversation = [user("List it."), reply("", call("c1")), results(answer("c1", "a.py")), reply("There is a.py.")]
        history.update(conversation)
        asked, called, result, said = history.numbers
        assert history.add_pairs([result]) == (called, result)
        assert history.add_pairs([called, said]) == (called, result, said)
        assert history.add_pairs([asked]) == (asked,)


class TestAppend:
    def test_a_reply_follows_the_request_of_its_caller(self, history: History) -> None:
        history.update(TALK)
        place = history.begin_request(caller="a")
        result, read = history.append([reply("Port 5434.")], caller="a")
        assert len(result) == 1
        assert [message.text for message in read] == ["Port 5434."]
        assert history.update([*TALK, reply("Port 5434.")]).new != ()
        assert history.numbers[-1] == result[0]
        assert result.place != place

    def test_a_reply_that_is_appended_twice_is_archived_once(self, history: History, memory: Memory) -> None:
        history.update(TALK)
        history.begin_request(caller="a")
        first, _ = history.append([reply("Port 5434.")], caller="a")
        second, _ = history.append([reply("Port 5434.")], caller="a")
        assert list(first) == list(second)
        assert read_texts(memory).count("Port 5434.") == 1

    def test_overlapping_requests_keep_their_replies_apart(self, history: History) -> None:
        one: list[Message] = [user("Which port?")]
        other: list[Message] = [user("Which host?")]
        history.update(one)
        first = history.begin_request(caller="a")
        history.update(other)
        second = history.begin_request(caller="b")
        history.append([reply("5433.")], after=first)
        history.append([reply("localhost.")], after=second)
        history.update([*one, reply("5433.")])
        numbers = list(history.numbers)
        history.update([*other, reply("localhost.")])
        assert set(numbers).isdisjoint(history.numbers)


def test_a_copy_has_lists_of_its_own(history: History) -> None:
    """A thread that hangs in the store cannot change them."""
    history.update(TALK)
    copied = history.copy()
    history.update([*TALK, reply("Port 5434.")])
    assert len(copied.messages) == 3
    assert copied.update(TALK).new == ()
    assert copied.held_bytes < history.held_bytes
