"""The server: the proxy and the calls, behind checks that keep web pages out."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.server.inspector.data import Outside
from holdfast.server.inspector.web import Inspector
from holdfast.server.proxy import Proxy, Upstreams
from holdfast.server.rpc import Rpc

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which the server answers. Others are web pages that resolve a name of theirs to this machine."""
_PORT: Final = re.compile(r":\d+\Z")
METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Activity:
    """Counts open requests and knows when the last one ended, so that an idle server can stop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open = 0
        self._last = clock()

    def begin(self) -> None:
        """Count a request."""
        self._open += 1

    def end(self) -> None:
        """Count its end."""
        self._open -= 1
        self._last = self._clock()

    @property
    def idle_seconds(self) -> float:
        """How long there has been no request."""
        return 0.0 if self._open else self._clock() - self._last


class _Guard:
    """Refuses requests of web pages: those with an Origin, or for another host name than this machine's.

    The pages of the inspector may ask for what is under `/ui/`.
    """

    def __init__(self, app: Any, *, activity: Activity) -> None:
        self._app = app
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._activity.begin()
        try:
            headers: Mapping[bytes, bytes] = dict(scope["headers"])
            host = _PORT.sub("", headers.get(b"host", b"").decode("latin-1").lower())
            app = self._app
            origin = headers.get(b"origin")
            is_own = origin is None or (scope["path"].startswith("/ui/") and origin == b"http://" + headers[b"host"])
            if not is_own or host not in LOOPBACK:
                app = JSONResponse({"error": "only programs of this machine may ask"}, status_code=403)
            await app(scope, receive, send)
        finally:
            self._activity.end()


def create_app(
    engine: Engine,
    *,
    token: str,
    upstreams: Upstreams | None = None,
    shadow: bool = False,
    activity: Activity | None = None,
    outside: Outside | None = None,
) -> Starlette:
    """Make the server as an ASGI application.

    Args:
        engine: The memory. The caller closes it.
        token: What calls must bring as `Authorization: Bearer TOKEN`. Model requests need none: they bring the
            provider's key.
        upstreams: Where model requests go.
        shadow: Whether model requests are sent as they came.
        activity: Counts requests, for a server that stops when idle.
        outside: What the inspector shows from outside the store.
    """
    proxy = Proxy(AsyncEngine(engine), upstreams=upstreams or Upstreams(), shadow=shadow)
    rpc = Rpc(engine)

    async def call(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return JSONResponse({"error": "the token of the server is missing or wrong"}, status_code=401)
        answer = await to_thread.run_sync(rpc.answer, await request.body())
        return Response(answer, media_type="application/json")

    async def to_inspector(request: Request) -> Response:
        return RedirectResponse(request.url.replace(path="/ui/"), status_code=307)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await proxy.close()

    app = Starlette(
        routes=[
            Route("/holdfast/rpc", call, methods=["POST"]),
            Route("/ui", to_inspector),
            Inspector(engine, token=token, outside=outside).routes(),
            Route("/{path:path}", proxy.handle, methods=METHODS),
        ],
        lifespan=lifespan,
    )
    app.add_middleware(_Guard, activity=activity or Activity())
    return app
