"""Words of related meaning, so that a question finds an answer in other words than its own.

There are two tables, each with a line for a term: the term, and the terms nearest to it, each with its similarity in
percent. `related.txt` has English words, made by `python -m benchmarks related` from the vectors of a static model.
`thesaurus.txt` is made by `python -m benchmarks thesaurus` from groups of words that people wrote down: the English of
people who build software, and Chinese, Japanese and Korean words with their English counterparts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

SHARE: Final = 0.8
"""How much a related term counts next to the term itself, times their similarity."""
MAX_TERMS: Final = 12
"""Related terms count less in a question with more terms than this, which needs them less."""
TOO_MANY: Final = 48
"""They do not count in a question with more terms than this, which is a pasted file."""

_TABLES: Final = ("related.txt", "thesaurus.txt")


def find_related(terms: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return the related terms of each term of a question, with how much they count next to it."""
    wanted = list(terms)
    if len(wanted) > TOO_MANY:
        return {}
    share = SHARE * min(1.0, MAX_TERMS / max(1, len(wanted)))
    found: dict[str, Mapping[str, float]] = {}
    for term in wanted:
        row = _look_up(term)
        if row:
            found[term] = {each: share * value for each, value in row.items()}
    return found


@lru_cache(maxsize=4096)
def _look_up(term: str) -> Mapping[str, float]:
    """Return the related terms of a term in both tables. If both have one, the higher similarity counts."""
    found: dict[str, float] = {}
    for table in _TABLES:
        for word, similarity in _look_up_in(table, term):
            found[word] = max(similarity, found.get(word, 0.0))
    return found


def _look_up_in(table: str, term: str) -> Iterator[tuple[str, float]]:
    # A binary search over the bytes: the key of a place is the beginning of the line around it, so the first place that
    # is not below the term is the beginning of the term's own line.
    text = _read_table(table)
    start = f"{term} ".encode()
    place = bisect_left(range(len(text)), start, key=lambda place: _read_start(text, place, len(start)))
    if not text.startswith(start, place):
        return
    words = text[place : text.index(b"\n", place)].decode().split()[1:]
    for word, percent in zip(words[::2], words[1::2], strict=True):
        yield word, int(percent) / 100


def _read_start(text: bytes, place: int, count: int) -> bytes:
    """Return the first bytes of the line around a place."""
    start = text.rfind(b"\n", 0, place) + 1
    return text[start : start + count]


@cache
def _read_table(table: str) -> bytes:
    """Read a table, whose lines are sorted. It is not split: a question needs a few lines of many thousands."""
    return Path(__file__).with_name(table).read_bytes()
