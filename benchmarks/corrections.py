"""How often the newest statement is in the window, if an older one about the same subject is in the archive.

The sheet (`data/corrections.json`) has statements, each with a later one that corrects it: half of the corrections are
in the words of the first statement, half in other words. Both are placed into generated conversations and have left
the window when they are asked for; in one of them the first statements are in the instructions, which never leave it.
Every question goes through `Session.assemble` with default settings, and again with a small block.

A second sheet (`data/corrections-2.json`) has 20 more, of which the last ten were looked at once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.other_words import make_talk, make_tool_loop, open_copies, read_window
from holdfast.settings import Settings
from holdfast.settings.schema import Recall

__all__ = ["Correction", "Outcome", "count_questions", "judge", "load_corrections", "measure"]

SMALL_CAP: Final = 300
"""`recall.hard_cap_tokens` of a small block."""
SUPERSEDED: Final = "outdated"
"""The word that marks an older statement in a block."""

_TURNS: Final = 120
"""Turns of a tool loop: one for each statement, and as many after them."""
_SHEETS: Final = {
    1: Path(__file__).with_name("data") / "corrections.json",
    2: Path(__file__).with_name("data") / "corrections-2.json",
}
_BLOCK: Final = re.compile(r"<recalled-context.*?</recalled-context[^>]*>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A statement, the later one that corrects it, questions, and patterns of the old and the new value.

    `words` tells whether the correction is in the words of the first statement.
    """

    words: Literal["own", "other"]
    first: str
    correction: str
    own: str
    other: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the window has for a question: which values, whether the block shows the old one unmarked, its tokens."""

    has_new: bool
    has_old: bool
    is_unmarked: bool
    block_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Archive:
    name: str
    history: Sequence[Mapping[str, Any]]


def load_corrections(*, sheet: int = 1) -> list[Correction]:
    """Read a sheet."""
    return [Correction(**row) for row in json.loads(_SHEETS[sheet].read_text("utf-8"))["corrections"]]


def count_questions(*, sheet: int = 1) -> int:
    """Count the questions: each in two ways, of three conversations, with blocks of two sizes."""
    return len(load_corrections(sheet=sheet)) * 2 * 3 * 2


def make_archives(corrections: Sequence[Correction]) -> list[_Archive]:
    """Write the conversations: all first statements come before all corrections."""
    first = [one.first for one in corrections]
    later = [one.correction for one in corrections]
    instructed = make_tool_loop(later, turns=_TURNS)
    instructed[0] = {"role": "system", "content": "You are a coding agent. " + " ".join(first)}
    return [
        _Archive(name="tool loop", history=make_tool_loop([*first, *later], turns=_TURNS)),
        _Archive(name="small talk", history=make_talk([*first, *later])),
        _Archive(name="instructions", history=instructed),
    ]


def judge(correction: Correction, shown: str, *, block_tokens: int) -> Outcome:
    """Tell which values a window shows, outside of the question."""
    is_unmarked = False
    for block in _BLOCK.findall(shown):
        for line in block.splitlines():
            is_old = re.search(correction.old, line) and not re.search(correction.new, line)
            if is_old and SUPERSEDED not in line:
                is_unmarked = True
    return Outcome(
        has_new=re.search(correction.new, shown) is not None,
        has_old=re.search(correction.old, shown) is not None,
        is_unmarked=is_unmarked,
        block_tokens=block_tokens,
    )


def measure(*, sheet: int = 1, progress: Callable[[int, str], None] = lambda *_: None) -> dict[str, Any]:
    """Ask for every correction of a sheet in each conversation, and count what the windows show.

    `progress` is called with the number of questions that were asked, and the name of the conversation.
    """
    corrections = load_corrections(sheet=sheet)
    systems: dict[str, dict[str, Any]] = {}
    stale: list[str] = []
    for cap in (None, SMALL_CAP):
        settings = Settings() if cap is None else Settings(recall=Recall(hard_cap_tokens=cap))
        for archive in make_archives(corrections):
            name = archive.name if cap is None else f"{archive.name}, {cap} tokens"
            counts: Counter[str] = Counter()
            tokens: list[int] = []
            with open_copies(archive.history, settings) as open_window:
                for correction in corrections:
                    for question in (correction.own, correction.other):
                        window = open_window(question)
                        recalled = next((part.tokens for part in window.report.categories if part.name == "recall"), 0)
                        outcome = judge(correction, read_window(window, without=question), block_tokens=recalled)
                        tokens.append(recalled)
                        counts.update(_name_counts(outcome))
                        if outcome.has_old and not outcome.has_new:
                            stale.append(f"{name}: {question}")
                        progress(1, name)
            systems[name] = {
                "questions": len(tokens),
                "new shown": counts["new"],
                "old alone": counts["old alone"],
                "neither": counts["neither"],
                "old unmarked": counts["unmarked"],
                "tokens": sum(tokens) / len(tokens),
            }
    return {"systems": systems, "stale": stale}


def _name_counts(outcome: Outcome) -> list[str]:
    names: list[str] = []
    if outcome.has_new:
        names.append("new")
    elif outcome.has_old:
        names.append("old alone")
    else:
        names.append("neither")
    if outcome.is_unmarked:
        names.append("unmarked")
    return names
