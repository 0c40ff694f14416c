"""The LiteLLM proxy with memory, in front of a real server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from adapter_talk import LIMIT, TOOL, Librarian, archived, lookup, question
from holdfast import Engine
from holdfast.testing.provider import ScriptedProvider

pytest.importorskip("litellm.proxy.proxy_server", reason="pip install 'litellm[proxy]', in an environment of its own")

HOOK = f"""
from holdfast import Engine
from holdfast.adapters.litellm import HoldfastHook
from adapter_talk import SETTINGS

hook = HoldfastHook(Engine.open("memory", settings=SETTINGS, background=False), limit={LIMIT})
"""
CONFIG = """
model_list:
  - model_name: gpt-x
    litellm_params: {{model: openai/gpt-x, api_base: "{url}/v1", api_key: k}}
litellm_settings:
  callbacks: [holdfast_hook.hook]
"""


@pytest.fixture
def proxy(model_server: ScriptedProvider, tmp_path: Path) -> Iterator[str]:
    """The address of a proxy with the hook."""
    (tmp_path / "holdfast_hook.py").write_text(HOOK, "utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=model_server.url), "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tests = str(Path(__file__).resolve().parents[1])
    environ = {**os.environ, "PYTHONPATH": tests, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    command = [str(Path(sys.executable).with_name("litellm")), "--config", "config.yaml", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*command, "--host", "127.0.0.1"], cwd=tmp_path, env=environ, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/health/liveliness", timeout=1)
                break
            except httpx.HTTPError:
                assert running.poll() is None, (tmp_path / "log").read_text("utf-8", "replace")[-3_000:]
                time.sleep(0.2)
        yield url
    finally:
        running.terminate()
        running.wait(30)


def test_a_conversation_through_the_proxy(proxy: str, model_server: ScriptedProvider, tmp_path: Path) -> None:
    """Turns with tools, streamed and not: always valid, compacted with the proxy's model, nothing lost."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    history: list[Any] = []
    tools = [{"type": "function", "function": TOOL}]
    for turn in range(16):
        history.append({"role": "user", "content": question(turn)})
        while True:
            body = {"model": "gpt-x", "messages": history, "tools": tools, "litellm_session_id": "s1", "user": "anna"}
            reply = httpx.post(f"{proxy}/v1/chat/completions", json=body, timeout=60).json()["choices"][0]["message"]
            history.append({key: reply.get(key) for key in ("role", "content", "tool_calls") if reply.get(key)})
            if not reply.get("tool_calls"):
                break
            history.append({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": lookup(turn)})
    body = {"model": "gpt-x", "messages": [*history, {"role": "user", "content": "bye"}], "tools": tools}
    streamed = {**body, "stream": True, "litellm_session_id": "s1", "user": "anna"}
    assert "Noted" in httpx.post(f"{proxy}/v1/chat/completions", json=streamed, timeout=60).text
    assert model_server.check() == []
    assert librarian.summaries
    with Engine.open(tmp_path / "memory", background=False) as engine:
        rows = archived(engine.session("s1", tenant="anna"))
    assert [message.text for message in rows if message.role == "user"] == [*map(question, range(16)), "bye"]
    assert rows[-1].role == "assistant"
