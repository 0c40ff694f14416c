"""A transcript request by request, as the agent that wrote it made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.engine import Engine, Window
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message

__all__ = ["play", "requests"]


def requests(messages: Sequence[Message]) -> Iterator[int]:
    """Where a request was made: how many messages there were before each reply, and at the end."""
    for index, message in enumerate(messages):
        if message.role == "assistant" and index and messages[index - 1].role != "assistant":
            yield index
    yield len(messages)


def play(
    engine: Engine,
    messages: Sequence[Message],
    *,
    session: str = "replay",
    limit: int | None = None,
    model: str | None = None,
    provider: str = "anthropic",
) -> Iterator[tuple[int, Window | None]]:
    """Make every request again: how many messages it had, and its window; None where what must stay did not fit."""
    for stop in requests(messages):
        try:
            window = engine.assemble(messages[:stop], session=session, limit=limit, model=model, provider=provider)
        except WindowTooSmallError:
            yield stop, None
        else:
            yield stop, window
