"""Messages and facts that are never recalled, until they are brought back. Reading and searching still find them.

Contradictions that the user has settled are kept here too: pairs of facts that both hold, although their words
contradict each other. Every recall reads both, in one query.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from holdfast.store.base import Across, FactRow, MessageRow, Record, Scope, Select, Store

EXCLUDED: Final = "excluded"
"""The kind of the records, one for each message, fact or contradiction that was excluded."""

_AND: Final = " and "
"""Separates the ids of two facts; an id has no space."""


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The numbers of messages and the ids of facts that are excluded, and the pairs of ids of facts that both hold.

    `kept` are the facts that were brought back, whatever messages say them.
    """

    messages: frozenset[int] = frozenset()
    facts: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    pairs: frozenset[frozenset[str]] = frozenset()

    def hides(self, fact: FactRow) -> bool:
        """Return whether recall leaves a fact out: it is excluded, or so are all messages that say it."""
        if fact.id in self.facts:
            return True
        if fact.pinned or fact.id in self.kept:
            return False
        return bool(fact.evidence) and self.messages.issuperset(fact.evidence)


def read_exclusions(store: Store, scope: Scope, *, across: Across = True) -> Exclusions:
    """Read what a reader may see and recall leaves out."""
    records: list[Record] = store.read_records(Select(scope=scope, across=across), kind=EXCLUDED)
    names = [record.key.partition(":") for record in records if record.data.get("excluded")]
    others = [record.key.partition(":") for record in records if not record.data.get("excluded")]
    messages = frozenset(int(name) for kind, _, name in names if kind == "message")
    facts = frozenset(name for kind, _, name in names if kind == "fact")
    pairs = frozenset(frozenset(name.split(_AND)) for kind, _, name in names if kind == "pair")
    kept = frozenset(name for kind, _, name in others if kind == "fact")
    return Exclusions(messages=messages, facts=facts, kept=kept, pairs=pairs)


def exclude(
    store: Store,
    rows: Sequence[MessageRow | FactRow],
    *,
    excluded: bool,
    time: int,
    until_repeated: bool = False,
) -> int:
    """Exclude messages and facts from recall, or include them again, and return how many.

    Messages that are excluded `until_repeated` are included again by `include_repeated`.
    """
    data: dict[str, Any] = {"excluded": excluded}
    if until_repeated:
        data["until_repeated"] = True
    records: list[Record] = []
    for row in rows:
        key = f"message:{row.id}"
        if isinstance(row, FactRow):
            key = f"fact:{row.id}"
        records.append(Record(scope=row.scope, kind=EXCLUDED, key=key, data=data, time=time))
    with store.transaction():
        store.add_records(records)
        for row in rows:
            if isinstance(row, MessageRow):
                store.set_flags(Select(scope=row.scope, ids=(row.id,)), excluded=excluded)
    return len(rows)


def exclude_imported(store: Store, rows: Sequence[MessageRow | FactRow]) -> None:
    """Exclude rows that were excluded where they come from, but for those that were brought back here."""
    decided: set[str] = set()
    for scope in {row.scope for row in rows}:
        decided.update(record.key for record in store.read_records(Select(scope=scope), kind=EXCLUDED))
    new: list[MessageRow | FactRow] = []
    for row in rows:
        kind = "fact" if isinstance(row, FactRow) else "message"
        if f"{kind}:{row.id}" not in decided:
            new.append(row)
    exclude(store, new, excluded=True, time=0)


def settle(store: Store, rows: Sequence[FactRow], *, settled: bool, time: int) -> None:
    """Record that facts of one owner all hold although they contradict each other; or, unless `settled`, undo that."""
    records: list[Record] = []
    for left, right in combinations(sorted(rows, key=lambda row: row.id), 2):
        key = f"pair:{left.id}{_AND}{right.id}"
        records.append(Record(scope=left.scope, kind=EXCLUDED, key=key, data={"excluded": settled}, time=time))
    store.add_records(records)


def include_repeated(store: Store, scope: Scope, numbers: Collection[int], *, time: int) -> None:
    """Include messages of a session that were excluded until the client or the provider repeats them."""
    records: list[Record] = store.read_records(Select(scope=scope), kind=EXCLUDED)
    repeated: list[int] = []
    for record in records:
        kind, _, name = record.key.partition(":")
        if kind == "message" and record.data.get("until_repeated") and int(name) in numbers:
            repeated.append(int(name))
    if repeated:
        rows: list[MessageRow] = store.read_messages(Select(scope=scope, ids=tuple(repeated)))
        exclude(store, rows, excluded=False, time=time)
