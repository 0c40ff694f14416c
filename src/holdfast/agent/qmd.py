"""QMD as the backend of a search over notes: an external command that is kept up to date in the background.

Every failure is a `CommandError`; the caller then searches our own index.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Final, TypeAlias

import msgspec

from holdfast.agent.note_files import (
    MAX_NOTE_BYTES,
    Kind,
    NoteHit,
    NoteResults,
    expand_paths,
    find_sessions,
    read_messages,
)
from holdfast.agent.paths import Bounds, locate, write_bytes
from holdfast.agent.shell import CommandError, environment, run_program
from holdfast.errors import InputError
from holdfast.redact import redact
from holdfast.settings import Qmd as QmdSettings
from holdfast.settings import QmdPath, Settings
from holdfast.text import head

__all__ = ["Collection", "CommandError", "Qmd", "custom_collections", "forget_sessions", "missing_command"]

REGISTER_SECONDS: Final = 30.0
UPDATE_SECONDS: Final = 120.0
"""Time limits of background work; a search has the limit of the settings."""
MAX_QUERY_CHARS: Final = 2_000
_STATE: Final = "state.json"
_EXPORTS: Final = "sessions"
_MODES: Final = {"search": "words", "vsearch": "vectors", "query": "hybrid"}
_INDEX_VARIABLES: Final = ("INDEX_PATH", "QMD_CONFIG_DIR")
"""Variables that would make QMD use another index than ours."""
_ALL: Final = "**/*.md"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_NO_RESULTS: Final = "no results found"
_POSITION: Final = re.compile(r"\A\s*@@ -(\d{1,9})(?:,\d+)? @@[^\n]*\n?")
"""How QMD begins a snippet: with the number of its first line."""

Exports: TypeAlias = dict[str, tuple[int, int]]
"""The exported sessions by name, with time and size of the session when it was exported."""


class State(msgspec.Struct, kw_only=True):
    """What QMD has indexed: its collections, the exports and their folder, and when it was updated, in milliseconds."""

    collections: dict[str, tuple[str, str]] = {}
    exports: str = ""
    exported: Exports = {}
    updated: int = 0
    embedded: int = 0


def missing_command(settings: Settings) -> str | None:
    """Return why QMD cannot be used although the settings name it; None if it can."""
    command = settings.memory.qmd.command
    if settings.memory.backend != "qmd" or shutil.which(_expand(command)) is not None:
        return None
    return f"there is no command {command!r}: install QMD, or set memory.qmd.command"


def _expand(command: str) -> str:
    return os.path.expanduser(command)  # noqa: PTH111 - the one that never raises


@dataclass(slots=True)
class Qmd:
    """QMD over the notes of a workspace. Threads may share it.

    Attributes:
        root: The workspace.
        settings: The settings in force.
        folder: Where QMD keeps its index and settings for this agent.
        sessions: The folder of past sessions.
        clock: Returns the time in Unix milliseconds.
        failure: Why the last update failed; empty if it did not.
    """

    root: Path
    settings: Settings
    folder: Path
    sessions: Path | None
    clock: Callable[[], int]
    failure: str = ""
    _state: State = field(init=False)
    _tried: int = 0
    _worker: Thread | None = None
    _closing: Event = field(default_factory=Event)
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        self._state = _load_state(self.folder)

    def close(self) -> None:
        """Stop the background work."""
        self._closing.set()
        self.wait()

    def _run(self, *arguments: str, seconds: float | None) -> str:
        command = (_expand(self.settings.memory.qmd.command), *arguments)
        environ = _make_environment(os.environ, self.folder)
        return run_program(command, cwd=self.folder, environ=environ, seconds=seconds, cancel=self._closing)

    # --- updating ----------------------------------------------------------------

    def start(self) -> None:
        """Update at the start of a session, if the settings say so."""
        if self.settings.memory.qmd.update.on_boot:
            self._update_in_background(boot=True)

    def poll(self) -> None:
        """Update in the background if it is due."""
        self._update_in_background()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the background work; return whether it is done."""
        worker = self._worker
        if worker is None:
            return True
        worker.join(seconds)
        return not worker.is_alive()

    def _update_in_background(self, *, boot: bool = False) -> None:
        with self._lock:
            if (self._worker is None or not self._worker.is_alive()) and self._is_due(boot=boot):
                self._tried = self.clock()
                self._worker = Thread(target=self._work, name="holdfast-qmd", daemon=True)
                self._worker.start()

    def _is_due(self, *, boot: bool) -> bool:
        update, now = self.settings.memory.qmd.update, self.clock()
        if now - max(self._tried, self._state.updated) < update.debounce_ms:
            return False
        changed = self._state.collections != _describe(self._collections())
        return boot or changed or bool(self.failure) or now - self._state.updated >= _milliseconds(update.interval)

    def _collections(self) -> list[Collection]:
        return _all_collections(self.root, self.settings.memory.qmd, exports=self._export_folder())

    def _export_folder(self) -> Path | None:
        """Return the folder for exported sessions, if sessions are exported."""
        sessions = self.settings.memory.qmd.sessions
        if not sessions.enabled or self.sessions is None:
            return None
        return (
            self.folder / _EXPORTS if sessions.export_dir is None else expand_paths(self.root, [sessions.export_dir])[0]
        )

    def _work(self) -> None:
        try:
            self._update(self.clock())
            self.failure = ""
        except (CommandError, InputError, UnicodeError) as error:  # file names need not be valid text
            self.failure = str(error)
        except OSError as error:
            self.failure = f"{error.filename or self.folder}: {error.strerror}"

    def _update(self, now: int) -> None:
        """Export sessions, register collections, update the index and embed, each if it is due."""
        if (reason := missing_command(self.settings)) is not None:
            raise CommandError(reason)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _link_models(os.environ, self.folder)
        self._export(now)
        self._register(_describe(self._collections()))
        self._run("update", seconds=UPDATE_SECONDS)
        self._state.updated = now
        self._save()
        qmd = self.settings.memory.qmd
        if qmd.search_mode != "search" and now - self._state.embedded >= _milliseconds(qmd.update.embed_interval):
            self._run("embed", seconds=UPDATE_SECONDS)
            self._state.embedded = now
            self._save()

    def _export(self, now: int) -> None:
        folder, state = self._export_folder(), self._state
        if state.exports and (folder is None or state.exports != os.fspath(folder)):
            _remove_exports(Path(state.exports), state.exported)
            state.exports, state.exported = "", {}
        if folder is not None and self.sessions is not None:
            days = self.settings.memory.qmd.sessions.retention_days
            since = (now - days * _milliseconds(timedelta(days=1))) * 1_000_000 if days else None
            state.exported = export_sessions(self.sessions, folder=folder, before=state.exported, since=since)
            state.exports = os.fspath(folder)
        self._save()

    def _register(self, collections: Mapping[str, tuple[str, str]]) -> None:
        """Register the collections with QMD; those that are obsolete or have moved are removed first."""
        known = self._state.collections
        for name in [name for name, place in known.items() if collections.get(name) != place]:
            self._remove(name)
            del known[name]
        for name, (path, mask) in collections.items():
            if name not in known:
                self._remove(name)  # it may be left from a state that was lost
                self._run("collection", "add", path, "--name", name, "--mask", mask, seconds=REGISTER_SECONDS)
                known[name] = (path, mask)
        self._save()

    def _remove(self, name: str) -> None:
        try:
            self._run("collection", "remove", name, seconds=REGISTER_SECONDS)
        except CommandError as error:
            if "failed with status" not in str(error):  # QMD fails for a collection that it does not know
                raise

    def _save(self) -> None:
        write_bytes(Bounds(root=self.folder), _STATE, msgspec.json.encode(self._state))

    # --- searching ---------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> NoteResults:
        """Search the notes with QMD.

        Raises:
            CommandError: QMD cannot be used, or gave no answer in time.
        """
        qmd, collections = self.settings.memory.qmd, self._collections()
        self._update_in_background()
        timeout = qmd.limits.timeout_ms
        deadline = time.monotonic() + timeout / 1000 if timeout else None
        self._wait_until_ready(collections, deadline)
        known = [collection for collection in collections if self._is_registered(collection)]
        limit = min(max_results or qmd.limits.max_results, qmd.limits.max_results)
        rows = self._query(known, query, limit=limit, deadline=deadline)
        try:
            hits, unknown = self._make_hits([pair for pair in rows if pair[1].score >= (min_score or 0)], limit)
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        warnings = [f"QMD has not indexed {place.path} yet" for place in collections if place not in known]
        if unknown:
            warnings.append(
                f"QMD returned files that are not among the notes; they were left out: {', '.join(unknown[:3])}"
            )
        return NoteResults(
            hits=tuple(hits),
            provider="qmd",
            model=qmd.search_mode,
            mode=_MODES[qmd.search_mode],
            warnings=tuple(warnings),
        )

    def _is_registered(self, collection: Collection) -> bool:
        return self._state.collections.items() >= _describe([collection]).items()

    def _wait_until_ready(self, collections: list[Collection], deadline: float | None) -> None:
        """Wait for the first update.

        Raises:
            CommandError: It is not done yet, or the last update failed.
        """
        if not self.failure and not (self._state.updated and all(map(self._is_registered, collections))):
            self.wait(_seconds_left(deadline))
        if self.failure:
            raise CommandError(self.failure)
        if not self._state.updated:
            raise CommandError("QMD is still reading the notes for the first time")

    def _query(
        self, collections: list[Collection], query: str, *, limit: int, deadline: float | None
    ) -> list[tuple[Collection, Row]]:
        """Query each collection; older versions of QMD take only one at a time."""
        mode = self.settings.memory.qmd.search_mode
        # One line of plain words that cannot be taken for an option.
        text = head(" ".join(query.replace("\0", " ").split()).lstrip("- "), MAX_QUERY_CHARS)
        words = text.encode("utf-8", "replace").decode()
        rows: list[tuple[Collection, Row]] = []
        for collection in collections if words else ():
            arguments = (mode, words, "--json", "-n", str(limit), "-c", collection.name)
            try:
                output = self._run(*arguments, seconds=_seconds_left(deadline))
                rows += ((collection, row) for row in parse_rows(output))
            except CommandError as error:
                if "ollection not found" in str(error):  # the index was deleted: start again
                    self._state.collections, self._state.updated, self._tried = {}, 0, 0
                raise
        return rows

    def _make_hits(self, rows: Iterable[tuple[Collection, Row]], limit: int) -> tuple[list[NoteHit], list[str]]:
        """Return the best rows as hits, and the names of files that are not in their collection."""
        limits = self.settings.memory.qmd.limits
        hits: list[NoteHit] = []
        unknown: list[str] = []
        room = limits.max_injected_chars
        for collection, row in sorted(rows, key=lambda pair: -pair[1].score):
            if len(hits) == limit or room <= 0:
                break
            hit = self._make_hit(collection, row, room=min(limits.max_snippet_chars, room))
            if hit is None:
                unknown.append(row.file)
                continue
            hits.append(hit)
            room -= len(hit.snippet)
        return hits, unknown

    def _make_hit(self, collection: Collection, row: Row, *, room: int) -> NoteHit | None:
        snippet = row.snippet or ""
        position = _POSITION.match(snippet)
        text = snippet[position.end() :] if position else snippet
        near = int(position[1]) if position else row.line or 0
        places = [(file, *_find_lines(file, head(text, room), near=near)) for file in collection.find(row.file)]
        if not places:
            return None
        file, start, end, _ = max(places, key=lambda place: place[3])
        root = self.root.resolve()
        path = (file.relative_to(root) if file.is_relative_to(root) else file).as_posix()
        if collection.kind == "sessions" and self.sessions is not None:
            name = file.name.removesuffix(".md")
            path, (start, end) = f"sessions/{name}", _session_lines(self.sessions / name, start, end)
        shown = head(redact(text) if self.settings.archive.redaction else text, room)
        score = round(min(1.0, max(0.0, row.score)), 4)
        return NoteHit(path=path, start=start, end=end, score=score, snippet=shown, kind=collection.kind)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _make_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    known = {name: value for name, value in environment(environ).items() if name not in _INDEX_VARIABLES}
    own = {"XDG_CONFIG_HOME": os.fspath(folder / "config"), "XDG_CACHE_HOME": os.fspath(folder / "cache")}
    return known | own | {"NO_COLOR": "1"}


