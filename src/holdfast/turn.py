"""One turn: from the history of a session to the window that is sent.

    replay the recorded edits -> prune -> trim -> overview -> recall -> place -> validate -> report

`assemble` takes values and returns values: it archives nothing and records nothing. `Session.assemble` archives before
it and records after it. Between two cuts a window only grows at its end, so the provider's prompt cache holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain
from typing import Final

from msgspec import structs

from holdfast import providers
from holdfast.context.budget import Budget
from holdfast.context.edits import (
    Edit,
    Item,
    apply,
    begins_window,
    branch_edits,
    drop_forgotten,
    in_force,
    lost_overview,
    needs_overview,
    tokens,
)
from holdfast.context.plan import (
    Plan,
    Position,
    clear_blocks,
    explain_no_block,
    find_block_place,
    overview_room,
    place,
    place_overview,
    plan_edits,
    recall_room,
)
from holdfast.context.validate import ValidationCache, ValidWindow, validate
from holdfast.edit_log import EditLog
from holdfast.errors import SPACE_ADVICE, HoldfastError, WindowError
from holdfast.history import History
from holdfast.memory.block import Fact, fact_line, session_lines
from holdfast.memory.block_room import MAX_STATEMENT_TOKENS
from holdfast.memory.memory import Memory
from holdfast.memory.overview import past_session
from holdfast.memory.passage_search import Hit
from holdfast.memory.query import Shown, asks_something, find_recall_switch
from holdfast.memory.recall import NO_WORDS, SHOWN, Recall, is_searchable
from holdfast.report import (
    Change,
    ContextReport,
    Window,
    categories,
    change,
    find_overview,
    warn_opaque,
    workspace_files,
)
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Select
from holdfast.timeline import Timeline
from holdfast.tokens import MESSAGE_TOKENS

MEMORY_TOOLS: Final = (
    "archive_get",
    "archive_describe",
    "archive_expand",
    "memory_get",
    "memory_recall",
    "memory_search",
    "memory_timeline",
)
"""The tools with which a model reads memory by itself. Hosts may put a prefix before their names."""
MAX_PAUSE: Final = 10**15
"""The longest pause between two requests, in milliseconds: a wrong clock could give one that does not fit a
timedelta."""
MIN_BLOCK: Final = 64
"""The minimum room for a block, in tokens. With less, nothing is recalled."""

# The next three decide when earlier blocks are removed for a new one. That changes messages in the middle of the
# window, so the provider reads most of it again at the full price. In a diary of 40 notes that ask nothing, 13 notes
# removed blocks before there were such conditions, and 2 with them. `python -m benchmarks windows` counts these cuts.
WEAK_BLOCK: Final = 300
"""Tokens that are enough for a weak match: if there is room for them, a weak match removes nothing."""
SURE: Final = 1.0
"""The minimum confidence of a match that may remove earlier blocks to get a larger one."""
MIN_LARGER: Final = 1.25
"""How many times larger a block must be to be worth the earlier blocks, compared with the one for which there is room.

A few more lines are not worth them.
"""
TOO_WEAK: Final = "earlier blocks take the room for recalled text, and the message asks nothing that is worth a cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a session, as the caller made it and as the session archived it.

    Attributes:
        limits: The limits of its window.
        now: When it is made, in Unix milliseconds.
        facts: Facts that the caller chose for it; they go into the block first.
        standing: Facts that the caller wants in the overview, if this request gets one.
        is_recalling: Whether memory is recalled for it.
        question: The user's question, if the caller sends it after the window.
        model: The name of the model that it goes to, if it is known.
        archive_tool: The name of the tool that shows archived messages, if the model has one.
        provider: The provider whose rules the window must keep; None to use the format of the newest message.
        default_provider: The provider if no message shows a format.
        stripped: One line for each new message from which recalled text was removed.
    """

    limits: Budget
    now: int
    facts: Sequence[FactRow] = ()
    standing: Sequence[FactRow] = ()
    is_recalling: bool = True
    question: str = ""
    model: str = ""
    archive_tool: str = ""
    provider: str | None = None
    default_provider: str = "openai_chat"
    stripped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decisions, findings and measurements of a turn.

    Attributes:
        edits: The new edits. They must be recorded before the window is sent.
        recall: What memory returned for the question.
        failures: What failed and was skipped.
        milliseconds: How long each step took.
    """

    edits: tuple[Edit, ...]
    recall: Recall
    failures: tuple[str, ...]
    milliseconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Steps:
    """Measures the steps of a request, and collects the failures that do not stop it."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = round((time.perf_counter() - start) * 1000, 3)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Time a step in which memory may fail: the request continues, and the report contains the reason."""
        with self.measure(name):
            try:
                yield
            except WindowError:  # not about memory: a window without memory would have the same fault
                raise
            except HoldfastError as error:
                self.failures.append(f"{name}: {error}")


