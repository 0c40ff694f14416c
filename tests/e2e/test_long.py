"""Weeks of conversation in a small window, over real HTTP, in a real terminal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.messages import ToolCall
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.testing.provider import ScriptedProvider, Step
from holdfast.transcripts import read
from support.e2e_model import FACTS, WINDOW, Brain, faults, too_long
from support.terminal import PROMPT, Terminal
from support.waiting import until

pytestmark = [pytest.mark.nightly, pytest.mark.untraced]  # long conversations run the same lines again

TURNS = 30
"""How many turns, in one wire format; with `HOLDFAST_E2E_TURNS` as many as it says, in both."""
WIRES = {
    "anthropic": ("anthropic/claude-test", "ANTHROPIC_BASE_URL", ""),
    "openai_chat": ("openai/gpt-test", "OPENAI_BASE_URL", "/v1"),
}
SCREEN = 6
"""The first turns, which are talked in the full terminal; in the last of them Ctrl-C is pressed while a tool runs."""


class Trouble:
    """What goes wrong on the way, once each: a tool that takes too long, an overflow, silence."""

    def __init__(self, turns: int) -> None:
        self.middle = turns // 2
        self.left: dict[str, Step] = {
            f"turn {SCREEN}:": ScriptedReply(text="I run it.", calls=(_sleep(),)),
            f"turn {turns // 3}:": too_long(),
            f"turn {self.middle}:": Hang(),
        }

    def __call__(self, text: str) -> Step | None:
        """The trouble that a turn meets."""
        found = next((turn for turn in self.left if turn in text), None)
        return None if found is None else self.left.pop(found)


def _sleep() -> ToolCall:
    return ToolCall(id="call_sleep", name="bash", arguments={"command": "echo asleep; sleep 60"})


def line(number: int) -> str:
    """What the user says in a turn; in the first ones something to remember."""
    facts = [said for said, _ in FACTS.values()]
    fact = facts[number - 1] if number <= len(facts) else f"Please look at module m{number} and its part p{number % 7}."
    return f"turn {number}: {fact} " + f"We go through item {number} step by step. " * 4


@contextmanager
def talking(
    folder: Path, provider: ScriptedProvider, wire: str, *arguments: str, trim: str = "false"
) -> Iterator[Terminal]:
    """A terminal that talks to the provider in this wire format; without trimming, which spares compactions."""
    model, variable, path = WIRES[wire]
    keys = {"ANTHROPIC_API_KEY": "sk-test", "OPENAI_API_KEY": "sk-test"}
    environ = {variable: provider.url + path, **keys, "HOLDFAST_TRIM__ENABLED": trim}
    given = ["--model", model, "--context-tokens", str(WINDOW), "--yes", *arguments]
    with Terminal(folder, *given, environ=environ) as terminal:
        yield terminal


def transcript_of(folder: Path) -> Path:
    """The one conversation that there is."""
    (file,) = (folder / "memory" / "agents" / "main" / "sessions").glob("*.jsonl")
    return file


def entries(folder: Path) -> list[dict[str, Any]]:
    """The transcript, line by line."""
    return [json.loads(text) for text in transcript_of(folder).read_text("utf-8").split("\n") if text]


@pytest.mark.parametrize("wire", WIRES if "HOLDFAST_E2E_TURNS" in os.environ else ["openai_chat"])
def test_a_long_conversation_forgets_nothing(wire: str, tmp_path: Path) -> None:
    """Compactions with notes before each, a kill, an overflow, Ctrl-C: every fact is there when it is needed."""
    turns = int(os.environ.get("HOLDFAST_E2E_TURNS", TURNS))
    trouble = Trouble(turns)
    brain = Brain(before=trouble)
    with ScriptedProvider(brain) as provider:
        _begin(tmp_path, provider, wire)
        with talking(tmp_path, provider, wire, "--plain") as terminal:
            _talk(terminal, SCREEN + 1, trouble.middle)
            terminal.type(line(trouble.middle))
            until(lambda: not trouble.left)
            terminal.kill()
        with talking(tmp_path, provider, wire, "--plain") as terminal:
            _talk(terminal, trouble.middle + 1, turns)
            assert terminal.leave() == 0
        with talking(tmp_path, provider, wire, trim="true") as terminal:  # there is always room for what is recalled
            for question, (_, value) in FACTS.items():
                assert value in terminal.say(question, until="ANSWER ")
            assert terminal.leave() == 0
    assert faults(provider.bodies, wire) == []
    assert brain.from_memory >= len(FACTS) // 2  # the last facts may still be in the window
    assert _compactions(tmp_path, brain) >= max(1, 8 * turns // 300)
    _follows_v3(tmp_path)


def _begin(folder: Path, provider: ScriptedProvider, wire: str) -> None:
    """Talk in the full terminal, and break off a tool."""
    with talking(folder, provider, wire) as terminal:
        _talk(terminal, 1, SCREEN)
        terminal.type(line(SCREEN))
        terminal.wait("bash: echo asleep")
        terminal.interrupt()
        terminal.wait("Interrupted")
        terminal.wait(PROMPT)
        assert terminal.leave() == 0


def _talk(terminal: Terminal, first: int, last: int) -> None:
    for number in range(first, last):
        terminal.say(line(number), until=f"Noted {number}.")


def _compactions(folder: Path, brain: Brain) -> int:
    """How many there were; before each the day's note grew by a line, which long cuts do too."""
    count = len([entry for entry in entries(folder) if entry["type"] == "compaction"])
    notes = "".join(file.read_text("utf-8") for file in sorted((folder / "work" / "memory").glob("*.md")))
    written = [int(number) for number in re.findall(r"- note (\d+)", notes)]
    assert written == list(range(1, brain.asked["notes"] + 1))
    assert count <= len(written)
    return count


def _follows_v3(folder: Path) -> None:
    """The transcript is a tree that our reader reads whole: every id once, every parent before its child."""
    header, *others = entries(folder)
    assert (header["type"], header["version"]) == ("session", 3)
    known: set[str | None] = {None}
    for entry in others:
        assert entry["parentId"] in known
        assert entry["id"] not in known
        known.add(entry["id"])
    transcript = read(transcript_of(folder))
    assert transcript.format == "pi"
    assert not transcript.problems
    calls = [call.id for message in transcript.messages for call in message.calls]
    results = [result.call_id for message in transcript.messages for result in message.results]
    assert sorted(calls) == sorted(results)
