"""The LiteLLM proxy with memory, in front of a real server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.providers.replies import ReplyCollector
from holdfast.testing.provider import ScriptedProvider, overflow
from support.adapter_conversations import LIMIT, TOOL, TURNS, Librarian, archived, check_talk, lookup, question
from support.waiting import PATIENCE, until

pytest.importorskip(
    "litellm.proxy.proxy_server",
    reason="pip install 'litellm[proxy]', in an environment of its own, or run `make frameworks`",
)

TOOLS = [{"type": "function", "function": TOOL}]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "frameworks.md").read_text("utf-8")
HOOK = PAGE.partition("## LiteLLM proxy")[2].partition("```python\n")[2].partition("```")[0]
"""The file that the documentation shows."""
SETTINGS = {
    "HOLDFAST_MODEL__CONTEXT_TOKENS": str(LIMIT),
    "HOLDFAST_COMPACTION__QUALITY_GUARD__ENABLED": "false",
    "HOLDFAST_EMBEDDING__PROVIDER": "none",
    "HOLDFAST_PRUNING__MODE": "adaptive",
    "HOLDFAST_RECALL__DEADLINE_MS": "600000",  # a busy machine recalls what any other does
}
CONFIG = """
model_list:
  - model_name: gpt-x
    litellm_params: {{model: openai/gpt-x, api_base: "{url}/v1", api_key: k}}
litellm_settings:
  callbacks: [holdfast_hook.hook]
"""


AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

USERS = {"sk-ann-1": "ann", "sk-ann-2": "ann", "sk-bob": "bob"}


async def authenticate(request, api_key):
    return UserAPIKeyAuth(api_key=api_key, user_id=USERS.get(api_key))
"""
"""The users of a proxy with keys; a key that is not listed has no user."""


@pytest.fixture
def proxy(model_server: ScriptedProvider, tmp_path: Path) -> Iterator[str]:
    """The address of a proxy with the hook, for everyone."""
    (tmp_path / "config.yaml").write_text(CONFIG.format(url=model_server.url), "utf-8")
    with start_proxy(tmp_path) as url:
        yield url


