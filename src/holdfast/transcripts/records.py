"""The records of a session file, version 3: how a line is written, and what a record says to the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import Message, Usage
from holdfast.moments import utc
from holdfast.providers.pi import PI
from holdfast.transcripts.entry import Entry

__all__ = [
    "HEADER",
    "LEAF",
    "TYPES",
    "VERSION",
    "encode",
    "is_header",
    "iso_time",
    "make_header",
    "messages_of",
    "read_entry",
    "read_time",
    "short_id",
    "summary_message",
    "version_of",
    "wire_messages",
]

VERSION: Final = 3
HEADER: Final = "session"
LEAF: Final = "leaf"
TYPES: Final = frozenset(
    {
        "message",
        "custom",
        "custom_message",
        "compaction",
        "branch_summary",
        "model_change",
        "thinking_level_change",
        "label",
        "session_info",
    }
)
"""The entries that move the visible leaf. A `leaf` entry is a move itself; any other type is kept unread."""

_SHORT: Final = 8
_TRIES: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


# --- lines -------------------------------------------------------------------


def encode(record: Mapping[str, Any], *, strict: bool = True) -> bytes:
    """One line of a session file: JSON without spaces, and a line break.

    Raises:
        FormatError: The record holds something that JSON cannot carry. A number that is not finite is
            such a thing where `strict`: other readers of the file would lose the whole line.
    """
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=not strict, separators=(",", ":"), default=_plain)
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair travels as an escape only
        return json.dumps(record, allow_nan=not strict, separators=(",", ":"), default=_plain).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as JSON: {error}", where=str(record.get("type", "record"))) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def iso_time(milliseconds: int) -> str:
    """A point in time as session files write it: `2026-02-10T14:00:00.000Z`."""
    return utc(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(text: object) -> int | None:
    """An ISO time in Unix milliseconds, None where it is no time; without a zone it counts as UTC."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def short_id(new_id: Callable[[], str], *, taken: Callable[[str], bool]) -> str:
    """An entry's id: the beginning of a UUID that is free, or a whole one where luck runs out."""
    for _ in range(_TRIES):
        entry_id = new_id()[:_SHORT]
        if not taken(entry_id):
            return entry_id
    return new_id()


# --- the header --------------------------------------------------------------


def make_header(*, session: str, now: int, cwd: str = "", parent: str | None = None) -> dict[str, Any]:
    """The first line of a session; `parent` is the file it was forked from."""
    header = {"type": HEADER, "version": VERSION, "id": session, "timestamp": iso_time(now), "cwd": cwd}
    return header if parent is None else {**header, "parentSession": parent}


def is_header(record: Mapping[str, Any]) -> bool:
    """Whether a record can open a session."""
    return record.get("type") == HEADER and isinstance(record.get("id"), str)


def version_of(header: Mapping[str, Any]) -> int:
    """The version that a header states; the first one stated none."""
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


# --- entries -----------------------------------------------------------------


def read_entry(record: Mapping[str, Any], *, line: int) -> Entry:
    """A record as an entry, its messages not read yet: `messages_of` does that where they are wanted."""
    kind = record.get("type")
    return Entry(
        type=kind if isinstance(kind, str) else "",
        data=record,
        line=line,
        id=_text(record.get("id")),
        parent=_text(record.get("parentId")),
        timestamp=read_time(record.get("timestamp")),
        sidechain=record.get("appendMode") == "side",
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def messages_of(entry: Entry) -> tuple[Message, ...]:
    """What an entry says to the model, with the entry's id and, where it has no time of its own, the entry's time.

    Raises:
        FormatError: The message cannot be read.
    """
    if entry.messages:
        return entry.messages
    wire = _wire(entry)
    return () if wire is None else (_said(wire, entry),)


def summary_message(compaction: Entry) -> Message:
    """What the model is told instead of the messages that a compaction replaced."""
    data = compaction.data
    wire = {"role": "compactionSummary", "summary": data.get("summary"), "tokensBefore": data.get("tokensBefore")}
    return _said(wire | {"timestamp": compaction.timestamp}, compaction)


def _said(wire: Mapping[str, Any], entry: Entry) -> Message:
    message = PI.read(wire, f"line {entry.line}: message")
    return replace(message, id=entry.id, timestamp=entry.timestamp if message.timestamp is None else message.timestamp)


def _wire(entry: Entry) -> Mapping[str, Any] | None:
    data = entry.data
    if entry.type == "message":
        message = data.get("message")
        if not isinstance(message, Mapping):
            raise FormatError("a message entry without a message", where=f"line {entry.line}")
        hidden = message.get("role") == "bashExecution" and message.get("excludeFromContext")
        return None if hidden else message
    if entry.type == "custom_message":
        kept = {key: data[key] for key in ("customType", "content", "display", "details") if key in data}
        return {"role": "custom", **kept, "timestamp": entry.timestamp}
    if entry.type == "branch_summary" and data.get("summary"):
        kept = {key: data[key] for key in ("summary", "fromId") if key in data}
        return {"role": "branchSummary", **kept, "timestamp": entry.timestamp}
    return None


# --- messages, to be written -------------------------------------------------

_STOPS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "max_tokens": "length",
    "incomplete": "length",
    "tool_use": "toolUse",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}
_APIS: Final = {
    "anthropic": "anthropic-messages",
    "openai_chat": "openai-completions",
    "openai_responses": "openai-responses",
}


def wire_messages(message: Message, *, now: int, provider: str = "", api: str | None = None) -> list[dict[str, Any]]:
    """A message as session files hold it: as it came where it came from one, else with every field that readers expect.

    A message with several tool results becomes one for each.
    """
    rendered = [dict(wire) for wire in PI.render([message])]
    if message.wire(PI.name) is not None:
        return rendered
    stamp = {"timestamp": now if message.timestamp is None else message.timestamp}
    made = message.origin.format if message.origin is not None else ""
    # No api is better than a wrong one: readers judge by it whose signatures the thinking carries.
    spoken = {"api": api or _APIS[made]} if api or made in _APIS else {}
    reply = {**spoken, "provider": provider, **_reply(message)}
    return [(_complete(wire, reply) if wire["role"] == "assistant" else wire) | stamp for wire in rendered]


def _reply(message: Message) -> dict[str, Any]:
    stop = message.stop or ("toolUse" if message.calls else "stop")
    usage = _usage(message.usage or Usage())
    return {"model": message.model or "", "usage": usage, "stopReason": _STOPS.get(stop, stop)}


def _complete(wire: Mapping[str, Any], reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply: role and content first, then what is known of its making; what it carries itself goes before ours."""
    front = {"role": wire["role"], "content": wire["content"]}
    return {**front, **reply, **wire, "stopReason": reply["stopReason"]}


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
    }
    cost = dict.fromkeys([*counts, "total"], 0)
    return {**counts, "totalTokens": usage.context, "cost": cost}
