"""The engine for asyncio: the same names, the same windows, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from holdfast import AsyncEngine, AsyncSession, Engine, Session, Settings
from holdfast.models.base import Prompt
from holdfast.models.scripted import Scripted
from holdfast.providers import check
from holdfast.settings import Embedding
from support.waiting import PATIENCE, UNHURRIED

LIMIT = 16_000
pytestmark = pytest.mark.anyio
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)


@pytest.fixture
def anyio_backend() -> str:
    """Run in asyncio alone."""
    return "asyncio"


def user(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def make_conversation(turns: int) -> list[dict[str, str]]:
    """Questions and answers, and a last question."""
    long = "the quick brown fox jumps over the lazy dog " * 20
    pairs = [
        message
        for turn in range(turns)
        for message in (
            user(f"Step {turn}: 第{turn}步 {long}"),
            {"role": "assistant", "content": f"Done {turn}. {long}"},
        )
    ]
    return [*pairs, user("What was step 3?")]


@pytest.mark.parametrize(("edge", "core"), [(AsyncEngine, Engine), (AsyncSession, Session)])
def test_names_and_arguments_are_the_same(edge: type, core: type) -> None:
    """Every public method of the core is there; all but the two that make objects are awaited."""
    internal = {
        "ask_memory",
        "compact_near_limit",
        "find_resources",
        "fit_without_memory",
        "is_memory_hanging",
        "make_unnamed_session",
        "notify",
        "open_session",
        "require_open",
    }
    methods = {name for name, _ in inspect.getmembers(core, inspect.isfunction) if not name.startswith("_")} - internal
    for name in methods:
        ours, theirs = getattr(edge, name), getattr(core, name)
        assert name == "session" or inspect.iscoroutinefunction(ours)
        assert set(inspect.signature(theirs).parameters) == set(inspect.signature(ours).parameters)


async def test_a_conversation_grows_turn_by_turn(tmp_path: Path) -> None:
    """Windows are valid and within the limit, and what left them is found."""
    history = make_conversation(40)
    async with await AsyncEngine.open(tmp_path, settings=SETTINGS) as engine:
        session = engine.session("s", project="shop")
        for stop in range(1, len(history) + 1, 2):
            window = await session.assemble(history[:stop], limit=LIMIT)
            assert window.report.total_tokens <= LIMIT
            assert not check(window.render("anthropic"), "anthropic")
            if stop < len(history):
                await session.append([history[stop]])
        assert (await engine.stats()).messages == len(history)
        assert any("Step 3" in hit.text for hit in await session.search("step 3"))
        assert (await session.timeline())[-1].turn == 41
        with pytest.raises(TypeError, match="limti"):
            await session.assemble(history, limti=3)  # type: ignore[call-arg]


async def test_tasks_at_once_get_the_same_window(tmp_path: Path) -> None:
    """Twelve tasks on one session: one window, nothing archived twice."""
    history = make_conversation(20)
    async with await AsyncEngine.open(tmp_path, settings=SETTINGS) as engine:
        session = engine.session("s")
        windows = await asyncio.gather(*(session.assemble(history, limit=LIMIT) for _ in range(12)))
        assert len({str(window.render()) for window in windows}) == 1
        assert (await engine.stats()).messages == len(history)


async def test_a_cancelled_request_leaves_the_session_consistent(tmp_path: Path) -> None:
    """The call ends in its thread; the next window is valid and holds the question, and nothing is archived twice."""
    history = make_conversation(30)
    threads, loop = ThreadPoolExecutor(), asyncio.get_running_loop()
    loop.set_default_executor(threads)
    async with await AsyncEngine.open(tmp_path, settings=SETTINGS) as engine:
        session = engine.session("s")
        for stop in range(1, len(history) + 1, 2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await session.assemble(history[:stop], limit=LIMIT)
        threads.shutdown()  # calls that overlap are served in any order: wait for those that began
        loop.set_default_executor(ThreadPoolExecutor())
        window = await session.assemble(history, limit=LIMIT)
        assert window.report.total_tokens <= LIMIT
        assert window.render()[-1]["content"].startswith("What was step 3?")
        assert not check(window.render("anthropic"), "anthropic")
        assert (await engine.stats()).messages == len(history)
        again = await session.assemble(history, limit=LIMIT)
        assert again.render() == window.render()


async def test_a_cancelled_compaction_changes_nothing(tmp_path: Path) -> None:
    """The model is asked, the task is cancelled, the history stays as it was."""
    asked, go = Event(), Event()

    def answer(_: Prompt) -> str:
        asked.set()
        assert go.wait(PATIENCE)
        return "## Goal\nSteps."

    async with await AsyncEngine.open(tmp_path, settings=SETTINGS, model=Scripted(answer)) as engine:
        session = engine.session("s")
        task = asyncio.create_task(session.compact(make_conversation(40), limit=LIMIT))
        assert await asyncio.to_thread(asked.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert not any(edit.kind == "compacted" for edit in await session.edits())
        window = await session.assemble(make_conversation(40), limit=LIMIT)
        assert window.report.total_tokens <= LIMIT


async def test_a_store_that_is_deleted_keeps_the_limit(tmp_path: Path) -> None:
    """As in the core: the newest messages that fit, and the reason."""
    async with await AsyncEngine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        await session.assemble(make_conversation(1), limit=LIMIT)
        await asyncio.to_thread(shutil.rmtree, tmp_path)
        window = await session.assemble(make_conversation(60), limit=LIMIT)
        assert check(window.render(), window.provider) == []
        assert LIMIT // 2 < window.report.total_tokens <= LIMIT
        assert "What was step 3?" in str(window.render()[-1])
        assert any("deleted, moved or replaced" in warning for warning in window.report.warnings)