@contextmanager
def start_proxy(tmp_path: Path) -> Iterator[str]:
    """Start a proxy with the hook and the settings in a folder."""
    (tmp_path / "holdfast_hook.py").write_text(HOOK, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, **SETTINGS, "HOME": str(tmp_path)}
    environ["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    command = [str(Path(sys.executable).with_name("litellm")), "--config", "config.yaml", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*command, "--host", "127.0.0.1"], cwd=tmp_path, env=environ, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:

        def is_up() -> bool:
            assert running.poll() is None, (tmp_path / "log").read_text("utf-8", "replace")[-3_000:]
            with suppress(httpx.HTTPError):
                return httpx.get(f"{url}/health/liveliness", timeout=5).is_success
            return False

        until(is_up)
        yield url
    finally:
        running.terminate()
        running.wait(PATIENCE)


def post(proxy: str, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    """Send a request to the proxy."""
    return httpx.post(f"{proxy}/v1/{path}", json={"model": "gpt-x", **body}, headers=headers, timeout=PATIENCE)


def say(proxy: str, history: list[Any], text: str, *, stream: bool = False) -> None:
    """Send a user message by Chat Completions, and run the tools that the model calls."""
    history.append({"role": "user", "content": text})
    while True:
        body = {"messages": history, "tools": TOOLS, "litellm_session_id": "s1", "user": "anna", "stream": stream}
        sent = post(proxy, "chat/completions", body)
        assert sent.status_code == 200, sent.text
        reply = read_stream(sent.text) if stream else sent.json()["choices"][0]["message"]
        history.append({key: reply[key] for key in ("role", "content", "tool_calls") if reply.get(key)})
        for call in reply.get("tool_calls") or ():
            shelf = json.loads(call["function"]["arguments"])["shelf"]
            history.append({"role": "tool", "tool_call_id": call["id"], "content": lookup(shelf)})
        if not reply.get("tool_calls"):
            return


def read_stream(text: str) -> dict[str, Any]:
    """The message that a stream makes up."""
    collector = ReplyCollector("openai_chat", is_stream=True)
    collector.feed(text.encode())
    (message,) = collector.messages()
    return message


def test_a_conversation_through_the_proxy(proxy: str, model_server: ScriptedProvider, tmp_path: Path) -> None:
    """Turns with tools, streamed and not: valid, never over, compacted with the proxy's model, nothing lost."""
    librarian, history = Librarian("openai_chat"), list[Any]()
    model_server.set_script(librarian)
    for turn in range(TURNS):
        say(proxy, history, question(turn), stream=turn % 2 == 1)
    with Engine.open(tmp_path / "agent-memory", background=False) as engine:
        check_talk(model_server, engine.session("s1", tenant="anna"), librarian)


def test_a_window_that_is_refused_is_sent_smaller(proxy: str, model_server: ScriptedProvider, tmp_path: Path) -> None:
    """An overflow is compacted and sent again; the client sees only the reply. A second one is the client's error."""
    librarian, history, is_refused = Librarian("openai_chat"), list[Any](), [True]
    model_server.set_script(librarian)
    for turn in range(5):
        say(proxy, history, question(turn))

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(3_000, 2_500) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    say(proxy, history, question(7))
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert librarian.summaries
    assert model_server.check() == []
    model_server.set_script(lambda _: overflow())
    refused = post(proxy, "chat/completions", {"messages": [{"role": "user", "content": "hi"}], "user": "bob"})
    assert refused.status_code == 400
    again = {"messages": [*history, {"role": "user", "content": "hi"}], "litellm_session_id": "s1", "user": "anna"}
    refused = post(proxy, "chat/completions", again)
    assert (refused.status_code, "maximum context length" in refused.text) == (400, True)
    with Engine.open(tmp_path / "agent-memory", background=False) as engine:
        assert engine.session("s1", tenant="anna").timeline()[-1].raw_max_tokens <= 2_500


def test_other_formats_retries_and_requests_without_a_session(
    proxy: str, model_server: ScriptedProvider, tmp_path: Path
) -> None:
    """Messages and Responses are archived; a busy provider is asked again; without a session nothing is."""
    message = [{"role": "user", "content": "hello"}]
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "one", "two", "three", "four"])
    chat = post(proxy, "chat/completions", {"messages": message}, **{"x-holdfast-session": "chat"})
    assert chat.json()["choices"][0]["message"]["content"] == "one"
    body = {"messages": message, "max_tokens": 50, "metadata": {"session_id": "messages"}}
    assert post(proxy, "messages", body).status_code == 200
    assert post(proxy, "responses", {"input": "hello", "metadata": {"session_id": "responses"}}).status_code == 200
    assert post(proxy, "chat/completions", {"messages": message}).status_code == 200
    assert model_server.bodies[0]["messages"] == model_server.bodies[1]["messages"] == message
    with Engine.open(tmp_path / "agent-memory", background=False) as engine:
        said = {
            info.id: [one.text for one in archived(engine.session(info.id, tenant=info.tenant))]
            for info in engine.sessions()
        }
    assert said == {"chat": ["hello", "one"], "messages": ["hello", "two"], "responses": ["hello", "three"]}


def test_a_user_of_one_key_is_not_that_of_another(model_server: ScriptedProvider, tmp_path: Path) -> None:
    """Session and user are names that any client can send: they select within what is said with its own keys."""
    (tmp_path / "keys.py").write_text(AUTH, "utf-8")
    config = CONFIG.format(url=model_server.url) + "general_settings:\n  custom_auth: keys.authenticate\n"
    (tmp_path / "config.yaml").write_text(config, "utf-8")
    model_server.set_script(lambda _: "Fine.")
    secret = "The replica of the billing database listens on port 5433."
    asked = "Which port does the replica of the billing database listen on?"
    with start_proxy(tmp_path) as url:

        def ask(text: str, *, key: str) -> bool:
            body = {"messages": [{"role": "user", "content": text}], "litellm_session_id": "s1", "user": "shared"}
            sent = post(url, "chat/completions", body, authorization=f"Bearer {key}")
            assert sent.status_code == 200, sent.text
            return "5433" in json.dumps(model_server.bodies[-1])

        ask(secret, key="sk-ann-1")
        assert ask(asked, key="sk-ann-2")  # another key of the same person
        assert not ask(asked, key="sk-bob")
        assert not ask(asked, key="sk-nobody-1")
        ask(secret, key="sk-nobody-2")
        assert not ask(asked, key="sk-nobody-1")
        assert ask(asked, key="sk-nobody-2")
