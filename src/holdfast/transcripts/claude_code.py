"""Claude Code: `~/.claude/projects/<cwd>/<session>.jsonl`, one content block of a reply on each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, look_back, mapping, read_entries, text, timestamp

__all__ = ["CLAUDE_CODE"]

_SPOKEN: Final = frozenset({"user", "assistant"})
_OWN_TYPES: Final = frozenset(
    {
        *("file-history-snapshot", "custom-title", "ai-title", "queue-operation", "last-prompt"),
        *("api-request-blob", "permission-mode", "agent-name"),
    }
)
_MAX_HELD: Final = 64


def claims(_path: Path, head: Head) -> bool:
    """Records that carry Claude Code's ids, or one of its types of metadata."""
    return any(isinstance(value, Mapping) and _is_own(value) for value in head.values)


def _is_own(data: Json) -> bool:
    if "type" not in data:
        return False
    return "parentUuid" in data or "leafUuid" in data or str(data["type"]) in _OWN_TYPES


def stream(path: Path) -> Iterator[Item]:
    """Every record of a session file, each after the record it follows."""
    return look_back(_in_order(read_entries(path, frame=_frame, messages=_messages)), _count_once)


def _in_order(items: Iterator[Item]) -> Iterator[Item]:
    """Hold a record back until the record it follows has passed: results are written before their calls at times.

    A record whose parent is in another file is held until `_MAX_HELD` records wait, so that memory is bounded.
    """
    passed: set[str] = set()
    held: dict[str, list[Entry]] = {}
    for item in items:
        parent = _follows(item) if isinstance(item, Entry) else None
        if isinstance(item, Entry) and parent is not None and parent not in passed:
            held.setdefault(parent, []).append(item)
            if sum(map(len, held.values())) <= _MAX_HELD:
                continue
            yield from _release(next(iter(held)), passed, held)
        else:
            yield item
            if isinstance(item, Entry) and item.id is not None:
                yield from _release(item.id, passed, held)
    while held:
        yield from _release(next(iter(held)), passed, held)


def _follows(entry: Entry) -> str | None:
    return text(entry.data.get("sourceToolAssistantUUID")) or entry.parent


def _release(parent: str, passed: set[str], held: dict[str, list[Entry]]) -> Iterator[Entry]:
    """Pass on what waits for a record, in file order, and what waits for that."""
    passed.add(parent)
    waiting = deque(held.pop(parent, ()))
    while waiting:
        entry = waiting.popleft()
        yield entry
        if entry.id is not None:
            passed.add(entry.id)
            waiting.extend(held.pop(entry.id, ()))


def _frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("type", "")),
        data=data,
        line=line,
        id=text(data.get("uuid")),
        parent=text(data.get("parentUuid")),
        timestamp=timestamp(data.get("timestamp")),
        sidechain=bool(data.get("isSidechain")),
    )


def _messages(entry: Entry) -> Sequence[Message]:
    message = entry.data.get("message")
    if entry.type not in _SPOKEN and not (entry.type == "system" and isinstance(message, Mapping)):
        return ()
    if not isinstance(message, Mapping):
        raise FormatError("no message in it", where=f"line {entry.line}")
    return (FORMATS["anthropic"].read(message, f"line {entry.line}: message"),)


def _count_once(held: deque[Item], entry: Entry) -> None:
    """Usage stands on every line of a reply, complete on the last one only: take it off the earlier ones."""
    reply = _reply_id(entry)
    if reply is None:
        return
    for index, item in enumerate(held):
        if isinstance(item, Entry) and _reply_id(item) == reply:
            held[index] = replace(item, messages=tuple(replace(message, usage=None) for message in item.messages))


def _reply_id(entry: Entry) -> str | None:
    return text(mapping(entry.data.get("message")).get("id")) if entry.type == "assistant" else None


def notes(data: Json) -> About:
    """Ids and folder are on every record; titles are records of their own."""
    topic = data.get("summary") if data.get("type") == "summary" else data.get("aiTitle")
    agent = text(data.get("agentId")) if data.get("isSidechain") else None
    return About(
        session=agent or text(data.get("sessionId")),
        cwd=text(data.get("cwd")),
        title=text(data.get("customTitle")),
        topic=text(topic),
        model=text(mapping(data.get("message")).get("model")),
    )


CLAUDE_CODE: Final = Reader(name="claude_code", claims=claims, stream=stream, notes=notes)
