"""What a script consists of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from holdfast.errors import ModelError
from holdfast.messages import Message, Part, Text, Thinking, ToolCall, Usage
from holdfast.models.base import Prompt, Reply, Tool
from holdfast.tokens import count_json, count_message, count_messages

__all__ = ["Answer", "Hang", "Said", "Step", "prompt_tokens"]

_WORDS: Final = re.compile(r"\s*\S+\s*|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One reply.

    Attributes:
        text: Its words.
        calls: The tools that it calls.
        thinking: What is thought before.
        signature: The seal of the thinking.
        pieces: How the text arrives; unset, word by word.
        usage: What is reported; unset, an estimate.
        stop: Why it ends; unset, `tools` where there are calls, else `end`.
        delay: Seconds before each piece.
        repeat: Say it again and again, once it is the turn of this reply.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    signature: str | None = None
    pieces: tuple[str, ...] = ()
    usage: Usage | None = None
    stop: str = ""
    delay: float = 0.0
    repeat: bool = False

    @property
    def words(self) -> str:
        """All of the text."""
        return "".join(self.pieces) or self.text

    @property
    def arriving(self) -> Sequence[str]:
        """The text in the pieces that it arrives in."""
        return self.pieces or _WORDS.findall(self.text)

    def reply(self, prompt: Prompt, *, model: str) -> Reply:
        """This reply to a prompt."""
        thoughts = (Thinking(text=self.thinking, signature=self.signature),) if self.thinking else ()
        texts = (Text(text=self.words),) if self.words else ()
        parts: tuple[Part, ...] = (*thoughts, *texts, *self.calls)
        stop = self.stop or ("tools" if self.calls else "end")
        message = Message(role="assistant", parts=parts, model=model, stop=stop)
        usage = self.usage or Usage(input=prompt_tokens(prompt), output=count_message(message))
        return Reply(message=replace(message, usage=usage), usage=usage, stop=stop)


@dataclass(frozen=True, slots=True)
class Hang:
    """No reply, until the time is over or it is called off."""


Answer: TypeAlias = str | Said | Message | ModelError | Hang
Step: TypeAlias = Answer | Callable[[Prompt], Answer]
"""What a script consists of: words, a reply, a message, an error to raise, silence, or what makes one from a prompt."""


def prompt_tokens(prompt: Prompt) -> int:
    """What a prompt takes of a window: its messages, its tools and its schema."""
    tools = sum(_tool_tokens(tool) for tool in prompt.tools)
    schema = 0 if prompt.schema is None else count_json(prompt.schema)
    return count_messages(prompt.messages) + tools + schema


def _tool_tokens(tool: Tool) -> int:
    return count_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})
