"""Memory for the OpenAI SDK, Chat Completions and Responses: `client = wrap(OpenAI(), engine, session="s1")`."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from holdfast.adapters._history import require_extra, sync_engine

with require_extra("openai"):
    import httpx2 as httpx
    from openai import AsyncOpenAI, OpenAI

from holdfast.adapters._requests import Exchange, Json, RequestMemory, load
from holdfast.adapters._streams import TappedStream
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.session import Session

C = TypeVar("C", OpenAI, AsyncOpenAI)

FORMATS: Final = {"/chat/completions": "openai_chat", "/responses": "openai_responses"}
"""The format of each path whose requests are assembled, by how the path ends."""


def wrap(
    client: C,
    engine: Engine | AsyncEngine,
    *,
    session: str,
    user: str = "local",
    project: str = "",
    agent: str = "main",
    limit: int | None = None,
) -> C:
    """Return a client of the same kind and options whose model requests have memory; the given one has none.

    Args:
        client: The client, synchronous or asynchronous.
        engine: The memory. Where it has no model, the model of the request writes summaries.
        session: The id of the conversation.
        user: Whose memory it is, where several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """
    owner = sync_engine(engine).session(session, tenant=user, project=project, agent=agent)
    inner = client._client  # noqa: SLF001 - the SDK takes an HTTP client, but has no name for the one it uses
    if isinstance(client, AsyncOpenAI):
        return client.with_options(http_client=_AsyncClient(inner, owner, limit))
    return client.with_options(http_client=_Client(inner, owner, limit))


class _Client(httpx.Client):
    """An HTTP client that assembles the model requests of another one."""

    def __init__(self, inner: httpx.Client, session: Session, limit: int | None) -> None:
        super().__init__(transport=httpx.MockTransport(lambda _: httpx.Response(501)), timeout=inner.timeout)
        self._inner = inner
        self._session = session
        self._memory = RequestMemory(limit)

    def build_request(self, *args: Any, **kwargs: Any) -> httpx.Request:
        return self._inner.build_request(*args, **kwargs)

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        format = _format(request)
        if not format:
            return self._inner.send(request, **options)

        def send(summary: dict[str, Any]) -> Json:
            return load(self._inner.send(_rebuild(request, summary)).content)

        exchange = self._memory.begin(self._session, load(request.content), format=format, send=send)
        response = self._inner.send(_changed(request, exchange), **options)
        if not response.is_success and exchange.shrink(response.status_code, _decode(response.read())):
            response = self._inner.send(_changed(request, exchange), **options)
        if response.is_success:
            if _is_stream(response):
                response.stream = TappedStream(response.stream, exchange)
            else:
                exchange.archive(load(response.read()))
        return response

    def close(self) -> None:
        super().close()
        self._inner.close()


class _AsyncClient(httpx.AsyncClient):
    """An asynchronous HTTP client that assembles the model requests of another one."""

    def __init__(self, inner: httpx.AsyncClient, session: Session, limit: int | None) -> None:
        super().__init__(transport=httpx.MockTransport(lambda _: httpx.Response(501)), timeout=inner.timeout)
        self._inner = inner
        self._session = session
        self._memory = RequestMemory(limit)

    def build_request(self, *args: Any, **kwargs: Any) -> httpx.Request:
        return self._inner.build_request(*args, **kwargs)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        format = _format(request)
        if not format:
            return await self._inner.send(request, **options)
        loop = asyncio.get_running_loop()

        def send(summary: dict[str, Any]) -> Json:
            sending = self._inner.send(_rebuild(request, summary))
            return load(asyncio.run_coroutine_threadsafe(sending, loop).result().content)

        body = load(request.content)
        exchange = await asyncio.to_thread(self._memory.begin, self._session, body, format=format, send=send)
        response = await self._inner.send(_changed(request, exchange), **options)
        if not response.is_success:
            error = _decode(await response.aread())
            if await asyncio.to_thread(exchange.shrink, response.status_code, error):
                response = await self._inner.send(_changed(request, exchange), **options)
        if response.is_success:
            if _is_stream(response):
                response.stream = TappedStream(response.stream, exchange)
            else:
                await asyncio.to_thread(exchange.archive, load(await response.aread()))
        return response

    async def aclose(self) -> None:
        await super().aclose()
        await self._inner.aclose()


def _format(request: httpx.Request) -> str:
    """Return the format of a model request; empty for anything else."""
    if request.method != "POST":
        return ""
    return next((format for end, format in FORMATS.items() if request.url.path.endswith(end)), "")


def _changed(request: httpx.Request, exchange: Exchange) -> httpx.Request:
    """Return the request with its window. A reply is read on its way, so that it is not compressed."""
    if exchange.body is exchange.given:
        request.headers["accept-encoding"] = "identity"
        return request
    return _rebuild(request, exchange.body)


def _rebuild(request: httpx.Request, body: Json) -> httpx.Request:
    """Return a request with the same address, headers and timeout, and another body."""
    headers = {**request.headers, "accept-encoding": "identity"}
    headers.pop("content-length", None)
    return httpx.Request(request.method, request.url, headers=headers, json=body, extensions=request.extensions)


def _is_stream(response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")
