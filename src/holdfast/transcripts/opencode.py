"""OpenCode: files of `opencode export`, `opencode.db`, and the JSON files of earlier versions in `storage`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers.wire import image_from_url
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head, read_document
from holdfast.transcripts.reader import (
    Database,
    Json,
    Reader,
    SessionInfo,
    attach_messages,
    mapping,
    objects,
    open_session,
    text,
    timestamp,
)

__all__ = ["OPENCODE"]

NAME: Final = "opencode"
_DATABASE: Final = Database(
    columns=frozenset({"session.directory", "message.data", "part.message_id"}),
    sessions=(
        "SELECT id, time_updated AS modified,"
        " (SELECT sum(length(data)) FROM part WHERE session_id = session.id) AS size FROM session"
    ),
)


def _claims(_path: Path, head: Head) -> bool:
    """Whether the file is an export, or a session in the storage folder."""
    first = mapping(head.values[0]) if head.values else {}
    is_export = isinstance(first.get("messages"), list) and "id" in mapping(first.get("info"))
    return is_export or (str(first.get("id", "")).startswith("ses_") and "projectID" in first and "time" in first)


def _stream(path: Path) -> Iterator[Item]:
    """Yield the session's own record, then every message with its parts."""
    try:
        data = mapping(read_document(path)) if path.is_file() else _load_database(path)
    except ValueError as error:
        raise TranscriptError(f"not a JSON document: {error}", path=path) from error
    info = mapping(data.get("info")) or data
    yield Entry(type="session", data=info, line=1, id=text(info.get("id")), timestamp=_read_created(info))
    listed = data.get("messages")
    records: Iterator[Any] = iter(listed) if isinstance(listed, list) else _load_storage(path, str(info.get("id")))
    for line, record in enumerate(records, start=2):
        if isinstance(record, Mapping):
            yield from attach_messages(_frame(record, line, info), _read_messages)
        else:
            yield record if isinstance(record, Problem) else Problem(line, f"{type(record).__name__}, not a message")


def _load_storage(path: Path, session: str) -> Iterator[Json | Problem]:
    """Yield the messages of a session in the storage folder, with their parts, in the shape of an export."""
    storage = path.resolve().parent.parent.parent
    for number, file in enumerate(sorted((storage / "message" / session).glob("*.json")), start=2):
        try:
            parts = [read_document(part) for part in sorted((storage / "part" / file.stem).glob("*.json"))]
            yield {"info": mapping(read_document(file)), "parts": parts}
        except (ValueError, TranscriptError) as error:
            yield Problem(number, f"{file.name}: {error}")


def _load_database(path: Path) -> Json:
    """Load a session of the database in the shape of an export."""
    with open_session(path) as (query, session):
        (row,) = query("SELECT * FROM session WHERE id = ?", session)
        messages = query("SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", session)
        parts = query("SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id", session)
    parts_of: dict[str, list[Json]] = {}
    for part in parts:
        parts_of.setdefault(part["message_id"], []).append({"id": part["id"], **json.loads(part["data"])})
    return {
        "info": {
            "id": row["id"],
            "title": row["title"],
            "directory": row["directory"],
            "parentID": row.get("parent_id"),
            "time": {"created": row["time_created"]},
        },
        "messages": [
            {"info": {"id": message["id"], **json.loads(message["data"])}, "parts": parts_of.get(message["id"], [])}
            for message in messages
        ],
    }


def _read_created(info: Json) -> int | None:
    return timestamp(mapping(info.get("time")).get("created"))


def _frame(data: Json, line: int, session: Json) -> Entry:
    info = mapping(data.get("info"))
    return Entry(
        type=str(info.get("role", "")),
        data=data,
        line=line,
        id=text(info.get("id")),
        parent=text(info.get("parentID")),
        timestamp=_read_created(info),
        sidechain=session.get("parentID") is not None,
    )


