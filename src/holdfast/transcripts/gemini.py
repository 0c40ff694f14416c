"""Gemini CLI and Qwen Code: `~/.gemini/tmp/<project>/chats/session-*`, `~/.qwen/projects/<cwd>/chats/<session>.jsonl`.

Both hold parts in the shape of the Gemini API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import (
    Json,
    Reader,
    SessionInfo,
    attach_messages,
    make_entry,
    mapping,
    objects,
    read_entries,
    read_rows,
    text,
    timestamp,
)

__all__ = ["GEMINI", "QWEN"]


# --- Gemini CLI ----------------------------------------------------------------


def _claims_gemini(_path: Path, head: Head) -> bool:
    """Whether the first record states the ids of the session and the project."""
    first = mapping(head.values[0]) if head.values else {}
    return "sessionId" in first and "projectHash" in first


def _stream_gemini(path: Path) -> Iterator[Item]:
    """Yield the session's own record, then every message in its last version.

    A file is a log: a record with a known id replaces the earlier one, `$rewindTo` withdraws that message and all
    after it, and `$set` changes the session. Messages that a compression removes stay messages.
    """
    session: dict[str, Any] = {}
    records: dict[str, tuple[int, Json]] = {}
    withdrawn: set[str] = set()
    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
        else:
            _apply_row(row[0], mapping(row[1]), session, records, withdrawn)
    yield Entry(type="session", data=session, line=1, timestamp=timestamp(session.get("startTime")))
    for id_, (line, record) in records.items():
        entry = Entry(
            type=str(record.get("type", "")),
            data=record,
            line=line,
            id=id_,
            timestamp=timestamp(record.get("timestamp")),
            sidechain=session.get("kind") == "subagent",
        )
        yield from [entry] if id_ in withdrawn else attach_messages(entry, _read_gemini_messages)


def _apply_row(
    line: int, data: Json, session: dict[str, Any], records: dict[str, tuple[int, Json]], withdrawn: set[str]
) -> None:
    target = data.get("$rewindTo")
    if isinstance(target, str):
        ids = list(records)
        withdrawn.update(ids[ids.index(target) if target in records else 0 :])
        return
    patch = mapping(data.get("$set")) if "$set" in data else data
    for record in [data] if "type" in data and "id" in data else objects(patch.get("messages")):
        id_ = str(record.get("id"))
        records[id_] = (records.get(id_, (line,))[0], record)
        withdrawn.discard(id_)
    if "id" not in data:
        session |= {key: value for key, value in patch.items() if key != "messages"}


def _read_gemini_messages(entry: Entry) -> Sequence[Message]:
    data = entry.data
    if entry.type not in {"user", "gemini"}:
        return ()
    content = data.get("content")
    parts = [Text(text=content)] if isinstance(content, str) and content else [*_read_parts(objects(content), "gemini")]
    if entry.type == "user":
        return _make_message("user", parts)
    thinking = [
        Thinking(text="\n".join(line for key in ("subject", "description") if (line := text(item.get(key)))))
        for item in objects(data.get("thoughts"))
    ]
    items = objects(data.get("toolCalls"))
    calls = [_read_call(item) for item in items]
    reply = _make_message(
        "assistant", [*thinking, *parts, *calls], usage=_read_usage(data.get("tokens")), model=data.get("model")
    )
    results = tuple(_read_gemini_result(item) for item in items if "result" in item)
    return [*reply, *([Message(role="tool", parts=results)] if results else [])]


def _read_gemini_result(item: Json) -> ToolResult:
    responses = [_read_result(mapping(part.get("functionResponse"))) for part in objects(item.get("result"))]
    content = tuple(block for result in responses for block in result.content)
    failed = str(item.get("status")) in {"error", "cancelled"}
    call_id = str(item.get("id") or "")
    return ToolResult(call_id=call_id, content=content, is_error=failed, name=text(item.get("name")))


def _describe_gemini(data: Json) -> SessionInfo:
    directories = data.get("directories")
    cwd = directories[0] if isinstance(directories, list) and directories else None
    return SessionInfo(
        session=text(data.get("sessionId")),
        cwd=text(cwd),
        topic=text(data.get("summary")),
        model=text(data.get("model")),
    )


# --- Qwen Code -----------------------------------------------------------------


def _claims_qwen(_path: Path, head: Head) -> bool:
    """Whether a record has Claude Code's ids and parts of the Gemini API."""
    return any(
        "uuid" in record and ("systemPayload" in record or "parts" in mapping(record.get("message")))
        for record in head.records
    )


