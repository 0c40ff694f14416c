"""A model server on this machine for tests: real HTTP, the providers' wire formats, replies that follow a script.

    def test_my_agent(model_server):                                 # pytest_plugins = ["holdfast.testing.fixtures"]
        model_server.set_script(["Hello!", ScriptedReply(calls=(call,)), overflow()])
        run_my_agent(base_url=model_server.url + "/v1")
        assert model_server.bodies[0]["messages"] == [...]
        model_server.check()

It answers `/v1/messages` (base URL `url`), `/v1/chat/completions` and `/v1/responses` (base URL `url + "/v1"`), and
Gemini's `/v1beta/models/NAME:generateContent` and `:streamGenerateContent`; any prefix before them is accepted. The
script is a list with one step for each request, in the order of arrival, or a function that returns a step for the body
of a request. A step is one of

    "text"                            a plain text reply
    ScriptedReply(...)                a reply with text, pieces, thinking, calls, usage and stop reason
    a ModelError                      the answer that the provider gives for it: overflow, busy (429 with retry-after,
                                      or the status of the error), timeout, refused
    Hang()                            the headers, one ping, and then nothing
    Mute()                            nothing at all
    Cut(ScriptedReply(...), after=2)  cuts the connection after two events; with `when=event`, once that event is set
    Raw(status, body, headers)        any bytes: malformed SSE, an HTML page, an empty body
    Events([...])                     exactly these events, as (event, data) pairs; no end is added

A reply without `usage` reports 11 tokens read and 7 written, whatever the request has. Set it if the test is about
tokens, costs or the size of the window. Replies are streamed if the request asks for it, and otherwise sent as one JSON
object. Requests are recorded, not checked: `check()` lists the rules of the provider that they break. After the last
step the answer is a 500 that says so.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelTimeoutError
from holdfast.messages import Usage
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.providers import Violation, check, expect_format
from holdfast.providers.replies import AnthropicStream, ChatStream
from holdfast.providers.wire import encode_arguments, object_arguments

__all__ = [
    "Cut",
    "Event",
    "Events",
    "Hang",
    "Mute",
    "Raw",
    "Request",
    "Script",
    "ScriptedProvider",
    "ScriptedReply",
    "Step",
]
__all__ += ["overflow"]

MAX_SILENT_SECONDS: Final = 300.0
Event = tuple[str | None, Any]
"""The name of a server-sent event and its data: JSON, or text that is sent unchanged."""


@dataclass(frozen=True)
class Mute:
    """No answer, not even headers."""


@dataclass(frozen=True)
class Cut:
    """A reply whose connection is cut after `after` events; with `cleanly`, the stream ends as if it were complete.

    A client may lose data that it has not read when the connection is cut. With `when`, the connection stays open
    until that event is set. Set it after the client has received the data that the test needs.
    """

    said: ScriptedReply
    after: int = 2
    cleanly: bool = False
    when: threading.Event | None = None


@dataclass(frozen=True)
class Raw:
    """Any HTTP response, in the order of HTTP: the status, the body (bytes as they are, or JSON), and headers."""

    status: int = 200
    body: bytes | Mapping[str, Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Events:
    """Exactly these events."""

    events: Sequence[Event]


Step = str | ScriptedReply | ModelError | Hang | Mute | Cut | Raw | Events
Script = Sequence[Step] | Callable[[dict[str, Any]], Step]


def overflow(requested: int = 9_000, limit: int = 8_192) -> ModelOverflowError:
    """Return the error of a request that is too long, with figures."""
    return ModelOverflowError("too long", requested=requested, limit=limit)


@dataclass(frozen=True)
class Request:
    """A request that the server received."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class ScriptedProvider:
    """The server; see the top of this file. Use it in a `with` statement, or through the fixture `model_server`."""

    def __init__(self, script: Script = ()) -> None:
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self.set_script(script)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def set_script(self, script: Script) -> None:
        """Follow a script from the next request on, and forget the requests so far.

        Afterwards `requests` and `bodies` are empty, and `check` lists only rules that later requests break.
        """
        with self._lock:
            self._script = script if callable(script) else iter(script)
            self.requests.clear()

    @property
    def url(self) -> str:
        """The base URL for Anthropic and Gemini clients. For OpenAI clients add `/v1`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The body of every request, in order."""
        return [request.body for request in self.requests]

    def check(self) -> list[Violation]:
        """List the rules of the providers that the requests so far break."""
        found: list[Violation] = []
        for request in self.requests:
            if (wire := wire_of_path(request.path)) is not None:
                listed = request.body.get(expect_format(wire.format).list_key)
                messages = [{"role": "user", "content": listed}] if isinstance(listed, str) else listed or []
                found += check(messages, wire.format)
        return found

    def next_step(self, request: Request) -> tuple[int, Step]:
        """Record a request; return its number and the step that answers it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            script = self._script
            if not callable(script):
                return number, next(script, _OVER)
        return number, script(request.body)  # it may wait for another request


_OVER: Final = Raw(500, {"error": {"type": "api_error", "message": "the script of the provider is over"}})


# --- the server --------------------------------------------------------------


def _handler(provider: ScriptedProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            _send(self, Raw(200, {"object": "list", "data": [], "models": [], "has_more": False}))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", "0")))
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            body = json.loads(gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data)
            number, step = provider.next_step(Request(self.path, dict(self.headers), body))
            self.close_connection = True
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                wire = wire_of_path(self.path)
                if isinstance(step, Raw) and (wire or step is not _OVER):  # on any path
                    return _send(self, step)
                if wire is None:
                    unknown = {"type": "not_found_error", "message": f"no provider has the path {self.path}"}
                    return _send(self, Raw(404, {"error": unknown}))
                return _answer(self, step, body, wire=wire, number=number, closing=provider.closing)

    return Handler


def _answer(
    to: BaseHTTPRequestHandler, step: Step, body: dict[str, Any], *, wire: Wire, number: int, closing: threading.Event
) -> None:
    model = str(body.get("model"))
    is_stream = body.get("stream") or ":streamGenerateContent" in to.path
    if isinstance(step, str):
        step = ScriptedReply(text=step)
    match step:
        case ModelError() as error:
            _send(to, Raw(*error_answer(error, wire.format)))
        case ScriptedReply() as reply if is_stream:
            _stream(to, wire.stream(reply, model=model, number=number))
        case ScriptedReply() as reply:
            _send(to, Raw(200, wire.whole(reply, model=model, number=number)))
        case Events(events):
            _stream(to, iter(events))
        case Cut(reply, after, cleanly, when):
            _stream(to, wire.stream(reply, model=model, number=number), max_events=after, when=when, cleanly=cleanly)
        case silence:  # until the client has left or the server closes
            if isinstance(silence, Hang):
                _begin(to)
                _write_event(to, "ping", {"type": "ping"})
            closing.wait(MAX_SILENT_SECONDS)


def _send(to: BaseHTTPRequestHandler, raw: Raw) -> None:
    content = raw.body if isinstance(raw.body, bytes) else json.dumps(raw.body).encode()
    kind = "text/event-stream" if raw.status == HTTPStatus.OK and isinstance(raw.body, bytes) else "application/json"
    to.send_response(raw.status)
    to.send_header("connection", "close")
    for name, value in {"content-type": kind, **raw.headers, "content-length": str(len(content))}.items():
        to.send_header(name, value)
    to.end_headers()
    if to.command != "HEAD":
        to.wfile.write(content)


def _begin(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    to.send_header("connection", "close")
    for name, value in (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")):
        to.send_header(name, value)
    to.end_headers()


def _stream(
    to: BaseHTTPRequestHandler,
    events: Iterator[Event],
    *,
    max_events: int | None = None,
    when: threading.Event | None = None,
    cleanly: bool = True,
) -> None:
    _begin(to)
    for number, (name, data) in enumerate(events):
        if number == max_events:
            break
        _write_event(to, name, data)
    if when is not None:
        when.wait(MAX_SILENT_SECONDS)
    if cleanly:
        to.wfile.write(b"0\r\n\r\n")


def _write_event(to: BaseHTTPRequestHandler, name: str | None, data: Any) -> None:
    text = data
    if not isinstance(data, str):
        text = json.dumps(data)
    lines = f"data: {text}\n\n"
    if name:
        lines = f"event: {name}\n{lines}"
    content = lines.encode()
    to.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
    to.wfile.flush()


# --- replies and errors in the wire format of each provider -----------------

_STOPS = {"end": "end_turn", "length": "max_tokens", "tools": "tool_use"}
_GEMINI_ERRORS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 504: "DEADLINE_EXCEEDED"}
_GEMINI_STOPS = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
_OVERFLOWS = {
    "anthropic": "prompt is too long: {requested} tokens > {limit} maximum",
    "gemini": "The input token count ({requested}) exceeds the maximum number of tokens allowed ({limit}).",
    "openai_chat": "This model's maximum context length is {limit} tokens. However, you requested {requested} tokens.",
}
_FINISHES = {"end": "stop", "tools": "tool_calls", "refusal": "content_filter"}


def _usage(reply: ScriptedReply) -> Usage:
    return reply.usage or Usage(input=11, output=7)


def _stop(reply: ScriptedReply) -> str:
    return reply.stop or ("tools" if reply.calls else "end")


def _halves(text: str) -> Iterator[str]:
    """Split a text in two pieces, as arguments are streamed."""
    middle = len(text) // 2
    return filter(None, (text[:middle], text[middle:]))


def anthropic_events(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """Yield the events of a reply as the Messages API streams it."""
    usage = _usage(reply)
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
    for index, (block, deltas) in enumerate(_blocks(reply)):
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    stop = _STOPS.get(_stop(reply), _stop(reply))
    ending = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": usage.output}}
    yield "message_delta", {"type": "message_delta", **ending}
    yield "message_stop", {"type": "message_stop"}


def _blocks(reply: ScriptedReply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield each content block as it begins, with the deltas that follow."""
    if reply.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(reply.thinking)]
        seal = [{"type": "signature_delta", "signature": reply.signature or "sealed"}]
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, *seal]
    if reply.words:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.arriving]
    for call in reply.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        pieces = _halves(encode_arguments(call.arguments))
        yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def openai_events(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """Yield the events of a reply as Chat Completions streams it."""
    chunk = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": model}

    def delta(content: Mapping[str, Any], finish: str | None = None) -> Event:
        return None, {**chunk, "choices": [{"index": 0, "delta": content, "finish_reason": finish}]}

    yield delta({"role": "assistant", "content": ""})
    for piece in _halves(reply.thinking):
        yield delta({"reasoning_content": piece})
    for piece in reply.arriving:
        yield delta({"content": piece})
    for index, call in enumerate(reply.calls):
        begin = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield delta({"tool_calls": [begin]})
        for piece in _halves(encode_arguments(call.arguments)):
            yield delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield delta({}, _FINISHES.get(_stop(reply), _stop(reply)))
    usage = _usage(reply)
    sent = usage.input + usage.cache_read
    counts = {"prompt_tokens": sent, "completion_tokens": usage.output, "total_tokens": sent + usage.output}
    details = {"prompt_tokens_details": {"cached_tokens": usage.cache_read}}
    yield None, {**chunk, "choices": [], "usage": {**counts, **details}}
    yield None, "[DONE]"


_UNFINISHED: Final[Mapping[str, Mapping[str, Any]]] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
"""The empty fields of an item of Responses when it begins, by its type."""


def responses_events(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """Yield the events of a reply as Responses streams it."""
    response = responses_message(reply, model=model, number=number)
    yield _named({"type": "response.created", "response": {**response, "status": "in_progress", "output": []}})
    for index, item in enumerate(_items(reply, number)):
        begun = {**item, **_UNFINISHED[item["type"]], "status": "in_progress"}
        yield _named({"type": "response.output_item.added", "output_index": index, "item": begun})
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield _named({"type": "response.content_part.added", **place, "part": empty})
            for piece in reply.arriving:
                yield _named({"type": "response.output_text.delta", **place, "delta": piece})
        yield _named({"type": "response.output_item.done", "output_index": index, "item": item})
    yield _named({"type": f"response.{response['status']}", "response": response})


def _named(event: dict[str, Any]) -> Event:
    return event["type"], event


def _items(reply: ScriptedReply, number: int) -> Iterator[dict[str, Any]]:
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        sealed = {"encrypted_content": reply.signature or "sealed"}
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **sealed}
    if reply.words:
        part: dict[str, Any] = {"type": "output_text", "text": reply.words, "annotations": []}
        if reply.stop == "refusal":
            part = {"type": "refusal", "refusal": reply.words, "annotations": []}
        yield {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
    for index, call in enumerate(reply.calls):
        fields = {"call_id": call.id, "name": call.name, "arguments": encode_arguments(call.arguments)}
        yield {"type": "function_call", "id": f"fc_{number}_{index}", "status": "completed", **fields}


def responses_message(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> dict[str, Any]:
    """Return a reply as Responses sends it in one piece."""
    usage = _usage(reply)
    cut = reply.stop == "length"
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
        "output": list(_items(reply, number)),
        "usage": {**counted, "total_tokens": sent + usage.output},
    }


def gemini_events(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> Iterator[Event]:
    """Yield the events of a reply as Gemini streams it: whole responses, each with some of the parts."""
    whole = gemini_message(reply, model=model, number=number)
    (candidate,) = whole["candidates"]
    *before, last = candidate["content"]["parts"] or [{"text": ""}]
    for part in before:
        yield None, {**whole, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
    yield None, {**whole, "candidates": [{**candidate, "content": {"role": "model", "parts": [last]}}]}


def gemini_message(reply: ScriptedReply, *, model: str = "scripted", number: int = 1) -> dict[str, Any]:
    """Return a reply as Gemini sends it in one piece."""
    usage = _usage(reply)
    parts: list[dict[str, Any]] = []
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    parts += [{"text": piece} for piece in reply.arriving]
    for call in reply.calls:
        function = {"id": call.id, "name": call.name, "args": object_arguments(call.arguments)}
        parts.append({"functionCall": function, "thoughtSignature": reply.signature or "c2VhbGVk"})
    sent = usage.input + usage.cache_read
    finish = _GEMINI_STOPS.get(_stop(reply), "STOP")
    counts = {"promptTokenCount": sent, "cachedContentTokenCount": usage.cache_read}
    totals = {"candidatesTokenCount": usage.output, "totalTokenCount": sent + usage.output}
    return {
        "responseId": f"resp_{number}",
        "modelVersion": model,
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": finish}],
        "usageMetadata": {**counts, **totals},
    }


def error_answer(error: ModelError, format: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Return the status, body and headers with which a provider answers for an error."""
    status, kind, words = _error(error, format)
    headers: dict[str, str] = {}
    if isinstance(error, ModelBusyError) and error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    if format == "anthropic":
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": words}}
    elif format == "gemini":
        body = {"error": {"code": status, "message": words, "status": _GEMINI_ERRORS.get(status, "INTERNAL")}}
    else:
        body = {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": kind}}
    return status, body, headers


def _error(error: ModelError, format: str) -> tuple[int, str, str]:
    too_long = "context_length_exceeded"
    busy = "rate_limit_exceeded"
    if format == "anthropic":
        too_long = "invalid_request_error"
        busy = "rate_limit_error"
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
    """The format of the answers on one path of a provider."""

    format: str
    stream: Callable[..., Iterator[Event]]
    whole: Callable[..., dict[str, Any]]


def _join(
    kind: type[AnthropicStream | ChatStream], events: Callable[..., Iterator[Event]], **fields: object
) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a reply in one piece from the events of its stream, with more fields."""

    def whole(reply: ScriptedReply, **names: Any) -> dict[str, Any]:
        stream = kind()
        for _, event in events(reply, **names):
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
    """Return the format of the answers on a path, with any prefix and query; None for a path that no provider has."""
    bare = path.partition("?")[0]
    for end, wire in _WIRES.items():
        if bare.endswith(end):
            return wire
    return None
