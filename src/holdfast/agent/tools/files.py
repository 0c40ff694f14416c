"""Files of the workspace: `read`, `write` and `edit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Annotated, BinaryIO, Final

from msgspec import Meta

from holdfast.agent.paths import (
    Bounds,
    Place,
    append_bytes,
    guard_reason,
    locate,
    locate_to_write,
    open_file,
    read_bytes,
    write_bytes,
)
from holdfast.agent.tools.offer import Action, Answer, Arguments, Confirm, Offer, offer
from holdfast.errors import InputError
from holdfast.redact import redact

__all__ = ["MOST_BYTES", "MOST_LINES", "append_only", "file_tools", "page"]

MOST_LINES: Final = 2_000
MOST_BYTES: Final = 50_000
"""What one `read` shows at most."""

LARGEST_EDIT: Final = 32 << 20
MAX_PREVIEW_LINES: Final = 60
"""Lines of a change that the user is shown at most, before it is made."""
_PIECE: Final = 1 << 16
_PROBE: Final = 8_192


class Read(Arguments, frozen=True):
    """The arguments of `read`."""

    path: Annotated[str, Meta(description="The file, from the workspace on.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to show, from 1.")] = 1
    limit: Annotated[int | None, Meta(description="How many lines; 2,000 unless given.")] = None


class Write(Arguments, frozen=True):
    """The arguments of `write`."""

    path: Annotated[str, Meta(description="The file, from the workspace on; missing folders are made.")]
    content: Annotated[str, Meta(description="All that it shall hold.")]


class Edit(Arguments, frozen=True):
    """The arguments of `edit`."""

    path: Annotated[str, Meta(description="The file, from the workspace on.")]
    old_text: Annotated[str, Meta(description="What to replace, exactly as it stands there, once in the whole file.")]
    new_text: Annotated[str, Meta(description="What to put in its place.")]


def file_tools(bounds: Bounds, *, confirm: Confirm | None = None) -> tuple[Offer, ...]:
    """The tools over the files of a workspace; those that write only where it is writable and somebody can be asked."""
    reading = offer(
        "read",
        f"Read a text file. Shows up to {MOST_LINES:,} lines or {MOST_BYTES // 1000} KB; go on with `offset`.",
        Read,
        partial(_read, bounds),
        together=True,
    )
    if not bounds.writable or confirm is None:
        return (reading,)
    write, edit = partial(_write, bounds, confirm), partial(_edit, bounds, confirm)
    return (
        reading,
        offer("write", "Write a file, whole. What it held before is replaced.", Write, write),
        offer("edit", "Replace a passage of a file. It must stand there exactly once.", Edit, edit),
    )


def append_only(bounds: Bounds, note: str, *, mask: bool = True) -> tuple[Offer, ...]:
    """`read`, and a `write` that can only add to one note: what an agent may do before its history is compacted.

    Nobody looks on: with `mask`, secrets do not get into the note.
    """
    return (
        file_tools(bounds)[0],
        offer(
            "write",
            f"Add text to the end of {note}, the only file that can be written now.",
            Write,
            partial(_append, bounds, note, mask),
        ),
    )


# --- reading -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A stretch of a file.

    Attributes:
        text: Its lines.
        last: The number of its last line.
        more: Whether anything follows.
        cut: Whether its last line is longer than what is shown of it.
    """

    text: str
    last: int
    more: bool
    cut: bool


def _read(bounds: Bounds, asked: Read, _cancel: Event) -> Answer:
    with open_file(bounds, asked.path) as file:
        _refuse_binary(file, asked.path)
        found = page(file, offset=asked.offset, limit=asked.limit or MOST_LINES)
    if not found.text and asked.offset > 1:
        raise InputError(f"{asked.path} has no line {asked.offset}: it ends at line {found.last}")
    notes = []
    if found.cut:
        notes.append(f"line {found.last} is longer than that: `cut -c` in bash shows more of it")
    if found.more:
        notes.append(f"more follows: offset={found.last + 1} goes on")
    shown = found.text or "(empty)"
    note = f"{shown.removesuffix(chr(10))}\n\n[lines {asked.offset}-{found.last} of {asked.path}; {'; '.join(notes)}]"
    return Answer(text=note if notes else shown)


