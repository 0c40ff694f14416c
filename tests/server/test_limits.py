"""Requests and replies that are too large, or become so when they are decompressed."""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import json
import select
import socket
import struct
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast import Engine
from holdfast.errors import InputError
from holdfast.server.app import create_app
from holdfast.server.bodies import MAX_MEMBERS, MAX_VALUES, BodyTooLargeError, RefusedBodyError, read_reply
from holdfast.server.guard import Guard
from holdfast.server.inspector.web import address
from holdfast.server.upstreams import Upstreams
from holdfast.settings import Embedding, ServerSettings, Settings
from support import patient
from support.waiting import PATIENCE, until

from .conftest import TOKEN, Pair, Seen, Upstream, run_pair, serve
from .test_process import running

MB = 2**20
PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/messages/count_tokens")
REPLY = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Port 5433."}]}

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")


def say(text: str) -> bytes:
    """Make the body of a request, readable by all formats."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "max_tokens": 50, "messages": messages, "input": text}).encode()


def deflate(data: bytes) -> bytes:
    """Compress without the header of zlib, as some clients do."""
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def zstd(data: bytes) -> bytes:
    """Compress with zstd."""
    module = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    return bytes(module.compress(data))


def join(data: bytes) -> bytes:
    """Compress as a file of many members."""
    return b"".join(gzip.compress(data[start : start + MB // 4]) for start in range(0, len(data), MB // 4))


@cache
def compress_once(compress: Callable[[bytes], bytes], size: int) -> bytes:
    """Compress a request of this size; several tests send the same."""
    return compress(say("x" * size))


ENCODINGS: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("gzip", gzip.compress),
    ("GZIP", gzip.compress),
    ("x-gzip", gzip.compress),
    ("gzip", join),
    ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
    ("gzip, deflate, zstd", lambda data: zstd(zlib.compress(gzip.compress(data)))),
    ("deflate", zlib.compress),
    ("deflate", deflate),
    ("zstd", zstd),
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Pair]:
    """A server with small limits, and its upstream."""
    limits = ServerSettings(
        max_request_bytes=MB, max_decompressed_bytes=2 * MB, max_reply_bytes=MB, max_open_bytes=6 * MB
    )
    with run_pair(tmp_path / "memory", Settings(embedding=Embedding(provider="none"), server=limits)) as pair:
        pair.upstream.answer = lambda _: Response(json.dumps(REPLY), media_type="application/json")
        yield pair


class Pieces(httpx.AsyncByteStream):
    """The body of a reply, in pieces."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._content), 1_000):
            yield self._content[start : start + 1_000]


def reply_with(content: bytes, encoding: str, kind: str, _: Seen) -> Response:
    """Answer with a compressed body."""
    return Response(content, headers={"content-encoding": encoding, "content-type": kind})


def is_archived(pair: Pair, text: str) -> bool:
    """Whether a text is in the archive of any caller."""
    stored = pair.engine.sessions()
    return any(text in row.message.text for info in stored for row in pair.engine._open_session(info.scope).messages())


def check_refused(reply: httpx.Response, *, path: str, setting: str) -> None:
    """Check that a request was refused in the shape of its API, with a reason that names the setting."""
    assert reply.status_code == 413
    body = reply.json()
    assert body["error"]["type"] == "request_too_large"
    assert setting in body["error"]["message"]
    assert (body.get("type") == "error") == path.startswith("/v1/messages")


