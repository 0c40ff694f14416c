"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, OpenAI Responses items between events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Usage
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import Json, Reader, SessionInfo, delay_items, mapping, read_entries, text, timestamp

__all__ = ["CODEX"]

_RECORDS: Final = frozenset(
    {
        *("session_meta", "response_item", "event_msg", "turn_context", "compacted"),
        *("world_state", "token_usage_record"),
    }
)
_INTERNAL_ITEMS: Final = frozenset({"ghost_snapshot"})  # undo marks: kept by the agent, never sent to the model


def _claims(path: Path, head: Head) -> bool:
    """Whether there is a record with a payload, or the first record of an early rollout."""
    if any(str(record.get("type")) in _RECORDS and "payload" in record for record in head.records):
        return True
    return path.name.startswith("rollout-") and any("instructions" in record for record in head.records)


def _stream(path: Path) -> Iterator[Item]:
    """Yield every record of a rollout. A sub-agent has its own file, whose entries are all sidechain."""
    sidechain = False
    for item in delay_items(read_entries(path, frame=_frame, messages=_read_messages), _set_usage):
        if not isinstance(item, Entry):
            yield item
            continue
        if item.type == "session_meta":
            source = mapping(mapping(item.data.get("payload")).get("source"))
            sidechain = sidechain or "subagent" in source
        yield replace(item, sidechain=sidechain)


def _frame(data: Json, line: int) -> Entry:
    kind = str(data.get("type") or data.get("record_type") or "session_meta")
    return Entry(type=kind, data=data, line=line, timestamp=timestamp(data.get("timestamp")))


def _read_messages(entry: Entry) -> Sequence[Message]:
    data = entry.data
    if entry.type == "response_item":
        item = mapping(data.get("payload"))
    elif entry.type not in _RECORDS and "type" in data and "payload" not in data:
        item = data  # early rollouts hold the Responses items themselves
    else:
        return ()
    if str(item.get("type")) in _INTERNAL_ITEMS:
        return ()
    return (FORMATS["openai_responses"].read(item, f"line {entry.line}: payload"),)


def _set_usage(delayed: deque[Item], entry: Entry) -> None:
    """Set the usage of the last reply before a token count."""
    usage = _read_usage(entry)
    if usage is None:
        return
    for index in range(len(delayed) - 1, -1, -1):
        item = delayed[index]
        if isinstance(item, Entry) and item.messages and item.messages[-1].role == "assistant":
            message = item.messages[-1]
            # Codex repeats a count when only the rate limits have changed: the first one is right.
            delayed[index] = replace(
                item, messages=(*item.messages[:-1], replace(message, usage=message.usage or usage))
            )
            return


def _read_usage(entry: Entry) -> Usage | None:
    payload = mapping(entry.data.get("payload"))
    if entry.type != "event_msg" or payload.get("type") != "token_count":
        return None
    last = mapping(mapping(payload.get("info")).get("last_token_usage"))
    counts = {key: value for key, value in last.items() if isinstance(value, int)}
    cached = counts.get("cached_input_tokens", 0)
    usage = Usage(
        input=counts.get("input_tokens", 0) - cached,
        output=counts.get("output_tokens", 0),
        cache_read=cached,
        total=counts.get("total_tokens", 0),
    )
    return usage if usage.context else None


def _describe(data: Json) -> SessionInfo:
    payload = mapping(data.get("payload")) or data
    if data.get("type") == "turn_context":
        return SessionInfo(cwd=text(payload.get("cwd")), model=text(payload.get("model")))
    if data.get("type") == "session_meta" or "instructions" in data:
        return SessionInfo(session=text(payload.get("id")), cwd=text(payload.get("cwd")))
    return SessionInfo()


CODEX: Final = Reader(name="codex", claims=_claims, stream=_stream, describe=_describe)
