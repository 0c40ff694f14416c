"""The engine for asyncio: the same names and arguments, with the work done in threads.

A task that is cancelled stops waiting at once. Its call runs to its end in its thread under the lock of the session, so
the session stays consistent and the next call waits for it. A compaction stops at its next step and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from threading import Event
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from weakref import ref

from holdfast.compaction.events import Hooks
from holdfast.engine import Engine
from holdfast.models.base import Model
from holdfast.session import CALLER, AutoCompaction, Session
from holdfast.settings import Loaded, ProjectSettings, Settings

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Engine | Session)


async def in_thread(call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a call in a thread.

    The task is passed to the sessions that it uses, because all tasks share a few threads.
    """
    CALLER.set(ref(asyncio.current_task()))
    return await asyncio.to_thread(call, *args, **kwargs)


class _Async(Generic[S]):
    def __init__(self, sync: S) -> None:
        self.sync = sync

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync)[1:]}"


def _awaitable(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[_Async[S], P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def call(self: _Async[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        cancel = kwargs.get("cancel") or Event()
        if method.__name__ == "compact":  # the only one that can stop before its end
            kwargs["cancel"] = cancel
        try:
            return await in_thread(method, self.sync, *args, **kwargs)
        except asyncio.CancelledError:
            if isinstance(cancel, Event):
                cancel.set()
            raise

    return call


class AsyncSession(_Async[Session]):
    """A `Session` for asyncio. Get it from `AsyncEngine.session`.

    All methods of `Session` exist with the same arguments and results, and are awaited. `compact` is cancelled with its
    task.

    Attributes:
        sync: The session itself.
    """

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.sync.id

    assemble = _awaitable(Session.assemble)
    preview = _awaitable(Session.preview)
    append = _awaitable(Session.append)
    _append_broken = _awaitable(Session._append_broken)
    compact = _awaitable(Session.compact)
    count_tokens = _awaitable(Session.count_tokens)
    token_scale = _awaitable(Session.token_scale)
    timeline = _awaitable(Session.timeline)
    window = _awaitable(Session.window)
    describe_cuts = _awaitable(Session.describe_cuts)
    expand_cut = _awaitable(Session.expand_cut)
    recall = _awaitable(Session.recall)
    search = _awaitable(Session.search)
    messages = _awaitable(Session.messages)
    conversation = _awaitable(Session.conversation)
    get = _awaitable(Session.get)
    remember = _awaitable(Session.remember)
    facts = _awaitable(Session.facts)
    conflicts = _awaitable(Session.conflicts)
    keep_fact = _awaitable(Session.keep_fact)
    keep_all_facts = _awaitable(Session.keep_all_facts)
    pin_facts = _awaitable(Session.pin_facts)
    learn = _awaitable(Session.learn)
    exclude = _awaitable(Session.exclude)
    exclusions = _awaitable(Session.exclusions)
    forget = _awaitable(Session.forget)
    forget_facts = _awaitable(Session.forget_facts)
    edits = _awaitable(Session.edits)
    pin = _awaitable(Session.pin)
    undo_trim = _awaitable(Session.undo_trim)


class AsyncEngine(_Async[Engine]):
    """An `Engine` for asyncio: `async with await AsyncEngine.open(path) as engine`.

    `close`, `search`, `sessions`, `stats` and `work` have the arguments and results of `Engine`, and are awaited.

    Attributes:
        sync: The engine itself.
    """

    @classmethod
    async def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | Loaded[Settings] | None = None,
        model: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        reader: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        hooks: Hooks | None = None,
        auto: AutoCompaction | None = None,
        projects: ProjectSettings | None = None,
        background: bool = True,
        clock: Callable[[], int] | None = None,
        personal: bool = False,
        hosts: bool = False,
    ) -> Self:
        """Open the memory in a folder, as `Engine.open` does."""
        engine = await asyncio.to_thread(
            Engine.open,
            path,
            settings=settings,
            model=model,
            reader=reader,
            hooks=hooks,
            auto=auto,
            projects=projects,
            background=background,
            clock=clock,
            personal=personal,
            hosts=hosts,
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

    close = _awaitable(Engine.close)
    sessions = _awaitable(Engine.sessions)
    search = _awaitable(Engine.search)
    stats = _awaitable(Engine.stats)
    work = _awaitable(Engine.work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
