"""The path of one turn: from the messages of a session to the window that is sent.

`assemble` is the whole path, top to bottom:

    strip old recall -> archive new messages -> prune -> trim -> recall -> place -> record -> validate -> report

Edits are recorded and replayed. Between two cuts a window only grows at its end, so the provider's prompt cache holds.
Memory trouble never blocks a request: it passes unchanged, and the report says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from holdfast import providers
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply, messages_of
from holdfast.context.place import clear_blocks, place, recall_room
from holdfast.context.plan import plan_edits
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import SPACE_ADVICE, ConflictError, HoldfastError, WindowError
from holdfast.memory.block import Fact, fact_line
from holdfast.memory.query import RecallQuery, build_query
from holdfast.memory.recall import Recall
from holdfast.providers import Incoming
from holdfast.report import ContextReport, build_report
from holdfast.settings import Settings
from holdfast.state import MAX_TRIES, TURN, SessionState
from holdfast.store.base import FactRow, Record
from holdfast.window import Window

if TYPE_CHECKING:
    from holdfast.session import Session

__all__ = ["Turn", "assemble"]

MAX_PAUSE: Final = 10**15
"""Milliseconds between two requests, whatever the clock says; more would not fit a duration."""
MIN_BLOCK: Final = 64
"""Tokens below which no block is recalled."""

Planned: TypeAlias = tuple[tuple[Item, ...], tuple[Edit, ...]]
"""A window, and the edits that are new about it."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """One request while it is made.

    Attributes:
        limits: The limits of its window.
        now: When it is made, in Unix milliseconds.
        facts: Facts that the caller chose for it; they go into the block first.
        archive_tool: The name of the tool that shows archived messages, where the model has one.
        provider: The provider whose rules the window must keep; at first, the one where no message shows a format.
        milliseconds: How long each step took.
        warnings: What failed and was skipped.
        recall: What memory returned.
    """

    limits: Budget
    now: int
    facts: Sequence[FactRow] = ()
    archive_tool: str = ""
    provider: str = "openai_chat"
    milliseconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    recall: Recall = field(default_factory=Recall)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = round((time.perf_counter() - start) * 1000, 3)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Time a step in which memory may fail: the request goes on, and the report says why."""
        with self.step(name):
            try:
                yield
            except WindowError:
                raise
            except HoldfastError as error:
                self.warnings.append(f"{name}: {error}")


def assemble(
    session: Session, messages: Sequence[Incoming], turn: Turn, *, format: str | None, provider: str | None
) -> Window:
    """Make the window for the next request of a session. The caller holds the lock of the session."""
    state = session.state
    with turn.guard("archive"):
        state.update(messages, format=format)  # strips recalled text and archives what is new, durably
        state.load()
    if state.reported_edits is None:
        state.reported_edits = len(state.edits)
    session.engine.notify()
    new: tuple[Edit, ...] = ()
    if turn.warnings:
        items = state.read_unmanaged(messages, format=format)
        provider = provider or providers.format_of(messages_of(items), default=turn.provider)
        valid = validate(messages_of(items), provider)
    else:
        turn.limits = state.limits = replace(turn.limits, scale=state.token_scale)
        with turn.step("compact"):
            session.compact_if_due()
        provider = turn.provider = provider or state.provider(default=turn.provider)
        items, new = _plan_and_record(state, turn)
        with turn.step("verify"):
            reasoning = providers.link_reasoning(messages_of(state.history)) if provider == "openai_responses" else {}
            valid = state.validation.validate(items, provider, reasoning=reasoning)
    turn.warnings += session.engine.take_warnings(state)
    report = _report(state, turn, items, new, valid)
    return Window(items=items, provider=provider, valid=valid, report=report)


def _plan_and_record(state: SessionState, turn: Turn) -> Planned:
    """Plan the window and record its new edits, durably, before it is sent.

    Where another process has recorded an edit meanwhile, the window is planned again with that edit.
    """
    for tries_left in reversed(range(MAX_TRIES)):
        items, new = _plan(state, turn)
        with turn.guard("record"):
            try:
                state.record(new, time=turn.now)
            except ConflictError:
                if tries_left:
                    continue
                raise
            state.keep_window(items, limit=turn.limits.safe_limit)
        break
    state.last_time = turn.now
    return items, new


def _plan(state: SessionState, turn: Turn) -> Planned:
    """Replay the recorded edits, then prune, trim, recall and place."""
    settings = state.memory.settings
    query = state.question(most=settings.recall.query_messages)

    def score() -> dict[int, float]:
        """Score messages by relevance to the question; where memory fails, the oldest go first."""
        scores: dict[int, float] = {}
        with turn.guard("relevance"):
            scores |= state.memory.scores(query, scope=state.scope)
        return scores

    with turn.step("plan"):
        items, standing = state.replay(limit=turn.limits.safe_limit)
        pause = None if state.last_time is None else min(max(0, turn.now - state.last_time), MAX_PAUSE)
        planned = plan_edits(
            items,
            standing,
            budget=turn.limits,
            settings=_with_pruning(settings, provider=turn.provider),
            query=" ".join(query),
            scores=score,
            idle=None if pause is None else timedelta(milliseconds=pause),
            tool=turn.archive_tool,
            count=state.count,
        )
    items, new = planned.items, planned.edits
    with turn.guard("recall"):
        recall_query = build_query(
            settings,
            query,
            scope=state.scope,
            now=turn.now,
            in_window=state.visible_ids(items, new),
            automatic=True,
            facts=turn.facts,
        )
        placed = place_recall(state, turn, recall_query, items)
        items, new = apply(items, placed) if placed else items, (*new, *placed)
    return items, new


