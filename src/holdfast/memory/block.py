"""The recalled block: quote facts and passages into a window, and remove a block from messages that come back.

Stored text cannot close or fake the block: a `<` that begins one of the block's own tags is written as
`&lt;`; a line that begins like an entry of the block, `[2026-02-10 14:31 user] ` or `- [decision] `, gets a backslash
before the bracket; control characters are removed; a fact is one line. A to-do list in JSON is written as lines,
`- [x] Fix the parser`. Nothing has to be undone: the archive has the
original text.

Each passage begins after a blank line with its day and its speaker, `[2026-02-10 user] `, and another one of the same
day and session on the next line with its speaker alone, `[assistant] `. The time of day would take a third of the
tokens of a short quote. In the style "full", that of the original plugin, every passage has all of it, `[2026-02-10
14:31 user] `.

A session is one line, `- [2026-02-10] Fix the importer. → It skips empty rows now.`, in the section `past-sessions` of
a block; sentences of it may follow, indented. The last line may say how many are missing, or that there are none, `No
sessions on 2026-02-10.`. An overview is a block with the one section `project-overview`.

A fact that another one contradicts is followed by its date and that of the other, `(of 2026-02-10; contradicts another
fact: 2026-03-01)`. A fact or a passage that a later statement replaces is followed by `(may be outdated: see the later
statement)`.

A block is recognised by the mark in its tags. A mark is a digest of the block and a proof made with a key of the store,
so every process that opens the store recognises its blocks without a list of them, the same block always has the same
mark, and nobody can forge one. Text that looks like a block but has no valid mark is ordinary text.
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
from holdfast.memory.task_lists import write_tasks
from holdfast.messages import Message, Part, ResultContent, Text, ToolResult
from holdfast.moments import minute
from holdfast.patterns import compile_once, load
from holdfast.quoting import escape_tags, fold, fold_character, remove_controls, tag_pattern
from holdfast.store.base import FactType, Store
from holdfast.store.codec import text_bytes

# --- marks ---------------------------------------------------------------------

LENGTH: Final = 15
"""The number of characters of a mark, which are `a` to `z` and `2` to `7`."""
_DIGEST: Final = 5
"""How many of them are the digest; the others are the proof."""
KEY_KIND: Final = "recall key"
"""The kind of the keys that marks are made with."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys of a store, oldest first. The first one signs; without keys, no text is a block."""

    keys: tuple[bytes, ...] = ()

    def sign(self, text: str) -> str:
        """Make the mark of a block with this text."""
        digest = _encode(hashlib.sha256(text_bytes(text)).digest())[:_DIGEST]
        return digest + _prove(self.keys[0], digest)

    def is_ours(self, mark: str) -> bool:
        """Return whether a mark was made with one of the keys."""
        digest = mark[:_DIGEST]
        proof = mark[_DIGEST:]
        return any(hmac.compare_digest(proof, _prove(key, digest)) for key in self.keys)


NO_MARKS: Final = Marks()
"""For text that cannot contain a block."""
UNKEPT: Final = Marks((b"",))
"""For a block that does not have to be recognised again."""


def open_marks(store: Store) -> Marks:
    """Read the keys of a store; make one if it has none, unless the store cannot be written."""
    return Marks(open_keys(store, kind=KEY_KIND))


def _prove(key: bytes, digest: str) -> str:
    return _encode(hmac.digest(key, digest.encode(), "sha256"))[: LENGTH - _DIGEST]


