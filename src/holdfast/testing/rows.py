"""Open a store under test, and make rows for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import numpy as np

from holdfast.messages import Message, Role, Text
from holdfast.search.candidates import Candidates
from holdfast.search.embed.base import Space
from holdfast.search.vectors import quantise
from holdfast.store.base import FactRow, MessageRow, Scope, SearchQuery, Select, Store, VectorRow
from holdfast.store.cutting import cut
from holdfast.text import terms

__all__ = [
    "HERE",
    "MODEL",
    "Check",
    "Opener",
    "asks",
    "fact",
    "find_messages",
    "opened",
    "says",
    "texts",
    "vectors",
    "word",
]

HERE: Final = Scope(project="atlas", session="s1")
MODEL: Final = Space(name="model", dimension=8, digest="d1")
LIMIT: Final = 10_000
"""More candidates than any check has passages."""


Opener: TypeAlias = Callable[[Path], Store]
"""Opens the store that lies in a folder."""


class Check(Protocol):
    """One contract of a store."""

    __name__: str

    def __call__(self, open_store: Opener, folder: Path, /) -> None:
        """Raise AssertionError where the contract is broken."""


@contextmanager
def opened(open_store: Opener, folder: Path) -> Iterator[Store]:
    """A store that is closed again."""
    store = open_store(folder)
    try:
        yield store
    finally:
        store.close()


def word(kind: str, number: int) -> str:
    """A word that stands for a number and shares no part with that of another."""
    return f"{kind}x" + "".join("bcdfghjkmz"[int(digit)] for digit in str(number))


def says(
    text: str, *, scope: Scope = HERE, role: Role = "user", nonce: str = "", time: int | None = None
) -> MessageRow:
    """A message of one text, ready to be found by its words."""
    message = Message(role=role, parts=(Text(text=text),), timestamp=time)
    return MessageRow(scope=scope, message=message, nonce=nonce, passages=tuple(cut(text)))


def fact(name: str, content: str, *, scope: Scope = HERE) -> FactRow:
    """A version of a fact."""
    return FactRow(scope=scope, id=name, type="decision", content=content)


def vectors(passage: int, seeds: Iterable[int], *, space: Space = MODEL) -> VectorRow:
    """The vectors of a passage, one for each seed; the same seed gives the same vector."""
    rows = [np.random.default_rng(seed).normal(size=space.dimension) for seed in seeds]
    return VectorRow(space=space, passage=passage, vectors=quantise(np.array(rows, np.float32)))


def asks(
    text: str = "", *, scope: Scope = HERE, across: bool = False, seed: int | None = None, space: Space = MODEL
) -> SearchQuery:
    """A question by words, and by the vector of a seed."""
    vector = None if seed is None else np.random.default_rng(seed).normal(size=space.dimension).astype(np.float32)
    weights = dict.fromkeys(terms(text), 1.0)
    return SearchQuery(scope=scope, terms=weights, across=across, vector=vector, space=space, limit=LIMIT)


def find_messages(found: Candidates) -> list[int]:
    """The numbers of the messages that hold one of the terms, in the order they were archived."""
    return list(dict.fromkeys(found.messages[found.keyword > 0].tolist()))


def texts(store: Store, *, scope: Scope = HERE, across: bool = False) -> list[str]:
    """What every message of a scope says, oldest first."""
    return [row.message.text for row in store.read_messages(Select(scope=scope, across=across))]
