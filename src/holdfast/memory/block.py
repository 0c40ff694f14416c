"""The recalled block: how facts and passages are quoted into a window, and how they are taken out again.

Stored text cannot close or fake the block: whatever in it looks like one of the block's own tags is escaped.

A passage stands under its moment and its speaker, `[2026-02-10 14:31 user] `, a blank line before it. What was
said in the same minute of the same session stands right under it, on a line of its own, with its speaker alone:
`[assistant] `. The moment is not told twice, and the room goes to what was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from holdfast.messages import Message, Part, Text, ToolResult

__all__ = [
    "CLOSE",
    "OPEN",
    "Detail",
    "Fact",
    "brief_header",
    "header",
    "moment",
    "render",
    "strip_message",
    "strip_text",
]

OPEN: Final = '<recalled-context source="holdfast">'
CLOSE: Final = "</recalled-context>"

_MINUTE: Final = 60_000
_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:recalled-context|knowledge|detail)\b)", re.IGNORECASE)
_ONE: Final = r"<recalled-context(?:\s[^>\n]{0,200})?>(?:(?!</?recalled-context).)*</recalled-context>"
_BLOCKS: Final = re.compile(rf"(\n{{0,2}}){_ONE}(?:\n{{0,2}}{_ONE})*(\n{{0,2}})", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of knowledge."""

    type: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One quoted passage: who said it, when (Unix milliseconds, 0 where not known), the words, and the session."""

    role: str
    time: int
    text: str
    session: int = 0


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
        parts.append("<detail>\n" + "".join(_entries(details)).lstrip("\n") + "\n</detail>")
    return "\n\n".join([*parts, CLOSE])


def _entries(details: Sequence[Detail]) -> Iterator[str]:
    before: tuple[int, int] | None = None
    for detail in details:
        said = moment(detail)
        together = said is not None and said == before
        yield ("\n" + brief_header(detail) if together else "\n\n" + header(detail)) + _quoted(detail.text)
        before = said


def moment(detail: Detail) -> tuple[int, int] | None:
    """What passages that stand together share: the minute and the session; None where the time is not known."""
    return (detail.time // _MINUTE, detail.session) if _moment(detail.time) else None


def header(detail: Detail) -> str:
    """What stands before a passage: `[2026-02-10 14:31 user] `."""
    return f"[{_moment(detail.time)}{_who(detail.role)}] "


def brief_header(detail: Detail) -> str:
    """What stands before a passage that was said right after the one above it: `[assistant] `."""
    return f"[{_who(detail.role)}] "


@lru_cache(maxsize=1024)
def _who(role: str) -> str:
    return _quoted(" ".join(role.split()).replace("]", ")"))


@lru_cache(maxsize=4096)
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
    """A text without the blocks that were recalled into it; everything else stays as it is.

    The blank line that sets a block apart goes with it, but what stood before and after it is not run together.
    """
    if "<recalled-context" not in text.lower():
        return text
    return _BLOCKS.sub(_gap, text)


def _gap(found: re.Match[str]) -> str:
    """What is left where a block stood: nothing at either end of a text, else the break around it."""
    inside = found.start() > 0 and found.end() < len(found.string)
    return max(found[1], found[2]) if inside else ""


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
