"""The recalled block: how facts and passages are quoted into a window, and how a block is removed again.

Stored text cannot close or fake the block: a `<` that begins one of the block's own tags is written as
`&lt;`; a line that begins like an entry of the block, `[2026-02-10 14:31 user] ` or `- [decision] `, gets a backslash
before the bracket; control characters are removed; a fact is one line. Nothing has to be undone: the archive has the
original text.

A passage follows its time and its speaker, `[2026-02-10 14:31 user] `, after a blank line. In a compact block a passage
of the same day and session follows on the next line without the date, `[14:35 assistant] `, and one of the same minute
with its speaker alone, `[assistant] `.

A fact or a passage that a later statement replaces is followed by `(may be outdated: see the later statement)`.

A block is recognised by the mark in its tags. A mark is a digest of the block and a proof made with a key of the store,
so every process that opens the store recognises its blocks without a list of them, the same block always has the same
mark, and nobody can forge one. Text that only looks like a block is text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct

from holdfast.memory.keys import open_keys
from holdfast.messages import Message, Part, Text, ToolResult
from holdfast.moments import minute
from holdfast.patterns import compile_once, load
from holdfast.quoting import escape_tags, fold, fold_character, remove_controls, tag_pattern
from holdfast.store.base import FactType, Store
from holdfast.store.codec import text_bytes

# --- marks ---------------------------------------------------------------------

LENGTH: Final = 15
"""Characters of a mark: `a` to `z` and `2` to `7`."""
_DIGEST: Final = 5
_KIND: Final = "recall key"


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys of a store, oldest first. The first one signs; without any, no text is a block."""

    keys: tuple[bytes, ...] = ()

    def sign(self, text: str) -> str:
        """Make the mark of a block with this text."""
        digest = _encode(hashlib.sha256(text_bytes(text)).digest())[:_DIGEST]
        return digest + _prove(self.keys[0], digest)

    def is_ours(self, mark: str) -> bool:
        """Tell whether a mark was made with one of the keys."""
        digest, proof = mark[:_DIGEST], mark[_DIGEST:]
        return any(hmac.compare_digest(proof, _prove(key, digest)) for key in self.keys)


NO_MARKS: Final = Marks()
"""For text that cannot contain a block."""
UNKEPT: Final = Marks((b"",))
"""For a block that does not have to be recognised again."""


def open_marks(store: Store) -> Marks:
    """Read the keys of a store; make one where there is none, unless the store cannot be written."""
    return Marks(open_keys(store, kind=_KIND))


def _prove(key: bytes, digest: str) -> str:
    return _encode(hmac.digest(key, digest.encode(), "sha256"))[: LENGTH - _DIGEST]


