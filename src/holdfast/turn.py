"""The path of one turn: from the messages of a session to the window that is sent.

`assemble` is the whole path, top to bottom:

    strip old recall -> archive new messages -> prune -> trim -> recall -> place -> record -> validate -> report

Edits are recorded and replayed. Between two cuts a window only grows at its end, so the provider's prompt cache holds.
Memory trouble never blocks a request: without memory, the window has the newest messages that fit, and the report says
why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from holdfast import providers
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply, tokens
from holdfast.context.plan import Plan, clear_blocks, explain_no_block, find_block_place, place, plan_edits, recall_room
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import SPACE_ADVICE, ConflictError, HoldfastError, WindowError
from holdfast.memory.archive import NO_MASKS, Masks
from holdfast.memory.block import Fact, fact_line
from holdfast.memory.query import find_recall_switch
from holdfast.memory.recall import SHOWN, Recall
from holdfast.providers import Incoming
from holdfast.report import ContextReport, categories, change, warn_opaque, workspace_files
from holdfast.state import MAX_TRIES, SessionState
from holdfast.store.base import FactRow
from holdfast.window import Window

if TYPE_CHECKING:
    from holdfast.session import Session

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
        limits, now: The limits of its window, and when it is made, in Unix milliseconds.
        facts: Facts that the caller chose for it; they go into the block first.
        is_recalling: Whether memory is recalled for it.
        question: What the user asks, where the caller sends that after the window.
        model: The name of the model that it goes to, if it is known.
        archive_tool: The name of the tool that shows archived messages, where the model has one.
        provider: The provider whose rules the window must keep; at first, the one where no message shows a format.
        caller: The thread or task that makes it.
        masks: Its new messages, masked before the session was locked.
        milliseconds, warnings: How long each step took, and what failed and was skipped.
        recall: What memory returned.
        edits: The numbers of its new edits, as a range, once they are recorded.
        place: The place of its reply in the conversation, once its messages are archived.
    """

    limits: Budget
    now: int
    facts: Sequence[FactRow] = ()
    is_recalling: bool = True
    question: str = ""
    model: str = ""
    archive_tool: str = ""
    provider: str = "openai_chat"
    caller: object = None
    masks: Masks = NO_MASKS
    milliseconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    recall: Recall = field(default_factory=Recall)
    edits: tuple[int, int] | None = None
    place: str = ""

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
    state, engine = session.state, session.engine
    doing = "archive"
    try:
        archive = partial(_archive, state, messages, turn, format=format)
        engine.ask_memory(archive, scope=state.scope, messages=len(messages))
        doing = "compact"
        with turn.step("compact"):
            session.compact_if_due(is_recalling=turn.is_recalling)
        doing = "plan"
        plan = partial(_assemble_archived, session, state, turn, provider=provider)
        return engine.ask_memory(plan, scope=state.scope)
    except WindowError:
        raise
    except HoldfastError as error:
        if engine.is_memory_hanging(state.scope):
            session.state = state.copy()
        return assemble_without_memory(
            session, messages, turn, format=format, provider=provider, reason=f"{doing}: {error}"
        )


def _archive(state: SessionState, messages: Sequence[Incoming], turn: Turn, *, format: str | None) -> None:
    """Archive what is new, durably, without recalled text, and read the edits of other processes."""
    with turn.step("archive"):
        state.update(messages, format=format, masks=turn.masks)
        turn.place = state.begin_request(caller=turn.caller)
        state.load()
    if state.reported_edits is None:
        state.reported_edits = len(state.edits)
    turn.limits = state.limits = replace(turn.limits, scale=state.token_scale)


def _assemble_archived(session: Session, state: SessionState, turn: Turn, *, provider: str | None) -> Window:
    """Make the window of a history that is archived."""
    session.engine.notify()
    provider = turn.provider = provider or state.provider(default=turn.provider)
    items, new = _plan_and_record(state, turn)
    with turn.step("verify"):
        valid = _validate(state, turn, items, provider)
    trouble = (*turn.warnings, *state.notes)
    turn.warnings += session.engine.take_warnings(state)
    block = turn.recall.block if turn.question else ""
    report = _record_report(state, turn, _make_report(state, turn, items, new, valid))
    return Window(
        items=items,
        provider=provider,
        valid=valid,
        report=report,
        block=block,
        trouble=trouble,
        place=turn.place,
    )


