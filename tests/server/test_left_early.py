"""Replies whose stream the client closes early: a whole one is recalled, and half of one is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event

import httpx2 as httpx
import pytest

from holdfast.messages import ToolCall
from holdfast.models.scripted import ScriptedReply
from holdfast.session import Session
from holdfast.testing.provider import Cut
from support import patient
from support.waiting import until

from .conftest import OWNER, Running, Start
from .test_identity import ACROSS, QUESTION, every_format, make_body

ANSWER = "The replica of the billing database listens on port 5433."
HEADERS = {"x-holdfast-session": "s1", **OWNER}
LAST_EVENT_THAT_IS_READ = {
    "messages": "message_delta",
    "chat/completions": '"finish_reason": "stop"',
    "responses": "response.output_item.done",
}
"""What a client has read when it knows that the reply is over, though another event follows."""
TOOLS = {"tools": [{"type": "function", "name": "ls", "function": {"name": "ls"}, "input_schema": {"type": "object"}}]}


def leave_after(server: Running, path: str, *said: str, marker: str) -> Session:
    """Send a request, and close the stream of its reply after a line with the marker; return the session."""
    body = make_body(path, *said, stream=True, **TOOLS)
    with patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=HEADERS) as reply:
        for line in reply.iter_lines():
            if marker in line:
                break
    return server.engine.session("s1")


def read_until_cut(server: Running, path: str, *said: str, marker: str, is_over: Event) -> Session:
    """Send a request, and let the provider break off once a line with the marker has come; return the session.

    Events that are still on their way when the connection is cut may be lost.
    """
    body = make_body(path, *said, stream=True, **TOOLS)
    with (
        suppress(httpx.HTTPError),
        patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=HEADERS) as reply,
    ):
        for line in reply.iter_lines():
            if marker in line:
                is_over.set()
    return server.engine.session("s1")


def ask(server: Running, path: str, *said: str, session: str = "s1", stream: bool = True) -> None:
    """Send a request, and read its whole reply."""
    body = make_body(path, *said, stream=stream, **TOOLS)
    headers = {**HEADERS, "x-holdfast-session": session}
    reply = patient.post(f"{server.url}/v1/{path}", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    assert "x-holdfast-warning" not in reply.headers, reply.headers["x-holdfast-warning"]


def is_recalled(server: Running, path: str) -> bool:
    """Whether the answer is recalled in another session."""
    ask(server, path, QUESTION, session="s2", stream=False)
    return "5433" in str(server.provider.bodies[-1])


def is_archived(session: Session, text: str) -> Callable[[], bool]:
    """Return a condition: a reply with this text is archived, and so is whether it is excluded."""

    def check() -> bool:
        rows = [row for row in session.get([1, 2, 3, 4]) if row.message.role == "assistant"]
        return bool(rows) and rows[-1].message.text.strip() == text.strip()

    return check


def hold(said: ScriptedReply, *, events: int | None = None, path: str = "") -> tuple[Cut, Event]:
    """Make a reply that sends all but its last events, and then waits."""
    is_over = Event()
    return Cut(said, after=_count_before_end(said, path) if events is None else events, when=is_over), is_over


def _count_before_end(said: ScriptedReply, path: str) -> int:
    """Count the events up to the one after which a client knows that the reply is over."""
    pieces = len(said.arriving)
    opening = {"messages": 3, "chat/completions": 1, "responses": 3}[path]  # the start of the message and of its text
    ending = {"messages": 2, "chat/completions": 1, "responses": 1}[path]
    return opening + pieces + ending


@every_format
class TestWhole:
    def test_a_client_that_leaves_before_the_last_event_has_the_whole_reply(self, start: Start, path: str) -> None:
        cut, is_over = hold(ScriptedReply(text=ANSWER), path=path)
        with start([cut, "Fine."], settings=ACROSS) as server:
            session = leave_after(server, path, "Look it up.", marker=LAST_EVENT_THAT_IS_READ[path])
            until(is_archived(session, ANSWER))
            is_over.set()
            assert is_recalled(server, path)
            (row,) = session.get([2])
            assert (row.message.is_broken, row.excluded) == (False, False)

    def test_a_provider_that_breaks_off_before_the_last_event_has_sent_the_whole_reply(
        self, start: Start, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        cut, is_over = hold(ScriptedReply(text=ANSWER), path=path)
        marker = LAST_EVENT_THAT_IS_READ[path]
        with start([cut, "Fine."], settings=ACROSS) as server:
            read_until_cut(server, path, "Look it up.", marker=marker, is_over=is_over)
            until(lambda: "broke off" in caplog.text)  # after it was archived
            assert is_recalled(server, path)


@every_format
class TestBrokenOff:
    """The client leaves after the last word, when nothing has said yet that it is the last one."""

    def break_off(self, server: Running, path: str, is_over: Event, *said: str) -> Session:
        """Leave after the last word of the answer, and wait until what has come is archived."""
        session = leave_after(server, path, *said, marker="5433")
        until(lambda: session.exclusions().messages)
        is_over.set()
        return session

    def broken(self, path: str) -> tuple[Cut, Event]:
        """Make a reply with all words of the answer, and nothing after them."""
        reply = ScriptedReply(text=ANSWER)
        ending = {"messages": 2, "chat/completions": 1, "responses": 1}[path]
        return hold(reply, events=_count_before_end(reply, path) - ending)

    def test_it_is_not_recalled(self, start: Start, path: str) -> None:
        cut, is_over = self.broken(path)
        with start([cut, "Fine."], settings=ACROSS) as server:
            self.break_off(server, path, is_over, "Look it up.")
            assert not is_recalled(server, path)

    def test_it_is_recalled_once_the_client_sends_it_back(self, start: Start, path: str) -> None:
        cut, is_over = self.broken(path)
        with start([cut, "Fine.", "Fine."], settings=ACROSS) as server:
            session = self.break_off(server, path, is_over, "Look it up.")
            ask(server, path, "Look it up.", ANSWER, "Thanks.")
            assert not session.exclusions().messages
            assert is_recalled(server, path)
            assert [row.message.text.strip() for row in session.get([1, 2, 3, 4])] == [
                *("Look it up.", ANSWER, "Thanks.", "Fine.")
            ]

    def test_it_is_recalled_after_a_restart(self, start: Start, path: str) -> None:
        cut, is_over = self.broken(path)
        with start([cut], settings=ACROSS) as server:
            self.break_off(server, path, is_over, "Look it up.")
        with start(["Fine.", "Fine."], settings=ACROSS) as server:
            ask(server, path, "Look it up.", ANSWER, "Thanks.")
            assert is_recalled(server, path)

    def test_it_is_recalled_once_the_same_reply_comes_again_as_a_whole(self, start: Start, path: str) -> None:
        cut, is_over = self.broken(path)
        with start([cut, ANSWER, "Fine."], settings=ACROSS) as server:
            self.break_off(server, path, is_over, "Look it up.")
            ask(server, path, "Look it up.")
            assert is_recalled(server, path)

    def test_the_client_sends_it_back_before_it_is_archived(
        self, start: Start, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The server learns only later that the client has left."""
        cut, is_over = self.broken(path)
        with start([cut, "Fine.", "Fine."], settings=ACROSS) as server:
            body = make_body(path, "Look it up.", stream=True, **TOOLS)
            with patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=HEADERS) as reply:
                for line in reply.iter_lines():
                    if "5433" in line:
                        break
                ask(server, path, "Look it up.", ANSWER.strip(), "Thanks.")
            is_over.set()
            until(lambda: "left in the middle" in caplog.text)  # after it was archived
            assert is_recalled(server, path)

    def test_what_the_user_has_excluded_stays_so(self, start: Start, path: str) -> None:
        cut, is_over = self.broken(path)
        with start([cut, "Fine.", "Fine."], settings=ACROSS) as server:
            session = self.break_off(server, path, is_over, "Look it up.")
            session.exclude([2])
            ask(server, path, "Look it up.", ANSWER, "Thanks.")
            assert session.exclusions().messages == {2}
            assert not is_recalled(server, path)


@pytest.mark.parametrize(
    ("said", "events", "marker"),
    [
        (ScriptedReply(text=ANSWER, thinking="The port is 5433."), 3, "output_item.done"),
        (
            ScriptedReply(text=ANSWER, calls=(ToolCall(id="c1", name="ls", arguments={}),)),
            3 + len(ScriptedReply(text=ANSWER).arriving) + 2,
            "function_call",
        ),
    ],
    ids=["only the reasoning", "a call that is not done"],
)
def test_a_response_of_which_an_item_is_missing_is_not_whole(
    start: Start, said: ScriptedReply, events: int, marker: str
) -> None:
    """Reasoning is no answer, and what has begun may be half a call."""
    cut, is_over = hold(said, events=events)
    with start([cut], settings=ACROSS) as server:
        session = read_until_cut(server, "responses", "Look it up.", marker=marker, is_over=is_over)
        until(lambda: session.exclusions().messages)
        assert all(row.message.is_broken for row in session.get([2]))
