"""A bounded cache, for everything that a long-running process keeps to save time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


def _count_one(_: object) -> int:
    return 1


class LruCache(Generic[K, V]):
    """A mapping that drops the least recently used entries once their total size is above `max_size`.

    Each value counts as 1 unless `weigh` returns its size. The newest entry stays, however large it is. Threads that
    share a cache need a lock. A cache of size 0 keeps nothing.
    """

    def __init__(self, max_size: int, *, weigh: Callable[[V], int] = _count_one) -> None:
        self.max_size = max_size
        self._weigh = weigh
        self._size = 0
        self._entries: dict[K, V] = {}  # a dict keeps the order of insertion: the least recently used is first

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __getitem__(self, key: K) -> V:
        """Return a value, which is now the most recently used; a KeyError if there is none."""
        value = self._entries.pop(key)
        self._entries[key] = value
        return value

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return a value, which is now the most recently used, or the default."""
        if key not in self._entries:
            return default
        return self[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key)
        if self.max_size <= 0:
            return
        self._entries[key] = value
        self._size += self._weigh(value)
        while self._size > self.max_size and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            self.pop(oldest)

    def pop(self, key: K) -> V | None:
        """Remove an entry and return its value; None if there is none."""
        if key not in self._entries:
            return None
        value = self._entries.pop(key)
        self._size -= self._weigh(value)
        return value

    def values(self) -> list[V]:
        """Return all values, the least recently used first."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values, the least recently used first. None of them counts as used by this."""
        return list(self._entries.items())

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._size = 0
