"""One streaming call to a provider, on a thread of its own, with a deadline for all of it and a way to call it off.

The vendors' clients know time-outs between two bytes, but none for the whole, and cannot be stopped from outside
while they wait. So the call runs as an asyncio task: cancelling a task closes its connection at once, wherever it
hangs. The caller's thread only waits, reads and decides; nothing of asyncio is seen there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeVar

from holdfast.models.deadline import Deadline, check_cancelled

__all__ = ["stream"]

T = TypeVar("T")

_LOOK_EVERY: Final = 0.05
"""Seconds between two looks at whether the call was called off."""
_GOODBYE: Final = 0.1
"""Seconds that a connection has to be closed in before it is left to itself."""


class _End:
    """What stands last in the queue."""


def stream(
    source: Callable[[], AsyncIterator[T]], *, model: str, deadline: Deadline, cancel: Event | None = None
) -> Iterator[T]:
    """What a provider sends, piece by piece. However this ends, the connection is closed.

    Args:
        source: Opens the connection, and closes it when it is cancelled.
        model: Whom errors name.
        deadline: When it is given up.
        cancel: When set, it is given up soon after.

    Raises:
        ModelTimeoutError: The deadline is over.
        ModelCancelledError: It was called off.
    """
    check_cancelled(cancel, model)
    deadline.check(model)
    pieces: SimpleQueue[T | _End] = SimpleQueue()
    loop = asyncio.new_event_loop()
    task = loop.create_task(_pump(source, pieces))
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-model")
    done = worker.submit(_run, loop, task)
    done.add_done_callback(lambda _: pieces.put(_End()))
    worker.shutdown(wait=False)
    try:
        while not isinstance(piece := _next(pieces, model, deadline, cancel), _End):
            yield piece
        done.result()
    finally:
        with suppress(RuntimeError):  # the loop has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        wait([done], timeout=_GOODBYE)


async def _pump(source: Callable[[], AsyncIterator[T]], pieces: SimpleQueue[T | _End]) -> None:
    async for piece in source():
        pieces.put(piece)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(task)
    finally:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _next(pieces: SimpleQueue[T | _End], model: str, deadline: Deadline, cancel: Event | None) -> T | _End:
    while True:
        check_cancelled(cancel, model)
        left = deadline.left
        pause = left if cancel is None else min(_LOOK_EVERY, _LOOK_EVERY if left is None else left)
        with suppress(Empty):
            return pieces.get(timeout=pause)
        deadline.check(model)
