"""The lines of the memory-context plugin: `segments.jsonl` and `knowledge.jsonl`.

Data of the plugin is in the plugin's own fields; data that only Holdfast uses is under `holdfast`, which the plugin
ignores.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

from holdfast import patterns
from holdfast.errors import InputError
from holdfast.index.scopes import SCOPE_PARTS
from holdfast.messages import Message, Text, ToolResult
from holdfast.store.base import FactRow, FactType, MessageRow, Scope
from holdfast.store.codec import DAMAGE, from_json, text_bytes, to_json
from holdfast.store.cutting import cut
from holdfast.transcripts import journal
from holdfast.transcripts.lines import Line

SEGMENTS: Final = "segments.jsonl"
OWNER: Final = Scope(tenant="", project="", agent="folder", session="")
"""The scope of records about the files of a folder; no reader has it."""
OWN: Final = "holdfast"
FOREIGN: Final = "segment:"
"""Prefix of the nonce of a message that the plugin wrote."""

ContentKey: TypeAlias = tuple[Scope, str, str]

_ROLES: Final = frozenset({"user", "assistant"})
"""The roles that the plugin writes."""
_TOOL_ROLES: Final = frozenset({"tool", "toolResult"})
"""Roles that other programs write for the output of a tool."""
_TYPES: Final = frozenset(get_args(FactType))
_FACT_EXTRAS: Final = ("subject", "slot", "evidence", "quote", "questions", "pinned")
_LISTS: Final = ("evidence", "questions")


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that cannot be used, and why. It is kept in its file."""

    file: str
    line: int
    reason: str


def tokens(text: str) -> int:
    """Estimate the tokens of a text as the plugin does: a third of its UTF-16 units."""
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return max(1, math.ceil(units / 3))


