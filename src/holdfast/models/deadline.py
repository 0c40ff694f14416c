"""How long something may take, all together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from holdfast.errors import ModelCancelledError, ModelTimeoutError

__all__ = ["Clock", "Deadline", "check_cancelled"]

Clock = Callable[[], float]
"""Tells the time in seconds, from any point on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A moment on a clock, infinitely far away where there is no limit.

    Attributes:
        seconds: How long it was at first.
        ends: When it is over.
        clock: By which clock.
    """

    seconds: float
    ends: float
    clock: Clock

    @classmethod
    def after(cls, seconds: float | None, *, clock: Clock = time.monotonic) -> Deadline:
        """The moment that many seconds from now."""
        most = math.inf if seconds is None else seconds
        return cls(seconds=most, ends=clock() + most, clock=clock)

    @property
    def left(self) -> float | None:
        """Seconds until it is over, at least 0; None where there is no limit."""
        return None if math.isinf(self.ends) else max(0.0, self.ends - self.clock())

    def check(self, model: str) -> None:
        """Raise ModelTimeoutError once it is over."""
        if self.left == 0.0:
            raise ModelTimeoutError(
                f"no answer within {self.seconds:.3g} s: allow more time, or ask again", model=model
            )


def check_cancelled(cancel: Event | None, model: str) -> None:
    """Raise ModelCancelledError once it was called off."""
    if cancel is not None and cancel.is_set():
        raise ModelCancelledError("the request was called off", model=model)
