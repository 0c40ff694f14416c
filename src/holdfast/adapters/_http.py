"""Share what the adapters of SDKs that use httpx2 need: refusals and replies are read on their way. Internal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, TypeAlias

import httpx2 as httpx

from holdfast import providers
from holdfast.exchange import Exchange, Json, Write, find_refusal, make_summary_body
from holdfast.providers.overflow import Numbers
from holdfast.providers.replies import ReplyCollector, is_stream, load_json, read_reply

Send: TypeAlias = Callable[[dict[str, Any]], Json]
"""Sends a body to the provider of a request, and returns the body of the reply."""

SUMMARY_TOKENS: Final = 4_096
"""The maximum length of a summary."""


def make_writer(send: Send, body: Json, *, format: str) -> Write:
    """Return a function that lets the model of a request write a summary."""

    def write_summary(messages: list[dict[str, Any]]) -> str:
        prompt = providers.read(messages, format="openai_chat")
        summary_body = make_summary_body(body, prompt, format=format, max_tokens=SUMMARY_TOKENS)
        reply = providers.read(read_reply(send(summary_body), format), format=format)
        return "\n".join(message.text for message in reply)

    return write_summary


def read_refusal(response: httpx.Response, exchange: Exchange) -> Numbers | None:
    """Return the provider's error that a window does not fit; None for any other reply.

    A streamed reply is archived from here on, while it is read.
    """
    if not response.is_success:
        response.read()
        return find_refusal(response.text, status=response.status_code)
    if not is_stream(response):
        return None
    stream = TappedStream(response.stream, exchange)
    response.stream = stream
    return stream.read_refusal()


async def read_refusal_async(response: httpx.Response, exchange: Exchange) -> Numbers | None:
    """Return the provider's error that a window does not fit; see `read_refusal`."""
    if not response.is_success:
        await response.aread()
        return find_refusal(response.text, status=response.status_code)
    if not is_stream(response):
        return None
    stream = TappedStream(response.stream, exchange)
    response.stream = stream
    return await stream.read_refusal_async()


def archive_whole(response: httpx.Response, exchange: Exchange) -> None:
    """Archive a reply that is not streamed."""
    if response.is_success and not is_stream(response):
        exchange.archive(read_reply(load_json(response.read()), exchange.request.format))


async def archive_whole_async(response: httpx.Response, exchange: Exchange) -> None:
    """Archive a reply that is not streamed."""
    if response.is_success and not is_stream(response):
        reply = read_reply(load_json(await response.aread()), exchange.request.format)
        await asyncio.to_thread(exchange.archive, reply)


class TappedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a streamed reply. The reply is archived before the last of them are passed on."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange
        self._collector = ReplyCollector(exchange.request.format, is_stream=True)
        self._chunks: Any = None
        self._opening: list[bytes] = []
        self._is_archived = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # an SDK may keep its own things on a stream

    def read_refusal(self) -> Numbers | None:
        """Read the opening of the reply, and return the error after it that refuses the window, if there is one.

        Some providers accept a request and say only in the stream that it is too long.
        """
        self._chunks = iter(self._stream)
        for chunk in self._chunks:
            if self._hold(chunk):
                break
        return find_refusal(self._collector.error)

    async def read_refusal_async(self) -> Numbers | None:
        """Read the opening of the reply; see `read_refusal`."""
        self._chunks = aiter(self._stream)
        async for chunk in self._chunks:
            if self._hold(chunk):
                break
        return find_refusal(self._collector.error)

    def _hold(self, chunk: bytes) -> bool:
        """Keep a chunk until the reply is passed on, and return whether the opening is over."""
        self._opening.append(chunk)
        self._collector.feed(chunk)
        return self._collector.has_begun or self._collector.is_too_large

    def __iter__(self) -> Iterator[bytes]:
        if self._collector.is_complete:
            self._archive()
        yield from self._opening
        for chunk in self._chunks:
            self._collector.feed(chunk)
            if self._collector.is_complete:
                self._archive()
            yield chunk
        self._archive()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._collector.is_complete:
            await asyncio.to_thread(self._archive)
        for chunk in self._opening:
            yield chunk
        async for chunk in self._chunks:
            self._collector.feed(chunk)
            if self._collector.is_complete:
                await asyncio.to_thread(self._archive)
            yield chunk
        await asyncio.to_thread(self._archive)

    def _archive(self) -> None:
        """Archive the reply, once."""
        if not self._is_archived:
            self._is_archived = True
            self._exchange.archive(self._collector.received(), is_cut=self._collector.is_cut)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
