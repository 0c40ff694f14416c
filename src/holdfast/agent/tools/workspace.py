"""The tools over the workspace: `read`, `write`, `edit` and `bash`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, BinaryIO, Final

from msgspec import Meta

from holdfast.agent import shell
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
from holdfast.agent.tools.toolbox import Action, Answer, Arguments, Confirm, Toolbox, ToolFunction, make_tool
from holdfast.errors import InputError
from holdfast.redact import redact

MAX_READ_LINES: Final = 2_000
MAX_READ_BYTES: Final = 50_000
"""The most that one `read` shows."""

MAX_EDIT_BYTES: Final = 32 << 20
MAX_PREVIEW_LINES: Final = 60
"""The most lines of a change that the user sees before confirming it."""
HEAD_CHARS: Final = 8_000
TAIL_CHARS: Final = 8_000
"""What the model sees of a long output of a command."""
DEFAULT_SECONDS: Final = 120
MAX_SECONDS: Final = 3_600
_PIECE: Final = 1 << 16
_PROBE: Final = 8_192


class Read(Arguments, frozen=True):
    """Read a text file. Shows up to 2,000 lines or 50 KB; go on with `offset`."""

    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    offset: Annotated[int, Meta(ge=1, description="The first line to show, from 1.")] = 1
    limit: Annotated[int | None, Meta(description="How many lines; 2,000 unless given.")] = None


class Write(Arguments, frozen=True):
    """Write a whole file. Its old content is replaced."""

    path: Annotated[str, Meta(description="The file, relative to the workspace; missing folders are created.")]
    content: Annotated[str, Meta(description="Its whole new content.")]


class Edit(Arguments, frozen=True):
    """Replace a passage of a file. It must occur exactly once."""

    path: Annotated[str, Meta(description="The file, relative to the workspace.")]
    old_text: Annotated[str, Meta(description="The text to replace, exactly as in the file; it must occur once.")]
    new_text: Annotated[str, Meta(description="The text to put in its place.")]


class Bash(Arguments, frozen=True):
    """Run a command in the workspace and wait for its end.

    Returns stdout and stderr together, and the exit status if it is not 0. Its processes end with it. Nothing can be
    typed into it.
    """

    command: Annotated[str, Meta(description="The command, for bash.")]
    timeout: Annotated[
        float | None, Meta(description=f"Seconds until it is stopped; {DEFAULT_SECONDS} unless given.")
    ] = None


def file_tools(bounds: Bounds, *, confirm: Confirm | None = None) -> tuple[ToolFunction, ...]:
    """Make the tools over files; those that write only if the workspace is writable and the user can be asked."""
    read = make_tool("read", Read, partial(_read, bounds), is_parallel=True)
    if not bounds.writable or confirm is None:
        return (read,)
    write, edit = partial(_write, bounds, confirm), partial(_edit, bounds, confirm)
    return read, make_tool("write", Write, write), make_tool("edit", Edit, edit)


def flush_tools(bounds: Bounds, *, note: str, mask: bool = True) -> Toolbox:
    """Make the tools of the turn before a compaction: `read`, and a `write` that can only append to one note.

    The user does not see that turn: with `mask`, secrets are masked.
    """
    told = f"Add text to the end of {note}, the only file that can be written now."
    write = make_tool("write", Write, partial(_append, bounds, note, mask), description=told)
    return Toolbox(functions=(*file_tools(bounds), write))


def bash_tools(bounds: Bounds, *, confirm: Confirm) -> tuple[ToolFunction, ...]:
    """Make the shell tool if the workspace is writable. `confirm` is called before each command."""
    return (make_tool("bash", Bash, partial(_bash, bounds.root, confirm)),) if bounds.writable else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some lines of a file: the number of the last one, whether more follow, and whether one is longer than shown."""

    text: str
    last: int
    has_more: bool
    is_cut: bool


def _read(bounds: Bounds, given: Read, _cancel: Event) -> Answer:
    with open_file(bounds, given.path) as file:
        if b"\0" in file.read(_PROBE):
            raise InputError(f"{given.path} is not text: use a program in bash that knows its format")
        file.seek(0)
        page = read_page(file, offset=given.offset, limit=given.limit or MAX_READ_LINES)
    if not page.text and given.offset > 1:
        raise InputError(f"{given.path} has no line {given.offset}: it ends at line {page.last}")
    notes = []
    if page.is_cut:
        notes.append(f"line {page.last} is longer than that: `cut -c` in bash shows more of it")
    if page.has_more:
        notes.append(f"more follows: offset={page.last + 1} goes on")
    shown = page.text or "(empty)"
    note = f"{shown.removesuffix(chr(10))}\n\n[lines {given.offset}-{page.last} of {given.path}; {'; '.join(notes)}]"
    return Answer(text=note if notes else shown)


