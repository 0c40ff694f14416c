"""`holdfast import`: transcripts of any known agent, exports of our own, and memory-context folders."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from holdfast import transcripts
from holdfast.cli.opening import no_transcript, open_memory, opens_memory
from holdfast.cli.output import as_json, echo, emit_json
from holdfast.errors import InputError, MissingExtraError
from holdfast.memory import folder, transfer
from holdfast.memory.memory import Memory
from holdfast.store.base import Scope

__all__ = ["import_"]


@dataclass(slots=True)
class _Imported:
    """How far an import has come."""

    sessions: int = 0
    messages: int = 0
    new: int = 0
    embedded: int = 0
    stripped: int = 0
    problems: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    empty: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seen: dict[Path, tuple[int, int]] = field(default_factory=dict)


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="The sessions of every known agent on this machine.")
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed what was imported at once.")
@click.option("--watch", is_flag=True, help="Go on, and archive what the agents on this machine (or PATHS) add.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="With --watch: seconds between looks.",
)
@opens_memory
@as_json
def import_(
    *,
    paths: tuple[Path, ...],
    discover: bool,
    vectors: bool,
    watch: bool,
    every: float,
    home: Path | None,
    as_json: bool,
    **whose: Any,
) -> None:
    """Archive what is at PATHS: transcripts of any known agent, an export, a memory-context folder.

    Doing it again changes nothing.
    """
    discover = discover or (watch and not paths)
    if discover:
        paths = (*paths, *_places(os.environ, Path.home()))
    elif not paths:
        raise click.UsageError("name files or folders, or use --discover")
    done = _Imported()
    with open_memory(home) as memory:
        _import_all(memory, paths, whose, done, vectors=vectors)
        if not as_json:
            _tell(done)
        if watch:
            with suppress(KeyboardInterrupt):
                _watch(memory, paths, whose, done, vectors=vectors, every=every)
    if as_json:
        emit_json({name: value for name, value in asdict(done).items() if name != "seen"})
    if done.empty and not discover:
        raise no_transcript(done.empty)


_NAMED: Final = 3
"""Files that are no session are named up to this number, and all of them with --json."""


def _tell(done: _Imported) -> None:
    for problem in done.problems:
        echo(problem, err=True)
    for path in done.empty:
        echo(f"{path}: no session found", err=True)
    if done.skipped:
        more = f" and {len(done.skipped) - _NAMED:,} more" if len(done.skipped) > _NAMED else ""
        names = ", ".join(done.skipped[:_NAMED])
        echo(f"{len(done.skipped):,} files are no session of a known agent: {names}{more}", err=True)
    echo(f"{done.messages:,} messages of {done.sessions:,} sessions, {done.new:,} of them new.")
    if done.stripped:
        echo(f"Recalled text was taken out of {done.stripped:,} messages.")


def _watch(
    memory: Memory, paths: tuple[Path, ...], whose: dict[str, Any], done: _Imported, *, vectors: bool, every: float
) -> None:
    """Archive what is added, until Ctrl-C. Only the size and time of each session are kept between two looks."""
    echo("Watching. Ctrl-C ends it.", err=True)
    while True:
        time.sleep(every)
        added = _Imported(seen=done.seen)
        _import_all(memory, paths, whose, added, vectors=vectors)
        if added.new:
            echo(f"{added.new:,} new messages of {added.sessions:,} sessions.")
        done.messages, done.new = done.messages + added.new, done.new + added.new


def _places(environ: Mapping[str, str], home: Path) -> list[Path]:
    """Where agents on this machine keep their sessions, and where OpenClaw's plugin keeps its memory."""
    context = Path(environ.get("OPENCLAW_STATE_DIR") or home / ".openclaw") / "memory" / "context"
    sessions = [place.folder for place in transcripts.default_places(environ, home)]
    return [*sessions, *([context] if folder.claims(context) else [])]


def _import_all(
    memory: Memory, paths: tuple[Path, ...], whose: dict[str, Any], done: _Imported, *, vectors: bool
) -> None:
    from holdfast.cli.progress import Progress  # noqa: PLC0415 - only this command draws one

    before = memory.store.counts()["messages"]
    exports = [path for path in paths if transfer.claims(path)]
    folders = [path for path in paths if folder.claims(path)]
    found = list(_sessions([path for path in paths if path not in (*exports, *folders)], done))
    with Progress(sum(one.size for one in found)) as progress:
        for path in exports:
            done.messages += transfer.load_jsonl(memory.store, path)
        stored = memory.store.sessions()
        for one in found:
            _import_one(memory, one, whose, done, stored)
            progress.advance(one.size, f"{done.messages:,} messages")
        for path in folders:
            progress.say(f"{path}")
            _import_folder(memory, path, whose, done)
        if vectors:
            progress.say("embedding")
            done.embedded = memory.embed()
    done.new = memory.store.counts()["messages"] - before
    done.notes = memory.choice.reasons


def _sessions(paths: Sequence[Path], done: _Imported) -> Iterator[transcripts.Found]:
    for path in paths:
        found = list(
            transcripts.sessions(
                path,
                on_problem=lambda problem: done.problems.append(problem.what),
                on_skipped=lambda file: done.skipped.append(str(file)),
            )
        )
        done.empty += [] if found else [str(path)]
        for one in found:
            if done.seen.get(one.path) != (one.size, one.modified):
                done.seen[one.path] = (one.size, one.modified)
                yield one


def _scope(transcript: transcripts.Transcript, stored: Collection[Scope], whose: dict[str, Any]) -> Scope:
    """Whose a session is: the project is the folder that the agent worked in, unless an option names one.

    A session that an earlier version stored without a project goes on there.
    """
    agent, session = whose["agent"] or "main", whose["session"] or transcript.session
    if whose["project"] is not None:
        return Scope(project=whose["project"], agent=agent, session=session)
    plain = Scope(agent=agent, session=session)
    return plain if plain in stored else replace(plain, project=transcript.cwd or "")


def _import_one(
    memory: Memory, one: transcripts.Found, whose: dict[str, Any], done: _Imported, stored: Collection[Scope]
) -> None:
    """Archive one session; what cannot be read is told, and the next one follows."""
    try:
        transcript = transcripts.read(one.path, format=one.format)
        scope = _scope(transcript, stored, whose)
        archived = memory.ingest(transcript.messages, scope=scope)
        done.messages += len(archived)
        done.stripped += len(archived.stripped)
        done.sessions += 1
        if not transcript.messages:
            done.problems.append(f"{one.path}: no message in {len(transcript.entries):,} records ({one.format})")
        done.problems += [f"{one.path}:{problem.line}: {problem.what}" for problem in transcript.problems]
    except (InputError, MissingExtraError) as error:
        done.problems.append(str(error))


def _import_folder(memory: Memory, path: Path, whose: dict[str, Any], done: _Imported) -> None:
    """Take over a memory-context folder, after the sessions: what they said already is not said twice."""
    masked = memory.settings.archive.redaction
    project, agent = whose["project"] or "", whose["agent"] or "main"
    taken = folder.load(memory.store, path, project=project, agent=agent, masked=masked)
    done.messages += taken.rows
    done.problems += taken.problems
