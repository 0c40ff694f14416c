"""Streamed replies of SDKs that use httpx2, read on their way. Internal: the adapters share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2 as httpx

from holdfast.adapters._history import guard
from holdfast.adapters._requests import Exchange
from holdfast.providers.replies import ReplyCollector


class TappedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a streamed reply. The reply is archived before the last of them are passed on."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream = stream
        self._exchange = exchange
        self._collector = ReplyCollector(exchange.format, is_stream=True)
        self._is_archived = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # an SDK may keep its own things on a stream

    def _is_due(self, chunk: bytes = b"") -> bool:
        """Read bytes; whether the reply is complete and not archived yet. Without bytes the stream is over."""
        self._collector.feed(chunk)
        is_due = not self._is_archived and (self._collector.is_complete or not chunk)
        self._is_archived |= is_due
        return is_due

    def _archive(self) -> None:
        with guard("a reply was not archived"):
            self._exchange.archive_messages(self._collector.messages())

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if self._is_due(chunk):
                self._archive()
            yield chunk
        if self._is_due():
            self._archive()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            if self._is_due(chunk):
                await asyncio.to_thread(self._archive)
            yield chunk
        if self._is_due():
            await asyncio.to_thread(self._archive)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
