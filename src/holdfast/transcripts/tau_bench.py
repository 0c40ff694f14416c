"""tau-bench: a conversation on each line, as it was shown (`user: ...`, `assistant: ...`, `tool: ...`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Role, Text, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, read_entries, text

__all__ = ["TAU_BENCH"]

_KEY: Final = "messages_display"
_SPEAKER: Final = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant"}
_CALLED: Final = "None"  # an assistant that only calls a tool has no text, and is shown like this


def claims(_path: Path, head: Head) -> bool:
    """Rows with a conversation as it was shown."""
    return any(isinstance(value, Mapping) and isinstance(value.get(_KEY), str) for value in head.values)


def stream(path: Path) -> Iterator[Item]:
    """Each row as an entry with all of its messages."""
    return read_entries(path, frame=_frame, messages=_messages)


def _frame(data: Json, line: int) -> Entry:
    return Entry(type="conversation", data=data, line=line)


def _messages(entry: Entry) -> Sequence[Message]:
    """The turns of a row. Calls were not shown: their names and arguments stay empty."""
    shown = _SPEAKER.split(str(entry.data.get(_KEY) or ""))
    turns = list(zip(shown[1::2], shown[2::2], strict=True))
    return [_turn(entry.line, index, turns) for index in range(len(turns))]


def _turn(line: int, index: int, turns: Sequence[tuple[str, str]]) -> Message:
    role, said = turns[index][0], turns[index][1].removesuffix("\n")
    answered = index + 1 < len(turns) and turns[index + 1][0] == "tool"
    if role == "tool":
        return Message(role="tool", parts=(ToolResult(call_id=f"{line}.{index}", content=(Text(text=said),)),))
    words = () if answered and said == _CALLED else (Text(text=said),)
    calls = (ToolCall(id=f"{line}.{index + 1}", name="", arguments={}),) if answered and role == "assistant" else ()
    return Message(role=_ROLES[role], parts=(*words, *calls))


def notes(data: Json) -> About:
    """Rows may name their task."""
    return About(session=text(data.get("task_id")))


TAU_BENCH: Final = Reader(name="tau_bench", claims=claims, stream=stream, notes=notes)
