"""Summarise without a model: find by rule what was asked, decided, done and left open, and quote it.

The digest has the headings of every summary, so that the next compaction can continue from it with or without a model.
The appendix is written below every summary, whoever made it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from holdfast import signals
from holdfast.compaction.dialogue import list_identifiers, one_line, own_words
from holdfast.compaction.plan import CompactionPlan
from holdfast.compaction.sections import (
    FAILURES,
    HEADINGS,
    RECENT,
    Section,
    archive_line,
    pack,
    parse,
    read_archive_line,
    without_lists,
)
from holdfast.compaction.tool_calls import Activity
from holdfast.messages import Message
from holdfast.text import clip, terms
from holdfast.tokens import TokenCounter, count_text

EARLIER: Final = "### Earlier"
IDENTIFIERS: Final = "### Exact Identifiers"
_COMMANDS: Final = "### Commands"
_DONE: Final = "### Done"
_OPEN: Final = "### In Progress"
_BLOCKED: Final = "### Blocked"
_WAITING: Final = "called, not answered"
_UNFINISHED: Final = "not finished"
_MAX_NEW_NAMES: Final = 40
_MAX_NAMES: Final = 60
_MAX_SEARCHED: Final = 200
"""The number of the newest messages that are searched for identifiers."""
_MAX_REQUEST: Final = 1_500
_MAX_GOAL: Final = 400
_MAX_QUESTION: Final = 160
_MAX_ANSWER: Final = 240
_FEW_TERMS: Final = 4
_WEIGHTS: Final = {
    **dict(zip(HEADINGS, (12, 3, 5, 1, 6, 3, 3), strict=True)),
    _DONE: 8,
    _OPEN: 3,
    _COMMANDS: 4,
    IDENTIFIERS: 4,
    EARLIER: 3,
}
_GROWING: Final = frozenset({HEADINGS[2], HEADINGS[4], HEADINGS[6], _DONE, _OPEN, _COMMANDS, IDENTIFIERS})
"""The lists that grow: their newest lines are kept."""
_KNOWN: Final = frozenset({*HEADINGS, _DONE, _OPEN, _BLOCKED, _COMMANDS, IDENTIFIERS, RECENT, FAILURES})
_FINISHED: Final = frozenset({"completed", "done", "complete", "cancelled", "finished"})
_STARTED: Final = frozenset({"in_progress", "in-progress", "active", "doing", "running"})


@dataclass(frozen=True, slots=True)
class Turn:
    """A request of the user, and the last answer to it.

    A turn that `is_finished` ends with a reply that calls no tool.
    """

    request: str
    answer: str
    is_finished: bool = True


def split_turns(messages: Iterable[Message]) -> list[Turn]:
    """Split a conversation into turns; messages before the first request are a turn without one."""
    turns = [Turn("", "")]
    for message in messages:
        text = own_words(message)
        if message.role == "user" and text:
            turns.append(Turn(text, "", is_finished=False))
        elif message.role == "assistant" and (text or message.calls):
            turns[-1] = Turn(turns[-1].request, text or turns[-1].answer, is_finished=not message.calls)
    return [turn for turn in turns if turn.request or turn.answer]


def make_digest(
    messages: Sequence[Message],
    *,
    limit: int,
    activity: Activity,
    previous: str = "",
    request: str = "",
    count: TokenCounter = count_text,
) -> str:
    """Digest messages and the previous summary in at most `limit` tokens."""
    groups = outline(messages, activity=activity, previous=previous, request=request)
    return pack((section for group in groups.values() for section in group), limit=limit, count=count)


def outline(
    messages: Sequence[Message], *, activity: Activity, previous: str = "", request: str = ""
) -> dict[str, tuple[Section, ...]]:
    """Make the sections of the digest by heading, the last request first; a section may be empty."""
    old: dict[str, list[str]] = defaultdict(list, parse(without_lists(previous)))
    turns = split_turns(messages)
    known = _Known(turns, activity, old, request)
    names = list_identifiers(messages[-_MAX_SEARCHED:], limit=_MAX_NEW_NAMES)
    first = next((turn.request for turn in turns if not _is_short(turn.request)), "")
    # Long requests are pasted text with rules of others.
    own = [turn.request for turn in turns if len(turn.request) <= _MAX_REQUEST]
    texts = [text for turn in turns for text in (turn.request, turn.answer)]
    last, goal, limits, progress, decided, following, context = HEADINGS
    lines: dict[str, Sequence[str]] = {
        last: known.quote_request(),
        goal: old[goal] or list(filter(None, [one_line(first, _MAX_GOAL)])),
        limits: _make_list(old[limits], _select(own, "rule")),
        _DONE: _make_list(old[_DONE], _log_turns(turns, is_finished=True)),
        _OPEN: known.list_open(),
        decided: _make_list(old[decided], _select(texts, "decision", "choice", "correction", "cause")),
        following: known.find_next_steps(old[following]),
        context: old[context],
        _COMMANDS: _make_list(old[_COMMANDS], [f"`{command}`" for command in activity.commands]),
        IDENTIFIERS: _make_list(old[IDENTIFIERS], reversed(names))[-_MAX_NAMES:],
        EARLIER: list(dict.fromkeys(chain.from_iterable(old[title] for title in old if title not in _KNOWN))),
    }
    sections = {
        title: Section(title=title, lines=tuple(lines.get(title, ())), weight=_WEIGHTS[title], newest=title in _GROWING)
        for title in _WEIGHTS
    }
    return {
        **{heading: (sections[heading],) for heading in HEADINGS},
        progress: _nest(sections[progress], sections[_DONE], sections[_OPEN]),
        context: _nest(sections[context], sections[_COMMANDS], sections[IDENTIFIERS], sections[EARLIER]),
    }


def outline_plan(plan: CompactionPlan) -> dict[str, tuple[Section, ...]]:
    """Make the sections of the digest of everything that a plan summarises."""
    messages = [item.message for item in plan.summarised]
    return outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request)


def _nest(parent: Section, *children: Section) -> tuple[Section, ...]:
    """Put smaller headings under a heading; one without lines of its own is joined with its first child."""
    filled = [child for child in children if child.lines]
    if parent.lines or not filled:
        return (parent, *filled)
    first, *others = filled
    return (replace(first, title=f"{parent.title}\n{first.title}"), *others)


@dataclass(frozen=True, slots=True)
class _Known:
    """The sources of a digest's sections. `old` is the previous summary, by heading."""

    turns: Sequence[Turn]
    activity: Activity
    old: Mapping[str, Sequence[str]]
    request: str

    def quote_request(self) -> list[str]:
        """Quote the last request; if it is short ("go on"), with the request that it continues."""
        asked = [turn.request for turn in self.turns if turn.request]
        request = self.request or (asked[-1] if asked else "")
        lines = clip(request, head=_MAX_REQUEST * 2 // 3, tail=_MAX_REQUEST // 3).splitlines()
        if request and _is_short(request):
            meant = next((text for text in reversed(asked) if not _is_short(text)), request)
            lines += [f"(after: {one_line(meant, _MAX_GOAL)})"] if meant != request else []
        return [line for line in lines if line.strip()]

    def list_open(self) -> tuple[str, ...]:
        """List what is open: by the previous summary, in the turns, and by what tools do.

        A call that was not answered then will not be, and unfinished requests continue in the messages after it.
        """
        before = [*self.old[_OPEN], *self.old[_BLOCKED]]
        return _make_list(
            [line for line in before if not line.startswith((f"- {_WAITING}", f"- {_UNFINISHED}"))],
            [
                *_log_turns(self.turns, is_finished=False),
                *(f"running in the background: {call}" for call in self.activity.background),
                *(f"{_WAITING}: {call}" for call in self.activity.pending),
                *(step.text for step in self.activity.steps if step.status.lower() in _STARTED),
            ],
        )

    def find_next_steps(self, old: Sequence[str]) -> Sequence[str]:
        """List the next steps: those of the plan and of the last answer, else those of the previous summary.

        Once something was answered, the old steps are dropped, so that an old task is not resumed. Without any step,
        the next one is to finish the last request, or to wait for another.
        """
        turns = self.turns
        steps = [step.text for step in self.activity.steps if step.status.lower() not in _FINISHED | _STARTED]
        steps += signals.select([turns[-1].answer], "todo") if turns else []
        if steps:
            return _make_list((), steps)
        if old and not any(turn.answer for turn in turns):
            return old
        if not turns:
            return ()
        if turns[-1].is_finished:
            return ("- Wait for the next request",)
        request = turns[-1].request
        step = (
            f"Finish the last request: {one_line(request, _MAX_QUESTION)}" if request else "Go on with the last request"
        )
        return (f"- {step}",)


def _is_short(text: str) -> bool:
    return len(set(terms(text[:_MAX_GOAL]))) <= _FEW_TERMS


def _select(texts: Iterable[str], *kinds: signals.Signal) -> list[str]:
    return [sentence for sentence in signals.select(texts, *kinds) if not sentence.endswith(("?", "？"))]


def _log_turns(turns: Iterable[Turn], *, is_finished: bool) -> list[str]:
    return [line for turn in turns if turn.is_finished is is_finished and (line := _log(turn))]


def _log(turn: Turn) -> str:
    request, text = one_line(turn.request, _MAX_QUESTION), turn.answer
    # Without code, unless it is nothing but code.
    answer = one_line(" ".join(signals.sentences(text)), _MAX_ANSWER) or one_line(text, _MAX_ANSWER) or "(no reply)"
    if turn.is_finished:
        return "" if not text and _is_short(turn.request) else f"{request or '(going on)'} → {answer}"
    return f"{_UNFINISHED}: {request}" + (f" → {answer}" if text else "") if request else ""


def _make_list(old: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Make a list of old and new lines, each once, at its last place."""
    lines = [*old, *(f"- {line}" for line in new)]
    return tuple(reversed(dict.fromkeys(reversed(lines))))


_MAX_TURN: Final = 600
_MAX_FAILURES: Final = 8
_MORE: Final = "- …and"
_MAX_COMMAND: Final = 60
_MAX_FILES: Final = 60


def make_appendix(plan: CompactionPlan, *, recent_turns: int) -> tuple[Section, ...]:
    """Make the sections below every summary, which models tend to forget: turns, failures, files, archive numbers."""
    archive = archive_line(plan.ids, earlier=read_archive_line(plan.previous))
    activity = plan.activity
    turns = split_turns([item.message for item in plan.summarised])[-recent_turns:] if recent_turns else []
    lines: list[str] = []
    for turn in turns:
        is_last = turn.request == plan.request
        request = "(the last request, above)" if is_last else one_line(turn.request, _MAX_TURN)
        lines += [f"- User: {request}"] if turn.request else []
        lines += [f"- Assistant: {one_line(turn.answer, _MAX_TURN)}"] if turn.answer else []
    return (
        Section(title=RECENT, lines=tuple(lines), weight=10, newest=True),
        Section(title=FAILURES, lines=_list_failures(plan), weight=8, newest=True),
        Section(title="<read-files>", lines=_list_files(activity.read), weight=4, end="</read-files>"),
        Section(title="<modified-files>", lines=_list_files(activity.modified), weight=6, end="</modified-files>"),
        Section(title="", lines=(archive,) if archive else (), weight=8),
    )


def _list_failures(plan: CompactionPlan) -> tuple[str, ...]:
    """List the newest failures; those of the previous summary stay until their command succeeds."""
    succeeded = tuple(f"- {one_line(command, _MAX_COMMAND)}" for command in plan.activity.commands)
    old = parse(without_lists(plan.previous)).get(FAILURES, ())
    lines = [line for line in old if not line.startswith((*succeeded, _MORE))]
    every = list(dict.fromkeys([*lines, *(f"- {failure}" for failure in plan.activity.failures)]))
    more = len(every) - _MAX_FAILURES
    return (*((f"{_MORE} {more} earlier ones",) if more > 0 else ()), *every[-_MAX_FAILURES:])


def _list_files(paths: tuple[str, ...]) -> tuple[str, ...]:
    more = len(paths) - _MAX_FILES
    return (*paths[:_MAX_FILES], f"and {more} more…") if more > 0 else paths
