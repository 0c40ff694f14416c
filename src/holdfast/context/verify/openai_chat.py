"""What OpenAI's Chat Completions API refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.context.verify.rules import NAME, Violation, Wire, blocks, kind, text_of

__all__ = ["check"]

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_LONGEST_ID: Final = 64
_LEGACY: Final = "function "
"""What tells the name of an old function from the id of a call."""


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that a message list breaks."""
    found: list[Violation] = []
    waiting: list[str] = []
    asked = "the beginning"
    for index, message in enumerate(wire):
        where = f"messages[{index}]"
        found += _message(message, where)
        if message.get("role") in {"tool", "function"}:
            found += _result(message, waiting, where)
            continue
        found += _unanswered(waiting, asked)
        waiting = [call_id for _, call_id, _ in _calls(message)]
        asked = where
        found += _named(message, where)
    return [*found, *_unanswered(waiting, asked)]


def _message(message: Wire, where: str) -> Iterator[Violation]:
    role = message.get("role")
    if role not in _ROLES:
        yield Violation("role", where, f"unknown role {text_of(role)}")
    if message.get("tool_calls") == []:
        yield Violation("empty-calls", where, "a list of calls that holds none")
    content = message.get("content")
    if content is None:
        said = role == "assistant" and any(
            message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio")
        )
        if not said:
            yield Violation("empty-content", where, "no content")
    elif isinstance(content, str):
        if not content and role in {"system", "developer", "user"}:
            yield Violation("empty-content", where, "blank content")
    elif not blocks(content):
        yield Violation("empty-content", where, "a content list without parts")
    else:
        yield from _parts(blocks(content), role, where)


def _parts(content: Sequence[Wire], role: object, where: str) -> Iterator[Violation]:
    for part in content:
        if kind(part) == "text" and not part.get("text"):
            yield Violation("blank-text", where, "a text part without text")
        if role == "assistant" and kind(part) not in {"text", "refusal"}:
            yield Violation("part-role", where, f"{text_of(kind(part))} in a message of the assistant")


def _calls(message: Wire) -> list[tuple[Wire, str, Wire]]:
    """The calls of a message, each with the id that its result must name, and what it calls."""
    listed = blocks(message.get("tool_calls"))
    calls = [(call, str(call.get("id") or ""), _called(call)) for call in listed]
    legacy = message.get("function_call")
    return [*calls, (legacy, _LEGACY + str(legacy.get("name")), legacy)] if isinstance(legacy, Mapping) else calls


def _called(call: Wire) -> Wire:
    called = call.get("custom") if kind(call) == "custom" else call.get("function")
    return called if isinstance(called, Mapping) else {}


def _named(message: Wire, where: str) -> Iterator[Violation]:
    calls = _calls(message)
    if calls and message.get("role") != "assistant":
        yield Violation("role", where, "only the assistant calls tools")
    for call, call_id, called in calls:
        if not 1 <= len(call_id.removeprefix(_LEGACY)) <= _LONGEST_ID:
            yield Violation("id", where, f"id {text_of(call_id)}")
        if not NAME.fullmatch(str(called.get("name", ""))):
            yield Violation("name", where, f"name {text_of(called.get('name'))}")
        if not isinstance(called.get("input" if kind(call) == "custom" else "arguments"), str):
            yield Violation("arguments", where, "arguments are no text")
    ids = [call_id for _, call_id, _ in calls]
    if len(set(ids)) != len(ids):
        yield Violation("repeated-id", where, "two calls of one id")


def _result(message: Wire, waiting: list[str], where: str) -> Iterator[Violation]:
    """A result follows the message that asked for it, with nothing but other results between them."""
    legacy = message.get("role") == "function"
    answers = _LEGACY + str(message.get("name")) if legacy else str(message.get("tool_call_id"))
    if answers in waiting:
        waiting.remove(answers)
    else:
        yield Violation("orphan-result", where, f"no open call {text_of(answers)} right before")


def _unanswered(waiting: Sequence[str], where: str) -> Iterator[Violation]:
    if waiting:
        yield Violation("unanswered-call", where, f"no result right after for {text_of(waiting)}")
