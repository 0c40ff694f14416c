"""The recalled block: how facts and passages are quoted into a window, and how they are taken out again.

Stored text cannot close or fake the block: whatever in it looks like one of the block's own tags is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from holdfast.messages import Message, Part, Text, ToolResult

__all__ = ["CLOSE", "OPEN", "Detail", "Fact", "header", "render", "strip_message", "strip_text"]

OPEN: Final = '<recalled-context source="holdfast">'
CLOSE: Final = "</recalled-context>"

_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:recalled-context|knowledge|detail)\b)", re.IGNORECASE)
_BLOCK: Final = re.compile(
    r"\n{0,2}<recalled-context(?:\s[^>\n]{0,200})?>(?:(?!</?recalled-context).)*</recalled-context>\n{0,2}",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of knowledge."""

    type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One quoted passage: who said it, when (Unix milliseconds, 0 where not known), and the words."""

    role: str
    time: int
    text: str


def render(facts: Sequence[Fact], details: Sequence[Detail]) -> str:
    """The block, or nothing where there is nothing to say. Details stand oldest first."""
    if not facts and not details:
        return ""
    parts = [OPEN]
    if facts:
        parts.append(
            "\n".join(["<knowledge>", *(f"- [{fact.type}] {_quoted(fact.text)}" for fact in facts), "</knowledge>"])
        )
    if details:
        entries = (header(detail) + _quoted(detail.text) for detail in details)
        parts.append("<detail>\n" + "\n\n".join(entries) + "\n</detail>")
    return "\n\n".join([*parts, CLOSE])


def header(detail: Detail) -> str:
    """What stands before a passage: `[2026-02-10 14:31 user] `."""
    who = detail.role.replace("\n", " ").replace("]", ")")
    return f"[{_moment(detail.time)}{who}] "


def _moment(milliseconds: int) -> str:
    if milliseconds <= 0:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M ")
    except (OverflowError, OSError, ValueError):
        return ""


def _quoted(text: str) -> str:
    return _TAG.sub("&lt;", text)


def strip_text(text: str) -> str:
    """A text without the blocks that were recalled into it; everything else stays as it is."""
    if "<recalled-context" not in text.lower():
        return text
    return _BLOCK.sub("", text)


def strip_message(message: Message) -> Message | None:
    """A message without recalled blocks; itself where there are none, None where nothing else was in it."""
    parts = [(part, _strip_part(part)) for part in message.parts]
    if all(old is new for old, new in parts):
        return message
    kept = tuple(new for _, new in parts if new is not None)
    return replace(message, parts=kept) if kept else None


def _strip_part(part: Part) -> Part | None:
    if isinstance(part, Text):
        words = strip_text(part.text)
        if words == part.text:
            return part
        return replace(part, text=words) if words.strip() else None
    if isinstance(part, ToolResult):
        blocks = tuple(
            replace(block, text=words)
            if isinstance(block, Text) and (words := strip_text(block.text)) != block.text
            else block
            for block in part.content
        )
        return part if blocks == part.content else replace(part, content=blocks)
    return part
