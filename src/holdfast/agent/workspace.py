"""The agent's folder: the files of it that go into every prompt, and the prompt itself, made anew for each run.

These files are no part of the conversation: nothing summarises them, and a change counts from the next run on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final, Literal

from holdfast.agent.days import daily_note, local_time
from holdfast.agent.paths import Bounds, locate, read_bytes
from holdfast.errors import InputError
from holdfast.models.base import Tool
from holdfast.settings import Settings
from holdfast.settings.trust import trust_file
from holdfast.text import head, tail

__all__ = ["FILES", "ContextFile", "Prepared", "bounds_of", "context_files", "prepare", "system_prompt", "truncated"]

FILES: Final = ("AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md")
"""Always in the prompt, in this order."""
FIRST_RUN: Final = "BOOTSTRAP.md"
MEMORY: Final = ("MEMORY.md", "memory.md")

LEAST_ROOM: Final = 64
"""With less room left than this, the remaining files are skipped."""
LARGEST: Final = 4 << 20
"""Bytes that are read of a file at most."""
_HEAD: Final = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """A file of the workspace, and what of it goes into the prompt.

    Attributes:
        name: What it is called.
        path: Where it is looked for.
        status: Whether all of it is there, or why not.
        raw_chars: How long it is.
        text: What the prompt holds of it.
    """

    name: str
    path: Path
    status: Literal["ok", "truncated", "missing", "empty", "skipped", "unreadable"]
    raw_chars: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was written into a workspace that lacked it, and what could not be."""

    written: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def bounds_of(root: Path, settings: Settings, *, guarded: Sequence[Path] = ()) -> Bounds:
    """Where an agent of this workspace may read and write; changes to our own settings are always asked for."""
    return Bounds(root=root, writable=settings.workspace.access == "rw", guarded=(trust_file().parent, *guarded))


# --- the first run ---------------------------------------------------------------


def prepare(root: Path, settings: Settings) -> Prepared:
    """Make the folder and its files where they are missing. What is there is never written over.

    `BOOTSTRAP.md` comes only with a folder that holds none of the others. A folder that cannot be written is left
    alone, and so is everything without `workspace.access = "rw"`; with `workspace.skip_bootstrap` only the folder is
    made.
    """
    if settings.workspace.access != "rw":
        return Prepared()
    is_new = not any((root / name).exists() for name in (*FILES, *MEMORY))
    written: list[str] = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        if settings.workspace.skip_bootstrap:
            return Prepared()
        (root / "memory").mkdir(exist_ok=True)
        written += (name for name in ((*FILES, FIRST_RUN) if is_new else FILES) if _write_new(root / name))
    except OSError as error:
        return Prepared(written=tuple(written), problems=(f"{root}: cannot be written: {error.strerror}",))
    return Prepared(written=tuple(written))


def _write_new(path: Path) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_template(f"workspace/{path.name}"))
    except FileExistsError:
        return False
    return True


# --- the files -------------------------------------------------------------------


def context_files(root: Path, settings: Settings, *, first_run: bool = False) -> tuple[ContextFile, ...]:
    """The files of a workspace as the prompt holds them, in order, each and all together within the settings' caps.

    `BOOTSTRAP.md` is there only in a first run. A link that leads out of the workspace is not followed.
    """
    if settings.workspace.access == "none":
        return ()
    names = [*FILES, *([FIRST_RUN] if first_run and (root / FIRST_RUN).is_file() else []), *_memory_files(root)]
    return tuple(_capped([_load(root, name) for name in names], settings))


def _memory_files(root: Path) -> list[str]:
    """MEMORY.md and memory.md, once where a disk takes them for the same."""
    found = [name for name in MEMORY if (root / name).is_file()]
    if len(found) > 1 and (root / found[0]).samefile(root / found[1]):
        return found[:1]
    return found


