"""QMD as the index of notes: the command is kept up to date behind the scenes, and asked in a search.

Whatever goes wrong is a CommandError that says why; whoever searches then has our own index to fall back on.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import RLock, Thread
from typing import Final

import msgspec

from holdfast.agent.notes.answer import Reader, Row, read_rows
from holdfast.agent.notes.collection import Collection, collections
from holdfast.agent.notes.command import Command, CommandError
from holdfast.agent.notes.exports import Exported, export_sessions, found_exports, oldest, remove_exports
from holdfast.agent.notes.found import Found
from holdfast.agent.notes.sources import extra_roots
from holdfast.agent.paths import Bounds, write_bytes
from holdfast.agent.shell import environment
from holdfast.errors import InputError
from holdfast.settings import Settings
from holdfast.text import head

__all__ = ["CommandError", "Qmd", "forget_sessions", "missing"]

REGISTERING: Final = 30.0
UPDATING: Final = 120.0
"""Seconds for what is done behind the scenes; a search has the settings' own limit."""
LONGEST: Final = 2_000
"""Characters of a question that are asked."""
_STATE: Final = "state.json"
_EXPORTS: Final = "sessions"
_MODES: Final = {"search": "words", "vsearch": "vectors", "query": "hybrid"}
_OTHERS: Final = ("INDEX_PATH", "QMD_CONFIG_DIR")
"""What in the environment would lead QMD to another index than ours."""


class State(msgspec.Struct, kw_only=True):
    """What QMD knows by now: its collections, which exports lie where, and when it last looked, in milliseconds."""

    collections: dict[str, tuple[str, str]] = {}
    exports: str = ""
    exported: Exported = {}
    updated: int = 0
    embedded: int = 0


def missing(settings: Settings) -> str | None:
    """Why QMD cannot be asked although the settings name it, as far as that can be told at once."""
    command = settings.memory.qmd.command
    if settings.memory.backend != "qmd" or shutil.which(_program(command)) is not None:
        return None
    return f"there is no command {command!r}: install QMD, or set memory.qmd.command"


def _program(command: str) -> str:
    return os.path.expanduser(command)  # noqa: PTH111 - the one that never raises


