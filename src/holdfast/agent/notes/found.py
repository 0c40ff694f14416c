"""What a search over notes gives back, whoever has searched."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.agent.notes.embedding import Fallback
from holdfast.agent.notes.sources import Kind

__all__ = ["Found", "Hit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A stretch of a note that has to do with the question."""

    path: str
    start: int
    end: int
    score: float
    snippet: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found.

    Attributes:
        hits: The best, best first.
        provider: Who embedded the question, or `qmd`; `none` where words alone decided.
        model: With which model.
        fallback: That another provider was wanted, and why it was not taken.
        mode: `hybrid`, `vectors` or `words`.
        warnings: What went wrong and was passed over.
    """

    hits: tuple[Hit, ...] = ()
    provider: str = "none"
    model: str = ""
    fallback: Fallback | None = None
    mode: str = "words"
    warnings: tuple[str, ...] = ()
