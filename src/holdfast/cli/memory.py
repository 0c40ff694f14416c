"""The commands that open a memory: import, search, recall, get, facts, remember, forget, stats."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text as Styled

from holdfast import settings as configuration
from holdfast import transcripts
from holdfast.cli.output import as_json, console, emit_json, human_bytes, human_time, printable
from holdfast.cli.show import as_data, print_message
from holdfast.errors import InputError
from holdfast.memory import transfer
from holdfast.memory.memory import Memory
from holdfast.memory.recall import Hit, Request
from holdfast.store.base import FactRow, Scope
from holdfast.text import term_spans, terms

__all__ = ["facts", "forget", "get", "import_", "recall", "remember", "search", "stats"]

F = TypeVar("F", bound=Callable[..., Any])


def opens_memory(function: F) -> F:
    """Give a command the options that say whose memory it is."""
    options = (
        click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME."),
        click.option("--project", default="", help="Whose memory: the project."),
        click.option("--agent", default="main", show_default=True, help="Whose memory: the agent."),
        click.option("--session", default=None, help="Only this session; default all of the agent's."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def open_memory(home: Path | None) -> Memory:
    """The memory of this machine, by its settings."""
    loaded = configuration.load(files=configuration.default_files())
    return Memory.open(home, settings=loaded.settings)


def scope_of(*, project: str, agent: str, session: str | None) -> tuple[Scope, bool]:
    """The scope that the options name, and whether it reaches across sessions."""
    return Scope(project=project, agent=agent, session=session or ""), session is None


@dataclass(slots=True)
class _Imported:
    """How far an import has come."""

    sessions: int = 0
    messages: int = 0
    new: int = 0
    embedded: int = 0
    problems: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="The sessions of every known agent on this machine.")
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed what was imported at once.")
@opens_memory
@as_json
def import_(
    *, paths: tuple[Path, ...], discover: bool, vectors: bool, home: Path | None, as_json: bool, **whose: Any
) -> None:
    """Archive the transcripts at PATHS (files or folders, any known agent). Doing it again changes nothing."""
    if discover:
        paths = (*paths, *(place.folder for place in transcripts.default_places(os.environ, Path.home())))
    elif not paths:
        raise click.UsageError("name files or folders, or use --discover")
    done = _Imported()
    with open_memory(home) as memory:
        _import_all(memory, paths, whose, done, vectors=vectors)
    if as_json:
        emit_json(asdict(done))
        return
    for problem in done.problems:
        click.echo(printable(problem), err=True)
    click.echo(f"{done.messages:,} messages of {done.sessions:,} sessions, {done.new:,} of them new.")


def _import_all(
    memory: Memory, paths: tuple[Path, ...], whose: dict[str, Any], done: _Imported, *, vectors: bool
) -> None:
    from holdfast.cli.progress import Progress  # noqa: PLC0415 - only this command draws one

    before = memory.store.counts()["messages"]
    exports = [path for path in paths if transfer.claims(path)]
    others = [path for path in paths if path not in exports]
    found = [
        one for path in others for one in transcripts.sessions(path, on_problem=lambda p: done.problems.append(p.what))
    ]
    with Progress(sum(one.size for one in found)) as progress:
        for path in exports:
            done.messages += transfer.load_jsonl(memory.store, path)
        for one in found:
            _import_one(memory, one, whose, done)
            progress.advance(one.size, f"{done.messages:,} messages")
        if vectors:
            progress.say("embedding")
            done.embedded = memory.embed()
    done.new = memory.store.counts()["messages"] - before
    done.notes = memory.choice.reasons


def _import_one(memory: Memory, one: transcripts.Found, whose: dict[str, Any], done: _Imported) -> None:
    """Archive one session; what cannot be read is told, and the next one follows."""
    try:
        transcript = transcripts.read(one.path, format=one.format)
        scope = Scope(project=whose["project"], agent=whose["agent"], session=whose["session"] or transcript.session)
        done.messages += len(memory.ingest(transcript.messages, scope=scope))
        done.sessions += 1
    except InputError as error:
        done.problems.append(str(error))


@click.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@opens_memory
@as_json
def search(*, query: str, limit: int, explain: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Find what was said about QUERY."""
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        hits = memory.search(query, scope=scope, across=across, limit=limit)
    if as_json:
        emit_json([asdict(hit) for hit in hits])
        return
    if not hits:
        click.echo("Nothing found.", err=True)
        return
    screen = console()
    wanted = set(terms(query))
    for hit in hits:
        screen.print(_hit_heading(hit))
        screen.print(_snippet(hit.text, wanted), soft_wrap=True)
        if explain:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in asdict(hit.parts).items())
            screen.print(Styled(parts, style="dim"), soft_wrap=True)
        screen.print()


def _hit_heading(hit: Hit) -> Styled:
    line = Styled(f"#{hit.message}", style="bold cyan")
    when = human_time(hit.time or None)
    return line.append(f"  {when}  {printable(hit.speaker)}  {hit.score:.2f}".replace("    ", "  "), style="dim")


_SNIPPET = 320


def _snippet(text: str, wanted: set[str]) -> Styled:
    """The stretch of a text with most of the words that were asked for, those words marked."""
    text = printable(text)
    places = [start for start, _, found in term_spans(text) if wanted.intersection(found)]
    best = max(places, key=lambda place: sum(place <= other < place + _SNIPPET for other in places), default=0)
    start = max(0, best - 40)
    snippet = re.sub(r"\s+", " ", text[start : start + _SNIPPET]).strip()
    styled = Styled(("… " if start else "") + snippet + (" …" if start + _SNIPPET < len(text) else ""))
    for first, last, found in term_spans(styled.plain):
        if wanted.intersection(found):
            styled.stylize("bold yellow", first, last)
    return styled


