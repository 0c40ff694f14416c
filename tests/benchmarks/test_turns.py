"""A transcript, request by request."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.replay import find_requests, replay_requests
from holdfast.engine import Engine
from holdfast.messages import Message, Role, Text
from holdfast.settings import Embedding, Settings


def make_message(role: Role, text: str = "words") -> Message:
    """A message."""
    return Message(role=role, parts=(Text(text=text),))


def test_a_request_is_before_each_reply_and_at_the_end() -> None:
    """A reply in two messages is one reply, and what no one asked for is none."""
    conversation = [
        make_message("assistant"),
        make_message("user"),
        make_message("assistant"),
        make_message("assistant"),
        make_message("user"),
        make_message("assistant"),
    ]
    assert list(find_requests(conversation)) == [2, 5, 6]


def test_a_request_that_does_not_fit_is_reported(tmp_path: Path) -> None:
    """The others are made all the same."""
    conversation = [make_message("user", "hello there"), make_message("assistant"), make_message("user", "x " * 9_000)]
    with Engine.open(tmp_path, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
        windows = [window for _, window in replay_requests(engine, conversation, limit=4_000)]
    assert windows[0] is not None
    assert windows[1] is None
