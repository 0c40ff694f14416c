"""Scripted replies and errors in each provider's wire format, streamed or in one piece. Internal to `testing`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelTimeoutError
from holdfast.messages import Usage
from holdfast.models.scripted import Said
from holdfast.providers.replies import AnthropicStream, ChatStream
from holdfast.providers.wire import encode_arguments, object_arguments

Event = tuple[str | None, Any]
"""The name of a server-sent event, and its data: JSON, or text that is sent as it is."""


_STOPS = {"end": "end_turn", "length": "max_tokens", "tools": "tool_use"}
_GEMINI_ERRORS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 504: "DEADLINE_EXCEEDED"}
_GEMINI_STOPS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
_OVERFLOWS = {
    "anthropic": "prompt is too long: {requested} tokens > {limit} maximum",
    "gemini": "The input token count ({requested}) exceeds the maximum number of tokens allowed ({limit}).",
    "openai_chat": "This model's maximum context length is {limit} tokens. However, you requested {requested} tokens.",
}
_FINISHES = {"end": "stop", "tools": "tool_calls", "refusal": "content_filter"}


def _usage(said: Said) -> Usage:
    return said.usage or Usage(input=11, output=7)


def _stop(said: Said) -> str:
    return said.stop or ("tools" if said.calls else "end")


def _halves(text: str) -> Iterator[str]:
    """A text in two pieces, as arguments arrive."""
    middle = len(text) // 2
    return filter(None, (text[:middle], text[middle:]))


def anthropic_events(said: Said, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """A reply as the Messages API streams it."""
    usage = _usage(said)
    start = {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": 1,
    }
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}
    message = {**head, "content": [], "usage": start}
    yield "message_start", {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}
    yield "ping", {"type": "ping"}
    for index, (block, deltas) in enumerate(_blocks(said)):
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    stop = _STOPS.get(_stop(said), _stop(said))
    ending = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": usage.output}}
    yield "message_delta", {"type": "message_delta", **ending}
    yield "message_stop", {"type": "message_stop"}


def _blocks(said: Said) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each content block as it begins, and what is added to it."""
    if said.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(said.thinking)]
        seal = [{"type": "signature_delta", "signature": said.signature or "sealed"}]
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, *seal]
    if said.words:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in said.arriving]
    for call in said.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield (
            block,
            [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _halves(encode_arguments(call.arguments))
            ],
        )


def openai_events(said: Said, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """A reply as Chat Completions streams it."""
    chunk = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}

    def delta(content: Mapping[str, Any], finish: str | None = None) -> Event:
        return None, {**chunk, "choices": [{"index": 0, "delta": content, "finish_reason": finish}]}

    yield delta({"role": "assistant", "content": ""})
    for piece in _halves(said.thinking):
        yield delta({"reasoning_content": piece})
    for piece in said.arriving:
        yield delta({"content": piece})
    for index, call in enumerate(said.calls):
        begin = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield delta({"tool_calls": [begin]})
        for piece in _halves(encode_arguments(call.arguments)):
            yield delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield delta({}, _FINISHES.get(_stop(said), _stop(said)))
    usage = _usage(said)
    sent = usage.input + usage.cache_read
    counts = {"prompt_tokens": sent, "completion_tokens": usage.output, "total_tokens": sent + usage.output}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cache_read}}
    yield None, {**chunk, "choices": [], "usage": {**counts, **details}}
    yield None, "[DONE]"


def responses_events(said: Said, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """A reply as Responses streams it."""
    response = responses_message(said, model=model, number=number)
    yield _named({"type": "response.created", "response": {**response, "status": "in_progress", "output": []}})
    for index, item in enumerate(_items(said, number)):
        yield _named(
            {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}}
        )
        if item["type"] == "message":
            for piece in said.arriving:
                delta = {"item_id": item["id"], "output_index": index, "content_index": 0, "delta": piece}
                yield _named({"type": "response.output_text.delta", **delta})
        yield _named({"type": "response.output_item.done", "output_index": index, "item": item})
    yield _named({"type": f"response.{response['status']}", "response": response})


def _named(event: dict[str, Any]) -> Event:
    return event["type"], event


def _items(said: Said, number: int) -> Iterator[dict[str, Any]]:
    """The items of a response."""
    if said.thinking:
        summary = [{"type": "summary_text", "text": said.thinking}]
        sealed = {"encrypted_content": said.signature or "sealed"}
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **sealed}
    if said.words:
        kind = "refusal" if said.stop == "refusal" else "output_text"
        key = "refusal" if said.stop == "refusal" else "text"
        part = {"type": kind, key: said.words, "annotations": []}
        yield {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
    for index, call in enumerate(said.calls):
        fields = {"call_id": call.id, "name": call.name, "arguments": encode_arguments(call.arguments)}
        yield {"type": "function_call", "id": f"fc_{number}_{index}", "status": "completed", **fields}


def responses_message(said: Said, *, model: str = "scripted", number: int = 1) -> dict[str, Any]:
    """A reply as Responses sends it in one piece."""
    usage = _usage(said)
    cut = said.stop == "length"
    sent = usage.input + usage.cache_read + usage.cache_write
    details = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    counted = {"input_tokens": sent, "input_tokens_details": details, "output_tokens": usage.output}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": model,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": list(_items(said, number)),
        "usage": {**counted, "total_tokens": sent + usage.output},
    }


