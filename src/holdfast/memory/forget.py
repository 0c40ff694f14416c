"""Forget messages and facts for good, with everything that was derived from them.

A fact that is based on a forgotten message is forgotten with it, and so are the earlier versions of a named fact. A
recorded block or overview that quotes one of them, and a report that shows it, are removed in every session of the
agent and project. A fact that was replaced by a forgotten one holds again. A summary that was made from it is replaced
by a notice. A summary builds on the one before it, so the later summaries of the session are emptied too. A title that
a host gave to a session stays if it shares no word with what is forgotten. Processes that have read such a record
before find an edit that says that something was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

from holdfast.context.edits import EDIT, Edit, Forgotten, to_json
from holdfast.memory import block
from holdfast.memory.facts import does_hold
from holdfast.memory.sessions import TITLE, make_final_title, read_title
from holdfast.store.base import FactRow, Record, Scope, Select, Store
from holdfast.store.forgetting_mark import change_mark
from holdfast.text import digest, terms

_PART: Final = 1_000
"""How many rows are read at once."""
FORGOTTEN: Final = "[A part of what this summary stood for was forgotten, and the summary with it.]"
"""The notice that replaces a summary of forgotten messages."""


def forget(
    store: Store,
    *,
    scope: Scope,
    ids: Sequence[int] | None = None,
    fact_ids: Sequence[str] | None = None,
    across: bool = False,
) -> int:
    """Forget messages and facts, and return how many there were; if neither are named, the whole session of the scope.

    Facts belong to the agent and project. So facts that are based on a forgotten message, and blocks that quote a
    forgotten fact, are searched for in every session.
    """
    rows: list[FactRow] = store.read_facts(Select(scope=scope, across=True))
    own = {row.id for row in rows if across or row.scope == scope}
    newest = _find_newest_record(store, scope)
    if ids is None and fact_ids is None:
        messages = _read_numbers(store, Select(scope=scope, across=across))
        forgotten = _find_facts(rows, messages, set(), alone=own)
        count = _forget_facts(store, rows, messages, forgotten, scope=scope, across=across)
        titled = store.read_records(Select(scope=scope, across=across), kind=TITLE)
        store.remove_records(Select(scope=scope, across=across))
        store.add_records([make_final_title(record.scope) for record in titled])
        store.remove_jobs(Select(scope=scope, across=across))
        count += store.remove_messages(Select(scope=scope, across=across))
        _clean_late_records(store, messages, forgotten, scope=scope, across=across, after=newest)
        return count + _forget_late_facts(store, evidence=None, scope=scope, across=across)
    named = set(ids or ())
    if named and not across:
        known = store.read_messages(Select(scope=scope, across=True, ids=tuple(sorted(named))))
        named -= {row.id for row in known if row.scope != scope}  # the messages and facts of another session stay
    numbers = tuple(sorted(named))
    forgotten = _find_facts(rows, set(numbers), set(fact_ids or ()) & own)
    count = _forget_facts(store, rows, set(numbers), forgotten, scope=scope, across=across)
    if numbers:
        count += store.remove_messages(Select(scope=scope, across=across, ids=numbers))
    _clean_late_records(store, set(numbers), forgotten, scope=scope, across=across, after=newest)
    if numbers:
        count += _forget_late_facts(store, evidence=set(numbers), scope=scope, across=across)
    return count


def _clean_late_records(
    store: Store,
    messages: AbstractSet[int],
    facts: Sequence[FactRow],
    *,
    scope: Scope,
    across: bool,
    after: int,
) -> None:
    """Remove the records of what another process read, and recorded while that was being forgotten.

    Whoever records later finds another mark, and does not record what was read before it.
    """
    change_mark(store, scope)
    _clean_records(store, messages, facts, scope=scope, across=across, after=after)


def _forget_late_facts(store: Store, *, evidence: AbstractSet[int] | None, scope: Scope, across: bool) -> int:
    """Remove the facts that another process read from the messages while they were being forgotten."""
    rows: list[FactRow] = store.read_facts(Select(scope=scope, across=True))
    late: list[FactRow] = []
    for row in rows:
        if evidence is None:
            is_late = across or row.scope == scope
        else:
            is_late = not evidence.isdisjoint(row.evidence)
        if is_late:
            late.append(row)
    if not late:
        return 0
    forgotten = _find_facts(rows, set(), set(), alone={row.id for row in late})
    return _forget_facts(store, rows, set(), forgotten, scope=scope, across=across)


def _read_numbers(store: Store, select: Select) -> set[int]:
    """Return the numbers of messages. They are read in parts, because a session may be long."""
    numbers: set[int] = set()
    part = replace(select, limit=_PART)
    while rows := store.read_messages(part):
        numbers.update(row.id for row in rows)
        part = replace(part, after=rows[-1].id)
    return numbers


def _find_newest_record(store: Store, scope: Scope) -> int:
    newest = store.read_records(Select(scope=scope, across=True, newest=True, limit=1))
    return max((record.id for record in newest), default=0)


def _read_all_records(store: Store, scope: Scope, *, after: int) -> Iterator[Record]:
    """Read the records of every session of an agent and project after one, oldest first, in parts."""
    part = Select(scope=scope, across=True, after=after, limit=_PART)
    while records := store.read_records(part):
        yield from records
        part = replace(part, after=records[-1].id)


def _find_facts(
    rows: Sequence[FactRow],
    messages: AbstractSet[int],
    named: AbstractSet[str],
    *,
    alone: AbstractSet[str] = frozenset(),
) -> list[FactRow]:
    """Find the named facts, others alone, and those based on forgotten messages, with every version."""
    # A fact that the user names is forgotten with those that it replaced, which may be of other sessions.
    keys = set(named)
    while True:
        earlier = {row.id for row in rows if row.superseded_by in keys} - keys
        if not earlier:
            break
        keys |= earlier
    keys |= alone
    keys |= {row.id for row in rows if not messages.isdisjoint(row.evidence)}
    return [row for row in rows if row.id in keys]


def _forget_facts(
    store: Store,
    rows: Sequence[FactRow],
    messages: AbstractSet[int],
    facts: Sequence[FactRow],
    *,
    scope: Scope,
    across: bool,
) -> int:
    """Remove facts, and every trace of them and of forgotten messages."""
    _clean_records(store, messages, facts, scope=scope, across=across)
    if not facts:
        return 0
    keys = {row.id for row in facts}
    count = store.remove_facts(Select(scope=scope, across=True), keys=tuple(sorted(keys)))
    store.add_facts(_find_revived(rows, keys))
    return count


def _find_revived(rows: Sequence[FactRow], forgotten: AbstractSet[str]) -> list[FactRow]:
    """Return the facts that hold again, because what replaced them is forgotten: nobody has forgotten these."""
    latest = {row.id: row for row in rows}
    held = {row.id: row for row in rows if does_hold(row)}
    revived: list[FactRow] = []
    for key, row in latest.items():
        if row.superseded_by in forgotten and key not in forgotten and key in held:
            revived.append(held[key])
    return revived


def _clean_records(
    store: Store, messages: AbstractSet[int], facts: Sequence[FactRow], *, scope: Scope, across: bool, after: int = 0
) -> None:
    """Remove records that quote what is forgotten, empty summaries, and record that something was forgotten.

    Only the records `after` one are read.
    """
    lines = tuple(block.fact_line(block.Fact(type=fact.type, text=fact.content)) for fact in facts)
    fact_ids = frozenset(fact.id for fact in facts)
    ids = tuple(sorted(messages))
    # The owners of the messages, and the sessions that quoted one: their hosts may have made a title of it.
    rows = store.read_messages(Select(scope=scope, across=across, ids=ids))
    titled = {row.scope for row in rows}
    sessions = {owner.session for owner in titled}
    owners = set(titled)
    removed: list[int] = []
    emptied: list[Record] = []
    tainted: set[Scope] = set()
    for record in _read_all_records(store, scope, after=after):
        is_listing = not sessions.isdisjoint(record.data.get("change", {}).get("sessions", ()))
        is_quoting = is_listing or _quotes(record.data, messages, lines, fact_ids)
        if is_quoting:
            owners.add(record.scope)
            if not is_listing:
                titled.add(record.scope)
        is_summary = record.data.get("change", {}).get("summary") is not None
        if not is_summary:
            if is_quoting:
                removed.append(record.id)
        elif is_quoting or record.scope in tainted:  # a later summary builds on the one before it
            tainted.add(record.scope)
            change = {**record.data["change"], "summary": FORGOTTEN}
            emptied.append(replace(record, data={**record.data, "change": change}))
    store.remove_records(Select(scope=scope, across=True, ids=tuple(removed)))
    edit = to_json(Edit(change=Forgotten(), ids=ids, reason="asked for", tokens_before=0, tokens_after=0))
    key = f"forgotten:{digest(repr((ids, sorted(fact_ids))))}"
    changes = [Record(scope=owner, kind=EDIT, key=key, data=edit) for owner in sorted(owners, key=repr)]
    texts = [row.message.whole_text for row in rows] + [fact.content for fact in facts]
    store.add_records([*emptied, *changes, *_clean_titles(store, titled, texts)])


def _clean_titles(store: Store, owners: AbstractSet[Scope], texts: Sequence[str]) -> list[Record]:
    """Make the titles of sessions after texts were forgotten: a title stays if it has no word of them."""
    forgotten = _find_words(texts)
    titles: list[Record] = []
    for owner in sorted(owners, key=repr):
        title = read_title(store, owner)
        words = _find_words([title])
        if not words or not words.isdisjoint(forgotten):
            title = ""
        titles.append(make_final_title(owner, title))
    return titles


def _find_words(texts: Sequence[str]) -> set[str]:
    """Return the words of texts, without single characters of a script without spaces: too many texts have these."""
    words: set[str] = set()
    for text in texts:
        words.update(term for term in terms(text) if len(term) > 1)
    return words


def _quotes(data: Mapping[str, Any], messages: AbstractSet[int], lines: Sequence[str], facts: AbstractSet[str]) -> bool:
    """Return whether a record contains words of forgotten messages or facts; most records contain only numbers."""
    change = data.get("change", {})
    recalled = data.get("recalled") or ()
    if not recalled and "text" not in change and "summary" not in change:
        return False
    if not facts.isdisjoint(change.get("facts", ())):
        return True
    numbers = {change.get("asked", 0), *data.get("ids", ()), *(hit["message"] for hit in recalled)}
    return not messages.isdisjoint(numbers) or any(line in change.get("text", "") for line in lines)
