"""Grok CLI: `~/.grok/sessions/<folder>/<id>/` with `updates.jsonl` and `summary.json`.

`updates.jsonl` holds updates of the Agent Client Protocol, and is what Grok itself resumes a session from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Text, Thinking
from holdfast.providers.wire import find
from holdfast.transcripts import reader
from holdfast.transcripts.entry import Entry, Item, Json, make_entry, mapping, objects, string, text, timestamp
from holdfast.transcripts.reader import Reader, facts, make_call, make_result, read_block

NAME: Final = "grok"
_UPDATES: Final = "updates.jsonl"
_SUMMARY: Final = "summary.json"
_CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})


def _get_update(data: Json) -> Json:
    """Return the update of a record whose method is `session/update`, else an empty object."""
    return mapping(find(data, "params.update")) if string(data, "method").endswith("session/update") else {}


def _stream(path: Path) -> Iterator[Item]:
    """Yield the summary as one entry, then every update. The first of a run of chunks gets the whole message."""
    updates = path
    if path.is_dir():
        updates = path / _UPDATES
        yield Entry(type="summary", data=mapping(reader.read_object(path / _SUMMARY)), line=1)
    items = reader.read_entries(updates, partial(_read_messages, tools={}), _frame)

    def chunk_type(item: Item) -> str:
        return item.type if isinstance(item, Entry) and item.type in _CHUNKS and item.messages else ""

    for chunked, group in groupby(items, key=chunk_type):
        if not chunked:
            yield from group
            continue
        chunks = [item for item in group if isinstance(item, Entry)]
        yield replace(chunks[0], messages=(reduce(_join, (chunk.messages[0] for chunk in chunks)),))


def _join(first: Message, second: Message) -> Message:
    """Join the messages of two chunks; text continues where it stopped."""
    *before, last = first.parts
    part, *after = second.parts
    if isinstance(last, Text | Thinking) and type(part) is type(last):
        return replace(first, parts=(*before, replace(last, text=last.text + part.text), *after))
    return replace(first, parts=(*first.parts, *second.parts))


def _frame(data: Json, line: int) -> Entry:
    entry = make_entry(
        data, line, type=string(_get_update(data), "sessionUpdate"), id="params._meta.eventId", parent=""
    )
    return replace(entry, timestamp=timestamp(find(data, "params._meta.agentTimestampMs")) or entry.timestamp)


def _read_messages(entry: Entry, tools: dict[str, str]) -> Sequence[Message]:
    """Read an update. A result has the name of its call, by the id of the call."""
    update = _get_update(entry.data)
    content, call_id = mapping(update.get("content")), string(update, "toolCallId")
    match entry.type:
        case "user_message_chunk":
            return (Message(role="user", parts=(read_block(content, NAME),)),)
        case "agent_message_chunk":
            return (Message(role="assistant", parts=(read_block(content, NAME),), model=text(update, "_meta.modelId")),)
        case "agent_thought_chunk":
            return (Message(role="assistant", parts=(Thinking(text=string(content, "text")),)),)
        case "tool_call":
            tool, arguments = mapping(mapping(update.get("_meta")).get("x.ai/tool")), update.get("rawInput")
            tools[call_id] = text(tool, "name") or string(update, "title")
            return (Message(role="assistant", parts=(make_call(call_id, tools[call_id], arguments),)),)
        case "tool_call_update" if update.get("status") in ("completed", "failed"):
            parts = [read_block(mapping(item.get("content", item)), NAME) for item in objects(update, "content")]
            is_error = update.get("status") == "failed"
            return make_result(call_id, parts, is_error=is_error, name=tools.get(call_id))
    return ()


_CLAIMS: Final = reader.claims_if(lambda record: bool(_get_update(record).get("sessionUpdate")))

GROK: Final = Reader(
    name=NAME,
    claims=_CLAIMS,
    stream=_stream,
    describe=facts(
        session="info.id params.sessionId",
        cwd="info.cwd",
        title="generated_title session_summary",
        model="current_model_id params.update._meta.modelId",
    ),
    folder=reader.folder_with(_UPDATES, _SUMMARY, claims=_CLAIMS),
)
