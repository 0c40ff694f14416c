"""Cursor: `state.vscdb`, a table of keys and JSON values, in which a chat is a composer and its messages are bubbles.

The format is not published; this follows what others have found. The key of a chat is `composerData:<chat>`, and that
of a message `bubbleId:<chat>:<bubble>`; the chat lists its bubbles in order. Older chats hold their bubbles themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.messages import Message, Part, Text, Thinking
from holdfast.transcripts.entry import Entry, Item, Json, Problem, mapping, objects, string, text, timestamp
from holdfast.transcripts.lines import decode
from holdfast.transcripts.reader import Database, Reader, attach_messages, facts, make_call, make_result, open_session

_USER: Final = 1
_ASSISTANT: Final = 2
_TYPES: Final = {_USER: "user", _ASSISTANT: "assistant"}
_SESSIONS: Final = (
    "SELECT substr(key, 14) AS id, length(value) AS size,"
    " CAST(coalesce(json_extract(value, '$.lastUpdatedAt'), json_extract(value, '$.createdAt')) AS INTEGER) AS modified"
    " FROM (SELECT key, CAST(value AS TEXT) AS value FROM cursorDiskKV"
    " WHERE key >= 'composerData:' AND key < 'composerData;')"
    " WHERE json_valid(value) AND (json_array_length(value, '$.fullConversationHeadersOnly') > 0"
    " OR json_array_length(value, '$.conversation') > 0)"
)


def _stream(path: Path) -> Iterator[Item]:
    with open_session(path) as (query, session):
        select = "SELECT CAST(value AS TEXT) AS value FROM cursorDiskKV WHERE key = ?"
        (row,) = query(select, f"composerData:{session}")
        rows = query(
            "SELECT key, CAST(value AS TEXT) AS value FROM cursorDiskKV WHERE key >= ? AND key < ?",
            f"bubbleId:{session}:",
            f"bubbleId:{session};",
        )
    chat = dict(decode(row["value"]))
    stored = {found["key"].rpartition(":")[2]: found["value"] for found in rows}
    bubbles, problems = _read_bubbles(chat, stored)
    yield Entry(
        type="composer",
        data={**chat, "session": session, "cwd": _find_folder(bubbles)},
        line=1,
        id=session,
        timestamp=timestamp(chat.get("createdAt")),
    )
    yield from problems
    for line, bubble in enumerate(bubbles, start=2):
        entry = Entry(
            type=_TYPES.get(bubble.get("type", 0), str(bubble.get("type"))),
            data=bubble,
            line=line,
            id=text(bubble, "bubbleId"),
            timestamp=timestamp(bubble.get("createdAt")) or timestamp(chat.get("createdAt")),
        )
        yield from attach_messages(entry, _read_messages)


def _read_bubbles(chat: Json, stored: Mapping[str, Any]) -> tuple[list[Json], list[Problem]]:
    """Return the bubbles of a chat in their order, and a problem for each that is listed and cannot be read."""
    bubbles: list[Json] = []
    problems: list[Problem] = []
    inside = mapping(chat.get("conversationMap"))
    listed = {string(header, "bubbleId") for header in objects(chat, "fullConversationHeadersOnly")}
    for number, header in enumerate(objects(chat, "fullConversationHeadersOnly"), start=2):
        name = string(header, "bubbleId")
        try:
            bubble = decode(stored[name]) if name in stored else inside[name]
        except (KeyError, TypeError, ValueError) as error:
            problems.append(Problem(number, f"bubble {name} is listed, and cannot be read: {error!r}"))
            continue
        bubbles.append({**header, **mapping(bubble)})
    if not listed:
        bubbles = [*objects(chat, "conversation")]
    left = [name for name in stored if name not in listed]
    if left:
        problems.append(Problem(1, f"{len(left)} bubbles that the chat no longer lists were not read"))
    return bubbles, problems


def _read_messages(entry: Entry) -> Sequence[Message]:
    """Read a bubble: a message of the user, or a reply with at most one call, whose result is in the same bubble."""
    bubble = entry.data
    parts: list[Part] = []
    thinking = text(bubble, "thinking.text")
    if thinking:
        parts.append(Thinking(text=thinking))
    words = text(bubble, "text")
    if words:
        parts.append(Text(text=words))
    if entry.type == "user":
        return [Message(role="user", parts=tuple(parts))] if parts else []
    tool = mapping(bubble.get("toolFormerData"))
    results: tuple[Message, ...] = ()
    if text(tool, "name") or text(tool, "toolCallId"):
        call_id = text(tool, "toolCallId") or string(bubble, "bubbleId")
        name = text(tool, "name") or "tool"
        arguments = tool.get("rawArgs") or tool.get("params") or {}
        parts.append(make_call(call_id, name, arguments))
        results = _read_result(tool, call_id, name)
    reply = [Message(role="assistant", parts=tuple(parts), model=text(bubble, "modelInfo.modelName"))] if parts else []
    return [*reply, *results]


def _read_result(tool: Json, call_id: str, name: str) -> tuple[Message, ...]:
    """Read the result of a call; one that was cancelled or still runs has none."""
    result = tool.get("result") or tool.get("error")
    if result is None:
        return ()
    shown = result if isinstance(result, str) else text(result, "output", "contents", "message") or str(result)
    is_error = tool.get("status") == "error" or not tool.get("result")
    return make_result(call_id, [Text(text=shown)], is_error=is_error, name=name)


def _find_folder(bubbles: Sequence[Json]) -> str:
    """Return the folder of the project, as messages of the user name it."""
    for bubble in bubbles:
        for address in bubble.get("workspaceUris") or ():
            if isinstance(address, str) and address.startswith("file://"):
                return unquote(urlsplit(address).path)
    return ""


CURSOR: Final = Reader(
    name="cursor",
    stream=_stream,
    describe=lambda data: (
        facts(session="session", cwd="cwd", title="name", topic="subtitle", model="modelConfig.modelName")
        if "fullConversationHeadersOnly" in data or "conversation" in data
        else {}
    ),
    database=Database(columns=("cursorDiskKV.key", "cursorDiskKV.value"), sessions=_SESSIONS),
)
