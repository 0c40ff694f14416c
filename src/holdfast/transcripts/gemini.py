"""Gemini CLI and Qwen Code: `~/.gemini/tmp/<project>/chats/session-*`, `~/.qwen/projects/<cwd>/chats/<session>.jsonl`.

Both hold parts in the shape of the Gemini API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, mapping, objects, read_entries, say, text, timestamp
from holdfast.transcripts.rows import read_rows

__all__ = ["GEMINI", "QWEN"]

_SPEAKERS: Final = {"user": "user", "gemini": "assistant"}


# --- Gemini CLI ----------------------------------------------------------------


def claims_gemini(_path: Path, head: Head) -> bool:
    """The record that opens a session: its id and the project's, in a document or on the first line."""
    first = mapping(head.values[0]) if head.values else {}
    return "sessionId" in first and "projectHash" in first


def stream_gemini(path: Path) -> Iterator[Item]:
    """The session's own record, then every message in its last version.

    A file is a log: a record with a known id replaces the earlier one, `$rewindTo` takes back that message and all
    after it, and `$set` changes the session. What a compression takes out of the model's sight stays a message.
    """
    about: dict[str, Any] = {}
    records: dict[str, tuple[int, Json]] = {}
    taken_back: set[str] = set()
    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
            continue
        line, data = row[0], mapping(row[1])
        target = data.get("$rewindTo")
        if isinstance(target, str):
            ids = list(records)
            taken_back.update(ids[ids.index(target) if target in records else 0 :])
            continue
        patch = mapping(data.get("$set")) if "$set" in data else data
        listed = objects(patch.get("messages"))
        for record in [data] if "type" in data and "id" in data else listed:
            records[str(record.get("id"))] = (records.get(str(record.get("id")), (line,))[0], record)
            taken_back.discard(str(record.get("id")))
        if "id" not in data:
            about |= {key: value for key, value in patch.items() if key != "messages"}
    yield Entry(type="session", data=about, line=1, timestamp=timestamp(about.get("startTime")))
    for id_, (line, record) in records.items():
        entry = Entry(
            type=str(record.get("type", "")),
            data=record,
            line=line,
            id=id_,
            timestamp=timestamp(record.get("timestamp")),
            sidechain=about.get("kind") == "subagent",
        )
        yield from [entry] if id_ in taken_back else say(entry, _gemini_messages)


def _gemini_messages(entry: Entry) -> Sequence[Message]:
    data = entry.data
    if entry.type not in _SPEAKERS:
        return ()
    content = data.get("content")
    said = [Text(text=content)] if isinstance(content, str) and content else [*_parts(objects(content), "gemini")]
    if entry.type == "user":
        return _spoken("user", said)
    thoughts = [Thinking(text=_thought(item)) for item in objects(data.get("thoughts"))]
    calls = objects(data.get("toolCalls"))
    asked = [_call({"id": item.get("id"), "name": item.get("name"), "args": item.get("args")}) for item in calls]
    reply = _spoken("assistant", [*thoughts, *said, *asked], usage=_usage(data.get("tokens")), model=data.get("model"))
    results = tuple(_gemini_result(item) for item in calls if "result" in item)
    return [*reply, *([Message(role="tool", parts=results)] if results else [])]


def _thought(item: Json) -> str:
    return "\n".join(said for key in ("subject", "description") if (said := text(item.get(key))))


def _gemini_result(item: Json) -> ToolResult:
    found = [_result(mapping(part.get("functionResponse"))) for part in objects(item.get("result"))]
    content = tuple(block for result in found for block in result.content)
    failed = str(item.get("status")) in {"error", "cancelled"}
    call_id = str(item.get("id") or "")
    return ToolResult(call_id=call_id, content=content, is_error=failed, name=text(item.get("name")))


def notes_gemini(data: Json) -> About:
    """The first record names the session and its folders, each reply its model."""
    directories = data.get("directories")
    cwd = directories[0] if isinstance(directories, list) and directories else None
    return About(
        session=text(data.get("sessionId")),
        cwd=text(cwd),
        topic=text(data.get("summary")),
        model=text(data.get("model")),
    )


# --- Qwen Code -----------------------------------------------------------------


def claims_qwen(_path: Path, head: Head) -> bool:
    """Records with Claude Code's ids around parts of the Gemini API."""
    return any(isinstance(value, Mapping) and _is_qwen(value) for value in head.values)


