"""The recalled block: how facts and passages are quoted into a window, and how they are taken out again.

Stored text cannot close or fake the block. Whatever in it looks like one of the block's own tags has its `<`
written as `&lt;`; a line of it that begins like an entry of the block, `[2026-02-10 14:31 user] ` or
`- [decision] `, has a backslash before the bracket; a fact is one line. A model reads all of that as it was meant,
and nobody has to undo it: the archive has the text as it was said.

A passage stands under its moment and its speaker, `[2026-02-10 14:31 user] `, a blank line before it. What was
said in the same minute of the same session stands right under it, on a line of its own, with its speaker alone:
`[assistant] `. The moment is not told twice, and the room goes to what was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, get_args

from holdfast.memory import echo
from holdfast.memory.marks import Marks
from holdfast.messages import Message, Part, Text, ToolResult
from holdfast.moments import minute
from holdfast.store.base import FactType

__all__ = [
    "CLOSE",
    "OPEN",
    "Detail",
    "Fact",
    "brief_header",
    "fact_line",
    "header",
    "moment",
    "render",
    "strip_message",
    "strip_text",
]

OPEN: Final = '<recalled-context source="holdfast"'
CLOSE: Final = "</recalled-context"
"""How the tags of a block begin. Its mark follows: ` mark="k3v9x...">`."""

_MINUTE: Final = 60_000
_INVISIBLE: Final = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters that nobody sees: zero-width, soft hyphen, variation selectors, marks of direction, fillers, tags."""
_ANY: Final = f"[{_INVISIBLE}]*+"


def _loose(name: str) -> str:
    """A pattern for a name with invisible characters between its letters, and wide letters for narrow ones."""
    return _ANY.join(f"[{letter}{chr(ord(letter) + 0xFEE0)}]" for letter in name)


_SPACE: Final = rf"[\s{_INVISIBLE}]*+"
_DASH: Final = r"[-\u2010-\u2015\u2212\ufe63\uff0d]"
_TAG: Final = (
    rf"[<\uff1c\ufe64](?={_SPACE}[/\uff0f]?{_SPACE}"
    rf"(?:{_loose('recalled')}{_ANY}{_DASH}{_ANY}{_loose('context')}"
    rf"|(?:{_loose('knowledge')}|{_loose('detail')})(?:[{_INVISIBLE}]|(?!\w))))"
)
_ENDS: Final = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE: Final = rf"(?<=[{_ENDS}])(?:[^\S{_ENDS}]|[{_INVISIBLE}])*+"
_BRACKET: Final = r"[\[\uff3b]"
_CLOSED: Final = r"[\]\uff3d]"
_MOMENT: Final = rf"(?:{_ANY}\d){{4}}(?:{_ANY}{_DASH}(?:{_ANY}\d){{2}}){{2}}[^\]\uff3d\n]{{0,200}}{_CLOSED}"
_SPEAKER: Final = rf"[^\]\uff3d\n]{{1,200}}{_CLOSED}(?:[^\S\n]|[{_INVISIBLE}])"
_TYPES: Final = "|".join(map(_loose, get_args(FactType)))
_ENTRY: Final = (
    rf"{_LINE}(?:(?={_BRACKET}(?:{_MOMENT}|{_SPEAKER}))"
    rf"|(?:[^\w\\{_ENDS}]|[{_INVISIBLE}]){{1,120}}?(?={_BRACKET}{_ANY}(?:{_TYPES}){_ANY}{_CLOSED}))"
)
"""Where a line of a text begins like an entry of the block. Its first line has an entry's own header before it."""
_BREAK: Final = re.compile(rf"\s*[{_ENDS}]\s*")
_LONGEST_NAME: Final = 80
_APART: Final = 2
"""Line ends between a block and what stands beside it."""


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


def render(facts: Sequence[Fact], details: Sequence[Detail], marks: Marks) -> str:
    """The block, or nothing where there is nothing to say. Details stand oldest first."""
    if not facts and not details:
        return ""
    parts: list[str] = []
    if facts:
        parts.append("\n".join(["<knowledge>", *map(fact_line, facts), "</knowledge>"]))
    if details:
        parts.append("<detail>\n" + "".join(_entries(details)).lstrip("\n") + "\n</detail>")
    body = "\n\n".join(parts)
    mark = marks.sign(body)
    return f'{OPEN} mark="{mark}">\n\n{body}\n\n{CLOSE} mark="{mark}">'


def fact_line(fact: Fact) -> str:
    """A fact as it stands in a block: `- [decision] Use Stripe`."""
    return f"- [{_who(fact.type)}] {_quoted(_BREAK.sub(' ', fact.text.strip()))}"


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
    return _quoted(re.sub(_CLOSED, ")", " ".join(role.split())[:_LONGEST_NAME]))


@lru_cache(maxsize=4096)
def _moment(milliseconds: int) -> str:
    said = minute(milliseconds) if milliseconds > 0 else ""
    return f"{said} " if said else ""


def _quoted(text: str) -> str:
    tag, entry = _patterns()
    return entry.sub(r"\g<0>\\", tag.sub("&lt;", text))


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What must not stand in quoted text. Compiled when the first block is made: it takes 20 ms."""
    return re.compile(_TAG, re.IGNORECASE), re.compile(_ENTRY, re.IGNORECASE)


def strip_text(text: str, marks: Marks) -> str:
    """A text without the blocks that were recalled into it, however they look by now; see `holdfast.memory.echo`.

    The blank line that sets a block apart goes with it, but what stood before and after it is not run together.
    """
    cuts = _cuts(text, marks)
    if not cuts:
        return text
    kept: list[str] = []
    place = 0
    for start, stop, before, after in cuts:
        inside = start - before > 0 and stop + after < len(text)
        kept += [text[place : start - before], "\n" * max(before, after) if inside else ""]
        place = stop + after
    return "".join([*kept, text[place:]])


def _cuts(text: str, marks: Marks) -> list[tuple[int, int, int, int]]:
    """Where blocks stand that are not apart, and how many line ends before and after go with them."""
    cuts: list[tuple[int, int, int, int]] = []
    for start, stop in echo.spans(text, marks):
        first, before, after = start, _ends_before(text, start), _ends_after(text, stop)
        if cuts and start - before <= cuts[-1][1] + cuts[-1][3]:
            first, _, before, _ = cuts.pop()
        cuts.append((first, stop, before, after))
    return cuts


def _ends_before(text: str, place: int) -> int:
    near = text[max(0, place - _APART) : place]
    return len(near) - len(near.rstrip("\n"))


def _ends_after(text: str, place: int) -> int:
    near = text[place : place + _APART]
    return len(near) - len(near.lstrip("\n"))


def strip_message(message: Message, marks: Marks) -> Message | None:
    """A message without recalled blocks; itself where there are none, None where nothing else was in it."""
    parts = [(part, _strip_part(part, marks)) for part in message.parts]
    if all(old is new for old, new in parts):
        return message
    kept = tuple(new for _, new in parts if new is not None)
    return replace(message, parts=kept) if kept else None


def _strip_part(part: Part, marks: Marks) -> Part | None:
    if isinstance(part, Text):
        words = strip_text(part.text, marks)
        if words == part.text:
            return part
        return replace(part, text=words) if words.strip() else None
    if isinstance(part, ToolResult):
        blocks = tuple(
            replace(block, text=words)
            if isinstance(block, Text) and (words := strip_text(block.text, marks)) != block.text
            else block
            for block in part.content
        )
        return part if blocks == part.content else replace(part, content=blocks)
    return part
