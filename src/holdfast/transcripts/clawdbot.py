"""Clawdbot's first session files: a message on each line, tool calls and results as roles of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, mapping, read_entries, text, timestamp

__all__ = ["CALL", "CLAWDBOT"]

NAME: Final = "clawdbot"
CALL: Final = "tool_call"
_RESULT: Final = "tool_result"
_IDS: Final = ("id", "toolCallId", "tool_call_id", "call_id")


def claims(_path: Path, head: Head) -> bool:
    """Lines with the role of a tool call."""
    return any(isinstance(value, Mapping) and value.get("role") == CALL for value in head.values)


def stream(path: Path) -> Iterator[Item]:
    """Every line of a session file."""
    return read_entries(path, frame=_frame, messages=_Calls().messages)


def _frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("role") or data.get("type") or ""),
        data=data,
        line=line,
        timestamp=timestamp(data.get("timestamp")),
    )


@dataclass(slots=True)
class _Calls:
    """The calls that wait for a result. Lines without ids pair up by name, in order."""

    waiting: list[ToolCall] = field(default_factory=list)
    count: int = 0

    def messages(self, entry: Entry) -> Sequence[Message]:
        """What a line says to the model."""
        data = entry.data
        if "role" not in data:
            return ()
        if entry.type == CALL:
            message = Message(role="assistant", parts=(self._call(data),))
        elif entry.type == _RESULT:
            message = Message(role="tool", parts=(self._result(data),))
        else:
            message = FORMATS["pi"].read(data, f"line {entry.line}")
        return (message.read_from(data, format=NAME),)

    def _call(self, data: Json) -> ToolCall:
        self.count += 1
        call = ToolCall(
            id=_id(data) or f"call-{self.count}",
            name=str(data.get("name") or ""),
            arguments=mapping(data.get("params") or data.get("arguments")),
        )
        self.waiting.append(call)
        return call

    def _result(self, data: Json) -> ToolResult:
        name, call_id, content = text(data.get("name")), _id(data), data.get("content")
        candidates = [call for call in self.waiting if call.id == call_id or (not call_id and call.name == name)]
        if candidates:
            self.waiting.remove(candidates[0])
        return ToolResult(
            call_id=candidates[0].id if candidates else call_id or "",
            content=(Text(text=content if isinstance(content, str) else str(content)),) if content else (),
            is_error=bool(data.get("isError") or data.get("error")),
            name=name,
        )


def _id(data: Json) -> str | None:
    return next((found for key in _IDS if (found := text(data.get(key)))), None)


def notes(data: Json) -> About:
    """Lines may name the model, nothing else."""
    return About(model=text(data.get("model")))


CLAWDBOT: Final = Reader(name=NAME, claims=claims, stream=stream, notes=notes)
