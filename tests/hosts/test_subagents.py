"""A subagent in the gateway of the real OpenClaw, as another agent in another workspace: `make test-hosts`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.openclaw import KEY, find_host, run_gateway
from holdfast import Engine
from holdfast.settings import Settings
from support import patient
from support.host_programs import OpenClaw, install_package
from support.waiting import PATIENCE, until

FOUND = "The mirror of the packages keeps its index on host Wombat, port 7391."
TASK = "Find the index of the mirror of the packages."
QUESTION = "On which host and port is the index of the mirror of the packages?"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Make a reply that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Spawn a subagent where the user asks for it. The subagent runs a command, and does not say what it saw."""
    *_, last = [one for one in body["messages"] if "OPENCLAW_INTERNAL_CONTEXT" not in json.dumps(one)]
    asked = json.dumps(last) if last["role"] == "user" and body.get("tools") else ""
    if "Spawn a helper" in asked:
        return call("tool_call", id="sessions_spawn", args={"task": TASK, "agentId": "research"})
    if TASK in asked and QUESTION not in asked:
        return call("exec", command=f"echo '{FOUND}'")
    return {"role": "assistant", "content": "Done."}


def is_archived(memory: Path, text: str) -> bool:
    """Whether a memory has a tool result with a text."""
    with Engine.open(memory, settings=Settings(), background=False) as engine:
        for scope in engine.sessions():
            session = engine.session(scope.id, project=scope.project, agent=scope.agent)
            results = [result.text for row in session.get(range(1, 1000)) for result in row.message.results]
            if any(text in result for result in results):
                return True
    return False


@pytest.mark.skipif(not os.environ.get("HOLDFAST_TEST_HOSTS"), reason="OpenClaw takes minutes: make test-hosts")
def test_the_parent_recalls_what_a_subagent_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is archived in the memory of the parent, and is in the request that carries the question."""
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "300000")  # a busy machine recalls what any other does
    (tmp_path / "other").mkdir()
    listed = [
        {"id": "main", "subagents": {"allowAgents": ["*"]}},
        {"id": "research", "workspace": f"{tmp_path / 'other'}"},
    ]
    command = find_host(install_package(OpenClaw.package, OpenClaw.version).parent)
    patience = {"timeoutMs": 1000 * PATIENCE}
    with run_gateway(command, tmp_path, agents={"list": listed}, plugin=patience) as (model, url):
        model.answer = answer

        def say(text: str) -> None:
            headers = {"authorization": "Bearer trial", "x-openclaw-session-key": KEY}
            body = {"model": "openclaw/main", "messages": [{"role": "user", "content": text}]}
            patient.post(f"{url}/v1/chat/completions", json=body, headers=headers).raise_for_status()

        say("Spawn a helper that looks for the index, please.")
        until(lambda: any("A background task completed" in json.dumps(body) for _, body in model.requests))
        until(lambda: is_archived(tmp_path / "memory", FOUND))
        say(QUESTION)
        (request,) = [body for _, body in model.requests if QUESTION in json.dumps(body) and body.get("tools")]
        assert "7391" in json.dumps(request)
    with Engine.open(tmp_path / "memory", settings=Settings(), background=False) as engine:
        assert {(info.project, info.agent) for info in engine.sessions()} == {(str(tmp_path / "work"), "main")}
        assert len(engine.sessions()) == 2