def _with_pruning(settings: Settings, *, provider: str) -> Settings:
    """Prune once the cache is cold where the provider is Anthropic and no mode is set."""
    if settings.pruning.mode is not None or provider != "anthropic":
        return settings
    return structs.replace(settings, pruning=structs.replace(settings.pruning, mode="cache-ttl"))


# --- recall ------------------------------------------------------------------


def place_recall(state: SessionState, turn: Turn, query: RecallQuery, items: tuple[Item, ...]) -> tuple[Edit, ...]:
    """Recall what the window does not show, and place it; earlier blocks are removed where there is no room."""
    settings = state.memory.settings
    position = settings.recall.position
    if not settings.recall.automatic or settings.slots.memory == "none":
        switch = "slots.memory is none" if settings.recall.automatic else "recall.automatic is off"
        turn.recall = Recall(reason=switch)
        return ()
    has_question = any(query.texts)
    removed = clear_blocks(items, turn.limits, position=position) if has_question else ()
    if removed:
        bare = apply(items, removed)
        cap = recall_room(bare, turn.limits, position=position)
        block = _recall_block(state, turn, replace(query, cap=cap), bare)
        if block is None or _is_new(state, turn.recall, items):
            return (*removed, block) if block else ()
    cap = recall_room(items, turn.limits, position=position) if has_question else 0
    if cap < MIN_BLOCK:
        turn.recall = Recall(reason="this question has its block already, or there is no room for one")
        return ()
    block = _recall_block(state, turn, replace(query, cap=cap), items)
    return () if block is None else (block,)


def _is_new(state: SessionState, recall: Recall, items: Sequence[Item]) -> bool:
    """Whether the best passage, or half of all, is in no earlier block of the window."""
    quoted = state.find_quoted(items)
    blocks = "\n".join(item.block.text for item in items if item.block)
    if any(fact_line(Fact(type=hit.fact.type, text=hit.fact.content)) not in blocks for hit in recall.facts):
        return True
    new = [hit for hit in recall.hits if hit.passage not in quoted]
    best = max(recall.hits, key=lambda hit: hit.score, default=None)
    return best in new or 2 * len(new) >= max(1, len(recall.hits))


def _recall_block(state: SessionState, turn: Turn, query: RecallQuery, items: Sequence[Item]) -> Edit | None:
    """Recall the block for a question; None where memory returns nothing."""
    memory = state.memory
    query = replace(query, quoted=state.find_quoted(items))
    recall = memory.recall(query)
    if not recall.block and len(query.texts) > 1:  # earlier messages may lead away from the question
        recall = memory.recall(replace(query, texts=query.texts[-1:]))
    words_only = memory.settings.embedding.provider == "none"  # chosen by the user, so not reported
    turn.recall = replace(recall, notes=()) if words_only else recall
    return place(
        items,
        recall.block,
        position=memory.settings.recall.position,
        ids=sorted({hit.message for hit in recall.hits}),
        passages=[hit.passage for hit in recall.hits],
        count=state.count,
    )


# --- report ------------------------------------------------------------------


def _report(
    state: SessionState, turn: Turn, items: tuple[Item, ...], new: Sequence[Edit], valid: ValidWindow
) -> ContextReport:
    """Report the turn, and store the report so that any past turn can be shown."""
    compacted = (edit for edit in state.edits[state.reported_edits or 0 :] if edit.kind == "compacted")
    sent = list(zip(messages_of(items), (item.total for item in items), strict=True))
    if (over := sum(tokens for _, tokens in sent) - turn.limits.prompt) > 0:
        turn.warnings.append(f"the messages take {over:,} tokens of the reserve for the reply: {SPACE_ADVICE}")
    report = build_report(
        items,
        session=state.scope.session,
        turn=state.turn + 1,
        limits=turn.limits,
        edits=(*compacted, *new),
        recall=turn.recall,
        prefix_kept=state.prefix_kept(sent),
        repairs=(*state.stripped, *map(str, valid.repairs)),
        warnings=turn.warnings,
        milliseconds=turn.milliseconds,
        is_calibrated=state.scale is not None,
    )
    state.turn, state.sent, state.sent_tokens = report.turn, sent, report.total_tokens
    state.reported_edits = len(state.edits)
    key = f"{report.turn:08d}:{state.memory.new_id()}"  # another process may be at the same turn
    row = Record(scope=state.scope, kind=TURN, key=key, data=report.to_json(), time=turn.now)
    stored = Turn(limits=turn.limits, now=turn.now)
    with stored.guard("report"):
        state.memory.store.add_records([row])
    return replace(report, warnings=(*report.warnings, *stored.warnings)) if stored.warnings else report
