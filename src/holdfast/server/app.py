"""The server: the proxy and the calls, behind checks that keep web pages out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from anyio import Lock, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.server.bodies import RefusedBodyError, read_body
from holdfast.server.guard import Activity, Guard, has_token, refuse_token
from holdfast.server.metrics import Metrics
from holdfast.server.rpc import Rpc
from holdfast.server.upstreams import Upstreams

if TYPE_CHECKING:  # hooks and plugins need neither, see `_Pages`
    from holdfast.server.inspector.data import Outside
    from holdfast.server.proxy import Proxy

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
    is_on_demand: bool = False,
    metrics: Metrics | None = None,
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
        is_on_demand: Whether the server was started for calls. The proxy and the inspector are loaded with the first
            request for them then, otherwise at its start.
        metrics: What is shown at `/metrics`; None if nothing is.
    """
    calls = Rpc(engine) if rpc is None else rpc
    pages = _Pages(engine, token=token, owner_token=owner_token, upstreams=upstreams, shadow=shadow, outside=outside)

    if not is_on_demand:
        pages.make(is_compiled=True)

    async def call(request: Request) -> Response:
        if not has_token(request.headers.get("authorization", ""), token):
            return refuse_token()
        try:
            content = await read_body(request, limit=engine.settings.server.max_request_bytes)
        except RefusedBodyError as error:
            return JSONResponse({"id": None, "error": {"type": "InputError", "message": str(error)}}, error.status)
        answer = await to_thread.run_sync(calls.answer, content)
        return Response(answer, media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await pages.close()

    routes = [Route("/holdfast/rpc", call, methods=["POST"])]
    # If it is off, the request of a scraper must not go to a model provider.
    routes.append(Route("/metrics", _explain_metrics if metrics is None else metrics.answer, methods=["GET"]))
    routes.append(Route("/{path:path}", pages))
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path that is not exactly one of these is not found
    app.add_middleware(Guard, activity=activity or Activity())
    return app


async def _explain_metrics(_: Request) -> Response:
    """Answer a request for metrics that are turned off."""
    return PlainTextResponse("metrics are off: start the server with HOLDFAST_SERVER__METRICS=true\n", 404)


class _Pages:
    """The inspector and the proxy. They are loaded when they are first needed, which takes half a second."""

    def __init__(
        self,
        engine: Engine,
        *,
        token: str,
        owner_token: str,
        upstreams: Upstreams | None,
        shadow: bool,
        outside: Outside | None,
    ) -> None:
        self._engine = engine
        self._token = token
        self._owner_token = owner_token
        self._upstreams = upstreams
        self._shadow = shadow
        self._outside = outside
        self._proxy: Proxy | None = None
        self._app: ASGIApp | None = None
        self._lock = Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self._app is None:
                for module in ("inspector.web", "proxy"):
                    await to_thread.run_sync(import_module, f"holdfast.server.{module}")
                self.make()
        assert self._app is not None
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """Close the connections to providers."""
        if self._proxy is not None:
            await self._proxy.close()

    def make(self, *, is_compiled: bool = False) -> None:
        """Make the application; with `is_compiled`, with pages that are ready to be filled."""
        from holdfast.server.identity import Callers  # noqa: PLC0415 - see the class docstring
        from holdfast.server.inspector.web import Inspector, compile_pages  # noqa: PLC0415 - as above
        from holdfast.server.proxy import Proxy  # noqa: PLC0415 - as above

        inspector = Inspector(self._engine, token=self._token, outside=self._outside)
        if is_compiled:
            compile_pages()
            if self._upstreams is None:  # `holdfast ui`: somebody is about to open a page
                inspector.start_preparing()
        routes: list[BaseRoute] = [*inspector.routes()]
        if self._upstreams is None:
            routes.append(Route("/", _to_inspector))
        else:
            callers = Callers(self._engine, owner_token=self._owner_token)
            self._proxy = Proxy(
                AsyncEngine(self._engine), upstreams=self._upstreams, callers=callers, shadow=self._shadow
            )
            routes.append(Route("/{path:path}", self._proxy.handle, methods=METHODS))
        # Only a router: the application around it answers errors, and each layer takes part in each event of a reply.
        self._app = Router(routes=routes, redirect_slashes=False)  # as in `create_app`


async def _to_inspector(request: Request) -> Response:
    return RedirectResponse(request.url.replace(path="/ui/"), status_code=307)