def assemble_without_memory(
    session: Session, messages: Sequence[Incoming], turn: Turn, *, format: str | None, provider: str | None, reason: str
) -> Window:
    """Make a window of the newest messages that fit, without the store; `reason` says why.

    Edits that are known are applied, so that the beginning of the window stays the same. New ones are not recorded:
    what they remove comes back, and is archived, with the next request for which memory works.
    """
    state = session.state
    turn = replace(
        turn,
        limits=replace(turn.limits, scale=state.token_scale),
        milliseconds={},  # a thread that hangs may still write into the old ones
        warnings=[reason],
        recall=Recall(reason="memory failed"),
        edits=None,
    )
    with turn.step("plan"):
        items, standing = state.replay_unarchived(messages, format=format, limit=turn.limits.safe_limit)
        settings = state.memory.settings
        plan = plan_edits(
            items,
            standing,
            budget=turn.limits,
            settings=structs.replace(settings, pruning=structs.replace(settings.pruning, mode="off")),
            question_follows=bool(turn.question),
            is_recorded=False,
            count=state.count,
        )
    history = [item.message for item in items]
    turn.provider = provider or providers.format_of(history, default=turn.provider)
    with turn.step("verify"):
        valid = _validate_question_alone(turn, plan.items, turn.provider)
        if valid is None:
            links = providers.link_reasoning(history)
            valid = validate([item.sent for item in plan.items], turn.provider, reasoning=links)
    if removed := len(items) - len(plan.items):
        turn.warnings.append(f"{removed} older messages do not fit and are left out until memory works again")
    trouble = (*turn.warnings, *state.notes)
    turn.warnings += session.engine.take_warnings(state)
    window = tuple(item if item.id >= 0 else replace(item, id=0) for item in plan.items)
    new = [structs.replace(edit, ids=tuple(number for number in edit.ids if number > 0)) for edit in plan.edits]
    report = _make_report(state, turn, window, new, valid)
    return Window(items=window, provider=turn.provider, valid=valid, report=report, trouble=trouble, has_memory=False)


def _validate(state: SessionState, turn: Turn, items: tuple[Item, ...], provider: str) -> ValidWindow:
    alone = _validate_question_alone(turn, items, provider)
    if alone is not None:
        return alone
    history = [item.message for item in state.history] if provider == "openai_responses" else []
    return state.validation.validate(items, provider, reasoning=providers.link_reasoning(history))


def _validate_question_alone(turn: Turn, items: Sequence[Item], provider: str) -> ValidWindow | None:
    """Return the window before a question that is the only message; None if there are others."""
    if not turn.question or any(item.kind != "system" for item in items):
        return None
    return ValidWindow(provider=provider, messages=tuple(item.sent for item in items), wire=(), repairs=())


def _plan_and_record(state: SessionState, turn: Turn) -> Planned:
    """Plan the window and record its new edits, durably; again where another process recorded one meanwhile."""
    for tries_left in reversed(range(MAX_TRIES)):
        items, new = _plan(state, turn)
        first = state.next_edit
        with turn.guard("record"):
            try:
                state.record(new, time=turn.now)
            except ConflictError:
                if tries_left:
                    continue
                raise
            state.shown, state.shown_with = items, state.replay_key(limit=turn.limits.safe_limit)
            turn.edits = (first, first + len(new))
        break
    state.last_time = turn.now
    return items, new


def _plan(state: SessionState, turn: Turn) -> Planned:
    """Replay the recorded edits, then prune, trim, recall and place."""
    settings = state.memory.settings
    query = state.question(most=settings.recall.query_messages, newest=turn.question)
    switch = find_recall_switch(settings) if turn.is_recalling else "no recall was asked for"

    def score() -> dict[int, float]:
        """Score messages by relevance to the question; where memory fails, the oldest go first."""
        scores: dict[int, float] = {}
        with turn.guard("relevance"):
            scores |= state.memory.scores(query, scope=state.scope)
        return scores

    if settings.pruning.mode is None and turn.provider == "anthropic":  # prune once its cache is cold
        settings = structs.replace(settings, pruning=structs.replace(settings.pruning, mode="cache-ttl"))
    with turn.step("plan"):
        items, standing = state.replay(limit=turn.limits.safe_limit)
        pause = None if state.last_time is None else min(max(0, turn.now - state.last_time), MAX_PAUSE)
        planned = plan_edits(
            items,
            standing,
            budget=turn.limits,
            settings=settings,
            query=" ".join(query),
            scores=score,
            idle=None if pause is None else timedelta(milliseconds=pause),
            tool=turn.archive_tool,
            question_follows=bool(turn.question),
            is_recalling=not switch,
            count=state.count,
        )
    with turn.guard("recall"):
        if switch:
            turn.recall = Recall(reason=switch)
        else:
            planned = planned.add(_place_recall(state, turn, query, planned))
    return planned.items, planned.edits


def _place_recall(state: SessionState, turn: Turn, texts: Sequence[str], plan: Plan) -> tuple[Edit, ...]:
    """Recall what the window does not show, and place it; earlier blocks are removed where there is no room."""
    position = state.memory.settings.recall.position
    asks_nothing = not any(text.strip() for text in texts)
    reason = explain_no_block(plan.items, position="head" if turn.question else position)
    turn.recall = Recall(reason="the question has no words" if asks_nothing else reason)
    if turn.question:  # the caller places the block before it
        if (cap := recall_room(plan.items, turn.limits, position="head")) >= MIN_BLOCK:
            _recall_block(state, turn, texts, plan, cap=cap)
        return ()
    into = find_block_place(plan.items)
    if position == "tail" and into is not None and into.block is None and state.was_sent(into):
        # A block would change a message that the provider's cache has.
        turn.recall = Recall(reason="this question was sent without a block")
        return ()
    for removed in dict.fromkeys((clear_blocks(plan.items, turn.limits, position=position), ())):
        items = apply(plan.items, removed)
        cap = recall_room(items, turn.limits, position=position)
        if cap >= MIN_BLOCK and not asks_nothing:
            block = _recall_block(state, turn, texts, replace(plan, items=items), cap=cap)
            if block is None or not removed or _is_new(turn.recall, plan.items):
                return (*removed, block) if block else ()
            turn.recall = Recall(reason=SHOWN, notes=turn.recall.notes)
    return ()


