"""Fields of a block that are not read into a part, such as the citations of a text, are archived with their message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Settings
from holdfast.session import Session
from holdfast.settings import Embedding

QUESTION = {"role": "user", "content": "Which port? 哪个端口？"}


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Open a session of a new memory."""
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        yield engine.session("s")


def answer(cited: str) -> dict[str, Any]:
    """Return the same answer each time, with one citation."""
    citations = [{"type": "char_location", "cited_text": cited}]
    text = {"type": "text", "text": "Port 8080. 端口 8080。", "citations": citations}
    return {"role": "assistant", "content": [text]}


def cited_texts(messages: list[Any]) -> list[str]:
    """Return the citations of the answers among wire messages."""
    found: list[str] = []
    for message in messages:
        if message["role"] == "assistant":
            found.append(message["content"][0]["citations"][0]["cited_text"])
    return found


def archived_citations(session: Session) -> list[str]:
    """Return the citations of the archived answers, in order."""
    return cited_texts([row.message.wire("anthropic") for row in session.messages()])


def test_equal_texts_of_one_request_keep_their_own_citations(session: Session) -> None:
    """Both messages are new in the same request."""
    conversation = [QUESTION, answer("a.md"), QUESTION, answer("b.md"), QUESTION]
    window = session.assemble(conversation, format="anthropic", limit=40_000)
    assert cited_texts(window.render()) == ["a.md", "b.md"]
    assert archived_citations(session) == ["a.md", "b.md"]


def test_equal_texts_of_two_requests_keep_their_own_citations(session: Session) -> None:
    """The second message comes later."""
    conversation = [QUESTION, answer("a.md"), QUESTION]
    session.assemble(conversation, format="anthropic", limit=40_000)
    session.assemble([*conversation, answer("b.md"), QUESTION], format="anthropic", limit=40_000)
    assert archived_citations(session) == ["a.md", "b.md"]


def test_equal_texts_that_are_appended_keep_their_own_citations(session: Session) -> None:
    """Both messages are appended in one call."""
    session.append([QUESTION, answer("a.md"), QUESTION, answer("b.md")], format="anthropic")
    assert archived_citations(session) == ["a.md", "b.md"]


def test_a_message_that_comes_again_with_other_citations_is_sent_with_them(session: Session) -> None:
    """It is the same message: the archive keeps the first citations, the window has the new ones."""
    session.assemble([QUESTION, answer("a.md"), QUESTION], format="anthropic", limit=40_000)
    window = session.assemble([QUESTION, answer("b.md"), QUESTION], format="anthropic", limit=40_000)
    assert cited_texts(window.render()) == ["b.md"]
    assert archived_citations(session) == ["a.md"]
