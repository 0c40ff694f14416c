"""OpenAI's Responses API, on OpenAI's own SDK: for the models that call tools only there. Nothing is stored there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.messages import Message, Part, RedactedThinking, Text, Usage
from holdfast.models.base import Prompt, Reply
from holdfast.models.openai_client import connected, is_strict
from holdfast.models.vendor import VendorModel, replied
from holdfast.providers import read, render_request
from holdfast.providers.wire import Json, number

__all__ = ["ResponsesModel", "request_body"]

_PROVIDER: Final = "openai_responses"
_STOPS: Final = {"completed": "end", "max_output_tokens": "length", "content_filter": "refusal"}
_OPTIONAL: Final = {
    "text": re.compile(r"json_schema|schema|structured|text\.format", re.IGNORECASE),
    "include": re.compile(r"include|encrypted", re.IGNORECASE),
}
_ENDINGS: Final = frozenset({"response.completed", "response.incomplete"})


class ResponsesModel(VendorModel):
    """A model behind an endpoint that speaks OpenAI's Responses.

    Args:
        model: The endpoint's own name of it, such as `gpt-6-sol`.
        name: What a user calls it by; unset, `openai-responses/` and the model.
        api_key: The key.
        base_url: The endpoint; unset, OpenAI's.
        context_tokens: The size of the window; unset, what is known of the model.
        extra: Further fields of every request, such as `{"reasoning": {"effort": "low"}}`.
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
        self._model, self._provider = model, _PROVIDER
        self._name = name or f"openai-responses/{model}"
        self._context_tokens = context_tokens
        self._extra = dict(extra or {})
        self._vendor = connected(
            self._name,
            create=lambda client, body: client.responses.create(stream=True, **body),
            draft=_Draft,
            optional=_OPTIONAL,
            api_key=api_key,
            base_url=base_url,
        )

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return request_body(prompt, model=self._model)


def request_body(prompt: Prompt, *, model: str) -> dict[str, Any]:
    """The fields of a request. Reasoning is asked for sealed, so that it can be sent back without being stored."""
    body: dict[str, Any] = {
        "model": model,
        **render_request(prompt.messages, _PROVIDER),
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
        strict = is_strict(prompt.schema)
        schema = {"type": "json_schema", "name": "answer", "schema": dict(prompt.schema), "strict": strict}
        body["text"] = {"format": schema}
    return body


class _Draft:
    """A reply in the making: items are whole when they come, only their text is read along."""

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._response: Json | None = None

    def add(self, event: Json, /) -> str:
        """Take in one event; the text that it brought."""
        match event:
            case {"type": "response.output_text.delta", "delta": str(text)}:
                return text
            case {"type": "response.output_item.done", "item": Mapping() as item}:
                self._items.append(item)
            case {"type": str(kind), "response": Mapping() as response} if kind in _ENDINGS:
                self._response = response
        return ""

    def reply(self) -> Reply | None:
        """The whole reply; None where it broke off."""
        response = self._response
        if response is None:
            return None
        spoken = read([_without_nulls(item) for item in self._items], format=_PROVIDER)
        parts = tuple(part for message in spoken for part in message.parts if not _is_empty(part))
        message = Message(
            role="assistant",
            parts=parts,
            id=_text(response.get("id")),
            model=_text(response.get("model")),
            usage=_usage(response.get("usage")),
            stop="content_filter" if any(map(_is_refusal, parts)) else _reason(response),
        )
        return replied(message, _STOPS)


def _without_nulls(item: Json) -> dict[str, Any]:
    """An item as it may be sent back: what comes as null is not always taken as null."""
    return {key: value for key, value in item.items() if value is not None}


def _is_empty(part: Part) -> bool:
    return (isinstance(part, Text) and not part.text) or (isinstance(part, RedactedThinking) and not part.data)


def _is_refusal(part: Part) -> bool:
    return part.origin is not None and part.origin.data.get("type") == "refusal"


def _reason(response: Json) -> str:
    """Why it ended: that it is complete, or else what is missing."""
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return str(reason or response.get("status") or "completed")


def _usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping) or (sent := number(data.get("input_tokens"))) is None:
        return None
    found = data.get("input_tokens_details")
    details = found if isinstance(found, Mapping) else {}
    read_, written = (number(details.get(key)) or 0 for key in ("cached_tokens", "cache_write_tokens"))
    fresh = max(0, sent - read_ - written)
    return Usage(input=fresh, output=number(data.get("output_tokens")) or 0, cache_read=read_, cache_write=written)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
