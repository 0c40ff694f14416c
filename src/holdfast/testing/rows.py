"""Open a store under test, and make rows for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from holdfast.memory.archive import cut
from holdfast.messages import Message, Role, Text
from holdfast.search.embed.base import Space
from holdfast.search.vectors import quantise
from holdfast.store.base import (
    FactRow,
    Job,
    MessageRow,
    Record,
    Scope,
    SearchQuery,
    SearchResult,
    Select,
    Store,
    VectorRow,
)
from holdfast.text import terms

HERE: Final = Scope(project="atlas", session="s1")
MODEL: Final = Space(name="model", dimension=8, digest="d1")

Opener: TypeAlias = Callable[[Path], Store]
"""Opens the store that lies in a folder."""
Check: TypeAlias = Callable[[Opener, Path], None]
"""One contract of a store; AssertionError where it is broken."""


@contextmanager
def opened(open_store: Opener, folder: Path) -> Iterator[Store]:
    """A store that is closed again."""
    store = open_store(folder)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def refused(error: type[Exception], otherwise: str) -> Iterator[None]:
    """Fail where the block does not raise the error."""
    try:
        yield
    except error:
        return
    raise AssertionError(otherwise)


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
    return SearchQuery(scope=scope, terms=dict.fromkeys(terms(text), 1.0), across=across, vector=vector, space=space)


def find_messages(evidence: SearchResult) -> list[int]:
    """The numbers of the messages that hold one of the terms, in the order they were archived."""
    hits = np.flatnonzero(evidence.keywords.passages > 0)
    return list(dict.fromkeys(evidence.columns["message"][hits].tolist()))


def texts(store: Store, *, scope: Scope = HERE, across: bool = False) -> list[str]:
    """What every message of a scope says, oldest first."""
    return [row.message.text for row in store.fetch(Select(kind="message", scope=scope, across=across))]


def plant(store: Store, names: str = "ab") -> dict[Scope, str]:
    """Put rows of every kind into every scope that can be made of some names; a word stands in those of one alone."""
    canaries: dict[Scope, str] = {}
    for tenant, project, agent, session in product(names, repeat=4):
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        canary = "canary" + "".join(f"x{ord(letter)}" for letter in f"{tenant}|{project}|{agent}|{session}")
        store.add(
            [
                says(f"the shared word and {canary}", scope=scope),
                fact("shared-id", canary, scope=scope),
                Record(scope=scope, kind="shared", key="shared", data={"text": canary}),
                Job(scope=scope, kind="shared", data={"text": canary}),
            ]
        )
        canaries[scope] = canary
    (shape,) = {len(row.windows) for row in store.fetch(Select(kind="passage", scope=scope))}
    store.add([vectors(number, [1] * shape) for number in range(len(canaries))])
    return canaries


def is_visible(row: Scope, reader: Scope, *, across: bool) -> bool:
    """Whether a reader may see a row."""
    return row == reader or (across and replace(row, session=reader.session) == reader)


def on_disk(folder: Path, text: str) -> list[str]:
    """The files under a folder in which a text stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]
