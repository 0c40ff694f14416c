"""OpenCode: files of `opencode export`, `opencode.db`, and the JSON files of earlier versions in `storage`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.providers.wire import find, image_from_url, read_usage
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.lines import Head, decode, read_document
from holdfast.transcripts.reader import Database, Reader, attach_messages, facts, open_session

NAME: Final = "opencode"
_USAGE: Final = {
    **{name: name for name in ("input", "output", "total")},
    "cache_read": "cache.read",
    "cache_write": "cache.write",
}


def _claims(_path: Path, head: Head) -> bool:
    first = mapping(next(iter(head.values), None))
    is_export = isinstance(first.get("messages"), list) and "id" in mapping(first.get("info"))
    return is_export or (str(first.get("id", "")).startswith("ses_") and "projectID" in first and "time" in first)


def _stream(path: Path) -> Iterator[Item]:
    """Yield the session's own record, then every message with its parts."""
    try:
        data = mapping(read_document(path)) if path.is_file() else _load_database(path)
    except ValueError as error:
        raise TranscriptError(f"not a JSON document: {error}", path=path) from error
    info = mapping(data.get("info")) or data
    yield make_entry(info, 1, type="session", parent="", time="time.created")
    listed = data.get("messages")
    records: Iterator[Any] = iter(listed) if isinstance(listed, list) else _load_storage(path, str(info.get("id")))
    for line, record in enumerate(records, start=2):
        if not isinstance(record, Mapping):
            yield record if isinstance(record, Problem) else Problem(line, f"{type(record).__name__}, not a message")
            continue
        entry = make_entry(
            record,
            line,
            type=string(record, "info.role"),
            id="info.id",
            parent="info.parentID",
            time="info.time.created",
            sidechain=info.get("parentID") is not None,
        )
        yield from attach_messages(entry, _read_messages)


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
    rows_of: dict[str, list[Json]] = {}
    for part in parts:
        rows_of.setdefault(part["message_id"], []).append(part)
    records: list[Json | Problem] = []
    for line, message in enumerate(messages, start=2):
        try:
            read = [{"id": part["id"], **decode(part["data"])} for part in rows_of.get(message["id"], ())]
            records.append({"info": {"id": message["id"], **decode(message["data"])}, "parts": read})
        except (TypeError, ValueError) as error:
            records.append(Problem(line, f"message {message['id']}: {error}"))
    return {
        "info": {
            "id": row["id"],
            "title": row["title"],
            "directory": row["directory"],
            "parentID": row.get("parent_id"),
            "time": {"created": row["time_created"]},
        },
        "messages": records,
    }


def _read_messages(entry: Entry) -> Sequence[Message]:
    parts = objects(entry.data, "parts")
    if entry.type == "user":
        content = _read_parts(parts)
        return (Message(role="user", parts=content),) if content else ()
    messages: list[Message] = []
    step: list[Json] = []
    for part in parts if entry.type == "assistant" else ():
        if part.get("type") == "step-start":  # each call of the model begins with one
            messages += _read_step(step, mapping(entry.data.get("info")))
            step = []
        step.append(part)
    return [*messages, *_read_step(step, mapping(entry.data.get("info")))]


def _read_step(parts: Sequence[Json], info: Json) -> Iterator[Message]:
    if content := _read_parts(parts):
        tokens = next((part.get("tokens") for part in parts if part.get("type") == "step-finish"), info.get("tokens"))
        yield Message(
            role="assistant",
            parts=content,
            usage=read_usage(tokens, _USAGE),
            model=text(info, "modelID"),
            stop="error" if info.get("error") else text(info, "finish"),
        )
    tools = [part for part in parts if part.get("type") == "tool"]
    results = tuple(_read_result(part) for part in tools if find(part, "state.status") in ("completed", "error"))
    if results:
        yield Message(role="tool", parts=results)


def _read_parts(blocks: Sequence[Json]) -> tuple[Part, ...]:
    """Read the parts that the model sees, without the agent's own marks."""
    parts: list[Part] = []
    for data in blocks:
        part: Part | None = None
        match data.get("type"):
            case "text" if not data.get("ignored"):
                part = Text(text=string(data, "text"))
            case "reasoning":
                part = Thinking(text=string(data, "text"))
            case "file":
                part = _read_file(data)
            case "tool":
                arguments = mapping(find(data, "state.input"))
                part = ToolCall(id=string(data, "callID"), name=string(data, "tool"), arguments=arguments)
        if part is not None:
            parts.append(part.read_from(data, format=NAME))
    return tuple(parts)


def _read_file(data: Json) -> Image | Opaque:
    media_type, url = string(data, "mime"), data.get("url")
    if not media_type.startswith("image/") or not isinstance(url, str):
        return Opaque(kind="file", data=data)
    image = image_from_url(url)
    return image if image.media_type else Image(media_type=media_type, url=url)


def _read_result(data: Json) -> ToolResult:
    failed = find(data, "state.status") == "error"
    output = text(data, "state.error" if failed else "state.output")
    content: list[ResultContent] = [Text(text=output)] if output else []
    content += [_read_file(item) for item in objects(data, "state.attachments")]
    name = text(data, "tool")
    result = ToolResult(call_id=string(data, "callID"), content=tuple(content), is_error=failed, name=name)
    return result.read_from(data, format=NAME)


_MESSAGE_FACTS: Final = facts(model="info.modelID modelID")
_SESSION_FACTS: Final = facts(
    session="info.id id", cwd="info.directory directory", title="info.title title", model="info.model.id model.id"
)

OPENCODE: Final = Reader(
    name=NAME,
    claims=_claims,
    stream=_stream,
    describe=lambda data: _MESSAGE_FACTS if "role" in (mapping(data.get("info")) or data) else _SESSION_FACTS,
    database=Database(
        columns=("session.directory", "message.data", "part.message_id"),
        sessions="SELECT id, time_updated AS modified,"
        " (SELECT sum(length(data)) FROM part WHERE session_id = session.id) AS size FROM session",
    ),
)
