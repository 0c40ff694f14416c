"""The Claude Agent SDK with memory: the real Claude Code against a scripted server."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncEngine, Engine
from holdfast.adapters.claude_agent_sdk import HoldfastHooks, HoldfastSessionStore
from holdfast.testing.provider import ScriptedProvider
from support.adapter_conversations import PLANTED, QUESTION

REASON = "pip install claude-agent-sdk (350 MB: it has Claude Code), or run `make frameworks`"
KEY = {"project_key": "-work-shop", "session_id": "s1"}
SUBAGENT = {**KEY, "subpath": "subagents/agent-1"}


@pytest.fixture
def sdk() -> Any:
    """The SDK, where it is installed."""
    return pytest.importorskip("claude_agent_sdk", reason=REASON)


def entry(uuid: str, text: str = "hello", **more: Any) -> Any:
    """A line of a transcript."""
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}, **more}


def open_options(sdk: Any, server: ScriptedProvider, home: Path, **options: Any) -> Any:
    """Options for the real Claude Code on the scripted server, with a home of its own."""
    (home / "work").mkdir(parents=True, exist_ok=True)
    environ = {"HOME": str(home), "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
    environ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    return sdk.ClaudeAgentOptions(cwd=home / "work", model="claude-sonnet-4-5", env=environ, **options)


def ask(sdk: Any, text: str, options: Any) -> list[Any]:
    """Run a query, and return its messages."""

    async def run() -> list[Any]:
        return [message async for message in sdk.query(prompt=text, options=options)]

    return asyncio.run(run())


def test_the_store_keeps_transcripts_as_the_sdk_asks(engine: Engine) -> None:
    """The protocol, call by call: order, repeats, subagents, projects, users, deletion. It needs no SDK."""

    async def run() -> None:
        store: Any = HoldfastSessionStore(engine)
        assert await store.load(KEY) is None
        lines = [
            entry("b"),
            {"type": "title", "title": "A"},
            entry("a", parentUuid=None),
            {"type": "title", "title": "A"},
        ]
        await store.append(KEY, lines)
        await store.append(
            KEY, [entry("b", "again"), entry("c", nested={"list": [1, None, "ü"]})]
        )  # a batch is retried
        assert await store.load(KEY) == [*lines, entry("c", nested={"list": [1, None, "ü"]})]
        await store.append(SUBAGENT, [entry("b", "of the subagent")])
        assert await store.load(SUBAGENT) == [entry("b", "of the subagent")]
        await store.append({**KEY, "session_id": "s2"}, [entry("x")])
        await store.append({**KEY, "project_key": "other"}, [entry("x")])
        listed = await store.list_sessions(KEY["project_key"])
        assert sorted(one["session_id"] for one in listed) == ["s1", "s2"]
        assert all(one["mtime"] > 1e12 for one in listed)
        assert await store.list_subkeys(KEY) == ["subagents/agent-1"]
        other: Any = HoldfastSessionStore(AsyncEngine(engine), tenant="anna")
        assert await other.load(KEY) is None
        await store.append({**KEY, "subpath": "subagents/agent-2"}, [entry("y")])
        await store.delete(SUBAGENT)
        assert await store.list_subkeys(KEY) == ["subagents/agent-2"]
        await store.delete(KEY)
        assert await store.load(KEY) is None
        assert await store.list_subkeys(KEY) == []
        assert [one["session_id"] for one in await store.list_sessions(KEY["project_key"])] == ["s2"]
        assert await store.load({**KEY, "project_key": "other"}) == [entry("x")]

    asyncio.run(run())


def test_secrets_in_transcripts_are_masked(engine: Engine) -> None:
    """A secret is masked before it is stored."""
    secret = "sk-ant-api03-" + "Ab3dEf6hIj" * 9 + "AA"
    store: Any = HoldfastSessionStore(engine)
    asyncio.run(store.append(KEY, [entry("a", f"the key is {secret}")]))
    assert secret not in str(asyncio.run(store.load(KEY)))


@pytest.mark.usefixtures("sdk")
def test_the_store_passes_the_suite_of_the_sdk(engine: Engine) -> None:
    """The conformance suite that the SDK ships."""
    from claude_agent_sdk.testing import run_session_store_conformance  # noqa: PLC0415 - where it is installed

    users = iter(range(1_000))
    asyncio.run(run_session_store_conformance(lambda: HoldfastSessionStore(engine, tenant=f"u{next(users)}")))


@pytest.mark.untraced
def test_a_session_is_resumed_where_its_files_are_gone(
    sdk: Any, model_server: ScriptedProvider, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session continues from the store alone, with what was said, after its local transcript was deleted."""
    monkeypatch.setenv("HOME", str(tmp_path))  # the SDK looks for transcripts in the home of both processes
    model_server.set_script(lambda _: "Noted.")
    store = HoldfastSessionStore(engine)
    replies = ask(sdk, f"Please note: {PLANTED}", open_options(sdk, model_server, tmp_path, session_store=store))
    session = next(message.session_id for message in replies if hasattr(message, "session_id"))
    shutil.rmtree(tmp_path / ".claude")
    ask(sdk, QUESTION, open_options(sdk, model_server, tmp_path, session_store=store, resume=session))
    (last, *_) = [str(body["messages"]) for body in model_server.bodies if QUESTION in str(body["messages"])]
    assert PLANTED in last


@pytest.mark.untraced
def test_a_prompt_gets_messages_of_an_earlier_session(
    sdk: Any, model_server: ScriptedProvider, engine: Engine, tmp_path: Path
) -> None:
    """Two sessions in one folder: the first is archived whole, and the second one's prompt recalls it."""
    model_server.set_script(lambda _: "Noted.")
    options = open_options(sdk, model_server, tmp_path, hooks=HoldfastHooks(engine))
    replies = ask(sdk, f"Please note: {PLANTED}", options)
    assert any("Noted." in str(message) for message in replies)
    (scope,) = engine.sessions()
    assert scope.project == str(tmp_path / "work")
    session = engine.session(scope.id, project=scope.project)
    assert session.search("door code")[0].text.endswith(PLANTED)
    session.remember(PLANTED)
    ask(sdk, QUESTION, options)
    sent = [str(body) for body in model_server.bodies if QUESTION in str(body)]
    assert any("7741-K" in body for body in sent)