def assemble(
    history: History,
    edits: EditLog,
    timeline: Timeline,
    memory: Memory,
    request: Request,
    *,
    validation: ValidationCache,
) -> tuple[Window, Outcome]:
    """Make the window of a history that is archived.

    Args:
        history: The messages of the request.
        edits: The recorded edits of the session.
        timeline: The requests before this one.
        memory: The memory to recall from.
        request: The request.
        validation: The valid beginning of the last window, so that only the rest is validated.

    Returns:
        The window, and what was decided, found and measured. New edits are not recorded yet.

    Raises:
        WindowTooSmallError: What must stay in the window does not fit.
        InvalidWindowError: The window breaks a rule of the provider that could not be repaired.
    """
    steps = Steps()
    settings = memory.settings
    provider = request.provider or history.detect_format(default=request.default_provider)
    texts = history.find_question(max_messages=settings.recall.query_messages, newest=request.question)
    why_off = "no recall was asked for"  # empty if something may be recalled
    if request.is_recalling:
        why_off = find_recall_switch(settings)
    with steps.measure("plan"):
        plan = _plan(
            history,
            edits,
            timeline,
            memory,
            request,
            steps=steps,
            texts=texts,
            provider=provider,
            # This also decides how messages are trimmed, because without recall nothing brings them back. So it
            # depends on the settings and the request as a whole. `_recall` decides about this one question.
            is_recalling=not why_off,
        )
    # The overview comes before the recall, which does not quote again what the overview contains.
    if not why_off:
        known_edits = chain(edits.edits, plan.edits)
        is_due = needs_overview(plan.items, known_edits, is_first=_is_first(history, timeline))
        if is_due or not history.messages:
            with steps.guard("overview"):
                overview = _make_overview(history, edits, timeline, memory, request, plan=plan, is_due=is_due)
                plan = plan.add(overview)
    recall = Recall(reason=why_off or "memory failed")  # what the report says unless `_recall` returns
    with steps.guard("recall"):
        if not why_off:
            recall, placed = _recall(history, edits, timeline, memory, request, plan=plan, texts=texts)
            plan = plan.add(placed)
    with steps.measure("verify"):
        valid = _validate_question_alone(request, plan.items, provider)
        if valid is None:
            links: Mapping[str, str] = {}
            if provider == "openai_responses":  # only this API links reasoning to the messages that it belongs to
                links = providers.link_reasoning([item.message for item in history.messages])
            valid = validation.validate(plan.items, provider, reasoning=links)
    outcome = Outcome(
        edits=plan.edits,
        recall=recall,
        failures=tuple(steps.failures),
        milliseconds=steps.milliseconds,
    )
    block = ""
    if request.question:  # the caller places it before the question; otherwise it is in the window
        block = recall.block
    window = Window(
        items=plan.items,
        provider=provider,
        valid=valid,
        report=_report(
            edits,
            timeline,
            request,
            items=plan.items,
            valid=valid,
            outcome=outcome,
            question=history.find_question_numbers(texts),
            conversation=_measure_conversation(history),
        ),
        block=block,
        failures=outcome.failures,
    )
    return window, outcome


