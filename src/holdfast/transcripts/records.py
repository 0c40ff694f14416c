"""The records of a session file, version 3: encode them, read and write their messages, and remove text from them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import Message, Usage
from holdfast.moments import utc
from holdfast.providers.pi import PI
from holdfast.transcripts.entry import Entry, Json, make_entry, objects, stamp
from holdfast.transcripts.lines import Line

HEADER: Final = "session"


def encode(record: Json, *, strict: bool = True) -> bytes:
    """Encode a record as one line of a session file: JSON without spaces, and a line break.

    With `strict` numbers that are not finite are a FormatError: other readers of the file would lose the whole line.
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


def is_header(record: Json) -> bool:
    """Return whether a record is a session header."""
    return record.get("type") == HEADER and isinstance(record.get("id"), str)


def read_entry(record: Json, line: int) -> Entry:
    """Make an entry of a record, without its messages: `messages_of` reads those."""
    return make_entry(record, line, sidechain=record.get("appendMode") == "side")


def messages_of(entry: Entry) -> tuple[Message, ...]:
    """Read the messages of an entry, with the entry's id, and its time if they have none."""
    if entry.messages:
        return entry.messages
    data = entry.data
    fields: tuple[str, ...]
    if entry.type == "message":
        message = data.get("message")
        if not isinstance(message, Mapping):
            raise FormatError("a message entry without a message", where=f"line {entry.line}")
        is_hidden = message.get("role") == "bashExecution" and message.get("excludeFromContext")
        return () if is_hidden else (_read_message(message, entry),)
    if entry.type == "custom_message":
        role, fields = "custom", ("customType", "content", "display", "details")
    elif entry.type == "branch_summary" and data.get("summary"):
        role, fields = "branchSummary", ("summary", "fromId")
    else:
        return ()
    wire = {"role": role, **{key: data[key] for key in fields if key in data}, "timestamp": entry.timestamp}
    return (_read_message(wire, entry),)


def summary_message(compaction: Entry) -> Message:
    """Make the message that replaces those that a compaction summarised."""
    fields = {key: compaction.data.get(key) for key in ("summary", "tokensBefore")}
    return _read_message({"role": "compactionSummary", **fields, "timestamp": compaction.timestamp}, compaction)


def _read_message(wire: Json, entry: Entry) -> Message:
    return stamp(PI.read(wire, f"line {entry.line}: message"), entry)


_STOPS: Final = {
    **dict.fromkeys(("end_turn", "stop_sequence", "completed"), "stop"),
    **dict.fromkeys(("max_tokens", "incomplete"), "length"),
    **dict.fromkeys(("tool_use", "tool_calls", "function_call"), "toolUse"),
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
    reply = _make_reply_fields(message, provider=provider, api=api)
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
    usage = message.usage or Usage()
    names = {"input": "input", "output": "output", "cacheRead": "cache_read", "cacheWrite": "cache_write"}
    counts = {key: getattr(usage, name) for key, name in names.items()}
    return {
        # No api is better than a wrong one: readers decide by it who signed the thinking.
        **({"api": api} if api else {}),
        "provider": provider,
        "model": message.model or "",
        "usage": {**counts, "totalTokens": usage.context, "cost": dict.fromkeys([*counts, "total"], 0)},
        "stopReason": _STOPS.get(stop, stop),
    }


FORGOTTEN: Final = "[Forgotten.]"
"""Replaces the text of a forgotten message."""

_METADATA: Final = frozenset(
    {"api", "isError", "model", "provider", "role", "stopReason", "timestamp", "toolCallId", "toolName", "usage"}
)
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


def is_forgotten(entry: Entry) -> bool:
    """Return whether the text of an entry was removed by `remove_text`."""
    return entry.data.get("forgotten") is True


def remove_text(lines: Iterable[Line], entries: Collection[str]) -> Iterator[bytes]:
    """Yield the lines of a file without the text of these entries and of all later summaries, which may quote it."""
    has_removed = False
    for line in lines:
        record = line.data or {}
        if record.get("id") in entries and isinstance(message := record.get("message"), Mapping):
            has_removed = True
            # Calls keep id and name, which results refer to.
            kept: list[dict[str, Any]] = [
                {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
                for block in objects(message, "content")
                if block.get("type") == "toolCall"
            ]
            empty = {key: value for key, value in message.items() if key in _METADATA}
            empty["content"] = [{"type": "text", "text": FORGOTTEN}, *kept]
            yield encode({**record, "forgotten": True, "message": empty}, strict=False)
        elif has_removed and record.get("type") in _SUMMARIES:
            rest = {key: value for key, value in record.items() if key != "details"}
            yield encode({**rest, "summary": FORGOTTEN}, strict=False)
        else:
            yield line.ended
