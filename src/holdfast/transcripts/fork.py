"""A path taken out of its tree, to begin another session with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.transcripts.entry import Entry
from holdfast.transcripts.records import iso_time, short_id

__all__ = ["forked"]


def forked(
    path: Sequence[Entry], *, labels: Mapping[str, str], now: int, new_id: Callable[[], str]
) -> Iterator[dict[str, Any]]:
    """The records of a session that begins with `path`: its entries in one line, then the labels they carry.

    Label entries themselves stay behind, so whatever pointed at one points at the entry after it.
    """
    kept = [entry for entry in path if entry.type != "label"]
    moved = _successors(path)
    taken = {str(entry.id) for entry in kept}
    last: str | None = None
    for entry in kept:
        yield _record(entry, parent=last, moved=moved)
        last = entry.id
    for target in (entry.id for entry in kept if entry.id in labels):
        label_id = short_id(new_id, taken=taken.__contains__)
        taken.add(label_id)
        named = {"targetId": target, "label": labels[str(target)]}
        yield {"type": "label", "id": label_id, "parentId": last, "timestamp": iso_time(now), **named}
        last = label_id


def _record(entry: Entry, *, parent: str | None, moved: Mapping[str, str]) -> dict[str, Any]:
    record = {**entry.data, "parentId": parent}
    record.pop("appendMode", None)  # on the path it is no longer on the side
    first = record.get("firstKeptEntryId")
    return {**record, "firstKeptEntryId": moved.get(first, first)} if isinstance(first, str) else record


def _successors(path: Sequence[Entry]) -> dict[str, str]:
    """For each label entry the next entry that is none, where there is one."""
    found: dict[str, str] = {}
    after: str | None = None
    for entry in reversed(path):
        if entry.type != "label":
            after = entry.id
        elif entry.id is not None and after is not None:
            found[entry.id] = after
    return found
