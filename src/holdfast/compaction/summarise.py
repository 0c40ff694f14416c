"""Make the summary of a plan: by a model if there is one, otherwise by rule, and audit it in both cases.

There are several ways to summarise a history, and each is tried if the one before it failed: all of it; in smaller
chunks; without messages that are too large; the part that was finished, with a digest of the rest; a digest alone. The
last way needs no model, so there is always a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Event
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from holdfast.compaction.audit import Checklist, audit, find_fault, find_requirements, repair
from holdfast.compaction.dialogue import escape, render_messages
from holdfast.compaction.digest import make_appendix, make_digest, outline_plan
from holdfast.compaction.plan import (
    OVERHEAD,
    CompactionPlan,
    Span,
    chunk_tokens,
    count_tokens,
    is_oversized,
    spans,
    split_by_share,
    split_by_size,
)
from holdfast.compaction.sections import HEADINGS, Section, cut_to, escape_frame, pack, without_lists, wrap_summary
from holdfast.compaction.tool_calls import find_activity
from holdfast.context.edits import Item
from holdfast.errors import (
    CompactionError,
    HoldfastError,
    ModelBusyError,
    ModelCancelledError,
    ModelError,
    ModelRefusedError,
)
from holdfast.messages import Message, Text
from holdfast.models.base import Model, Prompt, Reply, check_cancelled
from holdfast.models.retry import Retrying
from holdfast.prompts import load
from holdfast.settings import DEFAULT_RESERVE_TOKENS, Compaction
from holdfast.text import clip, digest, head
from holdfast.tokens import TokenCounter, count_message, count_text

Rung: TypeAlias = Literal["full", "smaller", "without_oversized", "partial", "digest"]
RUNGS: Final[tuple[Rung, ...]] = ("full", "smaller", "without_oversized", "partial", "digest")
"""The ways to summarise, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary that replaces history.

    Attributes:
        text: The summary as a session file stores it.
        framed: The summary as the window contains it.
        tokens: The tokens of `framed`.
        rung: How it was made; see `RUNGS`.
        calls: How many calls of a model it took.
        misses: What the model's summary lacked; it was added by rule.
        warnings: The failures on the way.
        details: Files, failed calls and what a hook adds, as session files store them.
        from_hook: Whether a hook made it.
    """

    text: str
    framed: str
    tokens: int
    rung: Rung
    calls: int = 0
    misses: Checklist = field(default_factory=Checklist)
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    from_hook: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a compaction: the stage (`history`, `merge`, ...), step and number of steps, calls so far."""

    stage: str
    step: int
    steps: int
    calls: int


MAX_CALLS: Final = 48
"""The maximum number of calls of a model for one summary."""
_MIN_REPLY: Final = 512
"""The minimum of the tokens that a model may write."""
_REPLY_SHARE: Final = 0.8
"""The share of the reserve for a reply that a model may write."""
_MIN_ROOM: Final = 8
"""The minimum tokens for the text of a summary. With fewer, none is made."""
_TURN: Final = "---\n\n**The beginning of the turn that goes on below:**"
_MIN_STAGED: Final = 4
"""Fewer units than this are not split into two parts and merged."""
_WORDS_PER_TOKEN: Final = 0.5
"""How many words a model is asked to write for each token of the summary. The rest is for what is added by rule."""
_MAX_REPEATED: Final = 800
"""The maximum characters of instructions and of the last request that every prompt repeats."""
_MAX_TRIES: Final = 3
"""How many times a call that fails is made."""
_MAX_BAD_ANSWERS: Final = 2
"""How many times a prompt is sent if the answers cannot be a summary."""
_MIN_WAIT: Final = 0.5
"""The shortest wait between two tries, in seconds."""
_MAX_WAIT: Final = 5.0
"""The longest wait between two tries, in seconds."""
_CALL_SHARE: Final = 2 / 3
"""The share of the remaining time for one call. The rest is for another one."""
_MIN_TIME: Final = 0.5
"""The minimum seconds left for a call. With fewer, none is made."""


def make_details(plan: CompactionPlan) -> dict[str, Any]:
    """Return the files and failures in what a plan summarises, as session files store them."""
    done = plan.activity
    return {
        "readFiles": list(done.read),
        "modifiedFiles": list(done.modified),
        "toolFailures": [{"toolName": failure.tool, "summary": str(failure)} for failure in done.failures],
    }


class _NoAnswerError(HoldfastError):
    """There is no usable answer: the next way to summarise is tried."""


@dataclass(frozen=True, slots=True)
class _Passage:
    """A unit of history as text for a summariser."""

    text: str
    tokens: int
    messages: tuple[Message, ...]


_Parts: TypeAlias = list[list[list[_Passage]]]
"""A history to summarise: parts whose summaries are merged at the end. A part is a list of chunks of units."""


