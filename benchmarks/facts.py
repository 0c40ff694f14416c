"""Measure the facts that are extracted without a model on RealMem.

Annotators noted the facts of each RealMem session (`extracted_memory`) in their own words. A fact counts as noted when
its words overlap with those of a noted fact of the same session: token F1 of at least 0.4, or at least 70 % of the
words of the shorter one in the longer one, three at least. The baseline takes every sentence of the user for a fact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InputError
from holdfast.memory.extract import read_explicit
from holdfast.messages import Message, Role, Text
from holdfast.signals import sentences
from holdfast.store.base import MessageRow, Scope
from holdfast.text import terms

__all__ = ["Noted", "load", "matches", "measure"]

MIN_F1: Final = 0.4
MIN_CONTAINED: Final = 0.7
MIN_COMMON: Final = 3
_SCOPE: Final = Scope(session="bench")


@dataclass(frozen=True, slots=True)
class Noted:
    """A session: its messages, and the facts that annotators noted."""

    messages: tuple[MessageRow, ...]
    gold: tuple[str, ...]


def load(path: Path) -> list[Noted]:
    """Load the sessions of RealMem for which annotators noted something."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    try:
        sessions = [session for file in files for session in json.loads(file.read_text("utf-8"))["dialogues"]]
        noted = [_read_session(session) for session in sessions if session.get("extracted_memory")]
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        raise InputError(f"{path}: this does not look like the public files of RealMem ({error!r})") from error
    if not noted:
        raise InputError(f"{path}: no session with `extracted_memory` found; is this the RealMem data?")
    return noted


def _read_session(session: Mapping[str, Any]) -> Noted:
    rows: list[MessageRow] = []
    for number, turn in enumerate(session["dialogue_turns"], 1):
        role: Role = "user" if turn["speaker"].lower() == "user" else "assistant"
        message = Message(role=role, parts=(Text(text=turn["content"]),), timestamp=number)
        rows.append(MessageRow(scope=_SCOPE, message=message, id=number))
    contents = (fact["content"] for fact in session["extracted_memory"])
    texts = (text if isinstance(text, str) else json.dumps(text, ensure_ascii=False) for text in contents)
    return Noted(tuple(rows), tuple(dict.fromkeys(texts)))


def measure(sessions: Sequence[Noted]) -> dict[str, Any]:
    """Measure precision and recall of what is explicit, and of taking every sentence of the user for a fact."""
    return {
        **_judge(sessions, lambda session: [draft.content for draft in read_explicit(session.messages)]),
        "baseline": _judge(sessions, _every_sentence),
        "sessions": len(sessions),
        "gold": sum(len(session.gold) for session in sessions),
    }


def _every_sentence(session: Noted) -> list[str]:
    texts = (row.message.text for row in session.messages if row.message.role == "user")
    return [sentence for text in texts for sentence in sentences(text)]


def _judge(sessions: Iterable[Noted], find: Callable[[Noted], list[str]]) -> dict[str, float | int]:
    right = found = noted = gold = 0
    for session in sessions:
        candidates = list(dict.fromkeys(find(session)))
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
    """Return whether two facts say the same, by their words."""
    ours, theirs = set(terms(one)), set(terms(other))
    common = len(ours & theirs)
    if common < MIN_COMMON:
        return False
    return 2 * common >= MIN_F1 * (len(ours) + len(theirs)) or common >= MIN_CONTAINED * min(len(ours), len(theirs))
