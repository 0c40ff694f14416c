"""The protocol of a language model, and the values that go in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol, TypeAlias, runtime_checkable

from holdfast.calls import Deadline
from holdfast.errors import ModelCancelledError, ModelTimeoutError
from holdfast.messages import Message, Usage

OnText: TypeAlias = Callable[[str], None] | None
"""A callback that gets each piece of text of a reply as it arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that a model may call: what it does, written for the model, and the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return its definition as a request contains it."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.parameters)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request to a model: the whole conversation, system prompts first, and the tools that the model may call.

    Not every provider enforces the `schema` of the reply: parse the reply with tolerance.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    max_tokens: int = 4_096
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of a model: an assistant message, and the tokens that the provider counted, if it reports them.

    `stop` is why it ended: `end`, `length`, `tools`, `refusal`, or the provider's own word.
    """

    message: Message
    usage: Usage | None = None
    stop: str = "end"

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text


@runtime_checkable
class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The name that users type, such as `anthropic/claude-sonnet-5-5`."""

    @property
    def provider(self) -> str:
        """The wire format whose rules its windows must follow: `anthropic`, `openai_chat` or `openai_responses`."""

    @property
    def context_tokens(self) -> int:
        """The size of the context window in tokens."""

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Send a prompt and wait for the whole reply.

        Args:
            prompt: The request.
            timeout: Seconds for the whole call.
            cancel: Setting this event, from any thread, ends the call soon after.
            on_text: Called with each piece of text as it arrives.

        Raises:
            ModelOverflowError: The request does not fit the model's window.
            ModelBusyError: The provider cannot answer now; another attempt may succeed.
            ModelTimeoutError: The call took longer than `timeout`.
            ModelCancelledError: The call was cancelled.
            ModelRefusedError: The provider rejected the request; another attempt will not help.
        """


def check_cancelled(cancel: Event | None, model: str) -> None:
    """Raise ModelCancelledError if the call was cancelled."""
    if cancel is not None and cancel.is_set():
        raise ModelCancelledError("the request was cancelled", model=model)


def check_deadline(deadline: Deadline, model: str) -> None:
    """Raise ModelTimeoutError if the deadline has passed."""
    if deadline.is_over:
        raise ModelTimeoutError(
            f"no answer within {deadline.seconds:.3g} s: allow more time, or ask again", model=model
        )
