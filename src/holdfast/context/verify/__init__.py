"""What each provider refuses, checked on what would be sent, independently of how it came about.

The rules are those that the providers' documents and their refusals state. A window is checked before it
leaves; nothing here knows the canonical form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.context.verify import anthropic, gemini, openai_chat, openai_responses, pi
from holdfast.context.verify.rules import Violation, Wire
from holdfast.errors import FormatError

__all__ = ["PROVIDERS", "Violation", "check"]

_CHECKS: Final[dict[str, Callable[[Sequence[Wire]], list[Violation]]]] = {
    "anthropic": anthropic.check,
    "openai_chat": openai_chat.check,
    "openai_responses": openai_responses.check,
    "gemini": gemini.check,
    "pi": pi.check,
}
_NOTHING: Final[Mapping[str, str]] = {}

PROVIDERS: Final = tuple(_CHECKS)
"""The providers whose rules are known."""


def check(wire: Sequence[Wire], provider: str, *, reasoned: Mapping[str, str] = _NOTHING) -> list[Violation]:
    """The rules of a provider that a message list breaks, in order; none means that it can be sent.

    `reasoned` says which reasoning item each item of the whole conversation came after, by their ids: that cannot be
    told from what is left of it.
    """
    if provider not in _CHECKS:
        raise FormatError(f"provider {provider!r} is not one of {', '.join(_CHECKS)}", format=provider)
    if not wire:
        return [Violation("empty-window", "messages", "there is no message")]
    missing = openai_responses.check_reasoning(wire, reasoned) if reasoned else []
    return [*_CHECKS[provider](wire), *missing]