def _read_messages(entry: Entry) -> Sequence[Message]:
    parts = objects(entry.data.get("parts"))
    if entry.type == "user":
        content = tuple(read for part in parts if (read := _read_part(part)) is not None)
        return (Message(role="user", parts=content),) if content else ()
    if entry.type != "assistant":
        return ()
    info = mapping(entry.data.get("info"))
    return [message for step in _split_steps(parts) for message in _read_step(step, info)]


def _split_steps(parts: Sequence[Json]) -> Iterator[list[Json]]:
    """Split a reply into model calls: each begins with a `step-start` part."""
    step: list[Json] = []
    for part in parts:
        if part.get("type") == "step-start" and step:
            yield step
            step = []
        step.append(part)
    yield step


def _read_step(parts: Sequence[Json], info: Json) -> Iterator[Message]:
    content = tuple(read for part in parts if (read := _read_part(part)) is not None)
    tokens = next((part.get("tokens") for part in parts if part.get("type") == "step-finish"), info.get("tokens"))
    if content:
        yield Message(
            role="assistant",
            parts=content,
            usage=_read_usage(mapping(tokens)),
            model=text(info.get("modelID")),
            stop="error" if info.get("error") else text(info.get("finish")),
        )
    results = tuple(_read_result(part) for part in parts if part.get("type") == "tool" and _is_finished(part))
    if results:
        yield Message(role="tool", parts=results)


def _read_part(data: Json) -> Part | None:
    """Read a part that the model sees; None for the agent's own marks."""
    part: Part | None = None
    match data.get("type"):
        case "text" if not data.get("ignored"):
            part = Text(text=str(data.get("text") or ""))
        case "reasoning":
            part = Thinking(text=str(data.get("text") or ""))
        case "file":
            part = _read_file(data)
        case "tool":
            part = _read_call(data)
    return None if part is None else part.read_from(data, format=NAME)


def _read_file(data: Json) -> Image | Opaque:
    media_type, url = str(data.get("mime", "")), data.get("url")
    if not media_type.startswith("image/") or not isinstance(url, str):
        return Opaque(kind="file", data=data)
    image = image_from_url(url)
    return image if image.media_type else Image(media_type=media_type, url=url)


def _read_call(data: Json) -> ToolCall:
    arguments = mapping(mapping(data.get("state")).get("input"))
    return ToolCall(id=str(data.get("callID") or ""), name=str(data.get("tool") or ""), arguments=arguments)


def _is_finished(data: Json) -> bool:
    return str(mapping(data.get("state")).get("status")) in {"completed", "error"}


def _read_result(data: Json) -> ToolResult:
    state = mapping(data.get("state"))
    failed = state.get("status") == "error"
    output = text(state.get("error" if failed else "output"))
    files = (_read_file(item) for item in objects(state.get("attachments")))
    content: list[ResultContent] = [Text(text=output)] if output else []
    result = ToolResult(
        call_id=str(data.get("callID") or ""), content=(*content, *files), is_error=failed, name=text(data.get("tool"))
    )
    return result.read_from(data, format=NAME)


def _read_usage(tokens: Json) -> Usage | None:
    cache = mapping(tokens.get("cache"))
    values = (tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write"), tokens.get("total"))
    counts = [count if isinstance(count, int) else 0 for count in values]
    if not any(counts):
        return None
    return Usage(input=counts[0], output=counts[1], cache_read=counts[2], cache_write=counts[3], total=counts[4])


def _describe(data: Json) -> SessionInfo:
    info = mapping(data.get("info")) or data
    if "role" in info:
        return SessionInfo(model=text(info.get("modelID")))
    return SessionInfo(
        session=text(info.get("id")),
        cwd=text(info.get("directory")),
        title=text(info.get("title")),
        model=text(mapping(info.get("model")).get("id")),
    )


OPENCODE: Final = Reader(name=NAME, claims=_claims, stream=_stream, describe=_describe, database=_DATABASE)
