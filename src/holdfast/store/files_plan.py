"""What has to be written to a memory-context folder to keep some rows: decided first, written in one go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from holdfast.errors import ConflictError, InputError
from holdfast.search.columns import Floats
from holdfast.search.embed.base import Space
from holdfast.store.base import FactRow, Job, MessageRow, Record, Row, Scope, VectorRow
from holdfast.store.codec import to_json
from holdfast.store.files_index import FilesIndex
from holdfast.store.files_state import JOURNAL, KNOWLEDGE, SEGMENTS, State
from holdfast.store.lines_file import encode_line
from holdfast.store.segments import OWN, content_key, content_of, fact_digest, fact_line, scope_to_json, segment_line

__all__ = ["Plan"]


class Plan:
    """Lines for each file, and vectors, of one batch of rows. The state is not touched until it is written."""

    def __init__(
        self, state: State, clock: Callable[[], int], new_id: Callable[[], str], *, index: Callable[[], FilesIndex]
    ) -> None:
        self.vectors: dict[Space, dict[int, dict[int, Floats]]] = defaultdict(lambda: defaultdict(dict))
        self._state, self._clock, self._new_id, self._index = state, clock, new_id, index
        self._lines: list[tuple[str, dict[str, Any]]] = []
        self._numbers = dict(state.numbers)
        self._known: dict[tuple[Scope, str, str], int] = {}
        self._contents: set[tuple[Scope, str, str]] = set()
        self._records: dict[tuple[Scope, str, str], int] = {}

    def take(self, row: Row) -> int:
        """Plan for a row; its number is returned."""
        match row:
            case MessageRow(id=0):
                return self._message(row)
            case MessageRow():
                return self._flags(row)
            case VectorRow():
                return self._vector(row)
            case FactRow():
                return self._fact(row)
            case Record():
                return self._record(row)
            case Job():
                number = self._next("job")
                self._own("job", n=number, scope=row.scope, of=row.kind, time=row.time, data=dict(row.data))
                return number

    def _next(self, kind: str) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind]

    def _own(self, kind: str, *, scope: Scope | None = None, **fields: Any) -> None:
        owner = {} if scope is None else {"scope": scope_to_json(scope)}
        self._lines.append((JOURNAL, {"kind": kind, **owner, **fields}))

    def _message(self, row: MessageRow) -> int:
        key = (row.scope, row.message.digest, row.nonce)
        if self._state.is_forgotten(key, time=row.message.timestamp or 0):
            return 0
        known = self._known.get(key) or self._state.known.get(key) or self._state.foreign.get(key[:2])
        if known:
            return known
        number = self._known[key] = self._next("message")
        content = content_of(row)
        mark = content_key(row.scope, row.message.role, content)
        if content and mark not in self._state.contents and mark not in self._contents:
            self._contents.add(mark)
            self._segment(row, content, number)
        else:
            self._other(row, number)
        if row.pinned or row.buried:
            self._own("flags", of=number, pinned=row.pinned, buried=row.buried)
        return number

    def _other(self, row: MessageRow, number: int) -> None:
        """Keep what the plugin does not: tool calls and results, noise, words that stand there already."""
        text = "".join(passage.text for passage in row.passages)
        about = {"digest": row.message.digest, "nonce": row.nonce, "at": self._clock(), "body": to_json(row.message)}
        self._own("message", n=number, scope=row.scope, **about, **({"text": text} if text else {}))

    def _segment(self, row: MessageRow, content: str, number: int) -> None:
        own = {"n": number, "scope": scope_to_json(row.scope), "digest": row.message.digest, "nonce": row.nonce}
        line = segment_line(row, content, name=self._new_id(), now=self._clock(), own=own)
        self._lines.append((SEGMENTS, line))

    def _flags(self, row: MessageRow) -> int:
        entry = self._state.messages.get(row.id)
        if entry is None or entry.scope != row.scope:
            return 0
        self._own("flags", of=row.id, pinned=row.pinned, buried=row.buried)
        return row.id

    def _fact(self, row: FactRow) -> int:
        if (row.scope, fact_digest(row.id)) in self._state.forgotten:
            return 0
        everyones = row.id in self._state.shared and row.scope == Scope()
        own = None if everyones else {"scope": scope_to_json(row.scope)}
        self._lines.append((KNOWLEDGE, fact_line(row, own=own)))
        return self._next("fact")

    def _record(self, row: Record) -> int:
        key = (row.scope, row.kind, row.key)
        known = self._state.record_numbers.get(key) or self._records.get(key)
        if known and row.is_new:
            path = self._state.journal.path
            raise ConflictError(f"another process has recorded {row.kind} {row.key}: try again", path=path)
        number = known or self._next("record")
        self._records[key] = number
        self._own("record", n=number, scope=row.scope, of=row.kind, key=row.key, time=row.time, data=dict(row.data))
        return number

    def _vector(self, row: VectorRow) -> int:
        index = self._index()
        if not 0 <= row.passage < len(index.places) or index.is_evicted(row.passage):
            return 0
        windows = index.inner.columns.window_range(row.passage)
        shape = (len(windows), row.space.dimension)
        if row.vectors.shape != shape or row.vectors.dtype != np.int8:
            raise InputError(f"passage {row.passage} takes {shape[0]} vectors of {shape[1]} signed bytes")
        message, _ = index.places[row.passage]
        first = windows.start - index.windows(message).start
        held = self.vectors[row.space][message]
        held.update((first + place, vector.astype(np.float32)) for place, vector in enumerate(row.vectors))
        return row.passage + 1

    def write(self) -> None:
        """Write every line; they count together, once all are there."""
        if len(self._lines) > 1:
            batch = (self._next("batch"), len(self._lines))
            self._lines = [(name, _in_batch(name, line, batch)) for name, line in self._lines]
        for name, file in self._state.files.items():
            file.append([encode_line(line) for target, line in self._lines if target == name])


def _in_batch(name: str, line: Mapping[str, Any], batch: tuple[int, int]) -> dict[str, Any]:
    if name == JOURNAL:
        return {**line, "batch": batch}
    return {**line, OWN: {**line.get(OWN, {}), "batch": batch}}
