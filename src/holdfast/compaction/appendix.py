"""What is written below every summary by rule, because models forget it: turns, failures, files, archive numbers."""

from __future__ import annotations

from typing import Final

from holdfast.compaction import frame
from holdfast.compaction.activity import Activity
from holdfast.compaction.cut import CompactionPlan
from holdfast.compaction.dialogue import one_line
from holdfast.compaction.digest import turns
from holdfast.compaction.sections import Section

__all__ = ["FAILURES", "RECENT", "appendix"]

RECENT: Final = "## Recent Turns, Word for Word"
FAILURES: Final = "## Tool Failures"
_TURN: Final = 600
_MOST_FAILURES: Final = 8
_MOST_FILES: Final = 60


def appendix(plan: CompactionPlan, *, recent_turns: int) -> tuple[Section, ...]:
    """The sections below a summary; those with nothing to say have no lines."""
    archived = frame.archived(plan.ids, earlier=frame.numbers(plan.previous))
    return (
        Section(title=RECENT, lines=_recent(plan, recent_turns), weight=10, newest=True),
        Section(title=FAILURES, lines=_failures(plan.activity), weight=8, newest=True),
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


def _failures(activity: Activity) -> tuple[str, ...]:
    """The newest failures, so that they are not tried again."""
    more = len(activity.failures) - _MOST_FAILURES
    lines = [f"- {failure}" for failure in activity.failures[-_MOST_FAILURES:]]
    return (*((f"- …and {more} earlier ones",) if more > 0 else ()), *lines)


def _some(paths: tuple[str, ...]) -> tuple[str, ...]:
    more = len(paths) - _MOST_FILES
    return (*paths[:_MOST_FILES], f"and {more} more…") if more > 0 else paths
