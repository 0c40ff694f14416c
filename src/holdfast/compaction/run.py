"""Compact a conversation: plan it, let a hook or a model write the summary, and return the result.

Nothing here uses sessions or stores. `Session` locks, records the edit of the plan, and queues the extraction of facts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from holdfast.compaction import plan as planning
from holdfast.compaction.events import Compacted, Compacting, Hooks, SummaryRequest, SummaryResult
from holdfast.compaction.plan import CompactionPlan
from holdfast.compaction.sections import wrap_summary
from holdfast.compaction.summarise import Progress, Summariser, Summary, make_details
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply
from holdfast.errors import CompactionError
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.redaction import redact
from holdfast.settings import Settings
from holdfast.store.base import Scope
from holdfast.tokens import TokenCounter, count_message


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
        """Return the compaction as JSON. `details` are the fields of a session file, in its spelling."""
        data: dict[str, Any] = {
            "outcome": self.plan.outcome,
            "reason": self.plan.reason,
            "summary": None,
            "first_kept": None,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "summarised": len(self.plan.summarised),
            "rung": None,
            "calls": 0,
            "details": None,
            "warnings": list(self.warnings),
        }
        first = self.plan.first_kept
        if first is not None:
            data["first_kept"] = first.message.id
        if self.summary is not None:
            data["summary"] = self.summary.text
            data["rung"] = self.summary.rung
            data["calls"] = self.summary.calls
            data["details"] = dict(self.summary.details)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Everything that is needed to write a session's summaries.

    Attributes:
        scope: The owner of the session, which events name.
        settings: The settings in force.
        hooks: Functions that are called around a compaction, and may write the summary.
        model: The model that writes it if no hook does; None to write it by rule.
        count: The token counter.
        report: Called with each failure of a hook, on any thread.
    """

    scope: Scope
    settings: Settings
    hooks: Hooks
    model: Model | None
    count: TokenCounter
    report: Callable[[str], object]

    def write(
        self,
        plan: CompactionPlan,
        limits: Budget,
        *,
        instructions: str | None,
        cancel: Event | None,
        on_progress: Callable[[Progress], None] | None,
        finished_parts: dict[str, str],
    ) -> Summary:
        """Write the summary of a plan that is ready. Its warnings include failures of the summary hook.

        `finished_parts` are parts of the summary from an earlier, interrupted attempt; new ones are added to them.

        Raises:
            CompactionError: A hook cancelled it, or nothing shorter could be made.
            ModelCancelledError: It was cancelled.
        """
        starting = Compacting(
            **self._describe_owner(),
            messages=len(plan.kept) + len(plan.summarised),
            summarised=len(plan.summarised),
            tokens=plan.tokens_before,
        )
        self.hooks.notify(starting, self.report)
        request = SummaryRequest(
            event=starting, plan=plan, instructions=instructions, reserve_tokens=limits.reserve, cancel=Event()
        )
        seconds = self.settings.compaction.timeout_seconds
        result, failures = self.hooks.ask_summary(request, cancel=cancel, seconds=seconds)
        if result is not None and result.text.strip():
            summary = self._take_summary(plan, result)
        else:
            window_tokens = limits.window
            if self.model is not None:
                window_tokens = self.model.context_tokens
            sleep: Callable[[float], object] = time.sleep
            if cancel is not None:  # a wait between two tries ends when the compaction is cancelled
                sleep = cancel.wait
            summary = Summariser(
                plan=plan,
                model=self.model,
                settings=self.settings.compaction,
                window_tokens=window_tokens,
                clock=time.monotonic,
                sleep=sleep,
                instructions=instructions,
                cancel=cancel,
                on_progress=on_progress,
                done=finished_parts,
                count=self.count,
                is_recalled=self.settings.recall.enabled and self.settings.recall.automatic,
            ).summarise()
        if self.settings.archive.redaction:  # the summary is made from unmasked messages, and will be stored
            framed = redact(summary.framed)
            summary = replace(summary, framed=framed, text=redact(summary.text), tokens=self._count(framed))
        return replace(summary, warnings=(*failures, *summary.warnings))

    def announce(self, plan: CompactionPlan, *, tokens_after: int) -> None:
        """Call the listeners after a compaction was recorded."""
        done = Compacted(
            **self._describe_owner(),
            messages=len(plan.kept) + 1,
            summarised=len(plan.summarised),
            tokens_before=plan.tokens_before,
            tokens_after=tokens_after,
        )
        self.hooks.notify(done, self.report)

    def _describe_owner(self) -> dict[str, str]:
        """Return the fields that all events have."""
        return {
            "session": self.scope.session,
            "agent": self.scope.agent,
            "project": self.scope.project,
            "workspace": self.hooks.workspace,
            "session_key": self.hooks.session_key or self.scope.session,
            "message_provider": self.hooks.message_provider,
        }

    def _take_summary(self, plan: CompactionPlan, result: SummaryResult) -> Summary:
        """Return the summary of a hook, if it is shorter than the messages that it replaces."""
        framed = wrap_summary(result.text)
        cost = self._count(framed)
        if cost >= plan.replaced:
            raise CompactionError(
                f"the summary ({cost:,} tokens) is longer than the messages it replaces ({plan.replaced:,} tokens)"
            )
        details = make_details(plan) | dict(result.details)
        return Summary(text=result.text, framed=framed, tokens=cost, rung="full", details=details, from_hook=True)

    def _count(self, text: str) -> int:
        return count_message(Message(role="user", parts=(Text(text=text),)), count=self.count)


def select_compactable(items: Sequence[Item], standing: Sequence[Edit]) -> tuple[Item, ...]:
    """Return everything since the last compaction, including trimmed messages, which go into the summary too.

    `items` are a whole history, and `standing` are the edits that hold for it.
    """
    return apply(items, [edit for edit in standing if edit.kind not in {"trimmed", "recalled", "overview"}])


def plan_compaction(
    items: Sequence[Item], limits: Budget, *, sent: int, settings: Settings, force: bool, count: TokenCounter
) -> CompactionPlan:
    """Plan the compaction of what `select_compactable` returned. `sent` are the tokens of the window as it is sent."""
    previous = None
    for item in items:
        if item.kind == "summary":
            previous = item.message.text
            break
    return planning.plan_compaction(
        items,
        settings=settings.compaction,
        budget=limits,
        previous_summary=previous,
        force=force,
        sent=sent,
        count=count,
    )