def _link_models(environ: Mapping[str, str], folder: Path) -> None:
    """Let QMD use the models that the user has already downloaded."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - the one that never raises
    theirs, ours = Path(cache, "qmd", "models"), folder / "cache" / "qmd" / "models"
    if theirs.is_dir() and not ours.is_symlink() and not ours.exists():
        ours.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours.symlink_to(theirs)


def _load_state(folder: Path) -> State:
    """Load the state; without one, QMD registers everything again and all exports are written again."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        exports = folder / _EXPORTS
        names = {file.name.removesuffix(".md"): (0, 0) for file in exports.glob("*.md")}
        return State(exports=os.fspath(exports), exported=names)


# --- collections -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A folder that QMD indexes, and a mask for its files."""

    name: str
    path: Path
    mask: str
    kind: Kind = "memory"

    def contains(self, file: Path) -> bool:
        """Whether a resolved file belongs to the collection."""
        base = self.path.resolve()
        if "/" not in self.mask:
            return file.parent == base and fnmatchcase(file.name, self.mask)
        masks = (mask.rpartition("/")[2] for mask in _expand_braces(self.mask))
        return file.is_relative_to(base) and any(fnmatchcase(file.name, mask) for mask in masks)

    def find(self, name: str) -> list[Path]:
        """Find the files that a name in an answer may mean, the likeliest first; none outside of the collection.

        QMD names a file `qmd://collection/path`, and some versions write that path in lower case with hyphens.
        """
        path = name.removeprefix("qmd://").partition("?index=")[0].removeprefix(f"{self.name}/")
        try:
            exact = locate(Bounds(root=self.path), path).path
        except InputError:
            return []
        if exact.is_file() and self.contains(exact):
            return [exact]
        return [file for file in self._find_similar(_path_key(path)) if self.contains(file)]

    def _find_similar(self, key: str) -> Iterator[Path]:
        base = self.path.resolve()
        for place, folders, names in os.walk(base):
            inside = folders if "/" in self.mask else []
            folders[:] = sorted(name for name in inside if not name.startswith(".") and name != "node_modules")
            for file in (Path(place, name) for name in sorted(names)):
                if _path_key(os.fspath(file.relative_to(base))) == key and not file.is_symlink():
                    yield file


