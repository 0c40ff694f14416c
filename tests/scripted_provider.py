"""A provider on this machine: a real HTTP server that speaks the providers' wire formats and follows a script.

    with ScriptedProvider(["Hello!", overflow(), Said(calls=(call,))]) as provider:
        model = AnthropicModel("claude-x", api_key="k", base_url=provider.url)          # /v1/messages
        model = OpenAIModel("gpt-x", api_key="k", base_url=f"{provider.url}/v1")         # /v1/chat/completions
        model = ResponsesModel("gpt-x", api_key="k", base_url=f"{provider.url}/v1")      # /v1/responses
        ...
        assert provider.bodies[0]["messages"] == [...]

The script is a list with one step for each request, in the order of arrival, or a function from the body of a request
to a step. A step is one of

    "words"                     a reply of plain text
    Said(...)                   a reply with text, pieces, thinking, calls, usage, stop (holdfast.models.scripted)
    a ModelError                the answer that the provider would give for it, in the provider's own shape and status:
                                overflow, busy (429 with retry-after, or the error's own status), timeout, refused
    Hang()                      the headers, one ping, and then nothing
    Mute()                      nothing at all
    Cut(Said(...), after=2)     the connection is cut after so many events
    Raw(status, body, headers)  any bytes at all: malformed SSE, an HTML page, an empty body
    Events([...])               the given events, as they are: (event, data) pairs; no ending is added

Replies are streamed where the request says `"stream": true`, else sent as one JSON object. Nothing of a request is
checked: `provider.requests` keeps path, headers and body of each, so that tests can hold them to the provider's rules
with `holdfast.providers.check(body["messages"], "anthropic")`. When the script is over, the answer is a 500 that
says so.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from holdfast.errors import ModelError, ModelOverflowError
from holdfast.models.scripted import Hang, Said
from scripted_wire import (
    Event,
    anthropic_events,
    anthropic_message,
    error_answer,
    gemini_events,
    gemini_message,
    openai_events,
    openai_message,
    responses_events,
    responses_message,
)

_LONGEST = 60.0
_STREAMED = {
    "/messages": anthropic_events,
    "/chat/completions": openai_events,
    "/responses": responses_events,
    "gemini:stream": gemini_events,
}
_WHOLE = {
    "/messages": anthropic_message,
    "/chat/completions": openai_message,
    "/responses": responses_message,
    "gemini": gemini_message,
}


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
            data = b"".join(_read_chunks(self)) if self.headers.get("transfer-encoding") == "chunked" else b""
            data = data or self.rfile.read(int(self.headers.get("content-length", "0")))
            body = json.loads(gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data)
            step = provider.next_step(Request(self.path, dict(self.headers), body))
            self.close_connection = True
            with suppress(BrokenPipeError, ConnectionResetError):  # whoever asked has hung up
                _answer(self, step, body, provider)

    return Handler


def _read_chunks(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    """Read a body that comes in chunks."""
    while size := int(request.rfile.readline().split(b";")[0], 16):
        yield request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()


def _answer(to: BaseHTTPRequestHandler, step: Step, body: dict[str, Any], provider: ScriptedProvider) -> None:
    path, closing = _route(to.path), provider.closing
    if isinstance(step, str):
        step = Said(text=step)
    if isinstance(step, ModelError):
        step = Raw(*error_answer(step, anthropic=path == "/messages"))
    model, number = str(body.get("model")), len(provider.requests)
    match step:
        case Raw():
            _send(to, step)
        case Said() if body.get("stream") or path == "gemini:stream":
            _stream(to, _STREAMED[path](step, model=model, number=number))
        case Said():
            _send(to, Raw(200, _WHOLE[path](step, model=model, number=number)))
        case Events():
            _stream(to, iter(step.events))
        case Cut():
            _stream(to, _STREAMED[path](step.said, model=model, number=number), most=step.after, cleanly=step.cleanly)
        case Hang():
            _begin(to)
            _write_event(to, "ping", {"type": "ping"})
            closing.wait(_LONGEST)
        case Mute():
            closing.wait(_LONGEST)


def _route(path: str) -> str:
    """Return what a path asks for, without the version of the API and the model in it."""
    path = path.partition("?")[0].removeprefix("/v1")
    if path.endswith(":streamGenerateContent"):
        return "gemini:stream"
    return "gemini" if path.endswith(":generateContent") else path


def _send(to: BaseHTTPRequestHandler, raw: Raw) -> None:
    content = raw.body if isinstance(raw.body, bytes) else json.dumps(raw.body).encode()
    kind = "text/event-stream" if raw.status == 200 and isinstance(raw.body, bytes) else "application/json"
    to.send_response(raw.status)
    for name, value in {"content-type": kind, **raw.headers, "content-length": str(len(content))}.items():
        to.send_header(name, value)
    to.end_headers()
    if to.command != "HEAD":
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
