"""The facts of the memory page: the list, what its buttons do to facts, and how that is undone."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final
from urllib.parse import parse_qsl

from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.memory import facts as versions
from holdfast.memory.conflicts import Conflict, find_conflicts
from holdfast.memory.exclusion import exclude
from holdfast.memory.fact_recalls import FactRecalls, read_recalls
from holdfast.memory.sessions import make_title, read_host
from holdfast.server.inspector.data import EVERYTHING, PAGE, Params, parse_scope
from holdfast.store.base import FactRow, FactType, Scope, Select
from holdfast.text import clip, plural

FACT_TYPES: Final[tuple[FactType, ...]] = (
    "decision",
    "implementation",
    "config",
    "issue",
    "task_state",
    "architecture",
)
MAX_QUOTE: Final = 120
"""Characters of a fact in a sentence about it."""
MAX_UNDOS: Final = 100
"""Actions that can still be undone."""
STATES: Final[Mapping[str, str]] = {
    "": "that hold",
    "pinned": "pinned",
    "excluded": "not recalled",
    "unused": "never recalled so far",
    "over": "that no longer hold",
    "all": "all",
}
"""The choices of which facts are listed, with the words that the page has for them."""

FactKey = tuple[Scope, str]
NEVER: Final = FactRecalls()
CONFLICT_SECONDS: Final = 0.05
"""How long a page looks for contradictions before it is shown without the rest."""
MAX_QUICK: Final = 300
"""Facts of one owner that are compared for a page; more are left to the request for contradictions alone."""


# --- the list ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FactView:
    """A fact with what the list shows of it.

    Attributes:
        row: Its newest version.
        since: When it was learned in its present words, in Unix milliseconds; 0 if that is not known. The time of the
            row is a later one if the fact was replaced or retired.
        replaced: The facts that it replaced, oldest first; going back to the last one is offered.
        together: The facts that a person has said to hold next to it.
        earlier: Earlier words of it, oldest first.
        holds: Whether it holds now.
        is_excluded: Whether recall leaves it out.
        recalls: How often it was recalled, and when last.
    """

    row: FactRow
    since: int = 0
    replaced: tuple[FactRow, ...] = ()
    together: tuple[FactRow, ...] = ()
    earlier: tuple[FactRow, ...] = ()
    holds: bool = True
    is_excluded: bool = False
    recalls: FactRecalls = NEVER

    def matches(self, params: Params) -> bool:
        """Return whether it is one of those that the filters of the page name."""
        row = self.row
        words = f"{row.content} {row.subject} {row.slot}".casefold()
        has_words = params.get("q", "").strip().casefold() in words
        is_of_type = params.get("type", "") in {"", row.type}
        is_of_project = params.get("project", "*") in {"*", row.scope.project}
        return has_words and is_of_type and is_of_project and self._is_in(params.get("state", ""))

    def _is_in(self, state: str) -> bool:
        """Return whether it is in one of the `STATES`."""
        is_in = {
            "": self.holds,
            "pinned": self.holds and self.row.pinned,
            "excluded": self.holds and self.is_excluded,
            "unused": self.holds and not self.recalls.count,
            "over": not self.holds,
        }
        return is_in.get(state, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactList:
    """All facts of a memory, and those that contradict each other; `is_complete` if all of these were found."""

    facts: tuple[FactView, ...]
    conflicts: tuple[Conflict, ...]
    is_complete: bool


def sort_facts(facts: Sequence[FactView], params: Params) -> list[FactView]:
    """Sort facts by a column, as the page asks; by default the newest first.

    The facts come in the order in which they were stored, which tells facts of one millisecond apart.
    """
    keys: Mapping[str, Callable[[FactView], tuple[object, ...]]] = {
        "fact": lambda fact: (fact.row.content.casefold(),),
        "subject": lambda fact: (not fact.row.subject, fact.row.subject.casefold(), fact.row.slot),
        "recalled": lambda fact: (-fact.recalls.count, -fact.recalls.last_time),
    }
    key = keys.get(params.get("sort", ""))
    is_reversed = params.get("order") == "reverse"
    newest_first = sorted(facts, key=lambda fact: fact.since)[::-1]
    if key is None:
        return newest_first[::-1] if is_reversed else newest_first
    return sorted(newest_first, key=key, reverse=is_reversed)


class Facts:
    """Reads the facts of a memory for the page."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._found: dict[Scope, tuple[tuple[list[FactRow], frozenset[frozenset[str]]], list[Conflict]]] = {}
        self._titles: dict[Scope, str] = {}

    def read(self, tenants: Sequence[str], *, seconds: float = CONFLICT_SECONDS) -> FactList:
        """Read all facts, and find contradictions among them for a while."""
        views: list[FactView] = []
        groups: dict[Scope, list[FactRow]] = {}
        settled: set[frozenset[str]] = set()
        for tenant in tenants:
            some, pairs = self._read_tenant(Scope(tenant=tenant), groups)
            views += some
            settled |= pairs
        conflicts, is_complete = self._find_conflicts(groups, frozenset(settled), seconds=seconds)
        return FactList(facts=tuple(views), conflicts=conflicts, is_complete=is_complete)

    def _read_tenant(
        self, scope: Scope, groups: dict[Scope, list[FactRow]]
    ) -> tuple[list[FactView], frozenset[frozenset[str]]]:
        """Return the facts of a tenant and the settled pairs; add those that may contradict others to the groups."""
        memory = self._engine._memory
        everything = Select(scope=scope, across=EVERYTHING)
        rows = memory.store.read_facts(everything)
        hidden = memory.exclusions(scope=scope, across=EVERYTHING)
        long_term = {record.key for record in memory.store.read_records(everything, kind=versions.LONG_TERM)}
        recalls = read_recalls(memory.store, scope, across=EVERYTHING)
        # A folder that several owners imported gives each of them facts of the same ids.
        known: dict[Scope, dict[str, list[FactRow]]] = {}
        for row in rows:
            known.setdefault(row.scope, {}).setdefault(row.id, []).append(row)
        newest = [facts[key][-1] for facts in known.values() for key in facts]
        replaced = _group_replaced(newest)
        together = _group_together(newest, hidden.pairs)
        views: list[FactView] = []
        for owned_by, facts in known.items():
            owner = owner_of(owned_by)
            counts = recalls.get(owner, {})
            for key, history in facts.items():
                row = history[-1]
                holds = versions.does_hold(row)
                view = FactView(
                    row=row,
                    since=min(one.time for one in history if one.content == row.content),
                    replaced=tuple(replaced.get((owner, key), ())),
                    together=tuple(together.get((owner, key), ())),
                    earlier=_list_earlier(history),
                    holds=holds,
                    is_excluded=key in hidden.facts,
                    recalls=counts.get(key, NEVER),
                )
                views.append(view)
                if holds and not view.is_excluded and key not in long_term:
                    groups.setdefault(owner, []).append(row)
        return views, hidden.pairs

    def _find_conflicts(
        self, groups: Mapping[Scope, list[FactRow]], settled: frozenset[frozenset[str]], *, seconds: float
    ) -> tuple[tuple[Conflict, ...], bool]:
        """Find contradictions of each owner, or return those of the last time if nothing has changed.

        Comparing thousands of facts takes longer than a page may: what is not found in time is found by the next call.
        """
        end = time.monotonic() + seconds
        found: list[Conflict] = []
        is_complete = True
        for owner, rows in groups.items():
            key = (rows, settled)
            with self._lock:
                known = self._found.get(owner)
            if known is not None and known[0] == key:
                found += known[1]
                continue
            if time.monotonic() > end or (len(rows) > MAX_QUICK and seconds < math.inf):
                is_complete = False
                continue
            own = find_conflicts(rows, settled=settled)
            with self._lock:
                self._found[owner] = (key, own)
            found += own
        found.sort(key=lambda conflict: -conflict.facts[-1].time)
        return tuple(found), is_complete

    def find_successors(self, facts: Sequence[FactRow]) -> dict[FactKey, FactRow]:
        """Return the fact that replaced each of those that were replaced."""
        found: dict[FactKey, FactRow] = {}
        for row in facts:
            if row.superseded_by:
                select = Select(scope=owner_of(row.scope), across=True)
                for successor in self._engine._memory.store.read_facts(select, keys=[row.superseded_by]):
                    found[row.scope, row.id] = successor
        return found

    def find_sources(self, facts: Sequence[FactRow]) -> dict[FactKey, Scope]:
        """Return the session that each fact was said in; facts without evidence, added by hand, are left out."""
        found: dict[FactKey, Scope] = {}
        missing: dict[str, set[int]] = {}
        for row in facts:
            if not row.evidence:
                continue
            if row.scope.session:
                found[row.scope, row.id] = row.scope
            else:
                missing.setdefault(row.scope.tenant, set()).add(row.evidence[0])
        owners: dict[int, Scope] = {}
        for tenant, numbers in missing.items():
            select = Select(scope=Scope(tenant=tenant), across=EVERYTHING, ids=tuple(sorted(numbers)))
            for message in self._engine._memory.store.read_messages(select):
                owners[message.id] = message.scope
        for row in facts:
            if row.evidence and row.evidence[0] in owners and not row.scope.session:
                found[row.scope, row.id] = owners[row.evidence[0]]
        return found

    def find_hosts(self, facts: Sequence[FactRow], *, talked: Collection[Scope]) -> dict[FactKey, str]:
        """Return the program that stored each fact by a tool of MCP.

        Its session has a host and no messages. A fact of a session with messages, which `talked` has, may be one that a
        person has corrected.
        """
        names: dict[Scope, str] = {}
        found: dict[FactKey, str] = {}
        for row in facts:
            if row.evidence or not row.scope.session or row.scope in talked:
                continue
            if row.scope not in names:
                names[row.scope] = read_host(self._engine._memory.store, row.scope)
            if names[row.scope]:
                found[row.scope, row.id] = names[row.scope]
        return found

    def find_title(self, scope: Scope) -> str:
        """Return the title of a session, or its id."""
        if scope not in self._titles:
            if len(self._titles) > 100 * PAGE:
                self._titles.clear()
            self._titles[scope] = make_title(self._engine._memory.store, scope) or scope.session
        return self._titles[scope]


