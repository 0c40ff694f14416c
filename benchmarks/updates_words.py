"""How a corpus of updates is written down."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Domain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A kind of value. In the sentences, {s} is the thing ({S} at the beginning), {a} its old value, {b} its new one.

    Attributes:
        things: What has such a value, with the old and the new one.
        before: Ways to state the old value.
        after: Ways to put the new one in its place.
        question: How somebody asks for it.
    """

    things: tuple[tuple[str, str, str], ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    question: str
