"""One model, asked with patience and within limits: tries, time, number of calls, and a way to call it off."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from holdfast.compaction.faults import fault
from holdfast.errors import HoldfastError, ModelBusyError, ModelCancelledError, ModelError, ModelRefusedError
from holdfast.messages import Message, Role, Text
from holdfast.models.base import Model, Prompt, Reply, check_cancelled
from holdfast.models.retry import Retrying
from holdfast.text import digest

__all__ = ["Asker", "NoAnswerError", "Progress"]

_TRIES: Final = 3
_BAD_ANSWERS: Final = 2
"""How many answers that are no summary are listened to."""
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 5.0
_SHARE: Final = 2 / 3
"""How much of the time that is left one call may take, so that there is always some for another."""
_LEAST_TIME: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a compaction is.

    Attributes:
        stage: What is being made, such as `history` or `merge`.
        step: Which piece of it, from 1.
        steps: How many pieces there are.
        calls: How often a model was asked so far.
    """

    stage: str
    step: int
    steps: int
    calls: int


class NoAnswerError(HoldfastError):
    """No answer that can be used. Kept inside: whoever asks takes the next step of the ladder."""


@dataclass(slots=True, kw_only=True)
class Asker:
    """Asks a model for texts.

    Attributes:
        model: Who is asked.
        system: What it is told first.
        max_tokens: The longest answer.
        deadline: When all is over, by `clock`.
        most_calls: How often it may be asked at all.
        clock: Seconds, by a clock that only goes forward.
        sleep: Waits so many seconds; `cancel.wait` is a good one.
        cancel: When set, everything is called off.
        done: Finished answers by the digest of their question; what is there is not asked for again.
        calls: How often it was asked.
        troubles: What went wrong, in order.
        hopeless: Why there is no point in asking on; empty while there is.
    """

    model: Model
    system: str
    max_tokens: int
    deadline: float
    most_calls: int
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    cancel: Event | None
    done: MutableMapping[str, str]
    calls: int = 0
    troubles: list[str] = field(default_factory=list)
    hopeless: str = ""

    def ask(self, question: str) -> str:
        """The answer to a question: a text that may be a summary.

        Raises:
            NoAnswerError: There is none.
            ModelCancelledError: It was called off.
        """
        key = digest(f"{self.system}\0{question}")
        check_cancelled(self.cancel, self.model.name)
        if key not in self.done:
            self.done[key] = self._insist(question)
        return self.done[key]

    def _insist(self, question: str) -> str:
        for _ in range(_BAD_ANSWERS):
            reply = self._answer(question)
            wrong = fault(reply)
            if wrong is None:
                return reply.text.strip()
            self.troubles.append(wrong)
        raise NoAnswerError(self.troubles[-1])

    def _answer(self, question: str) -> Reply:
        left = self._time_left()
        messages = _said("system", self.system), _said("user", question)
        try:
            self.calls += 1
            prompt = Prompt(messages=messages, max_tokens=self.max_tokens)
            return self._patient(left).ask(prompt, timeout=left, cancel=self.cancel)
        except ModelCancelledError:
            raise
        except ModelError as error:
            self.troubles.append(str(error))
            if isinstance(error, ModelRefusedError | ModelBusyError):
                self.hopeless = str(error)
            raise NoAnswerError(str(error)) from error

    def _patient(self, left: float) -> Retrying:
        return Retrying(
            model=self.model.model if isinstance(self.model, Retrying) else self.model,  # one patience is enough
            attempts=_TRIES,
            first_wait=_FIRST_WAIT,
            longest_wait=_LONGEST_WAIT,
            attempt_timeout=_SHARE * left,
            on_retry=self._again,
            sleep=self._sleep,
            chance=lambda: 1.0,
            clock=self.clock,
        )

    def _sleep(self, seconds: float, _cancel: Event | None) -> None:
        self.sleep(seconds)

    def _again(self, error: ModelError, _failed: int, _wait: float) -> None:
        self.calls += 1
        self.troubles.append(str(error))

    def _time_left(self) -> float:
        left = self.deadline - self.clock()
        if not self.hopeless and left < _LEAST_TIME:
            self.hopeless = "the time for this compaction is over"
        if not self.hopeless and self.calls + _TRIES > self.most_calls:
            self.hopeless = f"{self.calls} calls were not enough"
        if self.hopeless:
            raise NoAnswerError(self.hopeless)
        return left


def _said(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))
