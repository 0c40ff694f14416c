"""Summarise without a model: find by rule what was asked, decided, done and left open, and quote it.

The digest has the headings of every summary, so that the next compaction can continue from it with or without a model.
The appendix is written below every summary, including those of models and hooks.
"""

from __future__ import annotations

import re
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
from holdfast.compaction.statements import list_stated, states_only
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
_GOING_ON: Final = "(going on)"
"""Stands for the request of a turn whose beginning is not among the messages."""
_MAX_NEW_NAMES: Final = 40
"""The maximum number of identifiers from new messages."""
_MAX_NAMES: Final = 60
"""The maximum number of identifiers in all."""
_MAX_SEARCHED: Final = 200
"""How many of the newest messages are searched for identifiers."""
_MAX_REQUEST: Final = 1_500
"""The maximum characters of the last request. A longer one contains pasted text."""
_MAX_GOAL: Final = 400
"""The maximum characters of a goal."""
_MAX_QUESTION: Final = 160
"""The maximum characters of a request in the list of turns."""
_MAX_ANSWER: Final = 240
"""The maximum characters of an answer in the list of turns."""
_MAX_OPEN_GOALS: Final = 2
"""The maximum number of open requests under the goal."""
# Few of both are listed, because what was done, and with which commands, is rarely needed later.
_MAX_DONE: Final = 8
"""How many finished turns are listed, the newest ones."""
_MAX_COMMANDS: Final = 10
"""How many commands are listed, the newest ones."""
_NUMBER: Final = re.compile(r"\d+")
_FEW_TERMS: Final = 4
"""A request with no more terms than this is short: "go on", "yes, do that"."""
_WEIGHTS: Final = {
    **dict(zip(HEADINGS, (12, 3, 10, 1, 10, 3, 8), strict=True)),
    _DONE: 4,
    _OPEN: 3,
    _COMMANDS: 2,
    IDENTIFIERS: 3,
    EARLIER: 3,
}
_GROWING: Final = frozenset({HEADINGS[2], HEADINGS[4], HEADINGS[6], _DONE, _OPEN, _COMMANDS, IDENTIFIERS})
"""The lists that grow with each compaction: their newest lines are kept."""
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
    return pack(chain.from_iterable(groups.values()), limit=limit, count=count)


def outline(
    messages: Sequence[Message],
    *,
    activity: Activity,
    previous: str = "",
    request: str = "",
    kept: Sequence[Message] = (),
) -> dict[str, tuple[Section, ...]]:
    """Make the sections of the digest by heading, the last request first; a section may be empty.

    `kept` are the messages after these, which stay in the window. A request may be finished there.
    """
    old: dict[str, list[str]] = defaultdict(list, parse(without_lists(previous)))
    # The last turn may end in what is kept. Without its end, finished work would be listed as open.
    end = _end_turn(kept)
    turns = split_turns([*messages, *end])
    later_turns = split_turns(kept[len(end) :])
    newest = (later_turns or turns)[-1:]
    is_waiting = any(turn.is_finished for turn in newest)
    known = _Sources(turns, activity, old, request, is_waiting=is_waiting)
    names = list_identifiers(messages[-_MAX_SEARCHED:], limit=_MAX_NEW_NAMES)
    earlier: dict[str, None] = {}  # the lines under headings that Holdfast does not write, each once
    for title, old_lines in old.items():
        if title not in _KNOWN:
            earlier.update(dict.fromkeys(old_lines))
    last, goal, limits, progress, decided, following, context = HEADINGS
    stated = list_stated({"rule": old[limits], "decision": old[decided], "value": old[context]}, messages)
    lines: dict[str, Sequence[str]] = {
        last: known.quote_request(),
        goal: known.find_goals(old[goal]),
        limits: stated["rule"],
        _DONE: _make_list(old[_DONE], known.list_done())[-_MAX_DONE:],
        _OPEN: known.list_open(),
        decided: stated["decision"],
        following: known.find_next_steps(old[following]),
        context: stated["value"],
        _COMMANDS: _list_commands(old[_COMMANDS], activity.commands),
        IDENTIFIERS: _make_list(old[IDENTIFIERS], reversed(names))[-_MAX_NAMES:],
        EARLIER: tuple(earlier),
    }
    sections: dict[str, Section] = {}
    for title, weight in _WEIGHTS.items():
        own_lines = tuple(lines.get(title, ()))
        sections[title] = Section(title=title, lines=own_lines, weight=weight, newest=title in _GROWING)
    groups: dict[str, tuple[Section, ...]] = {}
    for heading in HEADINGS:
        groups[heading] = (sections[heading],)
    groups[progress] = _nest(sections[progress], sections[_DONE], sections[_OPEN])
    groups[context] = _nest(sections[context], sections[_COMMANDS], sections[IDENTIFIERS], sections[EARLIER])
    return groups


def _end_turn(kept: Iterable[Message]) -> list[Message]:
    """Return the messages that end the turn before them: those before the next request."""
    found: list[Message] = []
    for message in kept:
        if message.role == "user" and own_words(message):
            break
        found.append(message)
    return found