def gemini_events(said: Said, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """A reply as Gemini streams it: whole responses, each with some of the parts."""
    whole = gemini_message(said, model=model, number=number)
    (candidate,) = whole["candidates"]
    *before, last = candidate["content"]["parts"] or [{"text": ""}]
    for part in before:
        yield None, {**whole, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
    yield None, {**whole, "candidates": [{**candidate, "content": {"role": "model", "parts": [last]}}]}


def gemini_message(said: Said, *, model: str = "scripted", number: int = 1) -> dict[str, Any]:
    """A reply as Gemini sends it in one piece."""
    usage = _usage(said)
    parts: list[dict[str, Any]] = [{"text": said.thinking, "thought": True}] if said.thinking else []
    parts += [{"text": piece} for piece in said.arriving]
    for call in said.calls:
        function = {"id": call.id, "name": call.name, "args": object_arguments(call.arguments)}
        parts.append({"functionCall": function, "thoughtSignature": said.signature or "c2VhbGVk"})
    sent = usage.input + usage.cache_read
    counts = {"promptTokenCount": sent, "cachedContentTokenCount": usage.cache_read}
    totals = {"candidatesTokenCount": usage.output, "totalTokenCount": sent + usage.output}
    return {
        "responseId": f"resp_{number}",
        "modelVersion": model,
        "candidates": [
            {
                "index": 0,
                "content": {"role": "model", "parts": parts},
                "finishReason": _GEMINI_STOPS.get(_stop(said), "STOP"),
            }
        ],
        "usageMetadata": {**counts, **totals},
    }


def error_answer(error: ModelError, format: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of the answer that stands for an error, as each provider gives it."""
    status, kind, words = _error(error, format)
    wait = error.retry_after if isinstance(error, ModelBusyError) else None
    headers = {} if wait is None else {"retry-after": f"{wait:g}"}
    if format == "anthropic":
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": words}}
    elif format == "gemini":
        body = {"error": {"code": status, "message": words, "status": _GEMINI_ERRORS.get(status, "INTERNAL")}}
    else:
        body = {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": kind}}
    return status, body, headers


def _error(error: ModelError, format: str) -> tuple[int, str, str]:
    """Status, kind and words."""
    kinds = ("context_length_exceeded", "rate_limit_exceeded")
    too_long, busy = ("invalid_request_error", "rate_limit_error") if format == "anthropic" else kinds
    match error:
        case ModelOverflowError():
            words = _OVERFLOWS.get(format, _OVERFLOWS["openai_chat"])
            return 400, too_long, words.format(requested=error.requested or 9_000, limit=error.limit or 8_192)
        case ModelBusyError(status=529):
            return 529, "overloaded_error", "Overloaded"
        case ModelBusyError():
            return error.status or 429, busy, "Rate limit reached for requests"
        case ModelTimeoutError():
            return 504, "timeout_error", "The request timed out"
    return error.status or 400, "invalid_request_error", "messages: at least one message is required"


class Wire(NamedTuple):
    """How one path of a provider answers."""

    format: str
    stream: Callable[..., Iterator[Event]]
    whole: Callable[..., dict[str, Any]]


def _join(
    kind: type[AnthropicStream | ChatStream], events: Callable[..., Iterator[Event]], **fields: object
) -> Callable[..., dict[str, Any]]:
    """Return what makes a reply in one piece of the events of its stream, with more fields."""

    def whole(said: Said, **names: Any) -> dict[str, Any]:
        stream = kind()
        for _, event in events(said, **names):
            stream.add(event if isinstance(event, dict) else {})
        return {**fields, **stream.body()}

    return whole


_WIRES: Final = {
    "/messages": Wire("anthropic", anthropic_events, _join(AnthropicStream, anthropic_events)),
    "/chat/completions": Wire("openai_chat", openai_events, _join(ChatStream, openai_events, object="chat.completion")),
    "/responses": Wire("openai_responses", responses_events, responses_message),
    "enerateContent": Wire("gemini", gemini_events, gemini_message),
}


def wire_of_path(path: str) -> Wire | None:
    """Return how a path answers, whatever its prefix and query; None for a path that no provider has."""
    bare = path.partition("?")[0]
    return next((wire for end, wire in _WIRES.items() if bare.endswith(end)), None)