def _load(root: Path, name: str) -> ContextFile:
    path = root / name
    bounds = Bounds(root=root)
    try:
        if not locate(bounds, name).path.exists():
            return ContextFile(name=name, path=path, status="missing", text=f"[MISSING] Expected at: {path}")
        text = read_bytes(bounds, name, limit=LARGEST).decode("utf-8", "replace").rstrip()
    except InputError as error:
        return ContextFile(name=name, path=path, status="unreadable", text=f"[UNREADABLE] {error}")
    return ContextFile(name=name, path=path, status="ok" if text.strip() else "empty", raw_chars=len(text), text=text)


def _capped(files: Sequence[ContextFile], settings: Settings) -> Iterator[ContextFile]:
    limits = settings.workspace
    room = limits.bootstrap_total_max_chars
    for file in files:
        limit = min(limits.bootstrap_max_chars, room)
        if file.status == "empty":
            yield ContextFile(name=file.name, path=file.path, status="empty", raw_chars=file.raw_chars)
        elif limit < min(LEAST_ROOM, len(file.text)):
            yield ContextFile(name=file.name, path=file.path, status="skipped", raw_chars=file.raw_chars)
        else:
            text = truncated(file.text, name=file.name, limit=limit)
            room -= len(text)
            status = "truncated" if len(text) < len(file.text) else file.status
            yield ContextFile(name=file.name, path=file.path, status=status, raw_chars=file.raw_chars, text=text)


def truncated(text: str, *, name: str, limit: int) -> str:
    """The beginning and the end of a file that is longer than it may be, with a marker between them that says so."""
    if len(text) <= limit:
        return text
    room = limit - len(_marker(name, limit, limit, len(text)))
    if room <= 0:
        return head(text, limit)
    first = head(text, int(room * _HEAD))
    last = tail(text, room - int(room * _HEAD))
    return f"{first}{_marker(name, len(first), len(last), len(text))}{last}"


def _marker(name: str, first: int, last: int, whole: int) -> str:
    return (
        f"\n\n[...truncated, read {name} for full content...]\n"
        f"…(truncated {name}: kept {first}+{last} chars of {whole})…\n\n"
    )


# --- the prompt ------------------------------------------------------------------


def system_prompt(
    root: Path, *, settings: Settings, now: int, tools: Sequence[Tool] = (), first_run: bool = False
) -> str:
    """The system prompt of a run: what the agent is, what it can do, and the files of its workspace.

    It changes with the day, the tools and the files, and with nothing else: a provider's cache holds.
    """
    parts = [
        _section("opening"),
        *_tool_sections(tools, settings),
        *_workspace_sections(root, settings, now),
        _section("silence"),
        _date(now, settings),
        _project_context(context_files(root, settings, first_run=first_run)),
    ]
    return "\n\n".join(part for part in parts if part)


def _tool_sections(tools: Sequence[Tool], settings: Settings) -> Iterator[str]:
    if tools:
        yield _section("tools", tools="\n".join(f"- {tool.name}: {tool.description}" for tool in tools))
    if any(tool.name == "memory_search" for tool in tools):
        cite = "Say where you found it, as path#L5-L9." if settings.memory.citations != "off" else ""
        yield _section("recall", citations=cite)


def _workspace_sections(root: Path, settings: Settings, now: int) -> Iterator[str]:
    if settings.workspace.access == "none":
        return
    yield _section("workspace", folder=str(root), access=" (read-only)" if settings.workspace.access == "ro" else "")
    if settings.workspace.access == "rw":
        yield _section("notes", note=daily_note(now, timezone=settings.agent.timezone))


def _date(now: int, settings: Settings) -> str:
    moment = local_time(now, timezone=settings.agent.timezone)
    return _section("date", day=moment.strftime("%A, %Y-%m-%d"), zone=settings.agent.timezone or moment.tzname() or "")


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


def _section(name: str, **values: str) -> str:
    return Template(_template(f"prompt/{name}.md")).substitute(values).strip()


def _template(name: str) -> str:
    return resources.files("holdfast.agent").joinpath("templates", name).read_text("utf-8")