def outline_plan(plan: CompactionPlan) -> dict[str, tuple[Section, ...]]:
    """Make the sections of the digest of everything that a plan summarises."""
    messages = [item.message for item in plan.covered]
    kept = [item.message for item in plan.kept_after]
    return outline(messages, activity=plan.activity, previous=plan.previous, request=plan.request, kept=kept)


def _nest(parent: Section, *children: Section) -> tuple[Section, ...]:
    """Put smaller headings under a heading. Without own lines, it is joined with its first child."""
    filled = [child for child in children if child.lines]
    if parent.lines or not filled:
        return (parent, *filled)
    first, *others = filled
    return (replace(first, title=f"{parent.title}\n{first.title}"), *others)


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of a digest's sections.

    Attributes:
        turns: The turns of what is summarised, the last one with its end.
        activity: What was done in them.
        old: The previous summary, by heading.
        request: The last request of the user, which may be a later one.
        is_waiting: Whether the last request has its final reply.
    """

    turns: Sequence[Turn]
    activity: Activity
    old: Mapping[str, Sequence[str]]
    request: str
    is_waiting: bool

    def quote_request(self) -> list[str]:
        """Quote the last request. If it is short ("go on"), add the request that it continues."""
        requests = [turn.request for turn in self.turns if turn.request]
        request = self.request
        if not request and requests:
            request = requests[-1]
        lines = clip(request, head=_MAX_REQUEST * 2 // 3, tail=_MAX_REQUEST // 3).splitlines()
        if request and _is_short(request):
            for earlier in reversed(requests):
                if not _is_short(earlier):
                    lines.append(f"(after: {one_line(earlier, _MAX_GOAL)})")
                    break
        return [line for line in lines if line.strip()]

    def find_goals(self, old: Sequence[str]) -> Sequence[str]:
        """List the open requests, newest first, and then the first request of all, which began the work.

        The last request is not listed, because the summary begins with it. A statement is not a request.
        """
        goals: list[str] = []
        for turn in reversed(self.turns):
            if _is_task(turn) and not turn.is_finished and turn.request != self.request:
                goals.append(one_line(turn.request, _MAX_GOAL))
        first = list(old[-1:])
        if not first:
            tasks = [turn for turn in self.turns if _is_task(turn)]
            if not tasks:
                tasks = [turn for turn in self.turns if not _is_short(turn.request) and not states_only(turn.request)]
            first = [one_line(turn.request, _MAX_GOAL) for turn in tasks[:1]]
        return list(dict.fromkeys([*goals[:_MAX_OPEN_GOALS], *first]))  # each once

    def list_done(self) -> list[str]:
        """List the finished turns.

        Two kinds are left out. A statement with a short reply such as "OK" is in another list. And if only the end of a
        turn is among the messages, the previous summary may already list the turn with the same reply.
        """
        found: list[str] = []
        turns: list[Turn] = []
        for turn in self.turns:
            if not states_only(turn.request) or not _is_short(turn.answer):
                turns.append(turn)
        for line in _log_turns(turns, is_finished=True):
            reply = line.removeprefix(_GOING_ON)
            is_known = reply != line and any(old.endswith(reply) for old in self.old[_DONE])
            if not is_known:
                found.append(line)
        return found

    def list_open(self) -> tuple[str, ...]:
        """List what is open: by the previous summary, by the turns, and by the tool calls.

        Two kinds of lines of the previous summary are dropped: calls without a result, since no result will come, and
        unfinished requests, which continue in the messages after it.
        """
        old: list[str] = []
        for line in (*self.old[_OPEN], *self.old[_BLOCKED]):
            if not line.startswith((f"- {_WAITING}", f"- {_UNFINISHED}")):
                old.append(line)
        new = _log_turns(self.turns, is_finished=False)
        new += [f"running in the background: {call}" for call in self.activity.background]
        new += [f"{_WAITING}: {call}" for call in self.activity.pending]
        new += [step.text for step in self.activity.steps if step.status.lower() in _STARTED]
        return _make_list(old, new)

    def find_next_steps(self, old: Sequence[str]) -> Sequence[str]:
        """List the next steps: those of the plan and of the last answer, else those of the previous summary.

        Once something was answered, the old steps are dropped, so that an old task is not resumed. If there are no
        steps, the next one is to finish the last request, or to wait for another.
        """
        turns = self.turns
        steps = [step.text for step in self.activity.steps if step.status.lower() not in _FINISHED | _STARTED]
        if turns:
            steps += signals.select([turns[-1].answer], "todo")
        if steps:
            return _make_list((), steps)
        if old and not any(turn.answer for turn in turns):
            return old
        if not turns:
            return ()
        if self.is_waiting:
            return ("- Wait for the next request",)
        request = self.request or turns[-1].request
        if request:
            return (f"- Finish the last request: {one_line(request, _MAX_QUESTION)}",)
        return ("- Go on with the last request",)


def _is_short(text: str) -> bool:
    return len(set(terms(text[:_MAX_GOAL]))) <= _FEW_TERMS


def _is_task(turn: Turn) -> bool:
    """Return whether a turn begins with a request that says what to do."""
    return signals.asks(turn.request) and len(set(terms(turn.request[:_MAX_GOAL]))) >= _FEW_TERMS


def _log_turns(turns: Iterable[Turn], *, is_finished: bool) -> list[str]:
    lines: list[str] = []
    for turn in turns:
        if turn.is_finished is not is_finished:
            continue
        if is_finished:
            line = _log_finished(turn)
        else:
            line = _log_unfinished(turn)
        if line:
            lines.append(line)
    return lines


def _log_finished(turn: Turn) -> str:
    """Return a turn as one line; empty for a short request that got no answer."""
    if not turn.answer and _is_short(turn.request):
        return ""
    request = one_line(turn.request, _MAX_QUESTION) or _GOING_ON
    return f"{request} → {_shorten_answer(turn) or '(no reply)'}"


def _log_unfinished(turn: Turn) -> str:
    request = one_line(turn.request, _MAX_QUESTION)
    if not request:
        return ""
    if not turn.answer:
        return f"{_UNFINISHED}: {request}"
    return f"{_UNFINISHED}: {request} → {_shorten_answer(turn) or '(no reply)'}"


def _shorten_answer(turn: Turn) -> str:
    """Return the answer as one line, without code unless it has nothing else."""
    prose = " ".join(signals.sentences(turn.answer))
    return one_line(prose, _MAX_ANSWER) or one_line(turn.answer, _MAX_ANSWER)


def _list_commands(old: Sequence[str], commands: Iterable[str]) -> tuple[str, ...]:
    """List the newest commands. If commands differ only in numbers, the last of them is listed."""
    newest: dict[str, str] = {}
    for line in _make_list(old, [f"`{command}`" for command in commands]):
        form = _NUMBER.sub("0", line)
        newest.pop(form, None)
        newest[form] = line
    return tuple(newest.values())[-_MAX_COMMANDS:]


def _make_list(old: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Make a list of old and new lines. A repeated line is kept in its last position only."""
    lines = [*old, *(f"- {line}" for line in new)]
    return tuple(reversed(dict.fromkeys(reversed(lines))))


