"""Memory for the OpenAI SDK, Chat and Responses: `OpenAI(http_client=HoldfastClient(engine, session="s1"))`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from holdfast.adapters._history import log, require_extra, sync_engine

with require_extra("openai"):
    import httpx2 as httpx
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from holdfast.adapters._http import archive_whole, archive_whole_async, make_writer, read_refusal, read_refusal_async
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, Json
from holdfast.providers.replies import load_json

FORMATS: Final = {"/chat/completions": "openai_chat", "/responses": "openai_responses"}
"""The format of each path whose requests are assembled, by how the path ends."""


class HoldfastClient(DefaultHttpxClient):
    """The HTTP client of an `OpenAI` client whose model requests have memory.

    Args:
        engine: The memory. If it has no model, the model of the request writes summaries.
        session: The id of the conversation.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
        options: Options of the HTTP client, such as `proxy` and `timeout`.
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
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._session = sync_engine(engine).session(session, tenant=tenant, project=project, agent=agent)
        self._exchanges = Exchanges(limit)

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request; one to a model gets its window, and its reply is archived."""
        send_as_is = super().send
        format = _format(request)
        if not format:
            return send_as_is(request, **options)

        def send(summary: dict[str, Any]) -> Json:
            return load_json(send_as_is(_rebuild(request, summary)).content)

        body = load_json(request.content)
        write = make_writer(send, body, format=format)
        exchange = self._exchanges.begin_body(self._session, body, format=format, write=write, warn=log.warning)
        while True:
            response = send_as_is(_changed(request, exchange), **options)
            smaller = exchange.shrink(read_refusal(response, exchange))
            if smaller is None:
                break
            response.close()
            exchange = smaller
        archive_whole(response, exchange)
        return response


class HoldfastAsyncClient(DefaultAsyncHttpxClient):
    """The HTTP client of an `AsyncOpenAI` client whose model requests have memory.

    Args:
        engine: The memory. If it has no model, the model of the request writes summaries.
        session: The id of the conversation.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
        options: Options of the HTTP client, such as `proxy` and `timeout`.
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
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._session = sync_engine(engine).session(session, tenant=tenant, project=project, agent=agent)
        self._exchanges = Exchanges(limit)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send a request; one to a model gets its window, and its reply is archived."""
        send_as_is = super().send
        format = _format(request)
        if not format:
            return await send_as_is(request, **options)
        loop = asyncio.get_running_loop()

        def send(summary: dict[str, Any]) -> Json:
            sending = send_as_is(_rebuild(request, summary))
            return load_json(asyncio.run_coroutine_threadsafe(sending, loop).result().content)

        body = load_json(request.content)
        write = make_writer(send, body, format=format)
        exchange = await asyncio.to_thread(
            self._exchanges.begin_body, self._session, body, format=format, write=write, warn=log.warning
        )
        while True:
            response = await send_as_is(_changed(request, exchange), **options)
            smaller = await asyncio.to_thread(exchange.shrink, await read_refusal_async(response, exchange))
            if smaller is None:
                break
            await response.aclose()
            exchange = smaller
        await archive_whole_async(response, exchange)
        return response


def _format(request: httpx.Request) -> str:
    """Return the format of a model request; empty for anything else."""
    if request.method == "POST":
        for end, format in FORMATS.items():
            if request.url.path.endswith(end):
                return format
    return ""


def _changed(request: httpx.Request, exchange: Exchange) -> httpx.Request:
    """Return the request with its window. A reply is read on its way, so that it is not compressed."""
    if exchange.is_changed:
        return _rebuild(request, exchange.body)
    request.headers["accept-encoding"] = "identity"
    return request


def _rebuild(request: httpx.Request, body: Json) -> httpx.Request:
    """Return a request with the same address, headers and timeout, and another body."""
    headers = {**request.headers, "accept-encoding": "identity"}
    headers.pop("content-length", None)
    return httpx.Request(request.method, request.url, headers=headers, json=body, extensions=request.extensions)
