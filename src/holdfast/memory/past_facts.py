"""Facts for a question about the past: what held in March, or before the last change, next to what holds now."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.memory.facts import FactHit, find, find_last, list_versions, name_day
from holdfast.moments import minute
from holdfast.patterns import compile_once, load
from holdfast.search.periods import find_periods, remove_periods
from holdfast.store.base import FactRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The time that a question asks about: from `start` to before `stop`, or before the last change (`is_before`)."""

    start: int = 0
    stop: int = 0
    is_before: bool = False

    def includes(self, fact: FactRow, until: int | None) -> bool:
        """Return whether a version of a fact held at that time."""
        return fact.time < self.stop and (until is None or until > self.start)


def find_past(text: str, *, now: int | None) -> Past | None:
    """Return the time that a question asks about; None if it asks for what holds now."""
    if now is not None and _has("past", text):
        for start, stop in find_periods(text, now=now):
            if stop > now:  # it is not over
                continue
            if _has("before", text):
                return Past(start=start - 1, stop=start)
            return Past(start=start, stop=stop)
    if _has("before_change", text):
        return Past(is_before=True)
    return None


def _has(name: str, text: str) -> bool:
    return compile_once(load("past")[name], re.IGNORECASE | re.VERBOSE).search(text) is not None


def find_held(rows: Sequence[FactRow], question: str, *, past: Past, limit: int) -> list[FactHit]:
    """Find what held at a time, each value followed by the one that holds now, with the dates of both."""
    versions = list_versions(rows)
    latest = {row.id: row for row in rows}
    lines: dict[str, list[FactRow]] = defaultdict(list)
    for row in versions:
        lines[find_last(latest[row.id], latest).id].append(row)
    # A version that no longer holds is not shown just because it is pinned.
    matches = find([replace(row, pinned=False) for row in versions], remove_periods(question), limit=4 * limit)
    found: dict[FactRow, FactHit] = {}
    for match in matches:
        last = find_last(latest[match.fact.id], latest)
        line = sorted(lines[last.id], key=lambda row: row.time)
        for row in _choose(line, versions, past):
            note = ""
            if len(line) > 1 or not past.is_before:
                note = _note(row, versions[row])
            found.setdefault(row, FactHit(fact=row, score=match.score, note=note))
    return list(found.values())[:limit]


def _choose(line: Sequence[FactRow], versions: Mapping[FactRow, int | None], past: Past) -> list[FactRow]:
    """Choose the versions of one fact to show: those of that time, and the one that holds now."""
    current = [row for row in line if versions[row] is None]
    over = [row for row in line if versions[row] is not None]
    if past.is_before:
        return [*over[-1:], *current]
    held = [row for row in over if past.includes(row, versions[row])]
    return [*held, *current]


def _note(fact: FactRow, until: int | None) -> str:
    if until is None:
        return f"since {name_day(fact)}"
    return f"from {name_day(fact)} until {minute(until)[:10]}"
