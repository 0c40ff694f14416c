"""A plan becomes a summary: told by a model where there is one, put together by rule where not, audited either way."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from holdfast.compaction import frame
from holdfast.compaction.activity import activity
from holdfast.compaction.appendix import appendix
from holdfast.compaction.asker import Asker, NoAnswerError, Progress
from holdfast.compaction.audit import Misses, Wanted, audit, mended, wanted
from holdfast.compaction.chunks import OVERHEAD
from holdfast.compaction.cut import CompactionPlan, spans
from holdfast.compaction.digest import digest, outline
from holdfast.compaction.ladder import RUNGS, Made, Rung, Writer, climb, passages
from holdfast.compaction.questions import Questions
from holdfast.compaction.sections import Section, cut_to, pack
from holdfast.compaction.summary import Details, Summary
from holdfast.context.edits import Item
from holdfast.errors import CompactionError
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.prompts import load
from holdfast.settings import Compaction
from holdfast.tokens import TokenCounter, count_message, count_text

__all__ = ["MOST_CALLS", "Progress", "Summary", "details", "summarise"]

MOST_CALLS: Final = 48
"""How often a model is asked for one summary, whatever happens."""
_LEAST_REPLY: Final = 512
_REPLY_SHARE: Final = 0.8
_LEAST_ROOM: Final = 8
_TURN: Final = "---\n\n**The beginning of the turn that goes on below:**"
_WORDS: Final = 0.5
"""Words that a model may write for each token of the summary; what is written by rule takes the rest."""


def summarise(
    plan: CompactionPlan,
    model: Model | None,
    *,
    settings: Compaction,
    window_tokens: int,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    instructions: str | None = None,
    cancel: Event | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    done: MutableMapping[str, str] | None = None,
    count: TokenCounter = count_text,
) -> Summary:
    """Make the summary of a plan. Nothing is changed: what comes back is for the caller to record.

    Args:
        plan: What is to be summarised.
        model: Who is asked; None makes the digest.
        settings: How summaries are made.
        window_tokens: What the model's window holds.
        clock: Seconds, by a clock that only goes forward.
        sleep: Waits so many seconds between two tries; `cancel.wait` is one that can be called off.
        instructions: What this summary should look out for, in the user's words.
        cancel: When set, by any thread, the whole is called off.
        on_progress: Told about every step. Must not raise.
        done: Finished pieces by digest. Kept by the caller, they are not asked for again after a failure.
        count: What counts tokens.

    Raises:
        CompactionError: There is nothing to summarise, or no summary is shorter than what it would stand for.
        ModelCancelledError: It was called off.
    """
    if plan.outcome != "ready":
        raise CompactionError(plan.reason)
    work = _Work(plan=plan, settings=settings, count=count)
    if model is None:
        return work.summary(work.ruled(), rung="digest")
    questions = Questions(
        settings=settings,
        instructions=instructions,
        request=plan.request,
        language=work.wanted.language,
        words=int(_WORDS * plan.summary_tokens),
    )
    asker = Asker(
        model=model,
        system=load("summary_system"),
        max_tokens=max(_LEAST_REPLY, min(int(_REPLY_SHARE * settings.reserve_tokens), window_tokens // 4)),
        deadline=clock() + settings.timeout_seconds,
        most_calls=MOST_CALLS,
        clock=clock,
        sleep=sleep,
        cancel=cancel,
        done={} if done is None else done,
    )
    teller = _Teller(work=work, questions=questions, asker=asker, window=window_tokens, on_progress=on_progress)
    return teller.summary()


@dataclass(slots=True, kw_only=True)
class _Work:
    """A plan on its way to a summary: what is said by rule, and how all of it is fitted together."""

    plan: CompactionPlan
    settings: Compaction
    count: TokenCounter
    wanted: Wanted = field(init=False)
    below: tuple[Section, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = wanted(self.plan, settings=self.settings)
        self.below = appendix(self.plan, recent_turns=self.settings.recent_turns_preserve)

    def ruled(self) -> tuple[Section, ...]:
        """The digest of everything."""
        plan = self.plan
        messages = [item.message for item in plan.summarised]
        groups = outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request)
        return tuple(section for group in groups.values() for section in group)

    def digest(self, messages: Sequence[Message], previous: str) -> str:
        """The digest of some of it."""
        return digest(
            messages,
            limit=self.plan.summary_tokens // 2,
            activity=activity(messages),
            previous=previous,
            request=self.plan.request,
            count=self.count,
        )

    def audited(self, text: str) -> Misses:
        """What a text lacks, with what is written below it."""
        return audit(text, self.wanted, below="\n".join(section.text for section in self.below))

    def summary(
        self,
        sections: Sequence[Section],
        *,
        rung: Rung,
        calls: int = 0,
        misses: Misses | None = None,
        warnings: Sequence[str] = (),
    ) -> Summary:
        """Everything in its frame, within the cap, and shorter than what it stands for."""
        plan = self.plan
        limit = plan.summary_tokens - self._cost("")
        if limit < _LEAST_ROOM:
            raise CompactionError(f"a summary of {plan.replaced:,} tokens of history would be no shorter")
        text = frame.unframed(pack([*sections, *self.below], limit=limit, count=self.count))
        text = cut_to(text, limit=limit, count=self.count)
        tokens = self._cost(text)
        if not text or tokens >= plan.replaced:
            raise CompactionError(f"the summary takes {tokens:,} tokens, what it would stand for {plan.replaced:,}")
        return Summary(
            text=text,
            told=frame.told(text),
            tokens=tokens,
            rung=rung,
            calls=calls,
            misses=misses or Misses(),
            warnings=tuple(dict.fromkeys(warnings)),
            details=details(plan),
        )

    def _cost(self, text: str) -> int:
        return count_message(Message(role="user", parts=(Text(text=frame.told(text)),)), count=self.count)


def details(plan: CompactionPlan) -> Details:
    """Return the files and failures in what a plan summarises."""
    done = plan.activity
    return Details(
        read_files=done.read,
        modified_files=done.modified,
        tool_failures=tuple((failure.tool, str(failure)) for failure in done.failures),
    )


@dataclass(slots=True, kw_only=True)
class _Teller:
    """A model at work on a plan."""

    work: _Work
    questions: Questions
    asker: Asker
    window: int
    on_progress: Callable[[Progress], None] | None

    def summary(self) -> Summary:
        """What the model tells, audited; the digest where it tells nothing."""
        made = self._told()
        troubles, calls = self.asker.troubles, self.asker.calls
        if made is None:
            return self.work.summary(self.work.ruled(), rung="digest", calls=calls, warnings=troubles)
        if not self.work.settings.quality_guard.enabled:
            body = Section(title="", lines=tuple(made.text.splitlines()))
            return self.work.summary([body], rung=made.rung, calls=calls, warnings=troubles)
        text, misses = self._revised(made.text)
        return self.work.summary(
            mended(text, misses, plan=self.work.plan),
            rung=made.rung,
            calls=self.asker.calls,
            misses=misses,
            warnings=troubles,
        )

    def _told(self) -> Made | None:
        """What the model tells of the history and of the turn that is cut; None where it tells nothing."""
        plan = self.work.plan
        made: list[Made] = []
        if plan.dropped:
            made.append(self._climb("dropped", plan.dropped, plan.previous))
        if plan.history:
            made.append(self._climb("history", plan.history, made[0].text if made else plan.previous))
        history = made[-1].text if made else plan.previous
        if plan.prefix:
            made.append(self._climb("prefix", plan.prefix, ""))
        if all(one.rung == "digest" for one in made):
            return None
        worst = max((min(one.rung, "partial", key=RUNGS.index) for one in made), key=RUNGS.index)
        return Made(text=f"{history}\n\n{_TURN}\n\n{made[-1].text}" if plan.prefix else history, rung=worst)

    def _climb(self, stage: str, items: Sequence[Item], previous: str) -> Made:
        units = passages(spans(items), window=self.window, count=self.work.count)
        writer = self._writer(stage)
        return climb(units, previous=previous, writer=writer, hopeless=lambda: bool(self.asker.hopeless))

    def _writer(self, stage: str) -> Writer:
        asked = self.questions.prefix if stage == "prefix" else self.questions.history

        def tell(text: str, so_far: str, step: int, steps: int) -> str:
            self._progress(stage, step, steps)
            return self._ask(asked(text, so_far))

        def merge(texts: Sequence[str], so_far: str) -> str:
            self._progress("merge", 1, 1)
            return self._ask(self.questions.merge(texts, so_far))

        so_far = max(self.work.plan.summary_tokens, self.work.count(self.work.plan.previous))
        room = self.window - self.asker.max_tokens - OVERHEAD - so_far
        return Writer(
            tell=tell,
            merge=merge,
            digest=self.work.digest,
            window=self.window,
            room=max(self.window // 8, room),
            staged=self.work.settings.mode == "safeguard",
        )

    def _revised(self, text: str) -> tuple[str, Misses]:
        """The text, asked for again where it lacks something, and what it lacks in the end."""
        misses = self.work.audited(text)
        for step in range(1, self.work.settings.quality_guard.max_retries + 1):
            if not misses:
                break
            self._progress("audit", step, self.work.settings.quality_guard.max_retries)
            try:
                again = self._ask(self.questions.revise(text, misses))
            except NoAnswerError:
                break
            left = self.work.audited(again)
            if left.total < misses.total:
                text, misses = again, left
        return text, misses

    def _ask(self, question: str) -> str:
        """An answer, no longer than a summary may be: the next question repeats it."""
        return cut_to(self.asker.ask(question), limit=self.work.plan.summary_tokens, count=self.work.count)

    def _progress(self, stage: str, step: int, steps: int) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(stage=stage, step=step, steps=steps, calls=self.asker.calls))
