"""OpenAI's Chat Completions and Responses APIs, through OpenAI's SDK; also compatible servers (Ollama, vLLM, ...)."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.calls import create_ssl_context
from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Part, RedactedThinking, Text, Usage
from holdfast.models.base import Prompt, Reply
from holdfast.models.client import Draft, ProviderModel, Sdk, event_json, make_reply
from holdfast.providers import read, render_request
from holdfast.providers.openai_chat import read_usage
from holdfast.providers.wire import Json, encode_arguments, kind_of, number

if TYPE_CHECKING:
    import openai

__all__ = ["ChatDraft", "OpenAIModel", "ResponsesDraft", "ResponsesModel", "chat_body", "responses_body"]

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
_FAILED_EVENTS: Final = frozenset({"error", "response.failed"})
_FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class OpenAIModel(ProviderModel):
    """A model behind an endpoint with the Chat Completions API.

    Args:
        model: The endpoint's model name, such as `gpt-5` or `qwen3:8b`.
        name: The name that users type; by default `openai/` and the model.
        api_key: The API key; local servers need none.
        base_url: The endpoint; by default OpenAI's.
        context_tokens: The size of the window; by default the known size for this model.
        extra: More fields for every request, such as `{"temperature": 0}`.
        new_id: Makes ids for tool calls that a server sends without one.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        new_id: Callable[[], str] = _new_call_id,
    ) -> None:
        self._is_openai = base_url is None or base_url.rstrip("/") == OPENAI_URL
        sdk = _connect(
            create=lambda client, body: client.chat.completions.create(stream=True, **body),
            draft=partial(ChatDraft, new_id),
            optional_fields=_CHAT_OPTIONAL_FIELDS,
            api_key=api_key,
            base_url=base_url,
        )
        super().__init__(
            model,
            name=name or f"openai/{model}",
            provider=_CHAT,
            context_tokens=context_tokens,
            extra=extra,
            sdk=sdk,
        )

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return chat_body(prompt, model=self._model, is_openai=self._is_openai)


