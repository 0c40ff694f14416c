"""A summary that needs no model: what was asked, decided, done and left open, found by rule and quoted.

It has the headings of every summary, so that the next compaction goes on from it whoever writes that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.compaction import frame
from holdfast.compaction.activity import Activity
from holdfast.compaction.dialogue import one_line, words
from holdfast.compaction.identifiers import identifiers
from holdfast.compaction.remarks import decisions, next_steps, rules, sentences
from holdfast.compaction.sections import FAILURES, HEADINGS, RECENT, Section, pack, parse
from holdfast.messages import Message
from holdfast.text import clip, terms
from holdfast.tokens import TokenCounter, count_text

__all__ = ["EARLIER", "IDENTIFIERS", "Turn", "digest", "outline", "turns"]

EARLIER: Final = "### Earlier"
IDENTIFIERS: Final = "### Exact Identifiers"
_COMMANDS: Final = "### Commands"
_DONE: Final = "### Done"
_OPEN: Final = "### In Progress"
_BLOCKED: Final = "### Blocked"
_WAITING: Final = "called, not answered"
_UNFINISHED: Final = "not finished"
_NAMES: Final = 40
_MOST_NAMES: Final = 60
_RECENT: Final = 200
"""How many of the newest messages identifiers are looked for in first."""
_REQUEST: Final = 1_500
_GOAL: Final = 400
_ASKED: Final = 160
_ANSWERED: Final = 240
_SAYS_LITTLE: Final = 4
_WEIGHTS: Final = {
    **dict(zip(HEADINGS, (12, 3, 5, 1, 6, 3, 3), strict=True)),
    _DONE: 8,
    _OPEN: 3,
    _COMMANDS: 4,
    IDENTIFIERS: 4,
    EARLIER: 3,
}
_GROWING: Final = frozenset({HEADINGS[2], HEADINGS[4], HEADINGS[6], _DONE, _OPEN, _COMMANDS, IDENTIFIERS})
"""What is a list over time: its newest lines matter most."""
_FINISHED: Final = frozenset({"completed", "done", "complete", "cancelled", "finished"})
_STARTED: Final = frozenset({"in_progress", "in-progress", "active", "doing", "running"})


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user asked, and what came of it in the end.

    A turn that `is_finished` ends with a reply that calls no tool.
    """

    asked: str
    answered: str
    is_finished: bool = True


def turns(messages: Iterable[Message]) -> list[Turn]:
    """The turns of a conversation; what comes before the first request belongs to one that asks nothing."""
    found = [Turn("", "")]
    for message in messages:
        said = words(message)
        if message.role == "user" and said:
            found.append(Turn(said, "", is_finished=False))
        elif message.role == "assistant" and (said or message.calls):
            found[-1] = Turn(found[-1].asked, said or found[-1].answered, is_finished=not message.calls)
    return [turn for turn in found if turn.asked or turn.answered]


def digest(
    messages: Sequence[Message],
    *,
    limit: int,
    activity: Activity,
    previous: str = "",
    request: str = "",
    count: TokenCounter = count_text,
) -> str:
    """The digest of messages and of the summary before them, in at most `limit` tokens."""
    groups = outline(messages, activity=activity, previous=previous, request=request)
    return pack((section for group in groups.values() for section in group), limit=limit, count=count)


def outline(
    messages: Sequence[Message], *, activity: Activity, previous: str = "", request: str = ""
) -> dict[str, tuple[Section, ...]]:
    """What the digest says under each heading, the last request first; where it has nothing to say there is nothing."""
    old = _Old(frame.without_lists(previous))
    told = turns(messages)
    last, goal, limits, progress, decided, following, context = HEADINGS
    lines = {
        last: _request(request or _last_asked(told), told),
        goal: _goal(old.lines(goal), told),
        limits: _listed(old.lines(limits), rules(_brief(told))),
        _DONE: _listed(old.lines(_DONE), _log(turn for turn in told if turn.is_finished)),
        _OPEN: _listed(_still_open(old), [*_unfinished(told), *_underway(activity)]),
        decided: _listed(old.lines(decided), decisions(_spoken(told))),
        following: _listed((), _following(activity, told)) or _still_next(old.lines(following), told) or _no_step(told),
        context: old.lines(context),
        _COMMANDS: _listed(old.lines(_COMMANDS), _commands(activity)),
        IDENTIFIERS: _names(old.lines(IDENTIFIERS), messages),
        EARLIER: old.rest,
    }
    found = {
        title: Section(title=title, lines=lines.get(title, ()), weight=_WEIGHTS[title], newest=title in _GROWING)
        for title in _WEIGHTS
    }
    return {
        **{heading: (found[heading],) for heading in HEADINGS},
        progress: _under(found[progress], found[_DONE], found[_OPEN]),
        context: _under(found[context], found[_COMMANDS], found[IDENTIFIERS], found[EARLIER]),
    }


def _under(parent: Section, *children: Section) -> tuple[Section, ...]:
    """A heading and the smaller ones under it; a heading without words of its own stands on its first child."""
    spoken = [child for child in children if child.lines]
    if parent.lines or not spoken:
        return (parent, *spoken)
    first, *others = spoken
    return (replace(first, title=f"{parent.title}\n{first.title}"), *others)