def _stream_qwen(path: Path) -> Iterator[Item]:
    return read_entries(path, frame=_frame_qwen, messages=_read_qwen_messages)


def _frame_qwen(data: Json, line: int) -> Entry:
    return make_entry(data, line, id="uuid", parent="parentUuid", sidechain=bool(data.get("isSidechain")))


def _read_qwen_messages(entry: Entry) -> Sequence[Message]:
    blocks = objects(mapping(entry.data.get("message")).get("parts"))
    if entry.type == "system" or not blocks:
        return ()
    parts = [*_read_parts(blocks, "qwen")]
    results = [part for part in parts if isinstance(part, ToolResult)]
    if results:
        others = [part for part in parts if not isinstance(part, ToolResult)]
        return [Message(role="tool", parts=tuple(results)), *_make_message("user", others)]
    if entry.type == "assistant":
        return _make_message(
            "assistant", parts, usage=_read_usage(entry.data.get("usageMetadata")), model=entry.data.get("model")
        )
    return _make_message("user", parts)


def _describe_qwen(data: Json) -> SessionInfo:
    return SessionInfo(session=text(data.get("sessionId")), cwd=text(data.get("cwd")), model=text(data.get("model")))


# --- parts of the Gemini API ---------------------------------------------------


def _make_message(
    role: str, parts: Sequence[Part], *, usage: Usage | None = None, model: object = None
) -> list[Message]:
    if not parts:
        return []
    message = Message(role="user", parts=tuple(parts))
    return [message if role == "user" else replace(message, role="assistant", usage=usage, model=text(model))]


def _read_parts(blocks: Sequence[Json], format_: str) -> Iterator[Part]:
    for block in blocks:
        yield _read_part(block).read_from(block, format=format_)


def _read_part(block: Json) -> Part:
    inline = mapping(block.get("inlineData"))
    if "functionCall" in block:
        return _read_call(mapping(block["functionCall"]))
    if "functionResponse" in block:
        return _read_result(mapping(block["functionResponse"]))
    if isinstance(block.get("text"), str):
        if block.get("thought"):
            return Thinking(text=block["text"], signature=text(block.get("thoughtSignature")))
        return Text(text=block["text"])
    if str(inline.get("mimeType", "")).startswith("image/"):
        return Image(media_type=str(inline["mimeType"]), data=str(inline.get("data") or ""))
    return Opaque(kind=next(iter(block), ""), data=block)


def _read_call(data: Json) -> ToolCall:
    name = str(data.get("name") or "")
    return ToolCall(id=str(data.get("id") or name), name=name, arguments=mapping(data.get("args")))


def _read_result(data: Json) -> ToolResult:
    response = mapping(data.get("response"))
    failed = "error" in response and "output" not in response
    output = response.get("error" if failed else "output", response or "")
    output_text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    content: list[ResultContent] = [Text(text=output_text)] if output_text else []
    for block in objects(data.get("parts")):
        part = _read_part(block)
        if isinstance(part, Text | Image | Opaque):
            content.append(part)
    name = text(data.get("name"))
    return ToolResult(call_id=str(data.get("id") or name or ""), content=tuple(content), is_error=failed, name=name)


def _read_usage(data: Any) -> Usage | None:
    """Read token counts by the names of the API, or of Gemini CLI."""
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


GEMINI: Final = Reader(name="gemini", claims=_claims_gemini, stream=_stream_gemini, describe=_describe_gemini)
QWEN: Final = Reader(name="qwen", claims=_claims_qwen, stream=_stream_qwen, describe=_describe_qwen)
