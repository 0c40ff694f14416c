"""What the rule checks of all providers share.

The checks read what would be sent and nothing else. They use no function of the code that reads, shapes or renders
messages, so that they find its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Wire: TypeAlias = Mapping[str, Any]
"""A message or item as it would be sent."""

OPENAI_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The function names that OpenAI accepts."""
MAX_ID_CHARS: Final = 64
"""The longest id of a call that OpenAI and Anthropic accept."""


class Violation(NamedTuple):
    """A broken rule: its name, the path to what breaks it, and a description."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.rule})"


def blocks(content: object) -> list[Wire]:
    """Return the objects in a content list; none where it is no list."""
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) or isinstance(block, Mapping)]  # noqa: SIM101 - quick


def kind(data: Wire) -> str:
    """Return the `type` of a wire object."""
    return str(data.get("type", ""))


def has_text(value: object) -> bool:
    """Whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value) and not value.isspace()


def quote(value: object) -> str:
    """Return the beginning of a value, for a description."""
    return repr(value)[:40]
