"""The overview at the start of a session: what holds, what is open, and what was done lately.

It is made of facts and of the last sessions of the project, without a model. It is small, is placed once, and stays the
same until messages leave the window, so that the provider's prompt cache holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Final, Literal, TypeAlias, get_args

from holdfast import signals
from holdfast.memory import block, conflicts, facts
from holdfast.memory.block import Marks
from holdfast.memory.exclusion import read_exclusions
from holdfast.memory.session_lines import SessionLine, describe, is_done
from holdfast.memory.session_questions import only_asks
from holdfast.moments import local
from holdfast.store.base import Across, FactRow, Scope, Store
from holdfast.tokens import TokenCounter, count_text

MAX_STANDING: Final = 8
"""The maximum lines of decisions and preferences."""
MAX_TASKS: Final = 6
"""The maximum lines of open tasks."""
MAX_SESSIONS: Final = 8
"""The maximum lines of sessions."""
MIN_LINE_TOKENS: Final = 12
"""The minimum tokens left to try another line."""
MAX_CACHED: Final = 2**14
"""For how many facts it is cached whether they are instructions: more than most memories have."""
MAX_FACT_CHARS: Final = 300
"""Longer facts are left to recall. A fact is never shortened, so that its line is found if the fact is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """An overview.

    Attributes:
        text: The block for the window; empty if there is nothing to say.
        tokens: Its tokens.
        facts: The ids of the facts in it.
        sessions: The sessions in it, the newest first.
        messages: The archived messages that it is based on.
        needed: If the cap is too small for any line, the tokens of the smallest overview; otherwise 0.
    """

    text: str = ""
    tokens: int = 0
    facts: tuple[str, ...] = ()
    sessions: tuple[SessionLine, ...] = ()
    messages: tuple[int, ...] = ()
    needed: int = 0


def make_overview(
    store: Store,
    scope: Scope,
    *,
    cap: int,
    marks: Marks,
    across: Across = True,
    has_sessions: bool,
    has_own: bool = False,
    archive_tool: str = "",
    standing: Sequence[FactRow] = (),
    count: TokenCounter = count_text,
) -> Overview:
    """Make the overview of a project for one of its sessions, of at most `cap` tokens.

    Decisions, tasks and sessions take turns, so that each section has its most important lines. A fact that does not
    fit is left out, and shorter ones after it may still fit. No session follows one that does not fit, so that the last
    sessions are listed without a gap.

    Args:
        store: The store.
        scope: The session that gets it.
        cap: The maximum tokens.
        marks: The keys that it is signed with.
        across: Whose facts and sessions are included.
        has_sessions: Whether other sessions are listed.
        has_own: Whether the session that gets it is listed with them.
        archive_tool: The name of the tool that shows archived messages, if the model has one.
        standing: Facts of the caller that come before those of the store.
        count: The token counter.
    """
    if cap <= 0:
        return Overview()
    known = choose_facts(store, scope, across=across, standing=standing)
    sessions: Iterable[SessionLine] = ()
    if has_sessions:
        sessions = list_last_sessions(
            store, scope, across=across, has_own=has_own, limit=MAX_SESSIONS, outdated=known.outdated
        )
    lines: list[_Line] = []
    best = Overview()
    smallest = 0
    are_sessions_full = False
    for turn in zip_longest(known.standing, known.tasks, sessions):
        for section, entry in zip(_SECTIONS, turn, strict=True):
            if entry is None or (section == "sessions" and are_sessions_full):
                continue
            line = _Line(section, entry)
            overview = _render([*lines, line], known, marks=marks, archive_tool=archive_tool, count=count)
            if overview.tokens <= cap:
                lines.append(line)
                best = overview
                continue
            if section == "sessions":
                are_sessions_full = True
            if not lines:
                smallest = min(smallest or overview.tokens, overview.tokens)
        if best.tokens > cap - MIN_LINE_TOKENS:  # further sessions need not be read
            break
    if not best.text:
        return Overview(needed=smallest)
    return best


_Section: TypeAlias = Literal["standing", "tasks", "sessions"]
_SECTIONS: Final[tuple[_Section, ...]] = get_args(_Section)


@dataclass(frozen=True, slots=True)
class _Line:
    """A fact or a session, and the section of the overview that it belongs to."""

    section: _Section
    entry: FactRow | SessionLine


def _render(
    lines: Sequence[_Line], known: StandingFacts, *, marks: Marks, archive_tool: str, count: TokenCounter
) -> Overview:
    rows: dict[_Section, list[block.Fact]] = {"standing": [], "tasks": []}
    ids: list[str] = []
    sessions: list[SessionLine] = []
    messages: set[int] = set()
    for line in lines:
        if isinstance(line.entry, FactRow):
            fact = line.entry
            superseded: block.Superseded = "no"
            if fact.id in known.corrected:
                superseded = "wholly"
            note = known.notes.get(fact.id, "")
            shown = block.Fact(type=fact.type, text=fact.content, superseded=superseded, note=note)
            rows[line.section].append(shown)
            ids.append(fact.id)
            messages.update(fact.evidence)
        else:
            sessions.append(line.entry)
            messages.update(line.entry.messages)
    text = block.render_overview(
        standing=rows["standing"],
        tasks=rows["tasks"],
        sessions=[past_session(session, has_number=bool(archive_tool)) for session in sessions],
        marks=marks,
        archive_tool=archive_tool,
    )
    return Overview(
        text=text,
        tokens=count(text),
        facts=tuple(ids),
        sessions=tuple(sessions),
        messages=tuple(sorted(messages)),
    )


