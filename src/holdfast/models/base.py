"""Who is asked: one method, whatever the provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol, runtime_checkable

from holdfast.messages import Message, Usage

__all__ = ["Model", "Prompt", "Reply", "Tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that a model may call.

    Attributes:
        name: What it is called by.
        description: What it does, for the model.
        parameters: The JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request.

    Attributes:
        messages: The whole conversation; system prompts come first, with the role `system`.
        tools: What may be called.
        max_tokens: The longest answer.
        schema: A JSON schema that the answer must follow, where the provider can promise that; elsewhere the
            answer is whatever the model makes of the words, and the caller parses with tolerance.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    max_tokens: int = 4_096
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer.

    Attributes:
        message: What was said: an assistant message with its text, thinking and tool calls.
        usage: What the provider counted, if it said so.
        stop: Why it ended: `end`, `length`, `tools`, `refusal`, or the provider's own word.
    """

    message: Message
    usage: Usage | None = None
    stop: str = "end"

    @property
    def text(self) -> str:
        """The words of it."""
        return self.message.text


@runtime_checkable
class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """What a user calls it by, such as `anthropic/claude-sonnet-5-5`."""
        ...

    @property
    def provider(self) -> str:
        """Whose rules its windows keep: `anthropic`, `openai_chat` or `openai_responses`."""
        ...

    @property
    def context_tokens(self) -> int:
        """How many tokens its window holds."""
        ...

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask, and wait for the whole answer.

        Args:
            prompt: The request.
            timeout: Seconds until it is given up.
            cancel: When set, by any thread, it is given up soon after.
            on_text: Called with each piece of text as it arrives.

        Raises:
            ModelOverflowError: The request does not fit the model's window.
            ModelBusyError: The provider cannot answer now; another try may help.
            ModelTimeoutError: The time is over.
            ModelCancelledError: It was called off.
            ModelRefusedError: The provider will not answer this, however often it is asked.
        """
        ...
