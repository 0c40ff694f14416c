"""What passes through the proxy as it came, and clients and upstreams that leave."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.responses import Response, StreamingResponse

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.upstreams import Upstreams
from holdfast.settings import Settings
from support import patient
from support.waiting import PATIENCE, until

from .conftest import OWNER, TOKEN, Pair, Seen, Upstream, serve

BODY = {"model": "claude-x", "max_tokens": 50, "messages": [{"role": "user", "content": "Which port?"}]}
REPLY = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Port 5433."}]}


@contextmanager
def leaving(url: str, path: str, body: Any = None, **headers: str) -> Iterator[socket.socket]:
    """Send a request over a bare connection, and leave at the end of the block."""
    data = b"" if body is None else json.dumps(body).encode()
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    fields = {"host": f"127.0.0.1:{address[1]}", "content-length": str(len(data)), **headers}
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n"
    with socket.create_connection(address, timeout=PATIENCE) as connection:
        connection.sendall((head + "".join(f"{key}: {value}\r\n" for key, value in fields.items())).encode())
        connection.sendall(b"\r\n" + data)
        yield connection


class TestPassing:
    def test_path_and_query_reach_the_upstream_as_they_came(self, pair: Pair) -> None:
        patient.get(f"{pair.url}/v1/files/a%2Fb%3Fc?beta=true&x=%20")
        patient.post(f"{pair.url}/v1/messages?beta=true", json=BODY)
        assert [seen.target for seen in pair.upstream.seen] == [
            "/v1/files/a%2Fb%3Fc?beta=true&x=%20",
            "/v1/messages?beta=true",
        ]

    def test_an_upload_keeps_its_length(self, pair: Pair) -> None:
        patient.post(f"{pair.url}/v1/files", files={"file": ("a.txt", b"x" * 300_000)})
        (seen,) = pair.upstream.seen
        assert dict(seen.headers)["content-length"] == str(len(seen.body))
        assert b"x" * 300_000 in seen.body

    @pytest.mark.parametrize("status", [204, 304])
    def test_replies_without_a_body(self, pair: Pair, status: int) -> None:
        pair.upstream.answer = lambda _: Response(status_code=status, headers={"etag": "abc"})
        reply = httpx.delete(f"{pair.url}/v1/files/a")
        assert (reply.status_code, reply.content, reply.headers["etag"]) == (status, b"", "abc")

    def test_head_keeps_the_length(self, pair: Pair) -> None:
        pair.upstream.answer = lambda _: Response(b"12345")
        assert httpx.head(f"{pair.url}/v1/models").headers["content-length"] == "5"

    def test_repeated_headers_stay_apart(self, pair: Pair) -> None:
        def answer(_: Seen) -> Response:
            reply = Response(b"{}")
            reply.set_cookie("a", "1")
            reply.set_cookie("b", "2")
            return reply

        pair.upstream.answer = answer
        reply = patient.get(f"{pair.url}/v1/models", headers=[("x-many", "1"), ("x-many", "2")])
        assert len(reply.headers.get_list("set-cookie")) == 2
        assert [value for name, value in pair.upstream.seen[0].headers if name == "x-many"] == ["1", "2"]

    def test_cookies_of_one_client_are_not_sent_with_the_request_of_another(self, pair: Pair) -> None:
        pair.upstream.answer = lambda _: Response(b"{}", headers={"set-cookie": "id=first; Path=/"})
        for _ in range(2):
            patient.get(f"{pair.url}/v1/models")
        assert "cookie" not in dict(pair.upstream.seen[1].headers)

    def test_headers_for_the_server_do_not_reach_the_provider(self, pair: Pair) -> None:
        headers = {"x-holdfast-session": "s1", "x-holdfast-project": "/home/me/secret"}
        patient.post(f"{pair.url}/v1/messages", json=BODY, headers=headers)
        assert not [name for name, _ in pair.upstream.seen[0].headers if name.startswith("x-holdfast")]

    @pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
    def test_headers_of_one_connection_are_not_passed_on(self, pair: Pair, path: str) -> None:
        """In neither direction: the usual ones, and those that `Connection` names."""
        hops = {"connection": "X-Hop , x-other", "x-hop": "1", "x-other": "2", "keep-alive": "9", "x-kept": "3"}
        pair.upstream.answer = lambda _: Response(b"{}", headers=hops)
        more = [("Connection", "x-third"), ("X-Third", "4"), ("Proxy-Connection", "keep-alive")]
        reply = patient.post(f"{pair.url}{path}", json=BODY, headers=[*hops.items(), *more])
        (seen,) = pair.upstream.seen
        for headers in (dict(seen.headers), dict(reply.headers)):
            assert headers["x-kept"] == "3"
            assert not {"x-hop", "x-other", "x-third", "keep-alive", "proxy-connection"} & {*headers}

    def test_compressed_replies_pass_and_are_archived(self, pair: Pair) -> None:
        """Also from an upstream that was asked not to compress."""
        content = gzip.compress(json.dumps(REPLY).encode())
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        pair.upstream.answer = lambda _: Response(content, headers=headers)
        assert patient.post(f"{pair.url}/v1/messages", json=BODY, headers=OWNER).json() == REPLY
        assert "Port 5433." in [hit.text for hit in pair.engine.search("5433")]

    def test_a_reply_that_cannot_be_decompressed_passes_with_a_warning(
        self, pair: Pair, caplog: pytest.LogCaptureFixture
    ) -> None:
        headers = {"content-encoding": "br", "content-type": "text/event-stream"}
        pair.upstream.answer = lambda _: Response(b"\x0b\x02\x80", headers=headers)
        with patient.stream("POST", f"{pair.url}/v1/messages", json=BODY) as reply:
            assert b"".join(reply.iter_raw()) == b"\x0b\x02\x80"
        until(lambda: "was not archived: it is compressed with br" in caplog.text)
        assert len(caplog.messages) == 1

    @pytest.mark.parametrize("kind", [{}, {"content-type": "text/plain"}])
    def test_a_stream_without_its_content_type_passes_as_it_comes(self, pair: Pair, kind: dict[str, str]) -> None:
        """Where the request asked for one."""
        is_read = threading.Event()
        events = [f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n" for text in ("Port ", "5433.")]

        async def stream() -> AsyncIterator[bytes]:
            yield events[0].encode()
            await asyncio.to_thread(is_read.wait, 10)
            yield f"{events[1]}data: [DONE]\n\n".encode()

        pair.upstream.answer = lambda _: StreamingResponse(stream(), headers=kind)
        body = {**BODY, "stream": True}
        with patient.stream("POST", f"{pair.url}/v1/chat/completions", json=body, headers=OWNER) as reply:
            chunks = reply.iter_raw()
            assert next(chunks) == events[0].encode()
            is_read.set()
            assert events[1].encode() in b"".join(chunks)
        assert "Port 5433." in [hit.text for hit in pair.engine.search("5433")]

    def test_a_client_may_wait_for_100_continue(self, pair: Pair) -> None:
        """The provider is not asked to: the body has come."""
        with leaving(pair.url, "/v1/messages", BODY, expect="100-continue") as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
            until(lambda: pair.upstream.seen)
        assert "expect" not in dict(pair.upstream.seen[0].headers)

    @pytest.mark.parametrize("path", ["/v1/responses", "/v1/models"])
    def test_a_websocket_is_refused_so_that_the_client_uses_plain_requests(self, pair: Pair, path: str) -> None:
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version": "13"}
        with leaving(pair.url, path, upgrade="websocket", connection="Upgrade", **key) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 426 Upgrade Required")

    def test_a_very_long_error_is_not_read_to_its_end_first(self, pair: Pair) -> None:
        is_read = threading.Event()

        async def error() -> AsyncIterator[bytes]:
            yield b"x" * 2**21
            yield str(await asyncio.to_thread(is_read.wait, 10)).encode()

        pair.upstream.answer = lambda _: StreamingResponse(error(), status_code=500)
        with patient.stream("POST", f"{pair.url}/v1/messages", json=BODY) as reply:
            chunks = reply.iter_raw()
            assert next(chunks).startswith(b"x")
            is_read.set()
            assert b"".join(chunks).endswith(b"True")

    @pytest.mark.parametrize(
        ("encoding", "content"),
        [
            ("gzip", gzip.compress(b"{}", mtime=0)[:-9]),
            ("gzip", b"\x1f\x8b\x08" + b"\xff" * 20),
            ("identity", b"[" * 100_000),
            ("identity", b'{"model": {}, "tools": 5, "messages": [{"role": "user", "content": []}]}'),
        ],
        ids=["cut", "damaged", "deep", "odd"],
    )
    def test_a_body_that_is_broken_leaves_one_line(
        self, pair: Pair, caplog: pytest.LogCaptureFixture, encoding: str, content: bytes
    ) -> None:
        patient.post(f"{pair.url}/v1/chat/completions", content=content, headers={"content-encoding": encoding})
        assert [seen.body for seen in pair.upstream.seen] == [content]
        assert len(caplog.messages) <= 1
        assert "Traceback" not in caplog.text

    def test_a_compressed_error_passes(self, pair: Pair) -> None:
        content = gzip.compress(b'{"error": {"message": "bad request"}}')
        pair.upstream.answer = lambda _: Response(content, status_code=400, headers={"content-encoding": "gzip"})
        reply = patient.post(f"{pair.url}/v1/messages", json=BODY)
        assert reply.status_code == 400
        assert reply.json() == {"error": {"message": "bad request"}}

    def test_a_stream_of_an_unknown_shape_passes(self, pair: Pair) -> None:
        data = b'data: {"type": "message_delta", "delta": 5}\n\ndata: {"type": "content_block_start", "index": []}\n\n'
        pair.upstream.answer = lambda _: Response(data, media_type="text/event-stream")
        assert patient.post(f"{pair.url}/v1/messages", json=BODY).content == data


class TestLeaving:
    def test_a_client_that_leaves_before_the_reply_cancels_the_request(self, pair: Pair) -> None:
        with leaving(pair.url, "/v1/messages", BODY, mute="1"):
            until(lambda: pair.upstream.seen)
        until(pair.upstream.left.is_set)

    def test_a_client_that_leaves_a_request_that_passes_cancels_it(self, pair: Pair) -> None:
        with leaving(pair.url, "/v1/files/mute", {"a": 1}):
            until(lambda: pair.upstream.seen)
        until(pair.upstream.left.is_set)

    @pytest.mark.parametrize("text", ["Port 54", ""])
    def test_a_client_that_leaves_in_the_middle_of_a_stream_cancels_it(
        self, pair: Pair, caplog: pytest.LogCaptureFixture, text: str
    ) -> None:
        """What has come of the reply is archived, marked as broken and not recalled, with a line in the log."""
        ended = threading.Event()

        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
        sent: list[dict[str, Any]] = [
            {"type": "message_start", "message": {}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
        ]

        async def events() -> AsyncIterator[bytes]:
            try:
                for event in sent:
                    yield f"data: {json.dumps(event)}\n\n".encode()
                await asyncio.sleep(PATIENCE)
            finally:
                ended.set()

        pair.upstream.answer = lambda _: StreamingResponse(events(), media_type="text/event-stream")
        with leaving(pair.url, "/v1/messages", BODY, **OWNER) as connection:
            received = b""
            while b"text_delta" not in received:
                received += connection.recv(4096)
        until(ended.is_set)
        (scope,) = pair.engine.sessions()
        session = pair.engine.session(scope.id, project=scope.project)
        until(lambda: caplog.messages)
        (line,) = caplog.messages
        assert line.startswith(f"session {scope.id}: the client left in the middle of the reply of http://127.")
        assert [(row.message.text, row.message.is_broken, row.excluded) for row in session.get([2])] == (
            [(text, True, True)] if text else []
        )
        pair.upstream.answer = lambda _: Response(json.dumps(REPLY))
        assert patient.post(f"{pair.url}/v1/messages", json=BODY).json() == REPLY

    def test_an_upstream_that_is_not_there_is_a_502(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """In the shape of the client's own provider, with a line in the log that holds no key."""
        with (
            Engine.open(tmp_path / "memory", settings=Settings()) as engine,
            serve(create_app(engine, token=TOKEN, upstreams=Upstreams.parse(["http://127.0.0.1:9"]))) as url,
        ):
            paths = ["messages", "messages/count_tokens", "chat/completions", "responses", "models"]
            for path, headers in itertools.product(paths, ({}, {"anthropic-version": "2023-06-01"})):
                reply = patient.post(f"{url}/v1/{path}?key=abc", json=BODY, headers=headers)
                assert reply.status_code == 502
                assert "did not answer: no connection to 127.0.0.1:9: Connection refused" in reply.text
                is_anthropic = path.startswith("messages") or (path == "models" and bool(headers))
                assert reply.json().get("type") == ("error" if is_anthropic else None)
        assert len(caplog.messages) == 10
        assert "key=abc" not in caplog.text

    def test_a_proxy_of_the_user_is_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        upstream = Upstream()
        with serve(upstream.app()) as address, Engine.open(tmp_path / "memory", settings=Settings()) as engine:
            monkeypatch.setenv("http_proxy", address)
            app = create_app(engine, token=TOKEN, upstreams=Upstreams.parse(["http://provider.invalid"]))
            monkeypatch.delenv("http_proxy")
            with serve(app) as url:
                assert patient.post(f"{url}/v1/models", json=BODY).status_code == 200
        assert ("host", "provider.invalid") in upstream.seen[0].headers