def encode_line(data: Mapping[str, Any]) -> str:
    """Return an object as one line. Lone surrogates are written as escapes, which every reader understands."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")) + "\n"
    return text


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Append lines in one write, durable when this returns, on a line of their own if the last one has no end."""
    with journal.storage(path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            start = b""
            if size:
                os.lseek(descriptor, size - 1, os.SEEK_SET)
                if os.read(descriptor, 1) != b"\n":
                    start = b"\n"
            journal.append(descriptor, start + b"".join(lines), durable=True)
        finally:
            os.close(descriptor)


# --- scopes ------------------------------------------------------------------


def scope_to_json(scope: Scope) -> list[str]:
    """A scope as it is kept."""
    return [scope.tenant, scope.project, scope.agent, scope.session]


def scope_of(data: Mapping[str, Any], session: str) -> Scope:
    """The scope of a line; one that is not ours belongs to its session alone.

    Raises:
        InputError: It is not a scope.
    """
    own = data.get(OWN)
    if not isinstance(own, dict) or "scope" not in own:
        return Scope(session=session)
    return scope_from_json(own["scope"])


def scope_from_json(data: object) -> Scope:
    """The scope that `scope_to_json` wrote.

    Raises:
        InputError: It wrote something else.
    """
    if not isinstance(data, list) or len(data) != len(SCOPE_PARTS):
        raise InputError(f"{data!r} is not a scope")
    return Scope(**dict(zip(SCOPE_PARTS, data, strict=True)))


def scope_problem(data: Mapping[str, Any], session: str) -> str | None:
    """Return why the scope of a line cannot be used; None if it can."""
    try:
        scope_of(data, session)
    except InputError as error:
        return str(error)
    return None


# --- segments ------------------------------------------------------------------


def content_of(row: MessageRow) -> str:
    """Return the text of a message that the plugin would keep: that of a user or an assistant, without noise."""
    if row.message.role not in _ROLES or not row.scope.session or not row.passages:
        return ""
    if row.message.calls or row.message.results:
        return row.message.text
    return "".join(passage.text for passage in row.passages)


def segment_line(row: MessageRow, content: str, *, name: str, now: int) -> dict[str, Any]:
    """A message as a line of `segments.jsonl`."""
    time = row.message.timestamp
    if time is None:
        time = now
    line: dict[str, Any] = {
        "id": name,
        "sessionId": row.scope.session,
        "timestamp": time,
        "role": row.message.role,
        "content": content,
        "tokens": tokens(content),
        "metadata": {"topics": topics(content), "entities": entities(content)},
    }
    own: dict[str, Any] = {
        "scope": scope_to_json(row.scope),
        "digest": row.message.digest,
        "nonce": row.nonce,
    }
    # Only what the fields of the plugin do not say already.
    if _plain(line) != row.message or row.message.origin is not None:
        own["body"] = to_json(row.message)
    searchable = "".join(passage.text for passage in row.passages)
    if searchable != content:
        own["text"] = searchable
    return line | {OWN: own}


def segment_problem(data: Mapping[str, Any]) -> str | None:
    """Return why a line of `segments.jsonl` is no segment; None if it is one."""
    if not data.get("id") or not isinstance(data["id"], str):
        return "no id"
    if not data.get("sessionId") or not isinstance(data["sessionId"], str):
        return "no session"
    role = data.get("role")
    if not isinstance(role, str) or role not in _ROLES | _TOOL_ROLES:
        return "not of a user, an assistant or a tool"
    if not isinstance(data.get("content"), str):
        return "no text"
    if _segment_time(data.get("timestamp")) is None:
        return "no time"
    return scope_problem(data, data["sessionId"])


def _segment_time(value: object) -> int | None:
    """Read a time: Unix milliseconds as the plugin writes them, or ISO 8601, in UTC unless it has an offset."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return _whole(value)


def segment_of(line: Line) -> dict[str, Any] | None:
    """Return the data of a line that is a segment; None for any other line."""
    if line.data is None or segment_problem(line.data) is not None:
        return None
    return line.data


def segment_row(data: Mapping[str, Any]) -> MessageRow | None:
    """Return the message of a segment; None if our own part of the line is damaged."""
    own = data.get(OWN)
    try:
        nonce = f"{FOREIGN}{data['id']}"
        text = str(data["content"])
        if isinstance(own, dict):
            nonce = own["nonce"]
            text = str(own.get("text", text))
        if isinstance(own, dict) and "body" in own:
            message = from_json(own["body"])
        else:
            message = _plain(data)
        passages = tuple(cut(text, speaker=message.name or ""))
        return MessageRow(scope=scope_of(data, data["sessionId"]), message=message, nonce=nonce, passages=passages)
    except DAMAGE:
        return None


def segment_key(data: Mapping[str, Any]) -> ContentKey:
    """Return the key by which the plugin distinguishes this segment."""
    return content_key(scope_of(data, data["sessionId"]), data["role"], data["content"])


def line_problem(line: Line, facts: dict[str, FactRow], *, is_segment: bool) -> str | None:
    """Return why a line cannot be used, None if it can; `facts` are the latest versions before it."""
    data = line.data
    if data is None:
        return line.problem
    if is_segment:
        problem = segment_problem(data)
        if problem is None and segment_row(data) is None:
            return "not a message of Holdfast"
        return problem
    fact = read_fact(data, before=facts.get(str(data.get("id"))))
    if isinstance(fact, str):
        return fact
    facts[fact.id] = fact
    return None


def _plain(data: Mapping[str, Any]) -> Message:
    """Return the message that a segment stands for, by its fields alone."""
    text = Text(text=data["content"])
    time = _segment_time(data["timestamp"])
    if data["role"] not in _TOOL_ROLES:
        return Message(role=data["role"], parts=(text,), timestamp=time)
    call = data.get("toolCallId")
    if not isinstance(call, str) or not call:
        call = data["id"]
    name = data.get("toolName")
    if not isinstance(name, str):
        name = None
    result = ToolResult(call_id=call, content=(text,), name=name)
    return Message(role="tool", parts=(result,), timestamp=time)


# --- facts ---------------------------------------------------------------------


def fact_line(row: FactRow) -> dict[str, Any]:
    """A version of a fact as a line of `knowledge.jsonl`; one that belongs to the whole folder has no scope."""
    line: dict[str, Any] = {"id": row.id, "type": row.type, "content": row.content}
    if row.context:
        line["context"] = row.context
    line["timestamp"] = row.time
    if row.superseded_by is not None:
        line["supersededBy"] = row.superseded_by
    if row.deleted:
        line["_deleted"] = True
    own: dict[str, Any] = {}
    if row.scope != Scope():
        own["scope"] = scope_to_json(row.scope)
    for key in _FACT_EXTRAS:
        value = getattr(row, key)
        if value:
            own[key] = value
    if own:
        line[OWN] = own
    return line


def read_fact(data: Mapping[str, Any], *, before: FactRow | None) -> FactRow | str:
    """Return the version of a fact that a line states, or why it states none.

    One that is only deleted keeps the content of the version before.
    """
    name = data.get("id")
    if not isinstance(name, str) or not name:
        return "no id"
    deleted = data.get("_deleted") is True
    if deleted and before is not None and "content" not in data:
        data = {"type": before.type, "content": before.content, **data}
    if data.get("type") not in _TYPES or not isinstance(data.get("content"), str):
        return "not a fact of a known type"
    problem = scope_problem(data, "")
    if problem is not None:
        return problem
    after = data.get("supersededBy")
    if not isinstance(after, str):
        after = None
    return FactRow(
        scope=scope_of(data, ""),
        id=name,
        type=cast("FactType", data["type"]),
        content=data["content"],
        context=str(data.get("context") or ""),
        time=_whole(data.get("timestamp")),
        superseded_by=after,
        deleted=deleted,
        **_extras(data.get(OWN)),
    )


def _whole(number: object) -> int:
    if not isinstance(number, int | float) or not math.isfinite(number):
        return 0
    return int(number)


def _extras(own: object) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if not isinstance(own, dict):
        return extras
    for key, value in own.items():
        if key in _LISTS:
            extras[key] = tuple(value)
        elif key in _FACT_EXTRAS:
            extras[key] = value
    return extras


def content_key(scope: Scope, role: str, content: str) -> ContentKey:
    """Return the key by which the plugin distinguishes segments: session, role and a digest of the text."""
    return scope, role, hashlib.sha256(text_bytes(content)).hexdigest()[:16]


# --- topics and entities ---------------------------------------------------------

_WORD: Final = re.compile(r"[^\W_]+")


def topics(text: str) -> list[str]:
    """List the topics of a text: an English keyword counts as a whole word, a Chinese one anywhere."""
    words = set(_WORD.findall(text.lower()))
    found: list[str] = []
    for name, keywords in patterns.load("plugin")["topics"].items():
        for word in keywords.split():
            if word.isascii():
                is_named = word in words
            else:
                is_named = word in text
            if is_named:
                found.append(name)
                break
    return found


def entities(text: str) -> list[dict[str, Any]]:
    """List the things that a text names, each once and grouped by kind: the kind, the name, and the position."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    tables = patterns.load("plugin")
    for kind, source in (*tables["addresses"].items(), *tables["entities"].items()):
        pattern = patterns.compile_once(source)
        for match in pattern.finditer(text):
            value, offset = match.group(pattern.groups), match.start(pattern.groups)
            found.setdefault((kind, value), {"type": kind, "value": value, "offset": offset})
        if kind in tables["addresses"]:
            text = pattern.sub(lambda match: " " * len(match.group()), text)
    return list(found.values())
