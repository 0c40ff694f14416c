"""What pi and OpenClaw cannot send on to a provider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.context.verify.rules import Violation, Wire, blocks, kind, text_of

__all__ = ["check"]

_CALLS: Final = frozenset({"toolCall", "toolUse", "tool_use", "functionCall"})
_RESULTS: Final = frozenset({"toolResult", "tool", "tool_result"})
_CALL_IDS: Final = ("id", "call_id")
_RESULT_IDS: Final = ("toolCallId", "toolUseId", "tool_use_id", "call_id")


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that a message list breaks: every call is answered before the assistant speaks again, once."""
    found: list[Violation] = []
    waiting: set[str] = set()
    spoken = False
    for index, message in enumerate(wire):
        where = f"messages[{index}]"
        if not isinstance(message.get("role"), str):
            found.append(Violation("role", where, f"unknown role {text_of(message.get('role'))}"))
        replies = message.get("role") in {"assistant", "tool_call"}
        if replies and not spoken:
            found += _unanswered(waiting, where)
            waiting = set()
        spoken = replies
        waiting.update(_calls(message))
        if message.get("role") in _RESULTS:
            found += _result(message, waiting, where)
    return [*found, *_unanswered(waiting, "the end")]


def _calls(message: Wire) -> list[str]:
    if message.get("role") == "tool_call":
        return [_id(message, _CALL_IDS)]
    return [_id(block, _CALL_IDS) for block in blocks(message.get("content")) if kind(block) in _CALLS]


def _id(data: Wire, names: Sequence[str]) -> str:
    return next((str(data[name]) for name in names if data.get(name) is not None), "")


def _result(message: Wire, waiting: set[str], where: str) -> Iterator[Violation]:
    call_id = _id(message, _RESULT_IDS)
    if call_id not in waiting:
        yield Violation("orphan-result", where, f"no open call {text_of(call_id)} before")
    waiting.discard(call_id)


def _unanswered(waiting: set[str], where: str) -> Iterator[Violation]:
    if waiting:
        yield Violation("unanswered-call", where, f"no result for {text_of(sorted(waiting))}")
