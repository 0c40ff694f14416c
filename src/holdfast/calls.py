"""Deadlines, retries, threads, certificates and addresses for calls to other programs."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Hashable
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import Future

T = TypeVar("T")

Clock = Callable[[], float]
"""Returns the time in seconds, from any starting point."""
IDLE_SECONDS: Final = 10.0
"""How long a thread of a `Watchdog` waits for the next call."""

_Queue: TypeAlias = "SimpleQueue[_Task | None]"
"""Gives a thread its calls; None ends it."""


def hide_keys(url: str) -> str:
    """Return an address for a message: without the keys that may be in it, as a login or in its query."""
    address = url.partition("#")[0].partition("?")[0]
    scheme, separator, rest = address.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


class DeadlineError(Exception):
    """A deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """The moment `ends` on a clock, after the allowed seconds; infinitely far away if there is no limit."""

    seconds: float
    ends: float
    clock: Clock

    @classmethod
    def after(cls, seconds: float | None, *, clock: Clock = time.monotonic) -> Deadline:
        """Return the deadline that many seconds from now; None means no limit."""
        allowed = math.inf if seconds is None else seconds
        return cls(seconds=allowed, ends=clock() + allowed, clock=clock)

    @property
    def remaining(self) -> float | None:
        """The seconds left, at least 0; None if there is no limit."""
        return None if math.isinf(self.ends) else max(0.0, self.ends - self.clock())

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.remaining == 0.0

    def check(self) -> None:
        """Raise DeadlineError if no time is left."""
        if self.is_over:
            raise DeadlineError(f"it took longer than {self.seconds:g} s")


NO_DEADLINE: Final = Deadline.after(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts of a call, including the first, and the waits between them.

    Each wait is twice as long as the one before it. The server may ask for more than `max_wait`. `chance` returns a
    random number from 0 to 1.
    """

    attempts: int = 4
    first_wait: float = 0.5
    max_wait: float = 8.0
    sleep: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random

    def wait(self, failed: int, retry_after: float | None = None) -> float:
        """Return the seconds before the next attempt after `failed` attempts.

        Chance takes up to half of it, so that clients do not all come back at once; `retry_after` is a minimum.
        """
        longest = min(self.max_wait, self.first_wait * 2.0 ** (failed - 1))
        return max(retry_after or 0.0, longest * (0.5 + self.chance() / 2))


def retry(
    call: Callable[[], T],
    *,
    errors: tuple[type[Exception], ...],
    policy: RetryPolicy,
    deadline: Deadline,
    before_wait: Callable[[Exception, int, float], None] | None = None,
    after_wait: Callable[[], None] | None = None,
) -> T:
    """Call until it succeeds, the attempts are used up, or the next wait would end after the deadline.

    `errors` are those that another attempt may cure; their attribute `retry_after`, if any, is a minimum wait.
    `before_wait` gets the error, the number of failed attempts and the seconds until the next one. `after_wait` is
    called before the next attempt; an error that it raises ends the attempts.
    """
    failed = 0
    while True:
        try:
            return call()
        except errors as error:
            failed += 1
            wait = policy.wait(failed, getattr(error, "retry_after", None))
            left = deadline.remaining
            if failed >= policy.attempts or (left is not None and wait >= left):
                raise
            if before_wait is not None:
                before_wait(error, failed, wait)
        policy.sleep(wait)
        if after_wait is not None:
            after_wait()


def start_thread(call: Callable[[], T], *, name: str) -> Future[T]:
    """Run a call on a daemon thread. The caller may stop waiting at any time; the call then ends unobserved."""
    from concurrent.futures import Future  # noqa: PLC0415 - imports logging, and is rarely needed

    future: Future[T] = Future()
    # The thread belongs to the same trace as its caller.
    Thread(target=copy_context().run, args=(_run, call, future), name=name, daemon=True).start()
    return future


def _run(call: Callable[[], T], future: Future[T]) -> None:
    """Make a call."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - the error is raised where the result is read
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # An error refers to this frame, and the future to the error. If the frame refers to the future, that is a
        # cycle, which keeps all that the call worked on until the garbage collector runs.
        del call, future


class _Task:
    """A call that another thread makes. `is_over` is whether it has returned.

    Its result comes through a queue: with a `Future`, whose condition wakes a thread that must then wait for its lock,
    a call of nothing takes 38 us of processor time instead of 14.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.is_over = False
        self._context = copy_context()
        self._call = call
        self._outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run(self, end_call: Callable[[], None]) -> None:
        """Make the call. `end_call` is called before its result can be read."""
        try:
            outcome: tuple[Any, BaseException | None] = (self._context.run(self._call), None)
        except BaseException as error:  # noqa: BLE001 - the error is raised where the result is read
            outcome = (None, error)
        try:
            self.is_over = True
            end_call()
            self._outcome.put(outcome)
        finally:
            del self, outcome  # as in `_run`

    def wait(self, seconds: float) -> tuple[Any, BaseException | None]:
        """Return what the call returns, or its error.

        Raises:
            Empty: It takes longer than `seconds`.
        """
        return self._outcome.get(timeout=seconds)


class Watchdog:
    """Runs calls that may hang, and stops waiting for one that takes too long.

    Each call has a thread for itself, because one that hangs cannot be ended. A thread whose call has returned takes
    the next one: starting one takes as long as a small call.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._given_up: list[tuple[Hashable, _Task]] = []
        self._idle: list[_Queue] = []  # of the threads that wait for a call

    def hanging(self) -> list[Hashable]:
        """Return what each call is about that was given up and has not returned yet."""
        with self._lock:
            self._given_up = [(about, task) for about, task in self._given_up if not task.is_over]
            return [about for about, _ in self._given_up]

    def run(self, call: Callable[[], T], *, seconds: float, name: str, about: Hashable = None) -> T:
        """Run a call, and return what it returns.

        Raises:
            DeadlineError: It takes longer than `seconds`.
        """
        task = _Task(call)
        self._start(task, name=name)
        try:
            result, error = task.wait(seconds)
        except Empty:
            with self._lock:
                self._given_up.append((about, task))
            raise DeadlineError(f"it took longer than {seconds:g} s") from None
        if error is None:
            returned: T = result
            return returned
        try:
            raise error
        finally:
            del task, error  # as in `_run`

    def close(self) -> None:
        """End the threads that wait for a call."""
        with self._lock:
            while self._idle:
                self._idle.pop().put(None)

    def _start(self, task: _Task, *, name: str) -> None:
        """Give a call to a thread that waits for one, or to a new one."""
        queue: _Queue | None = None
        with self._lock:
            if self._idle:
                queue = self._idle.pop()
        if queue is None:
            queue = SimpleQueue()
            Thread(target=self._work, args=(queue,), name=name, daemon=True).start()
        queue.put(task)

    def _work(self, queue: _Queue) -> None:
        """Make the calls of one thread until none has come for a while."""

        def end_call() -> None:
            with self._lock:
                self._idle.append(queue)

        while True:
            try:
                task = queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if queue in self._idle:
                        self._idle.remove(queue)
                        return
                continue  # a call comes
            if task is None:
                return
            task.run(end_call)
            del task  # what the call worked on is not kept until the next one


@cache
def create_ssl_context() -> ssl.SSLContext:
    """Return httpx's default SSL context, created once: loading certificates takes longer than the rest of a call."""
    import httpx2  # noqa: PLC0415 - installed with the extras that use it

    return httpx2.create_ssl_context()