@contextmanager
def without_collector() -> Iterator[None]:
    """Turn the garbage collector off: only references free memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def count_kept_errors() -> int:
    """Count the errors of bodies that are still in memory; each keeps the variables of all functions that it passed."""
    kinds = (RefusedBodyError, InputError, json.JSONDecodeError, httpx.HTTPError)
    # Not `isinstance`: it asks objects for their class, and some import a whole SDK to answer.
    return sum(issubclass(type(thing), kinds) for thing in gc.get_objects())


class TestRequests:
    @pytest.mark.parametrize("path", PATHS)
    def test_one_that_is_too_large_is_refused(self, small: Pair, path: str) -> None:
        """With its length or without, and in the same way if it is much larger."""
        for size in (MB, 2 * MB):
            body = say("x" * size)
            pieces = (body[start : start + 65_536] for start in range(0, len(body), 65_536))
            for content in (body, pieces):
                reply = patient.post(small.url + path, content=content)
                check_refused(reply, path=path, setting="server.max_request_bytes")
        assert small.upstream.seen == []

    def test_the_connection_can_be_used_again(self, small: Pair) -> None:
        with httpx.Client(base_url=small.url, timeout=PATIENCE) as client:
            for _ in range(3):
                assert client.post("/v1/messages", content=say("x" * 2 * MB)).status_code == 413
                assert client.post("/v1/messages", content=say("Hello.")).status_code == 200

    def test_a_client_that_waits_for_100_continue_need_not_send_it(self, small: Pair) -> None:
        place = urlsplit(small.url)
        head = f"POST /v1/messages HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 99999999\r\n"
        with socket.create_connection((str(place.hostname), place.port or 0), timeout=60) as connection:
            connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")

    @pytest.mark.variants
    @pytest.mark.parametrize("path", PATHS)
    def test_one_that_decompresses_to_too_much_is_refused(self, small: Pair, path: str) -> None:
        for encoding, compress in ENCODINGS:
            content = compress_once(compress, 2 * MB)
            assert len(content) < MB
            reply = patient.post(small.url + path, content=content, headers={"content-encoding": encoding})
            check_refused(reply, path=path, setting="server.max_decompressed_bytes")
        assert small.upstream.seen == []

    def test_a_compressed_one_is_read(self, small: Pair) -> None:
        """What the memory does with it shows that it was."""
        for number, (encoding, compress) in enumerate(ENCODINGS):
            content = compress(say(f"Hello {number}."))
            reply = patient.post(
                f"{small.url}/v1/chat/completions", content=content, headers={"content-encoding": encoding}
            )
            assert "x-holdfast-warning" not in reply.headers
            assert is_archived(small, f"Hello {number}.")

    def test_codings_in_several_headers_are_undone(self, small: Pair) -> None:
        content = gzip.compress(zlib.compress(say("Hello.")))
        headers = [("content-encoding", "deflate"), ("content-encoding", "gzip")]
        patient.post(f"{small.url}/v1/chat/completions", content=content, headers=headers)
        assert is_archived(small, "Hello.")

    @pytest.mark.parametrize(
        ("encoding", "content"),
        [
            ("br", b"\x0b\x02\x80"),
            ("gzip, gzip, gzip, gzip", gzip.compress(say("Hello."))),
            ("gzip", gzip.compress(b"", mtime=0) * (MAX_MEMBERS + 1)),
            ("gzip", gzip.compress(say("Hello."), mtime=0)[:-9]),
            ("gzip", b"\x1f\x8b\x08" + b"\xff" * 20),
            ("zstd", b"\x28\xb5\x2f\xfd" + b"\xff" * 20),
        ],
        ids=["unknown", "codings", "members", "cut", "damaged", "damaged zstd"],
    )
    def test_one_that_cannot_be_decompressed_passes_unchanged(self, small: Pair, encoding: str, content: bytes) -> None:
        reply = patient.post(f"{small.url}/v1/messages", content=content, headers={"content-encoding": encoding})
        assert reply.status_code == 200
        assert "the request passed unchanged" in reply.headers["x-holdfast-warning"]
        assert [seen.body for seen in small.upstream.seen] == [content]

    @pytest.mark.parametrize("path", [PATHS[0], *(pytest.param(path, marks=pytest.mark.nightly) for path in PATHS[1:])])
    def test_one_that_is_refused_or_unreadable_leaves_nothing_in_memory(self, small: Pair, path: str) -> None:
        """Not even until the garbage collector runs: nothing tells it that a few small objects hold a large buffer."""
        whole = gzip.compress(say("x" * MB))
        faults = [(encoding, compress_once(compress, 2 * MB)) for encoding, compress in ENCODINGS]
        faults += [("gzip", whole[:-9]), ("gzip", whole + b"x"), ("gzip", gzip.compress(say("x" * MB) + b"]"))]
        with without_collector():
            kept_before = count_kept_errors()  # of other tests
            for encoding, content in faults:
                patient.post(small.url + path, content=content, headers={"content-encoding": encoding})
            until(lambda: count_kept_errors() <= kept_before)  # a thread may still be about to leave its function

    def test_one_whose_provider_does_not_answer_leaves_nothing_in_memory(self, tmp_path: Path) -> None:
        with socket.socket() as nobody, Engine.open(tmp_path, background=False) as engine:
            nobody.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            app = create_app(engine, token=TOKEN, upstreams=Upstreams(anthropic=address, openai=address))
            with serve(app) as url, without_collector():
                kept_before = count_kept_errors()  # of other tests
                assert patient.post(f"{url}/v1/messages", content=say("Hello.")).status_code == 502
                until(lambda: count_kept_errors() <= kept_before)

    def test_one_with_too_many_values_passes_unchanged(self, pair: Pair) -> None:
        """Each would take a hundred bytes, also if it is two characters long."""
        content = say("Hello.")[:-1] + b', "x": [' + b"{}," * MAX_VALUES + b"{}]}"
        reply = patient.post(f"{pair.url}/v1/messages", content=content)
        assert reply.status_code == 200, reply.text
        assert "values" in reply.headers["x-holdfast-warning"]
        assert [seen.body for seen in pair.upstream.seen] == [content]

    def test_one_that_only_passes_through_has_no_limit(self, small: Pair) -> None:
        for content in (b"x" * 5 * MB, itertools.repeat(b"x" * MB, 5)):
            assert patient.post(f"{small.url}/v1/files", content=content).status_code == 200
        assert [len(seen.body) for seen in small.upstream.seen] == [5 * MB, 5 * MB]

    def test_many_at_once_have_a_limit_together(self, tmp_path: Path) -> None:
        """One more is told to come again, and is taken when there is room."""
        body = say("x" * (MB // 16 - 200))
        limits = ServerSettings(max_open_bytes=6 * MB // 8)
        settings = Settings(embedding=Embedding(provider="none"), server=limits)
        with run_pair(tmp_path / "memory", settings) as tiny, ExitStack() as stack:
            tiny.upstream.answer = lambda _: Response(json.dumps(REPLY), media_type="application/json")
            place = urlsplit(tiny.url)

            def ask() -> httpx.Response:
                return patient.post(f"{tiny.url}/v1/messages", content=body)

            for number in range(6):
                connection = stack.enter_context(socket.create_connection((str(place.hostname), place.port or 0)))
                head = f"POST /v1/messages HTTP/1.1\r\nHost: {place.netloc}\r\nMute: 1\r\nX-Holdfast-Session: {number}"
                connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: len(tiny.upstream.seen) == 6)
            refused = ask()
            assert refused.status_code == 503
            assert "server.max_open_bytes" in refused.json()["error"]["message"]
            assert patient.post(f"{tiny.url}/v1/messages", content=say("Hello.")).status_code == 200
            stack.close()
            until(lambda: ask().status_code == 200)

    def test_a_name_and_an_id_have_a_limit(self, small: Pair) -> None:
        """A server keeps them. Two names that begin alike stay apart."""
        names = set()
        for end in "ab":
            body = {**json.loads(say("Hello.")), "conversation": "n" * 300_000 + end}
            reply = patient.post(f"{small.url}/v1/responses", json=body)
            names.add(reply.headers["x-holdfast-session"])
        assert len(names) == 2
        assert max(map(len, names)) < 1_000


class TestOtherWaysIn:
    def test_a_call_that_is_too_large_is_refused(self, small: Pair) -> None:
        headers = {"authorization": f"Bearer {TOKEN}"}
        for content in (b"x" * 2 * MB, itertools.repeat(b"x" * 1_000, 5_000)):
            reply = patient.post(f"{small.url}/holdfast/rpc", content=content, headers=headers)
            assert reply.status_code == 413
            assert "server.max_request_bytes" in reply.json()["error"]["message"]

    def test_a_form_that_is_too_large_is_refused(self, small: Pair) -> None:
        reply = patient.post(f"{address(small.url, TOKEN)}act", data={"content": "x" * 2 * MB})
        assert reply.status_code == 413

    def test_an_mcp_request_that_is_too_large_is_refused(self) -> None:
        async def count(request: Request) -> Response:
            return Response(str(len(await request.body())))

        application = Starlette(routes=[Route("/mcp", count, methods=["GET", "POST"])])

        with serve(Guard(application, token=TOKEN, max_bytes=MB)) as url:
            headers = {"authorization": f"Bearer {TOKEN}"}
            for content in (b"x" * 2 * MB, itertools.repeat(b"x" * 1_000, 5_000)):
                reply = patient.post(f"{url}/mcp", content=content, headers=headers)
                assert reply.status_code == 413
                assert "server.max_request_bytes" in reply.json()["error"]
            assert patient.post(f"{url}/mcp", content=b"x" * MB, headers=headers).text == str(MB)
            assert patient.get(f"{url}/mcp", headers=headers).text == "0"


class TestReplies:
    def test_one_that_is_too_large_passes_and_is_not_archived(
        self, small: Pair, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The reply and the log say so."""
        content = json.dumps({**REPLY, "content": [{"type": "text", "text": "Port 5433. " * (MB // 8)}]}).encode()
        small.upstream.answer = lambda _: Response(content, media_type="application/json")
        reply = patient.post(f"{small.url}/v1/messages", content=say("Which port?"))
        assert reply.content == content
        assert "server.max_reply_bytes" in reply.headers["x-holdfast-warning"]
        until(lambda: "a reply was not archived" in caplog.text)
        assert is_archived(small, "Which port?")
        assert not is_archived(small, "5433")

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
    def test_one_that_decompresses_to_too_much_passes_as_it_came(
        self, small: Pair, caplog: pytest.LogCaptureFixture, kind: str
    ) -> None:
        for number, (encoding, compress) in enumerate(ENCODINGS, start=1):
            content = compress(b"data: " + b"x" * 2 * MB)
            small.upstream.answer = partial(reply_with, content, encoding, kind)
            with patient.stream("POST", f"{small.url}/v1/messages", content=say(f"Ask {number}.")) as reply:
                assert b"".join(reply.iter_raw()) == content
            until(lambda count=number: caplog.text.count("server.max_reply_bytes") == count)  # type: ignore[misc]

    def test_a_compressed_one_is_archived(self, small: Pair) -> None:
        for number, (encoding, compress) in enumerate(ENCODINGS):
            words = f"Port {number}543."
            whole = json.dumps({**REPLY, "content": [{"type": "text", "text": words}]}).encode()
            content = compress(whole)
            small.upstream.answer = partial(reply_with, content, encoding, "application/json")
            with patient.stream("POST", f"{small.url}/v1/messages", content=say(f"Ask {number}.")) as reply:
                assert b"".join(reply.iter_raw()) == content
            assert is_archived(small, words)

    def test_a_stream_that_is_too_large_passes(self, small: Pair, caplog: pytest.LogCaptureFixture) -> None:
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1_000}}
        event = f"data: {json.dumps(delta)}\n\n".encode()

        async def stream() -> AsyncIterator[bytes]:
            start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Port 5433"}}
            yield f"data: {json.dumps(start)}\n\n".encode()
            for _ in range(1_500):
                yield event
            yield b'data: {"type": "message_stop"}\n\n'

        small.upstream.answer = lambda _: StreamingResponse(stream(), media_type="text/event-stream")
        reply = patient.post(f"{small.url}/v1/messages", content=say("Which port?"))
        assert reply.content.count(event) == 1_500
        until(lambda: "a reply was not archived" in caplog.text)
        assert not is_archived(small, "5433")

    @pytest.mark.parametrize("status", [400, 413, 500])
    def test_an_error_that_decompresses_to_too_much_passes(self, small: Pair, status: int) -> None:
        content = gzip.compress(b'{"error": {"message": "prompt is too long: ' + b"9" * 2 * MB)
        headers = {"content-encoding": "gzip"}
        small.upstream.answer = lambda _: Response(content, status_code=status, headers=headers)
        with patient.stream("POST", f"{small.url}/v1/messages", content=say("Which port?")) as reply:
            assert reply.status_code == status
            assert b"".join(reply.iter_raw()) == content

    def test_a_summary_for_the_proxy_itself_has_a_limit(self) -> None:
        for encoding, compress in ENCODINGS:
            pieces = Pieces(compress(b"x" * 2 * MB))
            sent = httpx.Response(200, headers={"content-encoding": encoding}, stream=pieces)
            with pytest.raises(BodyTooLargeError):
                asyncio.run(read_reply(sent, limit=MB))

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("is_stream", [True, False])
    def test_a_summary_that_is_too_large_passes_as_it_came(self, small: Pair, *, is_stream: bool) -> None:
        """One event without an end, or a body."""
        kind = "text/event-stream" if is_stream else "application/json"
        content = b"data: " + b"x" * 2 * MB
        small.upstream.answer = lambda _: Response(content, media_type=kind)
        prompt = "Your task is to create a detailed summary of the conversation so far"
        body = {"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": prompt}]}
        assert patient.post(f"{small.url}/v1/messages", json=body).content == content


def peak_megabytes(pid: int) -> int:
    """Return the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def answering(answer: Callable[[Seen], Response] | None = None) -> Any:
    """Make a provider that answers a greeting, and everything else with a function."""
    greeting = Response(json.dumps(REPLY), media_type="application/json")
    return Upstream(answer=lambda seen: answer(seen) if answer and b"Hello." not in seen.body else greeting).app()


@contextmanager
def limited(folder: Path, upstream: str) -> Iterator[tuple[int, str]]:
    """Run a server as a process with limits of 16 MB, and yield its number and address."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAX_REQUEST_BYTES", "MAX_DECOMPRESSED_BYTES", "MAX_REPLY_BYTES"):
            patch.setenv(f"HOLDFAST_SERVER__{name}", "16mb")
        patch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
        with running(folder, "--upstream", upstream) as (process, url):
            assert patient.post(f"{url}/v1/messages", content=say("Hello.")).status_code == 200
            yield process.pid, url


