"""Memory for the Anthropic SDK: `Anthropic(middleware=[HoldfastMiddleware(engine, session="s1")])`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from holdfast.adapters._history import log, require_extra, sync_engine

with require_extra("anthropic"):
    from anthropic import APIRequest, APIResponse, AsyncAPIResponse, AsyncCallNext, CallNext, Middleware

from holdfast.adapters._http import archive_whole, archive_whole_async, make_writer, read_refusal, read_refusal_async
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, Json
from holdfast.providers.replies import load_json

FORMAT = "anthropic"
PATH = "/v1/messages"


class HoldfastMiddleware(Middleware):
    """The middleware that gives a client memory: `messages.create`, `messages.stream`, sync and async.

    Args:
        engine: The memory. If it has no model, the model of the request writes summaries.
        session: The id of the conversation.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        session: str,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
        limit: int | None = None,
    ) -> None:
        self._session = sync_engine(engine).session(session, tenant=tenant, project=project, agent=agent)
        self._exchanges = Exchanges(limit)

    def handle(self, request: APIRequest, call_next: CallNext) -> APIResponse[Any]:
        """Send a request of a synchronous client."""
        body = _body(request)
        if body is None:
            return call_next(request)

        def send(summary: dict[str, Any]) -> Json:
            return load_json(call_next(_make_summary_request(request, summary)).read())

        write = make_writer(send, body, format=FORMAT)
        exchange = self._exchanges.begin_body(self._session, body, format=FORMAT, write=write, warn=log.warning)
        while True:
            response = call_next(_changed(request, exchange))
            smaller = exchange.shrink(read_refusal(response.http_response, exchange))
            if smaller is None:
                break
            response.http_response.close()
            exchange = smaller
        archive_whole(response.http_response, exchange)
        return response

    async def handle_async(self, request: APIRequest, call_next: AsyncCallNext) -> AsyncAPIResponse[Any]:
        """Send a request of an asynchronous client."""
        body = _body(request)
        if body is None:
            return await call_next(request)
        loop = asyncio.get_running_loop()

        async def post(summary: dict[str, Any]) -> Json:
            return load_json(await (await call_next(_make_summary_request(request, summary))).read())

        def send(summary: dict[str, Any]) -> Json:
            return asyncio.run_coroutine_threadsafe(post(summary), loop).result()

        write = make_writer(send, body, format=FORMAT)
        exchange = await asyncio.to_thread(
            self._exchanges.begin_body, self._session, body, format=FORMAT, write=write, warn=log.warning
        )
        while True:
            response = await call_next(_changed(request, exchange))
            refusal = await read_refusal_async(response.http_response, exchange)
            smaller = await asyncio.to_thread(exchange.shrink, refusal)
            if smaller is None:
                break
            await response.http_response.aclose()
            exchange = smaller
        await archive_whole_async(response.http_response, exchange)
        return response


def _body(request: APIRequest) -> Json | None:
    """Return the body of a model request; None for anything else."""
    is_model_request = request.method.lower() == "post" and request.url.partition("?")[0] == PATH
    return cast("Json", request.json) if is_model_request and isinstance(request.json, Mapping) else None


def _changed(request: APIRequest, exchange: Exchange) -> APIRequest:
    """Return the request with its window; the request itself if nothing was edited."""
    headers = request.headers
    if request.stream:
        headers = {**headers, "accept-encoding": "identity"}  # a stream is read on its way
    if exchange.is_changed:
        return request.copy(body=exchange.body, headers=headers)
    if request.stream:
        return request.copy(headers=headers)
    return request


def _make_summary_request(request: APIRequest, body: dict[str, Any]) -> APIRequest:
    """Return a request for a summary: the same model, client and headers, another body, no stream."""
    summary = request.copy(body=body)
    summary.stream = False
    return summary
