"""QMD as the backend of a search over notes: an external command that is kept up to date in the background.

Every failure is a `CommandError`; the caller then searches our own index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Final, Self

import msgspec

from holdfast.calls import Deadline
from holdfast.errors import InputError
from holdfast.programs import find_program
from holdfast.redaction import redact
from holdfast.text import head
from holdfast_agent import note_files
from holdfast_agent.note_files import Kind, NoteHit, NoteResults, Source
from holdfast_agent.paths import Bounds, locate, write_bytes
from holdfast_agent.settings import ChatSettings, MemorySearch, QmdSettings
from holdfast_agent.shell import CommandError, environment, run_program

REGISTER_SECONDS: Final = 30.0
UPDATE_SECONDS: Final = 120.0
"""Time limits of background work; a search has the limit of the settings."""
MAX_QUERY_CHARS: Final = 2_000
HEADING_LINES: Final = 2
"""Lines before the first message of an exported session."""
_STATE: Final = "state.json"
_MODES: Final = {"search": "words", "vsearch": "vectors", "query": "hybrid"}
_INDEX_VARIABLES: Final = ("INDEX_PATH", "QMD_CONFIG_DIR")
"""Variables that would make QMD use another index than ours."""
_ALL: Final = "**/*.md"
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_POSITION: Final = re.compile(r"\A\s*@@ -(\d{1,9})(?:,\d+)? @@[^\n]*\n?")
"""How QMD begins a snippet: with the number of its first line."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = 86_400_000


class State(msgspec.Struct, kw_only=True):
    """The state of QMD's index: its collections, the exports and their folder, and the time of its last update.

    An export has the time and the size that its session had then.
    """

    collections: dict[str, tuple[str, str]] = {}
    exports: str = ""
    exported: dict[str, tuple[int, int]] = {}
    updated: int = 0
    embedded: int = 0

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the state; without one, QMD registers everything again and all exports are written again."""
        try:
            return msgspec.json.decode((folder / _STATE).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            exports = folder / "sessions"
            names = {file.name.removesuffix(".md"): (0, 0) for file in exports.glob("*.md")}
            return cls(exports=os.fspath(exports), exported=names)

    def save(self, folder: Path) -> None:
        """Save the state."""
        write_bytes(Bounds(root=folder), _STATE, msgspec.json.encode(self))

    def write_exports(self, sources: Sequence[Source]) -> None:
        """Write changed sessions as Markdown, with secrets masked, and delete the exports of others."""
        folder = Path(self.exports)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = {Path(source.name).name: source for source in sources}
        self.remove_exports(self.exported.keys() - kept.keys())
        for name, source in kept.items():
            is_unchanged = self.exported.get(name) == (source.mtime, source.size)
            if not is_unchanged or not (folder / f"{name}.md").is_file():
                messages = "\n\n".join(text for _, text in note_files.read_messages(source.path, mask=True))
                data = f"# Session {name}\n\n{messages}\n".encode("utf-8", "replace")
                write_bytes(Bounds(root=folder), f"{name}.md", data).chmod(0o600)
        self.exported = {name: (source.mtime, source.size) for name, source in kept.items()}

    def remove_exports(self, names: Iterable[str]) -> None:
        """Delete the exports of sessions."""
        for name in names:
            Path(self.exports, f"{Path(name).name}.md").unlink(missing_ok=True)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an answer."""

    file: str
    score: float
    snippet: str | None = None
    line: int | None = None


def missing_command(settings: MemorySearch, *, project: Path) -> str | None:
    """Return why QMD cannot be used although the settings name it; None if it can.

    The command is not looked up in the project.
    """
    command = settings.qmd.command
    if settings.backend != "qmd":
        return None
    if find_program(_expand(command), environ=os.environ, project=project) is not None:
        return None
    return f"there is no command {command!r}: install QMD, or set agent.memory_search.qmd.command"


def _expand(path: str) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - the one that never raises


