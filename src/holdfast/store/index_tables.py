"""The tables of the index of a SQLite store: passages, posting lists, vectors.

The terms of new passages go to the table `pending`, which a search reads whole. Every 512 passages are indexed: their
columns become a block, their posting lists a run. Four runs of one size are merged into one of the next, so that there
are few. All of it happens in the caller's transaction: what is archived can be found at once, and a rollback undoes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, groupby, pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.messages import Message
from holdfast.search import columns as columnar
from holdfast.search import postings as posting
from holdfast.search.columns import PASSAGE_TYPES, Columns
from holdfast.search.embed.base import Space
from holdfast.search.postings import Lists, term_ids
from holdfast.store.base import PassageText, VectorRow
from holdfast.store.codec import pack_text, text_bytes, words
from holdfast.store.sqlite_rows import clamp_time

BLOCK_PASSAGES: Final = 512
"""Passages in a block and in a new run."""
RUNS_PER_MERGE: Final = 4
"""Runs of one level that become one of the next."""
MAX_MERGES: Final = 3
"""How often a run is merged. The largest has 32,768 passages; merging more would make one writer wait for seconds."""

_SPAN: Final = 12
"""Bytes of a window: its start, its stop, and its number of terms."""

NewMessage: TypeAlias = tuple[Message, Sequence[PassageText], int, int]
"""An archived message, its passages, and the numbers of its scope and of itself."""

_INSERT: Final = """
INSERT INTO passages(number, message, scope, time, previous, human, speaker, start, windows, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def add_passages(connection: sqlite3.Connection, new: Sequence[NewMessage]) -> None:
    """Add the passages of messages, numbered on from the last, and index full batches."""
    first = count_passages(connection)
    query = "SELECT coalesce(max(number), -1) FROM passages WHERE scope = ?"
    latest = {scope: connection.execute(query, (scope,)).fetchone()[0] for scope in {scope for _, _, scope, _ in new}}
    rows: list[tuple[object, ...]] = []
    added: list[PassageText] = []
    for message, passages, scope, number in new:
        text = words(message) if passages else ""
        speaker = text_bytes(message.name or message.role)
        for passage in passages:
            about = (number, scope, clamp_time(message.timestamp or 0), latest[scope], message.role == "user", speaker)
            latest[scope] = first + len(rows)
            # The message has the text of most passages, at the same place.
            windows, is_whole = _encode_windows(passage), passage.windows[-1][1] == len(passage.text)
            is_shared = is_whole and text.startswith(passage.text, passage.start)
            stored = None if is_shared else pack_text(passage.text)
            rows.append((first + len(rows), *about, passage.start, windows, stored))
            added.append(passage)
    connection.executemany(_INSERT, rows)
    _add_unindexed(connection, range(first, first + len(rows)), added)
    index_full_batches(connection)


def reindex_passages(connection: sqlite3.Connection, passages: Sequence[PassageText]) -> None:
    """Add stored passages to an index that was emptied, with their present windows and terms."""
    update = "UPDATE passages SET windows = ? WHERE number = ?"
    connection.executemany(update, ((_encode_windows(passage), passage.number) for passage in passages))
    _add_unindexed(connection, (passage.number for passage in passages), passages)


def _add_unindexed(connection: sqlite3.Connection, numbers: Iterable[int], passages: Sequence[PassageText]) -> None:
    """Store the terms of passages until they are indexed."""
    by_window = chain.from_iterable(passage.terms for passage in passages)
    terms = term_ids(list(chain.from_iterable(by_window)))
    stops = accumulate((sum(map(len, passage.terms)) for passage in passages), initial=0)
    connection.executemany(
        "INSERT INTO pending(number, terms) VALUES (?, ?)",
        ((number, terms[start:stop].tobytes()) for number, (start, stop) in zip(numbers, pairwise(stops), strict=True)),
    )


def _encode_windows(passage: PassageText) -> bytes:
    """Encode the start, stop and number of terms of each window of a passage."""
    if not passage.windows or len(passage.windows) != len(passage.terms):
        raise InputError("a passage has at least one window, and terms for each")
    rows = [(start, stop, len(terms)) for (start, stop), terms in zip(passage.windows, passage.terms, strict=True)]
    return np.array(rows, np.uint32).tobytes()


def decode_windows(data: bytes) -> npt.NDArray[np.uint32]:
    """Decode rows of start, stop and number of terms."""
    return np.frombuffer(data, np.uint32).reshape(-1, 3)


def count_passages(connection: sqlite3.Connection) -> int:
    """Count the passages, forgotten ones included."""
    return int(connection.execute("SELECT coalesce(max(number) + 1, 0) FROM passages").fetchone()[0])


def count_indexed(connection: sqlite3.Connection) -> int:
    """Count the passages that are in runs."""
    return int(connection.execute("SELECT coalesce(max(stop), 0) FROM runs").fetchone()[0])


def mark_rewritten(connection: sqlite3.Connection) -> None:
    """Make every process read the index again."""
    connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'rewritten'")


def read_columns(connection: sqlite3.Connection, columns: Columns, *, first: int, stop: int) -> None:
    """Add the passages from `first` up to `stop` to columns."""
    wanted = "message, scope, time, previous, human, alive, windows"
    query = f"SELECT {wanted} FROM passages WHERE number >= ? AND number < ? ORDER BY number"
    rows = connection.execute(query, (first, stop)).fetchall()
    if not rows:
        return
    *values, blobs = zip(*rows, strict=True)
    spans = decode_windows(b"".join(blobs))
    counts = np.fromiter(map(len, blobs), np.int64) // _SPAN
    starts = counts.cumsum() - counts
    names = ("message", "scope", "time", "previous", "human", "alive")
    columns.extend(
        {
            **{name: np.array(value, PASSAGE_TYPES[name]) for name, value in zip(names, values, strict=True)},
            "size": spans[starts + counts - 1, 1] - spans[starts, 0],
            "length": np.add.reduceat(spans[:, 2], starts),
            "first_window": starts,
            "passage": np.arange(len(rows)).repeat(counts),
            "window_length": spans[:, 2],
        }
    )


def index_full_batches(connection: sqlite3.Connection, *, stop: int | None = None) -> None:
    """Put full batches of unindexed passages (up to `stop`) into blocks and runs, and merge runs."""
    first, stop = count_indexed(connection), count_passages(connection) if stop is None else stop
    for start in range(first, stop - BLOCK_PASSAGES + 1, BLOCK_PASSAGES):
        end = start + BLOCK_PASSAGES
        columns = Columns()
        read_columns(connection, columns, first=start, stop=end)
        last = connection.execute("SELECT first_window, windows FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
        first_window = sum(last or ())
        connection.execute(
            "INSERT INTO blocks(first, first_window, windows, data) VALUES (?, ?, ?, ?)",
            (start, first_window, columns.windows, columnar.encode(columns)),
        )
        query = "SELECT terms FROM pending WHERE number >= ? AND number < ? ORDER BY number"
        terms = np.frombuffer(b"".join(data for (data,) in connection.execute(query, (start, end))), np.int64)
        windows = np.arange(first_window, first_window + columns.windows, dtype=np.uint32)
        _write_run(connection, (start, end, 0), posting.gather(windows.repeat(columns["window_length"]), terms))
        connection.execute("DELETE FROM pending WHERE number < ?", (end,))
    for level in range(MAX_MERGES if stop - first >= BLOCK_PASSAGES else 0):
        while _merge(connection, level):
            pass


def _write_run(connection: sqlite3.Connection, run: tuple[int, int, int], lists: Lists) -> None:
    connection.execute("INSERT INTO runs(first, stop, level) VALUES (?, ?, ?)", run)
    connection.executemany(
        "INSERT INTO postings(run, term, data) VALUES (?, ?, ?)",
        ((run[0], term, data) for term, data in posting.pages(lists)),
    )


def _merge(connection: sqlite3.Connection, level: int) -> bool:
    """Merge the oldest runs of a level into one, where there are enough."""
    query = "SELECT first, stop FROM runs WHERE level = ? ORDER BY first LIMIT ?"
    runs = connection.execute(query, (level, RUNS_PER_MERGE)).fetchall()
    if len(runs) < RUNS_PER_MERGE:
        return False
    merged = posting.merge([read_run(connection, first) for first, _ in runs])
    for first, _ in runs:
        connection.execute("DELETE FROM postings WHERE run = ?", (first,))
        connection.execute("DELETE FROM runs WHERE first = ?", (first,))
    _write_run(connection, (runs[0][0], runs[-1][1], level + 1), merged)
    return True


def read_run(connection: sqlite3.Connection, run: int) -> Lists:
    """Read all posting lists of a run."""
    query = "SELECT data FROM postings WHERE run = ? ORDER BY term"
    return posting.chain([posting.decode(data) for (data,) in connection.execute(query, (run,))])


# --- vectors -------------------------------------------------------------------------
# Rows while they are new; blocks, which are read at once, when all passages of a range have theirs.

VECTOR_BLOCK_PASSAGES: Final = 4096
"""Passages in a block of vectors."""

_WRITE_BLOCK: Final = "INSERT OR REPLACE INTO vector_blocks(space, first, data) VALUES (?, ?, ?)"


def space_number(connection: sqlite3.Connection, space: Space, *, create: bool) -> int | None:
    """Return the number of a space; None where nothing was embedded in it."""
    values = (space.name, space.dimension, space.digest)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    known = connection.execute(query, values).fetchone()
    if known is not None:
        return int(known[0])
    if not create:
        return None
    insert = "INSERT INTO spaces(name, dimension, digest) VALUES (?, ?, ?)"
    return int(connection.execute(insert, values).lastrowid or 0)


def add_vectors(connection: sqlite3.Connection, rows: Sequence[VectorRow]) -> int:
    """Store the vectors of passages, and merge complete ranges into blocks; return how many passages exist."""
    touched: dict[Space, list[int]] = {}
    for row in rows:
        query = "SELECT windows FROM passages WHERE number = ? AND alive = 1"
        known = connection.execute(query, (row.passage,)).fetchone()
        if known is None:
            continue
        shape = (len(decode_windows(known[0])), row.space.dimension)
        if row.vectors.shape != shape or row.vectors.dtype != np.int8:
            raise InputError(f"passage {row.passage} takes {shape[0]} vectors of {shape[1]} signed bytes")
        insert = "INSERT OR REPLACE INTO vectors(space, passage, data) VALUES (?, ?, ?)"
        space = space_number(connection, row.space, create=True)
        connection.execute(insert, (space, row.passage, row.vectors.tobytes()))
        touched.setdefault(row.space, []).append(row.passage)
    complete = count_passages(connection) // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES
    for row_space, passages in touched.items():
        for first in sorted({passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES for passage in passages}):
            if first < complete:
                _merge_vectors(connection, row_space, first)
    return sum(map(len, touched.values()))


def _merge_vectors(connection: sqlite3.Connection, space: Space, first: int) -> None:
    """Merge the vectors of a range of passages into its block, where all of them have theirs."""
    bounds = (space_number(connection, space, create=True), first, first + VECTOR_BLOCK_PASSAGES)
    query = "SELECT passage, data FROM vectors WHERE space = ? AND passage >= ? AND passage < ?"
    known = connection.execute(f"SELECT count(*) FROM ({query})", bounds).fetchone()[0]
    block = connection.execute("SELECT data FROM vector_blocks WHERE space = ? AND first = ?", bounds[:2]).fetchone()
    alive = "SELECT count(*) FROM passages WHERE number >= ? AND number < ? AND alive = 1"
    if block is None and known < connection.execute(alive, bounds[1:]).fetchone()[0]:
        return
    starts = _starts(connection, first)
    vectors = np.zeros((starts[-1], space.dimension), np.int8)
    if block is not None:
        vectors[:] = np.frombuffer(block[0], np.int8).reshape(vectors.shape)
    for passage, data in connection.execute(query, bounds):
        rows = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
        vectors[starts[passage - first] : starts[passage - first + 1]] = rows
    connection.execute(_WRITE_BLOCK, (*bounds[:2], vectors.tobytes()))
    connection.execute("DELETE FROM vectors WHERE space = ? AND passage >= ? AND passage < ?", bounds)


def _starts(connection: sqlite3.Connection, first: int) -> npt.NDArray[np.int64]:
    """Return where the windows of each passage of a range begin, counted from its first, and where the last ends."""
    query = "SELECT length(windows) / 12 FROM passages WHERE number >= ? AND number < ? ORDER BY number"
    counts = [windows for (windows,) in connection.execute(query, (first, first + VECTOR_BLOCK_PASSAGES))]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def wipe_vectors(connection: sqlite3.Connection, passages: Sequence[int]) -> None:
    """Zero the vectors of these passages (in rising order), in every space."""
    connection.executemany("DELETE FROM vectors WHERE passage = ?", ((passage,) for passage in passages))
    for first, group in groupby(passages, key=lambda passage: passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES):
        mine = list(group)
        query = "SELECT space, dimension, data FROM vector_blocks JOIN spaces ON spaces.id = space WHERE first = ?"
        for space, dimension, data in connection.execute(query, (first,)).fetchall():
            starts = _starts(connection, first)
            vectors = np.frombuffer(data, np.int8).reshape(-1, dimension).copy()
            for passage in mine:
                vectors[starts[passage - first] : starts[passage - first + 1]] = 0
            connection.execute(_WRITE_BLOCK, (space, first, vectors.tobytes()))


def drop_vectors(connection: sqlite3.Connection, passages: Iterable[int]) -> None:
    """Delete the vectors of passages whose windows have changed, and their blocks: they are made again."""
    for passage in passages:
        connection.execute("DELETE FROM vectors WHERE passage = ?", (passage,))
        connection.execute(
            "DELETE FROM vector_blocks WHERE first = ?", (passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES,)
        )


def passages_without_vectors(connection: sqlite3.Connection, space: int | None, *, limit: int) -> list[int]:
    """List passages that have no vectors in a space yet, oldest first."""
    query = "SELECT first FROM vector_blocks WHERE space = ?"
    blocks = {first for (first,) in connection.execute(query, (space,))}
    missing: list[int] = []
    query = (
        "SELECT number FROM passages WHERE number >= ? AND number < ? AND alive = 1 AND number NOT IN"
        " (SELECT passage FROM vectors WHERE space = ?) ORDER BY number LIMIT ?"
    )
    for first in range(0, count_passages(connection), VECTOR_BLOCK_PASSAGES):
        if first not in blocks and len(missing) < limit:
            values = (first, first + VECTOR_BLOCK_PASSAGES, space, limit - len(missing))
            missing += [number for (number,) in connection.execute(query, values)]
    return missing


def count_embedded(connection: sqlite3.Connection, space: int | None) -> int:
    """Count the passages that have vectors in a space."""
    query = (
        "SELECT (SELECT count(*) FROM vectors WHERE space = :space) + (SELECT count(*) FROM vector_blocks JOIN passages"
        " ON number >= first AND number < first + :block AND alive = 1 WHERE space = :space)"
    )
    return int(connection.execute(query, {"space": space, "block": VECTOR_BLOCK_PASSAGES}).fetchone()[0])
