"""Send the requests of httpx with aiohttp: a request takes half the time of httpx's own way, an event a third."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final

import aiohttp
import httpx2 as httpx
from yarl import URL

CONNECT_SECONDS: Final = 30.0
READ_SECONDS: Final = 600.0
IDLE_SECONDS: Final = 2.0
"""Idle connections are closed before most servers close them, which could happen while a request is being sent."""
MAX_HEADER_BYTES: Final = 65_536
_DEFAULT_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class Transport(httpx.AsyncBaseTransport):
    """Sends requests with the headers that they have, follows no redirect, and returns replies as they come."""

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context()
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the reply, of which the body is not read yet.

        Raises:
            NetworkError: There is no reply.
        """
        if self._session is None:  # needs the event loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=self._ssl),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_field_size=MAX_HEADER_BYTES,
                skip_auto_headers=_DEFAULT_HEADERS,
            )
        data: Any = request.stream
        dropped = {"transfer-encoding"}  # aiohttp adds it itself, and the length of a whole body
        if isinstance(request.stream, httpx.ByteStream):
            data = BytesIO(request.content) if request.content else None  # sent piece by piece
            dropped.add("content-length")
        with _translate_errors():
            reply = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(name, value) for name, value in request.headers.multi_items() if name not in dropped],
                data=data,
                allow_redirects=False,
            )
        return httpx.Response(reply.status, headers=reply.raw_headers, stream=_Chunks(reply), request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class _Chunks(httpx.AsyncByteStream):
    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            with _translate_errors():
                async for chunk in self._reply.content.iter_any():
                    yield chunk
        finally:  # also of a reply that broke off before it was passed on
            self._reply.close()

    async def aclose(self) -> None:
        self._reply.close()  # the connection is used again if the body was read to its end


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # also if it took too long
        raise httpx.NetworkError(_describe(error)) from error


def _describe(error: Exception) -> str:
    """Describe in plain words why there is no reply, or why it ended early."""
    match error:
        case aiohttp.ClientConnectorError(host=host, port=port, os_error=OSError(errno=number, strerror=text)):
            return f"no connection to {host}:{port}: {os.strerror(number) if number and number > 0 else text}"
        case aiohttp.ClientConnectorCertificateError(certificate_error=reason):
            return f"no valid certificate: {reason}"
        case TimeoutError():
            return "nothing came in time"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "the connection was closed"
        case aiohttp.ClientResponseError(message=text):
            return f"not HTTP: {text.splitlines()[0]}"
    return str(error) or type(error).__name__


class Body:
    """The body of a reply, of which the beginning may be read before it is passed on. It has `held_bytes` of that."""

    def __init__(self, sent: httpx.Response) -> None:
        self.sent = sent
        self.held_bytes = 0
        assert isinstance(sent.stream, httpx.AsyncByteStream)
        self._chunks = aiter(sent.stream)  # with `sent.aiter_raw()`, which does the same, each chunk takes longer
        self._held: list[bytes] = []
        self._next: asyncio.Future[bytes | None] | None = None

    async def peek(self, *, seconds: float | None = None) -> bytes | None:
        """Read one more chunk and keep it; None at the end, or if none comes in time."""
        if seconds is None and self._next is None:
            chunk = await anext(self._chunks, None)
        else:
            self._next = self._next or asyncio.ensure_future(anext(self._chunks, None))
            done, _ = await asyncio.wait({self._next}, timeout=seconds)
            if not done:
                return None
            chunk, self._next = self._next.result(), None
        if chunk is not None:
            self._held.append(chunk)
            self.held_bytes += len(chunk)
        return chunk

    async def pass_on(self) -> AsyncIterator[bytes]:
        """Yield what was read, then the rest, and close the reply."""
        try:
            if self._held:
                yield b"".join(self._held)
            if self._next is not None and (late := await self._next) is not None:
                yield late
            async for chunk in self._chunks:
                yield chunk
        finally:
            if self._next is not None:
                self._next.cancel()
            await self.sent.aclose()


async def read_up_to(chunks: AsyncIterator[bytes], *, limit: int) -> tuple[bytes, bool]:
    """Read chunks until there are more bytes than a limit; return them, and whether that was all."""
    buffer = BytesIO()
    async for chunk in chunks:
        buffer.write(chunk)
        if buffer.tell() > limit:
            return buffer.getvalue(), False
    return buffer.getvalue(), True


async def chain_chunks(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what was read, then the rest."""
    yield first
    async for chunk in rest:
        yield chunk
