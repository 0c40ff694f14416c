"""How often a fact was recalled, and when last.

Each session has one record for each day on which facts were recalled in it. It is written together with the record of
the turn, so that a recall itself writes nothing, and it stays small however long the session is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.moments import minute
from holdfast.store.base import Across, Record, Scope, Select, Store

FACT_RECALLS: Final = "fact_recalls"
"""The kind of the records, by day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecalls:
    """How often a fact was recalled, and when last, in Unix milliseconds."""

    count: int = 0
    last_time: int = 0


def count_recalls(store: Store, fact_ids: Sequence[str], *, scope: Scope, time: int) -> list[Record]:
    """Return the record to store if these facts were recalled in a session; none if there are no facts.

    Two processes that use one session at the same moment may count one recall too few.
    """
    if not fact_ids:
        return []
    day = minute(time)[:10]
    counts: dict[str, Sequence[int]] = {}
    for record in store.read_records(Select(scope=scope), kind=FACT_RECALLS, keys=[day]):
        counts.update(record.data["facts"])
    for fact_id in dict.fromkeys(fact_ids):
        count, _ = counts.get(fact_id, (0, 0))
        counts[fact_id] = (count + 1, time)
    return [Record(scope=scope, kind=FACT_RECALLS, key=day, data={"facts": counts}, time=time, is_durable=False)]


def read_recalls(store: Store, scope: Scope, *, across: Across = True) -> Mapping[Scope, Mapping[str, FactRecalls]]:
    """Return how often each fact was recalled, by the session's scope without its id, and by the id of the fact."""
    sums: dict[Scope, dict[str, list[int]]] = {}
    for record in store.read_records(Select(scope=scope, across=across), kind=FACT_RECALLS):
        known = sums.setdefault(replace(record.scope, session=""), {})
        for fact_id, (count, time) in record.data["facts"].items():
            if fact_id not in known:
                known[fact_id] = [count, time]
                continue
            total, last = known[fact_id]
            known[fact_id] = [total + count, max(last, time)]
    found: dict[Scope, dict[str, FactRecalls]] = {}
    for owner, counts in sums.items():
        found[owner] = {fact_id: FactRecalls(count=count, last_time=last) for fact_id, (count, last) in counts.items()}
    return found
