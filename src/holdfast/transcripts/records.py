"""The records of a session file, version 3: encode and decode them, read their messages, redact and fork them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import Message, Usage
from holdfast.moments import utc
from holdfast.providers.pi import PI
from holdfast.transcripts.entry import Entry
from holdfast.transcripts.lines import Line

__all__ = [
    "FORGOTTEN",
    "HEADER",
    "LEAF",
    "TYPES",
    "VERSION",
    "encode",
    "fork_records",
    "is_forgotten",
    "is_header",
    "iso_time",
    "make_header",
    "messages_of",
    "read_entry",
    "read_time",
    "remove_text",
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
"""The entry types that move the visible leaf. A `leaf` entry is a move itself; other types are kept but not read."""

_ID_LENGTH: Final = 8
_MAX_ID_TRIES: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


# --- lines -------------------------------------------------------------------


def encode(record: Mapping[str, Any], *, strict: bool = True) -> bytes:
    """Encode a record as one line of a session file: JSON without spaces, and a line break.

    Raises:
        FormatError: The record holds a value that JSON cannot represent. With `strict` that includes numbers
            that are not finite: other readers of the file would lose the whole line.
    """
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=not strict, separators=(",", ":"), default=_to_dict)
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate can only be written as an escape
        return json.dumps(record, allow_nan=not strict, separators=(",", ":"), default=_to_dict).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as JSON: {error}", where=str(record.get("type", "record"))) from error


def _to_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def iso_time(milliseconds: int) -> str:
    """Format Unix milliseconds as session files do: `2026-02-10T14:00:00.000Z`."""
    return utc(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(text: object) -> int | None:
    """Parse an ISO time to Unix milliseconds, as UTC if it has no zone; None where the value is not a time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def short_id(new_id: Callable[[], str], *, taken: Callable[[str], bool]) -> str:
    """Return a new entry id: the first 8 characters of a UUID, or a whole UUID if all tries are taken."""
    for _ in range(_MAX_ID_TRIES):
        entry_id = new_id()[:_ID_LENGTH]
        if not taken(entry_id):
            return entry_id
    return new_id()


# --- the header --------------------------------------------------------------


def make_header(*, session: str, now: int, cwd: str = "", parent: str | None = None) -> dict[str, Any]:
    """Make the first record of a session; `parent` is the file it was forked from."""
    header = {"type": HEADER, "version": VERSION, "id": session, "timestamp": iso_time(now), "cwd": cwd}
    return header if parent is None else {**header, "parentSession": parent}


def is_header(record: Mapping[str, Any]) -> bool:
    """Whether a record is a session header."""
    return record.get("type") == HEADER and isinstance(record.get("id"), str)


def version_of(header: Mapping[str, Any]) -> int:
    """Return the version that a header states; version 1 states none."""
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


# --- entries -----------------------------------------------------------------


def read_entry(record: Mapping[str, Any], *, line: int) -> Entry:
    """Make an entry of a record, without its messages: `messages_of` reads those."""
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
    """Read the messages of an entry, with the entry's id, and its time where they have none.

    Raises:
        FormatError: The message cannot be read.
    """
    if entry.messages:
        return entry.messages
    wire = _get_wire(entry)
    return () if wire is None else (_read_message(wire, entry),)


def summary_message(compaction: Entry) -> Message:
    """Make the message that replaces those that a compaction summarised."""
    data = compaction.data
    wire = {"role": "compactionSummary", "summary": data.get("summary"), "tokensBefore": data.get("tokensBefore")}
    return _read_message(wire | {"timestamp": compaction.timestamp}, compaction)


def _read_message(wire: Mapping[str, Any], entry: Entry) -> Message:
    message = PI.read(wire, f"line {entry.line}: message")
    return replace(message, id=entry.id, timestamp=entry.timestamp if message.timestamp is None else message.timestamp)


