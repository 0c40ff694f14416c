"""Turns of work, which ask nothing, get small blocks or none; questions between them are answered.

Every way in makes the same turns in a project whose earlier session did the same work and states some facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.hooks.handlers import HostHooks
from holdfast.memory.block_room import MAX_STATEMENT_TOKENS
from holdfast.memory.query import asks_nothing
from holdfast.server.rpc import Rpc
from holdfast.settings import Archive, Settings
from holdfast.tokens import count_text
from support.cases import each
from support.waiting import UNHURRIED
from support.work_turns import FACTS, answer_work, list_work, make_earlier_session

TURNS = 24
PROJECT = "/srv/shop"
BLOCK = re.compile(r"<recalled-context.*?</recalled-context[^>]*>", re.DOTALL)


@dataclass
class Run:
    """The blocks of the turns of work, and for each question what the model sees."""

    blocks: list[str]
    shown: list[str]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Open a memory with an earlier session."""
    settings = Settings(archive=Archive(cross_session=True), recall=UNHURRIED)
    with Engine.open(tmp_path / "memory", settings=settings, background=False) as one:
        one.session("earlier", project=PROJECT).assemble(make_earlier_session(32), limit=200_000, recall=False)
        one.work()
        yield one


def run_session(engine: Engine) -> Run:
    """Make the turns as the proxy and the adapters do: the question is the last message."""
    session = engine.session("now", project=PROJECT)
    history: list[dict[str, Any]] = []
    run = Run([], [])
    for turn, request in enumerate(list_work(TURNS)):
        history.append({"role": "user", "content": request})
        window = session.assemble(history, limit=200_000)
        (message,) = [message for message in window.messages if message.text.startswith(request)][-1:]
        run.blocks.append("".join(BLOCK.findall(message.text.replace(window.overview, ""))))
        history += answer_work(turn)
        session.assemble(history[:-1], limit=200_000)
    for question in FACTS:
        history.append({"role": "user", "content": question})
        window = session.assemble(history, limit=200_000)
        run.shown.append("\n".join(message.text for message in window.messages))
        history.append({"role": "assistant", "content": "Fine."})
    return run


def run_hooks(engine: Engine, folder: Path) -> Run:
    """Make the turns as a host with hooks does, which writes a transcript."""
    hooks = HostHooks(engine._memory)
    file = folder / "transcript.jsonl"
    lines: list[dict[str, Any]] = []
    run = Run([], [])

    def write(role: str, content: Any) -> None:
        uuid = f"00000000-0000-4000-8000-{len(lines):012d}"
        time = f"2026-03-02T10:{len(lines) // 60:02d}:{len(lines) % 60:02d}.000Z"
        about = {"type": role, "uuid": uuid, "parentUuid": lines[-1]["uuid"] if lines else None, "sessionId": "s1"}
        lines.append({**about, "cwd": PROJECT, "timestamp": time, "message": {"role": role, "content": content}})

    def send(event: str, **fields: Any) -> str:
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        about = {"session_id": "s1", "transcript_path": str(file), "cwd": PROJECT, "hook_event_name": event}
        output = hooks.handle({**about, **fields})
        return str(output.get("hookSpecificOutput", {}).get("additionalContext", ""))

    overview = send("SessionStart", source="startup")
    for turn, request in enumerate(list_work(TURNS)):
        run.blocks.append(send("UserPromptSubmit", prompt=request))
        write("user", request)
        call, result, reply = answer_work(turn)
        arguments = json.loads(call["tool_calls"][0]["function"]["arguments"])
        write("assistant", [{"type": "tool_use", "id": f"call_{turn}", "name": "Bash", "input": arguments}])
        write("user", [{"type": "tool_result", "tool_use_id": f"call_{turn}", "content": result["content"]}])
        write("assistant", [{"type": "text", "text": reply["content"]}])
        send("Stop")
    earlier = "\n".join([overview, *run.blocks])
    for question in FACTS:
        run.shown.append(earlier + send("UserPromptSubmit", prompt=question))
    return run


def run_rpc(engine: Engine) -> Run:
    """Make the turns as the plugin of OpenClaw does: the question follows the window."""
    rpc = Rpc(engine)
    history: list[dict[str, Any]] = []
    run = Run([], [])

    def say(role: str, *content: dict[str, Any], **fields: Any) -> None:
        history.append({"role": role, "content": [*content], "timestamp": 1_770_000_000_000 + len(history), **fields})

    def assemble(question: str) -> dict[str, Any]:
        about = {"session": "now", "project": PROJECT, "format": "pi", "provider": "pi", "limit": 200_000}
        answer: dict[str, Any] = rpc.call("assemble", {**about, "messages": history, "question": question})
        return answer

    for turn, request in enumerate(list_work(TURNS)):
        run.blocks.append(assemble(request)["block"])
        call, result, reply = answer_work(turn)
        say("user", {"type": "text", "text": request})
        arguments = json.loads(call["tool_calls"][0]["function"]["arguments"])
        say("assistant", {"type": "toolCall", "id": f"call{turn}", "name": "bash", "arguments": arguments})
        say("toolResult", {"type": "text", "text": result["content"]}, toolCallId=f"call{turn}", toolName="bash")
        say("assistant", {"type": "text", "text": reply["content"]})
    for question in FACTS:
        answer = assemble(question)
        run.shown.append(answer["block"] + json.dumps(answer["messages"], ensure_ascii=False))
    return run


@pytest.mark.variants
@pytest.mark.parametrize("way", ["session", "hooks", "rpc"])
def test_turns_of_work_get_small_blocks_or_none(engine: Engine, tmp_path: Path, way: str) -> None:
    """A command such as "run the tests again" gets none, and questions are answered as before."""
    run = {"session": run_session, "rpc": run_rpc}[way](engine) if way != "hooks" else run_hooks(engine, tmp_path)
    sizes = [count_text(block) if block else 0 for block in run.blocks]
    commands = [size for size, request in zip(sizes, list_work(TURNS), strict=True) if asks_nothing(request)]
    assert len(commands) >= TURNS // 3
    assert not any(commands)
    assert max(sizes) <= MAX_STATEMENT_TOKENS
    assert sum(sizes) <= TURNS * MAX_STATEMENT_TOKENS // 2
    for shown, (_, answer) in zip(run.shown, FACTS.values(), strict=True):
        assert answer in shown


@each(
    "text",
    [
        "Run the tests again.", "Now commit it.", "Can you run the tests again?", "Try again",
        "Rebase on main and push the branch.", "fix it", "Undo that", "run all tests once more, then commit",
        "Run the linter and fix what it reports.", "再跑一遍测试。", "运行测试然后提交", "提交吧",
        "テストをもう一度実行して。", "コミットしてください", "테스트 다시 실행해 줘", "Committe das.",
    ],
)  # fmt: skip
def test_a_command_asks_nothing(text: str) -> None:
    """Nothing has to be recalled for it."""
    assert asks_nothing(text)


@each(
    "text",
    [
        "Fix the failing test in importer.py.", "run the migration for the ledger", "What did we commit?", "deploy it",
        "push the release date to Friday", "merge the customer lists", "Which tests fail?",
        "把 importer.py 里的调试输出删掉，然后提交。", "测试用例放在哪里？", "テストはどこですか", "again " * 99,
    ],
)  # fmt: skip
def test_a_request_about_something_is_no_command(text: str) -> None:
    """Memory may have something about it."""
    assert not asks_nothing(text)
