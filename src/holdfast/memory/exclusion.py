"""Messages and facts that are never recalled, until they are brought back. Reading and searching still find them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.store.base import Across, FactRow, MessageRow, Record, Scope, Select, Store

EXCLUDED: Final = "excluded"
"""The kind of the records, one for each message or fact that was excluded."""


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The numbers of messages and the ids of facts that are excluded."""

    messages: frozenset[int] = frozenset()
    facts: frozenset[str] = frozenset()


def read_exclusions(store: Store, scope: Scope, *, across: Across = True) -> Exclusions:
    """Read what a reader may see and recall leaves out."""
    records: list[Record] = store.read_records(Select(scope=scope, across=across), kind=EXCLUDED)
    names = [record.key.partition(":") for record in records if record.data.get("excluded")]
    messages = frozenset(int(name) for kind, _, name in names if kind == "message")
    return Exclusions(messages, frozenset(name for kind, _, name in names if kind == "fact"))


def exclude(store: Store, rows: Sequence[MessageRow | FactRow], *, excluded: bool, time: int) -> int:
    """Exclude messages and facts from recall, or include them again, and return how many."""
    records: list[Record] = []
    for row in rows:
        key = f"{'fact' if isinstance(row, FactRow) else 'message'}:{row.id}"
        records.append(Record(scope=row.scope, kind=EXCLUDED, key=key, data={"excluded": excluded}, time=time))
    with store.transaction():
        store.add_records(records)
        for row in rows:
            if isinstance(row, MessageRow):
                store.set_flags(Select(scope=row.scope, ids=(row.id,)), excluded=excluded)
    return len(rows)