def _get_wire(entry: Entry) -> Mapping[str, Any] | None:
    data = entry.data
    if entry.type == "message":
        message = data.get("message")
        if not isinstance(message, Mapping):
            raise FormatError("a message entry without a message", where=f"line {entry.line}")
        hidden = message.get("role") == "bashExecution" and message.get("excludeFromContext")
        return None if hidden else message
    if entry.type == "custom_message":
        fields = {key: data[key] for key in ("customType", "content", "display", "details") if key in data}
        return {"role": "custom", **fields, "timestamp": entry.timestamp}
    if entry.type == "branch_summary" and data.get("summary"):
        fields = {key: data[key] for key in ("summary", "fromId") if key in data}
        return {"role": "branchSummary", **fields, "timestamp": entry.timestamp}
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
    """Render a message for a session file: unchanged if it came from one, else with every field that readers expect.

    A message with several tool results becomes one for each.
    """
    rendered = [dict(wire) for wire in PI.render([message])]
    if message.wire(PI.name) is not None:
        return rendered
    stamp = {"timestamp": now if message.timestamp is None else message.timestamp}
    reply = _make_reply_fields(message, provider=provider, api=api) if message.role == "assistant" else {}
    # Role and content first; a message's own fields override ours, except for the stop reason.
    return [
        {"role": wire["role"], "content": wire["content"], **reply, **wire, "stopReason": reply["stopReason"], **stamp}
        if wire["role"] == "assistant"
        else {**wire, **stamp}
        for wire in rendered
    ]


def _make_reply_fields(message: Message, *, provider: str, api: str | None) -> dict[str, Any]:
    if api is None and message.origin is not None:
        api = _APIS.get(message.origin.format)
    stop = message.stop or ("toolUse" if message.calls else "stop")
    return {
        # No api is better than a wrong one: readers decide by it who signed the thinking.
        **({"api": api} if api else {}),
        "provider": provider,
        "model": message.model or "",
        "usage": _render_usage(message.usage or Usage()),
        "stopReason": _STOPS.get(stop, stop),
    }


def _render_usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
    }
    cost = dict.fromkeys([*counts, "total"], 0)
    return {**counts, "totalTokens": usage.context, "cost": cost}


# --- forgotten entries -----------------------------------------------------------

FORGOTTEN: Final = "[Forgotten.]"
"""Replaces the text of a forgotten message."""

_METADATA: Final = frozenset(
    {"api", "isError", "model", "provider", "role", "stopReason", "timestamp", "toolCallId", "toolName", "usage"}
)
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


def is_forgotten(entry: Entry) -> bool:
    """Whether the text of an entry was removed by `remove_text`."""
    return entry.data.get("forgotten") is True


def remove_text(lines: Iterable[Line], entries: Collection[str]) -> Iterator[bytes]:
    """Yield the lines of a file without the text of these entries and of all later summaries, which may quote it."""
    removed = False
    for line in lines:
        record = line.data or {}
        if record.get("id") in entries and isinstance(message := record.get("message"), Mapping):
            removed = True
            yield encode({**record, "forgotten": True, "message": _remove_content(message)}, strict=False)
        elif removed and record.get("type") in _SUMMARIES:
            rest = {key: value for key, value in record.items() if key != "details"}
            yield encode({**rest, "summary": FORGOTTEN}, strict=False)
        else:
            yield line.raw if line.raw.endswith(b"\n") else line.raw + b"\n"


def _remove_content(message: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the content of a message; its calls keep id and name, which results refer to."""
    content = message.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    calls: list[dict[str, Any]] = [
        {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "toolCall"
    ]
    metadata = {key: value for key, value in message.items() if key in _METADATA}
    return {**metadata, "content": [{"type": "text", "text": FORGOTTEN}, *calls]}


# --- forks -----------------------------------------------------------------------


def _replace_labels(path: Sequence[Entry]) -> dict[str, str]:
    """Return the next entry of another type for each label entry, where there is one."""
    replacements: dict[str, str] = {}
    after: str | None = None
    for entry in reversed(path):
        if entry.type != "label":
            after = entry.id
        elif entry.id is not None and after is not None:
            replacements[entry.id] = after
    return replacements


def fork_records(
    path: Sequence[Entry], *, labels: Mapping[str, str], now: int, new_id: Callable[[], str]
) -> Iterator[dict[str, Any]]:
    """Yield the records of a session that begins with `path`: its entries without branches, then their labels.

    Label entries are left out, so a reference to one is changed to the entry after it.
    """
    entries = [entry for entry in path if entry.type != "label"]
    replacements = _replace_labels(path)
    last: str | None = None
    for entry in entries:
        record = {**entry.data, "parentId": last}
        record.pop("appendMode", None)  # on the path it is no longer a side entry
        first = record.get("firstKeptEntryId")
        if isinstance(first, str):
            record["firstKeptEntryId"] = replacements.get(first, first)
        yield record
        last = entry.id
    ids = {str(entry.id) for entry in entries}
    for target in (entry.id for entry in entries if entry.id in labels):
        label_id = short_id(new_id, taken=ids.__contains__)
        ids.add(label_id)
        label = {"targetId": target, "label": labels[str(target)]}
        yield {"type": "label", "id": label_id, "parentId": last, "timestamp": iso_time(now), **label}
        last = label_id
