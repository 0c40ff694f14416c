"""A model that answers with what it would have sent: to see what goes out, without a key and without sending it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Event
from typing import Final

from holdfast.messages import Text
from holdfast.models.base import Prompt, Reply
from holdfast.models.deadline import check_cancelled
from holdfast.models.steps import Said, prompt_tokens
from holdfast.text import clip
from holdfast.tokens import count_message

__all__ = ["Echo"]

_SHOWN: Final = 500


class Echo:
    """A model that tells how many messages, tokens and tools it was sent, and the user's last words.

    Args:
        provider: Whose rules its windows keep.
        context_tokens: How many tokens its window holds.
    """

    def __init__(self, *, provider: str = "anthropic", context_tokens: int = 200_000) -> None:
        self._provider = provider
        self._context_tokens = context_tokens

    @property
    def name(self) -> str:
        """What a user calls it by."""
        return "echo"

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
        timeout: float | None = None,  # noqa: ARG002 - it takes no time
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """What would have been sent; see `Model.ask`."""
        check_cancelled(cancel, self.name)
        said = Said(text=_told(prompt, context_tokens=self.context_tokens))
        if on_text is not None:
            on_text(said.text)
        return said.reply(prompt, model=self.name)


def _told(prompt: Prompt, *, context_tokens: int) -> str:
    counts = Counter[str]()
    tokens = Counter[str]()
    for message in prompt.messages:
        counts[message.role] += 1
        tokens[message.role] += count_message(message)
    total = prompt_tokens(prompt)
    lines = [f"I would have sent {len(prompt.messages)} messages, {total:,} of {context_tokens:,} tokens:"]
    lines += [f"- {role}: {count} messages, {tokens[role]:,} tokens" for role, count in counts.items()]
    names = ", ".join(tool.name for tool in prompt.tools)
    lines.append(f"Tools: {names or 'none'}.")
    return "\n".join([*lines, f"The user's last words: {_last_words(prompt)}"])


def _last_words(prompt: Prompt) -> str:
    spoken = (message for message in reversed(prompt.messages) if message.role == "user")
    texts = [part.text for message in list(spoken)[:1] for part in message.parts if isinstance(part, Text)]
    return clip("\n".join(texts), head=_SHOWN, tail=_SHOWN // 5) or "(none)"