def _is_qwen(data: Json) -> bool:
    return "uuid" in data and ("systemPayload" in data or "parts" in mapping(data.get("message")))


def stream_qwen(path: Path) -> Iterator[Item]:
    """Every record of a session file."""
    return read_entries(path, frame=_qwen_frame, messages=_qwen_messages)


def _qwen_frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("type", "")),
        data=data,
        line=line,
        id=text(data.get("uuid")),
        parent=text(data.get("parentUuid")),
        timestamp=timestamp(data.get("timestamp")),
        sidechain=bool(data.get("isSidechain")),
    )


def _qwen_messages(entry: Entry) -> Sequence[Message]:
    blocks = objects(mapping(entry.data.get("message")).get("parts"))
    if entry.type == "system" or not blocks:
        return ()
    parts = [*_parts(blocks, "qwen")]
    results = [part for part in parts if isinstance(part, ToolResult)]
    if results:
        spoken = [part for part in parts if not isinstance(part, ToolResult)]
        return [Message(role="tool", parts=tuple(results)), *_spoken("user", spoken)]
    if entry.type == "assistant":
        return _spoken("assistant", parts, usage=_usage(entry.data.get("usageMetadata")), model=entry.data.get("model"))
    return _spoken("user", parts)


def notes_qwen(data: Json) -> About:
    """Ids and folder are on every record."""
    return About(session=text(data.get("sessionId")), cwd=text(data.get("cwd")), model=text(data.get("model")))


# --- parts of the Gemini API ---------------------------------------------------


def _spoken(role: str, parts: Sequence[Part], *, usage: Usage | None = None, model: object = None) -> list[Message]:
    if not parts:
        return []
    said = Message(role="user", parts=tuple(parts))
    return [said if role == "user" else replace(said, role="assistant", usage=usage, model=text(model))]


def _parts(blocks: Sequence[Json], format_: str) -> Iterator[Part]:
    for block in blocks:
        yield _part(block).read_from(block, format=format_)


def _part(block: Json) -> Part:
    inline = mapping(block.get("inlineData"))
    if "functionCall" in block:
        return _call(mapping(block["functionCall"]))
    if "functionResponse" in block:
        return _result(mapping(block["functionResponse"]))
    if isinstance(block.get("text"), str):
        if block.get("thought"):
            return Thinking(text=block["text"], signature=text(block.get("thoughtSignature")))
        return Text(text=block["text"])
    if str(inline.get("mimeType", "")).startswith("image/"):
        return Image(media_type=str(inline["mimeType"]), data=str(inline.get("data") or ""))
    return Opaque(kind=next(iter(block), ""), data=block)


def _call(data: Json) -> ToolCall:
    name = str(data.get("name") or "")
    return ToolCall(id=str(data.get("id") or name), name=name, arguments=mapping(data.get("args")))


def _result(data: Json) -> ToolResult:
    response = mapping(data.get("response"))
    failed = "error" in response and "output" not in response
    said = response.get("error" if failed else "output", response or "")
    words = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    content: list[ResultContent] = [Text(text=words)] if words else []
    for block in objects(data.get("parts")):
        part = _part(block)
        if isinstance(part, Text | Image | Opaque):
            content.append(part)
    name = text(data.get("name"))
    return ToolResult(call_id=str(data.get("id") or name or ""), content=tuple(content), is_error=failed, name=name)


def _usage(data: Any) -> Usage | None:
    """Token counts by the names of the API, or of Gemini CLI."""
    counts = {key: value for key, value in mapping(data).items() if isinstance(value, int)}
    cached = counts.get("cachedContentTokenCount", counts.get("cached", 0))
    usage = Usage(
        input=counts.get("promptTokenCount", counts.get("input", 0)) - cached,
        output=counts.get("candidatesTokenCount", counts.get("output", 0))
        + counts.get("thoughtsTokenCount", counts.get("thoughts", 0)),
        cache_read=cached,
        total=counts.get("totalTokenCount", counts.get("total", 0)),
    )
    return usage if usage.context else None


GEMINI: Final = Reader(name="gemini", claims=claims_gemini, stream=stream_gemini, notes=notes_gemini)
QWEN: Final = Reader(name="qwen", claims=claims_qwen, stream=stream_qwen, notes=notes_qwen)