def page(file: BinaryIO, *, offset: int, limit: int) -> Page:
    """Some lines of a file, and no more of the file in memory than that."""
    shown = bytearray()
    last, cut = 0, False
    for number, piece in _pieces(file):
        room = MOST_BYTES - len(shown)
        full = number >= offset + min(limit, MOST_LINES) or (len(piece) > room and len(shown) > 0)
        if full and number > last:
            return Page(text=_text(shown), last=last, more=True, cut=cut)
        last = number
        if number >= offset:
            cut = cut or len(piece) > room
            shown += piece[:room]
    return Page(text=_text(shown), last=last, more=False, cut=cut)


def _pieces(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, a very long one in several pieces."""
    number, fresh = 0, True
    while piece := file.readline(_PIECE):
        number += fresh
        yield number, piece
        fresh = piece.endswith(b"\n")


def _text(data: bytes | bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")


def _refuse_binary(file: BinaryIO, path: str) -> None:
    if b"\0" in file.read(_PROBE):
        raise InputError(f"{path} is not text: use a program in bash that knows its format")
    file.seek(0)


# --- writing -------------------------------------------------------------------


def _ask(bounds: Bounds, confirm: Confirm, asked: Write | Edit, *, change: list[str]) -> Place:
    """Ask whether a file may be written, and return the place that the user was shown."""
    place = locate_to_write(bounds, asked.path)
    shown = change[:MAX_PREVIEW_LINES]
    more = [f"… {len(change) - len(shown):,} more lines"] if len(change) > len(shown) else []
    text = "\n".join([f"write {place.path}", *shown, *more])
    if not confirm(Action(kind="write", text=text, guarded=guard_reason(bounds, place))):
        raise InputError(f"writing {asked.path} was not allowed: ask the user what to do instead")
    return place


def _write(bounds: Bounds, confirm: Confirm, asked: Write, _cancel: Event) -> Answer:
    data = _bytes(asked.content)
    place = _ask(bounds, confirm, asked, change=[f"+ {line}" for line in asked.content.splitlines()])
    write_bytes(bounds, asked.path, data, place=place)
    return Answer(text=f"Wrote {len(asked.content):,} characters to {asked.path}.")


def _edit(bounds: Bounds, confirm: Confirm, asked: Edit, _cancel: Event) -> Answer:
    held = read_bytes(bounds, asked.path, limit=LARGEST_EDIT + 1)
    if len(held) > LARGEST_EDIT:
        raise InputError(f"{asked.path} is too large for edit: use a program in bash")
    if asked.old_text == asked.new_text:
        raise InputError("oldText and newText are the same: nothing would change")
    old, new = _bytes(asked.old_text), _bytes(asked.new_text)
    if 0 < held.count(b"\n") == held.count(b"\r\n"):  # models write the line breaks that they are used to
        old, new = (part.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for part in (old, new))
    at = held.find(old) if old else -1
    if at < 0 or held.find(old, at + 1) >= 0:
        raise InputError(_mismatch(asked, held.count(old) if old else 0))
    line = held.count(b"\n", 0, at) + 1
    removed, added = asked.old_text.splitlines(), asked.new_text.splitlines()
    change = [f"@ line {line}", *(f"- {each}" for each in removed), *(f"+ {each}" for each in added)]
    place = _ask(bounds, confirm, asked, change=change)
    write_bytes(bounds, asked.path, held[:at] + new + held[at + len(old) :], expected=held, place=place)
    return Answer(text=f"Replaced the passage at line {line} of {asked.path}.")


def _mismatch(asked: Edit, found: int) -> str:
    if not asked.old_text:
        return "oldText is empty: say what to replace, or use write for a whole file"
    if found:
        return (
            f"oldText stands {max(2, found)} times in {asked.path}: take in lines around it until it stands there once"
        )
    return f"oldText does not stand in {asked.path}: read the file again and copy it exactly, blanks and all"


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("the text holds half of a character: write it again") from None


def _append(bounds: Bounds, note: str, mask: bool, asked: Write, _cancel: Event) -> Answer:  # noqa: FBT001 - bound above
    if locate(bounds, asked.path) != locate(bounds, note):
        raise InputError(f"only {note} can be written now, and only added to: write there")
    before = _end_of(bounds, note)
    gap = "" if not before else "\n" if before.endswith(b"\n") else "\n\n"
    words = redact(asked.content) if mask else asked.content
    append_bytes(bounds, note, _bytes(f"{gap}{words.rstrip()}\n"))
    return Answer(text=f"Added {len(asked.content):,} characters to {note}.")


def _end_of(bounds: Bounds, note: str) -> bytes:
    """The last byte of a note; nothing where there is none."""
    if not locate(bounds, note).path.exists():
        return b""
    return read_bytes(bounds, note)[-1:]
