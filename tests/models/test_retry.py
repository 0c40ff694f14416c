"""Asking again, and asking someone else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

import pytest

from holdfast.errors import (
    ModelBusyError,
    ModelCancelledError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message, Text
from holdfast.models.base import Prompt, Reply
from holdfast.models.retry import RESTART_NOTICE, Fallback, Retrying
from holdfast.models.scripted import Scripted

HELLO = Prompt(messages=[Message(role="user", parts=(Text(text="hello"),))])


@dataclass
class Time:
    """A clock that only sleeping moves."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float, _: Event | None) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds


def retrying(model: Scripted, time: Time, *, attempts: int = 4, timeout: float | None = None) -> Retrying:
    """A model that is asked again, without chance and without waiting."""
    return Retrying(
        model=model, attempts=attempts, attempt_timeout=timeout, sleep=time.sleep, chance=lambda: 1.0, clock=time
    )


def test_a_busy_model_is_asked_again() -> None:
    """Waits double from attempt to attempt, and the reply comes through."""
    time = Time()
    model = Scripted([ModelBusyError("busy"), ModelTimeoutError("slow"), ModelBusyError("busy"), "hello"])
    assert retrying(model, time).ask(HELLO).text == "hello"
    assert time.slept == [1.0, 2.0, 4.0]


def test_chance_shortens_a_wait_by_half_at_most() -> None:
    """The wait lies between the half and the whole."""
    time = Time()
    model = Scripted([ModelBusyError("busy"), "hello"])
    Retrying(model=model, sleep=time.sleep, chance=lambda: 0.0, clock=time).ask(HELLO)
    assert time.slept == [0.5]


def test_a_wait_has_a_limit_but_the_provider_has_the_last_word() -> None:
    """No wait is longer than the longest, unless the provider asks for more."""
    time = Time()
    busy = ModelBusyError("busy")
    model = Scripted([busy, busy, busy, ModelBusyError("busy", retry_after=50.0), "hello"])
    patient = Retrying(model=model, attempts=9, longest_wait=3.0, sleep=time.sleep, chance=lambda: 1.0, clock=time)
    patient.ask(HELLO)
    assert time.slept == [1.0, 2.0, 3.0, 50.0]


def test_attempts_end() -> None:
    """After the last attempt the error is the model's own."""
    time = Time()
    model = Scripted([ModelBusyError(f"busy {number}") for number in range(9)])
    with pytest.raises(ModelBusyError, match="busy 2"):
        retrying(model, time, attempts=3).ask(HELLO)
    assert len(model.prompts) == 3


@pytest.mark.parametrize("error", [ModelOverflowError("long"), ModelRefusedError("no"), ModelCancelledError("stop")])
def test_what_another_try_cannot_help_is_not_tried_again(error: ModelError) -> None:
    """Overflow, refusal and cancellation come through at once."""
    time = Time()
    with pytest.raises(type(error)):
        retrying(Scripted([error, "hello"]), time).ask(HELLO)
    assert time.slept == []


def test_no_wait_goes_past_the_deadline() -> None:
    """A wait that would end behind the deadline is not begun."""
    time = Time()
    model = Scripted([ModelBusyError("busy", retry_after=10.0), "hello"])
    with pytest.raises(ModelBusyError):
        retrying(model, time).ask(HELLO, timeout=5.0)
    assert time.slept == []


def test_an_attempt_has_its_own_time() -> None:
    """One attempt gets no more than its share, nor more than is left."""
    asked: list[float | None] = []

    class Timed(Scripted):
        def ask(
            self,
            prompt: Prompt,
            *,
            timeout: float | None = None,
            cancel: Event | None = None,
            on_text: Callable[[str], None] | None = None,
        ) -> Reply:
            asked.append(timeout)
            return super().ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)

    time = Time()
    busy = ModelBusyError("busy", retry_after=7.0)
    retrying(Timed([busy, "hello"]), time, timeout=4.0).ask(HELLO, timeout=10.0)
    retrying(Timed([busy, "hello"]), time, timeout=4.0).ask(HELLO)
    assert asked == [4.0, 3.0, 4.0, 4.0]