def _encode(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()


# --- rendering -----------------------------------------------------------------

OPEN: Final = "<recalled-context"
CLOSE: Final = "</recalled-context"
"""The beginning of a block's tags; the mark follows: ` mark="k3v9x...">`."""

_MINUTE: Final = 60_000
_DAY: Final = 86_400_000

Style: TypeAlias = Literal["compact", "full"]
Superseded: TypeAlias = Literal["no", "partly", "wholly"]
"""Whether a later statement replaces a quoted one."""
SUPERSEDED: Final[Mapping[Superseded, str]] = {
    "no": "",
    "partly": "may be partly outdated: see the later statement",
    "wholly": "may be outdated: see the later statement",
}
"""The note after the text of an entry, in brackets."""
Header: TypeAlias = tuple[Hashable | None, str]
"""A header, and the group of passages of which only the first one needs it; None if every passage needs one."""
_TAG: Final = tag_pattern(r"recalled-context\w*", "knowledge", "detail", "past-sessions", "project-overview")
_BLANK: Final = r"[^\S\n]*+"
_TIME: Final = r"\d{4}-\d{2}-\d{2}[^\]\n]{0,200}\]"
_SPEAKER: Final = rf"(?:user|assistant|system|tool|archive){_BLANK}\]|[^\]\n]{{1,200}}\][^\S\n]"
_TYPES: Final = "|".join(get_args(FactType))
_DATE: Final = r"\d{4}-\d{2}-\d{2}(?: #\d{1,20})?"
_PASSAGE: Final = rf"{_BLANK}\[(?={_BLANK}(?:{_TIME}|{_SPEAKER}))"
_FACT_OR_SESSION: Final = rf"[^\w\\\n]{{1,120}}?\[(?={_BLANK}(?:{_TYPES}|{_DATE}){_BLANK}\])"
_ENTRY: Final = rf"(?<=\n)(?:{_PASSAGE}|{_FACT_OR_SESSION})"
"""A line that begins like an entry of the block, in folded text; the first line of a text follows a header."""
_BREAK: Final = re.compile("\\s*[\n\u2028\u2029]\\s*")
_MAX_NAME_CHARS: Final = 80
_APART: Final = 2
"""The number of line ends between a block and the text next to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact as one line of a block, and whether a later statement replaces it.

    `note` follows its text in brackets: since when it holds, or that another fact contradicts it.
    """

    type: str
    text: str
    superseded: Superseded = "no"
    note: str = ""


class Detail(Struct, frozen=True, kw_only=True):
    """A quoted passage: its speaker, time (Unix milliseconds, 0 if unknown), text and session.

    `superseded` says whether a later statement replaces it, or a sentence in it.
    """

    role: str
    time: int
    text: str
    session: int = 0
    superseded: Superseded = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    """A session in a line: its day (`2026-02-10`), title and outcome, more sentences of it, and an archived message.

    `number` is the number of the message, for a tool that shows it; 0 for none.
    """

    day: str
    title: str
    outcome: str = ""
    keys: tuple[str, ...] = ()
    number: int = 0


def render(
    facts: Sequence[Fact],
    details: Iterable[Detail],
    marks: Marks,
    *,
    style: Style = "compact",
    sessions: Sequence[PastSession] = (),
    sessions_note: str = "",
) -> str:
    """Render a block; an empty text if there is nothing to quote.

    Passages are rendered oldest first. A compact block keeps those of one day and session together, unless one of that
    day is superseded: then the statement that replaces it has to come after it, whatever session it is from.
    `sessions_note` is the last line of the sessions.
    """
    parts: list[str] = []
    if facts:
        lines = [fact_line(fact) for fact in facts]
        parts.append("\n".join(["<knowledge>", *lines, "</knowledge>"]))
    if sessions or sessions_note:
        lines = [session_lines(session) for session in sessions]
        if sessions_note:
            lines.append(sessions_note)
        parts.append("\n".join(["<past-sessions>", *lines, "</past-sessions>"]))
    ordered = sorted(details, key=attrgetter("time"))  # stable: passages of the same time stay in order
    if style == "compact":
        mixed_days = {detail.time // _DAY for detail in ordered if detail.superseded != "no"}

        def key(detail: Detail) -> tuple[int, int, int]:
            day = detail.time // _DAY
            session = detail.session
            if day in mixed_days:
                session = 0
            return day, session, detail.time // _MINUTE

        ordered.sort(key=key)
    shown: set[Hashable] = set()
    entries = ""
    for detail in ordered:
        header = choose_header(headers(detail.role, detail.time, detail.session, style), shown)
        entries += header + _quote(write_tasks(detail.text)) + render_notes(SUPERSEDED[detail.superseded])
    if entries:
        parts.append(f"<detail>\n{entries.lstrip()}\n</detail>")
    if not parts:
        return ""
    return _sign("\n\n".join(parts), marks)


def _sign(body: str, marks: Marks) -> str:
    mark = marks.sign(body)
    return f'{OPEN} mark="{mark}">\n\n{body}\n\n{CLOSE} mark="{mark}">'


OVERVIEW: Final = "What Holdfast remembers of this project: background, not a request."
STANDING: Final = "Decisions and preferences that hold:"
TASKS: Final = "Open tasks and dates:"
SESSIONS: Final = "Last sessions, the newest first:"
MORE: Final = "The tool {tool} shows archived messages by their number (#), with `around` also those next to them."


def render_overview(
    *,
    standing: Sequence[Fact],
    tasks: Sequence[Fact],
    sessions: Sequence[PastSession],
    marks: Marks,
    archive_tool: str,
) -> str:
    """Render an overview; an empty text if there is nothing to say."""
    lines: list[str] = []
    if standing:
        lines += [STANDING, *map(fact_line, standing)]
    if tasks:
        lines += [TASKS, *map(fact_line, tasks)]
    if sessions:
        lines += [SESSIONS, *map(session_lines, sessions)]
    if not lines:
        return ""
    if archive_tool and any(session.number for session in sessions):
        lines.append(MORE.format(tool=_quote_line(archive_tool)))
    return _sign("\n".join(["<project-overview>", OVERVIEW, *lines, "</project-overview>"]), marks)


def session_lines(session: PastSession) -> str:
    """Render a session: `- [2026-02-10] Fix the importer. → It skips empty rows now.`, and more sentences of it."""
    number = ""
    if session.number:
        number = f" #{session.number}"
    words = " → ".join(_quote_line(text) for text in (session.title, session.outcome) if text)
    line = f"- [{session.day}{number}] {words}"
    for key in session.keys:
        line += f"\n  · {_quote_line(key)}"
    return line


def fact_line(fact: Fact) -> str:
    """Render a fact: `- [decision] Use Stripe`."""
    notes = render_notes(_quote_line(fact.note), SUPERSEDED[fact.superseded])
    return f"- [{_name(fact.type)}] {_quote_line(fact.text)}{notes}"


def render_notes(*notes: str) -> str:
    """Render the notes after the text of an entry, in brackets; nothing if there are none."""
    given = [note for note in notes if note]
    if not given:
        return ""
    return f" ({'; '.join(given)})"


def _quote_line(text: str) -> str:
    """Quote a text on one line."""
    return _quote(_BREAK.sub(" ", remove_controls(text).strip()))


@lru_cache(maxsize=4096)
def headers(role: str, time: int, session: int, style: Style) -> tuple[Header, ...]:
    """Return the headers of a passage, the longest first, each after its line ends.

    The first one is for the first passage of a session on a day.
    """
    name = _name(role)
    day, _, clock = minute(max(0, time)).partition(" ")
    if time <= 0 or not clock:  # the time is unknown, or out of the range of a calendar
        return ((None, f"\n\n[{name}] "),)
    if style == "full":
        return ((None, f"\n\n[{day} {clock} {name}] "),)
    return ((time // _DAY, session), f"\n\n[{day} {name}] "), (None, f"\n[{name}] ")


def choose_header(found: Sequence[Header], shown: set[Hashable]) -> str:
    """Return the longest header whose group is not `shown` yet, and add the groups of the passage."""
    header = next(text for group, text in found if group is None or group not in shown)
    for group, _ in found:
        if group is not None:
            shown.add(group)
    return header


@lru_cache(maxsize=1024)
def _name(role: str) -> str:
    """Return the name of a speaker or type, in one line and without anything that reads as a closing bracket."""
    short = " ".join(remove_controls(role).split())[:_MAX_NAME_CHARS]
    characters: list[str] = []
    for character in short:
        if "]" in fold_character(character):
            characters.append(")")
        else:
            characters.append(character)
    return _quote("".join(characters))


@lru_cache(maxsize=2048)
def _quote(text: str) -> str:
    """Quote a text: no tag of the block, no line that begins like an entry, no control characters.

    The recalls of a conversation quote many of the same texts.
    """
    # Stored text must not close the block or add an entry to it. It is folded before it is searched, because many
    # characters look like a bracket to a reader.
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
    """Remove recalled blocks from a text, even if a client has changed them; see `find_blocks`.

    The blank lines around a block are removed with it. The text before and after it stays separated.
    """
    cuts: list[_Cut] = []
    for start, stop in find_blocks(text, marks):
        preceding = text[max(0, start - _APART) : start]
        following = text[stop : stop + _APART]
        cut = _Cut(
            start=start,
            stop=stop,
            before=len(preceding) - len(preceding.rstrip("\n")),
            after=len(following) - len(following.lstrip("\n")),
        )
        if cuts and cut.start - cut.before <= cuts[-1].stop + cuts[-1].after:
            first = cuts.pop()
            cut = cut._replace(start=first.start, before=first.before)
        cuts.append(cut)
    kept: list[str] = []
    place = 0
    for cut in cuts:
        start = cut.start - cut.before
        stop = cut.stop + cut.after
        kept.append(text[place:start])
        if start > 0 and stop < len(text):
            kept.append("\n" * max(cut.before, cut.after))
        place = stop
    kept.append(text[place:])
    return "".join(kept)


class _Cut(NamedTuple):
    """Adjacent blocks of a text, and the number of line ends before and after them."""

    start: int
    stop: int
    before: int
    after: int


def strip_message(message: Message, marks: Marks) -> Message | None:
    """Remove recalled blocks from a message; None if it contained nothing else.

    Without blocks, the message itself is returned.
    """
    parts = [(part, _strip_part(part, marks)) for part in message.parts]
    if all(old is new for old, new in parts):
        return message
    kept = tuple(new for _, new in parts if new is not None)
    if not kept:
        return None
    return replace(message, parts=kept)


def _strip_part(part: Part, marks: Marks) -> Part | None:
    if isinstance(part, Text):
        words = strip_text(part.text, marks)
        if words == part.text:
            return part
        if not words.strip():
            return None
        return replace(part, text=words)
    if isinstance(part, ToolResult):
        content: list[ResultContent] = []
        for block in part.content:
            if isinstance(block, Text):
                block = replace(block, text=strip_text(block.text, marks))  # noqa: PLW2901 - without recalled blocks
            content.append(block)
        if tuple(content) == part.content:
            return part
        return replace(part, content=tuple(content))
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
    If the end of a block was clipped, nothing separates it from the text after it. That text is removed too, up to a
    line such as "[... omitted]". A block is at the end of a user message or in a separate message, so no words of the
    user follow it.
    """
    tags = _find_tags(text, marks)
    ends = _find_ends(tags)
    blocks: list[Span] = []
    for number, tag in enumerate(tags):
        done = 0  # the end of the last block
        if blocks:
            done = blocks[-1][1]
        if tag.start < done:
            continue
        if tag.closes:  # the beginning of the block was clipped
            start = done
            for match in _pattern("left_out").finditer(text, done, tag.start):
                start = match.end()
            stop = tag.stop
        else:
            start = tag.start
            line = text.rfind("\n", 0, tag.start) + 1
            if not text[line : tag.start].strip(_QUOTING):  # remove the indent, and the marks of a quotation, too
                start = line
            stop = _find_end(text, tags, number, ends[tag.mark])
        if blocks and start <= done:  # they touch: one block
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
    """Return the ends of the closing tags of each mark, in order."""
    ends: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        if tag.closes:
            ends[tag.mark].append(tag.stop)
    return ends


def _find_end(text: str, tags: Sequence[_EchoTag], number: int, ends: Sequence[int]) -> int:
    """Find the end of the block that a tag opens: the next of the `ends` with its mark. Without one, it was clipped."""
    tag = tags[number]
    place = bisect_left(ends, tag.stop)
    if place < len(ends):
        return ends[place]
    stop = len(text)
    if number + 1 < len(tags):
        stop = tags[number + 1].start
    omitted = _pattern("left_out").search(text, tag.stop, stop)
    if omitted is None:
        return stop
    return omitted.start()