def assemble_without_memory(
    items: Sequence[Item], edits: EditLog, timeline: Timeline, settings: Settings, request: Request, *, reason: str
) -> tuple[Window, Outcome]:
    """Make a window of the newest messages that fit, without the store.

    Known edits are applied, so that the beginning of the window stays the same. New ones must not be recorded: what
    they remove comes back, and is archived, with the next request for which memory works.

    Args:
        items: The messages of the request, as `History.read_unarchived` returns them.
        edits: The edits that are known.
        timeline: The requests before this one.
        settings: The settings in force.
        request: The request.
        reason: Why memory is not used. It goes into the report.
    """
    steps = Steps()
    steps.failures.append(reason)
    # Only the limit may shorten anything: until memory works again, the rest of a pruned result cannot be shown.
    unpruned = structs.replace(settings, pruning=structs.replace(settings.pruning, mode="off"))
    with steps.measure("plan"):
        archived = {item.id for item in items if item.kind == "message" and item.id >= 0}
        standing = in_force(branch_edits(edits.edits, archived), limit=request.limits.safe_limit)
        replayed = apply(drop_forgotten(items), standing)
        plan = plan_edits(
            replayed,
            standing,
            budget=request.limits,
            settings=unpruned,
            question_follows=bool(request.question),
            is_recorded=False,
            count=timeline.count,
        )
    messages = [item.message for item in replayed]
    provider = request.provider or providers.format_of(messages, default=request.default_provider)
    with steps.measure("verify"):
        valid = _validate_question_alone(request, plan.items, provider)
        if valid is None:
            links = providers.link_reasoning(messages)
            valid = validate([item.sent for item in plan.items], provider, reasoning=links)
    removed = len(replayed) - len(plan.items)
    if removed:
        steps.failures.append(f"{removed} older messages do not fit and are left out until memory works again")
    # Messages that are not archived have negative numbers, which only the plan needed.
    window_items = tuple(item if item.id >= 0 else replace(item, id=0) for item in plan.items)
    named_edits: list[Edit] = []
    for edit in plan.edits:
        archived_ids = tuple(number for number in edit.ids if number > 0)
        named_edits.append(structs.replace(edit, ids=archived_ids))
    outcome = Outcome(
        edits=tuple(named_edits),
        recall=Recall(reason="memory failed"),
        failures=tuple(steps.failures),
        milliseconds=steps.milliseconds,
    )
    window = Window(
        items=window_items,
        provider=provider,
        valid=valid,
        report=_report(edits, timeline, request, items=window_items, valid=valid, outcome=outcome),
        failures=outcome.failures,
        has_memory=False,
    )
    return window, outcome


# --- plan ------------------------------------------------------------------------------


def _plan(
    history: History,
    edits: EditLog,
    timeline: Timeline,
    memory: Memory,
    request: Request,
    *,
    steps: Steps,
    texts: Sequence[str],
    provider: str,
    is_recalling: bool,
) -> Plan:
    """Replay the recorded edits, then prune and trim."""

    def score() -> dict[int, float]:
        """Score messages by relevance to the question; if memory fails, the oldest go first."""
        scores: dict[int, float] = {}
        with steps.guard("relevance"):
            scores |= memory.scores(texts, scope=history.scope)
        return scores

    settings = memory.settings
    if settings.pruning.mode is None and provider == "anthropic":  # prune once its cache is cold
        settings = structs.replace(settings, pruning=structs.replace(settings.pruning, mode="cache-ttl"))
    replay = edits.replay(history.system, history.messages, limit=request.limits.safe_limit)
    idle = None
    if timeline.last_time is not None:
        pause = min(max(0, request.now - timeline.last_time), MAX_PAUSE)
        idle = timedelta(milliseconds=pause)
    return plan_edits(
        replay.items,
        replay.edits,
        budget=request.limits,
        settings=settings,
        query=" ".join(texts),
        scores=score,
        idle=idle,
        tool=request.archive_tool,
        question_follows=bool(request.question),
        is_recalling=is_recalling,
        count=history.count,
    )


# --- the overview ----------------------------------------------------------------------


def _is_first(history: History, timeline: Timeline) -> bool:
    """Whether a request begins the conversation, or begins it again with another first message."""
    return timeline.turn == 0 or not any(item.message.role == "assistant" for item in history.messages)


def _is_emptied(history: History, memory: Memory) -> bool:
    """Whether the client starts over in a session that has archived messages, as OpenClaw does after a reset."""
    return not history.messages and bool(memory.store.read_messages(Select(scope=history.scope, limit=1)))


