"""OpenHands before 1.0: actions and observations, as a trajectory or in the rows of an evaluation's output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Message, Part, Role, Text, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, mapping, say, text, timestamp
from holdfast.transcripts.rows import read_rows

__all__ = ["OPENHANDS_HISTORY"]

_HISTORY: Final = "history"
_SPOKEN: Final = frozenset({"message", "system", "finish"})
_SILENT: Final = frozenset({"null", "change_agent_state", "agent_state_changed", "recall"})
_ABOUT_THE_ACTION: Final = frozenset(
    {"action", "thought", "id", "source", "message", "timestamp", "action_risk", "is_confirmed", "tool_call_metadata"}
)


def claims(_path: Path, head: Head) -> bool:
    """Rows with a history of events, or a list of events."""
    return any(_is_event(event) for value in head.values[:1] for event in _events(value)[:3])


def _events(value: Any) -> Sequence[Any]:
    listed = value.get(_HISTORY) if isinstance(value, Mapping) else value
    return listed if isinstance(listed, list) else ()


def _is_event(data: Any) -> bool:
    return isinstance(data, Mapping) and ("action" in data or "observation" in data)


def stream(path: Path) -> Iterator[Item]:
    """Every event of every run; a row's other fields come first, as an entry of their own."""
    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
            continue
        line, value = row
        if isinstance(value, Mapping):
            yield Entry(type="run", data={key: kept for key, kept in value.items() if key != _HISTORY}, line=line)
        yield from _run(_events(value), line)


def _run(events: Sequence[Any], line: int) -> Iterator[Item]:
    run = _Run(line)
    for event in events:
        if isinstance(event, Mapping):
            yield from say(_frame(event, line), run.messages)
        else:
            yield Problem(line, f"a JSON {type(event).__name__} in the history, not an event")


def _frame(data: Json, line: int) -> Entry:
    kind = "action" if "action" in data else "observation"
    cause = data.get("cause")
    return Entry(
        type=f"{kind}:{data.get(kind)}",
        data=data,
        line=line,
        id=None if data.get("id") is None else str(data["id"]),
        parent=None if cause is None else str(cause),
        timestamp=timestamp(data.get("timestamp")),
    )


@dataclass(slots=True)
class _Run:
    """Which call an observation answers: events of that time seldom say it."""

    line: int
    count: int = 0
    waiting: str | None = None

    def messages(self, entry: Entry) -> Sequence[Message]:
        """What an event says to the model."""
        data = entry.data
        if str(data.get("action", data.get("observation"))) in _SILENT:
            return ()
        if "action" not in data:
            return self._observation(data)
        return (self._action(data),)

    def _action(self, data: Json) -> Message:
        first, self.count = self.count == 0, self.count + 1
        words = _words(data)
        if str(data["action"]) in _SPOKEN:
            return Message(role=_role(data, first=first), parts=words)
        self.waiting = _call_id(data) or f"{self.line}.{self.count}"
        arguments = mapping(data.get("args")) or {k: v for k, v in data.items() if k not in _ABOUT_THE_ACTION}
        call = ToolCall(id=self.waiting, name=str(data["action"]), arguments=arguments)
        return Message(role="assistant", parts=(*words, call))

    def _observation(self, data: Json) -> Sequence[Message]:
        call_id = _call_id(data) or self.waiting
        if call_id is None:
            return ()
        self.waiting = None
        content = text(data.get("content"))
        result = ToolResult(
            call_id=call_id,
            content=(Text(text=content),) if content else (),
            is_error=data.get("observation") == "error",
            name=str(data.get("observation")),
        )
        return (Message(role="tool", parts=(result,)),)


def _role(data: Json, *, first: bool) -> Role:
    """Who speaks; where events do not say it, the task comes first and the rest is the agent's."""
    if data["action"] == "system":
        return "system"
    return "user" if data.get("source", "user" if first else "agent") == "user" else "assistant"


def _words(data: Json) -> tuple[Part, ...]:
    """What an action says in words; the content of any other than a message is its argument."""
    keys = ("content", "final_thought", "thought") if str(data["action"]) in _SPOKEN else ("thought",)
    arguments = mapping(data.get("args"))
    said = next((said for key in keys if (said := text(data.get(key)) or text(arguments.get(key)))), None)
    return () if said is None else (Text(text=said),)


def _call_id(data: Json) -> str | None:
    return text(mapping(data.get("tool_call_metadata")).get("tool_call_id"))


def notes(data: Json) -> About:
    """A run names its task."""
    return About(session=text(data.get("instance_id")), topic=text(mapping(data.get("issue")).get("title")))


OPENHANDS_HISTORY: Final = Reader(name="openhands_history", claims=claims, stream=stream, notes=notes)
