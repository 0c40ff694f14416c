"""Make the table of `holdfast/search/thesaurus.txt` from groups of words that people use for the same thing.

The groups are in `data/thesaurus`: English of people who build software or talk about their day, and Chinese, Japanese
and Korean words with their English counterparts. They were written from knowledge of the languages, without a look at
any data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.text import STOP_WORDS, is_unsegmented, terms

__all__ = ["load_groups", "make_table"]

_FOLDER: Final = Path(__file__).with_name("data") / "thesaurus"

_SMALL_GROUP: Final = 3
_MAX_SIMILARITY: Final = 0.95
_LOSS: Final = 0.04
_MIN_SIMILARITY: Final = 0.5
"""Words of a group of up to three are as similar as can be. Each further word of the group makes them less similar: a
long group has a thing and its kinds."""
_PART: Final = 0.7
"""How similar a part of a longer word is to that word: 数据 of 数据库."""
_MIN_KEPT: Final = 0.45
"""Parts of two longer words say too little about each other."""
_MAX_RELATED: Final = 16


def load_groups() -> list[list[str]]:
    """Read the groups of all languages."""
    groups: list[list[str]] = []
    for path in sorted(_FOLDER.glob("*.txt")):
        for line in path.read_text("utf-8").splitlines():
            groups.append(line.split())
    return groups


def make_table(groups: Iterable[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the most similar terms of each term, best first."""
    table: dict[str, dict[str, float]] = {}
    for group in groups:
        similarity = max(_MIN_SIMILARITY, _MAX_SIMILARITY - _LOSS * max(0, len(group) - _SMALL_GROUP))
        for word in group:
            others = [other for other in group if other != word]
            for term, near, share in _pair_terms(word, others):
                row = table.setdefault(term, {})
                row[near] = max(row.get(near, 0.0), similarity * share)
    best = {term: _select_best(row) for term, row in table.items()}
    return {term: row for term, row in best.items() if row}


def _pair_terms(word: str, others: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Yield the terms of a word with those of the others of its group."""
    for term, own in _find_terms(word).items():
        for other in others:
            for near, share in _find_terms(other).items():
                if near != term:
                    yield term, near, own * share


@cache  # each word of a group is paired with all others
def _find_terms(word: str) -> Mapping[str, float]:
    """Return the terms that stand for a word in a text, and how well they do."""
    if is_unsegmented(word[0]):
        # Such a word is searched by its pairs of characters. One character alone means too many things.
        pairs = [term for term in terms(word) if len(term) > 1]
        return dict.fromkeys(pairs, 1.0 if len(pairs) == 1 else _PART)
    whole = terms(word)[:1]
    # "sign-in" is also written as two words, of which "in" is no term.
    parts = [part for part in re.split(r"[-_/]", word) if part not in STOP_WORDS]
    if len(parts) == 1:
        whole += terms(parts[0])[:1]
    return {term: 1.0 for term in whole if _is_word(term)}


def _is_word(term: str) -> bool:
    """Whether a term is more than a number or a letter, which mean too many things."""
    return len(term) > 1 and not term.isdigit()


def _select_best(row: Mapping[str, float]) -> dict[str, float]:
    kept = [item for item in row.items() if item[1] >= _MIN_KEPT]
    kept.sort(key=lambda item: -item[1])
    return dict(kept[:_MAX_RELATED])
