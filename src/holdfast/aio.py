"""The engine for asyncio: the same names and arguments, with the work done in threads.

A task that is cancelled stops waiting at once. Its call runs to its end in its thread under the lock of the session, so
the session stays consistent and the next call waits for it. A compaction stops at its next step and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from holdfast.compact import Compaction
from holdfast.compaction.summarise import Progress
from holdfast.engine import Engine
from holdfast.events import Hooks
from holdfast.models.base import Model
from holdfast.providers import Incoming
from holdfast.session import Session
from holdfast.settings import Settings

__all__ = ["AsyncEngine", "AsyncSession"]

P = ParamSpec("P")
R = TypeVar("R")


def _session_method(
    method: Callable[Concatenate[Session, P], R],
) -> Callable[Concatenate[AsyncSession, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


def _engine_method(
    method: Callable[Concatenate[Engine, P], R],
) -> Callable[Concatenate[AsyncEngine, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: AsyncEngine, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.sync, *args, **kwargs)

    return call


class AsyncSession:
    """A `Session` for asyncio. Get it from `AsyncEngine.session`.

    All methods of `Session` exist with the same arguments and results, and are awaited: `append`, `assemble`, `edits`,
    `facts`, `forget`, `forget_facts`, `get`, `learn`, `pin`, `recall`, `remember`, `search`, `size`, `timeline`,
    `token_scale` and `undo_trim`. `compact` has no `cancel`: cancel the task instead.

    Attributes:
        sync: The session itself.
    """

    def __init__(self, session: Session) -> None:
        self.sync = session

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.sync.id

    assemble = _session_method(Session.assemble)
    append = _session_method(Session.append)
    size = _session_method(Session.size)
    token_scale = _session_method(Session.token_scale)
    timeline = _session_method(Session.timeline)
    recall = _session_method(Session.recall)
    search = _session_method(Session.search)
    get = _session_method(Session.get)
    remember = _session_method(Session.remember)
    facts = _session_method(Session.facts)
    learn = _session_method(Session.learn)
    forget = _session_method(Session.forget)
    forget_facts = _session_method(Session.forget_facts)
    edits = _session_method(Session.edits)
    pin = _session_method(Session.pin)
    undo_trim = _session_method(Session.undo_trim)

    async def compact(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        instructions: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Compaction:
        """Replace the older history by a summary, as `Session.compact` does. Cancel the task to stop it.

        `on_progress` is called from a thread.
        """
        cancel = Event()
        try:
            return await asyncio.to_thread(
                self.sync.compact,
                messages,
                format=format,
                limit=limit,
                reserve=reserve,
                instructions=instructions,
                force=force,
                dry_run=dry_run,
                cancel=cancel,
                on_progress=on_progress,
            )
        finally:
            cancel.set()


class AsyncEngine:
    """An `Engine` for asyncio: `async with await AsyncEngine.open(path) as engine`.

    `close`, `search`, `sessions`, `stats` and `work` have the arguments and results of `Engine`, and are awaited.

    Attributes:
        sync: The engine itself.
    """

    def __init__(self, engine: Engine) -> None:
        self.sync = engine

    @classmethod
    async def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | None = None,
        model: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        hooks: Hooks | None = None,
        background: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> Self:
        """Open the memory in a folder, as `Engine.open` does."""
        engine = await asyncio.to_thread(
            Engine.open, path, settings=settings, model=model, hooks=hooks, background=background, clock=clock
        )
        return cls(engine)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.sync.settings

    def session(
        self,
        id: str,  # noqa: A002 - the domain's own word
        *,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> AsyncSession:
        """Get a session by its id, as `Engine.session` does."""
        return AsyncSession(self.sync.session(id, tenant=tenant, project=project, agent=agent))

    close = _engine_method(Engine.close)
    sessions = _engine_method(Engine.sessions)
    search = _engine_method(Engine.search)
    stats = _engine_method(Engine.stats)
    work = _engine_method(Engine.work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
