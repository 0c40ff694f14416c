"""The commands on memory: search, recall, overview, get, facts, remember, forget, stats, sessions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, filterfalse, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from holdfast.cli.opening import (
    load_settings,
    missing_memory,
    no_session,
    no_transcript,
    open_memory,
    owner_of,
    owners,
    read_memory,
    scope_of,
    session_scope,
)
from holdfast.cli.options import as_json, home_option, opens_memory, owned_by
from holdfast.cli.output import (
    align_to_words,
    count_columns,
    drop_input,
    echo,
    echo_styled,
    emit_json,
    fit,
    human_bytes,
    join_counts,
    print_result,
    terminal_width,
)
from holdfast.errors import HoldfastError, InputError, MissingExtraError, TranscriptError
from holdfast.memory.sessions import SessionInfo, find_title, list_sessions, make_title
from holdfast.moments import minute
from holdfast.store.base import MIN_ID_CHARS, Across, FactRow, FactType, MessageRow, Scope, Select
from holdfast.text import percent, plural, printable, term_spans, terms

if TYPE_CHECKING:
    from holdfast.memory.conflicts import Conflict
    from holdfast.memory.memory import Memory
    from holdfast.memory.passage_search import Hit
    from holdfast.memory.recall import Recall
    from holdfast.transcripts import SessionRef


_EXCERPT_CHARS: Final = 320
_MAX_PRINTED: Final = 8
"""The passages of a recall that are printed for people; `--all` prints the others too."""
_FORGET_COLUMNS: Final = 100
"""How much of each row `forget` shows at most before it asks."""
_DEFAULT_AGENT: Final = "main"
_MAX_TENANTS: Final = 8
"""How many other tenants are named if nothing was found."""
_MAX_TITLES: Final = 200
"""Files that are read for a title, the newest: 5 to 10 ms each with `holdfast sessions --discover`."""
_MAX_HEAD_RECORDS: Final = 200
"""The maximum records of a file that are read for its title."""
_FACT_INDENT: Final = 28
"""The columns of the id and the time of a fact: further lines of its text begin there."""
_HEADING_COLUMNS: Final = 50
"""What a heading of a passage takes without the title of its session: number, time, speaker and match."""
_MIN_TITLE_COLUMNS: Final = 20
_MIN_PLACE_COLUMNS: Final = 6
"""With less room than this, the folder of a session is left out."""
_NO_FACTS: Final = '`holdfast learn` extracts them from archived messages, and `holdfast remember "…"` adds one'
EMPTY: Final = "the memory is empty. `holdfast import FILE` or `holdfast import --discover` fills it."
_MAX_EMBEDDED: Final = 200
"""Passages that a search embeds before it begins: a fifth of a second on a slow processor."""
NOT_RECALLED: Final = "not recalled"
"""The mark of what `holdfast exclude` named."""


@click.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
@opens_memory
@as_json
def search(*, query: str, limit: int, explain: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Search the archive for QUERY."""
    scope, across = scope_of(**whose)
    with read_memory(home) as memory:
        _embed_rest(memory)
        hits = memory.search(query, scope=scope, across=across, limit=limit)
        rows = memory.get([hit.message for hit in hits], scope=scope, across=across)
        titles = {one: make_title(memory.store, one) for one in {row.scope for row in rows}}
        why = "" if hits else _explain_nothing(memory, scope, across, reason="no passage matches")
        _print_missing(memory)
    owner = {row.id: owner_of(row.scope) | {"title": titles[row.scope]} for row in rows}
    hidden = {row.id for row in rows if row.excluded}
    if as_json:
        emit_json([asdict(hit) | owner[hit.message] | {"excluded": hit.message in hidden} for hit in hits])
        return
    if not hits:
        echo(f"Nothing found: {why}", err=True)
        return
    query_terms = set(terms(query))
    best = max(hit.score for hit in hits)
    for hit in hits:
        note = NOT_RECALLED * (hit.message in hidden)
        echo_styled(_heading(hit, owner[hit.message], note, best=best), indent=2)
        echo_styled(_excerpt(hit.text, query_terms))
        if explain:
            parts = "  ".join(f"{name} {percent(value, 1)}" for name, value in asdict(hit.parts).items())
            echo_styled(click.style(parts, dim=True))
        echo()


