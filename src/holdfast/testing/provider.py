"""A model server on this machine for tests: real HTTP, the providers' wire formats, replies that follow a script.

    def test_my_agent(model_server):                                 # pytest_plugins = ["holdfast.testing.fixtures"]
        model_server.set_script(["Hello!", Said(calls=(call,)), overflow()])
        run_my_agent(base_url=model_server.url + "/v1")
        assert model_server.bodies[0]["messages"] == [...]
        model_server.check()

It answers `/v1/messages` (base URL `url`), `/v1/chat/completions` and `/v1/responses` (base URL `url + "/v1"`), and
Gemini's `/v1beta/models/NAME:generateContent` and `:streamGenerateContent`; any prefix before them is accepted. The
script is a list with one step for each request, in the order of arrival, or a function from the body of a request to
a step. A step is one of

    "words"                     a reply of plain text
    Said(...)                   a reply with text, pieces, thinking, calls, usage, stop
    a ModelError                the provider's answer for it, in its own shape and status: overflow, busy (429 with
                                retry-after, or the error's own status), timeout, refused
    Hang()                      the headers, one ping, and then nothing
    Mute()                      nothing at all
    Cut(Said(...), after=2)     the connection is cut after so many events
    Raw(status, body, headers)  any bytes at all: malformed SSE, an HTML page, an empty body
    Events([...])               the given events, as they are: (event, data) pairs; no ending is added

Replies are streamed where the request asks for it, else sent as one JSON object. Requests are kept, not checked:
`check()` lists the provider's rules that they break. When the script is over, the answer is a 500 that says so.
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
from typing import Any, Final, Self

from holdfast.errors import ModelError, ModelOverflowError
from holdfast.models.scripted import Hang, Said
from holdfast.providers import Violation, check, expect_format
from holdfast.testing.wire import Event, Wire, error_answer, wire_of_path

__all__ = [
    "Cut",
    "Event",
    "Events",
    "Hang",
    "Mute",
    "Raw",
    "Request",
    "Said",
    "Script",
    "ScriptedProvider",
    "Step",
    "overflow",
]

MAX_SILENT_SECONDS: Final = 60.0


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
        """Follow a script from the next request on, and forget the requests so far."""
        with self._lock:
            self._script = script if callable(script) else iter(script)
            self.requests.clear()

    @property
    def url(self) -> str:
        """Where it listens; Anthropic's and Gemini's base URL. OpenAI's has `/v1` behind it."""
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
        """Keep a request; return its number and how to answer it."""
        with self._lock:
            self.requests.append(request)
            if callable(self._script):
                return len(self.requests), self._script(request.body)
            return len(self.requests), next(self._script, _OVER)


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
            data = b"".join(_read_chunks(self)) if self.headers.get("transfer-encoding") == "chunked" else b""
            data = data or self.rfile.read(int(self.headers.get("content-length", "0")))
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


def _read_chunks(request: BaseHTTPRequestHandler) -> Iterator[bytes]:
    """Read a body that comes in chunks."""
    while size := int(request.rfile.readline().split(b";")[0], 16):
        yield request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()


def _answer(
    to: BaseHTTPRequestHandler, step: Step, body: dict[str, Any], *, wire: Wire, number: int, closing: threading.Event
) -> None:
    model, is_stream = str(body.get("model")), body.get("stream") or ":streamGenerateContent" in to.path
    match Said(text=step) if isinstance(step, str) else step:
        case ModelError() as error:
            _send(to, Raw(*error_answer(error, wire.format)))
        case Said() as said if is_stream:
            _stream(to, wire.stream(said, model=model, number=number))
        case Said() as said:
            _send(to, Raw(200, wire.whole(said, model=model, number=number)))
        case Events(events):
            _stream(to, iter(events))
        case Cut(said, after, cleanly):
            _stream(to, wire.stream(said, model=model, number=number), most=after, cleanly=cleanly)
        case silence:
            _keep_silent(to, closing, has_headers=isinstance(silence, Hang))


def _keep_silent(to: BaseHTTPRequestHandler, closing: threading.Event, *, has_headers: bool) -> None:
    """Send nothing, or the headers and one ping, until the client has left or the server closes."""
    if has_headers:
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
