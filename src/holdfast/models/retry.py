"""Models made of other models: `Retrying` asks again, `Fallback` asks another model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

from holdfast.calls import Clock, Deadline, RetryPolicy, retry
from holdfast.errors import ModelBusyError, ModelError, ModelRefusedError, ModelTimeoutError
from holdfast.models.base import Model, OnText, Prompt, Reply, check_cancelled

RESTART_NOTICE: Final = "\n\n[The reply broke off and begins anew.]\n\n"
"""Passed to `on_text` before a reply starts again that had already delivered text."""

Sleep = Callable[[float, Event | None], object]
"""Waits for a number of seconds, or until the event is set."""


@dataclass(slots=True)
class _Listener:
    """Passes text on to `on_text`, and remembers whether there was any."""

    on_text: Callable[[str], None]
    has_text: bool = False

    def __call__(self, piece: str) -> None:
        self.has_text = True
        self.on_text(piece)

    def restart(self) -> None:
        if self.has_text:
            self.on_text(RESTART_NOTICE)
        self.has_text = False


@dataclass(slots=True, kw_only=True)
class Retrying:
    """A model that is asked again while it is busy or too slow.

    The waits begin with `first_wait` and double, less some chance, and are no shorter than the provider asks for. If
    the next wait would end after the deadline, the error is raised at once. A reply that broke off starts again;
    `on_text` then receives `RESTART_NOTICE`. `attempts` includes the first; one takes at most `attempt_timeout`
    seconds. `on_retry` is called with the error, the number of failed attempts, and the seconds until the next one.
    """

    model: Model
    attempts: int = 4
    first_wait: float = 1.0
    longest_wait: float = 30.0
    attempt_timeout: float | None = None
    on_retry: Callable[[Any, int, float], None] | None = None
    sleep: Sleep = lambda seconds, cancel: cancel.wait(seconds) if cancel else time.sleep(seconds)
    chance: Callable[[], float] = random.random
    clock: Clock = time.monotonic
    name: str = field(init=False)
    provider: str = field(init=False)
    context_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        model = self.model
        self.name, self.provider, self.context_tokens = model.name, model.provider, model.context_tokens

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Send a prompt, again if that may help, and wait for the whole reply; see `Model.ask`."""
        deadline = Deadline.after(timeout, clock=self.clock)
        listener = None if on_text is None else _Listener(on_text)

        def attempt() -> Reply:
            limits = [limit for limit in (self.attempt_timeout, deadline.remaining) if limit is not None]
            return self.model.ask(prompt, timeout=min(limits, default=None), cancel=cancel, on_text=listener)

        def restart() -> None:
            check_cancelled(cancel, self.name)
            if listener is not None:
                listener.restart()

        return retry(
            attempt,
            errors=(ModelBusyError, ModelTimeoutError),
            policy=RetryPolicy(
                attempts=self.attempts,
                first_wait=self.first_wait,
                max_wait=self.longest_wait,
                sleep=lambda seconds: self.sleep(seconds, cancel),
                chance=self.chance,
            ),
            deadline=deadline,
            before_wait=self.on_retry,
            after_wait=restart,
        )


def split_requests(model: Model, wrap: Callable[[Model], Model]) -> Model:
    """Return a model that is not asked again by itself, and each of whose requests goes through `wrap`."""
    if isinstance(model, Retrying):
        return split_requests(model.model, wrap)
    if isinstance(model, Fallback):
        return Fallback([split_requests(one, wrap) for one in model.models])
    return wrap(model)


@dataclass(slots=True)
class Fallback:
    """Models that are asked in order, until one answers.

    The next one is asked if a model is busy, too slow or refuses. A request that does not fit is not passed on: it
    has to be made shorter. The window is that of the first model.
    """

    models: Sequence[Model]
    name: str = field(init=False)
    provider: str = field(init=False)
    context_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        first = self.models[0]
        self.name, self.provider, self.context_tokens = first.name, first.provider, first.context_tokens

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Ask one model after the other, and wait for the whole reply; see `Model.ask`.

        If all fail, the error is that of the last one, with the others as notes.
        """
        deadline = Deadline.after(timeout)
        failures: list[ModelError] = []
        listener = None if on_text is None else _Listener(on_text)
        for model in self.models:
            if listener is not None:
                listener.restart()
            try:
                return model.ask(prompt, timeout=deadline.remaining, cancel=cancel, on_text=listener)
            except (ModelBusyError, ModelTimeoutError, ModelRefusedError) as error:
                failures.append(error)
            check_cancelled(cancel, model.name)
        for earlier in failures[:-1]:
            failures[-1].add_note(f"before that: {earlier}")
        raise failures[-1]