def _all_collections(root: Path, qmd: QmdSettings, *, exports: Path | None) -> list[Collection]:
    """List the collections of the settings that exist; no folder twice with the same mask."""
    collections = [*_default_collections(root)] if qmd.include_default_memory else []
    collections += custom_collections(root, qmd)
    if exports is not None:
        collections.append(Collection(name="sessions", path=exports, mask=_ALL, kind="sessions"))
    unique: dict[tuple[Path, str], Collection] = {}
    for each in collections:
        if each.path.is_dir() or each.kind == "sessions":  # the export folder is created with the first export
            unique.setdefault((each.path.resolve(), each.mask), each)
    return list(unique.values())


def _default_collections(root: Path) -> Iterator[Collection]:
    yield Collection(name="memory-root", path=root, mask="MEMORY.md")
    lower = root / "memory.md"
    if lower.is_file() and not ((root / "MEMORY.md").exists() and lower.samefile(root / "MEMORY.md")):
        yield Collection(name="memory-alt", path=root, mask="memory.md")
    yield Collection(name="memory-dir", path=root / "memory", mask=_ALL)


def custom_collections(root: Path, qmd: QmdSettings) -> list[Collection]:
    """Return the collections of `memory.qmd.paths`."""
    return [_custom_collection(root, number, place) for number, place in enumerate(qmd.paths, start=1)]


