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
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import (
    Json,
    Reader,
    SessionInfo,
    delay_items,
    make_entry,
    mapping,
    read_entries,
    text,
)

__all__ = ["CLAUDE_CODE"]

_MESSAGE_TYPES: Final = frozenset({"user", "assistant"})
_OWN_TYPES: Final = frozenset(
    {
        *("file-history-snapshot", "custom-title", "ai-title", "queue-operation", "last-prompt"),
        *("api-request-blob", "permission-mode", "agent-name"),
    }
)
_MAX_HELD: Final = 64


def _claims(_path: Path, head: Head) -> bool:
    """Whether a record carries Claude Code's ids, or is one of its types of metadata."""
    return any(
        "type" in record and ("parentUuid" in record or "leafUuid" in record or str(record["type"]) in _OWN_TYPES)
        for record in head.records
    )


def _stream(path: Path) -> Iterator[Item]:
    """Yield every record of a session file, each after its parent."""
    return delay_items(_sort_by_parent(read_entries(path, frame=_frame, messages=_read_messages)), _drop_repeated_usage)


def _sort_by_parent(items: Iterator[Item]) -> Iterator[Item]:
    """Hold a record back until its parent has passed: Claude Code may write results before their calls.

    A record whose parent is in another file is held until `_MAX_HELD` records wait, so that memory is bounded.
    """
    passed: set[str] = set()
    held: dict[str, list[Entry]] = {}
    for item in items:
        if not isinstance(item, Entry):
            yield item
            continue
        parent = text(item.data.get("sourceToolAssistantUUID")) or item.parent
        if parent is None or parent in passed:
            yield item
            if item.id is not None:
                yield from _release(item.id, passed, held)
            continue
        held.setdefault(parent, []).append(item)
        if sum(map(len, held.values())) > _MAX_HELD:
            yield from _release(next(iter(held)), passed, held)
    while held:
        yield from _release(next(iter(held)), passed, held)


def _release(parent: str, passed: set[str], held: dict[str, list[Entry]]) -> Iterator[Entry]:
    """Yield the descendants of a record that are held back, in file order."""
    passed.add(parent)
    waiting = deque(held.pop(parent, ()))
    while waiting:
        entry = waiting.popleft()
        yield entry
        if entry.id is not None:
            passed.add(entry.id)
            waiting.extend(held.pop(entry.id, ()))


def _frame(data: Json, line: int) -> Entry:
    return make_entry(data, line, id="uuid", parent="parentUuid", sidechain=bool(data.get("isSidechain")))


def _read_messages(entry: Entry) -> Sequence[Message]:
    message = entry.data.get("message")
    if entry.type not in _MESSAGE_TYPES and not (entry.type == "system" and isinstance(message, Mapping)):
        return ()
    if not isinstance(message, Mapping):
        raise FormatError("no message in it", where=f"line {entry.line}")
    return (FORMATS["anthropic"].read(message, f"line {entry.line}: message"),)


def _drop_repeated_usage(held: deque[Item], entry: Entry) -> None:
    """Remove usage from all lines of a reply but the last: each repeats it, and only the last is complete."""
    reply = _get_reply_id(entry)
    if reply is None:
        return
    for index, item in enumerate(held):
        if isinstance(item, Entry) and _get_reply_id(item) == reply:
            held[index] = replace(item, messages=tuple(replace(message, usage=None) for message in item.messages))


def _get_reply_id(entry: Entry) -> str | None:
    return text(mapping(entry.data.get("message")).get("id")) if entry.type == "assistant" else None


def _describe(data: Json) -> SessionInfo:
    topic = data.get("summary") if data.get("type") == "summary" else data.get("aiTitle")
    agent = text(data.get("agentId")) if data.get("isSidechain") else None
    return SessionInfo(
        session=agent or text(data.get("sessionId")),
        cwd=text(data.get("cwd")),
        title=text(data.get("customTitle")),
        topic=text(topic),
        model=text(mapping(data.get("message")).get("model")),
    )


CLAUDE_CODE: Final = Reader(name="claude_code", claims=_claims, stream=_stream, describe=_describe)
