"""OpenAI's Chat Completions and Responses APIs, through OpenAI's SDK; also compatible servers (Ollama, vLLM, ...)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.calls import create_ssl_context
from holdfast.errors import MissingExtraError
from holdfast.messages import Message, RedactedThinking, Text
from holdfast.models.base import Prompt, Reply, Tool
from holdfast.models.client import Draft, ProviderModel, make_reply
from holdfast.providers import read, render_request, wire
from holdfast.providers.openai_chat import read_usage
from holdfast.providers.replies import ChatStream, ResponsesStream

OPENAI_URL: Final = "https://api.openai.com/v1"

_CHAT: Final = "openai_chat"
_RESPONSES: Final = "openai_responses"
_CHAT_STOPS: Final = {
    "stop": "end",
    "length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refusal",
}
_RESPONSES_STOPS: Final = {"completed": "end", "max_output_tokens": "length", "content_filter": "refusal"}
_CHAT_OPTIONAL_FIELDS: Final = {
    "response_format": re.compile(r"response_format|json_schema|schema|structured|grammar", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
}
_RESPONSES_OPTIONAL_FIELDS: Final = {
    "text": re.compile(r"json_schema|schema|structured|text\.format", re.IGNORECASE),
    "include": re.compile(r"include|encrypted", re.IGNORECASE),
}
_RESPONSES_USAGE: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "input_tokens_details.cached_tokens",
    "cache_write": "input_tokens_details.cache_write_tokens",
}
_EMPTY: Final = (Text(text=""), RedactedThinking(data=""))


class OpenAIModel(ProviderModel):
    """A model behind an endpoint with the Chat Completions API, by default OpenAI's.

    `name` is what users type, by default `openai/` and the model; local servers need no key. `extra` are more fields
    for every request, such as `{"temperature": 0}`; `new_id` makes ids for tool calls that a server sends without one.
    """

    _service, provider, _error = "openai", _CHAT, "OpenAIError"
    _method, _optional = "chat.completions.create", _CHAT_OPTIONAL_FIELDS

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        new_id: Callable[[], str] = lambda: f"call_{uuid.uuid4().hex[:24]}",
    ) -> None:
        try:
            import openai  # noqa: PLC0415 - an extra
        except ImportError:
            raise MissingExtraError("a model of OpenAI or of a local server", extra="openai") from None

        def connect(**options: Any) -> openai.AsyncOpenAI:
            http = openai.DefaultAsyncHttpx2Client(verify=create_ssl_context())
            given: dict[str, Any] = {"api_key": api_key or "none", "base_url": base_url or OPENAI_URL, **options}
            return openai.AsyncOpenAI(http_client=http, **given)

        self._is_openai = base_url is None or base_url.rstrip("/") == OPENAI_URL
        self._new_id = new_id
        name = name or f"{self._service}/{model}"
        super().__init__(model, name=name, context_tokens=context_tokens, extra=extra, sdk=openai, connect=connect)

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return chat_body(prompt, model=self._model, is_openai=self._is_openai)

    def _draft(self) -> Draft:
        return ChatDraft(self._new_id)


class ResponsesModel(OpenAIModel):
    """A model behind an endpoint with OpenAI's Responses API; see `OpenAIModel`. Nothing is stored at the provider."""

    _service, provider = "openai-responses", _RESPONSES
    _method, _optional = "responses.create", _RESPONSES_OPTIONAL_FIELDS

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        """Build a request. Reasoning is requested encrypted, so that it can be sent back without being stored."""
        body: dict[str, Any] = {
            "model": self._model,
            **render_request(prompt.messages, _RESPONSES),
            "max_output_tokens": prompt.max_tokens,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        if prompt.tools:
            body["tools"] = [{"type": "function", **_describe(tool), "strict": False} for tool in prompt.tools]
        if prompt.schema is not None:
            strict = _is_strict(prompt.schema)
            schema = {"type": "json_schema", "name": "answer", "schema": dict(prompt.schema), "strict": strict}
            body["text"] = {"format": schema}
        return body

    def _draft(self) -> Draft:
        return ResponsesDraft()


# --- requests ----------------------------------------------------------------


def chat_body(prompt: Prompt, *, model: str, is_openai: bool = True) -> dict[str, Any]:
    """Build a Chat Completions request. OpenAI itself has a newer name for the maximum length."""
    body: dict[str, Any] = {
        "model": model,
        **render_request(prompt.messages, _CHAT),
        "max_completion_tokens" if is_openai else "max_tokens": prompt.max_tokens,
        "stream_options": {"include_usage": True},
    }
    if prompt.tools:
        body["tools"] = [{"type": "function", "function": _describe(tool)} for tool in prompt.tools]
    if prompt.schema is not None:
        schema = {"name": "answer", "schema": dict(prompt.schema), "strict": _is_strict(prompt.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def _describe(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def _is_strict(schema: Any) -> bool:
    """Return whether a schema follows OpenAI's rules for strict mode: closed objects, every field required."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    fields = schema.get("properties")
    closed = not isinstance(fields, Mapping) or (
        schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(fields)
    )
    return closed and all(map(_is_strict, schema.values()))


# --- replies ------------------------------------------------------------------


class ChatDraft(ChatStream):
    """A reply that is being assembled from the chunks of Chat Completions."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__()
        self._new_id = new_id

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if not self.has_ended:
            return None
        body = self.body()
        wire = body["choices"][0]["message"]
        if "tool_calls" in wire:
            wire["tool_calls"] = [{"id": call.get("id") or self._new_id(), **call} for call in wire["tool_calls"]]
        (message,) = read([wire], format=_CHAT)
        message = replace(
            message,
            parts=tuple(part for part in message.parts if getattr(part, "text", "-")),
            usage=read_usage(body.get("usage")),
            stop="content_filter" if "refusal" in wire else self.stop,
        )
        return make_reply(message, body, _CHAT_STOPS)


class ResponsesDraft(ResponsesStream):
    """A reply that is being assembled from the events of Responses."""

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if not self.has_ended:
            return None
        response = self.body()
        # Some endpoints do not accept as null what they sent as null.
        items = [{key: value for key, value in item.items() if value is not None} for item in response["output"]]
        every = [part for message in read(items, format=_RESPONSES) for part in message.parts]
        ends = (wire.find(response, "incomplete_details.reason"), response.get("status"), "completed")
        is_refused = any(part.origin is not None and part.origin.data.get("type") == "refusal" for part in every)
        message = Message(
            role="assistant",
            parts=tuple(part for part in every if part not in _EMPTY),
            usage=wire.read_usage(response.get("usage"), _RESPONSES_USAGE, has_cached_input=True),
            stop="content_filter" if is_refused else str(next(filter(None, ends))),
        )
        return make_reply(message, response, _RESPONSES_STOPS)
