"""Connections of clients, with limits for requests that are not finished.

uvicorn waits for the rest of a request for ever, and keeps any number of headers. Here a head and a body must come in
time, a head has a maximum size, and of too many unfinished requests the one that has stalled longest is closed. A
request that has come is not limited: its reply may take as long as it takes.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 128 * 2**10
"""Bytes of a request that are not its body: target, headers, and trailers. Real ones have a few thousand."""
MIN_BYTES_PER_SECOND: Final = 1_000
"""How fast a body must come, on average. Clients are on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a client's connections and requests.

    Attributes:
        connections: Connections at once. A request on one more is answered with 503.
        max_half_open: Requests at once that are not finished.
        head_seconds: How long the head of a request may take.
        stall_seconds: How long its body may stall.
    """

    connections: int = 1_000
    max_half_open: int = 128
    head_seconds: float = 30.0
    stall_seconds: float = 60.0


def make_config(app: Any, *, limits: Limits | None = None, **options: Any) -> uvicorn.Config:
    """Make the configuration of a server whose connections are limited."""
    known = limits or Limits()

    class LimitedConnection(Connection):
        limits = known

    return uvicorn.Config(
        app,
        http=LimitedConnection,
        limit_concurrency=known.connections,
        log_level="warning",
        server_header=False,
        date_header=False,
        **options,
    )


class Connection(HttpToolsProtocol):
    """A connection of a client. `last_data` is when its last bytes came.

    While a request is not finished it has a deadline. The one for the head is fixed. The one for the body moves with
    the bytes that come, so that neither a client that stops nor one that sends a byte now and then keeps its place.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: float | None = None
        self._is_moving = False
        self._timer: TimerHandle | None = None
        self.last_data = 0.0
        self._head_bytes = 0

    # --- what comes ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Wait for a request."""
        super().connection_made(transport)
        self.last_data = self.loop.time()
        self._expect_head()
        self._close_most_stalled()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self.last_data = self.loop.time()
        if self._deadline is None:
            self._expect_head()
        elif self._is_moving:
            later = self._deadline + len(data) / MIN_BYTES_PER_SECOND
            self._deadline = min(later, self.last_data + self.limits.stall_seconds)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.leave(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin a request, which may have come together with the end of the last one."""
        super().on_message_begin()
        if self._deadline is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._head_bytes = 0
        self._is_moving = True
        self._set_deadline(self.limits.stall_seconds)
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header. Whatever follows the body is not a header: the request is already being answered."""
        if not self._is_moving:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Read a part of the body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the reply; of a request that was answered before it came, for the next one."""
        super().on_message_complete()
        self._head_bytes = 0
        self._deadline = None
        if not self._has_no_request and self.cycle.response_complete:
            self._expect_head()

    def on_response_complete(self) -> None:
        """Give a client that was answered before all of its request had come some time to send the rest of it."""
        super().on_response_complete()
        if self._deadline is not None:
            self._is_moving = False
            self._set_deadline(self.limits.head_seconds)

    # --- time ------------------------------------------------------------------------

    def _expect_head(self) -> None:
        self._is_moving = False
        self._set_deadline(self.limits.head_seconds)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline is None or self.transport.is_closing():
            return
        if not self.is_half_open:
            self._deadline = self.loop.time() + self.limits.stall_seconds
        left = self._deadline - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check_deadline)
        else:
            self.leave(HTTPStatus.REQUEST_TIMEOUT)

    @property
    def is_half_open(self) -> bool:
        """Whether the server waits for the client, and not the other way round."""
        if self._deadline is None or self.flow.read_paused:
            return False
        # A client that waits for a reply may have sent a line end too many, or the beginning of its next request.
        return self._has_no_request or self.cycle.more_body or self.cycle.response_complete

    @property
    def _has_no_request(self) -> bool:
        return self.cycle is None  # as long as no head has come, whatever its type is

    def _close_most_stalled(self) -> None:
        """Make room for this connection if too many others are not finished."""
        known = [one for one in self.connections if isinstance(one, Connection)]
        waiting = [one for one in known if one.is_half_open and not one.transport.is_closing()]
        if len(waiting) > self.limits.max_half_open:
            stalled = min(waiting, key=lambda one: one.last_data)
            stalled.leave(HTTPStatus.REQUEST_TIMEOUT)

    def leave(self, status: HTTPStatus) -> None:
        """End the connection, with a reply if there was none."""
        if self.transport.is_closing():
            return
        if not self._has_no_request and self.cycle.response_started:
            self.transport.abort()  # the client may never read what was sent to it
            return
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode())
        self.transport.close()
