"""Make the summary of a plan: by a model where there is one, by rule where not, audited either way.

A history is summarised step by step down a ladder, each step tried when the one before it failed: all of it; in smaller
chunks; without what is too large; what was finished with the digest of the rest; the digest alone. The last step needs
no model, so there is always a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Final, Literal, TypeAlias

from holdfast.compaction.audit import Checklist, audit, find_requirements, repair
from holdfast.compaction.dialogue import render_messages
from holdfast.compaction.digest import make_appendix, make_digest, outline
from holdfast.compaction.plan import (
    OVERHEAD,
    CompactionPlan,
    Span,
    chunk_tokens,
    is_oversized,
    spans,
    split_by_share,
    split_by_size,
)
from holdfast.compaction.prompting import Asker, NoAnswerError, Progress, Prompts
from holdfast.compaction.sections import Section, cut_to, escape_frame, pack, wrap_summary
from holdfast.compaction.tool_calls import find_activity
from holdfast.context.edits import Item
from holdfast.errors import CompactionError
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.prompts import load
from holdfast.settings import Compaction
from holdfast.text import clip
from holdfast.tokens import TokenCounter, count_message, count_text

__all__ = ["MAX_CALLS", "Details", "Progress", "Rung", "Summary", "make_details", "summarise"]

Rung: TypeAlias = Literal["full", "smaller", "without_oversized", "partial", "digest"]
RUNGS: Final[tuple[Rung, ...]] = ("full", "smaller", "without_oversized", "partial", "digest")
"""The steps of the ladder, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Data beside a summary, for programs: files, failed calls by tool and message, and what a hook adds."""

    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    tool_failures: tuple[tuple[str, str], ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the details as session files store them."""
        return {
            "readFiles": list(self.read_files),
            "modifiedFiles": list(self.modified_files),
            "toolFailures": [{"toolName": tool, "summary": summary} for tool, summary in self.tool_failures],
            **self.other,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary that replaces history.

    Attributes:
        text: The summary, as a session file stores it.
        framed: The same in the frame of the window.
        tokens: The tokens of the framed summary as a message.
        rung: The step of the ladder that it comes from.
        calls: The calls of the model.
        misses: What the model's own words lacked, and was added by rule.
        warnings: What went wrong.
        details: Files and failures, for programs.
        from_hook: Whether a hook wrote it.
    """

    text: str
    framed: str
    tokens: int
    rung: Rung
    calls: int = 0
    misses: Checklist = field(default_factory=Checklist)
    warnings: tuple[str, ...] = ()
    details: Details = field(default_factory=Details)
    from_hook: bool = False


MAX_CALLS: Final = 48
"""The most calls of a model for one summary."""
_MIN_REPLY: Final = 512
_REPLY_SHARE: Final = 0.8
_MIN_ROOM: Final = 8
_TURN: Final = "---\n\n**The beginning of the turn that goes on below:**"
_MIN_STAGED: Final = 4
"""Fewer units than this are not split into two parts and merged."""
_WORDS_PER_TOKEN: Final = 0.5
"""The words that a model may write for each token of the summary; what is added by rule takes the rest."""


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
    """Make the summary of a plan. Nothing is changed: the caller records it.

    Args:
        plan: What is summarised.
        model: The model; None makes the digest.
        settings: How summaries are made.
        window_tokens: The tokens of the model's window.
        clock: Returns monotonic seconds.
        sleep: Waits between two tries; `cancel.wait` can be interrupted.
        instructions: What this summary focuses on, in the user's words.
        cancel: Cancels the compaction when set, from any thread.
        on_progress: Called with every step. Must not raise.
        done: Finished parts by digest. If the caller keeps them, they are not made again after a failure.
        count: Counts tokens.

    Raises:
        CompactionError: There is nothing to summarise, or no summary is shorter than what it would replace.
        ModelCancelledError: It was cancelled.
    """
    if plan.outcome != "ready":
        raise CompactionError(plan.reason)
    builder = _Builder(plan=plan, settings=settings, count=count)
    if model is None:
        return builder.build(builder.outline(), rung="digest")
    prompts = Prompts(
        settings=settings,
        instructions=instructions,
        request=plan.request,
        language=builder.required.language,
        words=int(_WORDS_PER_TOKEN * plan.summary_tokens),
    )
    asker = Asker(
        model=model,
        system=load("summary_system"),
        max_tokens=max(_MIN_REPLY, min(int(_REPLY_SHARE * settings.reserve_tokens), window_tokens // 4)),
        deadline=clock() + settings.timeout_seconds,
        max_calls=MAX_CALLS,
        clock=clock,
        sleep=sleep,
        cancel=cancel,
        done={} if done is None else done,
    )
    summariser = _Summariser(
        builder=builder, prompts=prompts, asker=asker, window=window_tokens, on_progress=on_progress
    )
    return summariser.summarise()


def make_details(plan: CompactionPlan) -> Details:
    """Return the files and failures in what a plan summarises."""
    done = plan.activity
    return Details(
        read_files=done.read,
        modified_files=done.modified,
        tool_failures=tuple((failure.tool, str(failure)) for failure in done.failures),
    )


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Puts a summary together: the digest, the appendix, and all of it within the cap."""

    plan: CompactionPlan
    settings: Compaction
    count: TokenCounter
    required: Checklist = field(init=False)
    appendix: tuple[Section, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.required = find_requirements(self.plan, settings=self.settings)
        self.appendix = make_appendix(self.plan, recent_turns=self.settings.recent_turns_preserve)

    def outline(self) -> tuple[Section, ...]:
        """Make the digest of everything."""
        plan = self.plan
        messages = [item.message for item in plan.summarised]
        groups = outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request)
        return tuple(section for group in groups.values() for section in group)

    def digest(self, messages: Sequence[Message], previous: str) -> str:
        """Digest some of the messages."""
        return make_digest(
            messages,
            limit=self.plan.summary_tokens // 2,
            activity=find_activity(messages),
            previous=previous,
            request=self.plan.request,
            count=self.count,
        )

    def audit(self, text: str) -> Checklist:
        """Find what a text lacks, together with the appendix."""
        return audit(text, self.required, below="\n".join(section.text for section in self.appendix))

    def build(
        self,
        sections: Sequence[Section],
        *,
        rung: Rung,
        calls: int = 0,
        misses: Checklist | None = None,
        warnings: Sequence[str] = (),
    ) -> Summary:
        """Pack sections and appendix into the cap, in the frame, and shorter than what they replace."""
        plan = self.plan
        limit = plan.summary_tokens - self._count_framed("")
        if limit < _MIN_ROOM:
            raise CompactionError(f"a summary of {plan.replaced:,} tokens of history would be no shorter")
        text = escape_frame(pack([*sections, *self.appendix], limit=limit, count=self.count))
        text = cut_to(text, limit=limit, count=self.count)
        tokens = self._count_framed(text)
        if not text or tokens >= plan.replaced:
            raise CompactionError(f"the summary takes {tokens:,} tokens, what it would stand for {plan.replaced:,}")
        return Summary(
            text=text,
            framed=wrap_summary(text),
            tokens=tokens,
            rung=rung,
            calls=calls,
            misses=misses or Checklist(),
            warnings=tuple(dict.fromkeys(warnings)),
            details=make_details(plan),
        )

    def _count_framed(self, text: str) -> int:
        return count_message(Message(role="user", parts=(Text(text=wrap_summary(text)),)), count=self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A unit of history as text for a summariser."""

    text: str
    tokens: int
    messages: tuple[Message, ...]


Parts: TypeAlias = list[list[list[Passage]]]
"""A history to summarise: parts that are merged at the end, each of chunks of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The summary of a part of history, and the step of the ladder that it comes from."""

    text: str
    rung: Rung


@dataclass(slots=True)
class _Partial:
    """What a way has finished: the summaries of the first `units` units."""

    texts: list[str]
    units: int = 0


def _make_passage(span: Span, *, window: int, count: TokenCounter) -> Passage:
    """Render a unit for a summariser; of one that would fill its window only the beginning and the end."""
    messages = tuple(item.message for item in span.items)
    text = render_messages(messages)
    passage = Passage(text=text, tokens=count(text), messages=messages)
    if not is_oversized(passage, window):
        return passage
    size = len(text) * window // (4 * passage.tokens)
    left = clip(text, head=size * 2 // 3, tail=size // 3, marker="\n[... the middle is left out: too long]\n")
    return replace(passage, text=left)  # its tokens stay, so that a later step may leave it out


def _omit(unit: Passage) -> Passage:
    thousands = max(1, round(unit.tokens / 1000))
    text = f"[Large {unit.messages[0].role} message (~{thousands}K tokens) omitted from summary]"
    return replace(unit, text=text, tokens=len(text))


@dataclass(slots=True, kw_only=True)
class _Summariser:
    """Summarises a plan with a model, down the ladder."""

    builder: _Builder
    prompts: Prompts
    asker: Asker
    window: int
    on_progress: Callable[[Progress], None] | None

    def summarise(self) -> Summary:
        """Summarise, audit and repair; make the digest where the model gives no summary."""
        made = self._summarise_parts()
        troubles, builder = self.asker.troubles, self.builder
        if made is None:
            return builder.build(builder.outline(), rung="digest", calls=self.asker.calls, warnings=troubles)
        if not builder.settings.quality_guard.enabled:
            body = Section(title="", lines=tuple(made.text.splitlines()))
            return builder.build([body], rung=made.rung, calls=self.asker.calls, warnings=troubles)
        text, misses = self._revise(made.text)
        sections = repair(text, misses, plan=builder.plan)
        return builder.build(sections, rung=made.rung, calls=self.asker.calls, misses=misses, warnings=troubles)

    def _summarise_parts(self) -> Made | None:
        """Summarise the history and the beginning of a split turn; None where every part is a digest."""
        plan = self.builder.plan
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
        """Summarise a part of history after the previous summary; try one step of the ladder after the other."""
        units = [_make_passage(span, window=self.window, count=self.builder.count) for span in spans(items)]
        best = _Partial([previous])
        for rung, parts in self._ways(units):
            finished = _Partial([previous])
            try:
                return Made(text=self._summarise(stage, parts, previous, finished), rung=rung)
            except NoAnswerError:
                best = max(best, finished, key=lambda one: one.units)
            if self.asker.hopeless:
                break
        rest = [message for unit in units[best.units :] for message in unit.messages]
        if not best.units:
            return Made(text=self.builder.digest(rest, previous), rung="digest")
        texts = [text for text in best.texts if text]
        if rest:
            note = f"[Partial summary: the first {best.units} of {len(units)} exchanges."
            texts += [f"{note} What follows was put together by rule.]", self.builder.digest(rest, "")]
        return Made(text="\n\n".join(texts), rung="partial")

    def _ways(self, units: Sequence[Passage]) -> Iterator[tuple[Rung, Parts]]:
        """Yield the ways to try, without those that would make the same calls again."""
        is_staged = self.builder.settings.mode == "safeguard"
        most = chunk_tokens(units, self.window) if is_staged else self._room()
        whole = split_by_size(units, most)
        stages = [whole]
        if is_staged and len(whole) > 1 and len(units) >= _MIN_STAGED:
            stages = [split_by_size(part, most) for part in split_by_share(units)]
        yield "full", stages
        smaller = split_by_size(units, max(1, min(most, sum(unit.tokens for unit in units)) // 2))
        if len(smaller) > len(whole):
            yield "smaller", [smaller]
        reduced = [_omit(unit) if is_oversized(unit, self.window) else unit for unit in units]
        if reduced != list(units):
            yield "without_oversized", [split_by_size(reduced, most)]

    def _room(self) -> int:
        """Count the tokens of the largest chunk that fits into a prompt beside the previous summary."""
        plan = self.builder.plan
        previous = max(plan.summary_tokens, self.builder.count(plan.previous))
        return max(self.window // 8, self.window - self.asker.max_tokens - OVERHEAD - previous)

    def _summarise(self, stage: str, parts: Parts, previous: str, finished: _Partial) -> str:
        """Summarise chunk after chunk, and merge the parts. `finished` is kept up to date, in case a call fails."""
        make_prompt = self.prompts.prefix if stage == "prefix" else self.prompts.history
        total, is_merged, step = sum(map(len, parts)), len(parts) > 1, 0
        for part in parts:
            so_far = "" if is_merged else previous
            finished.texts.append("")
            for chunk in part:
                step += 1
                self._report(stage, step, total)
                so_far = self._ask(make_prompt("\n\n".join(unit.text for unit in chunk), so_far))
                finished.texts[-1] = so_far
                finished.units += len(chunk)
        if not is_merged:
            return finished.texts[-1]
        self._report("merge", 1, 1)
        return self._ask(self.prompts.merge(finished.texts[1:], previous))

    def _revise(self, text: str) -> tuple[str, Checklist]:
        """Ask for the summary again while it lacks something; return the best one, and what it lacks."""
        misses = self.builder.audit(text)
        retries = self.builder.settings.quality_guard.max_retries
        for step in range(1, retries + 1):
            if not misses:
                break
            self._report("audit", step, retries)
            try:
                again = self._ask(self.prompts.revise(text, misses))
            except NoAnswerError:
                break
            left = self.builder.audit(again)
            if left.total < misses.total:
                text, misses = again, left
        return text, misses

    def _ask(self, prompt: str) -> str:
        """Ask for a summary, and cut it to the cap, since the next prompt repeats it."""
        return cut_to(self.asker.ask(prompt), limit=self.builder.plan.summary_tokens, count=self.builder.count)

    def _report(self, stage: str, step: int, steps: int) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(stage=stage, step=step, steps=steps, calls=self.asker.calls))