class _PartSummary(NamedTuple):
    """The summary of a part of history, and how it was made."""

    text: str
    rung: Rung


@dataclass(slots=True)
class _Partial:
    """The finished work of one way to summarise: the summaries of the first `units` units."""

    texts: list[str]
    units: int = 0


@dataclass(slots=True, kw_only=True)
class Summariser:
    """Makes the summary of a plan. It records nothing: the caller does.

    Attributes:
        plan: What to summarise.
        model: The model; without one, the summary is a digest.
        settings: The settings of compaction.
        window_tokens: The tokens of the model's window.
        clock: Returns monotonic seconds.
        sleep: Waits between two tries; may be `cancel.wait`.
        instructions: The user's instructions for this summary.
        cancel: Stops the work when it is set.
        on_progress: Called before each step; must not raise.
        done: Finished answers by the digest of their prompt. If the caller keeps them, they are not requested again
            after a failure.
        count: Counts tokens.
        is_recalled: Whether messages that match a question are recalled without a tool.
        calls: The number of calls so far.
        failures: The failures so far.
        stop_reason: Why no further call is made; empty as long as calls are possible.
    """

    plan: CompactionPlan
    model: Model | None
    settings: Compaction
    window_tokens: int
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    instructions: str | None = None
    cancel: Event | None = None
    on_progress: Callable[[Progress], None] | None = None
    done: MutableMapping[str, str] = field(default_factory=dict)
    count: TokenCounter = count_text
    is_recalled: bool = True
    calls: int = field(default=0, init=False)
    failures: list[str] = field(default_factory=list, init=False)
    stop_reason: str = field(default="", init=False)
    _deadline: float = field(init=False)
    _max_tokens: int = field(init=False)
    _required: Checklist = field(init=False)
    _appendix: tuple[Section, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.model, Retrying):  # its retries would multiply those of `_call`
            self.model = self.model.model
        reserve = self.settings.reserve_tokens
        if reserve is None:
            reserve = DEFAULT_RESERVE_TOKENS
        reply = min(int(_REPLY_SHARE * reserve), self.window_tokens // 4)
        self._max_tokens = max(_MIN_REPLY, reply)
        self._deadline = self.clock() + self.settings.timeout_seconds
        self._required = find_requirements(self.plan, settings=self.settings)
        self._appendix = make_appendix(
            self.plan, recent_turns=self.settings.recent_turns_preserve, is_recalled=self.is_recalled
        )

    def summarise(self) -> Summary:
        """Summarise, audit and repair; make a digest if the model returns no summary.

        Raises:
            CompactionError: There is nothing to summarise, or the summary is not shorter than what it replaces.
        """
        if self.plan.outcome != "ready":
            raise CompactionError(self.plan.reason)
        made = None
        if self.model is not None:
            made = self._summarise_parts()
        misses = Checklist()
        rung: Rung = "digest"
        if made is not None:
            rung = made.rung
        if made is None:
            sections = list(chain.from_iterable(outline_plan(self.plan).values()))
        elif not self.settings.quality_guard.enabled:
            sections = [Section(title="", lines=tuple(made.text.splitlines()))]
        else:
            text, misses = self._revise(made.text)
            sections = repair(text, misses, plan=self.plan)
        text, tokens = self._fit(sections)
        return Summary(
            text=text,
            framed=wrap_summary(text),
            tokens=tokens,
            rung=rung,
            calls=self.calls,
            misses=misses,
            warnings=tuple(dict.fromkeys(self.failures)),
            details=make_details(self.plan),
        )

    def _fit(self, sections: Sequence[Section]) -> tuple[str, int]:
        """Pack sections and appendix into a framed summary within the cap that is shorter than what it replaces."""
        replaced = self.plan.replaced
        limit = self.plan.summary_tokens - self._count_framed("")
        if limit < _MIN_ROOM:
            raise CompactionError(f"a summary of {replaced:,} tokens of history would not be shorter")
        text = escape_frame(pack([*sections, *self._appendix], limit=limit, count=self.count))
        text = cut_to(text, limit=limit, count=self.count)
        tokens = self._count_framed(text)
        if not text or tokens >= replaced:
            raise CompactionError(
                f"the summary ({tokens:,} tokens) is not shorter than the messages it replaces ({replaced:,} tokens)"
            )
        return text, tokens

    def _count_framed(self, text: str) -> int:
        return count_message(Message(role="user", parts=(Text(text=wrap_summary(text)),)), count=self.count)

    # --- the ways to summarise ---------------------------------------------------

    def _summarise_parts(self) -> _PartSummary | None:
        """Summarise the history and the beginning of a split turn; None if every part is a digest."""
        plan = self.plan
        made: list[_PartSummary] = []
        text = plan.previous
        for stage, items in (("dropped", plan.dropped), ("history", plan.history)):
            if items:
                part = self._summarise_part(stage, items, text)
                made.append(part)
                text = part.text
        if plan.prefix:
            prefix = self._summarise_part("prefix", plan.prefix, "")
            made.append(prefix)
            text = f"{without_lists(text, and_turns=True)}\n\n{_TURN}\n\n{prefix.text}"
        if all(part.rung == "digest" for part in made):
            return None
        worst: Rung = "full"
        for part in made:
            rung = part.rung
            if rung == "digest":  # but the model wrote another part
                rung = "partial"
            worst = max(worst, rung, key=RUNGS.index)
        return _PartSummary(text, worst)

    def _summarise_part(self, stage: str, items: Sequence[Item], previous: str) -> _PartSummary:
        """Summarise a part of history after the previous summary; try one way after the other.

        If all of them fail, the one that got furthest is used, with a digest of the rest.
        """
        units = [self._make_passage(span) for span in spans(items)]
        kept = without_lists(previous, and_turns=True)
        best = _Partial([kept])
        for rung, parts in self._ways(units):
            finished = _Partial([kept])
            try:
                text = self._summarise(stage, parts, previous, finished)
            except _NoAnswerError:
                if finished.units > best.units:
                    best = finished
            else:
                return _PartSummary(text, rung)
            if self.stop_reason:
                break
        rest: list[Message] = []
        for unit in units[best.units :]:
            rest += unit.messages
        if not best.units:
            return _PartSummary(self._digest(rest, previous), "digest")
        texts = [text for text in best.texts if text]
        if rest:
            texts.append(
                f"[Partial summary: the first {best.units} of {len(units)} exchanges."
                " What follows was put together by rule.]"
            )
            texts.append(self._digest(rest, ""))
        return _PartSummary("\n\n".join(texts), "partial")

    def _make_passage(self, span: Span) -> _Passage:
        """Render a unit for a summariser. If it would fill the window, only its beginning and its end are rendered."""
        messages = tuple(item.message for item in span.items)
        text = render_messages(messages)
        passage = _Passage(text, self.count(text), messages)
        if not is_oversized(passage, self.window_tokens):
            return passage
        size = len(text) * self.window_tokens // (4 * passage.tokens)
        clipped = clip(text, head=size * 2 // 3, tail=size // 3, marker="\n[... the middle is left out: too long]\n")
        return replace(passage, text=clipped)  # with the tokens of all of it, so that a later way may leave it out

    def _digest(self, messages: Sequence[Message], previous: str) -> str:
        return make_digest(
            messages,
            limit=self.plan.summary_tokens // 2,
            activity=find_activity(messages),
            previous=previous,
            request=self.plan.request,
            count=self.count,
        )

    def _ways(self, units: Sequence[_Passage]) -> Iterator[tuple[Rung, _Parts]]:
        """Yield the ways to try, without those that would make the same calls again."""
        is_staged = self.settings.mode == "safeguard"
        if is_staged:
            max_chunk = chunk_tokens(units, self.window_tokens)
        else:
            # In addition to the chunk, a prompt needs room for the previous summary and the answer.
            previous = max(self.plan.summary_tokens, self.count(self.plan.previous))
            room = self.window_tokens - self._max_tokens - OVERHEAD - previous
            max_chunk = max(self.window_tokens // 8, room)
        whole = split_by_size(units, max_chunk)
        stages = [whole]
        if is_staged and len(whole) > 1 and len(units) >= _MIN_STAGED:
            stages = [split_by_size(part, max_chunk) for part in split_by_share(units)]
        yield "full", stages
        half = min(max_chunk, count_tokens(units)) // 2
        smaller = split_by_size(units, max(1, half))
        if len(smaller) > len(whole):
            yield "smaller", [smaller]
        reduced = list(units)
        for index, unit in enumerate(units):
            if is_oversized(unit, self.window_tokens):
                size = f"~{max(1, round(unit.tokens / 1000))}K tokens"
                text = f"[Large {unit.messages[0].role} message ({size}) omitted from summary]"
                reduced[index] = replace(unit, text=text, tokens=len(text))
        if reduced != list(units):
            yield "without_oversized", [split_by_size(reduced, max_chunk)]

    def _summarise(self, stage: str, parts: _Parts, previous: str, finished: _Partial) -> str:
        """Summarise chunk after chunk, and merge the parts. `finished` is kept up to date, in case a call fails."""
        is_merged = len(parts) > 1
        total = sum(len(part) for part in parts)
        step = 0
        for part in parts:
            so_far = previous
            if is_merged:  # the previous summary goes into the merge instead of into every part
                so_far = ""
            finished.texts.append("")
            for chunk in part:
                step += 1
                self._report(stage, step, total)
                if stage == "prefix":
                    template = "summary_prefix"
                elif so_far:
                    template = "summary_update"
                else:
                    template = "summary"
                conversation = "\n\n".join(unit.text for unit in chunk)
                so_far = self._ask(template, _tag("conversation", conversation), so_far)
                finished.texts[-1] = so_far
                finished.units += len(chunk)
        if not is_merged:
            return finished.texts[-1]
        self._report("merge", 1, 1)
        texts = "\n\n".join(_tag("partial-summary", escape(text)) for text in finished.texts[1:])
        return self._ask("summary_merge", texts, previous)

    def _revise(self, text: str) -> tuple[str, Checklist]:
        """Ask for the summary again while it lacks something; return the best one, and what it lacks."""
        below = "\n".join(section.text for section in self._appendix)
        misses = audit(text, self._required, below=below)
        retries = self.settings.quality_guard.max_retries
        for step in range(1, retries + 1):
            if not misses:
                break
            self._report("audit", step, retries)
            try:
                again = self._ask("summary_revise", _tag("summary", escape(text)), missing=escape(str(misses)))
            except _NoAnswerError:
                break
            left = audit(again, self._required, below=below)
            if left.total < misses.total:
                text = again
                misses = left
        return text, misses

    def _report(self, stage: str, step: int, steps: int) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(stage=stage, step=step, steps=steps, calls=self.calls))

    # --- calls -------------------------------------------------------------------

    def _ask(self, template: str, material: str, previous: str = "", **fields: str) -> str:
        """Ask the model for a summary, and cut it to the cap: the next prompt repeats it."""
        if previous:
            material += "\n\n" + _tag("previous-summary", escape(without_lists(previous)))
        prompt = load(template, material=material, rules=self._make_rules(), headings=", ".join(HEADINGS), **fields)
        key = digest(prompt)
        for _ in range(_MAX_BAD_ANSWERS):
            if key in self.done:
                break
            reply = self._call(prompt)
            fault = find_fault(reply)
            if fault is None:
                self.done[key] = reply.text.strip()
            else:
                self.failures.append(fault)
        if key not in self.done:
            raise _NoAnswerError(self.failures[-1])
        return cut_to(self.done[key], limit=self.plan.summary_tokens, count=self.count)

    def _make_rules(self) -> str:
        """Return the rules that every prompt contains."""
        settings = self.settings
        words = str(int(_WORDS_PER_TOKEN * self.plan.summary_tokens))
        language = ""
        if self._required.language not in {None, "Latin script"}:
            language = f", {self._required.language}"
        rules = [load("summary_rules", words=words, language=language)]
        if settings.identifier_policy == "strict":
            rules.append(load("summary_identifiers"))
        elif settings.identifier_policy == "custom":
            rules.append(_quote(settings.identifier_instructions or ""))
        if self.plan.request:
            rules.append(f"The user's last request is: {_quote(self.plan.request)}")
        for focus in (settings.custom_instructions, self.instructions):
            if focus:
                rules.append(f"Additional focus: {_quote(focus)}")
        return "\n\n".join(rule for rule in rules if rule)

    def _call(self, prompt: str) -> Reply:
        """Call the model with retries, within the deadline and the limit of calls."""
        left = self._deadline - self.clock()
        if not self.stop_reason:
            if left < _MIN_TIME:
                self.stop_reason = "the time limit of this compaction has passed"
            elif self.calls + _MAX_TRIES > MAX_CALLS:
                self.stop_reason = f"{self.calls} calls were not enough"
        if self.stop_reason or self.model is None:
            raise _NoAnswerError(self.stop_reason)
        check_cancelled(self.cancel, self.model.name)

        def record(error: ModelError, _failed: int, _wait: float) -> None:
            self.calls += 1
            self.failures.append(str(error))

        retrying = Retrying(
            model=self.model,
            attempts=_MAX_TRIES,
            first_wait=_MIN_WAIT,
            longest_wait=_MAX_WAIT,
            attempt_timeout=_CALL_SHARE * left,
            on_retry=record,
            sleep=lambda seconds, _cancel: self.sleep(seconds),
            chance=lambda: 1.0,
            clock=self.clock,
        )
        system = Message(role="system", parts=(Text(text=load("summary_system")),))
        user = Message(role="user", parts=(Text(text=prompt),))
        self.calls += 1
        try:
            request = Prompt(messages=(system, user), max_tokens=self._max_tokens)
            return retrying.ask(request, timeout=left, cancel=self.cancel)
        except ModelCancelledError:
            raise
        except ModelError as error:
            self.failures.append(str(error))
            # The next call would be refused too, or meet the same rate limit.
            if isinstance(error, ModelRefusedError | ModelBusyError):
                self.stop_reason = str(error)
            raise _NoAnswerError(str(error)) from error


def _tag(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _quote(text: str) -> str:
    return escape(head(text.strip(), _MAX_REPEATED))
