"""Summarise without a model: find by rule what was asked, decided, done and left open, and quote it.

The digest has the headings of every summary, so that the next compaction can continue from it with or without a model.
The appendix is written below every summary, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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

__all__ = ["EARLIER", "IDENTIFIERS", "Turn", "make_appendix", "make_digest", "outline", "outline_plan", "split_turns"]

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
    old = _Previous(without_lists(previous))
    turns = split_turns(messages)
    names = list_identifiers(messages[-_MAX_SEARCHED:], limit=_MAX_NEW_NAMES)
    last, goal, limits, progress, decided, following, context = HEADINGS
    lines = {
        last: _quote_request(request or _last_request(turns), turns),
        goal: _find_goal(old.lines(goal), turns),
        limits: _make_list(old.lines(limits), _find_rules(turns)),
        _DONE: _make_list(old.lines(_DONE), _log(turn for turn in turns if turn.is_finished)),
        _OPEN: _make_list(_still_open(old), [*_list_unfinished(turns), *_list_running(activity)]),
        decided: _make_list(old.lines(decided), _find_decisions(turns)),
        following: _find_next_steps(old.lines(following), activity, turns),
        context: old.lines(context),
        _COMMANDS: _make_list(old.lines(_COMMANDS), [f"`{command}`" for command in activity.commands]),
        IDENTIFIERS: _make_list(old.lines(IDENTIFIERS), reversed(names))[-_MAX_NAMES:],
        EARLIER: old.rest,
    }
    sections = {
        title: Section(title=title, lines=lines.get(title, ()), weight=_WEIGHTS[title], newest=title in _GROWING)
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


class _Previous:
    """The previous summary, by heading."""

    def __init__(self, text: str) -> None:
        self._sections = parse(text)
        self._known = {*HEADINGS, _DONE, _OPEN, _BLOCKED, _COMMANDS, IDENTIFIERS, RECENT, FAILURES}

    def lines(self, title: str) -> tuple[str, ...]:
        """Return the lines under a heading."""
        return tuple(self._sections.get(title, ()))

    @property
    def rest(self) -> tuple[str, ...]:
        """The lines under other headings, or under none."""
        titles = [title for title in self._sections if title not in self._known]
        return tuple(line for title in titles for line in self._sections[title])


# --- sections ----------------------------------------------------------------


def _quote_request(request: str, turns: Sequence[Turn]) -> tuple[str, ...]:
    """Quote the last request; where it is short ("go on"), with the request that it continues."""
    if not request:
        return ()
    lines = clip(request, head=_MAX_REQUEST * 2 // 3, tail=_MAX_REQUEST // 3).splitlines()
    if _is_short(request):
        meant = next((turn.request for turn in reversed(turns) if not _is_short(turn.request)), "")
        lines += [f"(after: {one_line(meant, _MAX_GOAL)})"] if meant and meant != request else []
    return tuple(line for line in lines if line.strip())


def _is_short(text: str) -> bool:
    return len(set(terms(text[:_MAX_GOAL]))) <= _FEW_TERMS


def _last_request(turns: Sequence[Turn]) -> str:
    return next((turn.request for turn in reversed(turns) if turn.request), "")


def _find_goal(old: Sequence[str], turns: Sequence[Turn]) -> tuple[str, ...]:
    first = next((turn.request for turn in turns if not _is_short(turn.request)), "")
    return tuple(old) or ((one_line(first, _MAX_GOAL),) if first else ())


def _find_rules(turns: Sequence[Turn]) -> list[str]:
    """List what the user always wants, forbids or corrects. Long requests are pasted text with rules of others."""
    own = (turn.request for turn in turns if len(turn.request) <= _MAX_REQUEST)
    return [sentence for sentence in signals.select(own, "rule") if not _is_question(sentence)]


def _find_decisions(turns: Sequence[Turn]) -> list[str]:
    """List what was decided, corrected and explained."""
    texts = (text for turn in turns for text in (turn.request, turn.answer))
    sentences = signals.select(texts, "decision", "choice", "correction", "cause")
    return [sentence for sentence in sentences if not _is_question(sentence)]


def _is_question(sentence: str) -> bool:
    return sentence.endswith(("?", "？"))


def _log(turns: Iterable[Turn]) -> list[str]:
    """List requests, each with the beginning of its last answer."""
    return [
        f"{one_line(turn.request, _MAX_QUESTION) or '(going on)'} → {_shorten_answer(turn.answer)}"
        for turn in turns
        if turn.answer or not _is_short(turn.request)
    ]


def _list_unfinished(turns: Sequence[Turn]) -> list[str]:
    """List the requests without a final reply, each with the last answer so far."""
    return [
        f"{_UNFINISHED}: {one_line(turn.request, _MAX_QUESTION)}"
        + (f" → {_shorten_answer(turn.answer)}" if turn.answer else "")
        for turn in turns
        if turn.request and not turn.is_finished
    ]


def _shorten_answer(text: str) -> str:
    """Return the beginning of a reply, without code."""
    return one_line(" ".join(signals.sentences(text)), _MAX_ANSWER) or one_line(text, _MAX_ANSWER) or "(no reply)"


def _still_open(old: _Previous) -> list[str]:
    """List what the previous summary says is open.

    A call that was not answered then will not be, and unfinished requests continue in the messages after it.
    """
    lines = (*old.lines(_OPEN), *old.lines(_BLOCKED))
    return [line for line in lines if not line.startswith((f"- {_WAITING}", f"- {_UNFINISHED}"))]


def _list_running(activity: Activity) -> list[str]:
    steps = [step.text for step in activity.steps if step.status.lower() in _STARTED]
    running = [f"running in the background: {call}" for call in activity.background]
    waiting = [f"{_WAITING}: {call}" for call in activity.pending]
    return [*running, *waiting, *steps]


def _find_next_steps(old: tuple[str, ...], activity: Activity, turns: Sequence[Turn]) -> tuple[str, ...]:
    """List the next steps: those of the plan and of the last answer, else those of the previous summary.

    Once something was answered, the old steps are dropped, so that an old task is not resumed. Without any step, the
    next one is to finish the last request, or to wait for another.
    """
    states = _FINISHED | _STARTED
    steps = [step.text for step in activity.steps if step.status.lower() not in states]
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
    step = f"Finish the last request: {one_line(request, _MAX_QUESTION)}" if request else "Go on with the last request"
    return (f"- {step}",)


def _make_list(old: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Make a list of old and new lines, each once, at its last place."""
    lines = [*old, *(f"- {line}" for line in new)]
    return tuple(reversed(dict.fromkeys(reversed(lines))))