def make_bomb(megabytes: int) -> bytes:
    """Make a gzip file of about a thousandth of what it decompresses to, from one compressed block many times."""
    block = b"x" * MB
    stream = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    first, other = (stream.compress(block) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    checksum = 0
    for _ in range(megabytes):
        checksum = zlib.crc32(block, checksum)
    end = b"\x03\x00" + struct.pack("<II", checksum, megabytes * MB)
    return first + other * (megabytes - 1) + end


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """About 200 kB that decompress to 200 MB."""
    return make_bomb(200)


@needs_proc
class TestMemory:
    def test_a_request_takes_no_more_than_its_limits(self, tmp_path: Path, bomb: bytes) -> None:
        """However much would come out of it."""
        with serve(answering()) as upstream, limited(tmp_path, upstream) as (pid, url):
            before = peak_megabytes(pid)
            for encoding, content in (("gzip", bomb), ("gzip", bomb[:-8] * 3), ("gzip, gzip", gzip.compress(bomb))):
                headers = {"content-encoding": encoding}
                assert patient.post(f"{url}/v1/messages", content=content, headers=headers).status_code == 413
            pieces = itertools.repeat(b"x" * MB, 200)
            assert patient.post(f"{url}/v1/messages", content=pieces).status_code == 413
            assert peak_megabytes(pid) - before < 120

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
    def test_a_reply_takes_no_more_than_its_limit(self, tmp_path: Path, bomb: bytes, kind: str) -> None:
        """Compressed or not, whole or streamed; the client gets all of it."""

        def reply(seen: Seen) -> Response:
            if b"compressed" in seen.body:
                return Response(bomb, headers={"content-encoding": "gzip", "content-type": kind})

            async def stream() -> AsyncIterator[bytes]:
                for _ in range(200):
                    yield b"x" * MB

            return StreamingResponse(stream(), media_type=kind)

        with serve(answering(reply)) as upstream, limited(tmp_path, upstream) as (pid, url):
            before = peak_megabytes(pid)
            for text, size in (("compressed", len(bomb)), ("plain", 200 * MB)):
                received = 0
                with patient.stream("POST", f"{url}/v1/messages", content=say(text)) as answer:
                    for chunk in answer.iter_raw():
                        received += len(chunk)
                assert received == size
            assert peak_megabytes(pid) - before < 160


def rss_megabytes(pid: int) -> int:
    """Return the memory that a process has now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


@needs_proc
@pytest.mark.nightly  # half of a minute; tests/behaviour/test_kept_sessions.py shows the bound of an engine
def test_a_server_keeps_sessions_of_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has pictures of 6 MB. What was archived of all of them is there."""
    monkeypatch.setenv("HOLDFAST_SERVER__MAX_SESSION_BYTES", "8mb")
    with serve(answering()) as upstream, limited(tmp_path, upstream) as (pid, url):
        before = rss_megabytes(pid)
        for number in range(12):
            picture = {"type": "base64", "media_type": "image/png", "data": f"{number:04d}" + "abcd" * (6 * MB // 4)}
            content = [{"type": "image", "source": picture}, {"type": "text", "text": f"Hello. Picture {number}."}]
            body = {"model": "claude-x", "max_tokens": 5, "messages": [{"role": "user", "content": content}]}
            headers = {"x-holdfast-session": f"s{number}"}
            assert patient.post(f"{url}/v1/messages", json=body, headers=headers).status_code == 200
        kept = rss_megabytes(pid) - before
    assert kept < 40
    with Engine.open(tmp_path, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
        texts = [row.message.text for info in engine.sessions() for row in engine._open_session(info.scope).messages()]
    assert all(any(f"Picture {number}." in text for text in texts) for number in range(12))


def test_others_are_answered_while_requests_are_decompressed(tmp_path: Path) -> None:
    """Many answers come before the last one of some requests that take long."""
    content = make_bomb(100)
    with serve(answering()) as upstream, running(tmp_path, "--upstream", upstream) as (_, url):
        place = urlsplit(url)
        with ExitStack() as stack:
            bombs = []
            for _ in range(3):
                connection = stack.enter_context(socket.create_connection((str(place.hostname), place.port or 0)))
                head = f"POST /v1/messages HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Encoding: gzip\r\n"
                connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
                bombs.append(connection)
            answered = 0
            with httpx.Client(base_url=url, timeout=PATIENCE) as other:
                while len(select.select(bombs, [], [], 0)[0]) < len(bombs):
                    assert other.get("/ui/").status_code == 401
                    answered += 1
            assert answered > 30
