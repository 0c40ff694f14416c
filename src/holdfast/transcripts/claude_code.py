"""Claude Code: `~/.claude/projects/<cwd>/<session>.jsonl`, one content block of a reply on each line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Json, make_entry, text
from holdfast.transcripts.reader import Facts, Reader, claims_if, delay_items, facts, read_entries

_OWN_TYPES: Final = frozenset(
    {
        *("file-history-snapshot", "custom-title", "ai-title", "queue-operation", "last-prompt"),
        *("api-request-blob", "permission-mode", "agent-name"),
    }
)
_MAX_HELD: Final = 64


def _is_own(record: Json) -> bool:
    """Return whether a record carries Claude Code's ids, or is one of its types of metadata."""
    return "type" in record and ("parentUuid" in record or "leafUuid" in record or str(record["type"]) in _OWN_TYPES)


def _sort_by_parent(items: Iterator[Item]) -> Iterator[Item]:
    """Hold a record back until its parent has passed: Claude Code may write results before their calls.

    A record whose parent is in another file is held until `_MAX_HELD` records wait, so that memory is bounded.
    """
    passed: set[str] = set()
    held: dict[str, list[Entry]] = {}
    for item in items:
        parent = text(item.data, "sourceToolAssistantUUID", "parentUuid") if isinstance(item, Entry) else None
        if not isinstance(item, Entry) or parent is None or parent in passed:
            yield item
            if isinstance(item, Entry) and item.id is not None:
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


def frame(data: Json, line: int) -> Entry:
    """Make an entry of a record with Claude Code's ids, which Qwen Code writes too."""
    return make_entry(data, line, id="uuid", parent="parentUuid", sidechain=bool(data.get("isSidechain")))


def _read_messages(entry: Entry) -> Sequence[Message]:
    message = entry.data.get("message")
    if isinstance(message, Mapping) and entry.type in {"user", "assistant", "system"}:
        return (FORMATS["anthropic"].read(message, f"line {entry.line}: message"),)
    if entry.type in {"user", "assistant"}:
        raise FormatError("no message in it", where=f"line {entry.line}")
    return ()


def _drop_repeated_usage(held: deque[Item], entry: Entry) -> None:
    """Remove usage from all lines of a reply but the last: each repeats it, and only the last is complete."""
    reply = text(entry.data, "message.id")
    if entry.type != "assistant" or reply is None:
        return
    for index, item in enumerate(held):
        if isinstance(item, Entry) and item.type == "assistant" and text(item.data, "message.id") == reply:
            held[index] = replace(item, messages=tuple(replace(message, usage=None) for message in item.messages))


_FACTS: Final = facts(session="sessionId", cwd="cwd", title="customTitle", topic="aiTitle", model="message.model")
_SUMMARY_FACTS: Final = _FACTS | facts(topic="summary")
_SIDECHAIN_FACTS: Final = _FACTS | facts(session="agentId sessionId")


def _describe(data: Json) -> Facts:
    if data.get("isSidechain"):
        return _SIDECHAIN_FACTS
    return _SUMMARY_FACTS if data.get("type") == "summary" else _FACTS


CLAUDE_CODE: Final = Reader(
    name="claude_code",
    claims=claims_if(_is_own),
    stream=lambda path: delay_items(_sort_by_parent(read_entries(path, _read_messages, frame)), _drop_repeated_usage),
    describe=_describe,
)
