"""What a conversation costs beside the model: how soon the first screen is there, and where the time of a turn goes."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, Final

from holdfast.messages import ToolCall
from holdfast.models.base import Prompt, Reply
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.programs import own_command
from holdfast.settings import Embedding
from holdfast_agent.agent import Agent, Records, open_engine
from holdfast_agent.notes import Notes
from holdfast_agent.sessions import Sessions, session_key
from holdfast_agent.settings import AgentSettings, ChatSettings, Workspace

__all__ = ["FIRST_SCREEN", "OWN_TIME", "first_screens", "measure"]

FIRST_SCREEN: Final = 400.0
"""Milliseconds within which the first screen should be there."""
OWN_TIME: Final = 100.0
"""Milliseconds of our own that a turn should add to the provider's time at most."""

_WINDOW: Final = 16_000
_PROMPT: Final = "›".encode()
_EDITS: Final = b"\x1b[?2004h"
"""What a prompt writes when it takes keys."""
_PATIENCE: Final = 30.0


# --- the first screen --------------------------------------------------------------


def first_screens(runs: int) -> dict[str, Any]:
    """How long after its start `holdfast chat` shows a prompt, and until the prompt takes keys, in milliseconds."""
    if os.name != "posix" or find_spec("prompt_toolkit") is None:
        return {"skipped": "needs a POSIX system and `pip install 'holdfast-memory[chat]'`"}
    with tempfile.TemporaryDirectory() as folder:
        found = [_first_screen(Path(folder)) for _ in range(runs)]
    shown, edits = zip(*found, strict=True)
    return {"runs": runs, "shown": _spread(shown), "takes_keys": _spread(edits), "target": FIRST_SCREEN}


def _first_screen(home: Path) -> tuple[float, float]:
    import pty  # noqa: PLC0415 - not every system has it

    ours, theirs = pty.openpty()
    environ = {**os.environ, "HOLDFAST_HOME": str(home), "TERM": "xterm"}
    start = time.perf_counter()
    command = own_command("chat", "--model", "echo")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=home) as child:  # noqa: S603 - our own command
        try:
            return _seen(ours, _PROMPT, start), _seen(ours, _EDITS, start)
        finally:
            child.kill()
            os.close(theirs)
            os.close(ours)


def _seen(terminal: int, wanted: bytes, start: float) -> float:
    """When something is on the screen."""
    text = b""
    while wanted not in text and time.perf_counter() - start < _PATIENCE:
        text += os.read(terminal, 1 << 16)
    return (time.perf_counter() - start) * 1000


# --- turns -------------------------------------------------------------------------


@dataclass(slots=True)
class Steps:
    """Where time goes: each moment counts for the innermost step that is under way."""

    clock: Callable[[], float] = time.perf_counter
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[str] = field(default_factory=lambda: ["other"])
    _since: float = 0.0

    def _turn(self) -> None:
        now = self.clock()
        self.spent[self._open[-1]] += (now - self._since) * 1000
        self._since = now

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what happens here for a step."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def taken(self) -> dict[str, float]:
        """What was counted since the last time."""
        self._turn()
        spent, self.spent = dict(self.spent), defaultdict(float)
        return spent


