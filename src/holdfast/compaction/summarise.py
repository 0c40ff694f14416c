"""Make the summary of a plan: by a model if there is one, by rule if not, audited either way.

A history is summarised step by step down a ladder, each step tried when the one before it failed: all of it; in smaller
chunks; without what is too large; what was finished with the digest of the rest; the digest alone. The last step needs
no model, so there is always a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
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
"""The steps of the ladder, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A summary that replaces history: `text` as a session file stores it, `framed` as it is in the window.

    `misses` is what the model's own words lacked, and was added by rule. `details` are files, failed calls and what a
    hook adds, as session files store them.
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
    """The progress of a compaction: the stage (`history`, `merge`, ...), chunk and number of chunks, calls so far."""

    stage: str
    step: int
    steps: int
    calls: int


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
_MAX_REPEATED: Final = 800
"""The most characters of instructions and of the last request that every prompt repeats."""
_MAX_TRIES: Final = 3
_MAX_BAD_ANSWERS: Final = 2
"""Number of times that an answer which cannot be a summary is requested again."""
_MIN_WAIT: Final = 0.5
_MAX_WAIT: Final = 5.0
_CALL_SHARE: Final = 2 / 3
"""The share of the remaining time for one call, so that there is time for another."""
_MIN_TIME: Final = 0.5


def make_details(plan: CompactionPlan) -> dict[str, Any]:
    """Return the files and failures in what a plan summarises, as session files store them."""
    done = plan.activity
    return {
        "readFiles": list(done.read),
        "modifiedFiles": list(done.modified),
        "toolFailures": [{"toolName": failure.tool, "summary": str(failure)} for failure in done.failures],
    }


class _NoAnswerError(HoldfastError):
    """There is no usable answer: the next step of the ladder is tried."""


@dataclass(frozen=True, slots=True)
class _Passage:
    """A unit of history as text for a summariser."""

    text: str
    tokens: int
    messages: tuple[Message, ...]


_Parts: TypeAlias = list[list[list[_Passage]]]
"""A history to summarise: parts that are merged at the end, each of chunks of units."""


class _Made(NamedTuple):
    """The summary of a part of history, and the step of the ladder that it comes from."""

    text: str
    rung: Rung


@dataclass(slots=True)
class _Partial:
    """The progress of one way to summarise: the summaries of the first `units` units."""

    texts: list[str]
    units: int = 0


