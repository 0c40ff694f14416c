"""A provider on this machine: a real HTTP server that speaks both wire formats and follows a script.

    with ScriptedProvider(["Hello!", overflow(), Said(calls=(call,))]) as provider:
        model = AnthropicModel("claude-x", api_key="k", base_url=provider.url)          # /v1/messages
        model = OpenAIModel("gpt-x", api_key="k", base_url=f"{provider.url}/v1")         # /v1/chat/completions
        ...
        assert provider.bodies[0]["messages"] == [...]

The script is a list with one step for each request, in the order of arrival, or a function from the body of a request
to a step. A step is one of

    "words"                     a reply of plain text
    Said(...)                   a reply with text, pieces, thinking, calls, usage, stop (holdfast.models.steps)
    a ModelError                the answer that the provider would give for it, in the provider's own shape and status:
                                overflow, busy (429 with retry-after, or the error's own status), timeout, refused
    Hang()                      the headers, one ping, and then nothing
    Mute()                      nothing at all
    Cut(Said(...), after=2)     the connection is cut after so many events
    Raw(status, body, headers)  any bytes at all: malformed SSE, an HTML page, an empty body
    Events([...])               the given events, as they are: (event, data) pairs; no ending is added

Replies are streamed where the request says `"stream": true`, else sent as one JSON object. Nothing of a request is
checked: `provider.requests` keeps path, headers and body of each, so that tests can hold them to the provider's rules
with `holdfast.context.verify.check(body["messages"], "anthropic")`. When the script is over, the answer is a 500 that
says so.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelTimeoutError
from holdfast.formats.wire import encode_arguments, object_arguments
from holdfast.messages import ToolCall, Usage
from holdfast.models.steps import Hang, Said

Event = tuple[str | None, Any]
"""The name of a server-sent event, and its data: JSON, or text that is sent as it is."""


@dataclass(frozen=True)
class Mute:
    """No answer, not even headers."""


@dataclass(frozen=True)
class Cut:
    """A reply whose connection is cut after so many events; `cleanly` as if it were over."""

    said: Said
    after: int = 2
    cleanly: bool = False


@dataclass(frozen=True)
class Raw:
    """Any answer."""

    status: int = 200
    body: bytes | Mapping[str, Any] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Events:
    """The given events, and nothing else."""

    events: Sequence[Event]


Step = str | Said | ModelError | Hang | Mute | Cut | Raw | Events
Script = Sequence[Step] | Callable[[dict[str, Any]], Step]


def overflow(requested: int = 9_000, limit: int = 8_192) -> ModelOverflowError:
    """A request that does not fit, with figures."""
    return ModelOverflowError("too long", requested=requested, limit=limit)


@dataclass(frozen=True)
class Request:
    """What came in."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class ScriptedProvider:
    """The server; see the top of this file."""

    def __init__(self, script: Script) -> None:
        self._script = script if callable(script) else iter(script)
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.closing = threading.Event()
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

    @property
    def url(self) -> str:
        """Where it listens; Anthropic's base URL. OpenAI's has `/v1` behind it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The body of every request, in order."""
        return [request.body for request in self.requests]

    def next_step(self, request: Request) -> Step:
        """Keep a request, and tell what to answer."""
        with self._lock:
            self.requests.append(request)
            if callable(self._script):
                return self._script(request.body)
            over = Raw(500, {"error": {"type": "api_error", "message": "the script of the provider is over"}})
            return next(self._script, over)


# --- what a step looks like on the wire --------------------------------------

_LONGEST = 60.0
_STOPS = {"end": "end_turn", "length": "max_tokens", "tools": "tool_use"}
_FINISHES = {"end": "stop", "tools": "tool_calls", "refusal": "content_filter"}


def _usage(said: Said) -> Usage:
    return said.usage or Usage(input=11, output=7)


def _stop(said: Said) -> str:
    return said.stop or ("tools" if said.calls else "end")


def _halves(text: str) -> Iterator[str]:
    """A text in two pieces, as arguments arrive."""
    middle = len(text) // 2
    return filter(None, (text[:middle], text[middle:]))


def anthropic_events(said: Said, *, model: str = "scripted") -> Iterator[Event]:
    """A reply as the Messages API streams it."""
    usage = _usage(said)
    start = {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": start}
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
        yield block, [{"type": "input_json_delta", "partial_json": piece} for piece in _halves(_arguments(call))]


def _arguments(call: ToolCall) -> str:
    return encode_arguments(call.arguments)


def openai_events(said: Said, *, model: str = "scripted") -> Iterator[Event]:
    """A reply as Chat Completions streams it."""
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

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
        for piece in _halves(_arguments(call)):
            yield delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield delta({}, _FINISHES.get(_stop(said), _stop(said)))
    yield None, {**chunk, "choices": [], "usage": _openai_usage(said)}
    yield None, "[DONE]"


def _openai_usage(said: Said) -> dict[str, Any]:
    usage = _usage(said)
    sent = usage.input + usage.cache_read
    return {
        "prompt_tokens": sent,
        "completion_tokens": usage.output,
        "total_tokens": sent + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
    }


def anthropic_message(said: Said, *, model: str = "scripted") -> dict[str, Any]:
    """A reply as the Messages API sends it in one piece."""
    usage = _usage(said)
    content: list[dict[str, Any]] = []
    if said.thinking:
        content.append({"type": "thinking", "thinking": said.thinking, "signature": said.signature or "sealed"})
    if said.words:
        content.append({"type": "text", "text": said.words})
    for call in said.calls:
        given = object_arguments(call.arguments)
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": _STOPS.get(_stop(said), _stop(said)),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output},
    }