@click.command()
@click.argument("query")
@click.option("--cap", type=click.IntRange(min=1), default=None, help="Tokens of the block at most.")
@opens_memory
@as_json
def recall(*, query: str, cap: int | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Print the block that would be recalled for QUERY."""
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        tokens = cap or memory.settings.recall.hard_cap_tokens
        found = memory.recall(Request(texts=(query,), scope=scope, across=across, cap=tokens, now=memory.clock()))
    if as_json:
        emit_json(asdict(found))
    elif found.block:
        click.echo(printable(found.block))
    else:
        click.echo(f"No block: {found.reason} (relevance {found.relevance:.2f}).", err=True)


@click.command()
@click.argument("ids", nargs=-1, type=int, required=True)
@click.option("--around", type=click.IntRange(min=0), default=0, help="So many messages before and after.")
@opens_memory
@as_json
def get(*, ids: tuple[int, ...], around: int, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Print archived messages whole, by the numbers that search shows."""
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        rows = memory.get(ids, scope=scope, across=across, around=around)
    if as_json:
        emit_json([as_data(row.message) | {"number": row.id, "session": row.scope.session} for row in rows])
        return
    missing = set(ids) - {row.id for row in rows}
    for row in rows:
        print_message(console(), row.message, full=True, label=f"#{row.id} ")
    if missing:
        click.echo(f"Not found: {', '.join(f'#{number}' for number in sorted(missing))}", err=True)
        sys.exit(1)


@click.command()
@click.argument("query", required=False)
@opens_memory
@as_json
def facts(*, query: str | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """List the facts that hold now, or those about QUERY."""
    from holdfast.memory.facts import find  # noqa: PLC0415 - a name that the command itself has

    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        rows = memory.facts(scope=scope, across=across)
    if query:
        rows = [hit.fact for hit in find(rows, query)]
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    for row in rows:
        click.echo(_fact_line(row))
    if not rows:
        click.echo('No facts. Add one: holdfast remember "…"', err=True)


def _fact_line(row: FactRow) -> str:
    return f"{row.id[:8]}  {human_time(row.time or None)}  [{row.type}] {printable(row.content)}"


_TYPES = ("decision", "implementation", "config", "issue", "task_state", "architecture")


@click.command()
@click.argument("content")
@click.option("--type", "type_", type=click.Choice(_TYPES), default="decision", show_default=True)
@click.option("--subject", default="", help="What the fact is about.")
@click.option("--slot", default="", help="Which property of it; a newer fact of the same slot takes its place.")
@opens_memory
@as_json
def remember(
    *, content: str, type_: Any, subject: str, slot: str, home: Path | None, as_json: bool, **whose: Any
) -> None:
    """Keep CONTENT as a fact."""
    scope, _ = scope_of(**whose)
    with open_memory(home) as memory:
        row = memory.remember(content, scope=scope, type=type_, subject=subject, slot=slot)
    if as_json:
        emit_json(asdict(row))
    else:
        click.echo(_fact_line(row))


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@opens_memory
@as_json
def forget(*, ids: tuple[str, ...], yes: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Forget messages (by number) and facts (by id) for good, or a whole --session."""
    if not ids and whose["session"] is None:
        raise click.UsageError("name messages or facts, or a --session to forget whole")
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        numbers, chosen = _named(ids, [row.id for row in memory.facts(scope=scope, across=across)])
        what = f"{len(numbers)} messages and {len(chosen)} facts" if ids else f"all of session {whose['session']}"
        if not yes:
            click.confirm(f"Forget {what} for good?", abort=True, err=True)
        if ids:
            gone = memory.forget(scope=scope, across=across, ids=numbers, fact_ids=chosen)
        else:
            gone = memory.forget(scope=scope)
    if as_json:
        emit_json({"forgotten": gone})
    else:
        click.echo(f"{gone} forgotten.")


def _named(ids: tuple[str, ...], known: list[str]) -> tuple[list[int], list[str]]:
    """The messages and the facts that were named; a fact by the first characters of its id."""
    facts_named = [name for name in known if any(len(id_) >= _FACT_ID and name.startswith(id_) for id_ in ids)]
    others = [id_ for id_ in ids if not any(name.startswith(id_) for name in facts_named)]
    return [_number(id_) for id_ in others], facts_named


_FACT_ID = 8


def _number(name: str) -> int:
    """A message's number as a person writes it."""
    digits = name.removeprefix("#")
    if not digits.isdigit():
        raise InputError(f"{name}: neither a message's number nor the first {_FACT_ID} characters of a fact's id")
    return int(digits)


@click.command()
@click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME.")
@as_json
def stats(*, home: Path | None, as_json: bool) -> None:
    """Say what memory holds."""
    with open_memory(home) as memory:
        found = memory.stats()
    if as_json:
        emit_json(asdict(found))
        return
    click.echo(f"{found.path} ({human_bytes(found.bytes)})")
    click.echo(
        f"{found.messages:,} messages, {found.passages:,} passages, {found.sessions:,} sessions, {found.facts:,} facts"
    )
    for note in _notes(found.embedded, found.passages, found.notes):
        click.echo(note)


def _notes(embedded: int, passages: int, notes: tuple[str, ...]) -> Iterator[str]:
    yield from notes
    if embedded < passages and embedded:
        yield f"{passages - embedded:,} passages still without vectors"