# --- below every summary -------------------------------------------------------

_MAX_TURN: Final = 600
_MAX_FAILURES: Final = 8
_MORE: Final = "- …and"
_MAX_COMMAND: Final = 60
_MAX_FILES: Final = 60


def make_appendix(plan: CompactionPlan, *, recent_turns: int) -> tuple[Section, ...]:
    """Make the sections below every summary, which models tend to forget: turns, failures, files, archive numbers."""
    archive = archive_line(plan.ids, earlier=read_archive_line(plan.previous))
    activity = plan.activity
    return (
        Section(title=RECENT, lines=_quote_turns(plan, recent_turns), weight=10, newest=True),
        Section(title=FAILURES, lines=_list_failures(plan), weight=8, newest=True),
        Section(title="<read-files>", lines=_list_files(activity.read), weight=4, end="</read-files>"),
        Section(title="<modified-files>", lines=_list_files(activity.modified), weight=6, end="</modified-files>"),
        Section(title="", lines=(archive,) if archive else (), weight=8),
    )


def _quote_turns(plan: CompactionPlan, count: int) -> tuple[str, ...]:
    turns = split_turns([item.message for item in plan.summarised])[-count:] if count else []
    lines: list[str] = []
    for turn in turns:
        is_last = turn.request == plan.request
        request = "(the last request, above)" if is_last else one_line(turn.request, _MAX_TURN)
        lines += [f"- User: {request}"] if turn.request else []
        lines += [f"- Assistant: {one_line(turn.answer, _MAX_TURN)}"] if turn.answer else []
    return tuple(lines)


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