class _Old:
    """The summary before, by heading."""

    def __init__(self, text: str) -> None:
        self._found = parse(text)
        self._taken = {*HEADINGS, _DONE, _OPEN, _BLOCKED, _COMMANDS, IDENTIFIERS, RECENT, FAILURES}

    def lines(self, title: str) -> tuple[str, ...]:
        """What stands under a heading."""
        return tuple(self._found.get(title, ()))

    @property
    def rest(self) -> tuple[str, ...]:
        """What stands under headings of its own, or under none."""
        titles = [title for title in self._found if title not in self._taken]
        return tuple(line for title in titles for line in self._found[title])


# --- sections ----------------------------------------------------------------


def _request(request: str, told: Sequence[Turn]) -> tuple[str, ...]:
    """The last request, word for word; where it says little ("go on"), with what it goes on with."""
    if not request:
        return ()
    lines = clip(request, head=_REQUEST * 2 // 3, tail=_REQUEST // 3).splitlines()
    if _says_little(request):
        meant = next((turn.asked for turn in reversed(told) if not _says_little(turn.asked)), "")
        lines += [f"(after: {one_line(meant, _GOAL)})"] if meant and meant != request else []
    return tuple(line for line in lines if line.strip())


def _says_little(text: str) -> bool:
    return len(set(terms(text[:_GOAL]))) <= _SAYS_LITTLE


def _last_asked(told: Sequence[Turn]) -> str:
    return next((turn.asked for turn in reversed(told) if turn.asked), "")


def _goal(old: Sequence[str], told: Sequence[Turn]) -> tuple[str, ...]:
    first = next((turn.asked for turn in told if not _says_little(turn.asked)), "")
    return tuple(old) or ((one_line(first, _GOAL),) if first else ())


def _log(told: Iterable[Turn]) -> list[str]:
    """Each request with the beginning of what was said about it in the end."""
    return [
        f"{one_line(turn.asked, _ASKED) or '(going on)'} → {_answer(turn.answered)}"
        for turn in told
        if turn.answered or not _says_little(turn.asked)
    ]


def _unfinished(told: Sequence[Turn]) -> list[str]:
    """The requests that have no final reply, each with what was said about it so far."""
    open_ = (turn for turn in told if turn.asked and not turn.is_finished)
    said = ((one_line(turn.asked, _ASKED), turn.answered) for turn in open_)
    return [f"{_UNFINISHED}: {asked}" + (f" → {_answer(answered)}" if answered else "") for asked, answered in said]


def _no_step(told: Sequence[Turn]) -> tuple[str, ...]:
    """The next step where none was named: finish the last request, or wait for another."""
    if not told:
        return ()
    last = told[-1]
    step = f"Finish the last request: {one_line(last.asked, _ASKED)}" if last.asked else "Go on with the last request"
    return (f"- {'Wait for the next request' if last.is_finished else step}",)


def _answer(text: str) -> str:
    """The beginning of a reply, code left out."""
    return one_line(" ".join(sentences(text)), _ANSWERED) or one_line(text, _ANSWERED) or "(no reply)"


def _still_open(old: _Old) -> list[str]:
    """What the summary before said was open; a call that was not answered then will not be.

    Requests that were not finished go on in the messages after it.
    """
    lines = (*old.lines(_OPEN), *old.lines(_BLOCKED))
    return [line for line in lines if not line.startswith((f"- {_WAITING}", f"- {_UNFINISHED}"))]


def _still_next(old: tuple[str, ...], told: Sequence[Turn]) -> tuple[str, ...]:
    """The next steps of the summary before, until something was answered since: an old task must not be resumed."""
    return () if any(turn.answered for turn in told) else old


def _underway(activity: Activity) -> list[str]:
    steps = [step.text for step in activity.steps if step.status.lower() in _STARTED]
    running = [f"running in the background: {call}" for call in activity.background]
    waiting = [f"{_WAITING}: {call}" for call in activity.pending]
    return [*running, *waiting, *steps]


def _brief(told: Sequence[Turn]) -> Iterable[str]:
    """Requests short enough to be a person's own words: what is pasted is full of rules for somebody else."""
    return (turn.asked for turn in told if len(turn.asked) <= _REQUEST)


def _spoken(told: Sequence[Turn]) -> Iterable[str]:
    for turn in told:
        yield turn.asked
        yield turn.answered


def _following(activity: Activity, told: Sequence[Turn]) -> list[str]:
    states = _FINISHED | _STARTED
    steps = [step.text for step in activity.steps if step.status.lower() not in states]
    return [*steps, *next_steps(told[-1].answered if told else "")]


def _commands(activity: Activity) -> list[str]:
    return [f"`{command}`" for command in activity.commands]


def _names(old: Sequence[str], messages: Sequence[Message]) -> tuple[str, ...]:
    """Identifiers, the newest last: those that people and replies name, then those of calls."""
    recent = messages[-_RECENT:]
    said = [words(message) for message in reversed(recent)]
    asked = [str(call.arguments) for message in reversed(recent) for call in message.calls]
    fresh = identifiers([*said, *asked], limit=_NAMES)
    return _listed(old, reversed(fresh))[-_MOST_NAMES:]


def _listed(old: Sequence[str], new: Iterable[str]) -> tuple[str, ...]:
    """Lines as a list, each once, where it was said last."""
    lines = [*old, *(f"- {line}" for line in new)]
    return tuple(reversed(dict.fromkeys(reversed(lines))))
