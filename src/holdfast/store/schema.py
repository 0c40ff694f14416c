"""The tables of the SQLite store, as ordered migrations: once released, a migration is never edited."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import StorageError
from holdfast.store.codec import add_checksum
from holdfast.store.connection import APPLICATION, write_transaction

__all__ = ["COUNTS", "MIGRATIONS", "check_version", "migrate"]

COUNTS: Final = {
    "messages": "SELECT count(*) FROM messages",
    "passages": "SELECT count(*) FROM passages WHERE alive = 1",
    "sessions": "SELECT count(*) FROM scopes WHERE EXISTS (SELECT 1 FROM messages WHERE scope = scopes.id)"
    " OR EXISTS (SELECT 1 FROM facts WHERE scope = scopes.id)",
    "facts": "SELECT count(*) FROM (SELECT DISTINCT scope, id FROM facts)",
}
"""The counts of a store, and their queries."""

_INITIAL: Final = """
CREATE TABLE scopes(
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL, project TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL,
    UNIQUE(tenant, project, agent, session)
);
CREATE TABLE messages(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    digest BLOB NOT NULL,
    nonce BLOB NOT NULL,
    flags INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    UNIQUE(scope, digest, nonce)
);
CREATE INDEX messages_in_order ON messages(scope, id);
-- Passages are numbered from 0 without gaps: a forgotten one leaves an empty row behind.
-- A passage without a text has the words of its message, from `start` on.
CREATE TABLE passages(
    number INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    scope INTEGER NOT NULL,
    time INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    human INTEGER NOT NULL,
    speaker BLOB NOT NULL,
    alive INTEGER NOT NULL DEFAULT 1,
    start INTEGER NOT NULL,
    windows BLOB NOT NULL,
    text BLOB
);
CREATE INDEX passages_of_message ON passages(message);
CREATE INDEX passages_in_order ON passages(scope, number);
-- The index. Everything below can be dropped and rebuilt from the passages.
CREATE TABLE pending(number INTEGER PRIMARY KEY, terms BLOB NOT NULL);
CREATE TABLE runs(first INTEGER PRIMARY KEY, stop INTEGER NOT NULL, level INTEGER NOT NULL);
CREATE TABLE postings(run INTEGER, term INTEGER, data BLOB NOT NULL, UNIQUE(run, term));
CREATE TABLE blocks(
    first INTEGER PRIMARY KEY, first_window INTEGER NOT NULL, windows INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE TABLE spaces(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER NOT NULL, digest TEXT NOT NULL,
    UNIQUE(name, dimension, digest)
);
CREATE TABLE vectors(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL, passage INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(space, passage)
);
CREATE TABLE vector_blocks(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL, first INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(space, first)
);
-- Knowledge, the engine's own documents, and what is still to do.
CREATE TABLE facts(
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    id TEXT NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX facts_by_id ON facts(scope, id, version);
CREATE TABLE records(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    kind TEXT NOT NULL, key TEXT NOT NULL, time INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE(scope, kind, key)
);
CREATE INDEX records_in_order ON records(scope, kind, id);
CREATE TABLE jobs(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope INTEGER NOT NULL REFERENCES scopes(id),
    kind TEXT NOT NULL, time INTEGER NOT NULL, data BLOB NOT NULL
);
-- Digests of what was forgotten, so that an import does not bring it back.
CREATE TABLE forgotten(scope INTEGER, digest BLOB, PRIMARY KEY(scope, digest)) WITHOUT ROWID;
-- `rewritten` counts what makes others read the index anew; `unscrubbed` says that deleted text may still be on disk.
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('rewritten', 0), ('unscrubbed', 0);
"""

# Text at rest gets a checksum; `add_checksum` is a function of ours. Compressed text has one already. Of a forgotten
# message its digest and nonce are kept, so that it is recognised where a client moved it to another place. A store
# without `cutting` holds passages that were cut by other rules than those of `search.passages.CUTTING`.
_VERSION_2: Final = """
ALTER TABLE forgotten ADD COLUMN words BLOB;
ALTER TABLE forgotten ADD COLUMN nonce BLOB;
CREATE INDEX forgotten_words ON forgotten(scope, words);
INSERT INTO counters SELECT 'cutting', 1 WHERE NOT EXISTS (SELECT 1 FROM passages);
UPDATE messages SET body = add_checksum(body) WHERE substr(body, 1, 1) = x'00';
UPDATE passages SET text = add_checksum(text) WHERE substr(text, 1, 1) = x'00';
UPDATE facts SET data = add_checksum(data);
UPDATE records SET data = add_checksum(data);
UPDATE jobs SET data = add_checksum(data);
"""

MIGRATIONS: Final[tuple[str, ...]] = (_INITIAL, _VERSION_2)


def migrate(connection: sqlite3.Connection, *, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Run the missing migrations, each in a transaction of its own."""
    connection.create_function("add_checksum", 1, add_checksum, deterministic=True)
    while (version := _version(connection)) < len(migrations):
        with write_transaction(connection):
            if _version(connection) != version:  # another process was first
                continue
            for statement in migrations[version].split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
    check_version(connection, path=path, known=len(migrations))


def check_version(connection: sqlite3.Connection, *, path: Path, known: int = len(MIGRATIONS)) -> None:
    """Refuse tables of a newer version, also where another process has just upgraded them.

    Raises:
        StorageError: A newer Holdfast wrote them.
    """
    if (version := _version(connection)) > known:
        raise StorageError(
            f"written by a newer Holdfast (schema {version}, this one knows {known}): upgrade holdfast and start this"
            " program again",
            path=path,
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
