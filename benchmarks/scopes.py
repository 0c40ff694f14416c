"""Whether memory ever shows one reader what belongs to another: canaries in every scope, read in every way."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.reading import crossings, plant

__all__ = ["Scopes", "measure"]


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
        canaries = plant(store)
        crossed = crossings(store, canaries, reads=reads, seed=seed)
    return Scopes(scopes=len(canaries), reads=reads, crossings=crossed)
