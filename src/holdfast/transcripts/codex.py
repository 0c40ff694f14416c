"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, OpenAI Responses items between events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.providers.wire import find, read_usage
from holdfast.transcripts.entry import Entry, Item, Json, make_entry, mapping, text
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import Reader, amend_last, delay_items, facts, read_entries

_RECORDS: Final = frozenset(
    {
        *("session_meta", "response_item", "event_msg", "turn_context", "compacted"),
        *("world_state", "token_usage_record"),
    }
)
_USAGE: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cached_input_tokens",
    "total": "total_tokens",
}
_INTERNAL_ITEMS: Final = frozenset({"ghost_snapshot"})  # undo marks: kept by the agent, never sent to the model


def _claims(path: Path, head: Head) -> bool:
    """Return whether there is a record with a payload, or the first record of an early rollout."""
    if any(str(record.get("type")) in _RECORDS and "payload" in record for record in head.records):
        return True
    return path.name.startswith("rollout-") and any("instructions" in record for record in head.records)


def _stream(path: Path) -> Iterator[Item]:
    """Yield every record of a rollout. A sub-agent has its own file, whose entries are all sidechain.

    A turn names its model before its items.
    """
    sidechain = False
    model: str | None = None
    for item in delay_items(read_entries(path, _read_messages, _frame), _set_usage):
        if not isinstance(item, Entry):
            yield item
            continue
        if item.type == "session_meta":
            sidechain = sidechain or "subagent" in mapping(find(item.data, "payload.source"))
        if item.type == "turn_context":
            model = text(item.data, "payload.model") or model
        messages = tuple(replace(each, model=model) if each.role == "assistant" else each for each in item.messages)
        yield replace(item, sidechain=sidechain, messages=messages)


def _frame(data: Json, line: int) -> Entry:
    kind = str(data.get("type") or data.get("record_type") or "session_meta")
    return make_entry(data, line, type=kind, id="", parent="")


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
    if entry.type != "event_msg" or find(entry.data, "payload.type") != "token_count":
        return
    usage = read_usage(find(entry.data, "payload.info.last_token_usage"), _USAGE, has_cached_input=True)
    if usage is not None:
        # Codex repeats a count when only the rate limits have changed: the first one is right.
        amend_last(
            delayed,
            lambda item: item.messages[-1].role == "assistant",
            lambda message: replace(message, usage=message.usage or usage),
        )


_FACTS: Final = {
    "session_meta": facts(session="payload.id id", cwd="payload.cwd cwd"),
    "turn_context": facts(cwd="payload.cwd cwd", model="payload.model model"),
}
_EARLY_FACTS: Final = facts(session="id", cwd="cwd")

CODEX: Final = Reader(
    name="codex",
    claims=_claims,
    stream=_stream,
    describe=lambda data: _FACTS.get(str(data.get("type")), _EARLY_FACTS if "instructions" in data else {}),
)
