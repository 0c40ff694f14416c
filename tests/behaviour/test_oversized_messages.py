"""A message that is larger than the window costs at most its own turn, in every wire format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, providers
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message
from holdfast.providers import FORMATS, check
from holdfast.session import Session
from holdfast.settings import Embedding, Pruning, Settings, ToolFilter
from support.conversations import answer, call, reply, results, system, user
from support.waiting import UNHURRIED

LIMIT = 16_000
BIG = "The harbour has a pelican called Zebedee. " + "word and more words " * 6_000
SETTINGS = Settings(
    embedding=Embedding(provider="none"), recall=UNHURRIED, pruning=Pruning(tools=ToolFilter(deny=("untouchable",)))
)

OVERSIZED: dict[str, list[Message]] = {
    "question": [user(BIG)],
    "call": [user("Write it."), reply("", call("a", text=BIG)), results(answer("a"))],
    "result that may not be pruned": [
        user("Read it."),
        reply("", call("a", "untouchable")),
        results(answer("a", BIG, name="untouchable")),
    ],
}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Open a session over a new store."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        yield engine.session("s")


def wires(conversation: Sequence[Message], format: str) -> list[dict[str, Any]]:
    """Return the messages as a client sends them, each as it was added to its history."""
    return [dict(wire) for message in conversation for wire in providers.render([message], format)]


@pytest.mark.variants
@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("kind", sorted(OVERSIZED))
@pytest.mark.parametrize("has_reply", [True, False], ids=["error in the history", "nothing in between"])
def test_the_turns_after_an_oversized_message_work(
    session: Session,
    format: str,
    kind: str,
    has_reply: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The turn of the message itself is an error; the next ones leave it out, and it is archived."""
    conversation = [system(), user("Hello there."), reply("Hello."), *OVERSIZED[kind]]
    with pytest.raises(WindowTooSmallError):
        session.assemble(wires(conversation, format), format=format, limit=LIMIT)
    if has_reply:
        conversation.append(reply("The request failed."))
    before: list[Any] = []
    for turn in range(3):
        conversation.append(user(f"Short question {turn}?"))
        window = session.assemble(wires(conversation, format), format=format, limit=LIMIT, recall=False)
        sent = window.render()
        assert check(sent, window.provider) == []
        assert window.tokens <= LIMIT
        assert f"Short question {turn}?" in str(sent[-1])
        assert sent[: len(before)] == before
        before = sent
        conversation.append(reply(f"Answer {turn}."))
    assert any("Zebedee" in row.message.text + str(row.message.parts) for row in session.messages())


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_oversized_reply_yields_to_the_next_question(session: Session, format: str) -> None:
    """This is not an error: the next reply does not answer it."""
    conversation = [system(), user("Write it."), reply(BIG), user("Is that all?")]
    window = session.assemble(wires(conversation, format), format=format, limit=LIMIT, recall=False)
    assert "Is that all?" in str(window.render()[-1])
    assert [change.reason for change in window.report.changes] == ["too large to stay next to what is new"]


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_an_oversized_result_of_the_current_turn_is_shortened(session: Session, format: str) -> None:
    """The model sees its beginning and where the rest is; the messages before it stay."""
    conversation = [system(), user("Read it."), reply("", call("a")), results(answer("a", BIG))]
    window = session.assemble(wires(conversation, format), format=format, limit=LIMIT)
    assert check(window.render(), window.provider) == []
    assert "pelican" in str(window.render())
    assert "holdfast id" in str(window.render())
    assert "Read it." in str(window.render())
    assert window.tokens <= LIMIT


def test_the_smaller_messages_stay_when_a_large_one_yields(session: Session) -> None:
    """Only the message that does not fit is removed, not those before it."""
    conversation = [
        user("We deploy on Fridays."),
        reply("Noted."),
        user(BIG),
        reply("The request failed."),
        user("And now?"),
    ]
    texts = [message.text for message in session.assemble(conversation, limit=LIMIT, recall=False).messages]
    assert texts == ["We deploy on Fridays.", "Noted.", "The request failed.", "And now?"]


def test_a_question_that_follows_the_window_is_not_blocked(session: Session) -> None:
    """The host sends it after the window, so the reply answers no message of the history."""
    conversation = [user("We deploy on Fridays."), reply("Noted."), user(BIG)]
    window = session.assemble(conversation, limit=LIMIT, question="When do we deploy?")
    assert "We deploy on Fridays." in str(window.render())
    assert window.tokens <= LIMIT


@pytest.mark.variants
@pytest.mark.parametrize("provider", sorted(FORMATS))
def test_a_question_may_be_all_that_is_left_of_a_conversation(session: Session, provider: str) -> None:
    """The system prompt stays, and the host sends the question after it."""
    conversation = [system(), user(BIG)]
    window = session.assemble(conversation, limit=LIMIT, provider=provider, question="When do we deploy?")
    assert [message.role for message in window.messages] == ["system"]
    assert window.render() == []
    assert window.request()


def test_a_pinned_message_does_not_yield(session: Session) -> None:
    """The user asked for it, and the error says how to change that."""
    numbers = session.append([user(BIG)])
    session.pin(numbers)
    with pytest.raises(WindowTooSmallError, match="unpin"):
        session.assemble([user(BIG), reply("The request failed."), user("And now?")], limit=LIMIT)


def test_tools_that_leave_no_room_are_named(session: Session) -> None:
    """The error has no negative number of tokens, and includes the fix."""
    tools = [{"name": f"tool{number}", "description": "words " * 200, "input_schema": {}} for number in range(20)]
    with pytest.raises(WindowTooSmallError, match=r"leave no room for messages.*offer fewer tools") as caught:
        session.assemble([user("Which port?")], limit=4_000, tools=tools)
    assert (caught.value.limit, caught.value.room) == (4_000, 0)
    assert "-" not in str(caught.value)


def test_the_error_has_the_limit_of_the_caller(session: Session) -> None:
    """It also has the room that is left for messages, in words too."""
    with pytest.raises(WindowTooSmallError) as caught:
        session.assemble([user(BIG)], limit=LIMIT, reserve=2_000)
    error = caught.value
    assert error.limit == LIMIT
    assert 0 < error.room < LIMIT < error.needed
    left = f"the tools and the reply leave {error.room:,} of {LIMIT:,} for messages"
    assert f"takes {error.needed:,} tokens, but {left}: use a larger window" in str(error)
    assert str(error).endswith("or unpin messages")