def _explain_nothing(memory: Memory, scope: Scope, across: Across, *, reason: str) -> str:
    """Return why a command found nothing: nothing is there, whatever is asked for, or else the given reason.

    Other tenants are named, since programs may have chosen one. A session that was named and does not exist is an
    error.
    """
    known = memory.store.scopes()
    if not known:
        return EMPTY
    others = sorted({one.tenant for one in known} - {scope.tenant})
    named = ", ".join(others[:_MAX_TENANTS])
    if len(others) > _MAX_TENANTS:
        named += f" and {len(others) - _MAX_TENANTS} more"
    if scope.tenant not in {one.tenant for one in known}:
        return f"the tenant {scope.tenant} has nothing in this memory; --tenant names another: {named}"
    if scope.required(across) not in [one.required(across) for one in known]:
        if scope.session:
            raise no_session(scope)
        return "no session matches --project and --agent; `holdfast sessions` lists those that there are"
    if others:
        return f"{reason}. Only tenant {scope.tenant} was read; --tenant names another: {named}."
    return f"{reason}."


def _heading(hit: Hit, owner: Mapping[str, str], note: str, *, best: float) -> str:
    """Describe the message that a passage is from: its number, time and speaker, and how well it matches."""
    match = percent(hit.score, best)
    if not hit.parts.keyword:
        match = "similar"  # by vector alone: a percentage would read as if it had the words
    fields = [minute(hit.time or None), hit.speaker, match, note, _quote_title(owner["title"])]
    fields += [owner["session"], owner["project"]]
    text = printable("  ".join(["", *filter(None, fields)]), one_line=True)
    return click.style(f"#{hit.message}", fg="cyan", bold=True) + click.style(text, dim=True)


def _quote_title(title: str) -> str:
    """Mark the title of a session: next to a speaker it would read as what was said. In a terminal it is shortened."""
    if not title:
        return ""
    columns = terminal_width()
    if columns is not None:
        title = fit(title, max(_MIN_TITLE_COLUMNS, columns - _HEADING_COLUMNS))
    return f'in "{title}"'


def _embed_rest(memory: Memory) -> None:
    """Embed what the last program left when it ended, if that takes little time: static vectors of a few passages."""
    from holdfast.embed.base import behind_cache  # noqa: PLC0415 - takes time
    from holdfast.embed.static import JointEmbedder, StaticEmbedder  # noqa: PLC0415 - as above

    if memory.store.readonly:
        return
    for embedder in memory.embedders:
        if not isinstance(behind_cache(embedder), JointEmbedder | StaticEmbedder):
            continue
        if not 0 < memory.waiting(embedder) <= _MAX_EMBEDDED:
            continue
        with suppress(HoldfastError), memory.store.lock_work(embedder.space) as is_only:  # words alone find them too
            if is_only:
                memory.embed_with(embedder, limit=_MAX_EMBEDDED)


def _print_missing(memory: Memory) -> None:
    for warning in memory.missing():
        echo(f"warning: {warning}", err=True)


def _excerpt(text: str, query_terms: set[str]) -> str:
    """Return the part of a text with most terms of the query, with these terms marked."""
    text = printable(text)
    found = {start: stop for start, stop, stems in term_spans(text) if query_terms.intersection(stems)}
    best = max(found, key=lambda place: sum(place <= other < place + _EXCERPT_CHARS for other in found), default=0)
    place, end = align_to_words(text, max(0, best - 40), min(len(text), max(0, best - 40) + _EXCERPT_CHARS))
    excerpt = "… " if place else ""
    for start, stop in found.items():
        if place <= start and stop <= end:
            excerpt += text[place:start] + click.style(text[start:stop], fg="yellow", bold=True)
            place = stop
    excerpt += text[place:end] + (" …" if end < len(text) else "")
    return re.sub(r"\s+", " ", excerpt).strip()


@click.command()
@click.argument("query")
@click.option("--cap", type=click.IntRange(min=1), default=None, help="The maximum tokens of the block.")
@click.option("--block", is_flag=True, help="Print the block as a model gets it, oldest first.")
@click.option("--all", "all_", is_flag=True, help=f"Print all passages; default the best {_MAX_PRINTED}.")
@opens_memory
@as_json
def recall(
    *, query: str, cap: int | None, block: bool, all_: bool, home: Path | None, as_json: bool, **whose: Any
) -> None:
    """Print what would be recalled for QUERY, best first, from all sessions unless options name one."""
    scope, across = scope_of(**whose)
    with read_memory(home) as memory:
        _embed_rest(memory)
        result = memory.recall((query,), scope=scope, across=across, cap=cap)
        _print_missing(memory)
        rows = memory.get([hit.message for hit in result.hits], scope=scope, across=across)
        titles = {one: make_title(memory.store, one) for one in {row.scope for row in rows}}
        why = ""
        if not result.block:
            why = _explain_nothing(memory, scope, across, reason=result.reason)
    if as_json:
        owner = {row.id: owner_of(row.scope) | {"title": titles[row.scope]} for row in rows}
        hits = [asdict(hit) | owner[hit.message] for hit in result.hits]
        facts = [asdict(hit) | owner_of(hit.fact.scope) for hit in result.facts]
        emit_json(asdict(result) | {"hits": hits, "facts": facts, "reason": why.removesuffix(".")})
    elif why:
        echo(f"Nothing recalled: {why}", err=True)
    elif block:
        echo(result.block, verbatim=True)
    else:
        limit = None if all_ else _MAX_PRINTED
        _print_recalled(result, {row.id: titles[row.scope] for row in rows}, query_terms=set(terms(query)), limit=limit)