def _make_overview(
    history: History, edits: EditLog, timeline: Timeline, memory: Memory, request: Request, *, plan: Plan, is_due: bool
) -> tuple[Edit, ...]:
    """Return the edit that places an overview; nothing if none is due, it does not fit, or it would be empty.

    It goes into the newest message of the user. If the caller sends the question after the window, or blocks are at the
    head, it is a message of its own after the system prompt. It never changes what the provider has cached.
    """
    is_emptied = _is_emptied(history, memory)
    if not is_due and not is_emptied:
        return ()
    unreported = edits.edits[timeline.reported_edits or 0 :]
    is_cut = any(begins_window(edit) for edit in (*unreported, *plan.edits))
    into: int | None = None
    if request.question:
        # After the system prompt it changes the whole prefix: only if that is not cached, or has changed anyway.
        if timeline.sent and not is_emptied and not is_cut and not lost_overview(edits.edits):
            return ()
    elif memory.settings.recall.position == "tail":
        newest = find_block_place(plan.items)
        if newest is None or not newest.id or (timeline.was_sent(newest) and not is_cut):
            return ()
        into = newest.id
    room = overview_room(plan.items, request.limits, cap=memory.settings.recall.overview_tokens)
    if not room:
        return ()
    if into is None:  # it is a message of its own
        room -= MESSAGE_TOKENS
    overview = memory.make_overview(
        scope=history.scope,
        cap=room,
        has_own=is_emptied,
        archive_tool=request.archive_tool,
        standing=request.standing,
        count=history.count,
    )
    placed = find_overview(plan.items)
    if not overview.text or (placed is not None and placed.text == overview.text):
        return ()
    reason = "at the start"
    if is_cut:
        reason = "after a cut"
    return (
        place_overview(
            overview.text,
            into=into,
            reason=f"an overview of the project, {reason}",
            ids=overview.messages,
            facts=overview.facts,
            sessions=[line.scope.session for line in overview.sessions],
            count=history.count,
        ),
    )


# --- recall ----------------------------------------------------------------------------


def _recall(
    history: History,
    edits: EditLog,
    timeline: Timeline,
    memory: Memory,
    request: Request,
    *,
    plan: Plan,
    texts: Sequence[str],
) -> tuple[Recall, tuple[Edit, ...]]:
    """Recall what the window does not show, and return the edits that place it.

    The conditions, in order:

    1. The caller sends the question after the window: the block is for the caller to place, without an edit. There is
       none if the window leaves no room for it.
    2. The question was sent without a block before: nothing, because a block would change what the provider has cached.
    3. No message of the user has words to search for: nothing.
    4. The window has no room for a block, no place for it, or the question has its block already: nothing, unless the
       next condition holds.
    5. Earlier blocks leave a new one so little room that not even a weak match fits, or less than a good match needs:
       recall as if they were removed. They are, if what memory then returns is worth a cut.
    6. Otherwise, the block that memory returns, if it returns one.

    A block at the tail stays until the next cut, which removes all blocks; a block at the head is for this request only
    (see `holdfast.context.edits.in_force`).
    """
    # Most of a shortened message is not in the window, so it may be recalled.
    shortened: set[int] = set()
    for edit in (*edits.edits, *plan.edits):
        if edit.kind == "pruned":
            shortened.update(edit.ids)

    def recall(items: Sequence[Item], room: int) -> tuple[Recall, Edit | None]:
        return _recall_block(history, memory, request, items, texts=texts, cap=room, shortened=shortened)

    position = memory.settings.recall.position
    if request.question:
        # Whatever the setting says, the caller places the block before the question: nothing in the window changes.
        room = recall_room(plan.items, request.limits, position="head")
        if room < MIN_BLOCK:
            return Recall(reason=_explain_no_recall(plan.items, texts, position="head")), ()
        found, _ = recall(plan.items, room)
        return found, ()
    into = find_block_place(plan.items)
    if position == "tail" and into is not None and into.block is None and timeline.was_sent(into):
        # A block would change a message that the provider's cache has.
        return Recall(reason="this question was sent without a block"), ()
    nothing = Recall(reason=_explain_no_recall(plan.items, texts, position=position))
    if not is_searchable(texts):
        return nothing, ()
    room = recall_room(plan.items, request.limits, position=position)
    found = nothing
    block: Edit | None = None
    if room >= MIN_BLOCK:
        found, block = recall(plan.items, room)
    # The fifth condition. A second recall takes as long as the first one, so it is made only if it may pay.
    cleared = clear_blocks(plan.items, request.limits, position=position)
    if cleared and (room < WEAK_BLOCK or found.confidence >= SURE):
        items = apply(plan.items, cleared)
        cleared_room = recall_room(items, request.limits, position=position)
        if cleared_room >= MIN_BLOCK:
            more, larger = recall(items, cleared_room)
            size = 0
            if block is not None:
                size = block.tokens_after
            is_worth_it = _is_worth_a_cut(more, plan.items, texts)
            if larger is not None and larger.tokens_after > MIN_LARGER * size and is_worth_it:
                return more, (*cleared, larger)
            if block is None:
                found = _explain_kept_blocks(more, plan.items)
    if block is None:
        return found, ()
    return found, (block,)


