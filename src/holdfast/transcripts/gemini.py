"""Gemini CLI and Qwen Code: `~/.gemini/tmp/<project>/chats/session-*`, `~/.qwen/projects/<cwd>/chats/<session>.jsonl`.

Both hold parts in the shape of the Gemini API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Message, Part, Role, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import FORMATS
from holdfast.providers.gemini import USAGE
from holdfast.providers.wire import find, read_usage
from holdfast.transcripts.claude_code import frame
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.reader import Reader, attach_messages, claims_if, facts, read_entries, read_values


def _read_parts(parts: Sequence[Json], entry: Entry) -> tuple[Part, ...]:
    return FORMATS["gemini"].read({"parts": parts}, f"line {entry.line}").parts


_USAGE: Final = {**USAGE, "total": "totalTokenCount total"}


def _make_message(role: Role, parts: Sequence[Part], usage: Any = None, model: str | None = None) -> list[Message]:
    """Make a message of parts, if there are any, with token counts by the names of the API or of Gemini CLI."""
    read = read_usage(usage, _USAGE, has_cached_input=True)
    return [Message(role=role, parts=tuple(parts), usage=read, model=model)] if parts else []


@dataclass(slots=True)
class _Log:
    """The combined records of a file: the session's own record, and its messages by id with their lines."""

    session: dict[str, Any] = field(default_factory=dict)
    records: dict[str, tuple[int, Json]] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    """Messages that the host wrote itself, in place of those that a compression removed."""

    def apply(self, line: int, data: Json) -> None:
        """Add a row: a message, a change of the session, or the withdrawal of messages."""
        target = data.get("$rewindTo")
        if isinstance(target, str):
            ids = list(self.records)
            self.withdrawn.update(ids[ids.index(target) if target in self.records else 0 :])
        elif "type" in data and "id" in data:
            self.add_record(line, data)
        else:
            patch = mapping(data.get("$set", data))
            self.session |= {key: value for key, value in patch.items() if key != "messages"}
            self.set_window(line, objects(patch, "messages"))

    def add_record(self, line: int, record: Json) -> None:
        id_ = str(record.get("id"))
        self.records[id_] = (self.records.get(id_, (line,))[0], record)
        self.withdrawn.discard(id_)

    def set_window(self, line: int, messages: Sequence[Json]) -> None:
        """Add the messages of a window that are new; those that are known come with other times."""
        ids = {str(record.get("id")) for record in messages}
        is_compressed = not ids.issuperset(self.records.keys() - self.withdrawn)
        for record in messages:
            if (id_ := str(record.get("id"))) not in self.records or id_ in self.withdrawn:
                self.add_record(line, record)
                self.own |= {id_} if is_compressed else set()


def _stream(path: Path) -> Iterator[Item]:
    """Yield the session's own record, then every message in its last version.

    A file is a log: a record with a known id replaces the earlier one, `$rewindTo` withdraws that message and all
    after it, and `$set` changes the session or its window. Messages that a compression removes stay messages.
    """
    log = _Log()
    for row in read_values(path):
        if isinstance(row, Problem):
            yield row
        else:
            log.apply(row[0], mapping(row[1]))
    root = path.parent.parent / ".project_root"  # next to the folder `chats`
    if root.is_file() and "directories" not in log.session:
        log.session["directories"] = [root.read_text("utf-8", "replace").strip()]
    yield make_entry(log.session, 1, type="session", id="", time="startTime")
    calls = [item for _, record in log.records.values() for item in objects(record, "toolCalls") if "result" in item]
    answered = frozenset(string(item, "id") for item in calls)
    for id_, (line, record) in log.records.items():
        entry = replace(make_entry(record, line, sidechain=log.session.get("kind") == "subagent"), id=id_)
        read = partial(_read_messages, answered=answered, is_own=id_ in log.own)
        yield from [entry] if id_ in log.withdrawn else attach_messages(entry, read)


def _read_messages(entry: Entry, *, answered: frozenset[str], is_own: bool) -> Sequence[Message]:
    if entry.type not in {"user", "gemini"}:
        return ()
    content = text(entry.data, "content")
    parts = (Text(text=content),) if content else _read_parts(objects(entry.data, "content"), entry)
    first = next(iter(parts), None)
    # The host begins a conversation with a description of the workspace.
    if is_own or (isinstance(first, Text) and first.text.startswith("<session_context>")):
        return _make_message("system", parts)
    if entry.type == "gemini":
        return _read_reply(entry, parts)
    # Results are next to their calls, and come again as a message.
    results = [part for part in parts if isinstance(part, ToolResult) and part.call_id not in answered]
    others = [part for part in parts if not isinstance(part, ToolResult)]
    return [*_make_message("tool", results), *_make_message("user", others)]


def _read_reply(entry: Entry, parts: Sequence[Part]) -> list[Message]:
    """Read a reply with its calls and their results; its content may repeat the calls."""
    data, items = entry.data, objects(entry.data, "toolCalls")
    thinking = [
        Thinking(text="\n".join(line for key in ("subject", "description") if (line := text(item, key))))
        for item in objects(data, "thoughts")
    ]
    calls = [
        ToolCall(id=text(item, "id", "name") or "", name=string(item, "name"), arguments=mapping(item.get("args")))
        for item in items
    ]
    words = [part for part in parts if not (items and isinstance(part, ToolCall))]
    reply = _make_message("assistant", [*thinking, *words, *calls], data.get("tokens"), text(data, "model"))
    return [*reply, *_make_message("tool", [_read_result(item, entry) for item in items if "result" in item])]


def _read_result(item: Json, entry: Entry) -> ToolResult:
    parts = _read_parts(objects(item, "result"), entry)
    return ToolResult(
        call_id=string(item, "id"),
        content=tuple(block for part in parts if isinstance(part, ToolResult) for block in part.content),
        is_error=item.get("status") in ("error", "cancelled"),
        name=text(item, "name"),
    )


GEMINI: Final = Reader(
    name="gemini",
    claims=lambda _path, head: {"sessionId", "projectHash"} <= mapping(next(iter(head.values), None)).keys(),
    stream=_stream,
    describe=facts(session="sessionId", cwd="directories.0", topic="summary", model="model"),
)


def _is_own(record: Json) -> bool:
    """Return whether a record has Claude Code's ids and parts of the Gemini API."""
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


QWEN: Final = Reader(
    name="qwen",
    claims=claims_if(_is_own),
    stream=lambda path: read_entries(path, _read_qwen, frame),
    describe=facts(session="sessionId", cwd="cwd", model="model"),
)
