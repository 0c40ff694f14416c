"""What OpenAI's Responses API refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.context.verify.rules import NAME, Violation, Wire, blocks, kind, repeated, text_of

__all__ = ["check", "check_reasoning"]

_ROLES: Final = frozenset({"system", "developer", "user", "assistant"})
_LONGEST_ID: Final = 64
_ASSISTANT_PARTS: Final = frozenset({"output_text", "refusal"})


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that an item list breaks."""
    found: list[Violation] = []
    for index, item in enumerate(wire):
        where = f"input[{index}]"
        if _is_message(item):
            found += _message(item, where)
        elif kind(item) == "reasoning":
            found += _reasoning(item, wire[index + 1] if index + 1 < len(wire) else None, where)
        elif _is_call(item):
            found += _call(item, where)
        elif _is_output(item) and item.get("output") is None and kind(item) in _WITH_OUTPUT:
            found.append(Violation("empty-content", where, "a result without output"))
    return [*found, *_pairs(wire), *_unique(wire)]


def check_reasoning(wire: Sequence[Wire], reasoned: Mapping[str, str]) -> list[Violation]:
    """The items that stand without the reasoning that they came after."""
    found: list[Violation] = []
    seen: set[str] = set()
    for index, item in enumerate(wire):
        own = str(item.get("id") or "")
        if own in reasoned and reasoned[own] not in seen:
            what = f"{text_of(own)} without its reasoning {text_of(reasoned[own])}"
            found.append(Violation("reasoning-missing", f"input[{index}]", what))
        seen.add(own)
    return found


_WITH_OUTPUT: Final = frozenset({"function_call_output", "custom_tool_call_output"})


def _is_message(item: Wire) -> bool:
    return kind(item) in {"", "message"}


def _is_call(item: Wire) -> bool:
    return kind(item).endswith("_call") and isinstance(item.get("call_id"), str)


def _is_output(item: Wire) -> bool:
    return kind(item).endswith("_output")


def _call_id(item: Wire) -> str:
    """Which call an item makes or answers; the output of a local shell names it by `id`."""
    return str(item.get("call_id") or (item.get("id") if _is_output(item) else "") or "")


def _message(item: Wire, where: str) -> Iterator[Violation]:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        yield Violation("role", where, f"unknown role {text_of(role)}")
    if not content or (not isinstance(content, str) and not blocks(content)):
        yield Violation("empty-content", where, "no content")
    for part in blocks(content):
        if kind(part).endswith("_text") and not part.get("text"):
            yield Violation("blank-text", where, "a text part without text")
        if (role == "assistant") != (kind(part) in _ASSISTANT_PARTS):
            yield Violation("part-role", where, f"{text_of(kind(part))} in a message of the {role}")


def _reasoning(item: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """Reasoning stands right before what it led to."""
    if not isinstance(item.get("summary"), list):
        yield Violation("reasoning", where, "reasoning without its summary list")
    led = following is not None and not _is_output(following)
    if led and following is not None and _is_message(following):
        led = following.get("role") == "assistant"
    if not led:
        yield Violation("reasoning-alone", where, "nothing of the assistant follows the reasoning")


def _call(item: Wire, where: str) -> Iterator[Violation]:
    if not 1 <= len(item["call_id"]) <= _LONGEST_ID:
        yield Violation("id", where, f"call_id {text_of(item['call_id'])}")
    if kind(item) in {"function_call", "custom_tool_call"}:
        if not NAME.fullmatch(str(item.get("name", ""))):
            yield Violation("name", where, f"name {text_of(item.get('name'))}")
        if not isinstance(item.get("arguments" if kind(item) == "function_call" else "input"), str):
            yield Violation("arguments", where, "arguments are no text")


def _pairs(wire: Sequence[Wire]) -> Iterator[Violation]:
    """Every call is answered once, later; every output answers a call."""
    asked: dict[str, int] = {}
    answered: set[str] = set()
    for index, item in enumerate(wire):
        where, call_id = f"input[{index}]", _call_id(item)
        if _is_call(item):
            if call_id in asked:
                yield Violation("repeated-id", where, f"a second call {text_of(call_id)}")
            asked[call_id] = index
        elif _is_output(item):
            if call_id not in asked:
                yield Violation("orphan-result", where, f"no call {text_of(call_id)} before")
            elif call_id in answered:
                yield Violation("repeated-result", where, f"a second result of {text_of(call_id)}")
            answered.add(call_id)
    for call_id in asked.keys() - answered:
        yield Violation("unanswered-call", f"input[{asked[call_id]}]", f"no result of {text_of(call_id)}")


def _unique(wire: Sequence[Wire]) -> Iterator[Violation]:
    own = (index for index, item in enumerate(wire) if not _is_output(item) or "call_id" in item)
    named = [index for index in own if isinstance(wire[index].get("id"), str) and wire[index]["id"]]
    for place in repeated([wire[index]["id"] for index in named]):
        yield Violation("repeated-item", f"input[{named[place]}]", f"a second item {text_of(wire[named[place]]['id'])}")
