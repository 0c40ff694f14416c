"""The session of the demo: six weeks of a payments migration, with generated tool output.

`story.txt` is the story. `= TIME TITLE` begins a scene, `U` is a user message, `A` an agent message, and
`T tool argument="value" ... => KIND SUBJECT` a call with the kind of its output; lines that begin with `|` are part of
that output. The same seed makes the same session, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast.cli.story.outputs import MAKERS, insert_lines

__all__ = ["QUESTIONS", "SYSTEM", "Question", "lines", "write"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question to ask at the end of the session, and the text that answers it."""

    question: str
    answer: str


QUESTIONS: Final = (
    Question("How long do idempotency keys of refunds live, by which setting?", "REFUND_KEY_TTL_HOURS = 36"),
    Question("Who owns the settlement file format at Nordbank?", "Marta Lindqvist"),
    Question("At how many seconds of ledger lag does the alert fire?", "45 seconds"),
    Question("How many payouts were stuck in the incident of March 19?", "1,847 payouts"),
    Question("对账任务最后定在每天几点跑?", "三点四十分"),
)
"""One of them in Chinese, one about a correction, one about a number."""

_ARGUMENT: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MESSAGE_INTERVAL: Final = timedelta(seconds=21)
SYSTEM: Final = (
    "You are a careful engineer who works on the payments service tidepay. Look before you change anything,"
    " run the tests after every change, and say what you found in plain words."
)


@dataclass(slots=True)
class _Script:
    """The records of the session file so far."""

    rng: Random
    now: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    records: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0

    def add(self, role: str, content: list[dict[str, Any]], **more: Any) -> None:
        self.now += _MESSAGE_INTERVAL
        moment = int(self.now.timestamp() * 1000)
        message = {"role": role, "content": content, **more, "timestamp": moment}
        self._entry("message", message=message)

    def _entry(self, kind: str, **data: Any) -> None:
        before = self.records[-1]["id"] if self.records else None
        number = f"{len(self.records) + 1:08x}"
        stamp = self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.records.append({"type": kind, "id": number, "parentId": before, "timestamp": stamp, **data})

    def add_call(self, line: str, words: str, lines: list[str]) -> None:
        """Add a tool call with the agent's text, and its result."""
        request, _, output = line.partition(" => ")
        tool, _, rest = request.partition(" ")
        kind, _, subject = output.partition(" ")
        self.calls += 1
        number = f"toolu_{self.calls:04d}"
        arguments = {name: value.replace('\\"', '"') for name, value in _ARGUMENT.findall(rest)}
        text = [{"type": "text", "text": words}] if words else []
        self._add_reply([*text, {"type": "toolCall", "id": number, "name": tool, "arguments": arguments}], "toolUse")
        printed = insert_lines(MAKERS[kind](self.rng, subject), lines, self.rng)
        content = [{"type": "text", "text": printed}]
        self.add("toolResult", content, toolCallId=number, toolName=tool, isError=False)

    def _add_reply(self, content: list[dict[str, Any]], why: str) -> None:
        model = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-sonnet-4-5"}
        self.add("assistant", content, **model, stopReason=why)

    def add_text(self, words: str) -> None:
        """Add a reply without a call."""
        self._add_reply([{"type": "text", "text": words}], "stop")

    def start_scene(self, moment: str) -> None:
        """Advance the time to the next scene."""
        self.now = max(self.now, datetime.fromisoformat(f"{moment}+00:00"))


def _parse_story(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the steps of the story: their mark, their text, and the lines for an output."""
    step: tuple[str, str, list[str]] | None = None
    for line in filter(None, text.splitlines()):
        if line.startswith("|"):
            if step:
                step[2].append(line[2:])
            continue
        if step:
            yield step
        step = (line[0], line[2:], [])
    if step:
        yield step


def lines(seed: int = 1) -> list[str]:
    """Return the session as lines of a file that pi and OpenClaw can read."""
    story = files("holdfast.cli.story").joinpath("story.txt").read_text("utf-8")
    script = _Script(Random(seed))  # noqa: S311 - a story, not a secret
    waiting = ""
    steps = list(_parse_story(story))
    for (mark, words, quoted), (following, _, _) in zip(steps, [*steps[1:], ("=", "", [])], strict=True):
        if mark == "=":
            script.start_scene(words[:16])
        elif mark == "U":
            script.add("user", [{"type": "text", "text": words}])
        elif mark == "A" and following == "T":
            waiting = words
        elif mark == "A":
            script.add_text(words)
        else:
            script.add_call(words, waiting, quoted)
            waiting = ""
    head = {"type": "session", "version": 3, "id": "5e551011-0000-4000-8000-000000000001"}
    head |= {"timestamp": "2026-03-02T09:00:00.000Z", "cwd": "/home/ines/tidepay"}
    return [json.dumps(entry, ensure_ascii=False) for entry in (head, *script.records)]


def write(path: Path, *, seed: int = 1) -> None:
    """Write the session to a file."""
    path.write_text("\n".join([*lines(seed), ""]), "utf-8")
