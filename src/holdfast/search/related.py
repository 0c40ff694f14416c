"""English words of related meaning, so that a question finds an answer in other words than its own.

`related.txt` has a line for each term: the term, and the terms nearest to it, each with its similarity in percent. It
is made by `python -m benchmarks related` from the vectors of a static model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

SHARE: Final = 0.8
"""What a related term counts beside the term itself, times their similarity;"""
MAX_TERMS: Final = 12
"""less in a question of more terms, which needs them less,"""
TOO_MANY: Final = 48
"""and nothing in one of more than this: a pasted file."""


def find_related(terms: Iterable[str]) -> dict[str, Mapping[str, float]]:
    """Return the related terms of each term of a question, with what they count beside it."""
    wanted = list(terms)
    if len(wanted) > TOO_MANY:
        return {}
    share = SHARE * min(1.0, MAX_TERMS / max(1, len(wanted)))
    found = {term: _look_up(term) for term in wanted}
    return {term: {each: share * value for each, value in row.items()} for term, row in found.items() if row}


@lru_cache(maxsize=4096)
def _look_up(term: str) -> Mapping[str, float]:
    lines, start = _read_lines(), f"{term} "
    place = bisect_left(lines, start)
    words = lines[place].split()[1:] if place < len(lines) and lines[place].startswith(start) else []
    return {word: int(percent) / 100 for word, percent in zip(words[::2], words[1::2], strict=True)}


@cache
def _read_lines() -> list[str]:
    """Read the table, which is sorted."""
    return Path(__file__).with_name("related.txt").read_text("ascii").splitlines()