@dataclass(slots=True, kw_only=True)
class Summariser:
    """Makes the summary of a plan, down the ladder. Nothing is changed: the caller records it.

    Without a model it makes the digest. `clock` returns monotonic seconds; `sleep` waits between two tries, and may be
    `cancel.wait`. `instructions` are the user's, for this summary. `on_progress` must not raise. `done` has finished
    answers by the digest of their prompt: if the caller keeps them, they are not asked for again after a failure.
    `hopeless` says why further calls make no sense; it is empty while they do.
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
    calls: int = field(default=0, init=False)
    troubles: list[str] = field(default_factory=list, init=False)
    hopeless: str = field(default="", init=False)
    _deadline: float = field(init=False)
    _max_tokens: int = field(init=False)
    _required: Checklist = field(init=False)
    _appendix: tuple[Section, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.model, Retrying):  # its own retries would multiply those of a compaction
            self.model = self.model.model
        reserve = self.settings.reserve_tokens
        if reserve is None:
            reserve = DEFAULT_RESERVE_TOKENS
        reply = min(int(_REPLY_SHARE * reserve), self.window_tokens // 4)
        self._max_tokens = max(_MIN_REPLY, reply)
        self._deadline = self.clock() + self.settings.timeout_seconds
        self._required = find_requirements(self.plan, settings=self.settings)
        self._appendix = make_appendix(self.plan, recent_turns=self.settings.recent_turns_preserve)

    def summarise(self) -> Summary:
        """Summarise, audit and repair; make the digest if the model gives no summary.

        If no summary would be shorter than what it replaces, that is a CompactionError.
        """
        if self.plan.outcome != "ready":
            raise CompactionError(self.plan.reason)
        made = self._summarise_parts() if self.model is not None else None
        misses = Checklist()
        if made is None:
            sections = [section for group in outline_plan(self.plan).values() for section in group]
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
            rung=made.rung if made else "digest",
            calls=self.calls,
            misses=misses,
            warnings=tuple(dict.fromkeys(self.troubles)),
            details=make_details(self.plan),
        )

    def _fit(self, sections: Sequence[Section]) -> tuple[str, int]:
        """Pack sections and appendix into the cap, in the frame, and shorter than what they replace."""
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

    # --- the ladder --------------------------------------------------------------

    def _summarise_parts(self) -> _Made | None:
        """Summarise the history and the beginning of a split turn; None if every part is a digest."""
        plan, history = self.plan, self.plan.previous
        made: list[_Made] = []
        for stage, items in (("dropped", plan.dropped), ("history", plan.history)):
            if items:
                made.append(self._climb(stage, items, history))
                history = made[-1].text
        if plan.prefix:
            made.append(self._climb("prefix", plan.prefix, ""))
        if all(one.rung == "digest" for one in made):
            return None
        worst = max((min(one.rung, "partial", key=RUNGS.index) for one in made), key=RUNGS.index)
        turn = f"{without_lists(history, and_turns=True)}\n\n{_TURN}\n\n{made[-1].text}"
        return _Made(turn if plan.prefix else history, worst)

    def _climb(self, stage: str, items: Sequence[Item], previous: str) -> _Made:
        """Summarise a part of history after the previous summary; try one step of the ladder after the other."""
        units = [self._make_passage(span) for span in spans(items)]
        best = _Partial([without_lists(previous, and_turns=True)])
        for rung, parts in self._ways(units):
            finished = _Partial(best.texts[:1])
            try:
                return _Made(self._summarise(stage, parts, previous, finished), rung)
            except _NoAnswerError:
                best = max(best, finished, key=lambda one: one.units)
            if self.hopeless:
                break
        rest = [message for unit in units[best.units :] for message in unit.messages]
        if not best.units:
            return _Made(self._digest(rest, previous), "digest")
        texts = [text for text in best.texts if text]
        if rest:
            note = f"[Partial summary: the first {best.units} of {len(units)} exchanges."
            texts += [f"{note} What follows was put together by rule.]", self._digest(rest, "")]
        return _Made("\n\n".join(texts), "partial")

    def _make_passage(self, span: Span) -> _Passage:
        """Render a unit for a summariser; of one that would fill its window only the beginning and the end."""
        messages = tuple(item.message for item in span.items)
        text = render_messages(messages)
        passage = _Passage(text, self.count(text), messages)
        if not is_oversized(passage, self.window_tokens):
            return passage
        size = len(text) * self.window_tokens // (4 * passage.tokens)
        left = clip(text, head=size * 2 // 3, tail=size // 3, marker="\n[... the middle is left out: too long]\n")
        return replace(passage, text=left)  # its tokens stay, so that a later step may leave it out

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
        # Beside the chunk, a prompt has room for the previous summary and the answer.
        previous = max(self.plan.summary_tokens, self.count(self.plan.previous))
        room = max(self.window_tokens // 8, self.window_tokens - self._max_tokens - OVERHEAD - previous)
        most = chunk_tokens(units, self.window_tokens) if is_staged else room
        whole = split_by_size(units, most)
        stages = [whole]
        if is_staged and len(whole) > 1 and len(units) >= _MIN_STAGED:
            stages = [split_by_size(part, most) for part in split_by_share(units)]
        yield "full", stages
        smaller = split_by_size(units, max(1, min(most, count_tokens(units)) // 2))
        if len(smaller) > len(whole):
            yield "smaller", [smaller]
        reduced = list(units)
        for index, unit in enumerate(units):
            if is_oversized(unit, self.window_tokens):
                size = f"~{max(1, round(unit.tokens / 1000))}K tokens"
                text = f"[Large {unit.messages[0].role} message ({size}) omitted from summary]"
                reduced[index] = replace(unit, text=text, tokens=len(text))
        if reduced != list(units):
            yield "without_oversized", [split_by_size(reduced, most)]

    def _summarise(self, stage: str, parts: _Parts, previous: str, finished: _Partial) -> str:
        """Summarise chunk after chunk, and merge the parts. `finished` is kept up to date, in case a call fails."""
        total, is_merged, step = sum(map(len, parts)), len(parts) > 1, 0
        for part in parts:
            so_far = "" if is_merged else previous
            finished.texts.append("")
            for chunk in part:
                step += 1
                self._report(stage, step, total)
                template = "summary_prefix" if stage == "prefix" else "summary_update" if so_far else "summary"
                so_far = self._ask(template, _tag("conversation", "\n\n".join(unit.text for unit in chunk)), so_far)
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
                text, misses = again, left
        return text, misses

    def _report(self, stage: str, step: int, steps: int) -> None:
        if self.on_progress is not None:
            self.on_progress(Progress(stage=stage, step=step, steps=steps, calls=self.calls))

    # --- calls -------------------------------------------------------------------

    def _ask(self, template: str, material: str, previous: str = "", **fields: str) -> str:
        """Ask for a summary, and cut it to the cap, since the next prompt repeats it."""
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
                self.troubles.append(fault)
        if key not in self.done:
            raise _NoAnswerError(self.troubles[-1])
        return cut_to(self.done[key], limit=self.plan.summary_tokens, count=self.count)

    def _make_rules(self) -> str:
        settings, language = self.settings, self._required.language
        words = str(int(_WORDS_PER_TOKEN * self.plan.summary_tokens))
        named = f", {language}" if language not in {None, "Latin script"} else ""
        identifiers = load("summary_identifiers") if settings.identifier_policy == "strict" else ""
        if settings.identifier_policy == "custom":
            identifiers = _quote(settings.identifier_instructions or "")
        rules = [load("summary_rules", words=words, language=named), identifiers]
        rules += [f"The user's last request is: {_quote(self.plan.request)}"] if self.plan.request else []
        rules += [
            f"Additional focus: {_quote(text)}" for text in (settings.custom_instructions, self.instructions) if text
        ]
        return "\n\n".join(rule for rule in rules if rule)

    def _call(self, prompt: str) -> Reply:
        """Call the model with retries, within the deadline and the limit of calls."""
        left = self._deadline - self.clock()
        if left < _MIN_TIME:
            self.hopeless = self.hopeless or "the time for this compaction is over"
        elif self.calls + _MAX_TRIES > MAX_CALLS:
            self.hopeless = self.hopeless or f"{self.calls} calls were not enough"
        if self.hopeless or self.model is None:
            raise _NoAnswerError(self.hopeless)
        check_cancelled(self.cancel, self.model.name)

        def record(error: ModelError, _failed: int, _wait: float) -> None:
            self.calls += 1
            self.troubles.append(str(error))

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
            self.troubles.append(str(error))
            if isinstance(error, ModelRefusedError | ModelBusyError):
                self.hopeless = str(error)
            raise _NoAnswerError(str(error)) from error


def _tag(tag: str, text: str) -> str:
    return f"<{tag}>\n{text}\n</{tag}>"


def _quote(text: str) -> str:
    return escape(head(text.strip(), _MAX_REPEATED))
