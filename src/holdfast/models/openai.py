"""OpenAI's Chat Completions and Responses APIs, through OpenAI's SDK; also compatible servers (Ollama, vLLM, ...)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.calls import create_ssl_context
from holdfast.errors import MissingExtraError
from holdfast.messages import Message, RedactedThinking, Text
from holdfast.models.base import Prompt, Reply
from holdfast.models.client import Draft, ProviderModel, get_text, make_reply
from holdfast.providers import read, render_request, wire
from holdfast.providers.openai_chat import read_usage
from holdfast.providers.rules import blocks
from holdfast.providers.wire import Json, encode_arguments

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
_FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})


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
            raise MissingExtraError("models of OpenAI and of local servers", extra="openai") from None

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
        return responses_body(prompt, model=self._model)

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
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in prompt.tools
        ]
    if prompt.schema is not None:
        schema = {"name": "answer", "schema": dict(prompt.schema), "strict": _is_strict(prompt.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def responses_body(prompt: Prompt, *, model: str) -> dict[str, Any]:
    """Build a Responses request. Reasoning is requested encrypted, so that it can be sent back without being stored."""
    body: dict[str, Any] = {
        "model": model,
        **render_request(prompt.messages, _RESPONSES),
        "max_output_tokens": prompt.max_tokens,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if prompt.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
                "strict": False,
            }
            for tool in prompt.tools
        ]
    if prompt.schema is not None:
        strict = _is_strict(prompt.schema)
        schema = {"type": "json_schema", "name": "answer", "schema": dict(prompt.schema), "strict": strict}
        body["text"] = {"format": schema}
    return body


def _is_strict(schema: Any) -> bool:
    """Tell whether a schema follows OpenAI's rules for strict mode: closed objects, every field required."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    fields = schema.get("properties")
    closed = not isinstance(fields, Mapping) or (
        schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(fields)
    )
    return closed and all(map(_is_strict, schema.values()))


# --- replies of Chat Completions ---------------------------------------------

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Call:
    """A tool call that is being assembled."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, fragment: Json) -> None:
        self.id = self.id or get_text(fragment, "id")
        function = fragment.get("function")
        if isinstance(function, Mapping):
            self.name = self.name or get_text(function, "name")
            whole = function.get("arguments")
            piece = encode_arguments(whole) if isinstance(whole, Mapping) else get_text(function, "arguments")
            self.arguments.append(piece)

    def build(self, new_id: Callable[[], str]) -> Json:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id or new_id(), "type": "function", "function": function}


class ChatDraft:
    """A reply that is being assembled from the chunks of Chat Completions."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._texts: dict[str, list[str]] = {}
        self._calls: list[_Call] = []
        self._envelope: dict[str, Any] = {}
        self._stop: str | None = None

    def add(self, event: Json, /) -> str:
        """Add one chunk and return the text that it carried."""
        self._envelope |= {key: event[key] for key in ("id", "model", "usage") if event.get(key)}
        text = ""
        for choice in blocks(event.get("choices"))[:1]:
            self._stop = get_text(choice, "finish_reason") or self._stop
            for delta in blocks([choice.get("delta")]):
                # Some servers send a list of parts as the content.
                content = [get_text(part, "text") for part in blocks(delta.get("content"))]
                pieces = {key: get_text(delta, key) for key in ("content", *_REASONING_FIELDS, "refusal")}
                pieces["content"] += "".join(content)
                for key, piece in pieces.items():
                    self._texts.setdefault(key, []).append(piece)
                text += pieces["content"]
                for fragment in blocks(delta.get("tool_calls")):
                    self._call(fragment).add(fragment)
        return text

    def _call(self, fragment: Json) -> _Call:
        """Return the call that a fragment belongs to: the one with its index, unless its id starts a new call.

        Without an index, a fragment with a name starts a call, and others continue the last one.
        """
        index, call_id = fragment.get("index"), get_text(fragment, "id")
        if isinstance(index, int):
            calls = [call for call in self._calls if call.index == index]
        else:
            index = len(self._calls)
            is_new = any(function.get("name") for function in blocks([fragment.get("function")]))
            calls = [] if is_new else self._calls
        if not calls or (call_id and calls[-1].id and call_id != calls[-1].id):
            self._calls.append(_Call(index=index))
            return self._calls[-1]
        return calls[-1]

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if self._stop is None:
            return None
        texts = {key: text for key, pieces in self._texts.items() if (text := "".join(pieces))}
        calls = [call.build(self._new_id) for call in self._calls]
        wire = {
            "role": "assistant",
            "content": texts.pop("content", None if calls else ""),
            **texts,
            **({"tool_calls": calls} if calls else {}),
        }
        (message,) = read([wire], format=_CHAT)
        stop = "content_filter" if "refusal" in texts else self._stop
        message = replace(
            message,
            parts=tuple(part for part in message.parts if getattr(part, "text", "-")),
            usage=read_usage(self._envelope.get("usage")),
            stop=stop,
        )
        return make_reply(message, self._envelope, _CHAT_STOPS)


# --- replies of Responses ----------------------------------------------------


class ResponsesDraft:
    """A reply that is being assembled: items arrive whole, only their text arrives in pieces."""

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._response: Json | None = None

    def add(self, event: Json, /) -> str:
        """Add one event and return the text that it carried."""
        match event:
            case {"type": "response.output_text.delta", "delta": str(text)}:
                return text
            case {"type": "response.output_item.done", "item": Mapping() as item}:
                self._items.append(item)
            case {"type": str(kind), "response": Mapping() as response} if kind in _FINAL_EVENTS:
                self._response = response
        return ""

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if self._response is None:
            return None
        response = self._response
        # Some endpoints do not accept as null what they sent as null.
        items = [{key: value for key, value in item.items() if value is not None} for item in self._items]
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
