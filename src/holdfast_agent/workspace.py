"""The workspace of an agent: its context files, and the system prompt that is built from them for each turn.

The files are not part of the conversation: they are never summarised, and a change applies from the next turn on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import InputError, SettingsError, StorageError
from holdfast.models.base import Tool
from holdfast.moments import utc
from holdfast.settings.trust import trust_file
from holdfast.text import head, tail
from holdfast_agent.paths import Bounds, locate, read_bytes
from holdfast_agent.settings import AgentSettings

FILES: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md")
"""The files that are always in the prompt, in this order."""
FIRST_RUN: Final = "BOOTSTRAP.md"
MEMORY: Final = ("MEMORY.md", "memory.md")

MIN_ROOM: Final = 64
"""With less room left than this, the remaining files are skipped."""
MAX_BYTES: Final = 4 << 20
"""The most that is read of a file."""
HEAD_SHARE: Final = 0.75
"""The share of a truncated file that is kept from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """A file of the workspace, its length, what of it goes into the prompt, and why not all of it."""

    name: str
    path: Path
    status: Literal["ok", "truncated", "missing", "empty", "skipped", "unreadable"]
    raw_chars: int = 0
    text: str = ""


def bounds_of(root: Path, settings: AgentSettings, *, guarded: Sequence[Path] = ()) -> Bounds:
    """Return the paths that the agent may read and write. Changes to Holdfast's settings always need a confirmation."""
    return Bounds(root=root, writable=settings.workspace.access == "rw", guarded=(trust_file().parent, *guarded))


def prepare(root: Path, settings: AgentSettings) -> list[str]:
    """Create the folder and its files if they are missing; return the new files. Existing ones are never overwritten.

    `BOOTSTRAP.md` is written only into a folder without any of the other files. Nothing is written unless
    `agent.workspace.access = "rw"`; with `agent.workspace.skip_bootstrap` only the folder is created.
    """
    written: list[str] = []
    if settings.workspace.access != "rw":
        return written
    names = list(FILES)
    if not any((root / name).exists() for name in (*FILES, *MEMORY)):
        names.append(FIRST_RUN)
    try:
        root.mkdir(parents=True, exist_ok=True)
        if settings.workspace.skip_bootstrap:
            return written
        (root / "memory").mkdir(exist_ok=True)
        for name in names:
            with suppress(FileExistsError), (root / name).open("x", encoding="utf-8") as file:
                file.write(_template(f"workspace/{name}"))
                written.append(name)
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror}", path=root) from error
    return written


def context_files(root: Path, settings: AgentSettings, *, first_run: bool = False) -> tuple[ContextFile, ...]:
    """Load the files of a workspace as the prompt contains them, each and all together within the settings' caps.

    A missing file is named only if the files of a workspace are expected: not with `agent.workspace.skip_bootstrap`.
    `BOOTSTRAP.md` is included only in a first run. A link that leads out of the workspace is not followed.
    """
    if settings.workspace.access == "none":
        return ()
    limits = settings.workspace
    files: list[ContextFile] = []
    room = limits.bootstrap_total_max_chars
    for name in _list_names(root, first_run=first_run):
        file = _load(root, name)
        if file.status == "missing" and limits.skip_bootstrap:
            continue  # nobody expects it here
        limit = min(limits.bootstrap_max_chars, room)
        if file.status != "empty" and limit < min(MIN_ROOM, len(file.text)):
            files.append(replace(file, status="skipped", text=""))
            continue
        text = truncate(file.text, name=file.name, limit=limit)
        room -= len(text)
        if len(text) < len(file.text):
            file = replace(file, status="truncated", text=text)
        files.append(file)
    return tuple(files)


def _list_names(root: Path, *, first_run: bool) -> list[str]:
    names = list(FILES)
    if first_run and (root / FIRST_RUN).is_file():
        names.append(FIRST_RUN)
    # On a file system that ignores case, both names of the notes are the same file.
    inodes: set[int] = set()
    for name in MEMORY:
        if (root / name).is_file():
            inode = (root / name).stat().st_ino
            if inode not in inodes:
                names.append(name)
            inodes.add(inode)
    return names


