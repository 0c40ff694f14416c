"""What Gemini's generateContent refuses: its turns must alternate strictly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.context.verify.rules import Violation, Wire, blocks, text_of

__all__ = ["check"]


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that a list of contents breaks."""
    found: list[Violation] = []
    for index, turn in enumerate(wire):
        where = f"contents[{index}]"
        before = wire[index - 1] if index else None
        found += _turn(turn, before, where)
        found += _paired(turn, wire[index + 1] if index + 1 < len(wire) else None, where)
        if _named(turn, "functionResponse") and not (before and _named(before, "functionCall")):
            found.append(Violation("orphan-result", where, "a function response does not follow a function call"))
    return found


def _turn(turn: Wire, before: Wire | None, where: str) -> Iterator[Violation]:
    role = turn.get("role")
    if role not in {"user", "model"}:
        yield Violation("role", where, f"unknown role {text_of(role)}")
    if before is None and role != "user":
        yield Violation("first-user", where, "the first turn is not the user's")
    if before is not None and before.get("role") == role:
        yield Violation("alternation", where, f"two turns of the {role} in a row")
    yield from _parts(blocks(turn.get("parts")), role, where)


def _parts(parts: Sequence[Wire], role: object, where: str) -> Iterator[Violation]:
    if not parts:
        yield Violation("empty-content", where, "a turn without parts")
    if any(part.get("text") == "" for part in parts):
        yield Violation("blank-text", where, "a text part without text")
    other = "functionResponse" if role == "model" else "functionCall"
    if any(other in part for part in parts):
        yield Violation("role", where, f"not for the {role} to say")


def _named(turn: Wire, key: str) -> list[str]:
    return [str(part[key].get("name", "")) for part in blocks(turn.get("parts")) if key in part]


def _paired(turn: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """A turn with function calls is followed by as many responses of the same names."""
    calls = _named(turn, "functionCall")
    responses = _named(following, "functionResponse") if following else []
    if calls and sorted(calls) != sorted(responses):
        yield Violation("unanswered-call", where, f"{len(calls)} calls, {len(responses)} responses in the next turn")
    if "" in calls:
        yield Violation("name", where, "a call without a name")
