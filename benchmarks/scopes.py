"""Whether memory ever shows one reader what belongs to another: canaries in every scope, read in every way."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.store.base import Scope, Select, Store
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import add_canaries, is_visible, make_query, readers

__all__ = ["Scopes", "crossings", "measure"]

ACROSS: Final = 0.5
"""How often the reader reads across its sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """The figures of one run.

    Attributes:
        scopes: Scopes that hold a canary, of two tenants, projects, agents and sessions each.
        reads: Reads, each another way in a scope drawn by chance: by number, key, word or vector, of every kind of row.
        crossings: Reads that showed a row of another scope.
    """

    scopes: int
    reads: int
    crossings: int


def measure(*, reads: int, seed: int = 1) -> Scopes:
    """Plant canaries in a store of its own, and read."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "scopes.db") as store:
        canaries = add_canaries(store)
        crossed = crossings(store, canaries, reads=reads, seed=seed)
    return Scopes(scopes=len(canaries), reads=reads, crossings=crossed)


def crossings(store: Store, canaries: Mapping[Scope, str], *, reads: int, seed: int = 1) -> int:
    """How many of so many reads, each another way in a scope drawn by chance, showed a row of another scope."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrecy
    crossed = 0
    for _ in range(reads):
        reader, across = chance.choice(list(canaries)), chance.random() < ACROSS
        seen = repr(_one_read(store, reader, chance, across=across))
        others = (word for scope, word in canaries.items() if not is_visible(scope, reader, across=across))
        crossed += any(word in seen for word in others)
    return crossed


def _one_read(store: Store, reader: Scope, chance: random.Random, *, across: bool) -> Sequence[object]:
    read, select = chance.choice(readers(store)), Select(scope=reader, across=across)
    match chance.randrange(5):
        case 0:
            return read(replace(select, ids=tuple(chance.sample(range(400), 50))))
        case 1:
            return read(replace(select, after=chance.randrange(200), limit=chance.randrange(1, 50)))
        case 2:
            return [*store.read_facts(select, keys=("shared-id",)), *store.read_records(select, keys=("shared",))]
        case 3:
            found = store.search(make_query("shared word", scope=reader, across=across, seed=1))
            return store.read_passages(replace(select, ids=tuple(found.passages.tolist())))
        case _:
            return read(replace(select, newest=chance.random() < ACROSS, limit=chance.randrange(1, 50)))
