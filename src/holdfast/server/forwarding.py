"""Send requests on to a provider and pass its replies on, byte for byte."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar
from urllib.request import getproxies

import httpx2 as httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from holdfast.calls import hide_keys
from holdfast.redaction import redact
from holdfast.server.guard import OWN_HEADERS
from holdfast.server.transport import CONNECT_SECONDS, IDLE_SECONDS, READ_SECONDS, Body, Transport
from holdfast.server.upstreams import Upstreams
from holdfast.text import printable

log = logging.getLogger("holdfast.server")

R = TypeVar("R")
_Send: TypeAlias = Callable[[httpx.Request], Awaitable[httpx.Response]]

ROUTES: Final[Mapping[str, str]] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
}
"""The format of each path whose requests are assembled. Everything else passes."""
ERROR_TYPES: Final = {
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    503: "overloaded_error",
}
"""The types of our own errors, by status, as Anthropic names them."""
_HOP_HEADERS: Final = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
"""The headers that are for one connection, and not for the other end of the proxy."""
_TIMEOUT: Final = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
_LIMITS: Final = httpx.Limits(keepalive_expiry=IDLE_SECONDS)


def make_url(upstreams: Upstreams, request: Request) -> str:
    """Return the address for a request: that of the vendor by its path and headers."""
    base = upstreams.anthropic if _is_anthropic(request) else upstreams.openai
    base = base.rstrip("/")
    path = request.scope["raw_path"].decode("latin-1")
    query = request.scope["query_string"].decode("latin-1")
    if base.endswith("/v1") and path.startswith("/v1/"):
        path = path.removeprefix("/v1")
    if query:
        return f"{base}{path}?{query}"
    return f"{base}{path}"


class Forwarder:
    """Sends requests of clients on, with their own headers and without ours."""

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        has_proxy = not {"http", "https", "all"}.isdisjoint(getproxies())
        if has_proxy:  # httpx itself sends through a proxy of the user
            client = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, limits=_LIMITS)
            self._send: _Send = partial(client.send, stream=True)
            self._close = client.aclose
        else:
            transport = Transport()
            self._send = transport.handle_async_request
            self._close = transport.aclose

    async def close(self) -> None:
        """Close the connections."""
        await self._close()

    async def send(
        self, request: Request, content: bytes | AsyncIterator[bytes] | None, *, is_changed: bool = False
    ) -> httpx.Response:
        """Send a request with a body, and return the reply, of which the body is not read yet.

        `is_changed`: the body is not the one that came, and so no longer compressed.

        Raises:
            HTTPError: There is no reply.
        """
        dropped = {b"host"}
        if isinstance(content, bytes):  # its length is known here, and the reply is read on its way
            dropped |= {b"content-length", b"accept-encoding"}
        if is_changed:
            dropped.add(b"content-encoding")
        headers: list[tuple[bytes, bytes]] = []
        for name, value in _drop_hops(request.headers.raw):
            if name.lower() not in dropped and not name.lower().startswith(OWN_HEADERS):
                headers.append((name, value))
        if isinstance(content, bytes):
            headers.append((b"accept-encoding", b"identity"))
        built = httpx.Request(  # without the cookies and the headers of the client object
            request.method,
            make_url(self._upstreams, request),
            headers=headers,
            content=content,
            extensions={"timeout": _TIMEOUT.as_dict()},
        )
        sent = await self._send(built)
        sent.request = httpx.Request(built.method, built.url)  # without the body
        return sent

    async def pass_through(self, request: Request) -> Response:
        """Send a request as it comes, and pass the reply on as it comes."""
        if not {"content-length", "transfer-encoding"}.intersection(request.headers):
            return relay(await while_connected(request, self.send(request, None)))
        received = asyncio.Event()
        sending = self.send(request, _upload(request, received))
        return relay(await while_connected(request, sending, received=received))

    def refuse_unreachable(self, request: Request, error: httpx.HTTPError, *, session: str = "") -> Response:
        """Answer a request whose provider did not, and write that to the log."""
        address = hide_keys(make_url(self._upstreams, request))
        message = f"{address} did not answer: {_describe(error)}"
        warn(message, session=session)
        return refuse(request, message, status=502)


async def _upload(request: Request, received: asyncio.Event) -> AsyncIterator[bytes]:
    """Pass the body of a request on as it comes."""
    async for chunk in request.stream():
        yield chunk
    received.set()


async def while_connected(
    request: Request, work: Coroutine[Any, Any, R], *, received: asyncio.Event | None = None
) -> R:
    """Await something for a client, and cancel it when the client leaves.

    Args:
        request: The request of the client.
        work: What to await.
        received: Set when the body of the request has been read; None if it has been.

    Raises:
        ClientDisconnect: The client left.
    """

    async def wait_until_left() -> None:
        if received is not None:
            await received.wait()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(wait_until_left())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        task.cancel()
        left.cancel()
        await asyncio.wait({task, left})
        del task, left  # an error refers to this frame: with its task in it, the request stays in memory


# --- replies -----------------------------------------------------------------------------


class _PassedOn(StreamingResponse):
    """A reply that is passed on as it comes. A client that leaves cancels it.

    If the upstream breaks off, nothing more is sent: the server then closes the connection, and the client sees that
    the reply is not whole.
    """

    def __init__(self, content: AsyncIterator[bytes], *, url: httpx.URL, session: str) -> None:
        super().__init__(content)
        self._url = url
        self._session = session

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(Request(scope, receive), self.stream_response(send))
        except ClientDisconnect:
            pass
        except httpx.HTTPError as error:
            warn(f"the reply of {hide_keys(str(self._url))} broke off: {_describe(error)}", session=self._session)


def relay(sent: httpx.Response) -> Response:
    """Pass a reply on as it comes."""
    return make_reply(sent, Body(sent).pass_on())


def make_reply(
    sent: httpx.Response,
    content: bytes | AsyncIterator[bytes],
    *,
    headers: Mapping[str, str] | None = None,
    session: str = "",
) -> Response:
    """Make the reply to the client: status and headers of the provider, and some headers of Holdfast."""
    made = Response(content) if isinstance(content, bytes) else _PassedOn(content, url=sent.url, session=session)
    made.status_code = sent.status_code
    made.raw_headers = [(name.lower(), value) for name, value in _drop_hops(sent.headers.raw)]
    if isinstance(content, bytes) and "content-length" in sent.headers:
        made.headers["content-length"] = str(len(content))
    for name, value in (headers or {}).items():
        made.headers[name] = value
    return made


def refuse(request: Request, reason: str, *, status: int) -> Response:
    """Answer with an error of Holdfast in the format of the requested API."""
    error = {"type": ERROR_TYPES[status], "message": f"holdfast: {reason}"}
    format = ROUTES.get(request.url.path)
    if format == "anthropic" or (format is None and _is_anthropic(request)):
        return JSONResponse({"type": "error", "error": error}, status_code=status)
    return JSONResponse({"error": {**error, "param": None, "code": None}}, status_code=status)


def make_header(text: str) -> str:
    """Make text safe for a header."""
    safe = ""
    for char in text[:500]:
        if " " <= char <= "~":
            safe += char
        elif char.isspace():
            safe += " "
        else:
            safe += "?"
    return safe.strip()


def _is_anthropic(request: Request) -> bool:
    return request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers


def _drop_hops(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers without those of one connection: the usual ones, and those that `Connection` names."""
    dropped = set(_HOP_HEADERS)
    for name, value in headers:
        if name.lower() == b"connection":
            dropped.update(named.strip().lower() for named in value.split(b","))
    return [(name, value) for name, value in headers if name.lower() not in dropped]


# --- the log -----------------------------------------------------------------------------


def _describe(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def warn(text: str, *, session: str) -> None:
    """Write a line to the log, about a session if there is one."""
    fields: dict[str, object] = {}
    if session:
        fields["session"] = session
        text = f"session {session}: {text}"
    log.warning("%s", printable(redact(text), one_line=True), extra={"fields": fields})
