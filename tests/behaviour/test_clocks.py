"""Clocks that are wrong by thousands of years: in messages, in the engine, in the agent."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli import holdfast
from holdfast.engine import Engine
from holdfast.messages import Message, Text
from holdfast.settings import Archive, Compaction, Embedding, Pruning, Search, Settings
from holdfast_agent.commands import run
from holdfast_agent.settings import SessionSettings
from support.agent_fixture import BASE, AgentFixture, change_agent, talker
from support.waiting import UNHURRIED

CLOCKS = (
    -62_135_596_800_000,  # the year 1
    -(10**18),
    -1,
    0,
    253_402_300_799_999,  # the last moment of the year 9999
    253_402_300_800_000,
    2**63,
    -(2**63) - 1,
    10**30,
)
PLAIN = Settings(
    embedding=Embedding(provider="none"),
    recall=UNHURRIED,
    compaction=Compaction(reserve_tokens=0, reserve_tokens_floor=0),
)
TIMED = msgspec.structs.replace(
    PLAIN, pruning=Pruning(mode="cache-ttl"), search=Search(fusion="weighted"), archive=Archive(eviction_days=30)
)


def make_message(role: Any, text: str, time: int | None) -> Message:
    """Return a message with a time."""
    return Message(role=role, parts=(Text(text=text),), timestamp=time)


@pytest.mark.parametrize("settings", [PLAIN, TIMED], ids=["plain", "by time"])
def test_an_engine_takes_any_clock(tmp_path: Path, settings: Settings) -> None:
    """With any times of messages and any clock, every turn is archived, cut and answered without a warning."""
    chance = random.Random(7)  # noqa: S311 - any will do
    conversation = [make_message("user", "The staging database listens on port 6543. 预发布端口是 7001。", None)]
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        engine._memory.clock = lambda: chance.choice(CLOCKS)
        for turn, time in enumerate((None, *CLOCKS)):
            conversation.append(make_message("assistant", f"change{turn} " * 200, time))
            conversation.append(
                make_message("user", f"Which port was it two weeks ago, in May, 昨天? Step {turn}.", time)
            )
            window = engine.session("s").assemble(conversation, limit=3_000)
            assert window.report.warnings == ()
            assert f"Step {turn}" in str(window.render())
        assert engine.stats().messages == len(conversation)
        assert engine.session("s").search("Which port two weeks ago")
        engine.session("s").remember("The API listens on port 8443")
        engine.session("s").learn()
        engine.work()
        engine.session("s").compact(conversation, limit=3_000)
        assert len(engine.session("s").timeline()) == len(CLOCKS) + 1


def test_commands_show_what_has_no_date(tmp_path: Path) -> None:
    """Messages and facts of any time are searched, printed and exported; a time that is not a date is left out."""
    with Engine.open(tmp_path, settings=PLAIN, background=False) as engine:
        for time in CLOCKS:
            engine.session("s").append([make_message("user", f"The port was {abs(time) % 9973} then.", time)])
            engine._memory.clock = lambda time=time: time  # type: ignore[misc]  # the clock of this round
            engine.session("s").remember(f"The port of {time} is known")
    command: click.Command = holdfast
    environment = {"HOLDFAST_HOME": str(tmp_path), "HOLDFAST_EMBEDDING__PROVIDER": "none", "HOME": str(tmp_path)}
    for arguments in (
        ["search", "port then"],
        ["recall", "which port was it then, two weeks ago?"],
        ["get", *map(str, range(1, len(CLOCKS) + 1))],
        ["facts"],
        ["export", str(tmp_path / "out.md"), "--to", "markdown"],
        ["export", str(tmp_path / "out.jsonl")],
    ):
        done = CliRunner().invoke(command, arguments, env=environment)
        assert (done.exit_code, done.exception) == (0, None), arguments
    exported = (tmp_path / "out.md").read_text()
    assert "0001-01-01 00:00" in exported
    assert "9999-12-31 23:59" in exported
    assert exported.count("The port was") == len(CLOCKS)


@pytest.mark.variants
@pytest.mark.parametrize("time", CLOCKS)
def test_an_agent_takes_any_clock(tmp_path: Path, time: int) -> None:
    """A conversation in the terminal is kept, ended and begun again with any clock."""
    settings = change_agent(BASE, session=SessionSettings(memory_file=True), timezone="Asia/Tokyo")
    fixture = AgentFixture(tmp_path, settings=settings, now=time)
    agent = fixture.agent(talker(lambda _: "Noted."))
    try:
        assert agent.say("The port is 6543.").text == "Noted."
        fixture.now = CLOCKS[(CLOCKS.index(time) + 1) % len(CLOCKS)]
        assert agent.say("And the host is blue.").text == "Noted."
        run(agent, "/new")
        assert agent.say("Hello again.").text == "Noted."
    finally:
        agent.close()
