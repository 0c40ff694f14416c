"""Clients that do not finish what they ask: they are not held for ever, and hold up no one."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.server.connections import MAX_HEAD_BYTES, Limits
from holdfast.server.process import find
from support import patient
from support.waiting import until

from .conftest import serve
from .test_process import running

QUICK = Limits(head_seconds=0.2, stall_seconds=0.2)
LINE = b"POST /upload HTTP/1.1\r\n"
HOST = b"Host: 127.0.0.1\r\n"


def connect(url: str) -> socket.socket:
    """Open a bare connection to a server."""
    place = urlsplit(url)
    assert place.hostname
    assert place.port
    return socket.create_connection((place.hostname, place.port), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has ended a connection on which nothing else is to come."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable)


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


async def upload(request: Request) -> Response:
    """Read a body, and say how long it is."""
    return Response(str(len(await request.body())))


async def ignore(_: Request) -> Response:
    """Answer without reading the body."""
    return Response(b"no", status_code=413)


@contextmanager
def serving(**more: Route) -> Iterator[str]:
    """Run a server that waits for no one."""
    routes = [Route("/upload", upload, methods=["POST"]), Route("/ignore", ignore, methods=["POST"]), *more.values()]
    with serve(Starlette(routes=routes), limits=QUICK) as url:
        yield url


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("head", [LINE + HOST, LINE + HOST + b"Content-Length: 100\r\n\r\nhalf"], ids=["head", "body"])
def test_half_open_requests_are_limited_and_delay_no_one(tmp_path: Path, head: bytes) -> None:
    """Of many, those that stall longest are closed; a client that finishes is answered."""
    with running(tmp_path) as (_, url), ExitStack() as stack:
        opened = []
        for _ in range(400):
            connection = stack.enter_context(connect(url))
            connection.sendall(head.replace(b"/upload", b"/v1/messages"))
            opened.append(connection)
        server = find(tmp_path)
        assert server is not None
        assert server.call("ping", timeout=60)
        until(lambda: sum(map(is_closed, opened)) >= 400 - Limits().max_half_open)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n",
        LINE,
        LINE + HOST,
        LINE + HOST + b"Content-Length: 100\r\n\r\n",
        LINE + HOST + b"Content-Length: 100\r\n\r\nhalf",
        LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n4\r\nha",
        LINE + HOST + b"Content-Length: 0\r\n\r\n\r\n",
        LINE + HOST + b"Content-Length: 0\r\n\r\n" + LINE,
        LINE.replace(b"upload", b"ignore") + HOST + b"Content-Length: 100\r\n\r\nhalf",
    ],
)
def test_a_client_that_does_not_finish_is_left(sent: bytes) -> None:
    """Before the head, in it, in the body, or in the next request; also if it was answered already."""
    with serving() as url, connect(url) as connection:
        connection.sendall(sent)
        read_to_end(connection)


def test_a_client_that_sends_a_byte_now_and_then_is_left_too() -> None:
    """Each byte is in time; all of them are not."""
    with serving() as url, connect(url) as connection:
        connection.sendall(LINE + HOST + b"Content-Length: 1000000\r\n\r\n")
        while not is_closed(connection):
            try:
                connection.sendall(b"x")
            except OSError:
                break
            threading.Event().wait(0.02)


def test_a_reply_may_take_longer_than_a_request() -> None:
    """Neither one that has not begun nor one that streams is cut, also after a line end too many."""
    is_left = threading.Event()

    async def slow(_: Request) -> Response:
        async def stream() -> AsyncIterator[bytes]:
            yield b"first,"
            await asyncio.to_thread(is_left.wait, 60)
            yield b"last"

        return StreamingResponse(stream())

    with serving(slow=Route("/slow", slow, methods=["POST"])) as url, connect(url) as connection:
        connection.sendall(b"POST /slow HTTP/1.1\r\nConnection: close\r\n" + HOST + b"Content-Length: 0\r\n\r\n\r\n")
        for _ in range(3):  # long enough for the limits: others are closed meanwhile
            with connect(url) as other:
                other.sendall(LINE)
                read_to_end(other)
        is_left.set()
        assert b"last" in read_to_end(connection)


def test_a_kept_connection_serves_one_request_after_another() -> None:
    """Each has its own time."""
    routes = [Route("/upload", upload, methods=["POST"])]
    with serve(Starlette(routes=routes)) as url, connect(url) as connection:
        reader = connection.makefile("rb")
        for _ in range(20):
            connection.sendall(LINE + HOST + b"Content-Length: 4\r\n\r\nbody")
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            while (line := reader.readline()) != b"\r\n":
                assert line
            assert reader.read(1) == b"4"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"GET /", b"a" * 65_536),
        (LINE + b"X-A: ", b"a" * 65_536),
        (LINE, b"X-A: a\r\n" * 8_192),
        (LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: ", b"a" * 65_536),
        (LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: a\r\n" * 8_192),
        (LINE + HOST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"a" * 65_536),
    ],
    ids=["target", "field", "fields", "trailer", "trailers", "extension"],
)
def test_a_head_has_a_limit(start: bytes, more: bytes) -> None:
    """In its target, in one field or in all of them, and after the body."""
    sent = 0
    with serve(Starlette(routes=[Route("/upload", upload, methods=["POST"])])) as url, connect(url) as connection:
        connection.sendall(start)
        try:
            while not is_closed(connection):
                connection.sendall(more)
                sent += len(more)
                assert sent < 64 * MAX_HEAD_BYTES  # the buffers of the system take some, and the rest is refused
        except OSError:
            pass


def test_a_large_body_is_not_limited_here() -> None:
    """Neither whole nor in small pieces."""
    with serve(Starlette(routes=[Route("/upload", upload, methods=["POST"])])) as url:
        assert patient.post(f"{url}/upload", content=b"x" * 10_000_000).text == "10000000"
        assert patient.post(f"{url}/upload", content=iter([b"x"] * 10_000)).text == "10000"