def _group_replaced(newest: Sequence[FactRow]) -> dict[FactKey, list[FactRow]]:
    """Return the facts that others replaced, oldest first, by the owner and the id of the fact that did."""
    found: dict[FactKey, list[FactRow]] = {}
    for row in sorted(newest, key=lambda row: row.time):
        if row.superseded_by and not row.deleted:
            found.setdefault((owner_of(row.scope), row.superseded_by), []).append(row)
    return found


def _group_together(newest: Sequence[FactRow], pairs: Collection[frozenset[str]]) -> dict[FactKey, list[FactRow]]:
    """Return the facts that hold next to others, as a person has decided, by the owner and the id of the other."""
    partners: dict[str, set[str]] = {}
    for pair in pairs:
        for key in pair:
            partners.setdefault(key, set()).update(pair - {key})
    found: dict[FactKey, list[FactRow]] = {}
    for row in newest:
        if versions.does_hold(row):
            for other in partners.get(row.id, ()):
                found.setdefault((owner_of(row.scope), other), []).append(row)
    return found


def owner_of(scope: Scope) -> Scope:
    """Return a scope without its session: the owner of its facts."""
    return replace(scope, session="")


def _list_earlier(history: Sequence[FactRow]) -> tuple[FactRow, ...]:
    """Return the versions of a fact that had other words than the newest one."""
    earlier: dict[str, FactRow] = {}
    for row in history:
        if row.content != history[-1].content:
            earlier[row.content] = row
    return tuple(earlier.values())


