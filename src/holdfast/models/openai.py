"""Chat Completions on OpenAI's own SDK: OpenAI, and whatever speaks as it does (Ollama, llama.cpp, vLLM, ...)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from holdfast.models.base import Prompt, Reply
from holdfast.models.openai_client import OWN_URL, connected, is_strict
from holdfast.models.vendor import VendorModel, replied
from holdfast.providers import read, render_request
from holdfast.providers.openai_chat import read_usage
from holdfast.providers.wire import Json, encode_arguments

__all__ = ["OpenAIModel", "request_body"]

_PROVIDER: Final = "openai_chat"
_STOPS: Final = {
    "stop": "end",
    "length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refusal",
}
_OPTIONAL: Final = {
    "response_format": re.compile(r"response_format|json_schema|schema|structured|grammar", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
}


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class OpenAIModel(VendorModel):
    """A model behind an endpoint that speaks Chat Completions.

    Args:
        model: The endpoint's own name of it, such as `gpt-5` or `qwen3:8b`.
        name: What a user calls it by; unset, `openai/` and the model.
        api_key: The key; local servers need none.
        base_url: The endpoint; unset, OpenAI's.
        context_tokens: The size of the window; unset, what is known of the model.
        extra: Further fields of every request, such as `{"temperature": 0}`.
        new_id: Makes ids for calls that a server sends without one.
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
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._model, self._provider = model, _PROVIDER
        self._name = name or f"openai/{model}"
        self._own = base_url is None or base_url.rstrip("/") == OWN_URL
        self._context_tokens = context_tokens
        self._extra = dict(extra or {})
        self._vendor = connected(
            self._name,
            create=lambda client, body: client.chat.completions.create(stream=True, **body),
            draft=partial(_Draft, new_id),
            optional=_OPTIONAL,
            api_key=api_key,
            base_url=base_url,
        )

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return request_body(prompt, model=self._model, own=self._own)


# --- what goes out -----------------------------------------------------------


def request_body(prompt: Prompt, *, model: str, own: bool = True) -> dict[str, Any]:
    """The fields of a request. `own` is OpenAI itself, which has a newer name for the longest answer."""
    body: dict[str, Any] = {
        "model": model,
        **render_request(prompt.messages, _PROVIDER),
        "max_completion_tokens" if own else "max_tokens": prompt.max_tokens,
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
        schema = {"name": "answer", "schema": dict(prompt.schema), "strict": is_strict(prompt.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


# --- what comes in -----------------------------------------------------------

_THOUGHTS: Final = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def add(self, fragment: Json) -> None:
        self.id = self.id or _text(fragment.get("id"))
        function = fragment.get("function")
        if isinstance(function, Mapping):
            self.name = self.name or _text(function.get("name"))
            said = function.get("arguments")
            self.arguments.append(encode_arguments(said) if isinstance(said, Mapping) else _text(said))

    def wire(self, new_id: Callable[[], str]) -> Json:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id or new_id(), "type": "function", "function": function}


class _Draft:
    """A reply in the making, from the chunks of Chat Completions."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._said: dict[str, list[str]] = {}
        self._calls: list[_Call] = []
        self._envelope: dict[str, Any] = {}
        self._stop: str | None = None

    def add(self, event: Json, /) -> str:
        """Take in one chunk; the text that it brought."""
        self._envelope |= {key: event[key] for key in ("id", "model", "usage") if event.get(key)}
        text = ""
        for choice in _objects(event.get("choices"))[:1]:
            self._stop = _text(choice.get("finish_reason")) or self._stop
            for delta in _objects([choice.get("delta")]):
                text += self._spoken(delta)
                for fragment in _objects(delta.get("tool_calls")):
                    self._call(fragment).add(fragment)
        return text

    def _spoken(self, delta: Json) -> str:
        """Note the words of a delta; those of its content are handed on."""
        for key in (*_THOUGHTS, "refusal"):
            if piece := _text(delta.get(key)):
                self._said.setdefault(key, []).append(piece)
        content = "".join(_pieces(delta.get("content")))
        if content:
            self._said.setdefault("content", []).append(content)
        return content

    def _call(self, fragment: Json) -> _Call:
        """The call that a fragment belongs to: the one of its index, unless its id says that another begins."""
        index, call_id = fragment.get("index"), _text(fragment.get("id"))
        found = self._with_index(index) if isinstance(index, int) else self._last(fragment)
        if found is None or (call_id and found.id and call_id != found.id):
            found = _Call(index=index if isinstance(index, int) else len(self._calls))
            self._calls.append(found)
        return found

    def _with_index(self, index: int) -> _Call | None:
        return next((call for call in reversed(self._calls) if call.index == index), None)

    def _last(self, fragment: Json) -> _Call | None:
        """Where a server gives no index, a name begins a call, and what has none goes on with the last."""
        function = fragment.get("function")
        begins = isinstance(function, Mapping) and bool(function.get("name"))
        return self._calls[-1] if self._calls and not begins else None

    def reply(self) -> Reply | None:
        """The whole reply; None where it broke off."""
        if self._stop is None:
            return None
        said = {key: "".join(pieces) for key, pieces in self._said.items()}
        calls = [call.wire(self._new_id) for call in self._calls]
        wire = {
            "role": "assistant",
            "content": said.pop("content", None if calls else ""),
            **said,
            **({"tool_calls": calls} if calls else {}),
        }
        (message,) = read([wire], format=_PROVIDER)
        stop = "content_filter" if "refusal" in said else self._stop
        message = replace(
            message,
            parts=tuple(part for part in message.parts if getattr(part, "text", "-")),
            id=_text(self._envelope.get("id")) or None,
            model=_text(self._envelope.get("model")) or None,
            usage=read_usage(self._envelope.get("usage")),
            stop=stop,
        )
        return replied(message, _STOPS)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _pieces(content: object) -> Iterator[str]:
    """Content is text, and of some servers a list of parts."""
    yield _text(content)
    for part in _objects(content):
        yield _text(part.get("text"))
