"""An agent with a scripted model, in a temporary folder; everything else is real."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.compaction.events import Hooks
from holdfast.messages import ToolCall, ToolResult
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.settings import Embedding
from holdfast_agent.agent import Agent, Records, open_engine
from holdfast_agent.sessions import Sessions, session_key
from holdfast_agent.settings import AgentSettings, ChatSettings, Workspace
from support.waiting import UNHURRIED

__all__ = ["BASE", "AgentFixture", "Watched", "change_agent", "talker"]

BASE = ChatSettings(
    embedding=Embedding(provider="none"),
    recall=UNHURRIED,
    agent=AgentSettings(workspace=Workspace(skip_bootstrap=True)),
)
MORNING = 1_790_000_000_000


def change_agent(settings: ChatSettings, **changes: Any) -> ChatSettings:
    """Return the settings with other sections of the agent."""
    return replace(settings, agent=replace(settings.agent, **changes))


@dataclass
class Watched:
    """A view that records what it is shown."""

    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    work: list[str] = field(default_factory=list)
    on_text: Callable[[], object] = field(default=lambda: None)
    on_call: Callable[[], object] = field(default=lambda: None)

    def text(self, piece: str) -> None:
        """A piece of the reply."""
        self.texts.append(piece)
        self.on_text()

    def call(self, call: ToolCall) -> None:
        """A tool is about to run."""
        self.calls.append(call)
        self.on_call()

    def result(self, result: ToolResult) -> None:
        """A tool has answered."""
        self.results.append(result)

    def notice(self, text: str) -> None:
        """Something that the user should know."""
        self.notices.append(text)

    def working(self, what: str) -> None:
        """What takes a while."""
        self.work.append(what)


@dataclass
class AgentFixture:
    """Opens agents over one folder, with a clock that advances one millisecond per reading."""

    folder: Path
    settings: ChatSettings = BASE
    now: int = MORNING
    view: Watched = field(default_factory=Watched)
    allow: bool = True
    memory: Path | None = None

    def clock(self) -> int:
        """The time."""
        self.now += 1
        return self.now

    def agent(self, steps: Any, *, window: int = 200_000, hooks: Hooks | None = None) -> Agent:
        """Open an agent whose model replies with these steps."""
        model = Scripted(steps, name="scripted/test", context_tokens=window)
        numbers = itertools.count(self.now)
        (self.folder / "work").mkdir(exist_ok=True)
        records = Records()
        engine = open_engine(
            self.memory or self.folder / "memory",
            settings=self.settings,
            model=model,
            root=self.folder / "work",
            key=session_key(),
            records=records,
            hooks=hooks,
            background=False,
        )
        return Agent(
            engine,
            model,
            settings=self.settings,
            sessions=Sessions(home=self.folder, clock=self.clock, new_id=lambda: f"{next(numbers):032x}"),
            key=session_key(),
            root=self.folder / "work",
            confirm=lambda _: self.allow,
            view=self.view,
            records=records,
        )


def talker(answers: Callable[[str], str]) -> Callable[[Prompt], Answer]:
    """Make a model that replies to the last user message, writes a note at a flush, and summarises briefly."""

    def answer(prompt: Prompt) -> Answer:
        last = prompt.messages[-1]
        if "Pre-compaction memory flush" in last.text:
            return ScriptedReply(
                calls=(ToolCall(id="w", name="write", arguments={"path": _note(last.text), "content": "- x"}),)
            )
        if last.role == "tool":
            return "NO_REPLY"
        if not prompt.tools:
            return "## Goal\nTalk about modules.\n"
        return answers(last.text)

    return answer


def _note(text: str) -> str:
    return next(word for word in text.split() if word.startswith("memory/2")).strip(".,")
