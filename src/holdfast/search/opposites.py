"""Words that name different things of one group: staging and production, minimum and maximum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from holdfast.patterns import load
from holdfast.text import terms


def find_opposites(topic: Iterable[str]) -> dict[int, frozenset[str]]:
    """Return the terms of a topic that are in groups of opposites, by the number of the group."""
    found: dict[int, frozenset[str]] = {}
    for number, group in enumerate(_load_groups()):
        words = group.intersection(topic)
        if words:
            found[number] = words
    return found


def are_opposed(left: Mapping[int, frozenset[str]], right: Mapping[int, frozenset[str]]) -> bool:
    """Return whether two topics have words of one group, and none of them in common."""
    return any(left[group].isdisjoint(right[group]) for group in left.keys() & right.keys())


def list_terms(word: str) -> Iterator[str]:
    """Return the terms of a word that distinguish it: not single characters of a script without spaces."""
    for term in terms(word):
        if len(term) > 1:
            yield term


@cache
def _load_groups() -> tuple[frozenset[str], ...]:
    """Return the groups of opposites."""
    groups: list[frozenset[str]] = []
    for words in load("contradictions")["contrasts"]:
        group: set[str] = set()
        for word in words.split():
            group.update(list_terms(word))
        groups.append(frozenset(group))
    return tuple(groups)