def openai_message(said: Said, *, model: str = "scripted") -> dict[str, Any]:
    """A reply as Chat Completions sends it in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": said.words or None}
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _FINISHES.get(_stop(said), _stop(said))}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _openai_usage(said)}


def error_answer(error: ModelError, *, anthropic: bool) -> Raw:
    """The answer that stands for an error, as each provider gives it."""
    status, kind, words = _error(error, anthropic=anthropic)
    wait = error.retry_after if isinstance(error, ModelBusyError) else None
    headers = {} if wait is None else {"retry-after": f"{wait:g}"}
    if anthropic:
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": words}}
    else:
        body = {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": kind}}
    return Raw(status, body, headers)


def _error(error: ModelError, *, anthropic: bool) -> tuple[int, str, str]:
    """Status, kind and words."""
    if isinstance(error, ModelOverflowError):
        requested, limit = error.requested or 9_000, error.limit or 8_192
        if anthropic:
            return 400, "invalid_request_error", f"prompt is too long: {requested} tokens > {limit} maximum"
        words = f"This model's maximum context length is {limit} tokens. However, you requested {requested} tokens."
        return 400, "context_length_exceeded", words
    if isinstance(error, ModelBusyError):
        overloaded = error.status == 529
        kind = "overloaded_error" if overloaded else "rate_limit_error" if anthropic else "rate_limit_exceeded"
        return error.status or 429, kind, "Overloaded" if overloaded else "Rate limit reached for requests"
    if isinstance(error, ModelTimeoutError):
        return 504, "timeout_error", "The request timed out"
    return error.status or 400, "invalid_request_error", "messages: at least one message is required"


# --- the server --------------------------------------------------------------


def _handler(provider: ScriptedProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
            step = provider.next_step(Request(self.path, dict(self.headers), body))
            self.close_connection = True
            with suppress(BrokenPipeError, ConnectionResetError):  # whoever asked has hung up
                _answer(self, step, body, provider.closing)

    return Handler


def _answer(to: BaseHTTPRequestHandler, step: Step, body: dict[str, Any], closing: threading.Event) -> None:
    anthropic = to.path.endswith("/messages")
    if isinstance(step, str):
        step = Said(text=step)
    if isinstance(step, ModelError):
        step = error_answer(step, anthropic=anthropic)
    match step:
        case Raw():
            _send(to, step)
        case Said() if body.get("stream"):
            _stream(to, _events(step, body, anthropic=anthropic))
        case Said():
            model = str(body.get("model"))
            _send(to, Raw(200, (anthropic_message if anthropic else openai_message)(step, model=model)))
        case Events():
            _stream(to, iter(step.events))
        case Cut():
            _stream(to, _events(step.said, body, anthropic=anthropic), most=step.after, cleanly=step.cleanly)
        case Hang():
            _begin(to)
            _write_event(to, "ping", {"type": "ping"})
            closing.wait(_LONGEST)
        case Mute():
            closing.wait(_LONGEST)


def _events(said: Said, body: dict[str, Any], *, anthropic: bool) -> Iterator[Event]:
    return (anthropic_events if anthropic else openai_events)(said, model=str(body.get("model")))


def _send(to: BaseHTTPRequestHandler, raw: Raw) -> None:
    content = raw.body if isinstance(raw.body, bytes) else json.dumps(raw.body).encode()
    kind = "text/event-stream" if raw.status == 200 and isinstance(raw.body, bytes) else "application/json"
    to.send_response(raw.status)
    for name, value in {"content-type": kind, **raw.headers, "content-length": str(len(content))}.items():
        to.send_header(name, value)
    to.end_headers()
    to.wfile.write(content)


def _begin(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    for name, value in (("content-type", "text/event-stream"), ("transfer-encoding", "chunked")):
        to.send_header(name, value)
    to.end_headers()


def _stream(
    to: BaseHTTPRequestHandler, events: Iterator[Event], *, most: int | None = None, cleanly: bool = True
) -> None:
    _begin(to)
    for number, (name, data) in enumerate(events):
        if number == most:
            break
        _write_event(to, name, data)
    if cleanly:
        to.wfile.write(b"0\r\n\r\n")


def _write_event(to: BaseHTTPRequestHandler, name: str | None, data: Any) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    lines = (f"event: {name}\n" if name else "") + f"data: {text}\n\n"
    content = lines.encode()
    to.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
    to.wfile.flush()
