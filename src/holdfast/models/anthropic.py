"""Anthropic's Messages API, through Anthropic's SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.calls import create_ssl_context
from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Part, Text, ToolCall
from holdfast.models.base import Prompt, Reply
from holdfast.models.client import Draft, ProviderModel, get_text, make_reply
from holdfast.providers import render_request
from holdfast.providers.anthropic import USAGE, read_block
from holdfast.providers.wire import Json, decode_arguments, kind_of, object_arguments, read_usage

_PROVIDER: Final = "anthropic"
_STOPS: Final = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tools",
    "refusal": "refusal",
}
_OPTIONAL_FIELDS: Final = {"output_config": re.compile(r"output_(?:config|format)|schema|structured", re.IGNORECASE)}


class AnthropicModel(ProviderModel):
    """A model of Anthropic, or of another service with its Messages API.

    Pass a key or a bearer token. With `caching` the system prompt and the end of the conversation are marked for the
    provider's prompt cache. `extra` are more fields for every request, such as `{"thinking": {...}}`.
    """

    provider, _error, _method, _optional = _PROVIDER, "AnthropicError", "messages.create", _OPTIONAL_FIELDS

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        auth_token: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        caching: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import anthropic  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("Anthropic models", extra="anthropic") from None

        def connect(**options: Any) -> anthropic.AsyncAnthropic:
            http = anthropic.DefaultAsyncHttpxClient(verify=create_ssl_context())
            given: dict[str, Any] = {"api_key": api_key, "auth_token": auth_token, "base_url": base_url, **options}
            return anthropic.AsyncAnthropic(http_client=http, **given)

        self._caching = caching
        self._transform_schema: Callable[[Any], Any] = anthropic.transform_schema
        name = f"anthropic/{model}"
        super().__init__(model, name=name, context_tokens=context_tokens, extra=extra, sdk=anthropic, connect=connect)

    def _draft(self) -> Draft:
        return AnthropicDraft()

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        body = request_body(prompt, model=self._model, caching=self._caching)
        if prompt.schema is not None:
            schema = self._transform_schema(dict(prompt.schema))
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return body


_CACHE_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_CACHEABLE: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})


def request_body(prompt: Prompt, *, model: str, caching: bool = True) -> dict[str, Any]:
    """Build a request. Cache marks are added only if the messages carry none of their own."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": prompt.max_tokens,
        **render_request(prompt.messages, _PROVIDER),
    }
    if prompt.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
            for tool in prompt.tools
        ]
    lists = [body.get("system"), *(message["content"] for message in body["messages"])]
    is_marked = any("cache_control" in block for blocks in lists if isinstance(blocks, list) for block in blocks)
    if not caching or is_marked:
        return body
    # The mark at the end of the system prompt covers the tools before it; the other one is at the end of the messages.
    if body.get("system"):
        body["system"] = _mark_last(body["system"])
    if body["messages"]:
        *before, last = body["messages"]
        body["messages"] = [*before, {**last, "content": _mark_last(last["content"])}]
    return body


def _mark_last(content: str | Sequence[Json]) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for index in range(len(blocks) - 1, -1, -1):
        if kind_of(blocks[index]) in _CACHEABLE:
            return [*blocks[:index], {**blocks[index], **_CACHE_MARK}, *blocks[index + 1 :]]
    return blocks


_DELTA_FIELDS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
_TEXT_FIELDS: Final = frozenset({"text", "thinking", "signature"})


@dataclass(slots=True)
class _Block:
    """A content block that is being assembled: its first event, and what was added to its fields."""

    start: Json
    added: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)

    def add(self, delta: Json) -> str:
        key = _DELTA_FIELDS.get(kind_of(delta), "")
        piece = delta.get(key)
        if isinstance(piece, str):
            self.added.setdefault(key, []).append(piece)
        elif kind_of(delta) == "citations_delta":
            self.citations.append(delta.get("citation"))
        return piece if key == "text" and isinstance(piece, str) else ""

    def build(self) -> Part:
        added = {key: "".join(pieces) for key, pieces in self.added.items()}
        wire = {key: value for key, value in self.start.items() if value is not None}
        for key in _TEXT_FIELDS & added.keys():
            wire[key] = f"{wire.get(key, '')}{added[key]}"
        if self.citations:
            wire["citations"] = self.citations
        if not added.get("partial_json"):
            return read_block(wire, "content")
        arguments = decode_arguments(added["partial_json"])
        part = read_block({**wire, "input": object_arguments(arguments)}, "content")
        # Arguments that are not a JSON object cannot be sent back as they came, so the part has no wire form.
        if isinstance(part, ToolCall) and isinstance(arguments, str):
            return replace(part, arguments=arguments, origin=None)
        return part


class AnthropicDraft:
    """A reply that is being assembled from the events of the Messages API."""

    def __init__(self) -> None:
        self._envelope: Json = {}
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._ended = False

    def add(self, event: Json, /) -> str:
        """Add one event and return the text that it carried."""
        match event:
            case {"type": "message_start", "message": Mapping() as message}:
                self._envelope = message
                self._add_usage(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": Mapping() as block}:
                self._blocks[index] = _Block(block)
            case {"type": "content_block_delta", "index": int(index), "delta": Mapping() as delta}:
                return self._blocks[index].add(delta) if index in self._blocks else ""
            case {"type": "message_delta", "delta": Mapping() as delta}:
                self._stop = get_text(delta, "stop_reason") or self._stop
                self._add_usage(event.get("usage"))
            case {"type": "message_stop"}:
                self._ended = True
        return ""

    def _add_usage(self, usage: object) -> None:
        """Store token counts. Later counts are totals and replace earlier ones."""
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if not self._ended:
            return None
        parts = (block.build() for _, block in sorted(self._blocks.items()))
        message = Message(
            role="assistant",
            parts=tuple(part for part in parts if not isinstance(part, Text) or part.text.strip()),
            usage=read_usage(self._usage, USAGE),
            stop=self._stop,
        )
        return make_reply(message, self._envelope, _STOPS)
