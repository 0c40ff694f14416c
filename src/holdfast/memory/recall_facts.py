"""Choose the facts of a block: those that match the question, with what contradicts or replaced them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.calls import NO_DEADLINE, Deadline
from holdfast.embed.base import Embedder
from holdfast.embed.static import find_static
from holdfast.memory import conflicts, facts
from holdfast.memory.facts import FactHit
from holdfast.memory.past_facts import find_held, find_past
from holdfast.memory.query import RecallQuery, asks_something
from holdfast.memory.related_facts import MIN_OF_BEST, find_related_facts
from holdfast.search.relevance import SHY
from holdfast.store.base import FactRow

_MAX_QUOTES: Final = 2
"""For how many facts that were found by one of their questions the quotes are searched for too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFacts:
    """The facts of a block, and whether the window already shows others that match."""

    hits: Sequence[FactHit] = ()
    are_others_shown: bool = False


def choose_facts(
    rows: Sequence[FactRow],
    query: RecallQuery,
    *,
    settled: conflicts.Pairs = frozenset(),
    embedders: Sequence[Embedder] = (),
    deadline: Deadline = NO_DEADLINE,
) -> ChosenFacts:
    """Choose the facts of a block from all versions: first those that the caller gave, then those that match.

    Facts are compared by the vectors of a static model if one of the `embedders` has one, as many as the deadline
    allows.
    """
    given = {fact.id: FactHit(fact=fact, score=1.0) for fact in query.facts}
    rows = [row for row in rows if row.id not in given]
    question = " ".join(query.texts)
    newest = ""
    if query.texts:
        newest = query.texts[-1]
    every = facts.current(rows)
    holding = every
    if query.periods:
        holding = [row for row in every if _is_in_period(row, query)]
    if query.asks_for_decisions and query.is_listing:
        listed = [*given.values(), *_list_decisions(holding, query)]
        return ChosenFacts(hits=_add_rivals(listed, every, settled=settled, limit=query.max_facts))
    past = find_past(newest, now=query.now)
    if past is not None:  # "what was it in May?": facts that held then, whatever holds now
        held = find_held(rows, question, past=past, limit=query.max_facts)
        if query.periods:  # "What did we decide in May?": what was decided before does not count
            held = [hit for hit in held if _is_in_period(hit.fact, query)]
        noted = _note_rivals(held, every, settled=settled)
        return ChosenFacts(hits=[*given.values(), *noted][: query.max_facts])
    matches = facts.find(holding, question, limit=query.max_facts)
    # The words of the question may be in a fact that was replaced. Then its successor is the answer.
    matches = facts.add_successors(matches, rows, question, limit=query.max_facts)
    matches = [*given.values(), *matches]
    related = _find_related(matches, holding, query, embedder=find_static(embedders), deadline=deadline)
    shown = "\n".join(query.shown.blocks)
    unseen = [hit for hit in related if hit.fact.content not in shown]
    hits = _add_rivals([*matches, *unseen], every, settled=settled, limit=query.max_facts)
    successors = {row.superseded_by for row in rows}
    return ChosenFacts(
        hits=[replace(hit, has_replaced=hit.fact.id in successors) for hit in hits],
        are_others_shown=len(unseen) < len(related),
    )


def _list_decisions(holding: Sequence[FactRow], query: RecallQuery) -> list[FactHit]:
    """List the decisions that no session of the query shows, newest first.

    The question has no words to find them by: "What did we decide last month?"
    """
    shown = list(query.shown.blocks)
    for line in query.sessions:
        shown += [line.title, line.outcome, *line.keys]
    text = "\n".join(shown)
    missing = [row for row in holding if row.type == "decision" and row.content not in text]
    missing.sort(key=lambda row: -row.time)
    return [FactHit(fact=row, score=1.0) for row in missing]


def _is_in_period(row: FactRow, query: RecallQuery) -> bool:
    return any(since <= row.time < until for since, until in query.periods)


def add_quotes(query: RecallQuery, hits: Sequence[FactHit]) -> RecallQuery:
    """Also search for the quotes of facts that were found by one of the questions that they answer.

    The query may have none of the words in such a quote. They count as much as those of an earlier message.
    """
    quotes = [hit.fact.quote for hit in hits if hit.by_question and hit.fact.quote][:_MAX_QUOTES]
    if not quotes or query.is_broad:
        return query
    return replace(query, texts=(" ".join(quotes), *query.texts))


def _find_related(
    hits: Sequence[FactHit],
    holding: Sequence[FactRow],
    query: RecallQuery,
    *,
    embedder: Embedder | None,
    deadline: Deadline,
) -> list[FactHit]:
    """Find the facts that match a question in other words, in addition to `hits`.

    A query that a person or a model makes is a question even if it is worded as "crane capacity".
    """
    if not holding or query.eagerness == SHY or not query.texts:
        return []
    if query.is_automatic and not asks_something(query.texts[-1]):
        return []
    found = {hit.fact.id for hit in hits}
    best = max((hit.score for hit in hits), default=0.0)
    question = " ".join(query.texts)
    related = find_related_facts(holding, question, limit=query.max_facts, embedder=embedder, deadline=deadline)
    return [hit for hit in related if hit.fact.id not in found and hit.score >= MIN_OF_BEST * best]


def _add_rivals(
    hits: Sequence[FactHit], holding: Sequence[FactRow], *, settled: conflicts.Pairs, limit: int
) -> list[FactHit]:
    """Put the facts that contradict or correct each other next to each other, newest first, and note it on them.

    A correction that the window shows already is repeated: without it, the older fact would stand alone in the block.
    """
    if not hits:
        return []
    chosen = {hit.fact.id: hit for hit in hits[:limit]}
    known = {hit.fact.id: hit.fact for hit in chosen.values()}
    for row in holding:
        known[row.id] = row
    index = conflicts.FactIndex(known.values(), wanted=[hit.fact for hit in chosen.values()], settled=settled)
    ordered: dict[str, FactHit] = {}
    for hit in chosen.values():
        others = [*index.find_rivals(hit.fact), *index.find_corrections(hit.fact)]
        for row in sorted([hit.fact, *others], key=lambda row: -row.time):
            # A fact that matches by itself keeps its score and its place; a rival gets those of the fact next to it.
            ordered.setdefault(row.id, chosen.get(row.id, FactHit(fact=row, score=hit.score)))
    return _note_rivals(list(ordered.values())[:limit], list(known.values()), settled=settled)


def _note_rivals(hits: Sequence[FactHit], holding: Sequence[FactRow], *, settled: conflicts.Pairs) -> list[FactHit]:
    """Note on each fact that holds now whether others that hold contradict it, or one of these facts corrects it."""
    index = conflicts.FactIndex(holding, wanted=[hit.fact for hit in hits], settled=settled)
    shown = [hit.fact for hit in hits if hit.fact.superseded_by is None]
    noted: list[FactHit] = []
    for hit in hits:
        note = ""
        superseded = hit.superseded
        if facts.does_hold(hit.fact):
            if any(row in shown for row in index.find_corrections(hit.fact)):
                superseded = "wholly"
            else:
                rivals = index.find_rivals(hit.fact)
                possible = index.find_possible_rivals(hit.fact, shown)
                note = conflicts.note_conflict(hit.fact, rivals, possible_rivals=possible)
        notes = [text for text in (hit.note, note) if text]
        noted.append(replace(hit, note="; ".join(notes), superseded=superseded))
    return noted
