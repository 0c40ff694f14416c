"""Choose the facts of a block: those that match the question, with what contradicts or replaced them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.memory import conflicts, facts
from holdfast.memory.facts import FactHit
from holdfast.memory.past_facts import find_held, find_past
from holdfast.memory.query import RecallQuery
from holdfast.store.base import FactRow

_MAX_QUOTES: Final = 2
"""The facts found by one of their questions whose quotes are searched for too."""


def choose_facts(
    rows: Sequence[FactRow], query: RecallQuery, *, settled: conflicts.Pairs = frozenset()
) -> list[FactHit]:
    """Choose from all versions of all facts: those that the caller gives with the query, then those that match."""
    given = {fact.id: FactHit(fact=fact, score=1.0) for fact in query.facts}
    rows = [row for row in rows if row.id not in given]
    question = " ".join(query.texts)
    holding = facts.current(rows)
    past = find_past(query.texts[-1] if query.texts else "", now=query.now)
    if past is not None:
        held = find_held(rows, question, past=past, limit=query.max_facts)
        return [*given.values(), *_note_rivals(held, holding, settled=settled)][: query.max_facts]
    matches = facts.find(holding, question, limit=query.max_facts)
    matches = facts.add_successors(matches, rows, question, limit=query.max_facts)
    return _add_rivals([*given.values(), *matches], holding, settled=settled, limit=query.max_facts)


def add_quotes(query: RecallQuery, hits: Sequence[FactHit]) -> RecallQuery:
    """Search also for the words that prove a fact which was found by one of the questions that it answers.

    The question of the query may have none of these words. They count as much as those of an earlier message.
    """
    quotes = [hit.fact.quote for hit in hits if hit.by_question and hit.fact.quote][:_MAX_QUOTES]
    if not quotes or query.is_broad:
        return query
    return replace(query, texts=(" ".join(quotes), *query.texts))


def _add_rivals(
    hits: Sequence[FactHit], holding: Sequence[FactRow], *, settled: conflicts.Pairs, limit: int
) -> list[FactHit]:
    """Put the facts that contradict one next to it, the newest first, and note it on all of them."""
    if not hits:
        return []
    chosen = {hit.fact.id: hit for hit in hits[:limit]}
    known = {hit.fact.id: hit.fact for hit in chosen.values()}
    for row in holding:
        known[row.id] = row
    index = conflicts.FactIndex(known.values(), wanted=[hit.fact for hit in chosen.values()], settled=settled)
    ordered: dict[str, FactHit] = {}
    for hit in chosen.values():
        for row in sorted([hit.fact, *index.find_rivals(hit.fact)], key=lambda row: -row.time):
            ordered.setdefault(row.id, chosen.get(row.id, FactHit(fact=row, score=hit.score)))
    return _note_rivals(list(ordered.values())[:limit], list(known.values()), settled=settled)


def _note_rivals(hits: Sequence[FactHit], holding: Sequence[FactRow], *, settled: conflicts.Pairs) -> list[FactHit]:
    """Note on each fact that holds now whether others do that contradict it."""
    index = conflicts.FactIndex(holding, wanted=[hit.fact for hit in hits], settled=settled)
    shown = [hit.fact for hit in hits if hit.fact.superseded_by is None]
    noted: list[FactHit] = []
    for hit in hits:
        note = ""
        if facts.does_hold(hit.fact):
            rivals = index.find_rivals(hit.fact)
            possible = index.find_possible_rivals(hit.fact, shown)
            note = conflicts.note_conflict(hit.fact, rivals, possible_rivals=possible)
        noted.append(replace(hit, note="; ".join(filter(None, (hit.note, note)))))
    return noted
