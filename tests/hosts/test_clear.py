"""A new conversation in the same terminal, by the command of the real host for it: `make test-hosts`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.openclaw import KEY, find_host, run_gateway
from holdfast.models.scripted import ScriptedReply
from support import patient
from support.host_model import Model, shown, shown_without_recall
from support.host_programs import OpenClaw, Program, install_package
from support.waiting import PATIENCE, until

pytestmark = pytest.mark.skipif(not os.environ.get("HOLDFAST_TEST_HOSTS"), reason="takes minutes: make test-hosts")
NOTE = "Note what the operators say about the replica."
FACT = "The billing replica listens on port 5433"
QUESTION = "On which port does the billing replica listen?"


def test_a_conversation_after_clear_remembers_the_one_before(
    host: Program, model: Model, record_property: Callable[[str, object], None]
) -> None:
    """Its first request has nothing of the earlier one but what is recalled, and an overview of the project."""
    if not host.ready:
        pytest.skip(f"{host.name} is tested in its gateway")
    host.holdfast("install", host.name)
    with host.open_terminal() as terminal:
        terminal.wait(*host.ready)
        model.expect([ScriptedReply(text=f"Noted: {FACT}")])
        terminal.enter(NOTE)
        terminal.wait("5433")  # a word: while an animation runs, a line is drawn in parts
        until(lambda: "5433" in host.holdfast("search", "billing replica port", "--json"))

        cleared = terminal.place
        terminal.enter(host.clear, shown=host.clear_shown)
        question, key = host.confirm
        if question:
            terminal.wait(question, after=cleared)
            cleared = terminal.place
            terminal.press(key)
        terminal.wait(*(host.begun or host.ready), after=cleared, without=NOTE)

        model.expect([ScriptedReply(text="Fine and done.")])
        before = len(model.bodies)
        terminal.enter(QUESTION)
        until(lambda: find_question(model, before))
        asked = find_question(model, before)
    assert NOTE not in shown_without_recall(asked)
    assert "5433" not in shown_without_recall(asked)
    assert "5433" in shown(asked)
    assert "project-overview" in shown(asked)
    record_property("clear", "yes")


def find_question(model: Model, start: int) -> dict[str, object]:
    """Return the request with the question, among those after a place; empty if it has not come."""
    for body in model.bodies[start:]:
        if body.get("tools") and QUESTION in shown(body):
            return body
    return {}


def test_a_reset_session_of_openclaw_remembers_what_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """`/new` in a messenger makes the gateway reset the session, which keeps its id."""
    monkeypatch.setenv("HOLDFAST_RECALL__DEADLINE_MS", "300000")  # a busy machine recalls what any other does
    command = find_host(install_package(OpenClaw.package, OpenClaw.version).parent)
    patience = {"timeoutMs": 1000 * PATIENCE}
    with run_gateway(command, tmp_path, plugin=patience) as (model, url):

        def say(text: str) -> None:
            headers = {"authorization": "Bearer trial", "x-openclaw-session-key": KEY}
            body = {"model": "openclaw/main", "messages": [{"role": "user", "content": text}]}
            patient.post(f"{url}/v1/chat/completions", json=body, headers=headers).raise_for_status()

        model.answer = lambda _: {"role": "assistant", "content": f"Noted: {FACT}"}
        say(NOTE)
        model.answer = lambda _: {"role": "assistant", "content": "Fine."}
        reset = ["gateway", "call", "sessions.reset", "--token", "trial", "--timeout", f"{1000 * PATIENCE:.0f}"]
        parameters = json.dumps({"key": KEY, "reason": "new"})
        environ = {**os.environ, "HOME": str(tmp_path / "home")}
        subprocess.run([*command, *reset, "--params", parameters], env=environ, capture_output=True, check=True)
        say(QUESTION)
        (asked,) = [body for _, body in model.requests if QUESTION in shown(body) and body.get("tools")]
    assert NOTE not in shown_without_recall(asked)
    assert "5433" not in shown_without_recall(asked)
    assert "5433" in shown(asked)
    assert "project-overview" in shown(asked)
    record_property("clear", "yes")
