"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, OpenAI Responses items between events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Usage
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, look_back, mapping, read_entries, text, timestamp

__all__ = ["CODEX"]

_RECORDS: Final = frozenset(
    {
        *("session_meta", "response_item", "event_msg", "turn_context", "compacted"),
        *("world_state", "token_usage_record"),
    }
)
_UNSAID: Final = frozenset({"ghost_snapshot"})  # undo marks: kept by the agent, never sent to the model


def claims(path: Path, head: Head) -> bool:
    """Records with a payload, or the bare items of the first rollouts."""
    records = [value for value in head.values if isinstance(value, Mapping)]
    if any(str(record.get("type")) in _RECORDS and "payload" in record for record in records):
        return True
    return path.name.startswith("rollout-") and any("instructions" in record for record in records)


def stream(path: Path) -> Iterator[Item]:
    """Every record of a rollout; a sub-agent's has a file of its own, and is flagged throughout."""
    aside = False
    for item in look_back(read_entries(path, frame=_frame, messages=_messages), _charge):
        if isinstance(item, Entry):
            aside = aside or _is_sub_agent(item)
            yield replace(item, sidechain=aside)
        else:
            yield item


def _is_sub_agent(entry: Entry) -> bool:
    payload = mapping(entry.data.get("payload"))
    return entry.type == "session_meta" and "subagent" in mapping(payload.get("source"))


def _frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("type") or data.get("record_type") or "session_meta"),
        data=data,
        line=line,
        timestamp=timestamp(data.get("timestamp")),
    )


def _messages(entry: Entry) -> Sequence[Message]:
    item = _item(entry)
    if item is None or str(item.get("type")) in _UNSAID:
        return ()
    return (FORMATS["openai_responses"].read(item, f"line {entry.line}: payload"),)


def _item(entry: Entry) -> Json | None:
    """The Responses item of a record; the first rollouts wrote the items themselves."""
    if entry.type == "response_item":
        return mapping(entry.data.get("payload"))
    return entry.data if entry.type not in _RECORDS and "type" in entry.data and "payload" not in entry.data else None


def _charge(held: deque[Item], entry: Entry) -> None:
    """A token count belongs to the last thing that the model said before it."""
    usage = _usage(entry)
    if usage is None:
        return
    for index in range(len(held) - 1, -1, -1):
        item = held[index]
        if isinstance(item, Entry) and item.messages and item.messages[-1].role == "assistant":
            message = item.messages[-1]
            # Counts are repeated when only the rate limits have changed: the first one stands.
            held[index] = replace(item, messages=(*item.messages[:-1], replace(message, usage=message.usage or usage)))
            return


def _usage(entry: Entry) -> Usage | None:
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


def notes(data: Json) -> About:
    """The first record names the session, each turn its folder and model."""
    payload = mapping(data.get("payload")) or data
    if data.get("type") == "turn_context":
        return About(cwd=text(payload.get("cwd")), model=text(payload.get("model")))
    if data.get("type") == "session_meta" or "instructions" in data:
        return About(session=text(payload.get("id")), cwd=text(payload.get("cwd")))
    return About()


CODEX: Final = Reader(name="codex", claims=claims, stream=stream, notes=notes)
