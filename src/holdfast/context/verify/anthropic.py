"""What Anthropic's Messages API refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.context.verify.rules import Violation, Wire, blocks, is_text, kind, text_of

__all__ = ["check"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ROLES: Final = frozenset({"user", "assistant", "system"})
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_KNOWN: Final = frozenset({"text", "image", "tool_use", "tool_result"})
_REPLY_FIELDS: Final = frozenset({"id", "type", "model", "usage", "stop_reason", "stop_sequence", "container"})


def check(wire: Sequence[Wire]) -> list[Violation]:
    """The rules that a message list breaks."""
    found: list[Violation] = []
    for index, message in enumerate(wire):
        where = f"messages[{index}]"
        found += _message(message, where)
        if message.get("role") == "assistant":
            found += _thinking(message, where)
            found += _answered(message, wire[index + 1] if index + 1 < len(wire) else None, where)
        elif message.get("role") == "user":
            found += _asked(message, wire[index - 1] if index else None, where)
        else:
            found += _system(wire, index, where)
    return [*_first(wire), *found, *_unique(wire), *_last(wire)]


def _first(wire: Sequence[Wire]) -> Iterator[Violation]:
    if wire[0].get("role") == "assistant":
        yield Violation("first-user", "messages[0]", "the first message is not the user's")


def _message(message: Wire, where: str) -> Iterator[Violation]:
    if message.get("role") not in _ROLES:
        yield Violation("role", where, f"unknown role {text_of(message.get('role'))}")
    extra = _REPLY_FIELDS.intersection(message)
    if extra:
        yield Violation("reply-fields", where, f"{', '.join(sorted(extra))} cannot be sent back")
    content = message.get("content")
    if isinstance(content, str):
        if not is_text(content):
            yield Violation("empty-content", where, "blank content")
    elif not blocks(content) or len(blocks(content)) != len(content or ()):
        yield Violation("empty-content", where, "no content, or something in it is no block")
    else:
        yield from _blocks(blocks(content), str(message.get("role")), f"{where}.content")


def _blocks(content: Sequence[Wire], role: str, where: str) -> Iterator[Violation]:
    texts = [block.get("text") for block in content if kind(block) == "text"]
    if not all(texts) or (texts and not any(map(is_text, texts))):
        yield Violation("blank-text", where, "a text block without text")
    for index, block in enumerate(content):
        at = f"{where}[{index}]"
        match kind(block):
            case "tool_use":
                yield from _call(block, role, at)
            case "tool_result":
                yield from _result(block, role, at)
            case "image" if role == "assistant":
                yield Violation("role", at, "the assistant shows no pictures")
            case "thinking" | "redacted_thinking" if role != "assistant":
                yield Violation("role", at, "only the assistant thinks")


def _call(block: Wire, role: str, where: str) -> Iterator[Violation]:
    if role != "assistant":
        yield Violation("role", where, "only the assistant calls tools")
    if not _ID.fullmatch(str(block.get("id", ""))):
        yield Violation("id", where, f"id {text_of(block.get('id'))}")
    if not _NAME.fullmatch(str(block.get("name", ""))):
        yield Violation("name", where, f"name {text_of(block.get('name'))}")
    if not isinstance(block.get("input"), Mapping):
        yield Violation("arguments", where, "input is no object")


def _result(block: Wire, role: str, where: str) -> Iterator[Violation]:
    if role != "user":
        yield Violation("role", where, "only the user answers calls")
    if not _ID.fullmatch(str(block.get("tool_use_id", ""))):
        yield Violation("id", where, f"tool_use_id {text_of(block.get('tool_use_id'))}")
    content = block.get("content")
    if block.get("is_error") and not content:
        yield Violation("empty-error", where, "an error that says nothing")
    if block.get("is_error") and any(kind(inner) != "text" for inner in blocks(content)):
        yield Violation("error-content", where, "an error that holds more than text")
    if any(kind(inner) == "text" and not inner.get("text") for inner in blocks(content)):
        yield Violation("blank-text", where, "an empty text block in a result")


def _thinking(message: Wire, where: str) -> Iterator[Violation]:
    content = blocks(message.get("content"))
    kinds = [kind(block) for block in content]
    if _THOUGHTS.isdisjoint(kinds):
        return
    if kinds[0] in _KNOWN:
        yield Violation("thinking-first", where, f"{kinds[0]} stands before thinking")
    if kinds[-1] in _THOUGHTS:
        yield Violation("thinking-last", where, "nothing follows the thinking")
    if not all(map(_is_sealed, content)):
        yield Violation("unsigned-thinking", where, "thinking without its seal")


def _is_sealed(block: Wire) -> bool:
    """Tell whether a block is whole, if it is thinking."""
    match kind(block):
        case "thinking":
            return bool(block.get("signature")) and isinstance(block.get("thinking"), str)
        case "redacted_thinking":
            return bool(block.get("data"))
        case _:
            return True


def _ids(message: Wire | None, block_kind: str, key: str) -> list[str]:
    content = blocks(message.get("content")) if message else []
    return [str(block.get(key)) for block in content if kind(block) == block_kind]


def _answered(message: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """Every call has its result in the very next message."""
    calls = _ids(message, "tool_use", "id")
    missing = set(calls) - set(_ids(following, "tool_result", "tool_use_id"))
    if missing:
        yield Violation("unanswered-call", where, f"no result in the next message for {text_of(sorted(missing))}")


def _asked(message: Wire, before: Wire | None, where: str) -> Iterator[Violation]:
    """Every result answers a call of the message right before, once, and stands before all else."""
    content = blocks(message.get("content"))
    results = _ids(message, "tool_result", "tool_use_id")
    calls = _ids(before, "tool_use", "id") if before and before.get("role") == "assistant" else []
    if orphans := set(results) - set(calls):
        yield Violation("orphan-result", where, f"no call in the message before for {text_of(sorted(orphans))}")
    if len(set(results)) != len(results):
        yield Violation("repeated-result", where, "two results of one call")
    if any(kind(block) != "tool_result" for block in content[: len(results)]) and results:
        yield Violation("results-first", where, "something stands before a result")


def _system(wire: Sequence[Wire], index: int, where: str) -> Iterator[Violation]:
    """Instructions in the middle of a conversation stand after the user and before the assistant, one at a time."""
    before = wire[index - 1].get("role") if index else None
    following = wire[index + 1].get("role") if index + 1 < len(wire) else "assistant"
    if before != "user" or following != "assistant":
        yield Violation("system-place", where, f"a system message between {before} and {following}")


def _unique(wire: Sequence[Wire]) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, message in enumerate(wire):
        for call_id in _ids(message, "tool_use", "id"):
            if call_id in seen:
                yield Violation("repeated-id", f"messages[{index}]", f"a second call {text_of(call_id)}")
            seen.add(call_id)


def _last(wire: Sequence[Wire]) -> Iterator[Violation]:
    if wire[-1].get("role") != "assistant":
        return
    content = wire[-1].get("content")
    last = blocks(content)[-1:] if not isinstance(content, str) else [{"type": "text", "text": content}]
    for block in last:
        text = block.get("text")
        if kind(block) == "text" and isinstance(text, str) and text != text.rstrip():
            yield Violation("trailing-space", f"messages[{len(wire) - 1}]", "the last reply ends in white space")