@dataclass(slots=True)
class Qmd:
    """QMD over the notes of a workspace. Threads may share it.

    Attributes:
        root: The workspace.
        settings: The settings in force.
        folder: Where QMD keeps its index and settings for this agent.
        sessions: The folder of past sessions.
        clock: The time in Unix milliseconds.
        failure: Why the last look at the notes came to nothing; empty where it did not.
    """

    root: Path
    settings: Settings
    folder: Path
    sessions: Path | None
    clock: Callable[[], int]
    failure: str = ""
    command: Command = field(init=False)
    _state: State = field(init=False)
    _tried: int = 0
    _worker: Thread | None = None
    _lock: RLock = field(default_factory=RLock)

    def __post_init__(self) -> None:
        program = _program(self.settings.memory.qmd.command)
        self.command = Command(program, self.folder, _environment(os.environ, self.folder))
        self._state = _read(self.folder)

    def close(self) -> None:
        """Break off what is done behind the scenes."""
        self.command.stop()
        self.wait()

    # --- looking at the notes --------------------------------------------------

    def start(self) -> None:
        """To be called at the start of a session: looks at the notes, if the settings say so."""
        if self.settings.memory.qmd.update.on_boot:
            self._look(boot=True)

    def poll(self) -> None:
        """To be called now and then: looks at the notes when that is due. Nobody has to wait for it."""
        self._look()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing is done behind the scenes; False where that takes longer."""
        worker = self._worker
        if worker is None:
            return True
        worker.join(seconds)
        return not worker.is_alive()

    def _look(self, *, boot: bool = False) -> None:
        with self._lock:
            if (self._worker is None or not self._worker.is_alive()) and self._is_due(boot=boot):
                self._tried = self.clock()
                self._worker = Thread(target=self._work, name="holdfast-qmd", daemon=True)
                self._worker.start()

    def _is_due(self, *, boot: bool) -> bool:
        update, now = self.settings.memory.qmd.update, self.clock()
        if now - max(self._tried, self._state.updated) < update.debounce_ms:
            return False
        changed = self._state.collections != _record(self._wanted())
        return boot or changed or bool(self.failure) or now - self._state.updated >= _milliseconds(update.interval)

    def _wanted(self) -> list[Collection]:
        return collections(self.root, self.settings.memory.qmd, exports=self._exports())

    def _exports(self) -> Path | None:
        """Where sessions are exported to, if they are."""
        asked = self.settings.memory.qmd.sessions
        if not asked.enabled or self.sessions is None:
            return None
        return self.folder / _EXPORTS if asked.export_dir is None else extra_roots(self.root, [asked.export_dir])[0]

    def _work(self) -> None:
        try:
            self._keep_up(self.clock())
            self.failure = ""
        except (CommandError, InputError, UnicodeError) as error:  # a disk takes names that are no text
            self.failure = str(error)
        except OSError as error:
            self.failure = f"{error.filename or self.folder}: {error.strerror}"

    def _keep_up(self, now: int) -> None:
        """Export, register, update and embed, each as far as it is asked for."""
        asked = self.settings.memory.qmd
        if (reason := missing(self.settings)) is not None:
            raise CommandError(reason)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _share_models(os.environ, self.folder)
        self._export(now)
        self._register(_record(self._wanted()))
        self.command.run("update", seconds=UPDATING)
        self._state.updated = now
        self._save()
        due = now - self._state.embedded >= _milliseconds(asked.update.embed_interval)
        if asked.search_mode != "search" and due:
            self.command.run("embed", seconds=UPDATING)
            self._state.embedded = now
            self._save()

    def _export(self, now: int) -> None:
        to, known = self._exports(), self._state
        if known.exports and (to is None or known.exports != os.fspath(to)):
            remove_exports(Path(known.exports), known.exported)
            known.exports, known.exported = "", {}
        if to is not None and self.sessions is not None:
            since = oldest(now, self.settings.memory.qmd.sessions.retention_days)
            known.exported = export_sessions(self.sessions, to=to, before=known.exported, since=since)
            known.exports = os.fspath(to)
        self._save()

    def _register(self, wanted: Mapping[str, tuple[str, str]]) -> None:
        """Tell QMD what to index; what is not wanted any more, or lies elsewhere by now, goes first."""
        known = self._state.collections
        for name in [name for name, place in known.items() if wanted.get(name) != place]:
            self._forget(name)
            del known[name]
        for name, (path, mask) in wanted.items():
            if name not in known:
                self._forget(name)  # of a state that was lost
                self.command.run("collection", "add", path, "--name", name, "--mask", mask, seconds=REGISTERING)
                known[name] = (path, mask)
        self._save()

    def _forget(self, name: str) -> None:
        try:
            self.command.run("collection", "remove", name, seconds=REGISTERING)
        except CommandError as error:
            if "failed with status" not in str(error):  # one that it does not know cannot be removed
                raise

    def _save(self) -> None:
        write_bytes(Bounds(root=self.folder), _STATE, msgspec.json.encode(self._state))

    # --- searching -------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> Found:
        """The stretches that QMD finds.

        Raises:
            CommandError: QMD cannot be asked, or gave no answer in time.
        """
        asked, wanted = self.settings.memory.qmd, self._wanted()
        self._look()
        until = _Deadline(asked.limits.timeout_ms)
        self._ready(wanted, until=until)
        known = [place for place in wanted if self._knows(place)]
        limit = min(max_results or asked.limits.max_results, asked.limits.max_results)
        rows = self._asked(known, query, limit=limit, until=until)
        try:
            hits, strange = self._reader(limit).hits(pair for pair in rows if pair[1].score >= (min_score or 0))
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        unseen = [f"QMD has not looked at {place.path} yet" for place in wanted if place not in known]
        left_out = f"QMD named files that are none of its notes, and they were left out: {', '.join(strange[:3])}"
        return Found(
            hits=tuple(hits),
            provider="qmd",
            model=asked.search_mode,
            mode=_MODES[asked.search_mode],
            warnings=(*unseen, *((left_out,) if strange else ())),
        )

    def _knows(self, place: Collection) -> bool:
        return self._state.collections.items() >= _record([place]).items()

    def _reader(self, limit: int) -> Reader:
        limits = self.settings.memory.qmd.limits
        return Reader(
            root=self.root,
            sessions=self.sessions,
            mask=self.settings.archive.redaction,
            results=limit,
            snippet=limits.max_snippet_chars,
            together=limits.max_injected_chars,
        )

    def _ready(self, wanted: list[Collection], *, until: _Deadline) -> None:
        """Nothing can be asked before QMD has seen the notes once, nor after that has failed."""
        if not self.failure and not (self._state.updated and all(map(self._knows, wanted))):
            self.wait(until.left())
        if self.failure:
            raise CommandError(self.failure)
        if not self._state.updated:
            raise CommandError("QMD still reads the notes for the first time")

    def _asked(
        self, places: list[Collection], query: str, *, limit: int, until: _Deadline
    ) -> list[tuple[Collection, Row]]:
        """What each collection has to say; older versions of QMD take one at a time."""
        mode, words = self.settings.memory.qmd.search_mode, _question(query)
        rows: list[tuple[Collection, Row]] = []
        for place in places if words else ():
            arguments = (mode, words, "--json", "-n", str(limit), "-c", place.name)
            try:
                rows += ((place, row) for row in read_rows(self.command.run(*arguments, seconds=until.left())))
            except CommandError as error:
                if "ollection not found" in str(error):  # its index was deleted: begin again
                    self._state.collections, self._state.updated, self._tried = {}, 0, 0
                raise
        return rows


@dataclass(slots=True)
class _Deadline:
    """The end of a search; 0 milliseconds are no limit."""

    milliseconds: int
    begun: float = field(default_factory=time.monotonic)

    def left(self) -> float | None:
        """Seconds that are left."""
        return max(0.0, self.begun + self.milliseconds / 1000 - time.monotonic()) if self.milliseconds else None


def _question(query: str) -> str:
    """A question as one line of plain words that cannot be taken for an option."""
    words = " ".join(query.replace("\0", " ").split()).lstrip("- ")
    return head(words, LONGEST).encode("utf-8", "replace").decode()


def _record(wanted: list[Collection]) -> dict[str, tuple[str, str]]:
    return {each.name: (os.fspath(each.path), each.mask) for each in wanted}


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    known = {name: value for name, value in environment(environ).items() if name not in _OTHERS}
    own = {"XDG_CONFIG_HOME": os.fspath(folder / "config"), "XDG_CACHE_HOME": os.fspath(folder / "cache")}
    return known | own | {"NO_COLOR": "1"}


def _share_models(environ: Mapping[str, str], folder: Path) -> None:
    """Let QMD use the models that the user has loaded already: they are large, and the same for every index."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - the one that never raises
    theirs, ours = Path(cache, "qmd", "models"), folder / "cache" / "qmd" / "models"
    if theirs.is_dir() and not ours.is_symlink() and not ours.exists():
        ours.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours.symlink_to(theirs)


def forget_sessions(folder: Path, names: Sequence[str]) -> None:
    """Delete the exports of sessions, and QMD's index of them; it is made anew when QMD next looks."""
    if not folder.exists():
        return
    state = _read(folder)
    remove_exports(Path(state.exports), names)
    for file in (folder / "cache" / "qmd").glob("*.sqlite*"):
        file.unlink(missing_ok=True)
    kept = State(exports=state.exports, exported={name: at for name, at in state.exported.items() if name not in names})
    write_bytes(Bounds(root=folder), _STATE, msgspec.json.encode(kept))


def _read(folder: Path) -> State:
    """The state that was kept; where it cannot be read, QMD is told everything again, and all exports are old."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        exports = folder / _EXPORTS
        return State(exports=os.fspath(exports), exported=found_exports(exports))
