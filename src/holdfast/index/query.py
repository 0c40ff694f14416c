"""A search as values: the passages that are indexed, and the query."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from holdfast.errors import InputError
from holdfast.index.scopes import Across, Scope
from holdfast.messages import Role

if TYPE_CHECKING:  # rows are read and written without numpy
    from holdfast.embed.base import Space
    from holdfast.search.arrays import Floats

MAX_CANDIDATES: Final = 2048
"""How many passages a search proposes for ranking by default, not counting their neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A searchable part of a message.

    Attributes:
        start: Its offset in the message.
        text: Its text.
        windows: The start and stop of each window in the text.
        terms: The terms of each window; empty when read back.
        number, message, speaker, time: Its number, the number of its message, its speaker and its time; set by the
            store.
    """

    start: int
    text: str
    windows: tuple[tuple[int, int], ...]
    terms: tuple[tuple[str, ...], ...] = ()
    number: int = -1
    message: int = 0
    speaker: str = ""
    time: int = 0

    @property
    def name(self) -> str:
        """The name of the speaker; empty if only the role is known."""
        if self.speaker in get_args(Role):
            return ""
        return self.speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """The terms and vector to search for, and the passages to search.

    Attributes:
        scope: The scope of the reader.
        terms: The terms with their weights.
        related: For each term the terms that count instead of it, each with its share of the weight, 0 to 1. A store
            with very many passages may ignore them.
        across: Which parts of the scope need not match.
        vector: The vector of the question in `space`.
        space: The space of the vector.
        without_messages: Messages whose passages are not ranked.
        without_passages: Passages that are not ranked.
        since: Passages from before this time, in Unix milliseconds, are not ranked. Those without a time are.
        newest: How many of the newest passages are ranked; None for all.
        neighbours: How many passages before and after each candidate in its session are returned with it. They do not
            count towards the limit.
        limit: The maximum number of candidates.
    """

    scope: Scope
    terms: Mapping[str, float]
    related: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    across: Across = False
    vector: Floats | None = field(default=None, repr=False)
    space: Space | None = None
    without_messages: Collection[int] = ()
    without_passages: Collection[int] = ()
    since: int | None = None
    newest: int | None = None
    neighbours: int = 0
    limit: int = MAX_CANDIDATES

    def __post_init__(self) -> None:
        if self.vector is not None and self.space and self.vector.shape != (self.space.dimension,):
            raise InputError(f"a query in {self.space.name} is one vector of {self.space.dimension}")
