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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A searchable part of a message: its text, its place in the message, its windows (offsets) and their terms.

    The store sets the number, message, speaker and time. Terms are empty when read back.
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
        """The name of the speaker; empty where only the role is known."""
        return "" if self.speaker in get_args(Role) else self.speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What to search for: terms with their weights, and a vector in `space`.

    A passage without a term is found by the `related` ones of the term, each with what it counts beside it, 0 to 1; a
    store with very many passages may leave them out.
    Passages and those of messages that are named in `without_…` are not ranked, nor those from before `since` (in Unix
    milliseconds; passages without a time are), nor all but the `newest`. Each candidate comes with so many `neighbours`
    before and after it in its session, which do not count towards the limit.
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
