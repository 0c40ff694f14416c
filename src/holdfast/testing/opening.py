"""How a check gets at a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from holdfast.store.base import Store

__all__ = ["Check", "Opener", "opened"]

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
