"""The index of a memory-context folder: built in memory from what can be found of each message."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.messages import Message
from holdfast.search.columns import Bools, PassageRow
from holdfast.search.memory_index import MemoryIndex
from holdfast.search.postings import Postings
from holdfast.search.vectors import Bytes, Matrix
from holdfast.store.base import Scope
from holdfast.store.cutting import cut
from holdfast.store.files_state import Entry

__all__ = ["FilesIndex", "Limits"]

DAY: Final = 86_400_000
"""Milliseconds of a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a folder is indexed. Its files keep everything.

    Attributes:
        max_segments: At most so many messages; the oldest give way.
        eviction_days: Only messages of the last so many days; 0 for all.
    """

    max_segments: int = 20_000
    eviction_days: int = 90


class FilesIndex:
    """What is indexed: passages by number, and the passages of each message."""

    def __init__(self, limits: Limits) -> None:
        self.inner = MemoryIndex()
        self.scopes: list[Scope] = []
        self.places: list[tuple[int, int]] = []
        """The message of each passage, and which of its passages it is."""
        self.by_message: dict[int, range] = {}
        self.newest = 0
        self._limits = limits
        self._evicted: list[bool] = []
        self._numbers: dict[Scope, int] = {}
        self._last: dict[Scope, int] = {}

    def add(self, entries: Sequence[Entry], read: Callable[[Entry], tuple[Message, str]], *, now: int) -> None:
        """Index messages, in the order of their numbers, and let go of those that are too many or too old."""
        self.newest = max([self.newest, *(entry.number for entry in entries)])
        oldest = now - self._limits.eviction_days * DAY if self._limits.eviction_days else None
        young = [entry for entry in entries if entry.findable and (oldest is None or entry.stamp >= oldest)]
        for entry in young[-self._limits.max_segments :]:
            self._add(entry, *read(entry))
        kept = [number for number, held in self.by_message.items() if not self._evicted[held.start]]
        for number in kept[: max(0, len(kept) - self._limits.max_segments)]:
            for passage in self.by_message[number]:
                self._evicted[passage] = True

    def forget(self, messages: Container[int]) -> None:
        """Let go of all messages but these."""
        for number, held in self.by_message.items():
            if number not in messages:
                for passage in held:
                    self._evicted[passage] = True

    def _add(self, entry: Entry, message: Message, text: str) -> None:
        first = len(self.places)
        for place, passage in enumerate(cut(text, message)):
            row = PassageRow(
                message=entry.number,
                scope=self._scope(entry.scope),
                time=max(-(2**63), min(passage.time, 2**63 - 1)),
                previous=self._last.get(entry.scope, -1),
                human=message.role == "user",
                size=len(passage.text),
                window_lengths=tuple(map(len, passage.terms)),
            )
            self._last[entry.scope] = self.inner.insert(row, (term for window in passage.terms for term in window))
            self.places.append((entry.number, place))
            self._evicted.append(False)
        if len(self.places) > first:
            self.by_message[entry.number] = range(first, len(self.places))

    def _scope(self, scope: Scope) -> int:
        if scope not in self._numbers:
            self._numbers[scope] = len(self.scopes)
            self.scopes.append(scope)
        return self._numbers[scope]

    def visible(self, may_see: Callable[[Scope], bool]) -> Bools:
        """Which passages a reader may see."""
        mine = np.array([may_see(scope) for scope in self.scopes], np.bool_)
        seen: Bools = mine[self.inner.columns["scope"]] & ~np.array(self._evicted, np.bool_)
        return seen

    def kept(self) -> list[int]:
        """The passages that have not left the index."""
        return [number for number, evicted in enumerate(self._evicted) if not evicted]

    def is_evicted(self, passage: int) -> bool:
        """Tell whether a passage has left the index."""
        return self._evicted[passage]

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """The posting lists of terms, with their weights."""
        return self.inner.postings(terms)

    def windows(self, number: int) -> range:
        """The windows of all passages of a message."""
        held = self.by_message[number]
        first = self.inner.columns.window_range(held.start)
        return range(first.start, self.inner.columns.window_range(held.stop - 1).stop)

    def matrix(self, rows: Mapping[int, Bytes], *, dimension: int) -> Matrix:
        """The vectors of messages, in the places of their windows; those that do not fit are left out."""
        matrix = Matrix(dimension)
        for number, vectors in rows.items():
            if number in self.by_message and len(self.windows(number)) == len(vectors):
                matrix.put(self.windows(number).start, vectors)
        return matrix
