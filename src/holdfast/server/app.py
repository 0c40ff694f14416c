"""The server: the proxy and the calls, behind checks that keep web pages out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.server.bodies import RefusedBodyError, read_body
from holdfast.server.forwarding import Upstreams
from holdfast.server.guard import Activity, Guard, has_token, refuse_token
from holdfast.server.identity import Callers
from holdfast.server.inspector.data import Outside
from holdfast.server.inspector.web import Inspector
from holdfast.server.proxy import Proxy
from holdfast.server.rpc import Rpc

METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def create_app(
    engine: Engine,
    *,
    token: str,
    owner_token: str = "",
    upstreams: Upstreams | None = None,
    shadow: bool = False,
    activity: Activity | None = None,
    outside: Outside | None = None,
    rpc: Rpc | None = None,
) -> Starlette:
    """Make the server as an ASGI application.

    Args:
        engine: The memory. The caller closes it.
        token: The token that calls must send as `Authorization: Bearer TOKEN`. Model requests need none: they have the
            provider's key.
        owner_token: The token that the owner's clients send as `x-holdfast-token` with a model request. Others are
            identified by the provider's key; empty if there is no owner's token.
        upstreams: Where model requests go; None for a server that forwards nothing.
        shadow: Whether model requests are sent as they came.
        activity: Counts requests, for a server that stops when idle.
        outside: What the inspector shows from outside the store.
        rpc: Answers the calls; by default with the engine alone.
    """
    calls = Rpc(engine) if rpc is None else rpc
    proxy = None
    if upstreams is not None:
        callers = Callers(engine, owner_token=owner_token)
        proxy = Proxy(AsyncEngine(engine), upstreams=upstreams, callers=callers, shadow=shadow)

    async def call(request: Request) -> Response:
        if not has_token(request.headers.get("authorization", ""), token):
            return refuse_token()
        try:
            content = await read_body(request, limit=engine.settings.server.max_request_bytes)
        except RefusedBodyError as error:
            return JSONResponse({"id": None, "error": {"type": "InputError", "message": str(error)}}, error.status)
        answer = await to_thread.run_sync(calls.answer, content)
        return Response(answer, media_type="application/json")

    async def to_inspector(request: Request) -> Response:
        return RedirectResponse(request.url.replace(path="/ui/"), status_code=307)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if proxy is not None:
            await proxy.close()

    routes: list[BaseRoute] = [
        Route("/holdfast/rpc", call, methods=["POST"]),
        *Inspector(engine, token=token, outside=outside).routes(),
    ]
    if proxy is None:
        routes.append(Route("/", to_inspector))
    else:
        routes.append(Route("/{path:path}", proxy.handle, methods=METHODS))
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path that is not exactly one of these is not found
    app.add_middleware(Guard, activity=activity or Activity())
    return app
