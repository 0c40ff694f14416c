"""A model that says what it was told to say: for tests, ours and yours, and for trying things without a key.

    model = Scripted(["Hello!", Said(calls=(ToolCall(id="c1", name="ls", arguments={}),)), ModelBusyError("busy")])

It keeps every prompt that it saw, counts tokens as `holdfast.tokens` does, and refuses what does not fit its window.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Final

from holdfast.errors import ModelError, ModelOverflowError, ModelRefusedError
from holdfast.messages import Message
from holdfast.models.base import Prompt, Reply
from holdfast.models.deadline import Deadline, check_cancelled
from holdfast.models.script import read_script
from holdfast.models.steps import Answer, Hang, Said, Step, prompt_tokens

__all__ = ["Hang", "Said", "Scripted", "Step"]

_LOOK_EVERY: Final = 0.02
_SCRIPT_OVER: Final = "the script is over after {count} replies: add another, or let the last one repeat"


class Scripted:
    """A model that follows a script; any number of threads may ask it.

    Args:
        steps: What it says, one step for each prompt; or a function that is asked each time.
        name: What it is called.
        provider: Whose rules its windows keep.
        context_tokens: How many tokens its window holds; what is longer raises ModelOverflowError.
    """

    def __init__(
        self,
        steps: Sequence[Step] | Callable[[Prompt], Answer] = (),
        *,
        name: str = "scripted",
        provider: str = "anthropic",
        context_tokens: int = 200_000,
    ) -> None:
        self._steps: Iterator[Step] = _endless(steps) if callable(steps) else _in_order(steps)
        self._name = name
        self._provider = provider
        self._context_tokens = context_tokens
        self._lock = Lock()
        self.prompts: list[Prompt] = []

    @classmethod
    def from_file(cls, path: Path | str, *, provider: str = "anthropic", context_tokens: int = 200_000) -> Scripted:
        """A model that follows a script on disk, a JSON object on each line.

        Raises:
            InputError: The file cannot be read, or is no script; the message says where.
        """
        return cls(read_script(Path(path)), name=f"scripted:{path}", provider=provider, context_tokens=context_tokens)

    @property
    def name(self) -> str:
        """What a user calls it by."""
        return self._name

    @property
    def provider(self) -> str:
        """Whose rules its windows keep."""
        return self._provider

    @property
    def context_tokens(self) -> int:
        """How many tokens its window holds."""
        return self._context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """The next reply of the script; see `Model.ask`. A prompt that does not fit does not use up a step."""
        deadline = Deadline.after(timeout)
        check_cancelled(cancel, self.name)
        deadline.check(self.name)
        answer = self._answer(prompt)
        if isinstance(answer, ModelError):
            raise copy.copy(answer)
        said = _as_said(answer)
        if said is None:
            _pause(None, deadline, cancel, self.name)
            raise AssertionError("a pause without end has ended")  # pragma: no cover - it only ends by an error
        for piece in said.arriving:
            _pause(said.delay, deadline, cancel, self.name)
            if on_text is not None:
                on_text(piece)
        if isinstance(answer, Message):
            return _spoken(answer, said.reply(prompt, model=self.name))
        return said.reply(prompt, model=self.name)

    def _answer(self, prompt: Prompt) -> Answer:
        tokens = prompt_tokens(prompt)
        with self._lock:
            self.prompts.append(prompt)
            if tokens > self.context_tokens:
                raise ModelOverflowError(
                    f"the prompt has {tokens:,} tokens, the window {self.context_tokens:,}",
                    model=self.name,
                    limit=self.context_tokens,
                    requested=tokens,
                )
            step = next(self._steps, None)
        if step is None:
            raise ModelRefusedError(_SCRIPT_OVER.format(count=len(self.prompts) - 1), model=self.name)
        return step(prompt) if callable(step) else step


def _in_order(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        while isinstance(step, Said) and step.repeat:
            yield step


def _endless(step: Callable[[Prompt], Answer]) -> Iterator[Step]:
    while True:
        yield step


def _as_said(answer: Answer) -> Said | None:
    """An answer as a reply; None where there is none."""
    match answer:
        case str():
            return Said(text=answer)
        case Message():
            return Said(text=answer.text, calls=answer.calls, usage=answer.usage, stop=answer.stop or "")
        case Said():
            return answer
        case _:
            return None


def _spoken(message: Message, reply: Reply) -> Reply:
    """The message itself, with what the reply reports."""
    return replace(reply, message=replace(message, usage=reply.usage))


def _pause(seconds: float | None, deadline: Deadline, cancel: Event | None, model: str) -> None:
    """Wait so many seconds, or without end, but for the deadline and a cancellation."""
    until = Deadline.after(seconds)
    never = Event()
    while True:
        check_cancelled(cancel, model)
        deadline.check(model)
        left = until.left
        if left == 0.0:
            return
        (cancel or never).wait(min(_LOOK_EVERY, _LOOK_EVERY if left is None else left))
