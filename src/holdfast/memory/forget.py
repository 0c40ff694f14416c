"""Forgetting: messages and facts go for good, and so does everything that was made of their words.

A fact that rests on a forgotten message goes with it. With a fact that is named go its earlier versions: the facts
that it took the place of. A recorded block that quotes one of them, a report that shows
it and a summary that was told of it hold its words as well: the first two are taken out, of the last nothing is
left but that there was one. A summary takes over what the one before it said, so those after it go the same way.
Every process that has read such a record before finds an edit that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from holdfast.context.edits import Edit, Forgotten, to_json
from holdfast.memory import block
from holdfast.store.base import FactRow, Kind, Record, Scope, Select, Store
from holdfast.text import digest

__all__ = ["FORGOTTEN", "forget"]

FORGOTTEN: Final = "[A part of what this summary stood for was forgotten, and the summary with it.]"
"""What is left of a summary."""
_WORDS: Final = ("text", "summary")
_OWN: Final[tuple[Kind, ...]] = ("record", "job")
_EDIT: Final = "edit"


def forget(
    store: Store,
    *,
    scope: Scope,
    ids: Sequence[int] | None = None,
    fact_ids: Sequence[str] | None = None,
    across: bool = False,
) -> int:
    """Forget messages and facts; with neither named, all of the scope's session. How many there were is returned.

    Facts belong to the agent and project: those that rest on a forgotten message, and blocks that quote a forgotten
    fact, are found in every session.
    """
    known: list[FactRow] = store.fetch(Select(kind="fact", scope=scope, across=True))
    here = {row.id for row in known if across or row.scope == scope}
    if ids is not None or fact_ids is not None:
        gone = frozenset(ids or ())
        found = _forget_facts(store, known, gone, here.intersection(fact_ids or ()), scope=scope, across=across)
        return found + store.remove(Select(kind="message", scope=scope, across=across, ids=tuple(sorted(gone))))
    evidence = tuple(sorted({number for row in known for number in row.evidence}))
    said = store.fetch(Select(kind="message", scope=scope, across=across, ids=evidence))
    found = _forget_facts(store, known, frozenset(row.id for row in said), here, scope=scope, across=across)
    for kind in _OWN:
        store.remove(Select(kind=kind, scope=scope, across=across))
    return found + store.remove(Select(kind="message", scope=scope, across=across))


def _forget_facts(
    store: Store,
    known: Sequence[FactRow],
    gone: AbstractSet[int],
    wanted: AbstractSet[str],
    *,
    scope: Scope,
    across: bool,
) -> int:
    """Forget the wanted facts and those that rest on messages that go, and clean the records of both."""
    facts = _facts(known, gone, wanted)
    _clean(store, gone, facts, scope=scope, across=across or bool(facts))
    keys = tuple(sorted({fact.id for fact in facts}))
    return store.remove(Select(kind="fact", scope=scope, across=True, keys=keys))


def _facts(known: Sequence[FactRow], gone: AbstractSet[int], wanted: AbstractSet[str]) -> list[FactRow]:
    """The facts that go, every version of them: those named, and those that rest on forgotten messages."""
    keys = set(wanted)
    while earlier := {row.id for row in known if row.superseded_by in keys} - keys:
        keys |= earlier
    keys |= {row.id for row in known if not gone.isdisjoint(row.evidence)}
    return [row for row in known if row.id in keys]


def _clean(store: Store, gone: AbstractSet[int], facts: Sequence[FactRow], *, scope: Scope, across: bool) -> None:
    """Take their words out of records, and say so to whoever has read those."""
    lines = tuple(block.fact_line(block.Fact(type=fact.type, text=fact.content)) for fact in facts)
    records: list[Record] = store.fetch(Select(kind="record", scope=scope, across=across))
    told = [record for record in records if _tells(record.data) and _is_about(record.data, gone, lines)]
    others = tuple(record.id for record in told if _summary(record) is None)
    store.remove(Select(kind="record", scope=scope, across=across, ids=others))
    emptied = [replace(record, data=_emptied(record.data)) for record in _taking_over(records, told)]
    said = store.fetch(Select(kind="message", scope=scope, across=across, ids=tuple(sorted(gone))))
    touched = {row.scope for row in (*told, *said)}
    store.add([*emptied, *(_notice(gone, facts, scope=each) for each in sorted(touched, key=repr))])


def _taking_over(records: Sequence[Record], told: Sequence[Record]) -> Iterator[Record]:
    """The summaries among what tells of the forgotten, and all that came after them in the same session."""
    tainted: set[Scope] = set()
    for record in records:
        if _summary(record) is not None and (record in told or record.scope in tainted):
            tainted.add(record.scope)
            yield record


def _notice(gone: AbstractSet[int], facts: Sequence[FactRow], *, scope: Scope) -> Record:
    """The edit that says that something was forgotten."""
    ids = tuple(sorted(gone))
    edit = Edit(change=Forgotten(), ids=ids, reason="asked for", tokens_before=0, tokens_after=0)
    key = digest(repr((ids, sorted(fact.id for fact in facts))))
    return Record(scope=scope, kind=_EDIT, key=f"forgotten:{key}", data=to_json(edit))


def _summary(record: Record) -> str | None:
    found: str | None = record.data.get("change", {}).get("summary")
    return found


def _is_about(data: Mapping[str, Any], gone: AbstractSet[int], lines: Sequence[str]) -> bool:
    quoted: str = data.get("change", {}).get("text", "")
    return not gone.isdisjoint(_about(data)) or any(line in quoted for line in lines)


def _about(data: Mapping[str, Any]) -> set[int]:
    """The archived messages that a record is about."""
    asked = data.get("change", {}).get("asked", 0)
    return {asked, *data.get("ids", ()), *(hit["message"] for hit in data.get("recalled", ()))}


def _tells(data: Mapping[str, Any]) -> bool:
    """Tell whether a record holds words of messages; most know nothing but numbers."""
    return bool(data.get("recalled")) or any(name in data.get("change", {}) for name in _WORDS)


def _emptied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "change": {**data["change"], "summary": FORGOTTEN}}
