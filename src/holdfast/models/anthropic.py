"""Anthropic's Messages API, on Anthropic's own SDK."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Part, Text, ToolCall
from holdfast.models.base import Prompt, Reply
from holdfast.models.vendor import Vendor, VendorModel, plain, replied, tls
from holdfast.providers import render_request
from holdfast.providers.anthropic import read_block, read_usage
from holdfast.providers.wire import Json, decode_arguments, kind_of, object_arguments

__all__ = ["AnthropicModel", "request_body"]

_PROVIDER: Final = "anthropic"
_STOPS: Final = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tools",
    "refusal": "refusal",
}
_OPTIONAL: Final = {"output_config": re.compile(r"output_(?:config|format)|schema|structured", re.IGNORECASE)}


class AnthropicModel(VendorModel):
    """A model of Anthropic, or of whoever speaks its Messages API.

    Args:
        model: The provider's own name of it, such as `claude-sonnet-5-5`.
        api_key: The key; or `auth_token` in its place.
        auth_token: A bearer token.
        base_url: Another address than Anthropic's.
        context_tokens: The size of the window; unset, what is known of the model.
        caching: Mark the system prompt and the end of the conversation for the provider's prompt cache.
        extra: Further fields of every request, such as `{"thinking": {...}}`.
    """

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
            import httpx2  # noqa: PLC0415 - comes with it
        except ImportError:
            raise MissingExtraError("a model of Anthropic", extra="anthropic") from None
        self._model, self._provider = model, _PROVIDER
        self._name = f"anthropic/{model}"
        self._context_tokens = context_tokens
        self._caching = caching
        self._extra = dict(extra or {})
        self._schema: Callable[[Any], Any] = anthropic.transform_schema

        async def events(body: Json, seconds: float | None) -> AsyncIterator[Any]:
            # A fresh client for each call: a pool of connections belongs to one event loop, and so to one call.
            client = anthropic.AsyncAnthropic(
                api_key=api_key,
                auth_token=auth_token,
                base_url=base_url,
                max_retries=0,
                timeout=anthropic.DEFAULT_TIMEOUT if seconds is None else seconds,
                http_client=anthropic.DefaultAsyncHttpxClient(verify=tls()),
            )
            async with client, await client.messages.create(stream=True, **body) as stream:
                async for event in stream:
                    yield plain(event)

        self._vendor = Vendor(
            model=self.name,
            events=events,
            draft=_Draft,
            timeouts=(anthropic.APITimeoutError, httpx2.TimeoutException),
            broken=(anthropic.APIConnectionError, httpx2.HTTPError, httpx2.StreamError),
            refusals=(anthropic.AnthropicError,),
            optional=_OPTIONAL,
        )

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        body = request_body(prompt, model=self._model, caching=self._caching)
        if prompt.schema is not None:
            schema = self._schema(dict(prompt.schema))
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return body


# --- what goes out -----------------------------------------------------------

_MARK: Final = {"cache_control": {"type": "ephemeral"}}
_CACHED: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})


def request_body(prompt: Prompt, *, model: str, caching: bool = True) -> dict[str, Any]:
    """The fields of a request. What the messages mark for the cache themselves is left as it is."""
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
    return _marked(body) if caching and not _has_marks(body) else body


def _has_marks(body: Json) -> bool:
    system = body.get("system")
    lists = [message["content"] for message in body["messages"]] + [system]
    return any("cache_control" in block for blocks in lists if isinstance(blocks, list) for block in blocks)


def _marked(body: Json) -> dict[str, Any]:
    """The body with a mark behind the system prompt (and the tools before it), and one behind the last message."""
    marked = dict(body)
    if body.get("system"):
        marked["system"] = _mark_last(body["system"])
    if body["messages"]:
        *before, last = body["messages"]
        marked["messages"] = [*before, {**last, "content": _mark_last(last["content"])}]
    return marked


def _mark_last(content: str | Sequence[Json]) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for index in range(len(blocks) - 1, -1, -1):
        if kind_of(blocks[index]) in _CACHED:
            return [*blocks[:index], {**blocks[index], **_MARK}, *blocks[index + 1 :]]
    return blocks


# --- what comes in -----------------------------------------------------------

_FRAGMENTS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


_FIELDS: Final = frozenset({"text", "thinking", "signature"})


@dataclass(slots=True)
class _Block:
    """A content block in the making: how it began, and what was added to its fields."""

    began: Json
    added: dict[str, list[str]] = field(default_factory=dict)
    citations: list[Any] = field(default_factory=list)

    def add(self, delta: Json) -> str:
        key = _FRAGMENTS.get(kind_of(delta), "")
        piece = delta.get(key)
        if isinstance(piece, str):
            self.added.setdefault(key, []).append(piece)
        elif kind_of(delta) == "citations_delta":
            self.citations.append(delta.get("citation"))
        return piece if key == "text" and isinstance(piece, str) else ""

    def part(self) -> Part:
        added = {key: "".join(pieces) for key, pieces in self.added.items()}
        wire = {key: value for key, value in self.began.items() if value is not None}
        for key in _FIELDS & added.keys():
            wire[key] = f"{wire.get(key, '')}{added[key]}"
        if self.citations:
            wire["citations"] = self.citations
        if not added.get("partial_json"):
            return read_block(wire, "content")
        arguments = decode_arguments(added["partial_json"])
        part = read_block({**wire, "input": object_arguments(arguments)}, "content")
        # Text that is no object cannot be sent back as it came: it has no wire form, and is rendered anew.
        if isinstance(part, ToolCall) and isinstance(arguments, str):
            return replace(part, arguments=arguments, origin=None)
        return part


class _Draft:
    """A reply in the making, from the events of the Messages API."""

    def __init__(self) -> None:
        self._envelope: Json = {}
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._ended = False

    def add(self, event: Json, /) -> str:
        """Take in one event; the text that it brought."""
        match event:
            case {"type": "message_start", "message": Mapping() as message}:
                self._envelope = message
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": Mapping() as block}:
                self._blocks[index] = _Block(block)
            case {"type": "content_block_delta", "index": int(index), "delta": Mapping() as delta}:
                return self._blocks[index].add(delta) if index in self._blocks else ""
            case {"type": "message_delta", "delta": Mapping() as delta}:
                self._stop = _text(delta.get("stop_reason")) or self._stop
                self._count(event.get("usage"))
            case {"type": "message_stop"}:
                self._ended = True
        return ""

    def _count(self, usage: object) -> None:
        """Later figures are totals: they take the place of the earlier ones."""
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def reply(self) -> Reply | None:
        """The whole reply; None where it broke off."""
        if not self._ended:
            return None
        parts = (block.part() for _, block in sorted(self._blocks.items()))
        message = Message(
            role="assistant",
            parts=tuple(part for part in parts if not isinstance(part, Text) or part.text.strip()),
            id=_text(self._envelope.get("id")),
            usage=read_usage(self._usage),
            model=_text(self._envelope.get("model")),
            stop=self._stop,
        )
        return replied(message, _STOPS)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
