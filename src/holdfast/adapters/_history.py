"""Histories of a framework's own messages, assembled as canonical ones. Internal: the adapters share it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.errors import CompactionError, HoldfastError, MissingExtraError
from holdfast.messages import Message
from holdfast.models.naming import FunctionModel
from holdfast.providers.models import context_tokens
from holdfast.providers.overflow import is_overflow
from holdfast.requests import smaller_limit
from holdfast.session import Session
from holdfast.window import Window

log = logging.getLogger("holdfast.adapters")

Write: TypeAlias = Callable[[list[dict[str, Any]]], str]
"""Lets the framework's model answer messages (dicts with `role` and `content`), for summaries."""
FORMAT: Final = "framework"
"""The format of messages that were made from a framework's own."""


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Name the command that installs a framework where its import fails, also where it is too old.

    Raises:
        MissingExtraError: The framework cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"holdfast.adapters.{name.replace('-', '_')}", extra=name) from error


@contextmanager
def guard(action: str) -> Iterator[None]:
    """Let the agent go on where memory fails, and log why."""
    try:
        yield
    except HoldfastError as error:
        log.warning("%s: %s", action, error)
    except Exception:  # a fault of ours must not stop the agent
        log.exception(action)


def log_trouble(window: Window) -> None:
    """Log what failed while a window was made."""
    for reason in window.failures:
        log.warning("%s", reason)


def sync_engine(engine: Engine | AsyncEngine) -> Engine:
    """Return the engine itself; adapters run it in threads where the framework is asynchronous."""
    return engine.sync if isinstance(engine, AsyncEngine) else engine


def on_loop(write: Callable[[list[dict[str, Any]]], Awaitable[str]]) -> Write:
    """Return a function for other threads that lets the running loop call an asynchronous model."""
    loop = asyncio.get_running_loop()

    async def run(messages: list[dict[str, Any]]) -> str:
        return await write(messages)

    return lambda messages: asyncio.run_coroutine_threadsafe(run(messages), loop).result()


class Placed(NamedTuple):
    """A message of a window, and the index of the message that it was made from; None for a new one."""

    message: Message
    source: int | None
    is_edited: bool


@dataclass(slots=True, eq=False)
class HistoryMemory:
    """Memory for histories of canonical messages that a framework's own were read into.

    Attributes:
        limit: The context window of the model; None for the one of the settings or of the model that is named.
        limits: The limit of each session whose window the provider has refused.
    """

    limit: int | None = None
    limits: WeakKeyDictionary[Session, int] = field(default_factory=WeakKeyDictionary)
    _windows: WeakKeyDictionary[Session, Window] = field(default_factory=WeakKeyDictionary)

    def limit_of(self, session: Session, model: str) -> int:
        """Return the context window for a request of a session."""
        known = self.limit or session.settings.model.context_tokens or context_tokens(model)
        return min(known, self.limits.get(session, known))

    def assemble(
        self,
        session: Session,
        messages: Sequence[Message],
        *,
        model: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        write: Write | None = None,
        overhead: int = 0,
    ) -> list[Placed] | None:
        """Assemble the window of a history; None where it is sent as it came."""
        limit, lead = self.limit_of(session, model), sum(1 for _ in takewhile(_is_system, messages))
        if write is not None:
            session.model = FunctionModel(write, context_tokens=limit)
        # The place in the history after the system prompt: a message keeps it as long as it is sent again.
        given = [message.read_from({"at": index - lead}, format=FORMAT) for index, message in enumerate(messages)]
        placed: list[Placed] | None = None
        with guard("the request passed unchanged"):
            window = session.assemble(given, limit=limit, model=model, provider="pi", tools=tools, overhead=overhead)
            log_trouble(window)
            self._windows[session] = window
            placed = [_place(message, lead) for message in window.messages]
            if all(not one.is_edited for one in placed) and [one.source for one in placed] == [*range(len(given))]:
                placed = None
        return placed

    def shrink(self, session: Session, error: Exception, *, model: str = "") -> bool:
        """Compact after a refusal; whether a smaller window may be assembled."""
        status, window = getattr(error, "status_code", None), self._windows.get(session)
        if window is None or not is_overflow(str(error), status=status if isinstance(status, int) else 400):
            return False
        self.limits[session] = smaller_limit(self.limit_of(session, model), window, str(error))
        del self._windows[session]  # where there is no smaller one, the framework gets the error
        with guard("a request that does not fit was not made smaller"), suppress(CompactionError):
            session.compact(limit=self.limits[session])
        return True


def archive(session: Session, messages: Sequence[Message]) -> None:
    """Archive messages that follow those of a session, such as a reply."""
    with guard("a reply was not archived"):
        if messages:
            session.append(messages)


def _is_system(message: Message) -> bool:
    return message.role == "system"


def _place(message: Message, lead: int) -> Placed:
    origin = message.origin
    if origin is None or origin.format != FORMAT:
        return Placed(message, None, is_edited=True)
    return Placed(message, origin.data["at"] + lead, is_edited=message.wire(FORMAT) is None)
