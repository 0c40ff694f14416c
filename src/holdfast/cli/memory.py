"""The commands that open a memory: search, recall, get, facts, remember, forget, stats."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import open_memory, opens_memory, owner_of, owners, scope_of, session_scope
from holdfast.cli.output import as_json, at_words, console, echo, emit_json, human_bytes, human_time, printable
from holdfast.errors import InputError
from holdfast.memory.memory import Memory
from holdfast.store.base import FactRow, Scope, Select
from holdfast.text import term_spans, terms

if TYPE_CHECKING:
    from rich.text import Text as Styled

    from holdfast.memory.recall import Hit

__all__ = ["facts", "forget", "get", "recall", "remember", "search", "stats"]


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
        rows = memory.get([hit.message for hit in hits], scope=scope, across=across)
        _tell_missing(memory)
    owner = {row.id: owner_of(row.scope) for row in rows}
    if as_json:
        emit_json([asdict(hit) | owner[hit.message] for hit in hits])
        return
    if not hits:
        echo("Nothing found.", err=True)
        return
    from rich.text import Text as Styled  # noqa: PLC0415 - only for people

    screen = console()
    wanted = set(terms(query))
    for hit in hits:
        screen.print(_hit_heading(hit, owner[hit.message]))
        screen.print(_snippet(hit.text, wanted), soft_wrap=True)
        if explain:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in asdict(hit.parts).items())
            screen.print(Styled(parts, style="dim"), soft_wrap=True)
        screen.print()


def _tell_missing(memory: Memory) -> None:
    """Say on stderr what search had to do without."""
    for note in memory.missing():
        echo(f"note: {note}", err=True)


def _hit_heading(hit: Hit, owner: dict[str, str]) -> Styled:
    from rich.text import Text as Styled  # noqa: PLC0415 - only for people

    line = Styled(f"#{hit.message}", style="bold cyan")
    when = human_time(hit.time or None)
    words = [when, printable(hit.speaker, one_line=True), f"{hit.score:.2f}"]
    words += [printable(owner[name], one_line=True) for name in ("session", "project")]
    return line.append("".join(f"  {word}" for word in words if word), style="dim")


_SNIPPET = 320


def _snippet(text: str, wanted: set[str]) -> Styled:
    """The stretch of a text with most of the words that were asked for, those words marked."""
    from rich.text import Text as Styled  # noqa: PLC0415 - only for people

    text = printable(text)
    places = [start for start, _, found in term_spans(text) if wanted.intersection(found)]
    best = max(places, key=lambda place: sum(place <= other < place + _SNIPPET for other in places), default=0)
    start, end = at_words(text, max(0, best - 40), min(len(text), max(0, best - 40) + _SNIPPET))
    snippet = re.sub(r"\s+", " ", text[start:end]).strip()
    styled = Styled(("… " if start else "") + snippet + (" …" if end < len(text) else ""))
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
        found = memory.recall(memory.request((query,), scope=scope, across=across, cap=cap))
        _tell_missing(memory)
        rows = memory.get([hit.message for hit in found.hits], scope=scope, across=across)
    if as_json:
        whose_row = {row.id: owner_of(row.scope) for row in rows}
        hits = [asdict(hit) | whose_row[hit.message] for hit in found.hits]
        known = [asdict(hit) | owner_of(hit.fact.scope) for hit in found.facts]
        emit_json(asdict(found) | {"hits": hits, "facts": known})
    elif found.block:
        echo(found.block)
    else:
        echo(f"No block: {found.reason} (relevance {found.relevance:.2f} of 1).", err=True)


@click.command()
@click.argument("ids", nargs=-1, type=int, required=True)
@click.option("--around", type=click.IntRange(min=0), default=0, help="So many messages before and after.")
@opens_memory
@as_json
def get(*, ids: tuple[int, ...], around: int, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Print archived messages whole, by the numbers that search shows."""
    from holdfast.cli.show import as_data, print_message  # noqa: PLC0415 - only for this

    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        rows = memory.get(ids, scope=scope, across=across, around=around)
    if as_json:
        emit_json([as_data(row.message) | {"number": row.id} | owner_of(row.scope) for row in rows])
    else:
        for row in rows:
            print_message(console(), row.message, full=True, label=f"#{row.id} ")
    missing = set(ids) - {row.id for row in rows}
    if missing:
        echo(f"Not found: {', '.join(f'#{number}' for number in sorted(missing))}", err=True)
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
        emit_json([asdict(row) | owner_of(row.scope) for row in rows])
        return
    for row in rows:
        echo(_fact_line(row))
    if not rows:
        echo('No facts. Add one: holdfast remember "…"', err=True)


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
        emit_json(asdict(row) | owner_of(row.scope))
    else:
        echo(_fact_line(row))


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask.")
@opens_memory
@as_json
def forget(*, ids: tuple[str, ...], yes: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Forget messages (by number) and facts (by id) for good, or a whole --session."""
    from holdfast.memory.home import database_file  # noqa: PLC0415 - only for this
    from holdfast.store.forgetting import damaged_copies  # noqa: PLC0415 - only for this

    if not ids and whose["session"] is None:
        raise click.UsageError("name messages or facts, or a --session to forget whole")
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        if not ids:
            scope, across = session_scope(memory, **whose), False
        facts = {row.id: row.content for row in memory.facts(scope=scope, across=across)}
        numbers: list[int] | None = None
        chosen: list[str] | None = None
        what, words = f"all of session {whose['session']}", list(facts.values())
        if ids:
            numbers, chosen = _named(ids, list(facts))
            what, words = f"{len(numbers)} messages and {len(chosen)} facts", [facts[name] for name in chosen]
        copies = damaged_copies(database_file(memory.store.path))
        if not yes:
            _confirm(what, copies=bool(copies))
        gone = 0
        for target in _targets(memory, whole=not ids, **whose):
            every = bool(ids) and whose["session"] is None
            _forget_in_files(memory, target, numbers, across=every, facts=words)
            gone += memory.forget(scope=target, across=every, ids=numbers, fact_ids=chosen)
    if as_json:
        emit_json({"forgotten": gone})
    else:
        echo(f"{gone} forgotten." + (" Damaged copies of the store were deleted." if gone and copies else ""))


def _targets(
    memory: Memory, *, whole: bool, project: str | None, agent: str | None, session: str | None
) -> list[Scope]:
    """Where to forget: the session that is named, or every project and agent that the options leave open."""
    if whole:
        return [session_scope(memory, project=project, agent=agent, session=session or "")]
    return [replace(owner, session=session or "") for owner in owners(memory, project=project, agent=agent)]


def _confirm(what: str, *, copies: bool) -> None:
    """Ask before anything is forgotten; what was typed before the question is not its answer."""
    from holdfast.cli.keys import drop_input  # noqa: PLC0415 - only for this

    if sys.stdin.isatty():
        drop_input(sys.stdin.fileno())
    more = " and delete the damaged copies of the store" if copies else ""
    click.confirm(printable(f"Forget {what}{more} for good?", one_line=True), abort=True, err=True)


def _forget_in_files(
    memory: Memory, scope: Scope, numbers: list[int] | None, *, across: bool, facts: list[str]
) -> None:
    """Take words out of the files of our own agent as well; those of other agents are theirs."""
    from holdfast.agent.sessions import Sessions  # noqa: PLC0415 - only for this

    ids = None if numbers is None else tuple(numbers)
    rows = memory.store.fetch(Select(kind="message", scope=scope, across=across, ids=ids))
    Sessions(home=memory.home, clock=memory.clock, new_id=memory.new_id, agent=scope.agent).forget(rows, facts=facts)


def _named(ids: tuple[str, ...], known: list[str]) -> tuple[list[int], list[str]]:
    """The messages and the facts that were named; a fact by the first characters of its id."""
    prefixes = tuple(id_ for id_ in ids if len(id_) >= _FACT_ID)
    facts_named = [name for name in known if name.startswith(prefixes)]
    others = [id_ for id_ in ids if id_ not in prefixes or not any(name.startswith(id_) for name in facts_named)]
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
    echo(f"{found.path} ({human_bytes(found.bytes)})")
    echo(
        f"{found.messages:,} messages, {found.passages:,} passages, {found.sessions:,} sessions, {found.facts:,} facts"
    )
    for note in _notes(found.embedded, found.passages, found.notes):
        echo(note)


def _notes(embedded: int, passages: int, notes: tuple[str, ...]) -> Iterator[str]:
    yield from notes
    if embedded < passages:
        yield f"{passages - embedded:,} passages are without vectors: they are found by their words"
