"""Collect the message of a model's reply while its bytes pass by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import httpx2 as httpx

from holdfast.providers.wire import decode_arguments

Json: TypeAlias = dict[str, Any]

MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer reply passes without being collected."""
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
    "compaction_delta": ("content", "content"),
}
"""For each delta of Anthropic: the field that holds the text, and the field of the block that it continues."""

OPENINGS: Final = frozenset({"message_start", "response.created", "response.queued", "response.in_progress"})
"""The events of a stream that may come before an error that refuses the request."""
_BLOCK_LISTS: Final = {"anthropic": "content", "openai_chat": "tool_calls", "openai_responses": "output"}
"""For each format: the field of a reply that holds what is streamed in blocks."""


class ReplyCollector:
    """Collects one reply of a provider, streamed as server-sent events or as one JSON body.

    Attributes:
        has_begun: Whether an event of a stream has come that is not its opening.
        is_complete: Whether the last event of a stream has come.
        error: The provider's error inside a stream, as it came.
    """

    def __init__(self, format: str, *, is_stream: bool) -> None:
        self.has_begun = False
        self.is_complete = False
        self.error = ""
        self._format = format
        self._is_stream = is_stream
        self._bytes = bytearray()
        self._size = 0
        self._data: list[bytes] = []
        self._reply: Json = {}
        self._blocks: dict[int, Json] = {}
        self._has_finish_reason = False

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the reply."""
        self._size += len(chunk)
        if self._size > MAX_REPLY_BYTES:
            self._bytes.clear()
            return
        self._bytes += chunk
        if self._is_stream and (b"\n" in chunk or b"\r" in chunk):
            lines = self._bytes.splitlines(keepends=True)
            self._bytes = bytearray() if lines[-1].endswith(b"\n") else lines.pop()  # \r may be half of \r\n
            for line in lines:
                self._read_line(bytes(line))

    @property
    def is_cut(self) -> bool:
        """Whether a stream that is over broke off, or ended without its last event."""
        is_read = self._is_stream and self._size <= MAX_REPLY_BYTES
        return is_read and bool(self.error or not (self.is_complete or self._has_finish_reason))

    def messages(self) -> list[Json]:
        """Return the messages of a reply that is over, as the next request would contain them; none if it was cut."""
        received = self.received()
        return [] if self.is_cut else received

    def received(self) -> list[Json]:
        """Return what has come of the messages of a reply that is over, also where it was cut."""
        if self._size > MAX_REPLY_BYTES:
            return []
        if not self._is_stream:
            return read_reply(load_json(bytes(self._bytes)), self._format)
        self._read_line(bytes(self._bytes))  # a stream may end without an empty line
        self._read_line(b"")
        self._bytes.clear()
        blocks = [_finish_block(self._blocks[index]) for index in sorted(self._blocks)]
        if blocks or self._format == "anthropic":
            self._reply[_BLOCK_LISTS[self._format]] = blocks
        return read_reply(self._reply, self._format)

    def _read_line(self, line: bytes) -> None:
        """Read a line of a stream. An empty one ends an event."""
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            if data == b"[DONE]":
                self.is_complete = True
                return
            try:
                value = load_json(data)
                self.has_begun |= value.get("type") not in OPENINGS
                if value.get("error") or value.get("type") in {"error", "response.failed"}:
                    self.error = self.error or data.decode(errors="replace")
                else:
                    readers = {"anthropic": self._read_anthropic, "openai_chat": self._read_chat}
                    readers.get(self._format, self._read_responses)(value)
            except (AttributeError, TypeError, ValueError):  # not what the provider's format says
                self.error = self.error or data.decode(errors="replace")

    def _read_anthropic(self, event: Json) -> None:
        kind, index = event.get("type"), int(event.get("index") or 0)
        if kind == "message_start":
            self._reply = _object(event, "message")
        elif kind == "content_block_start":
            self._blocks[index] = _object(event, "content_block")
        elif kind == "content_block_delta":
            block, delta = self._blocks.setdefault(index, {}), _object(event, "delta")
            source, target = _DELTAS.get(str(delta.get("type")), ("", ""))
            if target:
                known = block.get(target)
                block[target] = (known if isinstance(known, str) else "") + str(delta.get(source, ""))
            elif "citation" in delta:
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        elif kind == "message_delta":
            usage = _object(self._reply, "usage") | _object(event, "usage")
            self._reply |= {**_object(event, "delta"), "usage": usage}
        self.is_complete |= kind == "message_stop"

    def _read_chat(self, event: Json) -> None:
        if isinstance(event.get("usage"), dict):
            self._reply["usage"] = event["usage"]
        first: Json = next((one for one in event.get("choices") or () if not one.get("index")), {})  # one goes on
        self._has_finish_reason |= bool(first.get("finish_reason"))  # not every server sends [DONE]
        for key, value in (first.get("delta") or {}).items():
            if key == "tool_calls":
                self._read_calls(value or ())
            elif isinstance(value, str):
                self._reply[key] = value if key == "role" else self._reply.get(key, "") + value

    def _read_calls(self, calls: Any) -> None:
        for call in calls:
            index = call.get("index")
            index = len(self._blocks) if index is None else int(index)
            block = self._blocks.setdefault(index, {"type": "function", "function": {}})
            function = call.get("function") or {}
            for key in ("name", "arguments"):
                block["function"][key] = block["function"].get(key, "") + (function.get(key) or "")
            block |= {key: value for key, value in call.items() if key not in {"index", "function"} and value}

    def _read_responses(self, event: Json) -> None:
        kind, index, item = event.get("type"), int(event.get("output_index") or 0), _object(event, "item")
        if kind == "response.output_item.done":
            self._blocks[index] = item
        elif kind == "response.output_item.added" and item.get("type") == "function_call":
            self._blocks[index] = {**item, "arguments": ""}
        elif kind == "response.function_call_arguments.delta":
            self._blocks[index]["arguments"] += str(event.get("delta"))
        elif kind == "response.output_text.delta":
            begun = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}
            self._blocks.setdefault(index, begun)["content"][-1]["text"] += str(event.get("delta"))
        elif kind in {"response.completed", "response.incomplete"}:
            self._reply = _object(event, "response")
            self.is_complete = True
            if self._reply.get("output"):
                self._blocks.clear()  # the last event has them all; some services leave them out


def read_reply(body: Mapping[str, Any], format: str) -> list[Json]:
    """Return the messages of a whole reply body, as the next request would contain them."""
    if format == "openai_responses":
        return [item for item in body.get("output") or () if isinstance(item, dict)]
    message = dict(body)
    if choices := body.get("choices"):
        message = {**(choices[0].get("message") or {}), "usage": body.get("usage")}
    has_content = any(message.get(key) for key in ("content", "tool_calls", "refusal"))
    return [{"role": "assistant", "content": None, **message}] if has_content else []


def _finish_block(block: Json) -> Json:
    """Parse the input of a tool call of Anthropic, which is streamed as JSON text; half of it stays text."""
    is_call = str(block.get("type")).endswith("tool_use") and isinstance(block.get("input"), str)
    return {**block, "input": decode_arguments(block["input"] or "{}")} if is_call else block


def is_stream(sent: httpx.Response) -> bool:
    """Whether a reply is streamed as server-sent events."""
    return str(sent.headers.get("content-type", "")).startswith("text/event-stream")


def _object(event: Json, key: str) -> Json:
    """Return a copy of an object inside an event; empty where there is none."""
    return dict(event.get(key) or {})


def load_json(data: bytes) -> Json:
    """Decode a JSON object; an empty one where there is none."""
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