@dataclass(slots=True)
class Qmd:
    """QMD over the notes of a workspace and past sessions. Threads may share it.

    Its index and settings for this agent are in `folder`. `failure` is why the last update failed.
    """

    root: Path
    settings: ChatSettings
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
        self._state = State.load(self.folder)

    @property
    def _qmd(self) -> QmdSettings:
        return self.settings.agent.memory_search.qmd

    def close(self) -> None:
        """Stop the background work."""
        self._closing.set()
        self.wait()

    def _run(self, *arguments: str, seconds: float | None) -> str:
        environ = environment(os.environ)
        for name in _INDEX_VARIABLES:
            environ.pop(name, None)
        environ["XDG_CONFIG_HOME"] = os.fspath(self.folder / "config")
        environ["XDG_CACHE_HOME"] = os.fspath(self.folder / "cache")
        environ["NO_COLOR"] = "1"
        return run_program(
            (_expand(self._qmd.command), *arguments),
            cwd=self.folder,
            project=self.root,
            environ=environ,
            seconds=seconds,
            cancel=self._closing,
        )

    # --- updating ----------------------------------------------------------------

    def start(self) -> None:
        """Update at the start of a session, if the settings ask for it."""
        if self._qmd.update.on_boot:
            self.poll(is_due=True)

    def poll(self, *, is_due: bool = False) -> None:
        """Update in the background if it is due."""
        update = self._qmd.update
        now = self.clock()
        with self._lock:
            is_running = not self.wait(0)
            if is_running or now - max(self._tried, self._state.updated) < update.debounce_ms:
                return
            is_old = now - self._state.updated >= update.interval // _MILLISECOND
            if is_due or is_old or self.failure or self._state.collections != self._list_places():
                self._tried = now
                self._worker = Thread(target=self._work, name="holdfast-qmd", daemon=True)
                self._worker.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the background work; return whether it is done."""
        worker = self._worker
        if worker is not None:
            worker.join(seconds)
        return worker is None or not worker.is_alive()

    def _work(self) -> None:
        failure = missing_command(self.settings.agent.memory_search, project=self.root) or ""
        try:
            if not failure:
                self._update(self.clock())
        except (CommandError, InputError, UnicodeError) as error:  # file names need not be valid text
            failure = str(error)
        except OSError as error:
            failure = f"{error.filename or self.folder}: {error.strerror}"
        self.failure = failure

    def _update(self, now: int) -> None:
        """Export sessions, register collections, update the index and embed, each if it is due."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        theirs = Path(os.environ.get("XDG_CACHE_HOME") or _expand("~/.cache"), "qmd", "models")
        ours = self.folder / "cache" / "qmd" / "models"
        if theirs.is_dir() and not ours.is_symlink() and not ours.exists():  # models that the user has downloaded
            ours.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            ours.symlink_to(theirs)
        self._export(now)
        self._register(self._list_places())
        self._run("update", seconds=UPDATE_SECONDS)
        self._state.updated = now
        self._state.save(self.folder)
        qmd = self._qmd
        if qmd.search_mode != "search" and now - self._state.embedded >= qmd.update.embed_interval // _MILLISECOND:
            self._run("embed", seconds=UPDATE_SECONDS)
            self._state.embedded = now
            self._state.save(self.folder)

    def _export(self, now: int) -> None:
        """Export sessions that are recent enough; exports that are no longer wanted are deleted."""
        state = self._state
        folder = self._export_folder()
        if state.exports and (folder is None or state.exports != os.fspath(folder)):
            state.remove_exports(state.exported)
            state.exports = ""
            state.exported = {}
        if folder is not None and self.sessions is not None:
            state.exports = os.fspath(folder)
            sources = note_files.find_sessions(self.sessions)
            days = self._qmd.sessions.retention_days
            if days:
                since = (now - days * _DAY) * 1_000_000  # in nanoseconds, as the times of files are
                sources = [source for source in sources if source.mtime >= since]
            state.write_exports(sources)
        state.save(self.folder)

    def _export_folder(self) -> Path | None:
        """Return the folder for exported sessions, if sessions are exported."""
        sessions = self._qmd.sessions
        if not sessions.enabled or self.sessions is None:
            return None
        return note_files.expand_paths(self.root, [sessions.export_dir or os.fspath(self.folder / "sessions")])[0]

    def _register(self, collections: dict[str, tuple[str, str]]) -> None:
        """Register the collections with QMD; those that are obsolete, have moved or may be left are removed first."""
        known = self._state.collections
        new = {name: place for name, place in collections.items() if known.get(name) != place}
        obsolete = [name for name in known if name not in collections]
        for name in (*obsolete, *new):
            try:
                self._run("collection", "remove", name, seconds=REGISTER_SECONDS)
            except CommandError as error:
                if "failed with status" not in str(error):  # QMD fails for a collection that it does not know
                    raise
            known.pop(name, None)
        for name, (path, mask) in new.items():
            self._run("collection", "add", path, "--name", name, "--mask", mask, seconds=REGISTER_SECONDS)
            known[name] = (path, mask)
        self._state.save(self.folder)

    def _list_places(self) -> dict[str, tuple[str, str]]:
        return {collection.name: collection.place for collection in self._collections()}

    def _collections(self) -> list[Collection]:
        """List the collections of the settings that exist; no folder twice with the same mask."""
        collections: list[Collection] = []
        if self._qmd.include_default_memory:
            collections += self._default_collections()
        collections += custom_collections(self.root, self._qmd)
        unique: dict[tuple[Path, str], Collection] = {}
        for collection in collections:
            if collection.path.is_dir():
                unique.setdefault((collection.path.resolve(), collection.mask), collection)
        existing = list(unique.values())
        exports = self._export_folder()
        if exports is not None:  # the folder is created with the first export
            existing.append(Collection(name="sessions", path=exports, mask=_ALL, kind="sessions"))
        return existing

    def _default_collections(self) -> Iterator[Collection]:
        upper = self.root / "MEMORY.md"
        lower = self.root / "memory.md"
        yield Collection(name="memory-root", path=self.root, mask=upper.name)
        # On a file system that ignores case both names are the same file.
        is_same_file = upper.exists() and lower.is_file() and lower.samefile(upper)
        if lower.is_file() and not is_same_file:
            yield Collection(name="memory-alt", path=self.root, mask=lower.name)
        yield Collection(name="memory-dir", path=self.root / "memory", mask=_ALL)

    # --- searching ---------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> NoteResults:
        """Search the notes with QMD; raises a `CommandError` if it cannot be used, or gave no answer in time."""
        limits = self._qmd.limits
        collections = self._collections()
        self.poll()
        deadline = Deadline.after(limits.timeout_ms / 1000 or None)
        known = self._wait_for(collections, deadline)
        limit = limits.max_results
        if max_results is not None:
            limit = min(limit, max_results)
        rows: list[tuple[Collection, Row]] = []
        for collection, row in self._query(known, query, limit, deadline):
            if min_score is None or row.score >= min_score:
                rows.append((collection, row))
        rows.sort(key=lambda pair: -pair[1].score)
        hits: list[NoteHit] = []
        unknown: list[str] = []
        room = limits.max_injected_chars
        for collection, row in rows:
            if len(hits) == limit or room <= 0:
                break
            hit = self._make_hit(collection, row, room=min(limits.max_snippet_chars, room))
            if hit is None:
                unknown.append(row.file)
            else:
                hits.append(hit)
                room -= len(hit.snippet)
        warnings = [f"QMD has not indexed {place.path} yet" for place in collections if place not in known]
        if unknown:
            left_out = "QMD returned files that are not among the notes; they were left out: "
            warnings.append(left_out + ", ".join(unknown[:3]))
        mode = self._qmd.search_mode
        return NoteResults(hits=tuple(hits), provider="qmd", model=mode, mode=_MODES[mode], warnings=tuple(warnings))

    def _wait_for(self, collections: list[Collection], deadline: Deadline) -> list[Collection]:
        """Wait for the first update, and return the collections that QMD has."""

        def find_known() -> list[Collection]:
            return [each for each in collections if self._state.collections.get(each.name) == each.place]

        if not self.failure and not (self._state.updated and find_known() == collections):
            self.wait(deadline.remaining)
        if self.failure or not self._state.updated:
            raise CommandError(self.failure or "QMD is still reading the notes for the first time")
        return find_known()

    def _query(
        self, collections: list[Collection], query: str, limit: int, deadline: Deadline
    ) -> Iterator[tuple[Collection, Row]]:
        """Query each collection; older versions of QMD take only one at a time."""
        # One line of plain words that cannot be read as an option.
        text = head(" ".join(query.replace("\0", " ").split()).lstrip("- "), MAX_QUERY_CHARS)
        words = text.encode("utf-8", "replace").decode()
        if not words:
            return
        for collection in collections:
            arguments = (words, "--json", "-n", str(limit), "-c", collection.name)
            try:
                output = self._run(self._qmd.search_mode, *arguments, seconds=deadline.remaining)
                rows = parse_rows(output)
            except CommandError as error:
                if "ollection not found" in str(error):  # the index was deleted: start again
                    self._state.collections = {}
                    self._state.updated = 0
                    self._tried = 0
                raise
            for row in rows:
                yield collection, row

    def _make_hit(self, collection: Collection, row: Row, *, room: int) -> NoteHit | None:
        """Make a hit of a row; None if it names no file of the collection."""
        file = collection.find(row.file)
        if file is None:
            return None
        text = row.snippet or ""
        near = row.line or 0
        position = _POSITION.match(text)
        if position is not None:
            near = int(position[1])
            text = text[position.end() :]
        start, end = _find_lines(file, head(text, room), near=near)
        root = self.root.resolve()
        path = file.as_posix()
        if file.is_relative_to(root):
            path = file.relative_to(root).as_posix()
        if collection.kind == "sessions" and self.sessions is not None:
            path = f"sessions/{file.name.removesuffix('.md')}"
            start, end = _session_lines(self.sessions / Path(path).name, start, end)
        if self.settings.archive.redaction:
            text = redact(text)
        score = round(min(1.0, max(0.0, row.score)), 4)
        return NoteHit(path=path, start=start, end=end, score=score, snippet=head(text, room), kind=collection.kind)


