"""Share what the adapters need, and read histories of a framework's own messages. Internal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.exchange import Exchange, ModelRequest, Write, archive_reply
from holdfast.messages import Message
from holdfast.session import Session

log = logging.getLogger("holdfast.adapters")

FORMAT: Final = "framework"
"""The format of messages that were made from a framework's own."""
PROVIDER: Final = "pi"
"""The rules that windows of a framework keep. The framework itself renders them for its provider."""


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Raise an error with the installation command if a framework cannot be imported or is too old.

    Raises:
        MissingExtraError: The framework cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"holdfast.adapters.{name.replace('-', '_')}", extra=name) from error


@contextmanager
def guard(action: str) -> Iterator[None]:
    """Let the agent continue if memory fails, and log why."""
    try:
        yield
    except HoldfastError as error:
        log.warning("%s: %s", action, error)
    except Exception:  # a fault of ours must not stop the agent
        log.exception(action)


def sync_engine(engine: Engine | AsyncEngine) -> Engine:
    """Return the engine itself; adapters of asynchronous frameworks run it in threads."""
    return engine.sync if isinstance(engine, AsyncEngine) else engine


def on_loop(write: Callable[[list[dict[str, Any]]], Awaitable[str]]) -> Write:
    """Return a function for other threads that lets the running loop call an asynchronous model."""
    loop = asyncio.get_running_loop()

    async def run(messages: list[dict[str, Any]]) -> str:
        return await write(messages)

    return lambda messages: asyncio.run_coroutine_threadsafe(run(messages), loop).result()


@dataclass(frozen=True, slots=True)
class Placed:
    """A message of a window, and the index of the message that it was made from; None for a new one."""

    message: Message
    source: int | None
    is_edited: bool


def read_history(
    messages: Sequence[Message], *, model: str = "", tools: Sequence[Mapping[str, Any]] = (), overhead: int = 0
) -> ModelRequest:
    """Make a request of canonical messages that a framework's own were read into.

    `tools` are the definitions of its tools, and `overhead` the tokens of anything else in it.
    """
    lead = _count_system(messages)
    # A message is known by its place after the system prompt, and keeps it as long as it is sent again.
    given = [message.read_from({"at": index - lead}, format=FORMAT) for index, message in enumerate(messages)]
    return ModelRequest(messages=given, format=PROVIDER, model=model, tools=tools, overhead=overhead)


def place(exchange: Exchange) -> list[Placed] | None:
    """Return the messages of a window with their sources; None if the request is sent as it came."""
    if exchange.window is None:
        return None
    lead = _count_system(exchange.request.messages)
    placed = [_place_message(message, lead) for message in exchange.window.messages]
    is_edited = any(one.is_edited for one in placed)
    sources = [one.source for one in placed]
    if not is_edited and sources == list(range(len(exchange.request.messages))):
        return None
    return placed


def archive(session: Session, messages: Sequence[Message]) -> None:
    """Archive messages that follow the last request of this thread or task."""
    archive_reply(session, messages, format=PROVIDER, after=None)


def _count_system(messages: Sequence[Message]) -> int:
    """Count the system messages at the beginning."""
    for index, message in enumerate(messages):
        if message.role != "system":
            return index
    return len(messages)


def _place_message(message: Message, lead: int) -> Placed:
    origin = message.origin
    if origin is None or origin.format != FORMAT:
        return Placed(message, None, is_edited=True)
    return Placed(message, origin.data["at"] + lead, is_edited=message.wire(FORMAT) is None)
