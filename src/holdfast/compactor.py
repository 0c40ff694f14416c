"""Compacting a session: planned, told, recorded, and what was learned in it put in the queue. In this order."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from holdfast.compaction import cut, frame
from holdfast.compaction.cut import CompactionPlan
from holdfast.compaction.summarise import Progress, Summary, details, summarise
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply, tokens
from holdfast.errors import CompactionError
from holdfast.events import Compacted, Compacting, Hooks, SummaryRequest, SummaryResult
from holdfast.learner import jobs
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.redact import redact
from holdfast.settings import Settings
from holdfast.state import SessionState
from holdfast.tokens import count_message

if TYPE_CHECKING:
    from holdfast.session import Session

__all__ = ["Compaction", "Compactor", "window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did, or would do.

    Attributes:
        plan: What was summarised and what stays.
        summary: What stands for it; None for a dry run.
        tokens_before: What the conversation took.
        tokens_after: What it takes now.
        warnings: What went wrong on the way.
    """

    plan: CompactionPlan
    summary: Summary | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The compaction as plain JSON: the fields of a session's compaction entry, and how it was made."""
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
            "details": summary.details.to_json() if summary else None,
            "warnings": list(self.warnings),
        }


def window(state: SessionState, *, limit: int) -> tuple[Item, ...]:
    """What a compaction is about: everything since the last one. What was trimmed has its place in the summary."""
    standing = [edit for edit in state.standing_edits(limit=limit) if edit.kind not in {"trimmed", "recalled"}]
    return apply(state.items, standing)


@dataclass(slots=True, kw_only=True)
class Compactor:
    """One compaction of one session.

    Attributes:
        session: The session.
        limits: The limits of its window.
        model: Who tells the summary; without one it is put together by rule.
        hooks: What hears of it, and what may write the summary instead.
        done: Pieces that an earlier try finished.
    """

    session: Session
    limits: Budget
    model: Model | None = None
    hooks: Hooks = field(default_factory=Hooks)
    done: MutableMapping[str, str] = field(default_factory=dict)

    @property
    def _state(self) -> SessionState:
        return self.session.state

    @property
    def _settings(self) -> Settings:
        return self.session.engine.settings

    def plan(self, *, force: bool) -> CompactionPlan:
        """What would be done."""
        with self.session.lock:
            items = window(self._state, limit=self.limits.safe_limit)
        summary = next((item.message.text for item in items if item.kind == "summary"), None)
        return cut.plan(
            items,
            settings=self._settings.compaction,
            budget=self.limits,
            previous_summary=summary,
            force=force,
            sent=tokens(self._state.replay(limit=self.limits.safe_limit)[0]),
            count=self._state.count,
        )

    def run(
        self,
        *,
        force: bool = False,
        instructions: str | None = None,
        cancel: Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Compaction:
        """Compact. History is as it was until the edit is recorded, which is the last thing to be done.

        The session is locked only to plan and to record, so that requests go on while the summary is made.

        Raises:
            CompactionError: There is nothing to compact, nothing shorter could be made, or the session has been
                compacted or changed meanwhile.
            ModelCancelledError: It was called off.
        """
        with self.session.lock:
            plan, known = self.plan(force=force), len(self._state.edits)
        if plan.outcome != "ready":
            raise CompactionError(plan.reason)
        scope, gone = self.session.scope, len(plan.summarised)
        owner = {"session": scope.session, "agent": scope.agent, "project": scope.project}
        owner["workspace"] = self.hooks.workspace
        starting = Compacting(**owner, messages=len(plan.kept) + gone, summarised=gone, tokens=plan.tokens_before)
        self.hooks.tell(starting, self._state.notes.append)
        request = SummaryRequest(event=starting, plan=plan, instructions=instructions, cancel=Event())
        seconds = self._settings.compaction.timeout_seconds
        given, failed = self.hooks.supply(request, cancel=cancel, seconds=seconds)
        summary = self._supplied(given, plan) or summarise(
            plan,
            self.model,
            settings=self._settings.compaction,
            window_tokens=self.model.context_tokens if self.model else self.limits.window,
            clock=time.monotonic,
            sleep=cancel.wait if cancel else time.sleep,
            instructions=instructions,
            cancel=cancel,
            on_progress=on_progress,
            done=self.done,
            count=self._state.count,
        )
        summary = self._masked(summary)
        after = self._record(plan, summary, instructions, known=known)
        left = len(plan.kept) + 1
        ended = Compacted(**owner, messages=left, summarised=gone, tokens_before=plan.tokens_before, tokens_after=after)
        self.hooks.tell(ended, self._state.notes.append)
        return Compaction(
            plan=plan,
            summary=summary,
            tokens_before=plan.tokens_before,
            tokens_after=after,
            warnings=(*failed, *summary.warnings),
        )

    def _supplied(self, given: SummaryResult | None, plan: CompactionPlan) -> Summary | None:
        """Return the summary that a hook wrote, if it wrote one."""
        if given is None or not given.text.strip():
            return None
        told = frame.told(given.text)
        cost = self._cost(told)
        if cost >= plan.replaced:
            raise CompactionError(f"the summary takes {cost:,} tokens, what it would stand for {plan.replaced:,}")
        found = replace(details(plan), other=given.details)
        return Summary(text=given.text, told=told, tokens=cost, rung="full", details=found, from_hook=True)

    def _masked(self, summary: Summary) -> Summary:
        """The summary without secrets: it is told of messages as they were said, and rests on disk."""
        told, text = redact(summary.told), redact(summary.text)
        if not self._settings.archive.redaction or (told, text) == (summary.told, summary.text):
            return summary
        return replace(summary, told=told, text=text, tokens=self._cost(told))

    def _cost(self, told: str) -> int:
        return count_message(Message(role="user", parts=(Text(text=told),)), count=self._state.count)

    def _check_current(self, plan: CompactionPlan, known: int) -> None:
        """Refuse a summary of what is no longer the session's history, or that would hide one made meanwhile."""
        self._state.load()
        if any(edit.kind == "compacted" for edit in self._state.edits[known:]):
            raise CompactionError("this conversation has been compacted meanwhile: go on with that summary")
        if not {item.id for item in self._state.history}.issuperset(plan.ids):
            raise CompactionError("the conversation has changed meanwhile: compact it as it is now")

    def _record(self, plan: CompactionPlan, summary: Summary, instructions: str | None, *, known: int) -> int:
        """Record the edit, with the work that follows from it, and say what the conversation takes now."""
        now = self._state.memory.clock()
        masking = self._settings.archive.redaction
        asked = redact(instructions) if instructions and masking else instructions
        reason = f"compacted: {asked}" if asked else "compacted"
        edit: Edit = plan.edit(summary.told, cost=summary.tokens, reason=reason)
        work = jobs(plan.ids, scope=self.session.scope, time=now) if self._settings.knowledge.extraction else []
        with self.session.lock:
            check = partial(self._check_current, plan, known)
            self._state.record_after_others([edit], time=now, beside=work, check=check)
            return tokens(window(self._state, limit=self.limits.safe_limit))
