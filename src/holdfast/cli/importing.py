"""`holdfast import`: archive transcripts of known agents, exports, and memory-context folders."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast import transcripts
from holdfast.cli.opening import no_transcript, open_memory, scope_of
from holdfast.cli.output import echo, emit_json
from holdfast.errors import InputError, MissingExtraError
from holdfast.memory import transfer
from holdfast.memory.learning_state import LearningState
from holdfast.memory.memory import Memory
from holdfast.store.base import Scope
from holdfast.store.opening import is_folder
from holdfast.text import plural

_EMBED_BATCH: Final = 1024
"""Passages that are embedded until the progress is shown again."""
_MAX_LISTED: Final = 3
"""The maximum number of skipped files that are listed; --json lists all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is imported.

    Attributes:
        paths: The files and folders.
        format: That of the sessions; None if each is recognised.
        whose: The options that name the scope of the sessions.
        vectors: Whether what was imported is embedded.
    """

    paths: tuple[Path, ...]
    format: str | None
    whose: Mapping[str, Any]
    vectors: bool


@dataclass(slots=True)
class _Result:
    """The result of an import so far.

    Attributes:
        sessions: Transcripts that were read.
        messages: The messages in them.
        new: Messages that were not archived before, of transcripts and exports.
        new_facts: Facts of exports that were not known before.
        rows: Messages and versions of facts in exports, as files and as folders.
        exports: How many these are.
        unread: Sessions in memory that were not read for facts.
    """

    sessions: int = 0
    messages: int = 0
    new: int = 0
    new_facts: int = 0
    embedded: int = 0
    stripped: int = 0
    rows: int = 0
    exports: int = 0
    problems: list[str] = field(default_factory=list)
    unread: int = 0
    warnings: tuple[str, ...] = ()
    empty: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seen: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def print(self) -> None:
        for problem in self.problems:
            echo(problem, err=True)
        skipped = [file for file in self.skipped if file not in self.empty]  # those are named by an error
        if skipped:
            more = f" and {len(skipped) - _MAX_LISTED:,} more" if len(skipped) > _MAX_LISTED else ""
            names = ", ".join(skipped[:_MAX_LISTED])
            echo(f"{plural(len(skipped), 'file')} without a session of a known agent: {names}{more}", err=True)
        said = f"{plural(self.messages, 'message')} of {plural(self.sessions, 'session')}"
        if self.exports:
            rows = f"{plural(self.rows, 'row')} of {plural(self.exports, 'export')} (messages and versions of facts)"
            read = f"{said} and {rows}" if self.sessions else rows
            echo(f"{read}: {plural(self.new, 'new message')} and {plural(self.new_facts, 'new fact')}.")
        elif self.sessions or not self.empty:
            echo(f"{said}, {self.new:,} of them new.")
        if self.stripped:
            echo(f"Recalled text was removed from {plural(self.stripped, 'message')}.")
        if self.unread and self.sessions:  # an export has the facts of its sessions
            echo(f"{LearningState(unread=self.unread).describe_unread()}.")

    def find_changed(self, paths: Iterable[Path], *, format: str | None) -> Iterator[transcripts.SessionRef]:
        """Find the sessions that were not seen yet, or not in their present size."""
        for path in paths:
            if format is None:
                refs = list(self._find(path))
            else:
                refs = [transcripts.describe(path, format=format)]
            if not refs:
                self.empty.append(str(path))
            for ref in refs:
                if self.seen.get(ref.path) != (ref.size, ref.modified):
                    self.seen[ref.path] = (ref.size, ref.modified)
                    yield ref

    def _find(self, path: Path) -> Iterator[transcripts.SessionRef]:
        return transcripts.sessions(
            path,
            on_problem=lambda problem: self.problems.append(problem.what),
            on_skipped=lambda file: self.skipped.append(str(file)),
        )

    def import_session(
        self, memory: Memory, ref: transcripts.SessionRef, *, whose: Mapping[str, Any], stored: Collection[Scope]
    ) -> None:
        """Archive one session; what cannot be read is added to the problems."""
        try:
            transcript = transcripts.read(ref.path, format=ref.format)
            scope, _ = scope_of(**{**whose, "project": "", "session": whose["session"] or transcript.session})
            if whose["project"] is not None:
                scope = replace(scope, project=whose["project"])
            elif scope not in stored:  # a session that an earlier version stored without a project stays there
                scope = replace(scope, project=transcript.cwd or "")
            archived = memory.ingest(transcript.messages, scope=scope)
            if transcript.title and all(archived):  # the title may repeat a message that was forgotten
                memory.set_title(transcript.title, scope=scope)
            memory.set_host(transcript.host, scope=scope)
            self.messages += len(archived)
            self.stripped += len(archived.stripped)
            self.sessions += 1
            if not transcript.messages:
                self.problems.append(f"{ref.path}: no message in {len(transcript.entries):,} records ({ref.format})")
            self.problems += [f"{ref.path}:{problem.line}: {problem.what}" for problem in transcript.problems]
        except (InputError, MissingExtraError) as error:
            self.problems.append(str(error))

    def watch(self, memory: Memory, request: _Request, *, every: float) -> None:
        """Archive what is added, until Ctrl-C. Between two checks only the size and time of each session are kept."""
        echo("Watching. Press Ctrl-C to stop.", err=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(every)
                added = _Result(seen=self.seen)
                _import_all(memory, request, added)
                if added.new:
                    echo(f"{plural(added.new, 'new message')} of {plural(added.sessions, 'session')}.")
                self.messages += added.new
                self.new += added.new


def import_paths(
    *,
    paths: tuple[Path, ...],
    discover: bool,
    vectors: bool,
    watch: bool,
    every: float,
    format_: str | None,
    home: Path | None,
    as_json: bool,
    **whose: Any,
) -> None:
    """Archive what is at the paths, and print how much it was."""
    if discover:  # sessions of agents on this machine, and the memory of OpenClaw's plugin
        plugin = Path(os.environ.get("OPENCLAW_STATE_DIR") or Path.home() / ".openclaw") / "memory" / "context"
        places = transcripts.default_places(os.environ, Path.home())
        paths = (*paths, *(place.folder for place in places), *filter(is_folder, [plugin]))
    request = _Request(paths=paths, format=format_, whose=whose, vectors=vectors)
    result = _Result()
    with open_memory(home, create=True) as memory:
        _import_all(memory, request, result)
        result.unread = memory.stats().learning.unread
        if not as_json:
            result.print()
        if watch:
            result.watch(memory, request, every=every)
    if as_json:
        data = asdict(result)
        del data["seen"]
        emit_json(data)
    if result.empty and not discover:
        raise no_transcript(result.empty)


def _import_all(memory: Memory, request: _Request, result: _Result) -> None:
    """Archive what a request names, and add to the result."""
    from holdfast.cli.console import Progress  # noqa: PLC0415 - only this command draws one

    if not request.paths:
        result.problems.append(f"no known agent has sessions in {Path.home()}: name files or folders")
    before = memory.store.counts()
    exports: list[Path] = []
    folders: list[Path] = []
    transcript_paths: list[Path] = []
    for path in request.paths:
        if request.format is not None:
            transcript_paths.append(path)
        elif transfer.claims(path):
            exports.append(path)
        elif is_folder(path):
            folders.append(path)
        else:
            transcript_paths.append(path)
    with Progress() as progress:
        progress.describe("looking for sessions")
        refs = list(result.find_changed(transcript_paths, format=request.format))
        progress.set_total(sum(ref.size for ref in refs))
        for path in exports:
            progress.describe(f"reading {path.name}")
            result.rows += transfer.load_jsonl(memory.store, path)
            result.exports += 1
        progress.describe("archiving")
        stored = memory.store.sessions()
        for ref in refs:
            result.import_session(memory, ref, whose=request.whose, stored=stored)
            progress.advance(ref.size, f"archiving: {plural(result.messages, 'message')}")
        for path in folders:
            progress.describe(f"copying {path}")  # after the sessions, so that their messages are not stored twice
            owner, _ = scope_of(**{**request.whose, "session": ""})
            masked = memory.settings.archive.redaction
            count, problems = transfer.load_folder(memory.store, path, owner=owner, masked=masked)
            result.rows += count
            result.exports += 1
            result.problems += problems
        if request.vectors:
            progress.describe("embedding")
            while step := memory.embed(limit=_EMBED_BATCH, is_quick=True):
                result.embedded += step
                progress.describe(f"embedding: {plural(result.embedded, 'passage')}")
    after = memory.store.counts()
    result.new = after["messages"] - before["messages"]
    result.new_facts = after["facts"] - before["facts"]
    result.warnings = memory.choice.reasons
