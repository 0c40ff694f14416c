"""Collect the message of a model's reply while its bytes pass by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer reply passes without being collected."""
_DELTAS: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}
"""For each delta of Anthropic: the field that holds the text, and the field of the block that it continues."""


class ReplyCollector:
    """Collects one reply of a provider, streamed as server-sent events or as one JSON body.

    Attributes:
        is_complete: Whether the last event of a stream has come.
        error: The provider's error inside a stream, as it came.
    """

    def __init__(self, format: str, *, is_stream: bool) -> None:
        self.is_complete = False
        self.error = ""
        self._format = format
        self._is_stream = is_stream
        self._bytes = bytearray()
        self._size = 0
        self._reply: Json = {}
        self._blocks: dict[int, Json] = {}

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the reply."""
        self._size += len(chunk)
        if self._size > MAX_REPLY_BYTES:
            self._bytes.clear()
            return
        self._bytes += chunk
        if self._is_stream:
            *events, rest = self._bytes.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                self._read_event(bytes(event))
            self._bytes = bytearray(rest)

    def messages(self) -> list[Json]:
        """Return the messages of the reply, as the next request would contain them; none where it did not complete."""
        if self._size > MAX_REPLY_BYTES or self.error:
            return []
        if not self._is_stream:
            return read_reply(_load(bytes(self._bytes)), self._format)
        if not self.is_complete:
            return []
        if self._format == "anthropic":
            self._reply["content"] = [_finish_block(self._blocks[index]) for index in sorted(self._blocks)]
        elif self._format == "openai_chat" and self._blocks:
            self._reply["tool_calls"] = [self._blocks[index] for index in sorted(self._blocks)]
        return read_reply(self._reply, self._format)

    def _read_event(self, event: bytes) -> None:
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        if data == b"[DONE]":
            self.is_complete = True
            return
        value = _load(data)
        if "error" in value or value.get("type") in {"error", "response.failed"}:
            self.error = self.error or data.decode(errors="replace")
        elif self._format == "anthropic":
            self._read_anthropic(value)
        elif self._format == "openai_chat":
            self._read_chat(value)
        elif value.get("type") in {"response.completed", "response.incomplete"}:
            self._reply = value.get("response") or {}
            self.is_complete = True

    def _read_anthropic(self, event: Json) -> None:
        kind, index = event.get("type"), event.get("index", 0)
        if kind == "message_start":
            self._reply = dict(event.get("message") or {})
        elif kind == "content_block_start":
            self._blocks[index] = dict(event.get("content_block") or {})
        elif kind == "content_block_delta":
            _continue_block(self._blocks.setdefault(index, {}), event.get("delta") or {})
        elif kind == "message_delta":
            usage = {**(self._reply.get("usage") or {}), **(event.get("usage") or {})}
            self._reply |= {**event.get("delta", {}), "usage": usage}
        self.is_complete |= kind == "message_stop"

    def _read_chat(self, event: Json) -> None:
        if isinstance(event.get("usage"), dict):
            self._reply["usage"] = event["usage"]
        first: Json = next((one for one in event.get("choices") or () if not one.get("index")), {})  # one goes on
        for key, value in (first.get("delta") or {}).items():
            if key == "tool_calls":
                self._read_calls(value or ())
            elif isinstance(value, str):
                self._reply[key] = value if key == "role" else self._reply.get(key, "") + value

    def _read_calls(self, calls: Any) -> None:
        for call in calls:
            block = self._blocks.setdefault(call.get("index", len(self._blocks)), {"type": "function", "function": {}})
            function = call.get("function") or {}
            for key in ("name", "arguments"):
                block["function"][key] = block["function"].get(key, "") + (function.get(key) or "")
            block |= {key: value for key, value in call.items() if key not in {"index", "function"} and value}


def _continue_block(block: Json, delta: Json) -> None:
    """Add a delta of Anthropic to its block."""
    source, target = _DELTAS.get(str(delta.get("type")), ("", ""))
    if target:
        known = block.get(target)
        block[target] = (known if isinstance(known, str) else "") + str(delta.get(source, ""))
    elif "citation" in delta:
        block["citations"] = [*(block.get("citations") or ()), delta["citation"]]


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
    """Parse the input of a tool call, which is streamed as JSON text."""
    return {**block, "input": _load(block["input"].encode())} if isinstance(block.get("input"), str) else block


def _load(data: bytes) -> Json:
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