def test_a_wait_can_be_called_off() -> None:
    """A cancellation while waiting ends the waiting, and no one is asked again."""
    cancel = Event()
    model = Scripted([ModelBusyError("busy", retry_after=60.0), "hello"])
    patient = Retrying(model=model, on_retry=lambda *_: cancel.set())
    with pytest.raises(ModelCancelledError):
        patient.ask(HELLO, cancel=cancel)
    assert len(model.prompts) == 1


def test_a_retry_is_reported() -> None:
    """Whoever shows text hears that it begins again, why, and when."""
    received: list[tuple[str, int, float]] = []
    patient = Retrying(
        model=Scripted([ModelBusyError("busy"), "hello"]),
        first_wait=0.001,
        chance=lambda: 1.0,
        on_retry=lambda error, failed, wait: received.append((str(error), failed, wait)),
    )
    assert patient.ask(HELLO).text == "hello"
    assert received == [("busy", 1, 0.001)]


def test_a_wrapped_model_is_what_it_wraps() -> None:
    """Name, provider and window are those of the model inside, and of the first of several."""
    model = Scripted(name="inside", provider="openai_chat", context_tokens=123)
    for outer in (Retrying(model=model), Fallback([model, Scripted()])):
        assert (outer.name, outer.provider, outer.context_tokens) == ("inside", "openai_chat", 123)


@pytest.mark.parametrize("error", [ModelBusyError("busy"), ModelTimeoutError("slow"), ModelRefusedError("no key")])
def test_the_next_model_is_asked(error: ModelError) -> None:
    """Where one is busy, too slow or refuses, the next one answers."""
    second = Scripted(["I am here"])
    assert Fallback([Scripted([error]), second]).ask(HELLO).text == "I am here"
    assert second.prompts == [HELLO]


def test_an_overflow_is_not_handed_on() -> None:
    """A request that is too long is to be made shorter, not to be sent to someone else."""
    second = Scripted(["I am here"])
    with pytest.raises(ModelOverflowError):
        Fallback([Scripted([ModelOverflowError("long")]), second]).ask(HELLO)
    assert second.prompts == []


def test_all_failures_are_reported() -> None:
    """Where no one answers, the error is the last one's, with the others noted."""
    with pytest.raises(ModelRefusedError, match="no key") as caught:
        Fallback([Scripted([ModelBusyError("busy")]), Scripted([ModelRefusedError("no key")])]).ask(HELLO)
    assert caught.value.__notes__ == ["before that: busy"]


def test_no_other_model_is_asked_after_a_cancellation() -> None:
    """A request that was called off meanwhile goes to no one else."""
    cancel = Event()
    second = Scripted(["I am here"])

    def called_off(_: Prompt) -> ModelError:
        cancel.set()
        return ModelBusyError("busy")

    with pytest.raises(ModelCancelledError):
        Fallback([Scripted([called_off]), second]).ask(HELLO, cancel=cancel)
    assert second.prompts == []


@dataclass
class Halting:
    """A model that says something and then fails, until it does not."""

    failures: int
    name: str = "halting"
    provider: str = "anthropic"
    context_tokens: int = 1_000

    def ask(
        self,
        _prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Say a word, and fail or end."""
        del timeout, cancel
        if on_text is not None:
            on_text("Well, ")
        if self.failures:
            self.failures -= 1
            raise ModelBusyError("cut off")
        return Reply(message=Message(role="assistant", parts=(Text(text="Well, "),)))


def test_who_listens_hears_that_a_reply_begins_anew() -> None:
    """What was heard of a reply that broke off is told to count no more, whoever is asked next."""
    heard: list[str] = []
    time = Time()
    Retrying(model=Halting(1), sleep=time.sleep, clock=time).ask(HELLO, on_text=heard.append)
    assert heard == ["Well, ", RESTART_NOTICE, "Well, "]
    heard.clear()
    Fallback([Halting(1), Halting(0)]).ask(HELLO, on_text=heard.append)
    assert heard == ["Well, ", RESTART_NOTICE, "Well, "]
    assert Retrying(model=Halting(1), sleep=time.sleep, clock=time).ask(HELLO).text == "Well, "
