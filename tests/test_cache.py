"""A bounded cache."""

import pytest

from holdfast.cache import LruCache


def test_the_least_recently_used_entry_is_dropped() -> None:
    """Reading an entry counts as use."""
    cache: LruCache[str, int] = LruCache(2)
    cache["a"] = 1
    cache["b"] = 2
    assert cache["a"] == 1
    cache["c"] = 3
    assert list(cache) == ["a", "c"]
    assert cache.get("b") is None
    assert cache.get("b", -1) == -1


def test_replacing_a_value_does_not_count_twice() -> None:
    """An entry that is set again takes the place of the earlier one, as the most recently used."""
    cache: LruCache[str, int] = LruCache(2)
    for value in range(5):
        cache["a"] = value
    cache["b"] = 9
    assert cache.values() == [4, 9]


def test_size_is_what_values_weigh() -> None:
    """Entries are dropped until the sum of their sizes fits. The newest stays even if it is too large."""
    cache: LruCache[str, bytes] = LruCache(10, weigh=len)
    cache["a"] = b"1234"
    cache["b"] = b"1234"
    cache["c"] = b"1234"
    assert list(cache) == ["b", "c"]
    cache["d"] = b"x" * 100
    assert list(cache) == ["d"]
    cache["e"] = b"1"
    assert list(cache) == ["e"]


def test_removed_entries_leave_room() -> None:
    """What was removed or cleared counts no more."""
    cache: LruCache[str, int] = LruCache(2)
    cache["a"] = 1
    assert cache.pop("a") == 1
    assert cache.pop("a") is None
    cache["b"] = 2
    cache["c"] = 3
    assert len(cache) == 2
    cache.clear()
    assert "b" not in cache
    with pytest.raises(KeyError):
        cache["b"]


def test_a_size_of_zero_keeps_nothing() -> None:
    """So a setting can switch a cache off."""
    cache: LruCache[str, int] = LruCache(0)
    cache["a"] = 1
    assert "a" not in cache