def _load(root: Path, name: str) -> ContextFile:
    path = root / name
    bounds = Bounds(root=root)
    try:
        if not locate(bounds, name).path.exists():
            return ContextFile(name=name, path=path, status="missing", text=f"[MISSING] Expected at: {path}")
        text = read_bytes(bounds, name, limit=MAX_BYTES).decode("utf-8", "replace").rstrip()
    except InputError as error:
        return ContextFile(name=name, path=path, status="unreadable", text=f"[UNREADABLE] {error}")
    return ContextFile(name=name, path=path, status="ok" if text else "empty", raw_chars=len(text), text=text)


def truncate(text: str, *, name: str, limit: int) -> str:
    """Shorten a text that is too long to its beginning and its end, with a marker between them."""
    if len(text) <= limit:
        return text
    room = limit - len(_marker(name, limit, limit, len(text)))
    if room <= 0:
        return head(text, limit)
    first = head(text, int(room * HEAD_SHARE))
    last = tail(text, room - int(room * HEAD_SHARE))
    return f"{first}{_marker(name, len(first), len(last), len(text))}{last}"


def _marker(name: str, first: int, last: int, whole: int) -> str:
    return (
        f"\n\n[...truncated, read {name} for full content...]\n"
        f"…(truncated {name}: kept {first}+{last} chars of {whole})…\n\n"
    )


def system_prompt(
    root: Path, *, settings: AgentSettings, now: int, tools: Sequence[Tool] = (), first_run: bool = False
) -> str:
    """Build the system prompt: what the agent is, what it can do, and the files of its workspace.

    It changes only with the day, the tools and the files, so that the provider's prompt cache holds.
    """
    moment = local_time(now, timezone=settings.timezone)
    access = settings.workspace.access
    parts = [_section("opening")]
    if tools:
        parts.append(_section("tools", tools="\n".join(f"- {tool.name}: {tool.description}" for tool in tools)))
    if any(tool.name == "memory_search" for tool in tools):
        citations = "Say where you found it, as path#L5-L9."
        if settings.memory_search.citations == "off":
            citations = ""
        parts.append(_section("recall", citations=citations))
    if access != "none":
        note = " (read-only)" if access == "ro" else ""
        parts.append(_section("workspace", folder=str(root), access=note))
    if access == "rw":
        parts.append(_section("notes", note=f"memory/{moment:%Y-%m-%d}.md"))
    parts.append(_section("silence"))
    zone = settings.timezone or moment.tzname() or ""
    parts.append(_section("date", day=moment.strftime("%A, %Y-%m-%d"), zone=zone))
    files = _project_context(context_files(root, settings, first_run=first_run))
    if files:
        parts.append(files)
    return "\n\n".join(parts)


def _project_context(files: Sequence[ContextFile]) -> str:
    shown = [file for file in files if file.text]
    if not shown:
        return ""
    lines = ["# Project Context", "", "The following project context files have been loaded:"]
    if any(file.name == "SOUL.md" and file.status in {"ok", "truncated"} for file in shown):
        lines.append("SOUL.md says who you are: speak as it says.")
    for file in shown:
        lines += ["", f"## {file.path}", "", file.text]
    skipped = [file.name for file in files if file.status == "skipped"]
    if skipped:
        lines += ["", f"[No room was left for {', '.join(skipped)}: read them when they matter.]"]
    return "\n".join(lines)


def local_time(milliseconds: int, *, timezone: str | None) -> datetime:
    """Return a moment in the user's time zone; without one, in the machine's."""
    moment = utc(milliseconds)
    if timezone is None:
        return moment.astimezone()
    try:
        return moment.astimezone(ZoneInfo(timezone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(
            f"no time zone {timezone!r}: write one such as 'Europe/Berlin', or leave it out for the machine's",
            source="settings",
            key="agent.timezone",
        ) from error


def _section(name: str, **values: str) -> str:
    return Template(_template(f"prompt/{name}.md")).substitute(values).strip()


def _template(name: str) -> str:
    return resources.files("holdfast_agent").joinpath("templates", name).read_text("utf-8")
