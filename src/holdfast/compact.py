"""Compact a session: plan, summarise, record the edit, and queue the extraction of facts, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from holdfast.compaction import plan
from holdfast.compaction.plan import CompactionPlan
from holdfast.compaction.sections import wrap_summary
from holdfast.compaction.summarise import Progress, Summariser, Summary, make_details
from holdfast.context.budget import Budget
from holdfast.context.edits import Item, apply, tokens
from holdfast.errors import CompactionError
from holdfast.events import Compacted, Compacting, SummaryRequest, SummaryResult
from holdfast.memory.learning import jobs
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.redaction import redact
from holdfast.state import SessionState
from holdfast.tokens import count_message

if TYPE_CHECKING:
    from holdfast.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of a compaction, or of a dry run.

    Attributes:
        plan: What was summarised and what was kept.
        summary: The summary; None for a dry run.
        tokens_before: The tokens of the conversation before.
        tokens_after: The tokens of the conversation now.
        warnings: What went wrong.
    """

    plan: CompactionPlan
    summary: Summary | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the compaction as JSON: the fields of a session's compaction entry, and how it was made."""
        first, summary = self.plan.first_kept, self.summary
        return {
            "outcome": self.plan.outcome,
            "reason": self.plan.reason,
            "summary": summary.text if summary else None,
            "firstKeptEntryId": first.message.id if first else None,
            "tokensBefore": self.tokens_before,
            "tokensAfter": self.tokens_after,
            "summarised": len(self.plan.summarised),
            "rung": summary.rung if summary else None,
            "calls": summary.calls if summary else 0,
            "details": dict(summary.details) if summary else None,
            "warnings": list(self.warnings),
        }


def plan_compaction(session: Session, limits: Budget, *, force: bool) -> CompactionPlan:
    """Plan the compaction of a session."""
    state = session.state
    with session.lock:
        items = _compactable(state, limits)
        sent = tokens(state.replay(limit=limits.safe_limit)[0])
    return plan.plan_compaction(
        items,
        settings=session.engine.settings.compaction,
        budget=limits,
        previous_summary=next((item.message.text for item in items if item.kind == "summary"), None),
        force=force,
        sent=sent,
        count=state.count,
    )


def run_compaction(
    session: Session,
    limits: Budget,
    *,
    force: bool = False,
    instructions: str | None = None,
    model: Model | None = None,
    cancel: Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Compaction:
    """Compact a session. Its history is unchanged until the edit is recorded, which is the last step.

    The session is locked only to plan and to record, so that requests go on while the summary is made. A
    CompactionError says that there is nothing to compact, that nothing shorter could be made, or that the session has
    changed meanwhile.
    """
    engine, state = session.engine, session.state
    settings, model, hooks = engine.settings, model or engine.model or session.model, engine.hooks
    with session.lock:
        planned, known = plan_compaction(session, limits, force=force), len(state.edits)
    if planned.outcome != "ready":
        raise CompactionError(planned.reason)
    scope, removed, kept = session.scope, len(planned.summarised), len(planned.kept)
    owner = {
        "session": scope.session,
        "agent": scope.agent,
        "project": scope.project,
        "workspace": hooks.workspace,
        "session_key": hooks.session_key or scope.session,
        "message_provider": hooks.message_provider,
    }
    before = planned.tokens_before
    starting = Compacting(**owner, messages=kept + removed, summarised=removed, tokens=before)
    hooks.notify(starting, state.notes.append)
    request = SummaryRequest(
        event=starting, plan=planned, instructions=instructions, reserve_tokens=limits.reserve, cancel=Event()
    )
    result, failures = hooks.ask_summary(request, cancel=cancel, seconds=settings.compaction.timeout_seconds)
    if result is not None and result.text.strip():
        summary = _take_summary(state, planned, result)
    else:
        summary = Summariser(
            plan=planned,
            model=model,
            settings=settings.compaction,
            window_tokens=model.context_tokens if model else limits.window,
            clock=time.monotonic,
            sleep=cancel.wait if cancel else time.sleep,
            instructions=instructions,
            cancel=cancel,
            on_progress=on_progress,
            done=state.summary_parts,
            count=state.count,
        ).summarise()
    if settings.archive.redaction:  # it is made from unmasked messages, and is stored
        framed, instructions = redact(summary.framed), redact(instructions or "")
        summary = replace(summary, framed=framed, text=redact(summary.text), tokens=_count(state, framed))
    after = _record(session, limits, planned, summary, instructions, known=known)
    done = Compacted(**owner, messages=kept + 1, summarised=removed, tokens_before=before, tokens_after=after)
    hooks.notify(done, state.notes.append)
    warnings = (*failures, *summary.warnings)
    return Compaction(plan=planned, summary=summary, tokens_before=before, tokens_after=after, warnings=warnings)


def _take_summary(state: SessionState, planned: CompactionPlan, result: SummaryResult) -> Summary:
    framed, details = wrap_summary(result.text), make_details(planned) | dict(result.details)
    if (cost := _count(state, framed)) >= planned.replaced:
        raise CompactionError(f"the summary takes {cost:,} tokens, what it would stand for {planned.replaced:,}")
    return Summary(text=result.text, framed=framed, tokens=cost, rung="full", details=details, from_hook=True)


def _compactable(state: SessionState, limits: Budget) -> tuple[Item, ...]:
    """Return everything since the last compaction, trimmed messages included: they go into the summary."""
    standing = state.standing_edits(limit=limits.safe_limit)
    return apply(state.items, [edit for edit in standing if edit.kind not in {"trimmed", "recalled"}])


def _count(state: SessionState, text: str) -> int:
    return count_message(Message(role="user", parts=(Text(text=text),)), count=state.count)


def _record(
    session: Session, limits: Budget, planned: CompactionPlan, summary: Summary, focus: str | None, *, known: int
) -> int:
    """Record the edit and the jobs that follow from it, and return the tokens of the conversation now."""
    state, now = session.state, session.state.memory.clock()
    edit = planned.edit(summary.framed, cost=summary.tokens, reason=f"compacted: {focus}" if focus else "compacted")
    is_read = session.engine.settings.knowledge.extraction
    work = jobs(planned.ids, scope=session.scope, time=now) if is_read else []

    def check() -> None:
        """Refuse a summary of history that has changed, or that was compacted meanwhile."""
        state.load()
        if any(edit.kind == "compacted" for edit in state.edits[known:]):
            raise CompactionError("this conversation has been compacted meanwhile: go on with that summary")
        if not {item.id for item in state.history}.issuperset(planned.ids):
            raise CompactionError("the conversation has changed meanwhile: compact it as it is now")

    with session.lock:
        state.record_after_others([edit], time=now, beside=work, check=check)
        return tokens(_compactable(state, limits))