def _session_lines(file: Path, start: int, end: int) -> tuple[int, int]:
    """Convert lines of an export to lines of its session."""
    numbers = [number for number, _ in note_files.read_messages(file, mask=False)]
    if not numbers:
        return 1, 1

    def convert(line: int) -> int:
        # A blank line follows each message of an export.
        index = max(0, (line - HEADING_LINES - 1) // 2)
        return numbers[min(index, len(numbers) - 1)]

    return convert(start), convert(end)


def parse_rows(output: str) -> list[Row]:
    """Parse the rows of an answer; empty if there are none."""
    start = 0 if output.lstrip().startswith("[") else output.find("\n[") + 1
    try:
        return msgspec.json.decode(output[start:].encode("utf-8", "replace"), type=list[Row])
    except msgspec.DecodeError as error:
        if "no results found" in output.lower():
            return []
        raise CommandError(f"the answer is not valid JSON: {error}") from None


def _find_lines(file: Path, text: str, *, near: int) -> tuple[int, int]:
    """Find the lines of a file that contain a snippet, whose first line may be cut off; otherwise return all lines."""
    lines: list[str] = []
    with suppress(OSError), file.open("rb") as note:
        lines = note.read(note_files.MAX_NOTE_BYTES).decode("utf-8", "replace").splitlines()
    everything = (1, max(1, len(lines)))
    wanted = text.strip().splitlines()
    if not wanted:
        return everything
    first = wanted[0].rstrip().rstrip(".…")
    if not first:
        return everything
    same = [number for number, line in enumerate(lines, start=1) if line.strip().startswith(first)]
    if not same:
        return everything
    start = min(same, key=lambda number: abs(number - near))
    return start, min(len(lines), start + len(wanted) - 1)


# --- collections -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A folder that QMD indexes, and a mask for its files."""

    name: str
    path: Path
    mask: str
    kind: Kind = "memory"

    @property
    def place(self) -> tuple[str, str]:
        """Its path and mask, as QMD registers it."""
        return os.fspath(self.path), self.mask

    def contains(self, file: Path) -> bool:
        """Whether a resolved file belongs to the collection."""
        base = self.path.resolve()
        if "/" not in self.mask:
            return file.parent == base and fnmatchcase(file.name, self.mask)
        if not file.is_relative_to(base):
            return False
        for mask in _expand_braces(self.mask):
            _, _, name = mask.rpartition("/")
            if fnmatchcase(file.name, name):
                return True
        return False

    def find(self, name: str) -> Path | None:
        """Find the file that a name in an answer means; none outside of the collection.

        QMD names a file `qmd://collection/path`, and some versions write that path in lower case with hyphens.
        """
        path = name.removeprefix("qmd://").partition("?index=")[0].removeprefix(f"{self.name}/")
        try:
            exact = locate(Bounds(root=self.path), path).path
        except InputError:
            return None
        if exact.is_file() and self.contains(exact):
            return exact
        base = self.path.resolve()
        for file in note_files.walk_files(base):
            is_similar = _path_key(os.fspath(file.relative_to(base))) == _path_key(path)
            if is_similar and not file.is_symlink() and self.contains(file):
                return file
        return None


def custom_collections(root: Path, qmd: QmdSettings) -> list[Collection]:
    """Return the collections of `agent.memory_search.qmd.paths`."""
    collections: list[Collection] = []
    for number, place in enumerate(qmd.paths, start=1):
        (path,) = note_files.expand_paths(root, [place.path])
        name = f"custom-{number}-{_UNSAFE.sub('-', (place.name or '').lower())}".rstrip("-")
        if path.is_file():
            collections.append(Collection(name=name, path=path.parent, mask=path.name))
        else:
            collections.append(Collection(name=name, path=path, mask=place.pattern or _ALL))
    return collections


def _expand_braces(mask: str) -> list[str]:
    """Return the masks that a mask such as `**/*.{md,txt}` stands for."""
    braces = _BRACES.search(mask)
    if braces is None:
        return [mask]
    before = mask[: braces.start()]
    after = mask[braces.end() :]
    masks: list[str] = []
    for part in braces[1].split(","):
        masks += _expand_braces(f"{before}{part}{after}")
    return masks


def _path_key(path: str) -> str:
    """Return what all spellings of a path have in common."""
    return "".join(character for character in path.casefold() if character.isalnum())


# --- state and exports -------------------------------------------------------------------


def forget_sessions(folder: Path, names: Sequence[str]) -> None:
    """Delete the exports of sessions, and QMD's index, which is built again with the next update."""
    if not folder.exists():
        return
    state = State.load(folder)
    state.remove_exports(names)
    for file in (folder / "cache" / "qmd").glob("*.sqlite*"):
        file.unlink(missing_ok=True)
    kept = {name: stamp for name, stamp in state.exported.items() if name not in names}
    State(exports=state.exports, exported=kept).save(folder)
