"""How many blocks show two values of one property without a mark, and how many show the newest value.

The sheet (`data/conflicts.json`) has pairs of facts that contradict each other, in the words of the first one, in other
words and in Chinese, each with a question; and pairs that look alike and do not contradict. The facts of each pair are
remembered a day apart in a memory of its own, once by their words alone and once with the subject and slot that a model
would name, and the question is asked. The baseline is a list of all facts, as they were stored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, get_args

from holdfast.memory.memory import Memory
from holdfast.search.contradictions import contradict, may_contradict, read_claim
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope

__all__ = ["Outcome", "Pair", "judge", "load_pairs", "load_similar", "measure"]

MARKS: Final = ("contradict", "outdated")
"""One of these words marks a value that may not hold."""
_DAY: Final = 86_400_000
_FIRST_DAY: Final = 1_767_225_600_000  # 2026-01-01
_SCOPE: Final = Scope(session="bench")
_SHEET: Final = Path(__file__).with_name("data") / "conflicts.json"

Words: TypeAlias = Literal["own", "other", "chinese"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two facts that contradict each other, a question, patterns of both values, and what a model would name."""

    words: Words
    first: str
    second: str
    question: str
    old: str
    new: str
    subject: str
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a block shows of a pair."""

    has_new: bool
    has_old: bool
    is_unmarked: bool


def load_pairs() -> list[Pair]:
    """Read the pairs that contradict each other."""
    return [Pair(**row) for row in _read_sheet()["pairs"]]


def load_similar() -> list[tuple[str, str]]:
    """Read the pairs that do not."""
    return [(first, second) for first, second in _read_sheet()["similar"]]


def _read_sheet() -> dict[str, Any]:
    sheet: dict[str, Any] = json.loads(_SHEET.read_text("utf-8"))
    return sheet


def judge(pair: Pair, block: str) -> Outcome:
    """Tell which values a block shows, and whether it shows both with nothing that marks one of them."""
    new = [line for line in block.splitlines() if re.search(pair.new, line)]
    old = [line for line in block.splitlines() if re.search(pair.old, line) and line not in new]
    is_marked = any(mark in line for line in old for mark in MARKS)
    return Outcome(has_new=bool(new), has_old=bool(old), is_unmarked=bool(new) and bool(old) and not is_marked)


def measure(*, progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Ask for every pair, and count what the blocks show."""
    pairs = load_pairs()
    rows: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for has_slot in (False, True):
        name = "subject and slot" if has_slot else "words alone"
        outcomes: list[tuple[Pair, Outcome]] = []
        for pair in pairs:
            about = (pair.subject, pair.slot) if has_slot else ("", "")
            outcome = judge(pair, _ask([pair.first, pair.second], pair.question, about=about))
            outcomes.append((pair, outcome))
            if outcome.is_unmarked or not outcome.has_new:
                failed.append(f"{name}: {pair.question}")
            progress(1)
        for words in get_args(Words):
            own = [outcome for pair, outcome in outcomes if pair.words == words]
            rows[f"{name}: {words}"] = _count(own)
        rows[f"{name}: all"] = _count([outcome for _, outcome in outcomes])
    rows["all facts, as stored"] = _count([judge(pair, f"{pair.first}\n{pair.second}") for pair in pairs])
    marked: list[str] = []
    replaced: list[str] = []
    similar = load_similar()
    for first, second in similar:
        block = _ask([first, second], f"{first} {second}")
        if any(mark in block for mark in MARKS):
            marked.append(second)
        if first.rstrip("。.") not in block:
            replaced.append(second)
        progress(1)
    alike = {"pairs": len(similar), "marked": len(marked), "replaced": len(replaced), "which": [*marked, *replaced]}
    return {"systems": rows, "failed": failed, "similar": alike, "unseen": _compare_unseen()}


def _compare_unseen() -> dict[str, dict[str, int]]:
    """Compare the words of pairs that were written after the rules, and that the rules were not changed for."""
    sheet = _read_sheet()
    found: dict[str, dict[str, int]] = {}
    for name, label in (("unseen", "contradict"), ("unseen_similar", "look alike")):
        counts: Counter[str] = Counter()
        for first, second in sheet[name]:
            earlier = read_claim(first)
            later = read_claim(second)
            if earlier is None or later is None:
                counts["no"] += 1
            elif contradict(earlier, later):
                counts["yes"] += 1
            elif may_contradict(earlier, later):
                counts["maybe"] += 1
            else:
                counts["no"] += 1
        found[label] = {answer: counts[answer] for answer in ("yes", "maybe", "no")}
    return found


def _ask(contents: Sequence[str], question: str, *, about: tuple[str, str] = ("", "")) -> str:
    """Remember facts a day apart, and return the block for a question a day later."""
    days = Counter[str]()

    def clock() -> int:
        return _FIRST_DAY + days["passed"] * _DAY

    subject, slot = about
    with TemporaryDirectory() as folder:
        path = Path(folder) / "memory.db"
        settings = Settings(embedding=Embedding(provider="none"))
        with Memory.open(path, settings=settings, clock=clock) as memory:
            for content in contents:
                memory.remember(content, scope=_SCOPE, subject=subject, slot=slot)
                days["passed"] += 1
            return memory.recall([question], scope=_SCOPE).block


def _count(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "blocks": len(outcomes),
        "unmarked": sum(outcome.is_unmarked for outcome in outcomes),
        "newest shown": sum(outcome.has_new for outcome in outcomes),
        "old shown": sum(outcome.has_old for outcome in outcomes),
    }
