"""Past windows, made again from the archive and the recorded edits. Internal: `Session.window` is the public call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast import providers
from holdfast.context import edits as editing
from holdfast.context.edits import Edit, Item
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import InputError, InvalidWindowError
from holdfast.report import ContextReport
from holdfast.state import EDIT, TURN, WINDOW, WindowSource, branch_edits
from holdfast.store.base import Select
from holdfast.window import Window

if TYPE_CHECKING:
    from holdfast.session import Session


def rebuild(session: Session, turn: int) -> Window:
    """Make the window of a past turn again: the same messages with the same edits.

    A turn that there is not, or whose window was not recorded or is forgotten, is an InputError.
    """
    store, scope = session.engine.memory.store, session.scope
    records = {record.key: record.data for record in store.read_records(Select(scope=scope), kind=WINDOW)}
    key = next((key for key in reversed(records) if key.startswith(f"{turn:08d}:")), None)  # two processes: the newest
    reports = store.read_records(Select(scope=scope), kind=TURN, keys=[key]) if key else ()
    if key is None or not reports:
        raise InputError(f"the window of turn {turn} of session {scope.session!r} is not stored; see Session.timeline")
    sources = {name: msgspec.convert(data, WindowSource) for name, data in records.items()}
    source = sources[key]
    history = _follow(sources, key)
    standing, new = _read_edits(session, source, present={*source.system, *history})
    items = editing.apply(_read_items(session, (*source.system, *history), (*standing, *new)), standing)
    items = editing.apply(items, new)
    had_messages = bool(source.added or source.kept)
    is_forgotten = had_messages and all(item.kind == "system" for item in items)
    valid = None if is_forgotten else _validate(items, source.provider)
    if valid is None:
        raise InputError(
            f"messages of turn {turn} of session {scope.session!r} were forgotten, and the rest is no window; see"
            " Session.timeline for other turns"
        )
    report = ContextReport.from_json(reports[-1].data)
    return Window(items=items, provider=source.provider, valid=valid, report=report)


def _validate(items: Sequence[Item], provider: str) -> ValidWindow | None:
    """Return the valid form of a past window; None if messages were forgotten that it cannot be sent without."""
    if not items:  # the caller sent its question after it
        return ValidWindow(provider=provider, messages=(), wire=(), repairs=())
    links = providers.link_reasoning([item.message for item in items])
    try:
        return validate([item.sent for item in items], provider, reasoning=links)
    except InvalidWindowError:
        return None


def _follow(sources: Mapping[str, WindowSource], key: str) -> list[int]:
    """Return the history of a turn: each turn holds only what is new since another."""
    chain: list[WindowSource] = []
    while source := sources.get(key):
        chain.append(source)
        key = source.base
    history: list[int] = []
    for source in reversed(chain):
        history[source.kept :] = source.added
    return [number for number in history if number]


def _read_edits(session: Session, source: WindowSource, *, present: set[int]) -> tuple[tuple[Edit, ...], list[Edit]]:
    """Return the edits that held before the turn, and those that it made."""
    first, stop = source.edits
    before: list[Edit] = []
    new: list[Edit] = []
    for record in session.engine.memory.store.read_records(Select(scope=session.scope), kind=EDIT):
        number = int(record.key) if record.key.isdecimal() else -1  # forgetting has no number, and always holds
        if number < stop:
            (new if number >= first else before).append(editing.from_json(record.data))
    return editing.in_force(branch_edits(before, present), limit=source.limit), new


def _read_items(session: Session, numbers: tuple[int, ...], edits: tuple[Edit, ...]) -> list[Item]:
    """Read the messages of a window; those that left it are not read."""
    gone = editing.removed(edits)
    wanted = tuple(number for number in numbers if number not in gone)
    rows = session.engine.memory.store.read_messages(Select(scope=session.scope, ids=wanted))
    by_number = {row.id: row.message for row in rows}
    found = [number for number in wanted if number in by_number]
    return session.state.make_items([by_number[number] for number in found], found)
