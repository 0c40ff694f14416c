"""Gemini CLI and Qwen Code: `~/.gemini/tmp/<project>/chats/session-*`, `~/.qwen/projects/<cwd>/chats/<session>.jsonl`.

Both hold parts in the shape of the Gemini API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Message, Part, Role, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import FORMATS
from holdfast.providers.gemini import USAGE
from holdfast.providers.wire import find, read_usage
from holdfast.transcripts.claude_code import frame
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.reader import Reader, attach_messages, claims_if, facts, read_entries, read_values

# --- parts of the Gemini API ---------------------------------------------------


def _read_parts(parts: Sequence[Json], entry: Entry) -> tuple[Part, ...]:
    return FORMATS["gemini"].read({"parts": parts}, f"line {entry.line}").parts


_USAGE: Final = {**USAGE, "total": "totalTokenCount total"}


def _make_message(role: Role, parts: Sequence[Part], usage: Any = None, model: str | None = None) -> list[Message]:
    """Make a message of parts, if there are any, with token counts by the names of the API or of Gemini CLI."""
    read = read_usage(usage, _USAGE, has_cached_input=True)
    return [Message(role=role, parts=tuple(parts), usage=read, model=model)] if parts else []


# --- Gemini CLI ----------------------------------------------------------------


def _stream(path: Path) -> Iterator[Item]:
    """Yield the session's own record, then every message in its last version.

    A file is a log: a record with a known id replaces the earlier one, `$rewindTo` withdraws that message and all
    after it, and `$set` changes the session. Messages that a compression removes stay messages.
    """
    session: dict[str, Any] = {}
    records: dict[str, tuple[int, Json]] = {}
    withdrawn: set[str] = set()
    for row in read_values(path):
        if isinstance(row, Problem):
            yield row
        else:
            _apply_row(row[0], mapping(row[1]), session, records, withdrawn)
    yield make_entry(session, 1, type="session", id="", time="startTime")
    for id_, (line, record) in records.items():
        entry = replace(make_entry(record, line, sidechain=session.get("kind") == "subagent"), id=id_)
        yield from [entry] if id_ in withdrawn else attach_messages(entry, _read_messages)


def _apply_row(
    line: int, data: Json, session: dict[str, Any], records: dict[str, tuple[int, Json]], withdrawn: set[str]
) -> None:
    target = data.get("$rewindTo")
    if isinstance(target, str):
        ids = list(records)
        withdrawn.update(ids[ids.index(target) if target in records else 0 :])
        return
    patch = mapping(data.get("$set", data))
    for record in [data] if "type" in data and "id" in data else objects(patch, "messages"):
        id_ = str(record.get("id"))
        records[id_] = (records.get(id_, (line,))[0], record)
        withdrawn.discard(id_)
    if "id" not in data:
        session |= {key: value for key, value in patch.items() if key != "messages"}


def _read_messages(entry: Entry) -> Sequence[Message]:
    data = entry.data
    if entry.type not in {"user", "gemini"}:
        return ()
    content = text(data, "content")
    parts = (Text(text=content),) if content else _read_parts(objects(data, "content"), entry)
    if entry.type == "user":
        return _make_message("user", parts)
    thinking = [
        Thinking(text="\n".join(line for key in ("subject", "description") if (line := text(item, key))))
        for item in objects(data, "thoughts")
    ]
    items = objects(data, "toolCalls")
    calls = [
        ToolCall(
            id=string(item, "id") or string(item, "name"),
            name=string(item, "name"),
            arguments=mapping(item.get("args")),
        )
        for item in items
    ]
    results = [_read_result(item, entry) for item in items if "result" in item]
    reply = _make_message("assistant", [*thinking, *parts, *calls], data.get("tokens"), text(data, "model"))
    return [*reply, *_make_message("tool", results)]


def _read_result(item: Json, entry: Entry) -> ToolResult:
    parts = _read_parts(objects(item, "result"), entry)
    return ToolResult(
        call_id=string(item, "id"),
        content=tuple(block for part in parts if isinstance(part, ToolResult) for block in part.content),
        is_error=item.get("status") in ("error", "cancelled"),
        name=text(item, "name"),
    )


_FACTS: Final = facts(session="sessionId", cwd="directories.0", topic="summary", model="model")

GEMINI: Final = Reader(
    name="gemini",
    claims=lambda _path, head: {"sessionId", "projectHash"} <= mapping(next(iter(head.values), None)).keys(),
    stream=_stream,
    describe=lambda _data: _FACTS,
)


# --- Qwen Code -----------------------------------------------------------------


def _is_own(record: Json) -> bool:
    """Whether a record has Claude Code's ids and parts of the Gemini API."""
    return "uuid" in record and ("systemPayload" in record or "parts" in mapping(record.get("message")))


def _read_qwen(entry: Entry) -> Sequence[Message]:
    if entry.type == "system":
        return ()
    parts = _read_parts(objects(entry.data, "message.parts"), entry)
    results = [part for part in parts if isinstance(part, ToolResult)]
    if results:
        others = [part for part in parts if not isinstance(part, ToolResult)]
        return [*_make_message("tool", results), *_make_message("user", others)]
    if entry.type == "assistant":
        return _make_message("assistant", parts, find(entry.data, "usageMetadata"), text(entry.data, "model"))
    return _make_message("user", parts)


_QWEN_FACTS: Final = facts(session="sessionId", cwd="cwd", model="model")

QWEN: Final = Reader(
    name="qwen",
    claims=claims_if(_is_own),
    stream=lambda path: read_entries(path, _read_qwen, frame),
    describe=lambda _data: _QWEN_FACTS,
)