@click.command()
@click.option("--cap", type=click.IntRange(min=1), default=None, help="The maximum tokens of the overview.")
@owned_by
@as_json
def overview(*, cap: int | None, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Print what a new session gets at its start: what holds, what is open, and the last sessions."""
    scope, across = scope_of(**whose, session=None)
    with read_memory(home) as memory:
        result = memory.make_overview(scope=scope, across=across, cap=cap)
        default_cap = memory.settings.recall.overview_tokens
        why = ""
        if cap is None and not default_cap:
            why = "recall.overview_tokens is 0."
        elif result.needed and not result.text:
            given = f"{default_cap} tokens (recall.overview_tokens)" if cap is None else f"{cap} tokens"
            why = f"{given} are too few; at least {result.needed} are needed."
        elif not result.text:
            why = _explain_nothing(memory, scope, across, reason="there are no facts and no sessions yet")
    if as_json:
        sessions = [
            {
                **owner_of(line.scope),
                "time": line.time,
                "title": line.title,
                "outcome": line.outcome,
                "message": line.number,
            }
            for line in result.sessions
        ]
        emit_json(
            {
                "text": result.text,
                "tokens": result.tokens,
                "facts": list(result.facts),
                "sessions": sessions,
                "needed": result.needed,
                "reason": why.removesuffix("."),
            }
        )
    elif result.text:
        for line in result.text.split("\n"):
            echo(line, indent=2 if line.startswith("- ") else 0)
    else:
        echo(f"No overview: {why}", err=True)


def put_newest_first(hits: Sequence[Hit]) -> list[Hit]:
    """Order hits by their scores, but those that replace another one before it.

    Of hits that replace each other, the one with the best score comes last: it is added after those that replace it.
    """
    ordered: list[Hit] = []
    begun: set[int] = set()  # a hit that is begun is not added again: it would not end if hits replace each other

    def add(hit: Hit) -> None:
        begun.add(hit.passage)
        for newer in hits:
            if newer.message in hit.replaced_by and newer.passage not in begun:
                add(newer)
        ordered.append(hit)

    for hit in sorted(hits, key=lambda hit: hit.score, reverse=True):
        if hit.passage not in begun:
            add(hit)
    return ordered


def _print_recalled(result: Recall, titles: Mapping[int, str], *, query_terms: set[str], limit: int | None) -> None:
    from holdfast.memory.block import SUPERSEDED, render_notes, session_lines  # noqa: PLC0415 - only for this
    from holdfast.memory.overview import past_session  # noqa: PLC0415 - only for this

    for found in result.facts:
        note = f" ({found.note})" if found.note else ""
        text = printable(found.fact.content + note, one_line=True)
        mark = click.style(render_notes(SUPERSEDED[found.superseded]), fg="red")
        echo_styled(click.style("fact", fg="green", bold=True) + f"  {text}{mark}", indent=6)
    for line in result.sessions:
        first, *sentences = printable(session_lines(past_session(line))).split("\n")
        echo_styled(click.style("session", fg="green", bold=True) + f"  {first.removeprefix('- ')}", indent=9)
        for sentence in sentences:
            echo_styled(f"       {sentence}", indent=11)
    if result.sessions_note:
        echo(result.sessions_note)
    if result.facts or result.sessions or result.sessions_note:
        echo()
    for hit in put_newest_first(result.hits)[:limit]:
        fields = ["", minute(hit.time or None), hit.speaker, _quote_title(titles[hit.message])]
        about = printable("  ".join(filter(None, fields)), one_line=True)
        echo_styled(
            click.style(f"#{hit.message}", fg="cyan", bold=True) + click.style(f"  {about}", dim=True), indent=2
        )
        echo_styled(_excerpt(hit.text, query_terms) + click.style(render_notes(SUPERSEDED[hit.superseded]), fg="red"))
        echo()
    more = 0 if limit is None else len(result.hits) - limit
    if more > 0:
        echo(f"… {more:,} more: --all, or --block for what a model gets", err=True)
    counts = join_counts(fact=len(result.facts), session=len(result.sessions), passage=len(result.hits))
    figures = ", ".join(filter(None, [counts, f"{result.tokens:,} tokens"]))
    advice = " `holdfast get NUMBER` prints a message." if result.hits else ""
    echo(f"{figures}.{advice}", err=True)


@click.command()
@click.argument("ids", nargs=-1, type=int)
@click.option("--around", type=click.IntRange(min=0), default=0, help="Also this many messages before and after.")
@opens_memory
@as_json
def get(*, ids: tuple[int, ...], around: int, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Print archived messages whole, by the numbers that search shows, or all of a --session."""
    if not ids and whose["session"] is None:
        raise click.UsageError("name messages by their numbers, or a --session to print whole")
    with open_memory(home) as memory:
        if ids:
            scope, across = scope_of(**whose)
            rows = memory.get(ids, scope=scope, across=across, around=around)
        elif not (rows := memory.store.read_messages(Select(scope=(scope := session_scope(memory, **whose))))):
            raise no_session(scope)
    _print_rows(rows, as_json=as_json)
    _raise_if_missing(set(ids) - {row.id for row in rows})


def _raise_if_missing(numbers: Collection[int]) -> None:
    """Raise an InputError that names the messages that do not exist."""
    if numbers:
        names = ", ".join(f"#{number}" for number in sorted(numbers))
        raise InputError(f"not found: {names}; `holdfast search` shows numbers")


def _print_rows(rows: Sequence[MessageRow], *, as_json: bool) -> None:
    from holdfast.cli.console import open_console  # noqa: PLC0415 - only for this
    from holdfast.cli.show import message_to_json, print_message  # noqa: PLC0415 - only for this

    if as_json:
        about = ({"number": row.id, "excluded": row.excluded} | owner_of(row.scope) for row in rows)
        emit_json([message_to_json(row.message) | more for row, more in zip(rows, about, strict=True)])
    else:
        for row in rows:
            mark = f"({NOT_RECALLED}) " if row.excluded else ""
            print_message(open_console(), row.message, full=True, label=f"#{row.id} {mark}")


@click.command()
@click.argument("query", required=False)
@click.option("--history", is_flag=True, help="Also list what was replaced, until when and by which fact.")
@click.option("--conflicts", is_flag=True, help="List only facts that contradict each other, or may.")
@opens_memory
@as_json
def facts(*, query: str | None, history: bool, conflicts: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """List the current facts, or those that match QUERY."""
    from holdfast.memory.facts import find, list_versions  # noqa: PLC0415 - the command itself is called facts

    scope, across = scope_of(**whose)
    why = ""
    if conflicts:
        if query or history:
            raise click.UsageError("--conflicts lists all contradictions: leave QUERY and --history out")
        with read_memory(home) as memory:
            found = memory.conflicts(scope=scope, across=across)
            if not found:
                why = _explain_nothing(memory, scope, across, reason="the facts do not contradict each other")
        _print_conflicts(found, why=why, as_json=as_json)
        return
    with read_memory(home) as memory:
        until = list_versions(memory.store.read_facts(Select(scope=scope, across=across)))
        exclusions = memory.exclusions(scope=scope, across=across)
        rows = [row for row in until if history or until[row] is None]
        if query:
            rows = [hit.fact for hit in find(rows, query, min_share=0)]  # a person looks for any of the words
        if not rows:
            reason = f"none matches {query}" if query else _NO_FACTS
            why = _explain_nothing(memory, scope, across, reason=reason)
    hidden = {row.id for row in until if until[row] is None and exclusions.hides(row)}
    if as_json:
        emit_json(
            [asdict(row) | owner_of(row.scope) | {"excluded": row.id in hidden, "until": until[row]} for row in rows]
        )
        return
    if not query:
        rows.sort(key=lambda row: row.time, reverse=not history)  # with what it replaced, a fact comes last
        rows.sort(key=lambda row: (get_args(FactType).index(row.type), row.subject))
    is_grouped = terminal_width() is not None and not query
    projects = {row.scope.project for row in rows}
    is_one_project = is_grouped and len(projects) == 1
    for number, row in enumerate(rows):
        line = _format_fact(row, until=until[row], is_hidden=row.id in hidden, has_project=not is_one_project)
        indent = _FACT_INDENT
        if is_grouped:
            if not number or rows[number - 1].type != row.type:
                heading = f"{row.type.replace('_', ' ')} · {sum(other.type == row.type for other in rows):,}"
                if is_one_project and row.scope.project:
                    heading += f" · project {printable(row.scope.project, one_line=True)}"
                echo_styled("\n" * bool(number) + click.style(heading, bold=True))
            line = "  " + line.replace(f"[{row.type}] ", "", 1)
            indent = _FACT_INDENT + 2
        echo(line, indent=indent)
    if not rows:
        echo(f"No facts: {why}", err=True)


def _print_conflicts(found: Sequence[Conflict], *, why: str, as_json: bool) -> None:
    if as_json:
        rows = [asdict(one) | {"facts": [asdict(row) | owner_of(row.scope) for row in one.facts]} for one in found]
        emit_json(rows)
        return
    for number, conflict in enumerate(found):
        if number:
            echo("")
        about = printable(" · ".join(filter(None, (conflict.subject, conflict.slot))), one_line=True)
        verb = "may contradict" if conflict.is_possible else "contradict"
        echo(f"{len(conflict.facts)} facts {verb} each other{f' ({about})' if about else ''}:")
        for row in conflict.facts:
            echo(f"  {_format_fact(row)}", indent=_FACT_INDENT + 2)
    if found:
        echo("`holdfast keep ID` keeps one of them.", err=True)
    else:
        echo(f"No conflicts: {why}", err=True)


def _format_fact(row: FactRow, *, until: int | None = None, is_hidden: bool = False, has_project: bool = True) -> str:
    marks: list[str] = []
    if row.scope.project and has_project:
        marks.append(f"project {row.scope.project}")
    if until:
        marks.append(f"until {minute(until)}")
    if row.superseded_by:
        marks.append(f"replaced by {row.superseded_by[:MIN_ID_CHARS]}")
    if is_hidden:
        marks.append(NOT_RECALLED)
    line = f"{row.id[:MIN_ID_CHARS]}  {minute(row.time or None)}  [{row.type}] {printable(row.content)}"
    if marks:
        line += f" ({printable(', '.join(marks), one_line=True)})"
    return line


@click.command()
@click.argument("content")
@click.option("--type", "type_", type=click.Choice(get_args(FactType)), default="decision", show_default=True)
@click.option("--subject", default="", help="What the fact is about.")
@click.option("--slot", default="", help="A property of the subject; a newer fact in the same slot replaces this one.")
@opens_memory
@as_json
def remember(
    *, content: str, type_: Any, subject: str, slot: str, home: Path | None, as_json: bool, **whose: Any
) -> None:
    """Store CONTENT as a fact.

    Facts that it replaces are printed too.
    """
    scope, across = scope_of(**whose)
    with open_memory(home, create=True) as memory:
        before = memory.facts(scope=scope, across=across)
        row = memory.remember(content, scope=scope, type=type_, subject=subject, slot=slot)
        after = {fact.id for fact in memory.facts(scope=scope, across=across)}
    replaced = [fact for fact in before if fact.id not in after]
    if as_json:
        emit_json(asdict(row) | owner_of(row.scope) | {"replaced": [fact.id for fact in replaced]})
        return
    echo(_format_fact(row), indent=_FACT_INDENT)
    if replaced:
        echo("It replaces:")
    for fact in replaced:
        echo(f"  {_format_fact(fact)}", indent=_FACT_INDENT + 2)


@click.command()
@click.argument("ids", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Let them be recalled again.")
@opens_memory
@as_json
def exclude(*, ids: tuple[str, ...], undo: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Exclude messages (by number) and facts (by id) from recall; search and get still find them."""
    scope, across = scope_of(**whose)
    with open_memory(home) as memory:
        named = _find_named(memory, ids, whose)
        changed = memory.exclude(
            named.numbers, scope=scope, fact_ids=list(named.facts), across=across, excluded=not undo
        )
    text = f"{named.what} {'can be recalled again' if undo else 'will not be recalled'}."
    if named.what or as_json:
        print_result({"changed": changed, "excluded": not undo, "missing": named.missing}, text, as_json=as_json)
    _raise_if_missing(named.missing)


@click.command()
@click.argument("fact_ids", metavar="ID...", nargs=-1, required=True)
@opens_memory
@as_json
def keep(*, fact_ids: tuple[str, ...], home: Path | None, as_json: bool, **whose: Any) -> None:
    """Keep one of several facts that contradict each other, or several that all hold.

    One fact replaces the others, whose history stays. Of several, none is replaced, and they are no longer listed as a
    contradiction.
    """
    scope, across = scope_of(**whose)
    replaced: list[FactRow] = []
    with open_memory(home) as memory:
        if len(fact_ids) == 1:
            replaced = memory.keep_fact(fact_ids[0], scope=scope, across=across)
            text = f"{fact_ids[0]} is kept, and replaces {plural(len(replaced), 'fact')}."
        else:
            kept = memory.keep_all_facts(fact_ids, scope=scope, across=across)
            text = f"{plural(len(kept), 'fact')} hold next to each other."
    print_result({"replaced": [row.id for row in replaced]}, printable(text, one_line=True), as_json=as_json)


@click.command()
@click.argument("ids", nargs=-1)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@opens_memory
@as_json
def forget(*, ids: tuple[str, ...], yes: bool, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Forget messages (by number) and facts (by id) for good, or a whole --session."""
    if not ids and whose["session"] is None:
        raise click.UsageError("name messages or facts, or a --session to forget whole")
    from holdfast.store.forgetting import damaged_copies  # noqa: PLC0415 - only for this
    from holdfast.store.opening import database_file  # noqa: PLC0415 - only for this

    with open_memory(home) as memory:
        copies = damaged_copies(database_file(memory.store.path))
        plan = _make_plan(memory, ids, whose)
        if plan.what and not yes:
            for line in plan.list_contents(memory):
                echo(line, err=True)
            _confirm(f"Forget {plan.what}{' and delete the damaged copies of the store' * bool(copies)} for good?")
        number = sum(plan.forget(memory, scope) for scope in plan.scopes) if plan.what else 0
    text = (
        f"Forgot {plan.what} ({plural(number, 'row')} in all)."
        + " Damaged copies of the store were deleted." * bool(number and copies)
    )
    if plan.what or as_json:
        print_result({"forgotten": number, "missing": plan.missing}, text, as_json=as_json)
    _raise_if_missing(plan.missing)


def _confirm(question: str) -> None:
    """Raise unless the user answers yes; text that was typed before the question does not count."""
    if sys.stdin.isatty():
        drop_input(sys.stdin.fileno())
    try:
        is_sure = click.confirm(printable(question, one_line=True), err=True)
    except click.Abort:
        echo("", err=True)  # the question is on this line
        raise click.Abort("nothing was forgotten: there was no answer; --yes does not ask") from None
    if not is_sure:
        raise InputError("nothing was forgotten: you answered no")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The rows to forget, and their scopes: rows by id, or a whole session if `ids` is None. `what` may be empty."""

    what: str
    scopes: Sequence[Scope]
    facts: Sequence[str]
    ids: dict[str, list[Any]] | None = None
    across: bool = False
    missing: Sequence[int] = ()

    def list_contents(self, memory: Memory) -> Iterator[str]:
        """The first words of each row that is named; of a whole session, its title."""
        if self.ids is None:
            yield from filter(None, (_first_words(make_title(memory.store, scope)) for scope in self.scopes))
            return
        from holdfast.cli.show import part_text  # noqa: PLC0415 - only for this

        lines: list[str] = []
        for scope in self.scopes:
            for row in memory.store.read_messages(Select(scope=scope, across=self.across, ids=tuple(self.ids["ids"]))):
                words = " ".join(part_text(part) for part in row.message.parts)
                lines.append(_first_words(f"#{row.id}  {row.message.role}  {words}"))
        lines += (_first_words(f"fact  {content}") for content in self.facts)
        yield from lines[:_MAX_PRINTED]
        if len(lines) > _MAX_PRINTED:
            yield f"… {len(lines) - _MAX_PRINTED} more"

    def forget(self, memory: Memory, scope: Scope) -> int:
        """Forget in memory, and in the session files of our own agent; files of other agents are not changed."""
        from holdfast_agent.sessions import Sessions, can_have_files  # noqa: PLC0415 - only for this

        if scope.tenant == Scope().tenant and can_have_files(scope.agent):  # whose files they are
            ids = None if self.ids is None else tuple(self.ids["ids"])
            rows = memory.store.read_messages(Select(scope=scope, across=self.across, ids=ids))
            files = Sessions(home=memory.home, clock=memory.clock, new_id=memory.new_id, agent=scope.agent)
            files.forget(rows, facts=self.facts)
        return memory.forget(scope=scope, across=self.across, **(self.ids or {}))


def _first_words(text: str) -> str:
    """Return the beginning of a text, on one line."""
    # Only the beginning is made printable: a message may be very long.
    columns = min(terminal_width(err=True) or _FORGET_COLUMNS, _FORGET_COLUMNS)
    return fit(printable(text[:_EXCERPT_CHARS], one_line=True), columns)


def _make_plan(memory: Memory, ids: tuple[str, ...], whose: dict[str, Any]) -> _Plan:
    if not ids:
        scope = session_scope(memory, **whose)
        known = [row.content for row in memory.facts(scope=scope, across=False)]
        if (
            not known
            and not any(memory.store.read_records(Select(scope=scope)))
            and scope not in memory.store.sessions()
        ):
            raise no_session(scope)
        return _Plan(what=f"all of session {whose['session']}", scopes=[scope], facts=known)
    named = _find_named(memory, ids, whose)
    scopes = owners(memory, **whose)
    return _Plan(
        what=named.what,
        scopes=[replace(owner, session=whose["session"] or "") for owner in scopes],
        facts=list(named.facts.values()),
        ids={"ids": named.numbers, "fact_ids": list(named.facts)},
        across=whose["session"] is None,
        missing=named.missing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The targets of a command: numbers of messages, contents of facts by id, and numbers that do not exist."""

    numbers: list[int]
    facts: dict[str, str]
    missing: list[int]

    @property
    def what(self) -> str:
        """The counts of what exists."""
        return join_counts(message=len(self.numbers), fact=len(self.facts))


def _find_named(memory: Memory, ids: tuple[str, ...], whose: dict[str, Any]) -> _Named:
    """Find messages by number and facts by the first characters of their id."""
    scope, across = scope_of(**whose)
    contents = {row.id: row.content for row in memory.facts(scope=scope, across=across)}
    numbers, fact_ids = _parse_ids(ids, list(contents))
    known = {row.id for row in memory.store.read_messages(Select(scope=scope, across=across, ids=tuple(numbers)))}
    known |= {gap.id for gap in memory.gaps(scope, across=across) if gap.kind == "message"}
    return _Named(
        numbers=list(filter(known.__contains__, numbers)),
        facts={fact_id: contents[fact_id] for fact_id in fact_ids},
        missing=list(filterfalse(known.__contains__, numbers)),
    )


def _parse_ids(ids: tuple[str, ...], fact_ids: list[str]) -> tuple[list[int], list[str]]:
    """Return the numbers of messages and the ids of facts; a fact may be named by the first characters of its id."""
    prefixes = tuple(id_ for id_ in ids if len(id_) >= MIN_ID_CHARS)
    matches = [fact_id for fact_id in fact_ids if fact_id.startswith(prefixes)]
    others = [id_ for id_ in ids if id_ not in prefixes or not any(match.startswith(id_) for match in matches)]
    for name in others:
        if not name.removeprefix("#").isdigit():
            raise InputError(
                f"{name}: neither a message's number nor the first {MIN_ID_CHARS} characters of a fact's id"
            )
    return [int(name.removeprefix("#")) for name in others], matches


@click.command()
@home_option
@as_json
def stats(*, home: Path | None, as_json: bool) -> None:
    """Print what memory contains, of all tenants."""
    from holdfast.cli.spending import print_spending, read_spending  # noqa: PLC0415 - no other command needs prices

    settings = load_settings()
    missing = missing_memory(home, settings=settings)
    with read_memory(home) as memory:
        counts = memory.stats()
        spending = read_spending(memory.store, now=memory.clock(), prices=settings.model.prices)
    if missing is not None:
        counts = replace(counts, path=str(missing), bytes=0)
    if as_json:
        emit_json(asdict(counts) | spending.to_json())
        return
    former = ""
    if counts.former_facts:
        former = f", {counts.former_facts:,} that no longer {'holds' if counts.former_facts == 1 else 'hold'}"
    echo(f"{counts.path} ({human_bytes(counts.bytes)})")
    echo(
        f"{plural(counts.messages, 'message')}, {plural(counts.passages, 'passage')},"
        f" {plural(counts.sessions, 'session')}, {plural(counts.facts, 'fact')}{former}"
    )
    learning = counts.learning
    if learning.waiting or learning.in_use:
        echo(
            f"facts: {plural(learning.waiting, 'session')} to read, {plural(learning.in_use, 'session')} in use that"
            " will be read later"
        )
    if learning.calls:
        echo(
            f"facts: {plural(learning.calls, 'model call')}, {plural(learning.tokens, 'token')};"
            f" {plural(learning.calls_this_hour, 'call')} this hour,"
            f" {plural(learning.tokens_today, 'token')} in 24 hours"
        )
    if learning.unread:
        echo(learning.describe_unread())
    for problem in learning.problems:
        echo(problem)
    for warning in counts.warnings:
        echo(warning)
    if counts.vectors:
        echo(counts.vectors)
    elif counts.embedded < counts.passages:
        missing_vectors = counts.passages - counts.embedded
        verb = "has" if missing_vectors == 1 else "have"
        echo(f"{plural(missing_vectors, 'passage')} {verb} no vectors: found by words alone")
    print_spending(spending)


# --- sessions ----------


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="List the transcripts of every known agent on this machine.")
@home_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@as_json
def sessions(*, folders: tuple[Path, ...], discover: bool, home: Path | None, limit: int | None, as_json: bool) -> None:
    """List the sessions in memory, of all tenants; with FOLDERS or --discover, the transcripts on disk."""
    if folders or discover:
        _list_files(folders, limit=limit, as_json=as_json)
        return
    with read_memory(home) as memory:
        stored = list_sessions(memory.store)
    rows = sorted(stored, key=lambda row: row.last_time or 0, reverse=True)[:limit]
    if as_json:
        emit_json({"sessions": [row.to_json() for row in rows]})
    elif not rows:
        echo("No sessions in memory: `holdfast import --discover` archives those on this machine", err=True)
    else:
        _print_sessions(rows)


def _print_sessions(rows: Sequence[SessionInfo]) -> None:
    """Print two lines for each session in a terminal, and a table of one line each into a pipe."""
    columns = terminal_width()
    has_tenants = {row.tenant for row in rows} != {Scope().tenant}
    for row in rows if columns is not None else ():
        title = printable(row.title or "(no title)", one_line=True)
        time = click.style(f"{minute(row.last_time):<16}  ", dim=True)
        echo_styled(time + click.style(fit(title, (columns or 0) - 18), bold=True))
        facts = [printable(row.id, one_line=True), plural(row.messages, "message")]
        agent = "" if row.agent == _DEFAULT_AGENT else row.agent
        more = (row.host, agent, row.tenant * has_tenants)
        facts += [printable(each, one_line=True) for each in more if each]
        line = "  ".join(facts)
        place = row.project.replace("\\", "/").rstrip("/").rpartition("/")[2]
        room = (columns or 0) - count_columns(line) - 4
        if place and room > _MIN_PLACE_COLUMNS:
            line += "  " + fit(printable(place, one_line=True), room, from_end=True)
        echo_styled(click.style(f"  {line}", dim=True), indent=2)
    if columns is None:
        from holdfast.cli.console import print_table  # noqa: PLC0415 - JSON does not need it

        names = ["agent", "project", "session", "title"]
        if has_tenants:
            names.insert(0, "tenant")
        shown = []
        for row in rows:
            fields = row.to_json()
            texts = [printable(fields[name], one_line=True) for name in names]
            shown.append((minute(row.last_time), f"{row.messages:,}", *texts))
        print_table(["last message", "messages", *names], shown, right=["messages"], fold=names)


def _list_files(folders: tuple[Path, ...], *, limit: int | None, as_json: bool) -> None:
    problems: list[str] = []
    refs = sorted(_find(folders, problems), key=lambda ref: -ref.modified)[:limit]
    untitled = [place for place, ref in enumerate(refs) if not ref.title]
    for place in untitled[:_MAX_TITLES]:
        refs[place] = replace(refs[place], title=_read_title(refs[place]))
    if as_json:
        found = [asdict(ref) | {"agent": ref.format, "project": ref.cwd or ""} for ref in refs]
        for row in found:
            del row["format"]  # the agent
        emit_json({"sessions": found, "problems": problems})
    else:
        for problem in problems:
            echo(problem, err=True)
    if not refs and folders:
        raise no_transcript(folders)
    if not refs:
        echo("No sessions in the usual places of the known agents: holdfast sessions FOLDER", err=True)
    elif not as_json:
        _print_files(refs)


def _find(folders: tuple[Path, ...], problems: list[str]) -> Iterator[SessionRef]:
    from holdfast import transcripts  # noqa: PLC0415 - sessions in memory are listed without it

    for folder in folders or (place.folder for place in transcripts.default_places(os.environ, Path.home())):
        yield from transcripts.sessions(folder, on_problem=lambda problem: problems.append(problem.what))


def _read_title(ref: SessionRef) -> str | None:
    """Return the title that an import would give to a session without one, as far as its first records show it."""
    from holdfast import transcripts  # noqa: PLC0415 - as above

    try:
        items = islice(transcripts.stream(ref.path, format=ref.format), _MAX_HEAD_RECORDS)
        messages = chain.from_iterable(item.messages for item in items if isinstance(item, transcripts.Entry))
        return find_title(messages) or None
    except (TranscriptError, MissingExtraError):
        return None


def _print_files(refs: list[SessionRef]) -> None:
    """Print a line for each file, with its path below it."""
    home = Path.home()
    for ref in refs:
        path = f"~/{ref.path.relative_to(home)}" if ref.path.is_relative_to(home) else str(ref.path)
        title = click.style(printable(ref.title or "", one_line=True)[:100], bold=True)
        about = f"{minute(ref.modified)}  {ref.format:<12}{human_bytes(ref.size):>7}"
        echo_styled(f"{about}  {title}" if ref.title else about, indent=39)
        echo_styled(click.style(f"  {printable(path, one_line=True)}", dim=True))
