"""What the checks of all providers share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = ["NAME", "Violation", "Wire", "blocks", "is_text", "kind", "repeated", "text_of"]

Wire: TypeAlias = Mapping[str, Any]
"""A message or item as it would be sent."""

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function of OpenAI's may be called."""


class Violation(NamedTuple):
    """A rule that is broken, where, and by what."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.rule})"


def blocks(content: object) -> list[Wire]:
    """The blocks of a content list; none of anything else."""
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) or isinstance(block, Mapping)]  # noqa: SIM101 - quick


def kind(data: Wire) -> str:
    """The type that a wire object gives itself."""
    return str(data.get("type", ""))


def is_text(value: object) -> bool:
    """Tell whether a value is a text that says something."""
    return isinstance(value, str) and bool(value) and not value.isspace()


def text_of(value: object, limit: int = 40) -> str:
    """A value as a short quote."""
    return repr(value)[:limit]


def repeated(values: Sequence[str]) -> Iterator[int]:
    """The places of values that stood there before."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)
