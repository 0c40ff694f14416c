"""A chat with tools and a real model. What is checked holds whatever the model writes, and whether it calls tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

from msgspec.structs import replace

from holdfast.messages import Message
from holdfast.settings import Compaction, ModelSettings
from holdfast.transcripts import read
from holdfast_agent import commands
from holdfast_agent.agent import MAX_STEPS, Agent, Records, open_engine
from holdfast_agent.sessions import Sessions, session_key
from support.agent_fixture import BASE, Watched
from support.real_model import CONTEXT_TOKENS, RecordingModel

SETTINGS = replace(
    BASE,
    model=ModelSettings(context_tokens=CONTEXT_TOKENS),
    # Short replies: a weak model goes on until it is stopped.
    compaction=Compaction(reserve_tokens=400, reserve_tokens_floor=0, keep_recent_tokens=400),
)
WORK = (
    "Please look at module {0}, which is long, and say in one sentence whether it is tested. " + "It has tests. " * 40
)


def open_agent(folder: Path, model: RecordingModel, view: Watched) -> Agent:
    """Open an agent with a real model; every tool may run."""
    root = folder / "work"
    root.mkdir(exist_ok=True)
    (root / "notes.txt").write_text("The release is on Tuesday.\n", "utf-8")
    records = Records()
    engine = open_engine(
        folder / "memory",
        settings=SETTINGS,
        model=model,
        root=root,
        key=session_key(),
        records=records,
        background=False,
    )
    return Agent(
        engine,
        model,
        settings=SETTINGS,
        sessions=Sessions(
            home=folder / "memory",
            clock=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: str(uuid.uuid4()),
        ),
        key=session_key(),
        root=root,
        confirm=lambda _: True,
        view=view,
        records=records,
    )


def list_said(agent: Agent) -> list[str]:
    """List the user's messages in the transcript of the conversation."""
    messages: list[Message] = read(agent.conversation.transcript.file).messages
    return [message.text for message in messages if message.role == "user"]


def test_a_conversation_is_compacted_goes_on_and_is_remembered(model: RecordingModel, tmp_path: Path) -> None:
    """Eight turns with tools, a compaction near the limit and one on request, and a new conversation after that."""
    view = Watched()
    agent = open_agent(tmp_path, model, view)
    said = [
        "Remember that the staging database listens on port 6543.",
        "Read the file notes.txt with your read tool. When is the release?",
        *(WORK.format(number) for number in range(3)),
        "缓存改用 Redis。请用一句话回答：好的。",
    ]
    for text in said:
        turn = agent.say(text)
        assert not turn.interrupted
        assert 1 <= turn.steps <= MAX_STEPS
    compacted = commands.run(agent, "/compact").text
    assert compacted.startswith(("Compacted", "Nothing to compact")) or any(
        "Compacted" in each for each in view.notices
    )
    asked = "Which port does the staging database use?"
    agent.say(asked)
    assert "6543" in str(agent.last_window().render())
    assert list_said(agent) == [*said, asked]
    archived = {row.message.text for row in agent.session.messages()}
    assert archived >= {*said, asked}

    commands.run(agent, "/new")
    assert list_said(agent) == []
    agent.engine.work()
    turn = agent.say(asked)
    assert turn.steps >= 1
    assert "6543" in str(agent.last_window().render())
    agent.close()
    print(model.describe(), *view.notices, sep="\n")
    model.check_requests()


def test_the_command_answers_and_its_transcript_has_it_all(model_name: str, tmp_path: Path) -> None:
    """Two turns of one conversation, each in a process of its own."""
    own = {"HOME": str(tmp_path), "HOLDFAST_HOME": str(tmp_path / "memory"), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    command = [sys.executable, "-m", "holdfast", "chat", "--model", model_name, "--json"]
    command += ["--context-tokens", str(CONTEXT_TOKENS)]
    for said in ("Say hello.", "Say goodbye."):
        done = subprocess.run(
            [*command, "-p", said],
            input="",
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **own},
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["usage"]["output"] > 0
    (file,) = (tmp_path / "memory" / "agents" / "main" / "sessions").glob("*.jsonl")
    assert [message.role for message in read(file).messages[:2]] == ["user", "assistant"]
