"""Asking again, and asking somebody else: models made of models."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Final

from holdfast.errors import ModelBusyError, ModelCancelledError, ModelError, ModelRefusedError, ModelTimeoutError
from holdfast.models.base import Model, Prompt, Reply
from holdfast.models.deadline import Clock, Deadline, check_cancelled

__all__ = ["ANEW", "Fallback", "Retrying", "Sleep"]

ANEW: Final = "\n\n[The reply broke off and begins anew.]\n\n"
"""What `on_text` is told where a reply that it was told a part of begins again."""

Sleep = Callable[[float, Event | None], None]
"""Waits so many seconds, or until the event is set."""

_ATTEMPTS: Final = 4
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 30.0


def _sleep(seconds: float, cancel: Event | None) -> None:
    if cancel is None:
        time.sleep(seconds)
    else:
        cancel.wait(seconds)


@dataclass(slots=True)
class _Heard:
    """Whoever listens to a reply, and whether anything of it was heard."""

    told: Callable[[str], None] | None
    anything: bool = False

    @property
    def listener(self) -> Callable[[str], None] | None:
        return None if self.told is None else self._hear

    def _hear(self, piece: str) -> None:
        self.anything = True
        if self.told is not None:
            self.told(piece)

    def again(self) -> None:
        """Say that what was heard counts no more."""
        if self.anything and self.told is not None:
            self.told(ANEW)
        self.anything = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A model that is asked again while it is busy or too slow.

    The waits double, less some chance, and are no shorter than the provider asks for. One that would end behind the
    deadline is not begun: the error comes at once. A reply that broke off begins anew; `on_text` is told so (`ANEW`).

    Attributes:
        model: Who is asked.
        attempts: How often, at most.
        first_wait: Seconds before the second attempt.
        longest_wait: Seconds before any attempt, unless the provider asks for more.
        attempt_timeout: Seconds for one attempt; unset, all that are left.
        on_retry: Told the error, the number of the attempt that failed, and the seconds until the next.
        sleep: How to wait.
        chance: A number from 0 to 1 at random.
        clock: Which clock the deadline goes by.
    """

    model: Model
    attempts: int = _ATTEMPTS
    first_wait: float = _FIRST_WAIT
    longest_wait: float = _LONGEST_WAIT
    attempt_timeout: float | None = None
    on_retry: Callable[[ModelError, int, float], None] | None = None
    sleep: Sleep = _sleep
    chance: Callable[[], float] = random.random
    clock: Clock = time.monotonic

    @property
    def name(self) -> str:
        """What a user calls it by."""
        return self.model.name

    @property
    def provider(self) -> str:
        """Whose rules its windows keep."""
        return self.model.provider

    @property
    def context_tokens(self) -> int:
        """How many tokens its window holds."""
        return self.model.context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask, again where that may help, and wait for the whole answer; see `Model.ask`."""
        deadline = Deadline.after(timeout, clock=self.clock)
        failed = 0
        heard = _Heard(on_text)
        while True:
            try:
                return self.model.ask(prompt, timeout=self._seconds(deadline), cancel=cancel, on_text=heard.listener)
            except (ModelBusyError, ModelTimeoutError) as error:
                failed += 1
                wait = self._wait(failed, error)
                if failed >= self.attempts or wait >= _or_more(deadline.left, wait + 1.0):
                    raise
                if self.on_retry is not None:
                    self.on_retry(error, failed, wait)
            self.sleep(wait, cancel)
            check_cancelled(cancel, self.name)
            heard.again()

    def _seconds(self, deadline: Deadline) -> float | None:
        """For the next attempt."""
        if self.attempt_timeout is None:
            return deadline.left
        return min(self.attempt_timeout, _or_more(deadline.left, self.attempt_timeout))

    def _wait(self, failed: int, error: ModelError) -> float:
        longest = min(self.longest_wait, self.first_wait * 2.0 ** (failed - 1))
        asked = error.retry_after if isinstance(error, ModelBusyError) else None
        return max(asked or 0.0, longest * (0.5 + self.chance() / 2))


def _or_more(left: float | None, otherwise: float) -> float:
    return otherwise if left is None else left


@dataclass(frozen=True, slots=True)
class Fallback:
    """Models that are asked in order, until one answers.

    The next is asked where one is busy, too slow or refuses. A request that does not fit is not handed on: it is to
    be made shorter. The window is that of the first.

    Attributes:
        models: Who is asked, the first choice first.
    """

    models: Sequence[Model]

    @property
    def name(self) -> str:
        """What a user calls the first by."""
        return self.models[0].name

    @property
    def provider(self) -> str:
        """Whose rules the first one's windows keep."""
        return self.models[0].provider

    @property
    def context_tokens(self) -> int:
        """How many tokens the window of the first holds."""
        return self.models[0].context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask one after the other, and wait for the whole answer; see `Model.ask`.

        Where all have failed, the error is that of the last, with those of the others noted.
        """
        deadline = Deadline.after(timeout)
        failed: list[ModelError] = []
        heard = _Heard(on_text)
        for model in self.models:
            heard.again()
            try:
                return model.ask(prompt, timeout=deadline.left, cancel=cancel, on_text=heard.listener)
            except (ModelBusyError, ModelTimeoutError, ModelRefusedError) as error:
                failed.append(error)
            if cancel is not None and cancel.is_set():
                raise ModelCancelledError("the request was called off", model=model.name) from failed[-1]
        for earlier in failed[:-1]:
            failed[-1].add_note(f"before that: {earlier}")
        raise failed[-1]
