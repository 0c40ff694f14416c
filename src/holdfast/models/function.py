"""A plain function as a model: the shortest way to let any client write summaries and read facts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Event, Thread
from typing import Any, Final

from holdfast.errors import ModelBusyError, ModelError, ModelRefusedError
from holdfast.messages import Message, Text
from holdfast.models.base import Prompt, Reply
from holdfast.models.deadline import Deadline, check_cancelled
from holdfast.providers import render

__all__ = ["FunctionModel"]

_LOOK_EVERY: Final = 0.05
"""Seconds between two looks at whether the call was called off."""


class FunctionModel:
    """A model that is a function of messages.

    Args:
        function: Called with the messages as dicts in the form of Chat Completions (`role`, `content`), the system
            prompt first. Returns the text of the reply. What it raises counts as a busy provider.
        context_tokens: How many tokens its window holds.
    """

    def __init__(self, function: Callable[[list[dict[str, Any]]], object], *, context_tokens: int) -> None:
        self._function = function
        self._context_tokens = context_tokens

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    @property
    def provider(self) -> str:
        """The provider whose rules its windows keep."""
        return "openai_chat"

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
        """Call the function on a thread of its own; see `Model.ask`. A call that is given up goes on unheard."""
        check_cancelled(cancel, self.name)
        deadline, call = Deadline.after(timeout), self._start(prompt)
        while not call.done():
            left = deadline.left
            wait([call], timeout=_LOOK_EVERY if left is None else min(_LOOK_EVERY, left))
            check_cancelled(cancel, self.name)
            if not call.done():
                deadline.check(self.name)
        text = call.result()
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ModelRefusedError(f"the function returned {kind}: return the reply as a str", model=self.name)
        if on_text is not None:
            on_text(text)
        return Reply(message=Message(role="assistant", parts=(Text(text=text),), model=self.name))

    def _start(self, prompt: Prompt) -> Future[object]:
        messages = [dict(message) for message in render(prompt.messages, "openai_chat")]
        call: Future[object] = Future()

        def run() -> None:
            try:
                call.set_result(self._function(messages))
            except ModelError as error:
                call.set_exception(error)
            except Exception as error:  # noqa: BLE001 - the guard around the caller's function: it is reported
                call.set_exception(ModelBusyError(f"{type(error).__name__}: {error}", model=self.name))

        Thread(target=run, name="holdfast-function", daemon=True).start()
        return call
