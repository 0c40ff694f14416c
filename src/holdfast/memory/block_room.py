"""Divide the tokens of a block among facts, sessions and quotes.

A fact that matches is worth its tokens, however weak the match of passages is. The confidence that memory matches the
question decides how many tokens the quotes get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from holdfast.memory import block
from holdfast.memory.block import UNKEPT
from holdfast.memory.facts import FactHit
from holdfast.memory.overview import past_session
from holdfast.memory.passage_search import Found
from holdfast.memory.query import RecallQuery, measure_reference
from holdfast.memory.session_lines import SessionLine
from holdfast.search.relevance import find_relevant, scale_smallest_block, weigh_confidence
from holdfast.tokens import measure_text

MAX_SESSION_TOKENS: Final = 1_200
"""The maximum tokens of the sessions of a block."""
_NO_DETAIL: Final = block.Detail(role="", time=0, text="")
_SESSIONS_FRAME: Final = 32.0
"""The tokens of the tags around sessions, and of the line after them."""
MAX_STATEMENT_TOKENS: Final = 300
"""The maximum tokens for a message that asks nothing and refers to nothing: the next step of some work, which matches
many passages because work repeats itself.

With it, 60 turns of work get 6,000 to 8,000 tokens of blocks instead of 18,000 to 50,000, and the questions after them
are answered as before (tests/behaviour/test_work_turns.py); `python -m benchmarks other-words` prints the same."""
_REFERS: Final = 0.5
"""The minimum reference of a message that asks nothing but is about something known: "use the port we agreed on"."""


def choose_size(found: Found, *, confidence: float, is_broad: bool) -> int:
    """Return the maximum tokens of a block with quotes, by confidence; 0 for no quotes."""
    query = found.query
    if query.order.fusion == "weighted":  # this formula tests each passage itself
        if len(found.ranking.order) or len(found.by_words.ranking.order):
            return query.cap
        return 0
    if not (find_relevant(found.signals) & found.candidates.eligible).any():
        return 0
    if is_broad:
        return query.cap
    size = query.eagerness.choose_size(
        weigh_confidence(confidence, found.signals), cap=query.cap, scale=scale_smallest_block(found.signals)
    )
    if query.is_automatic and not found.signals.is_asking and measure_reference(query.texts[-1]) < _REFERS:
        return min(size, MAX_STATEMENT_TOKENS)
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The facts and sessions of a block, and the tokens that are left for quotes."""

    facts: Sequence[FactHit]
    sessions: Sequence[SessionLine]
    room: float


def fit_lines(query: RecallQuery, facts: Sequence[FactHit]) -> Listed:
    """Keep the facts and the sessions of a query that fit into its cap."""
    room = query.cap - frame_tokens()
    kept: list[FactHit] = []
    spent = 0.0
    for hit in facts:
        line = block.Fact(type=hit.fact.type, text=hit.fact.content, note=hit.note)
        cost = measure_text(block.fact_line(line) + "\n")
        if not kept:
            cost += _facts_frame_tokens()
        if spent + cost <= room * query.knowledge_share:  # no break: after a long fact, a shorter one may still fit
            kept.append(hit)
            spent += cost
    sessions = _fit_sessions(query.sessions, min(MAX_SESSION_TOKENS, room - spent))
    spent += sum(map(_measure_session, sessions))
    if query.no_sessions:
        spent += _SESSIONS_FRAME + measure_text(query.no_sessions)
    return Listed(facts=kept, sessions=sessions, room=room - spent)


@cache
def frame_tokens() -> float:
    """Count the tokens of the tags of a block with passages."""
    return measure_text(block.render([], [_NO_DETAIL], UNKEPT))


@cache
def _facts_frame_tokens() -> float:
    """Count the tokens of the tags around facts."""
    return measure_text(block.render([block.Fact(type="", text="")], [_NO_DETAIL], UNKEPT)) - frame_tokens()


def _fit_sessions(lines: Sequence[SessionLine], room: float) -> list[SessionLine]:
    """Keep the newest sessions that fit into `room` tokens, oldest first, then sentences of each in turn."""
    kept: dict[int, SessionLine] = {}
    spent = _SESSIONS_FRAME
    # First the sessions themselves, so that as many as possible are named; then their sentences.
    for place, line in reversed(list(enumerate(lines))):
        bare = replace(line, keys=())
        if spent + _measure_session(bare) > room:  # no gaps: the list would not show that this one is missing
            break
        kept[place] = bare
        spent += _measure_session(bare)
    max_keys = max((len(line.keys) for line in lines), default=0)
    for count in range(1, max_keys + 1):
        for place, line in kept.items():
            more = replace(line, keys=lines[place].keys[:count])
            cost = _measure_session(more) - _measure_session(line)
            if spent + cost <= room:
                kept[place] = more
                spent += cost
    return [kept[place] for place in sorted(kept)]


def _measure_session(line: SessionLine) -> float:
    return measure_text(block.session_lines(past_session(line)) + "\n")