def _recall_block(state: SessionState, turn: Turn, texts: Sequence[str], plan: Plan, *, cap: int) -> Edit | None:
    """Recall the block for a question; None where memory returns nothing."""
    turn.recall = Recall(reason="memory failed")  # as long as it has returned nothing
    memory, settings = state.memory, state.memory.settings
    # Of a shortened message, most can only be recalled.
    shortened = {number for edit in (*state.edits, *plan.edits) if edit.kind == "pruned" for number in edit.ids}
    in_window = {item.id for item in plan.items} - shortened
    query = memory.query(
        texts, scope=state.scope, now=turn.now, cap=cap, in_window=in_window, automatic=True, facts=turn.facts
    )
    quoted, shown = _find_quoted(plan.items)
    recall = memory.recall(replace(query, quoted=quoted, shown=shown))
    if settings.embedding.provider == "none":  # chosen by the user, so not reported
        recall = replace(recall, notes=tuple(note for note in recall.notes if note not in memory.choice.reasons))
    turn.recall = recall
    return place(
        plan.items,
        recall.block,
        position=settings.recall.position,
        ids=sorted({hit.message for hit in recall.hits}),
        passages=[hit.passage for hit in recall.hits if hit.is_whole],
        count=state.count,
    )


def _find_quoted(items: Sequence[Item]) -> tuple[set[int], list[str]]:
    """Return the passages that blocks of the window quote whole, and the blocks."""
    blocks = [item.block for item in items if item.block]
    return {number for block in blocks for number in block.passages}, [block.text for block in blocks]


def _is_new(recall: Recall, items: Sequence[Item]) -> bool:
    """Whether a fact, the best passage by score or by words, or half of all passages, is in no earlier block."""
    blocks = "\n".join(_find_quoted(items)[1])
    if any(fact_line(Fact(type=hit.fact.type, text=hit.fact.content)) not in blocks for hit in recall.facts):
        return True
    old = [hit for hit in recall.hits if hit.text in blocks]
    new = [hit for hit in recall.hits if hit.text not in blocks]
    if len(new) >= len(old):
        return bool(new)
    return any(
        max(map(measure, new), default=0.0) > max(map(measure, old))
        for measure in (attrgetter("score"), attrgetter("parts.share"))
    )


def _make_report(
    state: SessionState, turn: Turn, items: tuple[Item, ...], new: Sequence[Edit], valid: ValidWindow
) -> ContextReport:
    """Report the turn."""
    compacted = [edit for edit in state.edits[state.reported_edits or 0 :] if edit.kind == "compacted"]
    total = tokens(items) + turn.limits.overhead
    if (over := total - turn.limits.compact_at) > 0:
        turn.warnings.append(f"the messages take {over:,} tokens of the reserve for the reply: {SPACE_ADVICE}")
    pairs = zip(state.sent, items, strict=False)
    same = takewhile(lambda pair: pair[0] is pair[1] or pair[0].sent == pair[1].sent, pairs)
    warnings = [*turn.warnings, *turn.recall.notes, *warn_opaque(items)]
    if turn.limits.note:
        warnings.append(turn.limits.note)
    report = ContextReport(
        session=state.scope.session,
        turn=state.turn + 1,
        total_tokens=total,
        raw_max_tokens=turn.limits.window,
        limit_source=turn.limits.source,
        reserved_tokens=turn.limits.reserve,
        percentage=round(100 * total / turn.limits.window, 1),
        categories=categories(items, budget=turn.limits),
        changes=tuple(map(change, (*compacted, *new))),
        recalled=turn.recall.hits,
        recalled_facts=tuple(hit.fact.id for hit in turn.recall.facts),
        recall_reason=turn.recall.reason,
        model=turn.model or None,
        prefix_kept=tokens(old for old, _ in same) / tokens(state.sent) if state.sent else None,
        repairs=(*state.stripped, *map(str, valid.repairs)),
        warnings=tuple(dict.fromkeys(warnings)),
        milliseconds=turn.milliseconds,
        files=workspace_files(items),
        token_scale=turn.limits.scale,
        is_calibrated=state.scale is not None,
    )
    state.turn = report.turn
    state.sent, state.sent_tokens, state.reported_edits = items, total, len(state.edits)
    return report


def _record_report(state: SessionState, turn: Turn, report: ContextReport) -> ContextReport:
    """Store a report, so that any past turn can be shown."""
    try:
        state.record_turn(report, time=turn.now, edits=turn.edits, limit=turn.limits.safe_limit, provider=turn.provider)
    except HoldfastError as error:
        return replace(report, warnings=(*report.warnings, f"report: {error}"))
    return report