def read_page(file: BinaryIO, *, offset: int, limit: int) -> Page:
    """Read some lines of a file without loading the rest of it; a very long line is read in pieces."""
    shown = bytearray()
    last = number = 0
    is_cut = has_more = False
    is_new = True
    while piece := file.readline(_PIECE):
        number += is_new
        room = MAX_READ_BYTES - len(shown)
        is_full = number >= offset + min(limit, MAX_READ_LINES) or (len(piece) > room and len(shown) > 0)
        if is_full and number > last:
            has_more = True
            break
        last, is_new = number, piece.endswith(b"\n")
        if number >= offset:
            is_cut = is_cut or len(piece) > room
            shown += piece[:room]
    return Page(text=bytes(shown).decode("utf-8", "replace"), last=last, has_more=has_more, is_cut=is_cut)


def _confirm(bounds: Bounds, confirm: Confirm, given: Write | Edit, *, change: list[str]) -> Place:
    """Ask the user whether a file may be written, and return the place that was shown."""
    place = locate_to_write(bounds, given.path)
    shown = change[:MAX_PREVIEW_LINES]
    more = [f"… {len(change) - len(shown):,} more lines"] if len(change) > len(shown) else []
    text = "\n".join([f"write {place.path}", *shown, *more])
    if not confirm(Action(kind="write", text=text, guarded=guard_reason(bounds, place))):
        raise InputError(f"writing {given.path} was not allowed: ask the user what to do instead")
    return place


def _write(bounds: Bounds, confirm: Confirm, given: Write, _cancel: Event) -> Answer:
    data = _encode(given.content)
    place = _confirm(bounds, confirm, given, change=[f"+ {line}" for line in given.content.splitlines()])
    write_bytes(bounds, given.path, data, place=place)
    return Answer(text=f"Wrote {len(given.content):,} characters to {given.path}.")


def _edit(bounds: Bounds, confirm: Confirm, given: Edit, _cancel: Event) -> Answer:
    held = read_bytes(bounds, given.path, limit=MAX_EDIT_BYTES + 1)
    old, new = _encode(given.old_text), _encode(given.new_text)
    if 0 < held.count(b"\n") == held.count(b"\r\n"):  # models write the line breaks that they are used to
        old, new = (part.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for part in (old, new))
    at = _find_passage(given, held, old)
    line = held.count(b"\n", 0, at) + 1
    removed, added = given.old_text.splitlines(), given.new_text.splitlines()
    change = [f"@ line {line}", *(f"- {each}" for each in removed), *(f"+ {each}" for each in added)]
    place = _confirm(bounds, confirm, given, change=change)
    write_bytes(bounds, given.path, held[:at] + new + held[at + len(old) :], expected=held, place=place)
    return Answer(text=f"Replaced the passage at line {line} of {given.path}.")


def _find_passage(given: Edit, held: bytes, old: bytes) -> int:
    """Find the only place of the text to replace; refuse an edit that cannot be made."""
    if len(held) > MAX_EDIT_BYTES:
        raise InputError(f"{given.path} is too large for edit: use a program in bash")
    if given.old_text == given.new_text:
        raise InputError("oldText and newText are the same: nothing would change")
    if not old:
        raise InputError("oldText is empty: say what to replace, or use write for a whole file")
    at = held.find(old)
    if at < 0:
        raise InputError(
            f"oldText does not occur in {given.path}: read the file again and copy it exactly, with all blanks"
        )
    if held.find(old, at + 1) >= 0:
        times = max(2, held.count(old))
        raise InputError(f"oldText occurs {times} times in {given.path}: include lines around it until it occurs once")
    return at


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("the text holds half of a character: write it again") from None


def _append(bounds: Bounds, note: str, mask: bool, given: Write, _cancel: Event) -> Answer:  # noqa: FBT001 - bound above
    if locate(bounds, given.path) != locate(bounds, note):
        raise InputError(f"only {note} can be written now, and only added to: write there")
    before = read_bytes(bounds, note)[-1:] if locate(bounds, note).path.exists() else b""
    gap = "" if not before else "\n" if before.endswith(b"\n") else "\n\n"
    words = redact(given.content) if mask else given.content
    append_bytes(bounds, note, _encode(f"{gap}{words.rstrip()}\n"))
    return Answer(text=f"Added {len(given.content):,} characters to {note}.")


def _bash(folder: Path, confirm: Confirm, given: Bash, cancel: Event) -> Answer:
    if not given.command.strip():
        return Answer(text="the command is empty: say what to run", is_error=True)
    if not confirm(Action(kind="run", text=given.command)):
        return Answer(text="The user refused this command. Ask what to do instead.", is_error=True)
    seconds = min(max(given.timeout or DEFAULT_SECONDS, 1), MAX_SECONDS)
    result = shell.run(given.command, cwd=folder, seconds=seconds, cancel=cancel)
    notes = {
        "timeout": f"[stopped after {seconds:g} s: give a longer `timeout`, or do less at once]",
        "cancelled": "[called off by the user]",
        "exit": f"[exit status {result.status}]" if result.status else "",
    }
    shown = result.output.removesuffix("\n") or "(no output)"
    failed = result.ended != "exit" or result.status != 0
    return Answer(
        text="\n".join(filter(None, (shown, notes[result.ended]))), is_error=failed, head=HEAD_CHARS, tail=TAIL_CHARS
    )