def _custom_collection(root: Path, number: int, place: QmdPath) -> Collection:
    (path,) = expand_paths(root, [place.path])
    words = _UNSAFE.sub("-", (place.name or "").lower()).strip("-")
    name = f"custom-{number}-{words}" if words else f"custom-{number}"
    if path.is_file():
        return Collection(name=name, path=path.parent, mask=path.name)
    return Collection(name=name, path=path, mask=place.pattern or _ALL)


def _describe(collections: list[Collection]) -> dict[str, tuple[str, str]]:
    return {each.name: (os.fspath(each.path), each.mask) for each in collections}


def _expand_braces(mask: str) -> list[str]:
    braces = _BRACES.search(mask)
    if braces is None:
        return [mask]
    before, after = mask[: braces.start()], mask[braces.end() :]
    return [plain for part in braces[1].split(",") for plain in _expand_braces(f"{before}{part}{after}")]


def _path_key(path: str) -> str:
    """Return what all spellings of a path have in common."""
    return "".join(character for character in path.casefold() if character.isalnum())


# --- answers -----------------------------------------------------------------------------


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an answer."""

    file: str
    score: float
    snippet: str | None = None
    line: int | None = None


def parse_rows(output: str) -> list[Row]:
    """Parse the rows of an answer; empty if it says that there are none.

    Raises:
        CommandError: It is neither.
    """
    start = 0 if output.lstrip().startswith("[") else output.find("\n[") + 1
    try:
        return msgspec.json.decode(output[start:].encode("utf-8", "replace"), type=list[Row])
    except msgspec.DecodeError as error:
        if _NO_RESULTS in output.lower():
            return []
        raise CommandError(f"the answer is not valid JSON: {error}") from None


def _find_lines(file: Path, text: str, *, near: int) -> tuple[int, int, bool]:
    """Find the lines of a file that contain a snippet, and whether they do; otherwise all lines."""
    with file.open("rb") as opened:
        lines = [line.strip() for line in opened.read(MAX_NOTE_BYTES).decode("utf-8", "replace").splitlines()]
    wanted = [line.strip() for line in text.strip().splitlines()] or [""]
    start = wanted[0].rstrip(".…") if len(wanted) == 1 else ""  # a single line may be cut off
    same = [
        number
        for number, line in enumerate(lines, start=1)
        if wanted[0] and (line == wanted[0] or (start and line.startswith(start)))
    ]
    if not same:
        return 1, max(1, len(lines)), False
    first = min(same, key=lambda number: abs(number - near))
    return first, min(len(lines), first + len(wanted) - 1), True


# --- exported sessions -------------------------------------------------------------------

_HEADING_LINES: Final = 2
"""Lines before the first message of an export."""


def export_sessions(
    sessions: Path, *, folder: Path, before: Mapping[str, tuple[int, int]], since: int | None
) -> Exports:
    """Export sessions as Markdown for QMD, with secrets masked, and return all exports.

    Sessions that have changed since `before` are written again. Exports of sessions that are gone, or were last changed
    before `since` (Unix nanoseconds), are deleted. Other files in the folder are not touched.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sources = {Path(source.name).name: source for source in find_sessions(sessions)}
    kept = {name: source for name, source in sources.items() if since is None or source.mtime >= since}
    _remove_exports(folder, before.keys() - kept.keys())
    for name, source in kept.items():
        if before.get(name) != (source.mtime, source.size) or not (folder / f"{name}.md").is_file():
            messages = "\n\n".join(text for _, text in read_messages(source.path, mask=True))
            data = f"# Session {name}\n\n{messages}\n".encode("utf-8", "replace")
            write_bytes(Bounds(root=folder), f"{name}.md", data).chmod(0o600)
    return {name: (source.mtime, source.size) for name, source in kept.items()}


def forget_sessions(folder: Path, names: Sequence[str]) -> None:
    """Delete the exports of sessions, and QMD's index, which is built again with the next update."""
    if not folder.exists():
        return
    state = _load_state(folder)
    _remove_exports(Path(state.exports), names)
    for file in (folder / "cache" / "qmd").glob("*.sqlite*"):
        file.unlink(missing_ok=True)
    kept = {name: stamp for name, stamp in state.exported.items() if name not in names}
    write_bytes(Bounds(root=folder), _STATE, msgspec.json.encode(State(exports=state.exports, exported=kept)))


def _remove_exports(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / f"{Path(name).name}.md").unlink(missing_ok=True)


def _session_lines(file: Path, start: int, end: int) -> tuple[int, int]:
    """Convert lines of an export to lines of its session."""
    numbers = [number for number, _ in read_messages(file, mask=False)] or [1]
    first, last = (min(max(0, (line - _HEADING_LINES - 1) // 2), len(numbers) - 1) for line in (start, end))
    return numbers[first], numbers[last]
