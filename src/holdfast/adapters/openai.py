"""Memory for the OpenAI SDK, Chat Completions and Responses: `client = wrap(OpenAI(), engine, session="s1")`."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

from holdfast.adapters._history import log, require_extra, sync_engine

with require_extra("openai"):
    import httpx2 as httpx
    from openai import AsyncOpenAI, OpenAI

from holdfast.adapters._http import TappedStream, make_writer
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, Json, find_refusal
from holdfast.providers.replies import is_stream, load_json, read_reply
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
        self._exchanges = Exchanges(limit)

    def build_request(self, *args: Any, **kwargs: Any) -> httpx.Request:
        return self._inner.build_request(*args, **kwargs)

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        format = _format(request)
        if not format:
            return self._inner.send(request, **options)

        def send(summary: dict[str, Any]) -> Json:
            return load_json(self._inner.send(_rebuild(request, summary)).content)

        body = load_json(request.content)
        write = make_writer(send, body, format=format)
        exchange = self._exchanges.begin_body(self._session, body, format=format, write=write, warn=log.warning)
        response = self._inner.send(_changed(request, exchange), **options)
        while not response.is_success:
            smaller = exchange.shrink(find_refusal(_decode(response.read()), status=response.status_code))
            if smaller is None:
                return response
            exchange = smaller
            response = self._inner.send(_changed(request, exchange), **options)
        if is_stream(response):
            response.stream = TappedStream(response.stream, exchange)
        else:
            exchange.archive(read_reply(load_json(response.read()), format))
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
        self._exchanges = Exchanges(limit)

    def build_request(self, *args: Any, **kwargs: Any) -> httpx.Request:
        return self._inner.build_request(*args, **kwargs)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        format = _format(request)
        if not format:
            return await self._inner.send(request, **options)
        loop = asyncio.get_running_loop()

        def send(summary: dict[str, Any]) -> Json:
            sending = self._inner.send(_rebuild(request, summary))
            return load_json(asyncio.run_coroutine_threadsafe(sending, loop).result().content)

        body = load_json(request.content)
        write = make_writer(send, body, format=format)
        exchange = await asyncio.to_thread(
            self._exchanges.begin_body, self._session, body, format=format, write=write, warn=log.warning
        )
        response = await self._inner.send(_changed(request, exchange), **options)
        while not response.is_success:
            refusal = find_refusal(_decode(await response.aread()), status=response.status_code)
            smaller = await asyncio.to_thread(exchange.shrink, refusal)
            if smaller is None:
                return response
            exchange = smaller
            response = await self._inner.send(_changed(request, exchange), **options)
        if is_stream(response):
            response.stream = TappedStream(response.stream, exchange)
        else:
            await asyncio.to_thread(exchange.archive, read_reply(load_json(await response.aread()), format))
        return response

    async def aclose(self) -> None:
        await super().aclose()
        await self._inner.aclose()


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


def _decode(content: bytes) -> str:
    return content.decode(errors="replace")
