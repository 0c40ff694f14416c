"""Link entries into a tree, and rebuild the model's context from a path of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Problem
from holdfast.transcripts.records import LEAF, TYPES, messages_of, summary_message

__all__ = ["Context", "ModelRef", "Tree", "compaction_region", "rebuild", "rebuild_path"]

_MISSING: Final = object()


class Tree:
    """The entries of one session, added in file order.

    Attributes:
        leaf: The last entry of the visible conversation; None before the first one.
        cursor: The last entry of the file: ahead of the leaf after side entries and entries of unknown types.
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
        """Return the entry of that id."""
        return self._entries.get(entry_id)

    def add(self, entry: Entry) -> str | None:
        """Add the next entry of the file; return a description of what is wrong with it, else None."""
        if entry.id is None:
            return "an entry without an id: kept, but not part of the conversation"
        if entry.id in self._entries:
            first = self._entries[entry.id].line
            return f"id {entry.id} is taken by line {first}: kept, but not part of the conversation"
        problem = None
        if entry.type == LEAF:
            problem = self._move(entry, entry.id)
        elif entry.type in TYPES or "parentId" in entry.data:
            self._link(entry, entry.id)
        self._entries[entry.id] = entry
        return problem

    def _link(self, entry: Entry, entry_id: str) -> None:
        visible = entry.type in TYPES and not entry.sidechain
        parent = entry.parent if "parentId" in entry.data else self.leaf
        if visible and parent == self.cursor:
            # Some writers use the last entry of the file as the parent; the visible leaf is meant.
            parent = self.leaf
        self._parents[entry_id] = self._resolve(parent)
        self.cursor = entry_id
        if visible:
            self.leaf = entry_id
        if entry.type == "label":
            self._set_label(entry)

    def _move(self, entry: Entry, entry_id: str) -> str | None:
        """Apply a leaf entry; one without a valid target changes nothing, and its children stay reachable."""
        target = entry.data.get("targetId", _MISSING)
        cursor = entry.data.get("appendParentId", target)
        if not (self._is_target(target) and self._is_target(cursor)):
            self._parents[entry_id] = entry.parent
            self._invalid.add(entry_id)
            return "a move that points at no earlier entry: ignored"
        self._parents[entry_id] = target
        self.leaf = self._resolve(target)
        self.cursor = cursor
        return None

    def _is_target(self, reference: Any) -> bool:
        if reference is None:
            return True
        return isinstance(reference, str) and reference in self._entries and reference not in self._invalid

    def _resolve(self, entry_id: str | None) -> str | None:
        """Return the entry itself, or the target if it is a move."""
        seen: set[str] = set()
        while entry_id is not None and entry_id not in seen and self._is_move(entry_id):
            seen.add(entry_id)
            entry_id = self._parents[entry_id]
        return entry_id

    def _is_move(self, entry_id: str) -> bool:
        return entry_id in self._entries and self._entries[entry_id].type == LEAF

    def restore_leaf(self, leaf: str | None) -> None:
        """Return to `leaf`, unless the conversation continued from it."""
        if leaf == self.leaf or leaf not in self._entries:
            return
        if all(entry.id != leaf for entry in self.path(self.leaf)):
            self.leaf = self.cursor = leaf

    def _set_label(self, entry: Entry) -> None:
        target, label = entry.data.get("targetId"), entry.data.get("label")
        if not isinstance(target, str):
            return
        if isinstance(label, str) and label.strip():
            self.labels[target] = label.strip()
        else:
            self.labels.pop(target, None)

    def path(self, leaf: str | None) -> tuple[Entry, ...]:
        """Return the entries from the root to `leaf`. A parent that is not in the file ends the walk."""
        entries: list[Entry] = []
        seen: set[str] = set()
        while leaf is not None and leaf in self._entries and leaf not in seen:
            seen.add(leaf)
            if not self._is_move(leaf):
                entries.append(self._entries[leaf])
            leaf = self._parents.get(leaf)
        return tuple(reversed(entries))

    def children(self, parent: str | None) -> tuple[Entry, ...]:
        """Return the children of `parent` in file order; the roots for None."""
        linked = (entry_id for entry_id, above in self._parents.items() if above == parent)
        return tuple(self._entries[entry_id] for entry_id in linked if not self._is_move(entry_id))

    def orphans(self) -> Iterator[Entry]:
        """Yield the entries whose parent is not in the file."""
        for entry_id, parent in self._parents.items():
            if parent is not None and parent not in self._entries:
                yield self._entries[entry_id]


# --- the model's context -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model and its provider."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The messages that the model sees, and the model's settings.

    Attributes:
        messages: The conversation, each message with its entry's id.
        model: The model in use, by the last change or the last reply.
        thinking_level: The thinking level in use.
        compaction: The newest compaction, whose summary replaces what came before.
        problems: Entries whose message could not be read, and so is not in `messages`.
    """

    messages: tuple[Message, ...] = ()
    model: ModelRef | None = None
    thinking_level: str = "off"
    compaction: Entry | None = None
    problems: tuple[Problem, ...] = ()


def rebuild(entries: Iterable[Entry], leaf: str | None = None) -> Context:
    """Rebuild the context at `leaf`, or at the tree's own leaf if it is not given or unknown."""
    tree = Tree(entries)
    return rebuild_path(tree.path(leaf if leaf in tree else tree.leaf))


def rebuild_path(path: Sequence[Entry]) -> Context:
    """Rebuild the context at the end of a path: the newest summary, the entries it kept, and those after it."""
    at = _find_compaction(path)
    compaction = None if at is None else path[at]
    messages: list[Message] = []
    problems: list[Problem] = []
    for entry in (*([] if compaction is None else [compaction]), *compaction_region(path)):
        try:
            messages += [summary_message(entry)] if entry is compaction else messages_of(entry)
        except FormatError as error:
            problems.append(Problem(entry.line, f"{error}; kept in the file, left out of the context"))
    return Context(
        messages=tuple(messages),
        model=_find_model(path),
        thinking_level=_find_thinking_level(path),
        compaction=compaction,
        problems=tuple(problems),
    )


def compaction_region(path: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries that the next compaction must consider: those that no summary replaces.

    These are the entries from `firstKeptEntryId` of the newest compaction on, without the compactions.
    """
    at = _find_compaction(path)
    if at is None:
        return tuple(path)
    first = path[at].data.get("firstKeptEntryId")
    start = next((index for index in range(at) if path[index].id == first), at)
    return tuple(entry for entry in path[start:] if entry.type != "compaction")


def _find_compaction(path: Sequence[Entry]) -> int | None:
    return next((index for index in reversed(range(len(path))) if path[index].type == "compaction"), None)


def _find_model(path: Sequence[Entry]) -> ModelRef | None:
    return next((model for entry in reversed(path) if (model := _get_model(entry))), None)


def _get_model(entry: Entry) -> ModelRef | None:
    if entry.type == "model_change":
        provider, model = entry.data.get("provider"), entry.data.get("modelId")
    else:
        message = entry.data.get("message")
        if entry.type != "message" or not isinstance(message, Mapping) or message.get("role") != "assistant":
            return None
        provider, model = message.get("provider"), message.get("model")
    if not isinstance(model, str) or not model:
        return None
    return ModelRef(provider if isinstance(provider, str) else "", model)


def _find_thinking_level(path: Sequence[Entry]) -> str:
    changes = (entry.data.get("thinkingLevel") for entry in reversed(path) if entry.type == "thinking_level_change")
    return next((level for level in changes if isinstance(level, str)), "off")
