"""Entries linked into a tree: who follows whom, where the visible leaf is, what the labels say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from holdfast.transcripts.entry import Entry
from holdfast.transcripts.records import LEAF, TYPES

__all__ = ["Tree"]

_NOWHERE: Final = object()


class Tree:
    """The entries of one session, added in file order.

    Attributes:
        leaf: The entry that the conversation stands at; None before the first one.
        cursor: The entry that the file stands at. It runs ahead of the leaf over side entries and over
            types that we do not know.
        labels: The name that the user gave an entry, by its id.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.leaf: str | None = None
        self.cursor: str | None = None
        self.labels: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}
        self._parents: dict[str, str | None] = {}
        self._invalid: set[str] = set()
        for entry in entries:
            self.add(entry)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._entries

    def get(self, entry_id: str) -> Entry | None:
        """The entry of that id."""
        return self._entries.get(entry_id)

    def add(self, entry: Entry) -> str | None:
        """Take the next entry of the file; what is wrong with it comes back in words."""
        if entry.id is None:
            return "an entry without an id: kept, but no part of the conversation"
        if entry.id in self._entries:
            first = self._entries[entry.id].line
            return f"id {entry.id} is taken by line {first}: kept, but no part of the conversation"
        wrong = None
        if entry.type == LEAF:
            wrong = self._move(entry, entry.id)
        elif entry.type in TYPES or "parentId" in entry.data:
            self._link(entry, entry.id)
        self._entries[entry.id] = entry
        return wrong

    def _link(self, entry: Entry, entry_id: str) -> None:
        visible = entry.type in TYPES and not entry.sidechain
        parent = entry.parent if "parentId" in entry.data else self.leaf
        if visible and parent == self.cursor:
            # Some writers hang an entry on whatever the file ends with; what it answers to is the visible leaf.
            parent = self.leaf
        self._parents[entry_id] = self._visible(parent)
        self.cursor = entry_id
        if visible:
            self.leaf = entry_id
        if entry.type == "label":
            self._label(entry)

    def _move(self, entry: Entry, entry_id: str) -> str | None:
        """Follow a leaf entry; one that points nowhere changes nothing, and what hangs on it stays reachable."""
        target = entry.data.get("targetId", _NOWHERE)
        cursor = entry.data.get("appendParentId", target)
        if not (self._known(target) and self._known(cursor)):
            self._parents[entry_id] = entry.parent
            self._invalid.add(entry_id)
            return "a move that points at no earlier entry: ignored"
        self._parents[entry_id] = target
        self.leaf = self._visible(target)
        self.cursor = cursor
        return None

    def _known(self, reference: Any) -> bool:
        if reference is None:
            return True
        return isinstance(reference, str) and reference in self._entries and reference not in self._invalid

    def _visible(self, entry_id: str | None) -> str | None:
        """The entry itself, or where it leads to if it is a move."""
        seen: set[str] = set()
        while entry_id is not None and entry_id not in seen and self._is_move(entry_id):
            seen.add(entry_id)
            entry_id = self._parents[entry_id]
        return entry_id

    def _is_move(self, entry_id: str) -> bool:
        return entry_id in self._entries and self._entries[entry_id].type == LEAF

    def stay(self, leaf: str | None) -> None:
        """Stand at `leaf` again, unless the conversation went on from it."""
        if leaf == self.leaf or leaf not in self._entries:
            return
        if all(entry.id != leaf for entry in self.path(self.leaf)):
            self.leaf = self.cursor = leaf

    def _label(self, entry: Entry) -> None:
        target, label = entry.data.get("targetId"), entry.data.get("label")
        if not isinstance(target, str):
            return
        if isinstance(label, str) and label.strip():
            self.labels[target] = label.strip()
        else:
            self.labels.pop(target, None)

    def path(self, leaf: str | None) -> tuple[Entry, ...]:
        """The entries from the root to `leaf`. A parent that is not in the file ends the walk."""
        found: list[Entry] = []
        seen: set[str] = set()
        while leaf is not None and leaf in self._entries and leaf not in seen:
            seen.add(leaf)
            if not self._is_move(leaf):
                found.append(self._entries[leaf])
            leaf = self._parents.get(leaf)
        return tuple(reversed(found))

    def children(self, parent: str | None) -> tuple[Entry, ...]:
        """The entries that follow `parent` directly, in file order; the roots for None."""
        linked = (entry_id for entry_id, above in self._parents.items() if above == parent)
        return tuple(self._entries[entry_id] for entry_id in linked if not self._is_move(entry_id))

    def orphans(self) -> Iterator[Entry]:
        """Entries whose parent is not in the file: what came before them is out of reach."""
        for entry_id, parent in self._parents.items():
            if parent is not None and parent not in self._entries:
                yield self._entries[entry_id]
