"""`vectors.bin` of a memory-context folder, shared with the plugin.

The file does not name the model that made its vectors. An embedder is tried: if it makes the same vectors of some
segments again, those of all segments are used for search, and new segments get theirs in the file. Otherwise it is left
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from holdfast.embed.base import unit
from holdfast.index.database import Database
from holdfast.index.tables import count_passages, decode_windows
from holdfast.index.vectors import quantise
from holdfast.search.passages import WHOLE
from holdfast.store.base import Record, Scope, Select, VectorRow
from holdfast.store.codec import bytes_text
from holdfast.store.plugin_files import FOREIGN, OWNER, SEGMENTS, segment_of, segment_row
from holdfast.store.rows import Tables
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite_vectors import passages_without_vectors, space_number
from holdfast.store.vmem import Floats, Vectors, append_vectors, read_vectors, remove_vectors, write_vectors
from holdfast.transcripts import journal
from holdfast.transcripts.lines import parse_line

if TYPE_CHECKING:
    from holdfast.embed.base import Embedder, Space

VECTORS: Final = "vectors.bin"
SAMPLES: Final = 8
"""Segments that are embedded again to learn whether an embedder made the vectors."""
MIN_COSINE: Final = 0.98
"""The least similarity of a vector made again. Other models, and other uses of the same model, are far below it."""
PLUGIN_CHARACTERS: Final = 2_000
"""Characters of a segment that the plugin embeds."""
_BATCH: Final = 500

MessageKey: TypeAlias = tuple[Scope, str, str]
"""The scope, digest and nonce of a message."""


class SharedVectors:
    """The vectors of a folder's segments, in the plugin's file and in our database.

    The caller keeps other processes of ours from writing while `append`, `write` or `remove` run.
    """

    def __init__(self, folder: Path, store: SqliteStore) -> None:
        self._folder = folder
        self._path = folder / VECTORS
        self._store = store
        self._taken_over: dict[Space, tuple[list[int], int]] = {}
        self._listed: tuple[list[int], Vectors] | None = None
        self._names: dict[MessageKey, str] = {}
        self._names_read: tuple[int, int, int] = (0, 0, 0)

    def take_over(self, embedder: Embedder, *, limit: int) -> int:
        """Store vectors of passages that have none, if the embedder makes the same; return how many got theirs.

        It stops when about `limit` of them have.
        """
        space = embedder.space
        seen = (self._stamp(), self._store.read("", count_passages))
        if self._taken_over.get(space) == seen or not self._ask(embedder):
            return 0
        vectors = read_vectors(self._path)
        if vectors is None:
            return 0
        missing = self._store.read("", _list_missing, space)
        count = 0
        for start in range(0, len(missing), _BATCH):
            if count >= limit:
                return count
            count += self._take_over_some(missing[start : start + _BATCH], vectors, space)
        self._taken_over[space] = seen
        return count

    def _take_over_some(self, numbers: Sequence[int], vectors: Vectors, space: Space) -> int:
        passages = self._store.read("", _first_passages, numbers)
        names = self._segment_names([passage.message for passage in passages])
        rows: list[VectorRow] = []
        for passage in passages:
            vector = vectors.rows.get(names.get(passage.message, ""))
            if vector is not None:
                rows.append(passage.with_vector(vector, space))
        return self._store.add_vectors(rows)

    def append(self, rows: Sequence[VectorRow]) -> None:
        """Append the vectors of segments that the file does not have, if it has those of their space."""
        for space in {row.space for row in rows}:
            verdict = self._verdicts().get(_space_key(space))
            if verdict is not None and verdict["is_same"] and verdict["file"] == self._stamp():
                self._append(space, {row.passage: row.vectors for row in rows if row.space == space})

    def _append(self, space: Space, windows: Mapping[int, Any]) -> None:
        """Append the mean of the windows of each segment; `windows` has their vectors by passage."""
        known = self._list()
        if known is None:
            return
        passages = self._store.read("", _first_passages, list(windows))
        names = self._segment_names([passage.message for passage in passages])
        new: dict[str, Floats] = {}
        for passage in passages:
            name = names.get(passage.message)
            if name is not None and name not in known.rows:
                mean = windows[passage.number].mean(axis=0, dtype=np.float32)
                new[name] = unit(mean[None])[0]
        if not new:
            return
        appended = append_vectors(self._path, new, known=known)
        if appended is not None:
            self._listed = (self._stamp(), appended)
            self._note(space, is_same=True)

    def write(self, vectors: Mapping[int, Floats], space: Space) -> None:
        """Write a new file with the vectors of segments, by the number of their message."""
        names = self._segment_names(list(vectors))
        rows = {name: vectors[number] for number, name in names.items()}
        write_vectors(self._path, rows, dimension=space.dimension)
        self._note(space, is_same=True)

    def remove(self, names: set[str]) -> None:
        """Remove the vectors of segments from every vector file of the folder."""
        before = self._stamp()
        for path in self._folder.glob("*.bin"):
            remove_vectors(path, names)
        after = self._stamp()
        if after == before:
            return
        # The rest of the file is still of the same space.
        known = [(key, data) for key, data in self._verdicts().items() if data["file"] == before]
        self._store.add_records([_record(key, {**data, "file": after}) for key, data in known])

    # --- whose vectors they are ---------------------------------------------------------

    def _ask(self, embedder: Embedder) -> bool:
        """Return whether an embedder makes the vectors of the file; it is asked once for each version of the file."""
        stamp = self._stamp()
        verdict = self._verdicts().get(_space_key(embedder.space))
        if verdict is not None and verdict["file"] == stamp:
            return bool(verdict["is_same"])
        vectors = read_vectors(self._path)
        if vectors is None:
            return False
        is_same = vectors.dimension == embedder.space.dimension and self._makes(embedder, vectors)
        if self._stamp() == stamp:
            self._note(embedder.space, is_same=is_same)
        return is_same

    def _makes(self, embedder: Embedder, vectors: Vectors) -> bool:
        """Embed some segments again, short ones if there are any, and compare the vectors.

        The vector of a long segment may be that of its beginning, or the mean of its parts.
        """
        texts: dict[str, str] = {}
        short = 0
        path = self._folder / SEGMENTS
        with journal.storage(path), path.open("rb") as file:
            for raw in file:
                data = segment_of(parse_line(raw, 0))
                if data is None or data["id"] not in vectors.rows or not data["content"].strip():
                    continue
                texts[data["id"]] = data["content"]
                if len(data["content"]) <= WHOLE:
                    short += 1
                if short == SAMPLES:
                    break
        names = sorted(texts, key=lambda name: len(texts[name]))[:SAMPLES]
        if not names:
            return False
        made = embedder.embed([texts[name][:PLUGIN_CHARACTERS] for name in names], kind="passage")
        stored = unit(np.stack([vectors.rows[name] for name in names]))
        return bool(((made * stored).sum(axis=1) >= MIN_COSINE).all())

    def _stamp(self) -> list[int]:
        """Return what changes when another program writes the file."""
        try:
            status = self._path.stat()
        except OSError:
            return []
        return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]

    def _verdicts(self) -> dict[str, Mapping[str, Any]]:
        """Return the verdicts of embedders about the file, by space."""
        return {row.key: row.data for row in self._store.read_records(Select(scope=OWNER), kind="vectors")}

    def _note(self, space: Space, *, is_same: bool) -> None:
        self._store.add_records([_record(_space_key(space), {"file": self._stamp(), "is_same": is_same})])

    # --- which segment is which message -------------------------------------------------

    def _list(self) -> Vectors | None:
        """Read the file without its vectors; again only if it has changed."""
        stamp = self._stamp()
        if self._listed is None or self._listed[0] != stamp:
            vectors = read_vectors(self._path)
            if vectors is None:
                return None
            nothing = np.zeros(0, np.float32)
            self._listed = (stamp, replace(vectors, rows=dict.fromkeys(vectors.rows, nothing)))
        return self._listed[1]

    def _segment_names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the ids of the segments of messages, by the number of the message."""
        keys = self._store.read("", _message_keys, numbers)
        has_own = any(not nonce.startswith(FOREIGN) for _, _, nonce in keys.values())
        own = self._own_names() if has_own else {}
        names: dict[int, str] = {}
        for number, key in keys.items():
            nonce = key[2]
            if nonce.startswith(FOREIGN):
                names[number] = nonce.removeprefix(FOREIGN)
            elif key in own:
                names[number] = own[key]
        return names

    def _own_names(self) -> dict[MessageKey, str]:
        """Return the ids of the segments that we wrote; lines are read once."""
        path = self._folder / SEGMENTS
        with journal.storage(path), path.open("rb") as file:
            status = path.stat()
            device, inode, offset = self._names_read
            if (device, inode) != (status.st_dev, status.st_ino):
                self._names = {}
                offset = 0
            file.seek(offset)
            lines = [line for line in file if line.endswith(b"\n")]
        for raw in lines:
            data = segment_of(parse_line(raw, 0)) if b'"holdfast"' in raw else None
            row = None if data is None else segment_row(data)
            if data is not None and row is not None:
                self._names[row.scope, row.message.digest, row.nonce] = data["id"]
        self._names_read = (status.st_dev, status.st_ino, offset + sum(map(len, lines)))
        return self._names


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstPassage:
    """The first passage of a message: a vector of the whole message belongs to it."""

    number: int
    message: int
    windows: int

    def with_vector(self, vector: Floats, space: Space) -> VectorRow:
        """Give each window the vector of the message."""
        whole = quantise(unit(vector[None]))
        return VectorRow(space=space, passage=self.number, vectors=whole.repeat(self.windows, axis=0))