class _Provider:
    """A scripted model whose time is not ours."""

    def __init__(self, steps: Steps) -> None:
        self._steps, self._model = steps, Scripted(_answer, name="scripted", context_tokens=_WINDOW)

    name = property(lambda self: self._model.name)
    provider = property(lambda self: self._model.provider)
    context_tokens = property(lambda self: self._model.context_tokens)

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask the script."""
        with self._steps.step("provider"):
            self._model.prompts.clear()
            return self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)


def _time(owner: Any, steps: Steps, methods: Mapping[str, str]) -> None:
    """Count the time of some methods of an object for the steps that they are part of."""
    for method, step in methods.items():
        setattr(owner, method, _timed(getattr(owner, method), steps, step))


def _timed(call: Callable[..., Any], steps: Steps, step: str) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        with steps.step(step):
            return call(*given, **named)

    return timed


_SESSION_STEPS: Final = {
    "_assemble_request": "assemble",
    "append": "archive the reply",
    "count_tokens": "archive and count tokens",
    "compact": "compact",
}
_AGENT_STEPS: Final = {"build_system_prompt": "prompt", "record": "transcript", "update_entry": "sessions.json"}


def _answer(prompt: Prompt) -> Answer:
    """Notes when asked for, a short summary, and a few sentences for everything else; now and then a tool is called."""
    last = prompt.messages[-1]
    if "Pre-compaction memory flush" in last.text:
        path = next(word for word in last.text.split() if word.startswith("memory/2")).strip(".,")
        return ScriptedReply(
            calls=(ToolCall(id="note", name="write", arguments={"path": path, "content": "- a note"}),)
        )
    if last.role == "tool":
        return ScriptedReply(pieces=("Done.",))
    if not prompt.tools:
        return ScriptedReply(pieces=("## Goal\nTo go through all modules.\n",))
    if "Please list" in last.text.partition("<recalled-context")[0]:
        return ScriptedReply(calls=(ToolCall(id="look", name="read", arguments={"path": "notes.md"}),))
    return ScriptedReply(pieces=("I looked at it. ", "It is fine, and we go on with the next one as agreed. " * 6))


def measure(
    *, turns: int, clock: Callable[[], float] = time.perf_counter, progress: Callable[[int], None] = lambda _: None
) -> dict[str, Any]:
    """Talk for so many turns in a window of 16,000 tokens; our own time for each, in milliseconds, by step.

    With `time.process_time` for a clock it is the processor's time, whatever else the machine and its disk do.
    """
    steps = Steps(clock)
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        agent = _opened(Path(folder), steps)
        steps.taken()
        for number in range(turns):
            agent.say(_said(number))
            rows.append(steps.taken())
            progress(1)
        compactions = agent.conversation.entry.compaction_count
        assert agent.notes is not None
        agent.notes.close()
        agent.engine.close()
    return {"turns": turns, "compactions": compactions, "target": OWN_TIME, **_figures(rows)}


def _opened(folder: Path, steps: Steps) -> Agent:
    settings = ChatSettings(
        embedding=Embedding(provider="none"), agent=AgentSettings(workspace=Workspace(skip_bootstrap=True))
    )
    (folder / "work").mkdir()
    (folder / "work" / "notes.md").write_text("A line of notes.\n" * 40, "utf-8")
    numbers = itertools.count(1)
    model = _Provider(steps)
    records = Records()
    engine = open_engine(
        folder,
        settings=settings,
        model=model,
        root=folder / "work",
        key=session_key(),
        records=records,
        background=False,
    )
    sessions = Sessions(home=folder, clock=lambda: time.time_ns() // 1_000_000, new_id=lambda: f"{next(numbers):032x}")
    notes = Notes(folder / "work", settings, folder / "notes.db")
    agent = Agent(
        engine,
        model,
        settings=settings,
        sessions=sessions,
        key=session_key(),
        root=folder / "work",
        notes=notes,
        records=records,
    )
    _time(agent, steps, _AGENT_STEPS)
    _time(agent.session, steps, _SESSION_STEPS)
    return agent


def _said(number: int) -> str:
    what = "Please list what is in the notes." if number % 10 == 0 else f"Please look at module m{number}."
    return f"{what} We are at step {number} of the plan, and part p{number % 7} of it is next. " * 3


def _figures(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    own = [sum(row.values()) - row.get("provider", 0.0) for row in rows]
    names = sorted({name for row in rows for name in row} - {"provider"})
    each = {name: [row.get(name, 0.0) for row in rows] for name in names}
    by_step = {
        name: {"mean": round(statistics.fmean(times), 2), "max": round(max(times), 1)} for name, times in each.items()
    }
    return {"own": _spread(own), "over_target": sum(time > OWN_TIME for time in own), "steps": by_step}


def _spread(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(ordered), 1),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 1),
        "max": round(ordered[-1], 1),
    }