_MAX_TURN: Final = 600
"""The maximum characters of a request and of an answer in the list of recent turns."""
_MAX_FAILURES: Final = 8
"""The maximum number of failed calls, the newest ones."""
_MORE: Final = "- …and"
"""The beginning of the line that counts the others."""
_MAX_COMMAND: Final = 60
"""How many characters of a command are compared with that of a failure."""
_MAX_FILES: Final = 60
"""The maximum number of files in each of the two lists."""


def make_appendix(plan: CompactionPlan, *, recent_turns: int, is_recalled: bool) -> tuple[Section, ...]:
    """Make the sections below every summary, which models tend to forget: turns, failures, files, archive numbers."""
    archive: tuple[str, ...] = ()
    line = archive_line(plan.ids, earlier=read_archive_line(plan.previous), is_recalled=is_recalled)
    if line:
        archive = (line,)
    activity = plan.activity
    turns: list[Turn] = []
    if recent_turns:
        turns = split_turns([item.message for item in plan.covered])[-recent_turns:]
    lines: list[str] = []
    for turn in turns:
        if turn.request:
            request = "(the last request, above)"
            if turn.request != plan.request:
                request = one_line(turn.request, _MAX_TURN)
            lines.append(f"- User: {request}")
        if turn.answer:
            lines.append(f"- Assistant: {one_line(turn.answer, _MAX_TURN)}")
    return (
        Section(title=RECENT, lines=tuple(lines), weight=10, newest=True),
        Section(title=FAILURES, lines=_list_failures(plan), weight=8, newest=True),
        Section(title="<read-files>", lines=_list_files(activity.read), weight=4, end="</read-files>"),
        Section(title="<modified-files>", lines=_list_files(activity.modified), weight=6, end="</modified-files>"),
        Section(title="", lines=archive, weight=8),
    )


def _list_failures(plan: CompactionPlan) -> tuple[str, ...]:
    """List the newest failures; those of the previous summary are kept until their command succeeds."""
    succeeded = tuple(f"- {one_line(command, _MAX_COMMAND)}" for command in plan.activity.commands)
    old = parse(without_lists(plan.previous)).get(FAILURES, ())
    failures = [line for line in old if not line.startswith((*succeeded, _MORE))]
    failures += [f"- {failure}" for failure in plan.activity.failures]
    failures = list(dict.fromkeys(failures))
    left_out = len(failures) - _MAX_FAILURES
    if left_out <= 0:
        return tuple(failures)
    return (f"{_MORE} {left_out} earlier ones", *failures[-_MAX_FAILURES:])


def _list_files(paths: tuple[str, ...]) -> tuple[str, ...]:
    left_out = len(paths) - _MAX_FILES
    if left_out <= 0:
        return paths
    return (*paths[:_MAX_FILES], f"and {left_out} more…")
