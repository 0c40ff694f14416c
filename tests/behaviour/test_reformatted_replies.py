"""A reply that a client sends back in another form is the archived reply; one with more content is another message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Settings
from holdfast.settings import Embedding
from holdfast.store.base import MessageRow
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
LIMIT = 200_000

Wire = dict[str, Any]


def open_engine(folder: Path) -> Engine:
    """Open the memory in a folder, without a background thread."""
    return Engine.open(folder, settings=QUIET, background=False)


def asked(text: str) -> Wire:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def replied(content: Any, **fields: Any) -> Wire:
    """Return a reply."""
    return {"role": "assistant", "content": content, **fields}


def called(arguments: str, *, content: str | None = None, call_id: str = "call_1") -> Wire:
    """Return a reply that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": "read", "arguments": arguments}}
    return replied(content, tool_calls=[call])


def part(text: str) -> Wire:
    """Return a part with a text."""
    return {"type": "text", "text": text}


THOUGHT = {"type": "thinking", "thinking": "Which city is it?", "signature": "abc"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "42"}
TEXTS = {
    "a line break at the end": (replied("Hello.\n"), replied("Hello.")),
    "a space at the beginning": (replied(" 你好。"), replied("你好。")),
    "joined parts": (replied([part("Hello."), part(" World")]), replied("Hello. World")),
    "dropped thinking": (replied([THOUGHT, part("Hello.")]), replied([part("Hello.")])),
    "dropped reasoning": (replied("Hello.", reasoning_content="Which?"), replied("Hello.")),
    "dropped tags": (replied("<think>Which?</think>\n\nHello."), replied("Hello.")),
}
CALLS = {
    "a number without fraction": (called('{"line": 1.0}'), called('{"line": 1}')),
    "no arguments": (called(""), called("{}")),
    "white space before a call": (called("{}", content="\n\n"), called("{}")),
    "trimmed words before a call": (called("{}", content="I look.\n"), called("{}", content="I look.")),
    "dropped words before a call": (called("{}", content="I look."), called("{}")),
    "another id of a call": (called("{}", call_id="call_x"), called("{}")),
}


def rows(engine: Engine) -> list[MessageRow]:
    """Return the archived messages of the session."""
    return engine.session("s").messages()


class TestHistory:
    @pytest.mark.variants
    @pytest.mark.parametrize("is_reopened", [False, True], ids=["running", "reopened"])
    @pytest.mark.parametrize("name", TEXTS)
    def test_a_reply_comes_back_in_another_form(self, tmp_path: Path, name: str, *, is_reopened: bool) -> None:
        """It keeps its number, and the archive keeps the words of the provider."""
        reply, back = TEXTS[name]
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            session.assemble([asked("Which one?")], limit=LIMIT)
            session.append([reply])
            first = rows(engine)
            if not is_reopened:
                session.assemble([asked("Which one?"), back, asked("And then?")], limit=LIMIT)
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble([asked("Which one?"), back, asked("And then?")], limit=LIMIT)
            found = rows(engine)
        assert [row.message.role for row in found] == ["user", "assistant", "user"]
        assert found[1] == first[1]

    @pytest.mark.parametrize("name", CALLS)
    def test_a_call_comes_back_in_another_form(self, tmp_path: Path, name: str) -> None:
        """The messages after it are archived once too."""
        call, back = CALLS[name]
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            history = [asked("How many?")]
            session.assemble(history, limit=LIMIT)
            session.append([call])
            history += [back, RESULT]
            session.assemble(history, limit=LIMIT)
            session.append([replied("It is 42.")])
            history += [replied("It is 42."), asked("Thanks a lot.")]
            session.assemble(history, limit=LIMIT)
            roles = [row.message.role for row in rows(engine)]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]

    @pytest.mark.parametrize("kept", [2, 3, 4])
    def test_a_client_keeps_only_the_newest_messages(self, tmp_path: Path, kept: int) -> None:
        """Messages in another place are recognised next to a reply in another form."""
        history: list[Wire] = []
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            for turn in range(8):
                history.append(asked(f"Question {turn}?"))
                session.assemble(history[-kept - 1 :], limit=LIMIT)
                session.append([replied(f"Answer {turn}.\n")])
                history.append(replied(f"Answer {turn}."))
            texts = [row.message.text.strip() for row in rows(engine)]
        assert texts == [message["content"] for message in history]

    def test_the_same_words_in_two_forms(self, tmp_path: Path) -> None:
        """Two replies with the same words stay two messages, each in its own form."""
        history = [asked("One?")]
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            session.assemble(history, limit=LIMIT)
            session.append([replied("Done.\n")])
            history += [replied("Done."), asked("Two?")]
            session.assemble(history, limit=LIMIT)
            session.append([replied("Done.")])
            history += [replied("Done."), asked("Three?")]
            session.assemble(history, limit=LIMIT)
        with open_engine(tmp_path) as engine:
            engine.session("s").assemble(history, limit=LIMIT)
            texts = [row.message.text for row in rows(engine)]
        assert texts == ["One?", "Done.\n", "Two?", "Done.", "Three?"]

    @pytest.mark.parametrize(
        "other",
        [replied("Hello!"), replied("Hello.", reasoning_content="Which?"), called("{}", content="Hello.")],
        ids=["other words", "reasoning", "a call"],
    )
    def test_a_reply_with_more_content_is_another_one(self, tmp_path: Path, other: Wire) -> None:
        """None of it may be lost."""
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            session.assemble([asked("Which one?")], limit=LIMIT)
            session.append([replied("Hello.")])
            session.assemble([asked("Which one?"), other], limit=LIMIT)
            assert len(rows(engine)) == 3


class TestAppended:
    def test_a_late_reply_that_the_client_has_trimmed(self, tmp_path: Path) -> None:
        """The client sends the reply back before `append` gets it."""
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            first = session.assemble([asked("One?")], limit=LIMIT)
            second = session.assemble([asked("One?"), replied("Yes."), asked("Two?")], limit=LIMIT)
            session.append([replied("Yes.\n")], after=first.place)
            session.append([replied("No.")], after=second.place)
            texts = [row.message.text for row in rows(engine)]
        assert texts == ["One?", "Yes.", "Two?", "No."]

    def test_the_same_call_of_two_replies(self, tmp_path: Path) -> None:
        """A provider that is asked again uses other ids: both replies are archived."""
        with open_engine(tmp_path) as engine:
            session = engine.session("s")
            for call_id in ("call_a", "call_b"):
                place = session.assemble([asked("How many?")], limit=LIMIT).place
                session.append([called("{}", call_id=call_id)], after=place)
            ids = [call.id for row in rows(engine) for call in row.message.calls]
        assert ids == ["call_a", "call_b"]
