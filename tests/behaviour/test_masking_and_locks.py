"""Messages are masked before their session is locked, so that searching hostile text does not keep others waiting."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import FormatError
from holdfast.session import Session
from holdfast.settings import Embedding, Settings
from support.conversations import reply, user

HOSTILE = "password='" * 40
SECRET = "DB_PASSWORD=hunter2-Moss"
QUIET = Settings(embedding=Embedding(provider="none"))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Open a session of a new memory."""
    with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
        yield engine.session("s")


@contextmanager
def searches(session: Session) -> Iterator[list[bool]]:
    """Record for each search of the hostile text whether the session was locked, in this and in new threads."""
    locked: list[bool] = []
    lock: Any = session._lock

    def is_held() -> bool:
        if lock._is_owned():
            return True
        if not lock.acquire(blocking=False):
            return True
        lock.release()
        return False

    def see(frame: FrameType, event: str, _argument: object) -> None:
        is_search = event == "call" and frame.f_code.co_name == "find" and "redact" in frame.f_code.co_filename
        if is_search and HOSTILE in frame.f_locals["text"]:
            locked.append(is_held())

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield locked
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_a_reply_is_masked_before_its_session_is_locked(session: Session) -> None:
    """`append` searches the text, and holds the lock during none of the searches."""
    with searches(session) as locked:
        session.append([user(f"{HOSTILE} {SECRET}"), reply("Noted.")])
    assert locked
    assert not any(locked)
    assert "hunter2" not in session.messages()[0].message.text


def test_the_new_messages_of_a_request_are_masked_before_its_session_is_locked(session: Session) -> None:
    """`assemble` searches new messages once, and holds the lock during none of the searches."""
    conversation = [user("Hello."), reply("Hi.")]
    session.assemble(conversation, limit=40_000)
    with searches(session) as locked:
        session.assemble([*conversation, user(f"{HOSTILE} {SECRET}")], limit=40_000)
    assert locked
    assert not any(locked)
    with searches(session) as again:
        session.assemble([*conversation, user(f"{HOSTILE} {SECRET}"), reply("Noted."), user("Go on.")], limit=40_000)
    assert again == []
    assert not any("hunter2" in row.message.text for row in session.messages())


def test_a_malformed_message_is_reported_where_it_always_was(session: Session) -> None:
    """A message that cannot be read raises the error of the request."""
    conversation: list[dict[str, object]] = [{"role": "user", "content": "Hello."}, {"role": 7}]
    with pytest.raises(FormatError, match=r"messages\[1\]\.role"):
        session.assemble(conversation, format="openai_chat", limit=40_000)
