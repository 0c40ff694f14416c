"""How many decisions that were taken back are shown as if they held, and how many that hold are marked or lost.

Each sheet of `data/decisions.json` has decisions with what was said later: sentences that take them back, and sentences
that only mention the same things. Every pair has a memory of its own: the decision is stated in one session between
small talk, the later sentence in another one weeks after it. Then three new sessions look at what is left: the overview
that a session begins with, the list of decisions, and the answer to a question about the decision.

A decision is "alone" in a text that neither marks it nor quotes the later sentence: a reader of it is misled.

People who had not seen the rules wrote the sheets. What takes a decision back was then changed for all but the last
one, and how a decision is recognised for all of them. A list of the decisions as they were stated marks nothing, so
the number of pairs is the baseline of those that were taken back.

The two sheets of `data/decision_sentences.json` have messages that state a decision or a rule, and messages that only
sound like it. How many of them are learned as decisions is counted. The sheets were written by people who had not seen
the forms of decisions; afterwards forms were added for both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, get_args

from holdfast import Engine
from holdfast.memory.facts import read_text
from holdfast.messages import Message, Text
from holdfast.settings import Embedding, Settings

__all__ = ["SHEETS", "Pair", "View", "Views", "count_pairs", "judge", "load_pairs", "measure", "measure_sentences"]

MARKS: Final = ("outdated", "(later:", "contradicts", "until 20")
"""One of these behind a decision says that it may not hold."""
_SHOWN_CHARS: Final = 40
"""A later sentence is quoted if it begins like this: long ones are shortened."""
LIMIT: Final = 64_000
NOW: Final = 1_790_000_000_000
_DAY: Final = 86_400_000
_MINUTE: Final = 60_000
_DATA: Final = Path(__file__).with_name("data") / "decisions.json"
_SENTENCES: Final = Path(__file__).with_name("data") / "decision_sentences.json"
SHEETS: Final[tuple[str, ...]] = tuple(json.loads(_DATA.read_text("utf-8")))
_SMALL_TALK: Final = ("How many grams are in an ounce?", "The coffee machine leaks again.", "今天一上午都在下雨。")

Kind: TypeAlias = Literal["taken_back", "holding"]
View: TypeAlias = Literal["absent", "marked", "both", "alone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A decision, what was said later, and a question about the decision."""

    decision: str
    later: str
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """How new sessions see a decision, and whether it is lost: no fact any more."""

    overview: View
    decisions: View
    answer: View
    is_lost: bool


def load_pairs(sheet: str, kind: Kind) -> list[Pair]:
    """Read the pairs of one kind."""
    return [Pair(**row) for row in json.loads(_DATA.read_text("utf-8"))[sheet][kind]]


def count_pairs() -> int:
    """Count the pairs of all sheets."""
    return sum(len(load_pairs(sheet, kind)) for sheet in SHEETS for kind in get_args(Kind))


def judge(pair: Pair, text: str) -> View:
    """Tell how a text shows a decision: once without a mark misleads, unless the later sentence is there too."""
    shown = [line.split(pair.decision, 1)[1] for line in text.splitlines() if pair.decision in line]
    if not shown:
        return "absent"
    if all(any(mark in rest for mark in MARKS) for rest in shown):
        return "marked"
    if pair.later[:_SHOWN_CHARS] in text:
        return "both"
    return "alone"


def measure(*, progress: Callable[[int, str], None] = lambda *_: None) -> dict[str, Any]:
    """Look at every pair, and count how the decisions are shown."""
    rows: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    for sheet in SHEETS:
        for kind in get_args(Kind):
            pairs = load_pairs(sheet, kind)
            seen: list[Views] = []
            for pair in pairs:
                views = _look(pair)
                seen.append(views)
                if _is_wrong(views, kind):
                    wrong.append(pair.later)
                progress(1, kind)
            rows[f"{kind.replace('_', ' ')}, sheet {sheet}"] = _count(seen)
    return {"systems": rows, "wrong": wrong, "sentences": measure_sentences()}


def measure_sentences() -> dict[str, dict[str, int]]:
    """Count the messages that are learned as decisions, of those that state one and of others."""
    rows: dict[str, dict[str, int]] = {}
    sheets: dict[str, dict[str, list[str]]] = json.loads(_SENTENCES.read_text("utf-8"))
    for sheet, kinds in sheets.items():
        for kind, messages in kinds.items():
            learned = [text for text in messages if any(draft.type == "decision" for draft in read_text(text))]
            rows[f"{kind}, sheet {sheet}"] = {"messages": len(messages), "learned": len(learned)}
    return rows


def _is_wrong(views: Views, kind: Kind) -> bool:
    if kind == "holding":
        return views.is_lost or "marked" in (views.overview, views.decisions, views.answer)
    return "alone" in (views.overview, views.decisions, views.answer)


def _look(pair: Pair) -> Views:
    """State a pair in two sessions, and look at it in three others."""
    settings = Settings(embedding=Embedding(provider="none"))
    with (
        TemporaryDirectory() as folder,
        Engine.open(folder, settings=settings, personal=True, background=False, clock=lambda: NOW) as engine,
    ):
        _state(engine, "first", pair.decision, time=NOW - 24 * _DAY)
        _state(engine, "second", pair.later, time=NOW - 3 * _DAY)
        held = [fact.content for fact in engine.session("new").facts()]
        overview = engine.session("new").assemble([{"role": "user", "content": "Good morning!"}], limit=LIMIT).overview
        decisions = engine.session("list").recall("What did we decide so far?").block
        answer = engine.session("answer").recall(pair.question).block
    return Views(
        overview=judge(pair, overview or ""),
        decisions=judge(pair, decisions),
        answer=judge(pair, answer),
        is_lost=pair.decision not in held,
    )


def _state(engine: Engine, name: str, text: str, *, time: int) -> None:
    """State something between small talk, and let the rules read the session."""
    session = engine.session(name)
    texts = (_SMALL_TALK[0], text, *_SMALL_TALK[1:])
    messages: list[Message] = []
    for place, line in enumerate(texts):
        said = time + place * _MINUTE
        messages.append(Message(role="user", parts=(Text(text=line),), timestamp=said))
        messages.append(Message(role="assistant", parts=(Text(text="OK."),), timestamp=said + 1))
    session.append(messages)
    session.learn()
    engine.work()


def _count(seen: Sequence[Views]) -> dict[str, Any]:
    return {
        "pairs": len(seen),
        "overview alone": sum(views.overview == "alone" for views in seen),
        "list alone": sum(views.decisions == "alone" for views in seen),
        "answer alone": sum(views.answer == "alone" for views in seen),
        "overview marked": sum(views.overview == "marked" for views in seen),
        "list marked": sum(views.decisions == "marked" for views in seen),
        "answer marked": sum(views.answer == "marked" for views in seen),
        "no fact": sum(views.is_lost for views in seen),
    }
