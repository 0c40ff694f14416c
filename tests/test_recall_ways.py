"""One question through every way into memory: the same passages, the same facts, the same reason for no block."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import Client

from holdfast import AsyncEngine, Engine, Scope
from holdfast.cli import holdfast
from holdfast.hooks.handlers import HostHooks
from holdfast.mcp import create_server
from holdfast.messages import ToolCall
from holdfast.server.inspector.data import ask
from holdfast.server.rpc import Rpc
from holdfast.settings import Settings, load
from holdfast_agent.agent import Agent
from support.agent_fixture import AgentFixture
from support.forked import run_holdfast
from support.waiting import stop_server

PASSAGES = (
    "The billing replica listens on port 5433, said the operators.",
    "Before the move, the billing replica listened on port 6544.",
)
FACT = "The billing replica is backed up on Tuesdays."
QUESTION = "Which port does the billing replica listen on?"
SCOPE = Scope(project="shop", session="asking")
OPTIONS = {
    "HOLDFAST_EMBEDDING__PROVIDER": "none",
    "HOLDFAST_RECALL__DEADLINE_MS": "600000",
    "HOLDFAST_TIMEOUT_MS": "600000",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a way in gave for a question: the passages and facts that its block quotes, and why there is no block."""

    quoted: tuple[str, ...]
    reason: str

    @classmethod
    def read(cls, block: str, reason: str) -> Answer:
        return cls(quoted=tuple(text for text in (*PASSAGES, FACT) if text in block), reason=reason)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory with two passages and a fact of a project."""
    for name, value in OPTIONS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "memory"
    with Engine.open(folder, settings=read_settings(), background=False) as engine:
        session = engine.session("told", project=SCOPE.project)
        session.append([{"role": "user", "content": text} for text in PASSAGES])
        session.remember(FACT)
    return folder


def read_settings() -> Settings:
    """Read the settings as every way in does, without files; without an overview, which not every way in has."""
    return load(files=[], recall={"overview_tokens": 0}).settings


def ask_session(home: Path, question: str) -> Answer:
    """Ask `Session.recall`."""
    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        found = engine.session(SCOPE.session, project=SCOPE.project).recall(question)
    return Answer.read(found.block, found.reason)


def ask_async_session(home: Path, question: str) -> Answer:
    """Ask `AsyncSession.recall`."""

    async def recall() -> Answer:
        opened = await AsyncEngine.open(home, settings=read_settings(), background=False, personal=True)
        async with opened as engine:
            found = await engine.session(SCOPE.session, project=SCOPE.project).recall(question)
        return Answer.read(found.block, found.reason)

    return asyncio.run(recall())


def ask_turn(home: Path, question: str) -> Answer:
    """Make the window of a question."""
    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        session = engine.session(SCOPE.session, project=SCOPE.project)
        window = session.assemble([{"role": "user", "content": question}], limit=200_000)
    return Answer.read(str(window.render()), window.report.recall_reason)


def ask_turn_before_a_question(home: Path, question: str) -> Answer:
    """Make the window before a question that the caller sends after it."""
    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        session = engine.session(SCOPE.session, project=SCOPE.project)
        window = session.assemble([], limit=200_000, question=question)
    return Answer.read(window.block, window.report.recall_reason)


def call_rpc(home: Path, method: str, **params: Any) -> dict[str, Any]:
    """Make a call of a plugin."""
    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        call = {"id": 1, "method": method, "params": {"session": SCOPE.session, "project": SCOPE.project, **params}}
        answer: dict[str, Any] = json.loads(Rpc(engine).answer(json.dumps(call)))["result"]
        return answer


def ask_rpc(home: Path, question: str) -> Answer:
    """Ask as a plugin does."""
    found = call_rpc(home, "recall", query=question)
    return Answer.read(found["block"], found["reason"])


def ask_rpc_turn(home: Path, question: str) -> Answer:
    """Make the window of a plugin's host."""
    found = call_rpc(home, "assemble", messages=[], limit=200_000, question=question)
    return Answer.read(found["block"], found["report"]["recall_reason"])


def ask_mcp(home: Path, question: str) -> Answer:
    """Call the tool of an MCP client."""

    async def recall(engine: Engine) -> Mapping[str, Any]:
        async with Client(create_server(engine, session=SCOPE.session, project=SCOPE.project)) as client:
            result = await client.call_tool("memory_recall", {"question": question})
            assert result.structured_content is not None
            return dict(result.structured_content)

    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        found = asyncio.run(recall(engine))
    return Answer.read(found["block"], found["reason"])


