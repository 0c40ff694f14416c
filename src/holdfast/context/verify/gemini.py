"""What Gemini's generateContent refuses: its turns must alternate strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.context.verify.rules import Violation, Wire, blocks, text_of

__all__ = ["check"]

_SIGNATURES: Final = frozenset({"thoughtSignature", "thought_signature"})


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that a list of contents breaks."""
    found: list[Violation] = []
    for index, turn in enumerate(wire):
        where = f"contents[{index}]"
        before = wire[index - 1] if index else None
        found += _turn(turn, before, where)
        found += _paired(turn, wire[index + 1] if index + 1 < len(wire) else None, where)
        if _named(turn, "response") and not (before and _named(before, "call")):
            found.append(Violation("orphan-result", where, "a function response does not follow a function call"))
    return found


def _turn(turn: Wire, before: Wire | None, where: str) -> Iterator[Violation]:
    role = turn.get("role")
    if role not in {"user", "model", "function"}:
        yield Violation("role", where, f"unknown role {text_of(role)}")
    if before is None and role == "model":
        yield Violation("first-user", where, "the first turn is not the user's")
    if before is not None and (before.get("role") == "model") == (role == "model"):
        yield Violation("alternation", where, f"two turns of the {role} in a row")
    yield from _parts(blocks(turn.get("parts")), role, where)


def _parts(parts: Sequence[Wire], role: object, where: str) -> Iterator[Violation]:
    if not parts:
        yield Violation("empty-content", where, "a turn without parts")
    if any(part.get("text") == "" and not _SIGNATURES.intersection(part) for part in parts):
        yield Violation("blank-text", where, "a text part without text")
    if _calls(parts, "response" if role == "model" else "call"):
        yield Violation("role", where, f"not for the {role} to say")


def _calls(parts: Sequence[Wire], kind: str) -> list[Wire]:
    """The function calls or responses among parts, in either spelling."""
    keys = (f"function{kind.title()}", f"function_{kind}")
    return [part[key] for part in parts for key in keys if isinstance(part.get(key), Mapping)]


def _named(turn: Wire, kind: str) -> list[str]:
    return [str(one.get("name", "")) for one in _calls(blocks(turn.get("parts")), kind)]


def _paired(turn: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """A turn with function calls is followed by as many responses of the same names."""
    calls = _named(turn, "call")
    responses = _named(following, "response") if following else []
    if calls and sorted(calls) != sorted(responses):
        yield Violation("unanswered-call", where, f"{len(calls)} calls, {len(responses)} responses in the next turn")
    if "" in calls:
        yield Violation("name", where, "a call without a name")