def _encode(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()


# --- rendering -----------------------------------------------------------------

OPEN: Final = '<recalled-context source="holdfast"'
CLOSE: Final = "</recalled-context"
"""The beginning of a block's tags; the mark follows: ` mark="k3v9x...">`."""

_MINUTE: Final = 60_000
_DAY: Final = 86_400_000

Style: TypeAlias = Literal["compact", "full"]
Superseded: TypeAlias = Literal["no", "partly", "wholly"]
"""Whether a later statement takes the place of a quoted one."""
SUPERSEDED: Final[Mapping[Superseded, str]] = {
    "no": "",
    "partly": " (may be partly outdated: see the later statement)",
    "wholly": " (may be outdated: see the later statement)",
}
"""What follows the text of an entry."""
Header: TypeAlias = tuple[Hashable | None, str]
_TAG: Final = tag_pattern(r"recalled-context\w*", "knowledge", "detail")
_TIME: Final = r"\d{4}-\d{2}-\d{2}[^\]\n]{0,200}\]"
_SPEAKER: Final = r"(?:user|assistant|system|tool|archive)\]|[^\]\n]{1,200}\][^\S\n]"
_TYPES: Final = "|".join(get_args(FactType))
_ENTRY: Final = rf"(?<=\n)(?:[^\S\n]*+\[(?={_TIME}|{_SPEAKER})|[^\w\\\n]{{1,120}}?\[(?=(?:{_TYPES})\]))"
"""A line that begins like an entry of the block, in folded text; the first line of a text follows a header."""
_BREAK: Final = re.compile("\\s*[\n\u2028\u2029]\\s*")
_LONGEST_NAME: Final = 80
_APART: Final = 2
"""Line ends between a block and the text beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of knowledge, and whether a later statement takes its place."""

    type: str
    text: str
    superseded: Superseded = "no"


class Detail(Struct, frozen=True, kw_only=True):
    """A quoted passage: its speaker, time (Unix milliseconds, 0 where unknown), text and session.

    `superseded` tells whether a later statement takes its place, or that of a sentence in it.
    """

    role: str
    time: int
    text: str
    session: int = 0
    superseded: Superseded = "no"


def render(facts: Sequence[Fact], details: Iterable[Detail], marks: Marks, *, style: Style = "compact") -> str:
    """Render a block; an empty text where there is nothing to quote.

    Passages are rendered oldest first. A compact block keeps those of a day and session together, unless one of that
    day is superseded: the statement that takes its place comes after it, whatever session it is from.
    """
    parts: list[str] = []
    if facts:
        parts.append("\n".join(["<knowledge>", *map(fact_line, facts), "</knowledge>"]))
    ordered = sorted(details, key=attrgetter("time"))  # stable: those of one moment stay in order
    if style == "compact":
        mixed = {detail.time // _DAY for detail in ordered if detail.superseded != "no"}

        def key(detail: Detail) -> tuple[int, int, int]:
            day = detail.time // _DAY
            return day, 0 if day in mixed else detail.session, detail.time // _MINUTE

        ordered.sort(key=key)
    shown: set[Hashable] = set()
    entries = ""
    for one in ordered:
        header = choose_header(headers(one.role, one.time, one.session, style), shown)
        entries += header + _quote(one.text) + SUPERSEDED[one.superseded]
    if entries:
        parts.append(f"<detail>\n{entries.lstrip()}\n</detail>")
    if not parts:
        return ""
    body = "\n\n".join(parts)
    mark = marks.sign(body)
    return f'{OPEN} mark="{mark}">\n\n{body}\n\n{CLOSE} mark="{mark}">'


def fact_line(fact: Fact) -> str:
    """Render a fact: `- [decision] Use Stripe`."""
    text = _quote(_BREAK.sub(" ", remove_controls(fact.text).strip()))
    return f"- [{_name(fact.type)}] {text}{SUPERSEDED[fact.superseded]}"


@lru_cache(maxsize=4096)
def headers(role: str, time: int, session: int, style: Style) -> tuple[Header, ...]:
    """Return the headers of a passage, the longest first, each after its line ends.

    Each but the last has the group of passages of which one needs it: those of a day or a minute of a session.
    """
    day, _, clock = minute(time).partition(" ") if time > 0 else ("", "", "")
    name = _name(role)
    full = f"\n\n[{day} {clock} {name}] " if clock else f"\n\n[{name}] "
    if style == "full" or not clock:
        return ((None, full),)
    by_minute = ((time // _MINUTE, session), f"\n[{clock} {name}] ")
    return ((time // _DAY, session, "day"), full), by_minute, (None, f"\n[{name}] ")


def choose_header(found: Sequence[Header], shown: set[Hashable]) -> str:
    """Return the longest header whose group is not `shown` yet, and add the groups of the passage."""
    header = next(text for group, text in found if group is None or group not in shown)
    shown.update(group for group, _ in found if group is not None)
    return header


@lru_cache(maxsize=1024)
def _name(role: str) -> str:
    short = " ".join(remove_controls(role).split())[:_LONGEST_NAME]
    return _quote("".join(")" if "]" in fold_character(character) else character for character in short))


def _quote(text: str) -> str:
    """Quote a text: no tag of the block, no line that begins like an entry, no control characters."""
    text = escape_tags(text, _TAG)
    folded = fold(text)
    if "[" not in folded.text:
        return text
    pieces: list[str] = []
    done = 0
    for match in compile_once(_ENTRY).finditer(folded.text):
        bracket = folded.locate(match.end() - 1)
        pieces.append(text[done:bracket])
        pieces.append("\\")
        done = bracket
    pieces.append(text[done:])
    return "".join(pieces)


def strip_text(text: str, marks: Marks) -> str:
    """Remove recalled blocks from a text, whatever a client did to them; see `find_blocks`.

    The blank line around a block goes with it; the text before and after it stays separated.
    """
    cuts: list[tuple[int, int, int, int]] = []  # adjacent blocks as one, with the line ends before and after them
    for start, stop in find_blocks(text, marks):
        near, behind = text[max(0, start - _APART) : start], text[stop : stop + _APART]
        first, before, after = start, len(near) - len(near.rstrip("\n")), len(behind) - len(behind.lstrip("\n"))
        if cuts and start - before <= cuts[-1][1] + cuts[-1][3]:
            first, _, before, _ = cuts.pop()
        cuts.append((first, stop, before, after))
    kept: list[str] = []
    place = 0
    for start, stop, before, after in cuts:
        inside = start - before > 0 and stop + after < len(text)
        kept += [text[place : start - before], "\n" * max(before, after) if inside else ""]
        place = stop + after
    return "".join([*kept, text[place:]])


def strip_message(message: Message, marks: Marks) -> Message | None:
    """Remove recalled blocks from a message; None where nothing else was in it, the message itself without blocks."""
    parts = [(part, _strip_part(part, marks)) for part in message.parts]
    if all(old is new for old, new in parts):
        return message
    kept = tuple(new for _, new in parts if new is not None)
    return replace(message, parts=kept) if kept else None


def _strip_part(part: Part, marks: Marks) -> Part | None:
    if isinstance(part, Text):
        words = strip_text(part.text, marks)
        stripped = replace(part, text=words) if words.strip() else None
        return part if words == part.text else stripped
    if isinstance(part, ToolResult):
        blocks = tuple(
            replace(block, text=strip_text(block.text, marks)) if isinstance(block, Text) else block
            for block in part.content
        )
        return part if blocks == part.content else replace(part, content=blocks)
    return part


# --- finding blocks ------------------------------------------------------------

Span: TypeAlias = tuple[int, int]

_QUOTING: Final = " \t>|"


def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("echoes")["blocks"][name])


class _EchoTag(NamedTuple):
    """A tag with a valid mark, and its position."""

    start: int
    stop: int
    mark: str
    closes: bool


def find_blocks(text: str, marks: Marks) -> list[Span]:
    """Find the blocks of this store in a text, in order, without overlaps.

    A client may indent or quote a block, wrap its lines, escape it for HTML or JSON, or clip its end or its beginning.
    Where a block was clipped, the text behind it cannot be told from it and goes with it, up to a line that says that
    something was left out: a block is at the end of a user message or in a message of its own, so no words of the user
    follow it.
    """
    tags = _find_tags(text, marks)
    ends = _find_ends(tags)
    blocks: list[Span] = []
    for number, tag in enumerate(tags):
        done = blocks[-1][1] if blocks else 0
        if tag.start < done:
            continue
        if tag.closes:  # its beginning was clipped
            omitted = [match.end() for match in _pattern("left_out").finditer(text, done, tag.start)]
            start, stop = omitted[-1] if omitted else done, tag.stop
        else:  # with the indent of its first line, and the marks of a quotation
            line = text.rfind("\n", 0, tag.start) + 1
            start, stop = (
                tag.start if text[line : tag.start].strip(_QUOTING) else line,
                _find_end(text, tags, number, ends[tag.mark]),
            )
        if blocks and start <= done:
            start = blocks.pop()[0]
        blocks.append((start, stop))
    return blocks


def _find_tags(text: str, marks: Marks) -> list[_EchoTag]:
    if not marks.keys or "recalled-" not in text.lower():
        return []
    tags: list[_EchoTag] = []
    for match in _pattern("tag").finditer(text):
        mark = _pattern("in_mark").sub("", match["mark"]).lower()
        if marks.is_ours(mark):
            tags.append(_EchoTag(match.start(), match.end(), mark, match["close"] is not None))
    return tags


def _find_ends(tags: Sequence[_EchoTag]) -> dict[str, list[int]]:
    """Return where the closing tags of each mark end, in order."""
    ends: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        if tag.closes:
            ends[tag.mark].append(tag.stop)
    return ends


def _find_end(text: str, tags: Sequence[_EchoTag], number: int, ends: Sequence[int]) -> int:
    """Find the end of the block that a tag opens: the next of the `ends` with its mark; else it was clipped."""
    tag = tags[number]
    place = bisect_left(ends, tag.stop)
    if place < len(ends):
        return ends[place]
    stop = tags[number + 1].start if number + 1 < len(tags) else len(text)
    omitted = _pattern("left_out").search(text, tag.stop, stop)
    return omitted.start() if omitted else stop
