"""A closed engine, its sessions and their asynchronous forms raise an error that says so."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncEngine, AsyncSession, ClosedError, Engine, HoldfastError, Session, Settings
from holdfast.settings import Embedding

QUIET = Settings(embedding=Embedding(provider="none"))
ASKED = [{"role": "user", "content": "Which port?"}]
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "append": (ASKED,),
    "assemble": (ASKED,),
    "exclude": ([1],),
    "expand_cut": (1,),
    "forget_facts": (["f"],),
    "get": ([1],),
    "keep_fact": ("f",),
    "keep_all_facts": (["f", "g"],),
    "pin_facts": (["f"],),
    "pin": ([1],),
    "recall": ("port",),
    "remember": ("The port is 5433.",),
    "search": ("port",),
    "session": ("s",),
    "window": (1,),
}
"""The arguments of the methods that need some."""
INTERNAL = {
    *("ask_memory", "compact_near_limit", "find_resources", "fit_without_memory", "is_memory_hanging"),
    *("make_unnamed_session", "notify", "open_session", "require_open"),
}


def methods(kind: type) -> list[str]:
    """Return the public methods of a class."""
    found = [name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    return [name for name in found if name not in {*INTERNAL, "open", "close"}]


def call(thing: Engine | Session | AsyncEngine | AsyncSession, name: str) -> Any:
    """Call a method."""
    method: Callable[..., Any] = getattr(thing, name)
    options = {"provider": "anthropic"} if name == "preview" else {}
    return method(*ARGUMENTS.get(name, (ASKED,) if name == "preview" else ()), **options)


@pytest.mark.variants
@pytest.mark.parametrize("name", methods(Session))
def test_a_session_of_a_closed_engine(tmp_path: Path, name: str) -> None:
    """This includes `assemble`, which otherwise continues if memory fails."""
    with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
        session = engine.session("s")
        session.assemble(ASKED)
    with pytest.raises(ClosedError, match="closed"):
        call(session, name)


@pytest.mark.parametrize("name", methods(Engine))
def test_a_closed_engine(tmp_path: Path, name: str) -> None:
    """The error includes the fix."""
    with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
        pass
    with pytest.raises(ClosedError, match=r"Engine\.open"):
        call(engine, name)


@pytest.mark.parametrize("name", ["assemble", "append", "search", "timeline", "stats"])
def test_a_closed_asynchronous_engine(tmp_path: Path, name: str) -> None:
    """The same holds for asyncio."""

    async def run() -> None:
        async with await AsyncEngine.open(tmp_path, settings=QUIET, background=False) as engine:
            session = engine.session("s")
        with pytest.raises(ClosedError):
            await call(engine if name == "stats" else session, name)
        with pytest.raises(ClosedError):
            engine.session("t")

    asyncio.run(run())


def test_it_is_closed_once_more_without_an_error(tmp_path: Path) -> None:
    """`close` may be called again, and calls that need no memory still work."""
    engine = Engine.open(tmp_path, settings=QUIET)
    engine.close()
    engine.close()
    assert engine.settings == QUIET
    assert issubclass(ClosedError, HoldfastError)
    with pytest.raises(ClosedError), engine:
        pass
