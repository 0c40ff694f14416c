"""Forgetting: messages and facts go for good, and so does everything that was made of their words.

A fact that rests on a forgotten message goes with it. A recorded block that quotes it, a report that shows it
and a summary that stands for it hold its words as well: the first two are taken out, of the last nothing is
left but that there was one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from holdfast.store.base import FactRow, Kind, Record, Scope, Select, Store

__all__ = ["FORGOTTEN", "forget"]

FORGOTTEN: Final = "[A part of what this summary stood for was forgotten, and the summary with it.]"
"""What is left of a summary."""
_WORDS: Final = ("text", "summary")
_OWN: Final[tuple[Kind, ...]] = ("record", "job")
_WORDED: Final[tuple[Kind, ...]] = ("fact", "message")


def forget(
    store: Store,
    *,
    scope: Scope,
    ids: Sequence[int] | None = None,
    fact_ids: Sequence[str] | None = None,
    across: bool = False,
) -> int:
    """Forget messages and facts; with neither named, all of the scope's session. How many there were is returned."""
    if ids is None and fact_ids is None:
        for kind in _OWN:
            store.remove(Select(kind=kind, scope=scope, across=across))
        return sum(store.remove(Select(kind=kind, scope=scope, across=across)) for kind in _WORDED)
    gone = frozenset(ids or ())
    _clean(store, gone, scope=scope, across=across)
    keys = (*(fact_ids or ()), *_resting(store, gone, scope=scope, across=across))
    found = store.remove(Select(kind="fact", scope=scope, across=across, keys=keys)) if keys else 0
    if gone:
        found += store.remove(Select(kind="message", scope=scope, across=across, ids=tuple(sorted(gone))))
    return found


def _resting(store: Store, gone: AbstractSet[int], *, scope: Scope, across: bool) -> list[str]:
    """The facts that rest on forgotten messages."""
    rows: list[FactRow] = store.fetch(Select(kind="fact", scope=scope, across=across)) if gone else []
    return sorted({row.id for row in rows if not gone.isdisjoint(row.evidence)})


def _clean(store: Store, gone: AbstractSet[int], *, scope: Scope, across: bool) -> None:
    """Take their words out of records."""
    if not gone:
        return
    records: list[Record] = store.fetch(Select(kind="record", scope=scope, across=across))
    told = [record for record in records if _tells(record.data) and not gone.isdisjoint(_about(record.data))]
    summaries = [record for record in told if "summary" in record.data.get("change", {})]
    store.add([replace(record, data=_emptied(record.data)) for record in summaries])
    others = tuple(record.id for record in told if record not in summaries)
    if others:
        store.remove(Select(kind="record", scope=scope, across=across, ids=others))


def _about(data: Mapping[str, Any]) -> set[int]:
    """The archived messages that a record is about."""
    return {*data.get("ids", ()), *(hit["message"] for hit in data.get("recalled", ()))}


def _tells(data: Mapping[str, Any]) -> bool:
    """Tell whether a record holds words of messages; most know nothing but numbers."""
    return bool(data.get("recalled")) or any(name in data.get("change", {}) for name in _WORDS)


def _emptied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "change": {**data["change"], "summary": FORGOTTEN}}
