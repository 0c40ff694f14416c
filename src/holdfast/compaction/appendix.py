"""What is written below every summary by rule, because models forget it: turns, failures, files, archive numbers."""

from __future__ import annotations

from typing import Final

from holdfast.compaction import frame
from holdfast.compaction.cut import CompactionPlan
from holdfast.compaction.dialogue import one_line
from holdfast.compaction.digest import turns
from holdfast.compaction.sections import FAILURES, RECENT, Section, parse

__all__ = ["appendix"]

_TURN: Final = 600
_MOST_FAILURES: Final = 8
_MORE: Final = "- …and"
_COMMAND: Final = 60
_MOST_FILES: Final = 60


def appendix(plan: CompactionPlan, *, recent_turns: int) -> tuple[Section, ...]:
    """The sections below a summary; those with nothing to say have no lines."""
    archived = frame.archived(plan.ids, earlier=frame.numbers(plan.previous))
    return (
        Section(title=RECENT, lines=_recent(plan, recent_turns), weight=10, newest=True),
        Section(title=FAILURES, lines=_failures(plan), weight=8, newest=True),
        Section(title="<read-files>", lines=_some(plan.activity.read), weight=4, end="</read-files>"),
        Section(title="<modified-files>", lines=_some(plan.activity.modified), weight=6, end="</modified-files>"),
        Section(title="", lines=(archived,) if archived else (), weight=8),
    )


def _recent(plan: CompactionPlan, count: int) -> tuple[str, ...]:
    told = turns([item.message for item in plan.summarised])[-count:] if count else []
    lines: list[str] = []
    for turn in told:
        asked = "(the last request, above)" if turn.asked == plan.request else one_line(turn.asked, _TURN)
        lines += [f"- User: {asked}"] if turn.asked else []
        lines += [f"- Assistant: {one_line(turn.answered, _TURN)}"] if turn.answered else []
    return tuple(lines)


def _failures(plan: CompactionPlan) -> tuple[str, ...]:
    """The newest failures, so that they are not tried again; those told before stay until their command goes well."""
    done = tuple(f"- {one_line(command, _COMMAND)}" for command in plan.activity.commands)
    told = [
        line
        for line in parse(frame.without_lists(plan.previous)).get(FAILURES, ())
        if not line.startswith((*done, _MORE))
    ]
    every = list(dict.fromkeys([*told, *(f"- {failure}" for failure in plan.activity.failures)]))
    more = len(every) - _MOST_FAILURES
    return (*((f"{_MORE} {more} earlier ones",) if more > 0 else ()), *every[-_MOST_FAILURES:])


def _some(paths: tuple[str, ...]) -> tuple[str, ...]:
    more = len(paths) - _MOST_FILES
    return (*paths[:_MOST_FILES], f"and {more} more…") if more > 0 else paths