# --- what the buttons do -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The sentence about an action, and the number by which it can be undone; 0 if it cannot."""

    text: str
    undo: int = 0


@dataclass(slots=True)
class FactActions:
    """Runs the actions of the buttons on facts, and undoes them."""

    engine: Engine
    _undos: dict[int, Callable[[], str]] = field(default_factory=dict)
    _count: int = 0
    _lock: Lock = field(default_factory=Lock)

    def run(self, action: str, form: Mapping[str, str]) -> Said:
        """Run an action on the facts that a form names.

        Raises:
            InputError: The action is not known, a fact is not, or there is nothing to do.
        """
        if action == "undo":
            return self._undo(int(form.get("undo") or 0))
        if action == "add":
            return self._add(form)
        rows = [find_fact(self.engine, scope, key) for scope, key in parse_items(form)]
        if not rows:
            raise InputError("no fact is chosen")
        if action == "forget fact":
            return self._forget(rows)
        actions: Mapping[str, Callable[[Sequence[FactRow], Mapping[str, str]], Said]] = {
            "pin fact": lambda rows, _: self._pin(rows, pinned=True),
            "unpin fact": lambda rows, _: self._pin(rows, pinned=False),
            "exclude fact": lambda rows, _: self._exclude(rows, excluded=True),
            "include fact": lambda rows, _: self._exclude(rows, excluded=False),
            "both hold": lambda rows, _: self._settle(rows),
            "correct": self._correct,
            "keep": lambda rows, _: self._keep(rows[0]),
            "retire": lambda rows, _: self._retire(rows),
            "restore": lambda rows, _: self._restore(rows),
            "go back": lambda rows, _: self._go_back(rows[0]),
            "report again": lambda rows, _: self._settle(rows, settled=False),
        }
        if action not in actions:
            raise InputError(f"action {action!r} is not known")
        return actions[action](rows, form)

    # --- undo --------------------------------------------------------------------

    def _offer(self, text: str, undo: Callable[[], str]) -> Said:
        """Return a sentence with the number under which an action can be undone."""
        with self._lock:
            self._count += 1
            self._undos[self._count] = undo
            for number in list(self._undos)[:-MAX_UNDOS]:
                del self._undos[number]
            return Said(text=text, undo=self._count)

    def _undo(self, number: int) -> Said:
        with self._lock:
            undo = self._undos.pop(number, None)
        if undo is None:
            raise InputError("this can no longer be undone")
        return Said(text=undo())

    def _change(self, owners: Sequence[Scope], change: Callable[[], str]) -> Said:
        """Change facts of these owners so that it can be undone."""
        before = self._read_newest(owners)
        text = change()
        after = self._read_newest(owners)
        return self._offer(text, lambda: self._change_back(before, after, owners))

    def _read_newest(self, owners: Sequence[Scope]) -> dict[FactKey, FactRow]:
        newest: dict[FactKey, FactRow] = {}
        for owner in dict.fromkeys(map(owner_of, owners)):
            for row in self.engine._memory.store.read_facts(Select(scope=owner, across=True)):
                newest[row.scope, row.id] = row
        return newest

    def _change_back(
        self, before: Mapping[FactKey, FactRow], after: Mapping[FactKey, FactRow], owners: Sequence[Scope]
    ) -> str:
        """Store the versions that an action has replaced again, unless a fact has changed since."""
        now = self._read_newest(owners)
        clock = self.engine._memory.clock()
        rows: list[FactRow] = []
        changed = 0
        for key, row in after.items():
            old = before.get(key)
            if row == old:
                continue
            if now.get(key) != row:
                changed += 1
            elif old is None:
                rows.append(versions.retire(row, time=clock))
            else:
                rows.append(old)
        self.engine._memory.store.add_facts(rows)
        if changed:
            return f"Undone, but for {plural(changed, 'fact')} that changed meanwhile."
        return "Undone."

    # --- actions -----------------------------------------------------------------

    def _add(self, form: Mapping[str, str]) -> Said:
        scope = replace(parse_scope(form), session="")
        content = form.get("content", "").strip()

        def change() -> str:
            self.engine._memory.remember(
                content,
                scope=scope,
                type=_choose_type(form, "decision"),
                subject=form.get("subject", "").strip(),
                slot=form.get("slot", "").strip(),
            )
            return "The fact is stored."

        return self._change([scope], change)

    def _correct(self, rows: Sequence[FactRow], form: Mapping[str, str]) -> Said:
        """Replace a fact by one with other words; with the same words, change what it is about."""
        old = rows[0]
        memory = self.engine._memory
        content = form.get("content", "").strip()
        subject = form.get("subject", old.subject).strip()
        slot = form.get("slot", old.slot).strip()
        kind = _choose_type(form, old.type)

        def change() -> str:
            if content == old.content:
                memory.store.add_facts([replace(old, type=kind, subject=subject, slot=slot)])
                return "The fact is changed."
            new = memory.remember(content, scope=old.scope, type=kind, subject=subject, slot=slot)
            if old.pinned and not new.pinned:
                new = replace(new, pinned=True)
                memory.store.add_facts([new])
            if new.id != old.id:
                memory.store.add_facts([replace(old, superseded_by=new.id, time=memory.clock())])
            return "The fact is corrected; its earlier words stay in its history."

        return self._change([old.scope], change)

    def _keep(self, row: FactRow) -> Said:
        def change() -> str:
            over = self.engine._memory.keep_fact(row.id, scope=row.scope)
            return f"Kept; it replaces {plural(len(over), 'fact')}, whose history stays."

        return self._change([row.scope], change)

    def _retire(self, rows: Sequence[FactRow]) -> Said:
        def change() -> str:
            memory = self.engine._memory
            memory.store.add_facts([versions.retire(row, time=memory.clock()) for row in rows])
            return f"{_count_facts(rows)} no longer {'holds' if len(rows) == 1 else 'hold'}; the history stays."

        return self._change([row.scope for row in rows], change)

    def _restore(self, rows: Sequence[FactRow]) -> Said:
        def change() -> str:
            memory = self.engine._memory
            memory.store.add_facts([replace(row, superseded_by=None, deleted=False) for row in rows])
            return f"{_count_facts(rows)} {'holds' if len(rows) == 1 else 'hold'} again."

        return self._change([row.scope for row in rows], change)

    def _go_back(self, row: FactRow) -> Said:
        """Let the fact hold again that this one replaced last, and retire this one."""
        memory = self.engine._memory
        newest = self._read_newest([row.scope]).values()
        before = [one for one in newest if one.superseded_by == row.id and not one.deleted]
        if not before:
            raise InputError("this fact has replaced none that is still stored")
        last = max(before, key=lambda one: one.time)

        def change() -> str:
            restored = replace(last, superseded_by=None, time=memory.clock())
            memory.store.add_facts([restored, versions.retire(row, time=memory.clock())])
            return f"Back to the earlier fact: {clip(last.content, head=MAX_QUOTE, tail=0, marker='…')}"

        return self._change([row.scope, last.scope], change)

    def _pin(self, rows: Sequence[FactRow], *, pinned: bool) -> Said:
        def change() -> str:
            self.engine._memory.store.add_facts([replace(row, pinned=pinned) for row in rows])
            verb = "is" if len(rows) == 1 else "are"
            return f"{_count_facts(rows)} {verb} {'pinned: in every block' if pinned else 'no longer pinned'}."

        return self._change([row.scope for row in rows], change)

    def _exclude(self, rows: Sequence[FactRow], *, excluded: bool) -> Said:
        memory = self.engine._memory

        def undo() -> str:
            exclude(memory.store, rows, excluded=not excluded, time=memory.clock())
            return "Undone."

        exclude(memory.store, rows, excluded=excluded, time=memory.clock())
        verb = "is" if len(rows) == 1 else "are"
        words = "not recalled from now on" if excluded else "recalled again"
        return self._offer(f"{_count_facts(rows)} {verb} {words}.", undo)

    def _settle(self, rows: Sequence[FactRow], *, settled: bool = True) -> Said:
        memory = self.engine._memory
        ids = [row.id for row in rows]

        def undo() -> str:
            memory.keep_all_facts(ids, scope=rows[0].scope, settled=not settled)
            return "Undone."

        memory.keep_all_facts(ids, scope=rows[0].scope, settled=settled)
        if not settled:
            return self._offer("The contradiction is reported again.", undo)
        words = "Both facts hold" if len(rows) == 2 else f"{_count_facts(rows)} hold"  # noqa: PLR2004 - both
        return self._offer(f"{words}, and are no longer reported.", undo)

    def _forget(self, rows: Sequence[FactRow]) -> Said:
        memory = self.engine._memory
        count = 0
        for row in rows:
            count += memory.forget(scope=row.scope, fact_ids=[row.id], across=True)
        return Said(text=f"{plural(count, 'row')} erased.")