def past_session(line: SessionLine, *, has_number: bool = False) -> block.PastSession:
    """Return how a block shows a session, with the number of a message if a tool can show it."""
    number = 0
    if has_number:
        number = line.number
    title = line.title
    outcome = line.outcome
    if line.is_one_message:  # without the arrow, after which a result stands
        title = f"{title} {outcome}"
        outcome = ""
    return block.PastSession(
        day=f"{local(line.time):%Y-%m-%d}",
        title=title,
        outcome=outcome,
        keys=line.keys,
        number=number,
    )


# --- sessions ------------------------------------------------------------------------------


def list_last_sessions(
    store: Store,
    scope: Scope,
    *,
    across: Across,
    has_own: bool,
    limit: int,
    outdated: Mapping[int, Sequence[str]],
) -> Iterator[SessionLine]:
    """List the last sessions that are worth a line, newest first; with `has_own`, also the one that asks.

    `outdated` has, by message, words that no longer hold. No session is named by them.
    """
    # Some may be empty: a session of one greeting, or one that is excluded from recall.
    spans = store.read_sessions(scope, across=across, limit=2 * limit + 1)
    found = 0
    for span in spans:
        if span.scope == scope and not has_own:
            continue
        line = describe(store, span, outdated=outdated)
        if line is None or only_asks(line, now=span.last_time):
            continue
        yield line
        found += 1
        if found == limit:
            return


# --- facts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFacts:
    """The facts of an overview: what holds, and what is still to do, the most important first.

    `notes` has, by id, the note on a fact that another one contradicts; `corrected` has the ids of those that another
    one may replace; `outdated` has, by message, words that no longer hold or may not.
    """

    standing: tuple[FactRow, ...] = ()
    tasks: tuple[FactRow, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    corrected: Collection[str] = ()
    outdated: Mapping[int, Sequence[str]] = field(default_factory=dict)


def choose_facts(
    store: Store, scope: Scope, *, across: Across = True, standing: Sequence[FactRow] = ()
) -> StandingFacts:
    """Choose the facts of an overview.

    Pinned facts, instructions and preferences come first, then other decisions, each newest first. Tasks are listed
    unless they are done.
    """
    versions = facts.load(store, scope, across=across)
    if not versions and not standing:  # as in most new memories
        return StandingFacts()
    hidden = read_exclusions(store, scope, across=across)
    outdated: dict[int, list[str]] = {}
    for message, words, _ in facts.find_replaced(versions):
        outdated.setdefault(message, []).append(words)
    known = [*facts.current(versions), *standing]
    known = [row for row in known if not hidden.hides(row)]
    rows = [row for row in _keep_newest(known) if len(row.content) <= MAX_FACT_CHARS]
    given = {row.id for row in standing}
    holding = [row for row in rows if row.id in given or row.pinned or row.type == "decision"]
    holding.sort(key=lambda row: (_rank(row, is_given=row.id in given), -row.time))
    tasks = [row for row in rows if row.type == "task_state" and row not in holding and not is_done(row.content)]
    tasks.sort(key=lambda row: -row.time)
    chosen = StandingFacts(standing=tuple(holding[:MAX_STANDING]), tasks=tuple(tasks[:MAX_TASKS]))
    notes: dict[str, str] = {}
    corrected: set[str] = set()
    shown = (*chosen.standing, *chosen.tasks)
    index = conflicts.FactIndex(shown, settled=hidden.pairs)
    for row in shown:
        if index.find_corrections(row):
            corrected.add(row.id)
            for message in row.evidence:
                outdated.setdefault(message, []).append(row.quote)
            continue
        note = conflicts.note_conflict(row, index.find_rivals(row))
        if note:
            notes[row.id] = note
    return replace(chosen, notes=notes, corrected=corrected, outdated=outdated)


def _rank(fact: FactRow, *, is_given: bool) -> int:
    """Return the place of a fact among those that hold: 0 comes first."""
    if fact.pinned:
        return 0
    if is_given or _is_instruction(fact.content):
        return 1
    return 2


@lru_cache(maxsize=MAX_CACHED)
def _is_instruction(content: str) -> bool:
    return signals.has_signal(content, "preference", "rule", "remember")


def _keep_newest(rows: Iterable[FactRow]) -> list[FactRow]:
    """Keep the newest fact of each subject and property, and every fact without a property."""
    newest: dict[tuple[str, str, str], FactRow] = {}
    for row in rows:
        key = (row.subject.casefold(), row.slot, "")
        if not row.slot:
            key = (row.subject.casefold(), "", row.id)
        known = newest.get(key)
        if known is None or row.time >= known.time:
            newest[key] = row
    return list(newest.values())