def _is_worth_a_cut(recall: Recall, items: Sequence[Item], texts: Sequence[str]) -> bool:
    """Return whether a block is worth removing the earlier ones, which costs the provider's cache most of the window.

    It must contain something new, and answer a question or match well. The next step of some work always matches well,
    because work repeats itself. Its block is small, so the size decides too.
    """
    if not _is_new(recall, items):
        return False
    if recall.facts or asks_something(texts[-1]):
        return True
    return recall.confidence >= SURE and recall.size > MAX_STATEMENT_TOKENS


def _explain_kept_blocks(recall: Recall, items: Sequence[Item]) -> Recall:
    """Return a recall without its block, and with the reason why earlier blocks stay instead."""
    if not recall.block:
        return recall
    reason = SHOWN
    if _is_new(recall, items):
        reason = TOO_WEAK
    return Recall(
        reason=reason,
        confidence=recall.confidence,
        texts=recall.texts,
        size=recall.size,
        cap=recall.cap,
        warnings=recall.warnings,
    )


def _explain_no_recall(items: Sequence[Item], texts: Sequence[str], *, position: Position) -> str:
    if not is_searchable(texts):
        return NO_WORDS
    return explain_no_block(items, position=position)


def _recall_block(
    history: History,
    memory: Memory,
    request: Request,
    items: Sequence[Item],
    *,
    texts: Sequence[str],
    cap: int,
    shortened: set[int],
) -> tuple[Recall, Edit | None]:
    """Recall the block for a question, and return the edit that places it; None if memory returns nothing."""
    recall = memory.recall(
        texts,
        scope=history.scope,
        automatic=True,
        cap=cap,
        now=request.now,
        shown=_find_shown(items, shortened=shortened),
        facts=request.facts,
    )
    block = place(
        items,
        recall.block,
        position=memory.settings.recall.position,
        reason=recall.match,
        ids=recall.messages,
        passages=recall.whole_passages,
        count=history.count,
    )
    return recall, block


def _find_shown(items: Sequence[Item], *, shortened: set[int]) -> Shown:
    """Return what a window shows. A shortened message does not count as shown."""
    passages: set[int] = set()
    for item in items:
        if item.block:
            passages.update(item.block.passages)
    messages = {item.id for item in items} - shortened
    instructions = [item.message.text for item in items if item.kind == "system"]
    return Shown(messages=messages, passages=passages, blocks=_read_blocks(items), instructions=instructions)


def _read_blocks(items: Sequence[Item]) -> list[str]:
    """Return the texts of the blocks of a window."""
    texts: list[str] = []
    for item in items:
        if item.kind == "overview":
            texts.append(item.message.text)
        for block in item.blocks:
            texts.append(block.text)
    return texts


def _is_new(recall: Recall, items: Sequence[Item]) -> bool:
    """Return whether a recall contains something important that no earlier block of the window contains.

    Any fact or session is important, and so is the best passage by score or by words, or half of the passages.
    """
    blocks = "\n".join(_read_blocks(items))
    for hit in recall.facts:
        if fact_line(Fact(type=hit.fact.type, text=hit.fact.content)) not in blocks:
            return True
    for line in recall.sessions:
        if session_lines(past_session(line)) not in blocks:
            return True
    old: list[Hit] = []
    new: list[Hit] = []
    for passage in recall.hits:
        if passage.text in blocks:
            old.append(passage)
        else:
            new.append(passage)
    if not new:
        return False
    if len(new) >= len(old):
        return True
    if max(hit.score for hit in new) > max(hit.score for hit in old):
        return True
    return max(hit.parts.share for hit in new) > max(hit.parts.share for hit in old)


# --- verify and report -----------------------------------------------------------------


def _validate_question_alone(request: Request, items: Sequence[Item], provider: str) -> ValidWindow | None:
    """Return the window before a question that is the only message; None if there are others.

    No provider accepts a system prompt alone, but with the question that the caller adds the request is valid.
    """
    if not request.question:
        return None
    if any(item.kind != "system" for item in items):
        return None
    return ValidWindow(provider=provider, messages=tuple(item.sent for item in items), wire=(), repairs=())