def _count_facts(rows: Sequence[FactRow]) -> str:
    return "The fact" if len(rows) == 1 else f"{len(rows)} facts"


def _choose_type(form: Mapping[str, str], default: FactType) -> FactType:
    for one in FACT_TYPES:
        if one == form.get("type"):
            return one
    return default


def parse_items(form: Mapping[str, str]) -> list[FactKey]:
    """Read the facts that a form names: one in its own fields, or several in `items`, one a line."""
    if form.get("fact"):
        return [(parse_scope(form), form["fact"])]
    found: list[FactKey] = []
    for line in form.get("items", "").splitlines():
        values = dict(parse_qsl(line.removeprefix("?"), keep_blank_values=True))
        if values.get("fact"):
            found.append((parse_scope(values), values["fact"]))
    return found


def find_fact(engine: Engine, scope: Scope, key: str) -> FactRow:
    """Return the newest version of a fact of a scope.

    Raises:
        InputError: There is no such fact.
    """
    rows = engine._memory.store.read_facts(Select(scope=scope), keys=[key])
    if not rows:
        raise InputError(f"there is no fact {key}: it was forgotten")
    return rows[-1]


def describe_age(milliseconds: int, *, now: int | None = None) -> str:
    """Describe how long ago a moment was: `3 days`; empty if it is unknown."""
    if milliseconds <= 0:
        return ""
    moment = int(time.time() * 1000) if now is None else now
    seconds = max(0, moment - milliseconds) // 1000
    for unit, size in (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return plural(seconds // size, unit)
    return "less than a minute"
