"""How good the facts are: what rules find of what people noted, and whether a value that is over is still shown.

Precision and recall are measured on RealMem, whose sessions come with the facts that annotators noted
(`extracted_memory`). They wrote them in their own words, so a fact counts as noted when the words of the two overlap:
token F1 of at least 0.4, or at least 70 % of the words of the shorter one in the longer one, three at least; both
within one session. Every sentence that the user said, taken for a fact, is measured beside it.

The rest is measured on a set of updates and look-alikes (`updates_corpus`), from text to facts to a question.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.updates_corpus import Pair, look_alikes, updates
from holdfast.errors import InputError
from holdfast.memory import facts, rules
from holdfast.memory.extract import extract
from holdfast.memory.rules.sentences import sentences
from holdfast.messages import Message, Text
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope
from holdfast.text import terms

__all__ = ["Noted", "load", "matches", "measure", "measure_extraction", "measure_updates"]

_F1: Final = 0.4
_CONTAINED: Final = 0.7
_FEWEST: Final = 3
_SCOPE: Final = Scope(session="bench")
_NOW: Final = 1_770_000_000_000
_HOUR: Final = 3_600_000
_BEFORE: Final = 1_000
"""The number of the first message of a pair; what else is known was said before."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A session: what was said in it, and what annotators noted."""

    messages: tuple[MessageRow, ...]
    gold: tuple[str, ...]


def measure(path: Path) -> dict[str, Any]:
    """Both measurements, for the public RealMem files."""
    return {**measure_extraction(load(path)), **measure_updates()}


def load(path: Path) -> list[Noted]:
    """The sessions of RealMem that annotators noted something about."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    try:
        sessions = [session for file in files for session in json.loads(file.read_text("utf-8"))["dialogues"]]
        found = [_noted(session) for session in sessions if session.get("extracted_memory")]
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"{path}: this does not look like the public files of RealMem ({error!r})") from error
    if not found:
        raise InputError(f"{path}: no session with `extracted_memory` found; is this the RealMem data?")
    return found


def _noted(session: Mapping[str, Any]) -> Noted:
    rows = [
        _row(number, turn["content"], role="user" if turn["speaker"].lower() == "user" else "assistant")
        for number, turn in enumerate(session["dialogue_turns"], 1)
    ]
    return Noted(tuple(rows), tuple(dict.fromkeys(_text(fact["content"]) for fact in session["extracted_memory"])))


def _text(content: Any) -> str:
    """What was noted; some of it stands there as JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _row(number: int, text: str, *, role: Any = "user", name: str = "") -> MessageRow:
    message = Message(role=role, parts=(Text(text=text),), timestamp=_NOW + number * _HOUR, name=name or None)
    return MessageRow(scope=_SCOPE, message=message, id=number)


# --- what is found of what was noted ---------------------------------------------


def measure_extraction(sessions: Sequence[Noted]) -> dict[str, Any]:
    """Precision and recall of the rules, and of taking every sentence of the user for a fact."""
    ours, theirs = _judged(sessions, _ruled), _judged(sessions, _every_sentence)
    return {
        **ours,
        "baseline": theirs,
        "sessions": len(sessions),
        "gold": sum(len(session.gold) for session in sessions),
    }


def _ruled(session: Noted) -> list[str]:
    return list(dict.fromkeys(draft.content for draft in rules.drafts(session.messages)))


def _every_sentence(session: Noted) -> list[str]:
    said = (row.message.text for row in session.messages if row.message.role == "user")
    return list(dict.fromkeys(sentence for text in said for sentence in sentences(text)))


def _judged(sessions: Iterable[Noted], find: Callable[[Noted], list[str]]) -> dict[str, float | int]:
    right = found = noted = gold = 0
    for session in sessions:
        candidates = find(session)
        pairs = [(one, other) for one in candidates for other in session.gold if matches(one, other)]
        right += len({one for one, _ in pairs})
        found += len(candidates)
        noted += len({other for _, other in pairs})
        gold += len(session.gold)
    return {
        "precision": right / found if found else 1.0,
        "recall": noted / gold if gold else 1.0,
        "facts": found,
    }


def matches(one: str, other: str) -> bool:
    """Tell whether two facts say the same, by their words."""
    ours, theirs = set(terms(one)), set(terms(other))
    common = len(ours & theirs)
    if common < _FEWEST:
        return False
    return 2 * common >= _F1 * (len(ours) + len(theirs)) or common >= _CONTAINED * min(len(ours), len(theirs))


# --- updates -----------------------------------------------------------------------


def measure_updates() -> dict[str, Any]:
    """How often a value that is over is shown, and how often a fact is retired that still holds."""
    changed = [_told(pair) for pair in updates()]
    alike = [_told(pair) for pair in look_alikes()]
    return {
        "stale_shown": _share(told.stale for told in changed),
        "wrongly_retired": sum(told.lost for told in alike),
        "updates": len(changed),
        "updates_read": _share(told.read for told in changed),
        "new_value_shown": _share(told.answered for told in changed),
        "look_alikes": len(alike),
        "look_alikes_read": _share(told.read for told in alike),
        "old_value_shown": _share(told.still for told in alike),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What became of a pair.

    Attributes:
        read: The first sentence was read as a fact with a slot; only then there is anything to lose.
        stale: A fact that states the old value, and not the new one, is shown for the question.
        answered: A fact that states the new value is shown.
        still: A fact that states the old value is shown.
        lost: A fact that was there before the second sentence does not hold any more.
    """

    read: bool
    stale: bool
    answered: bool
    still: bool
    lost: bool


def _told(pair: Pair) -> _Told:
    known = _learned(_others(pair), [_row(_BEFORE, pair.before)])
    before = facts.current(known)
    known = _learned(known, [_row(_BEFORE + 1, pair.after, name=pair.speaker)])
    after = facts.current(known)
    shown = [hit.fact.content for hit in facts.find(after, pair.question)]
    old = [fact for fact in shown if _states(fact, pair.old)]
    new = [fact for fact in shown if pair.new and _states(fact, pair.new)]
    return _Told(
        read=any(fact.slot and _states(fact.content, pair.old) for fact in before if _BEFORE in fact.evidence),
        stale=bool(pair.new) and not set(old) <= set(new),
        answered=bool(new),
        still=bool(old),
        lost=not {fact.id for fact in before} <= {fact.id for fact in after},
    )


def _learned(known: Sequence[FactRow], messages: Sequence[MessageRow]) -> list[FactRow]:
    found = extract(messages, scope=_SCOPE, model=None, known=known, settings=_SETTINGS, now=_NOW)
    return [*known, *found.rows_to_add]


_SETTINGS: Final = Settings()


def _others(pair: Pair) -> list[FactRow]:
    """What else such a memory would hold: a fact of every other domain, in both languages."""
    return [fact for kind, fact in _everything() if kind != pair.kind and not _states(fact.content, pair.old)]


@cache
def _everything() -> tuple[tuple[str, FactRow], ...]:
    first = {(pair.language, pair.kind): pair for pair in reversed(updates()) if pair.kind != "written"}
    return tuple(
        (kind, fact)
        for number, ((_, kind), pair) in enumerate(first.items(), 1)
        for fact in _learned([], [_row(number, pair.before)])
    )


def _states(text: str, value: str) -> bool:
    return value.casefold() in text.casefold()


def _share(outcomes: Iterable[bool]) -> float:
    seen = list(outcomes)
    return sum(seen) / len(seen) if seen else 0.0