def _first_passages(db: Database, numbers: Sequence[int]) -> list[_FirstPassage]:
    """Read those of these passages that are the first of their message."""
    wanted, values = db.among("number", numbers)
    query = f"SELECT number, message, windows FROM passages WHERE {wanted} AND start = 0 AND alive = 1"
    found: list[_FirstPassage] = []
    for number, message, windows in db.execute(query, values):
        found.append(_FirstPassage(number=number, message=message, windows=len(decode_windows(windows))))
    return found


def _list_missing(db: Database, space: Space) -> list[int]:
    """List the passages that have no vectors in a space."""
    number = space_number(db, space, create=False)
    return passages_without_vectors(db, number, limit=count_passages(db))


def _message_keys(db: Tables, numbers: Sequence[int]) -> dict[int, MessageKey]:
    """Read the scope, digest and nonce of messages by their number."""
    scopes = db.cache.scopes
    scopes.load(db)
    wanted, values = db.among("id", numbers)
    keys: dict[int, MessageKey] = {}
    found = db.execute(f"SELECT id, scope, digest, nonce FROM messages WHERE {wanted}", values)
    for number, scope, digest, nonce in found:
        keys[number] = (scopes[scope], bytes(digest).hex(), bytes_text(nonce))
    return keys


def _space_key(space: Space) -> str:
    return f"{space.name}:{space.dimension}:{space.digest}"


def _record(key: str, data: Mapping[str, Any]) -> Record:
    return Record(scope=OWNER, kind="vectors", key=key, data=data)