def _report(
    edits: EditLog,
    timeline: Timeline,
    request: Request,
    *,
    items: tuple[Item, ...],
    valid: ValidWindow,
    outcome: Outcome,
    question: tuple[int, ...] = (),
    conversation: _Conversation | None = None,
) -> ContextReport:
    """Make the report of a turn. `Session` adds failures to record it."""
    if conversation is None:
        conversation = _Conversation()
    limits = request.limits
    # Compactions are recorded between two turns, by this process or another one. The next report lists them.
    new_edits: list[Edit] = []
    for edit in edits.edits[timeline.reported_edits or 0 :]:
        if edit.kind == "compacted":
            new_edits.append(edit)
    new_edits += outcome.edits
    changes = [change(edit) for edit in new_edits]
    if request.question and outcome.recall.block:
        changes.append(_make_change_of_caller(outcome.recall))
    total = tokens(items) + limits.overhead
    warnings = list(outcome.failures)
    over = total - limits.compact_at
    if over > 0:
        warnings.append(f"the messages take {over:,} tokens of the reserve for the reply: {SPACE_ADVICE}")
    warnings += outcome.recall.warnings
    warnings += warn_opaque(items)
    if limits.warning:
        warnings.append(limits.warning)
    overview = find_overview(items)
    overview_tokens = 0
    if overview is not None:
        overview_tokens = overview.tokens
    whole_tokens = 0
    if conversation.tokens:
        whole_tokens = conversation.tokens + limits.overhead
    return ContextReport(
        session=timeline.scope.session,
        turn=timeline.turn + 1,
        total_tokens=total,
        raw_max_tokens=limits.window,
        limit_source=limits.source,
        reserved_tokens=limits.reserve,
        percentage=round(100 * total / limits.window, 1),
        categories=categories(items, budget=limits),
        changes=tuple(changes),
        recalled=outcome.recall.hits,
        recalled_facts=tuple(hit.fact.id for hit in outcome.recall.facts),
        recall_reason=outcome.recall.reason,
        question=question,
        recall_texts=outcome.recall.texts,
        recall_confidence=round(outcome.recall.confidence, 3),
        recall_size=outcome.recall.size,
        recall_cap=outcome.recall.cap,
        missed=outcome.recall.missed,
        overview_tokens=overview_tokens,
        model=request.model or None,
        prefix_kept=_measure_kept_prefix(timeline.sent, items),
        repairs=(*request.stripped, *map(str, valid.repairs)),
        warnings=tuple(dict.fromkeys(warnings)),  # each text once, in order
        milliseconds=outcome.milliseconds,
        files=workspace_files(items),
        token_scale=limits.scale,
        is_calibrated=timeline.scale is not None,
        whole_tokens=whole_tokens,
        user_message=conversation.user_message,
        lookups=conversation.lookups,
        failures=len(outcome.failures),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conversation:
    """What the report says about the conversation as the client sent it, before any edit.

    Attributes:
        tokens: The tokens of all of it.
        user_message: The number of the newest message of the user.
        lookups: Calls of memory tools after that message.
    """

    tokens: int = 0
    user_message: int = 0
    lookups: int = 0


def _measure_conversation(history: History) -> _Conversation:
    user_message = 0
    lookups = 0
    for item in reversed(history.messages):
        if item.message.role == "user":
            user_message = item.id
            break
        for call in item.message.calls:
            if call.name.endswith(MEMORY_TOOLS):
                lookups += 1
    size = tokens(history.system) + tokens(history.messages)
    return _Conversation(tokens=size, user_message=user_message, lookups=lookups)


def _make_change_of_caller(recall: Recall) -> Change:
    """Return the block that the caller places before the question as a change. It is not an edit of the window."""
    return Change(
        kind="recalled",
        ids=tuple(recall.messages),
        reason=recall.match,
        tokens_before=0,
        tokens_after=recall.tokens,
    )


def _measure_kept_prefix(before: Sequence[Item], now: Sequence[Item]) -> float | None:
    """Return the share of the last window, by tokens, that the new one begins with; None if there is no last one."""
    if not before:
        return None
    kept = 0
    for old, new in zip(before, now, strict=False):
        # Most items are the same objects as before, and comparing two long messages takes time.
        if old is not new and old.sent != new.sent:
            break
        kept += old.total
    return kept / tokens(before)
