"""Anthropic's Messages API, through Anthropic's SDK."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.calls import create_ssl_context
from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Part, Text, ToolCall
from holdfast.models.base import Prompt, Reply
from holdfast.models.client import Draft, ProviderModel, make_reply
from holdfast.providers import render_request
from holdfast.providers.anthropic import ANTHROPIC, USAGE
from holdfast.providers.replies import AnthropicStream, get_text
from holdfast.providers.wire import Json, kind_of, read_usage

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
            raise MissingExtraError("an Anthropic model", extra="anthropic") from None

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


class AnthropicDraft(AnthropicStream):
    """A reply that is being assembled from the events of the Messages API."""

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if not self.has_ended:
            return None
        body = self.body()
        parts: list[Part] = []
        for part in ANTHROPIC.read({"role": "assistant", "content": body["content"]}, "reply").parts:
            # Arguments that are not a JSON object cannot be sent back as they came, so the part has no wire form.
            is_broken = isinstance(part, ToolCall) and isinstance(part.arguments, str)
            if not isinstance(part, Text) or part.text.strip():
                parts.append(replace(part, origin=None) if is_broken else part)
        message = Message(
            role="assistant",
            parts=tuple(parts),
            usage=read_usage(body.get("usage"), USAGE),
            stop=get_text(body, "stop_reason") or None,
        )
        return make_reply(message, body, _STOPS)
