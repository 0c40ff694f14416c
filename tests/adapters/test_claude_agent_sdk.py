"""The Claude Agent SDK with memory: the real Claude Code against a scripted server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapter_talk import PLANTED, QUESTION
from holdfast import Engine
from holdfast.testing.provider import ScriptedProvider

sdk: Any = pytest.importorskip("claude_agent_sdk", reason="pip install claude-agent-sdk (350 MB: it has Claude Code)")


def test_a_prompt_gets_what_an_earlier_session_said(
    model_server: ScriptedProvider, engine: Engine, tmp_path: Path
) -> None:
    """Two sessions in one folder: the first is archived whole, and the second one's prompt recalls it."""
    from holdfast.adapters.claude_agent_sdk import holdfast_hooks  # noqa: PLC0415 - where the SDK is installed

    model_server.set_script(lambda _: "Noted.")
    (tmp_path / "work").mkdir()
    options = sdk.ClaudeAgentOptions(
        hooks=holdfast_hooks(engine),
        cwd=tmp_path / "work",
        model="claude-sonnet-4-5",
        env={
            "HOME": str(tmp_path),
            "ANTHROPIC_BASE_URL": model_server.url,
            "ANTHROPIC_API_KEY": "k",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )

    async def ask(text: str) -> list[Any]:
        return [message async for message in sdk.query(prompt=text, options=options)]

    replies = asyncio.run(ask(f"Please note: {PLANTED}"))
    assert any("Noted." in str(message) for message in replies)
    (scope,) = engine.sessions()
    assert scope.project == str(tmp_path / "work")
    session = engine.session(scope.session, project=scope.project)
    assert session.search("door code")[0].text.endswith(PLANTED)
    session.remember(PLANTED)
    asyncio.run(ask(QUESTION))
    sent = [str(body) for body in model_server.bodies if QUESTION in str(body)]
    assert any("7741-K" in body for body in sent)