class ResponsesModel(ProviderModel):
    """A model behind an endpoint with OpenAI's Responses API. Nothing is stored at the provider.

    Args:
        model: The endpoint's model name, such as `gpt-6-sol`.
        name: The name that users type; by default `openai-responses/` and the model.
        api_key: The API key.
        base_url: The endpoint; by default OpenAI's.
        context_tokens: The size of the window; by default the known size for this model.
        extra: More fields for every request, such as `{"reasoning": {"effort": "low"}}`.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        context_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        sdk = _connect(
            create=lambda client, body: client.responses.create(stream=True, **body),
            draft=ResponsesDraft,
            optional_fields=_RESPONSES_OPTIONAL_FIELDS,
            api_key=api_key,
            base_url=base_url,
        )
        super().__init__(
            model,
            name=name or f"openai-responses/{model}",
            provider=_RESPONSES,
            context_tokens=context_tokens,
            extra=extra,
            sdk=sdk,
        )

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return responses_body(prompt, model=self._model)


def _connect(
    *,
    create: Callable[[openai.AsyncOpenAI, dict[str, Any]], Awaitable[Any]],
    draft: Callable[[], Draft],
    optional_fields: Mapping[str, re.Pattern[str]],
    api_key: str | None,
    base_url: str | None,
) -> Sdk:
    """Describe OpenAI's SDK for an endpoint. Nothing is sent.

    Raises:
        MissingExtraError: The SDK is not installed.
    """
    try:
        import openai  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("models of OpenAI and of local servers", extra="openai") from None

    async def events(body: Json, seconds: float | None) -> AsyncIterator[Any]:
        # A new client for each call: its connection pool belongs to one event loop, and so to one call.
        client = openai.AsyncOpenAI(
            api_key=api_key or "none",
            base_url=base_url or OPENAI_URL,
            max_retries=0,
            timeout=openai.DEFAULT_TIMEOUT if seconds is None else seconds,
            http_client=openai.DefaultAsyncHttpx2Client(verify=create_ssl_context()),
        )
        async with client, await create(client, dict(body)) as stream:
            async for event in stream:
                data = event_json(event)
                if isinstance(data, Mapping) and kind_of(data) in _FAILED_EVENTS:
                    raise openai.APIError("the response failed", stream.response.request, body=_event_error(data))
                yield data

    return Sdk(
        events=events,
        draft=draft,
        timeout_errors=(openai.APITimeoutError,),
        connection_errors=(openai.APIConnectionError,),
        api_errors=(openai.OpenAIError,),
        optional_fields=optional_fields,
    )


def _event_error(event: Json) -> Any:
    """Return the error in an event that ends a response early. The event's own `type` is not part of it."""
    response = event.get("response")
    if isinstance(response, Mapping):
        return response.get("error")
    return {key: event.get(key) for key in ("code", "message")}


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
        self.id = self.id or _text(fragment.get("id"))
        function = fragment.get("function")
        if isinstance(function, Mapping):
            self.name = self.name or _text(function.get("name"))
            arguments = function.get("arguments")
            self.arguments.append(encode_arguments(arguments) if isinstance(arguments, Mapping) else _text(arguments))

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
        for choice in _objects(event.get("choices"))[:1]:
            self._stop = _text(choice.get("finish_reason")) or self._stop
            for delta in _objects([choice.get("delta")]):
                text += self._add_text(delta)
                for fragment in _objects(delta.get("tool_calls")):
                    self._call(fragment).add(fragment)
        return text

    def _add_text(self, delta: Json) -> str:
        """Store the text of a delta and return that of its content."""
        for key in (*_REASONING_FIELDS, "refusal"):
            if piece := _text(delta.get(key)):
                self._texts.setdefault(key, []).append(piece)
        content = "".join(_content_texts(delta.get("content")))
        if content:
            self._texts.setdefault("content", []).append(content)
        return content

    def _call(self, fragment: Json) -> _Call:
        """Return the call that a fragment belongs to: the one with its index, unless its id starts a new call."""
        index, call_id = fragment.get("index"), _text(fragment.get("id"))
        call = self._find_call(index, fragment)
        if call is None or (call_id and call.id and call_id != call.id):
            call = _Call(index=index if isinstance(index, int) else len(self._calls))
            self._calls.append(call)
        return call

    def _find_call(self, index: object, fragment: Json) -> _Call | None:
        """Return the call with this index. Without one, a fragment with a name starts a call, others continue it."""
        if isinstance(index, int):
            return next((call for call in reversed(self._calls) if call.index == index), None)
        function = fragment.get("function")
        is_new = isinstance(function, Mapping) and bool(function.get("name"))
        return self._calls[-1] if self._calls and not is_new else None

    def build(self) -> Reply | None:
        """Return the complete reply; None if it broke off."""
        if self._stop is None:
            return None
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
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
            id=_text(self._envelope.get("id")) or None,
            model=_text(self._envelope.get("model")) or None,
            usage=read_usage(self._envelope.get("usage")),
            stop=stop,
        )
        return make_reply(message, _CHAT_STOPS)


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _content_texts(content: object) -> Iterator[str]:
    """Yield the text of a delta's content: a string, from some servers a list of parts."""
    yield _text(content)
    for part in _objects(content):
        yield _text(part.get("text"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


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
        response = self._response
        if response is None:
            return None
        # Some endpoints do not accept as null what they sent as null.
        items = [{key: value for key, value in item.items() if value is not None} for item in self._items]
        parts = tuple(
            part for message in read(items, format=_RESPONSES) for part in message.parts if not _is_empty(part)
        )
        message = Message(
            role="assistant",
            parts=parts,
            id=_text(response.get("id")) or None,
            model=_text(response.get("model")) or None,
            usage=_read_usage(response.get("usage")),
            stop="content_filter" if any(map(_is_refusal, parts)) else _stop_reason(response),
        )
        return make_reply(message, _RESPONSES_STOPS)


def _is_empty(part: Part) -> bool:
    return (isinstance(part, Text) and not part.text) or (isinstance(part, RedactedThinking) and not part.data)


def _is_refusal(part: Part) -> bool:
    return part.origin is not None and part.origin.data.get("type") == "refusal"


def _stop_reason(response: Json) -> str:
    """Return why the response ended: its status, or the reason that it is incomplete."""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return str(reason or response.get("status") or "completed")


def _read_usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping) or (sent := number(data.get("input_tokens"))) is None:
        return None
    details = data.get("input_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    cached, written = (number(details.get(key)) or 0 for key in ("cached_tokens", "cache_write_tokens"))
    fresh = max(0, sent - cached - written)
    return Usage(input=fresh, output=number(data.get("output_tokens")) or 0, cache_read=cached, cache_write=written)