def ask_command(home: Path, question: str) -> Answer:
    """Run `holdfast recall`."""
    arguments = ["recall", question, "--home", str(home), "--project", SCOPE.project, "--json"]
    done = CliRunner().invoke(holdfast, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    return Answer.read(found["block"], found["reason"])


def ask_inspector(home: Path, question: str) -> Answer:
    """Ask the page of the inspector."""
    with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
        found = ask(engine, question, scope=SCOPE, cap=None, changes="", title="")
    return Answer.read(found.recall.block, found.recall.reason)


def ask_hooks(home: Path, question: str) -> Answer:
    """Send the event of a prompt; the reason is in the log."""
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(str(record.args[1]))  # type: ignore[method-assign,index]
    log = logging.getLogger("holdfast.hooks")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with Engine.open(home, settings=read_settings(), background=False, personal=True) as engine:
            output = HostHooks(engine._memory).handle(make_event(question))
    finally:
        log.removeHandler(handler)
    block = output.get("hookSpecificOutput", {}).get("additionalContext", "")
    return Answer.read(block, "".join(records))


def make_event(question: str) -> dict[str, str]:
    """Make the event that a host sends for a prompt."""
    return {
        "hook_event_name": "UserPromptSubmit",
        "session_id": SCOPE.session,
        "cwd": SCOPE.project,
        "prompt": question,
    }


WAYS: tuple[Callable[[Path, str], Answer], ...] = (
    ask_session,
    ask_async_session,
    ask_turn,
    ask_turn_before_a_question,
    ask_rpc,
    ask_rpc_turn,
    ask_mcp,
    ask_command,
    ask_inspector,
    ask_hooks,
)
AUTOMATIC = {ask_turn, ask_turn_before_a_question, ask_rpc_turn, ask_hooks}
"""The ways in which nobody asks for memory by name."""


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_recalls_the_same(home: Path, way: Callable[[Path, str], Answer]) -> None:
    """Facts and passages are the same, whoever asks."""
    assert way(home, QUESTION) == Answer(quoted=(*PASSAGES, FACT), reason="")


@pytest.mark.variants
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("ok", "a question of less than 3 characters recalls nothing"),
        ("thank you", "the message asks nothing"),
        ("How do whales breathe?", "no stored fact or passage matches the question"),
    ],
)
def test_every_way_in_gives_the_same_reason(
    home: Path, way: Callable[[Path, str], Answer], question: str, reason: str
) -> None:
    """A question that recalls nothing has one reason."""
    assert way(home, question) == Answer(quoted=(), reason=reason)


@pytest.mark.parametrize("way", WAYS)
def test_recall_that_is_disabled_is_disabled_everywhere(
    home: Path, way: Callable[[Path, str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`recall.enabled = false` counts on request, too."""
    monkeypatch.setenv("HOLDFAST_RECALL__ENABLED", "false")
    assert way(home, QUESTION) == Answer(quoted=(), reason="recall.enabled is off")


@pytest.mark.parametrize("way", WAYS)
def test_without_automatic_recall_only_a_request_gets_a_block(
    home: Path, way: Callable[[Path, str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`recall.automatic = false` leaves recall on request."""
    monkeypatch.setenv("HOLDFAST_RECALL__AUTOMATIC", "false")
    expected = Answer(quoted=(*PASSAGES, FACT), reason="")
    if way in AUTOMATIC:
        expected = Answer(quoted=(), reason="recall.automatic is off")
    assert way(home, QUESTION) == expected


@pytest.mark.parametrize("way", [way for way in WAYS if way not in {ask_command, ask_inspector}])
def test_passages_of_other_sessions_are_a_setting_everywhere(
    home: Path, way: Callable[[Path, str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command and the inspector search all sessions of a project by design: they belong to none."""
    monkeypatch.setenv("HOLDFAST_ARCHIVE__CROSS_SESSION", "false")
    assert way(home, QUESTION) == Answer(quoted=(FACT,), reason="")


class TestHooks:
    def test_a_command_without_a_server_recalls_what_the_server_would(self, home: Path) -> None:
        try:
            done = run_holdfast("hook", "--home", str(home), stdin=json.dumps(make_event(QUESTION)))
        finally:
            stop_server(home)
        block = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
        assert Answer.read(block, "").quoted == (*PASSAGES, FACT)

    def test_another_process_does_not_quote_again(self, home: Path) -> None:
        answers = [ask_hooks(home, QUESTION), ask_hooks(home, QUESTION)]
        assert [answer.quoted for answer in answers] == [(*PASSAGES, FACT), (FACT,)]


def run_tool(agent: Agent, name: str) -> str:
    """Let the model of an agent call a tool with the question."""
    return agent.tools.run(ToolCall(id="call", name=name, arguments={"query": QUESTION})).text


class TestAgent:
    def test_a_prompt_gets_what_every_way_in_recalls(self, tmp_path: Path) -> None:
        """The other sessions of the agent's project count, as for hosts."""
        agent = AgentFixture(tmp_path).agent(["It listens on 5433."])
        output = agent.engine.session("told", project=agent.session.scope.project)
        output.append([{"role": "user", "content": text} for text in PASSAGES])
        output.remember(FACT)
        agent.say(QUESTION)
        report = agent.session.timeline()[0]
        block = str(agent.session.window(1).render())
        agent.close()
        assert Answer.read(block, report.recall_reason) == Answer(quoted=(*PASSAGES, FACT), reason="")

    def test_a_tool_returns_no_fact_that_is_excluded(self, tmp_path: Path) -> None:
        """A tool asks memory like everyone else."""
        agent = AgentFixture(tmp_path).agent(["Hello."])
        fact = agent.session.remember(FACT)
        assert FACT in run_tool(agent, "memory_recall")
        agent.session.exclude(facts=[fact.id])
        assert FACT not in run_tool(agent, "memory_recall")
        agent.close()
