"""Connect to a SQLite store: a private file, its tables, durable writes, and errors with the fix in their messages."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import EncryptionError, HoldfastError, InputError, StorageError
from holdfast.store.codec import DAMAGE, add_checksum
from holdfast.store.rows import TableCache
from holdfast_memory.distribution import UPGRADE

if TYPE_CHECKING:  # the tables of vectors are imported by the functions that use them: rows are read without numpy
    from holdfast.embed.base import Space
    from holdfast.index.columns import Columns
    from holdfast.index.vectors import Matrix
    from holdfast.settings.schema import Secret

    _Connection = sqlite3.Connection
else:
    _Connection = object  # a connection of another module has the same methods, and is no `sqlite3.Connection`

APPLICATION: Final = 0x486F6C64
"""The application id of our SQLite files: "Hold"."""
COPIED_BLOCKS: Final = 32
"""From this number of blocks of vectors on, a copy of them is next to the file. Reading fewer takes less than 0.2 s."""

_PRAGMAS: Final = (
    "PRAGMA synchronous = FULL",  # what was acknowledged survives a power cut
    "PRAGMA secure_delete = OFF",  # forgetting turns it on; a merge of posting lists has nothing to hide
    "PRAGMA journal_size_limit = 16777216",
    "PRAGMA cache_size = -16384",
)
_MAP: Final = "PRAGMA mmap_size = 268435456"
"""Long posting lists and blocks of vectors are read three times as fast. Encrypted pages cannot be mapped."""
_PLAIN_HEADER: Final = b"SQLite format 3\0"
_ENCRYPTED_HEADER: Final = b"Holdfast"
"""As `cipher.HEADER`, which can only be imported if SQLCipher is installed."""
_HEADER_BYTES: Final = 100
"""The size of the header of a SQLite file."""
_APPLICATION_AT: Final = 68
"""Where that header has the number of the program that the file belongs to."""
_JSON: Final = json.JSONEncoder(ensure_ascii=False)
_PAUSE: Final = 0.01
_open_files: Final[dict[tuple[int, int], list[bool]]] = {}
"""The files that stores of this process have open, by device and inode: for each opening, whether it is encrypted."""


class SqliteDatabase(_Connection):
    """A connection as a `Database`: one file has the rows of all tenants."""

    is_encrypted = False
    own = ""
    fixed: Mapping[str, str] = {}
    first_passage = 0
    max_loaded_windows = sys.maxsize

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cache = TableCache()

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows at once."""
        self.executemany(_insertion(table, columns), rows)

    def insert_numbered(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Insert rows that get a number, and return the numbers."""
        statement = _insertion(table, columns)
        return [int(self.execute(statement, row).lastrowid or 0) for row in rows]

    def last_number(self, table: str) -> int:
        """Return the last number that was given to a row of a table; 0 before the first."""
        found = self.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        if found is None:
            return 0
        return int(found[0])

    def skip_numbers(self, table: str, last: int) -> None:
        """Give new rows of a table only numbers above `last`."""
        if last > self.last_number(table):
            self.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            self.execute("INSERT INTO sqlite_sequence(name, seq) VALUES (?, ?)", (table, last))

    def each(self, numbers: Sequence[int]) -> tuple[str, object]:
        """Return a table of numbers, its column named `value`, and the value of its `?`."""
        return "json_each(?)", json.dumps(numbers)

    def among(self, column: str, wanted: Sequence[int] | Sequence[str] | Sequence[bytes]) -> tuple[str, list[object]]:
        """Return the condition that a column is one of some values, and the values of its `?`."""
        if wanted and isinstance(wanted[0], bytes):  # JSON has no bytes
            return f"{column} IN ({', '.join('?' * len(wanted))})", list(wanted)
        return f"{column} IN (SELECT value FROM json_each(?))", [_JSON.encode(wanted)]

    def find_vectors(self, space: Space, *, after: Mapping[str, int]) -> dict[str, sqlite3.Cursor]:
        """Select vectors of a space: blocks first, then rows."""
        found: dict[str, sqlite3.Cursor] = {}
        for table, column in (("vector_blocks", "first"), ("vectors", "passage")):
            # The plus keeps SQLite from using an index on spaces: rows are read in the order of their ids.
            query = (
                f"SELECT id, {column}, data FROM {table} WHERE +space ="
                " (SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?) AND id > ? ORDER BY id"
            )
            last = after.get(table, 0)
            found[table] = self.execute(query, (space.name, space.dimension, space.digest, last))
        return found

    def open_vectors(self, space: Space) -> tuple[Matrix, dict[str, int]]:
        """Return the vectors of a space that need not be read."""
        from holdfast.store.vector_file import open_copy  # noqa: PLC0415 - see above

        return open_copy(self, space)

    def open_matrix(self, space: Space, columns: Columns, scopes: Sequence[int] | None, known: Matrix | None) -> None:
        """Return nothing: all vectors of a file are loaded."""

    def wipe_vectors(self, passages: Sequence[int]) -> None:
        """Zero the vectors of forgotten passages (in rising order), in every space."""
        from holdfast.store.sqlite_vectors import wipe_vectors  # noqa: PLC0415 - see above

        wipe_vectors(self, passages)

    def drop_vectors(self, passages: Sequence[int]) -> None:
        """Delete the vectors of passages that were divided otherwise."""
        from holdfast.store.sqlite_vectors import drop_vectors  # noqa: PLC0415 - see above

        drop_vectors(self, passages)


class PlainDatabase(SqliteDatabase, sqlite3.Connection):
    """A connection to a file that is not encrypted."""


def _insertion(table: str, columns: str) -> str:
    return f"INSERT INTO {table}({columns}) VALUES ({', '.join('?' * (columns.count(',') + 1))})"


def open_file(address: Path | str, *, key: Secret | None, **options: Any) -> SqliteDatabase:
    """Open a SQLite file, or one that SQLCipher encrypts with a key. The options are those of `sqlite3.connect`."""
    if key is None:
        return sqlite3.connect(address, isolation_level=None, factory=PlainDatabase, **options)
    from holdfast.store.cipher import open_encrypted  # noqa: PLC0415 - an extra

    return open_encrypted(address, key=key, methods=SqliteDatabase, **options)


def connect(path: Path, *, wait: float, key: Secret | None = None) -> SqliteDatabase:
    """Open a store's file, or create it for its owner alone; one of another program is refused.

    With a key, the file is encrypted. One that is not, or that another key encrypts, is refused.
    """
    _create_private(path, key=key)
    with translate_errors(path):
        connection = open_file(path, key=key, timeout=wait, check_same_thread=False, cached_statements=256)
        try:
            _check_owner(connection, path)
            deadline = time.monotonic() + wait
            while True:  # SQLite does not wait for other processes here
                try:
                    connection.execute("PRAGMA journal_mode = WAL").fetchone()
                    break
                except list_errors() as error:
                    if not is_error(error, "SQLITE_BUSY") or time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE)
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            if key is None:
                connection.execute(_MAP)
        except BaseException:
            connection.close()
            raise
    return connection


def is_readonly(path: Path) -> bool:
    """Return whether a store exists and cannot be written: the file, its folder or its disk is read-only."""
    return path.exists() and not all(map(is_writable, (path, path.absolute().parent)))


def is_writable(place: Path) -> bool:
    """Return whether this process may write a file, or create files in a folder."""
    return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def connect_readonly(path: Path, *, key: Secret | None = None) -> SqliteDatabase:
    """Open a store's file if nothing can be written next to it.

    With a shared index next to the file, SQLite follows other processes. Without one, a log is read under no lock, and
    a file without a log is complete in itself.
    """
    path = path.resolve()  # a log is next to the file, and not next to a link to it
    log = path.with_name(f"{path.name}-wal")
    is_shared = path.with_name(f"{path.name}-shm").exists()
    has_log = log.exists() and log.stat().st_size > 0
    if is_shared:
        option = ""
    elif has_log:
        option = "&vfs=unix-none"
    else:
        option = "&immutable=1"
    with translate_errors(path):
        address = f"{path.absolute().as_uri()}?mode=ro{option}"
        connection = open_file(address, key=key, uri=True, check_same_thread=False)
        try:
            if has_log and not is_shared:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log stays in memory
            _check_owner(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def identity(path: Path) -> dict[str, tuple[int, int]]:
    """Return the device and inode of a store's file and of its log, if they exist."""
    found: dict[str, tuple[int, int]] = {}
    for file in (str(path), f"{path}-wal"):
        number = find_file_number(file)
        if number is not None:
            found[file] = number
    return found


def find_file_number(file: str) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if there is none. Every write asks, so that it takes a text."""
    try:
        status = os.stat(file)  # noqa: PTH116 - see above
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _create_private(path: Path, *, key: Secret | None) -> None:
    """Create the file and missing folders for the owner alone, unless the file exists."""
    path = path.resolve()  # a link to a file that does not exist yet is not the file
    try:
        missing = [folder for folder in path.absolute().parents if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not path.exists():
            with suppress(FileExistsError):  # another process was faster
                create_file(path, key=key)
        elif key is not None and path.stat().st_size == 0:
            raise EncryptionError("is an empty file, and not an encrypted store. Delete it.", path=path)
    except OSError as error:
        raise StorageError(f"could not be made: {error.strerror}. Choose another place.", path=path) from error


def create_file(path: Path, *, key: Secret | None) -> None:
    """Create a database without tables for the owner alone, unless there is such a file, which is an OSError."""
    if key is None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        return
    from holdfast.store.cipher import create_encrypted  # noqa: PLC0415 - an extra

    create_encrypted(path, key=key, application=APPLICATION)


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    # In this order: a process that is making the tables in this moment marks them as ours in the same transaction.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION and tables:
        raise StorageError("a database of another program. Choose another file.", path=path)


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a write transaction: commit, or roll back on any exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def delete_securely(connection: sqlite3.Connection) -> Iterator[None]:
    """Overwrite what is deleted with zeros."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite, and of damaged rows, as errors with the fix in their messages."""
    try:
        yield
    except list_errors() as error:
        raise _explain(error, path=path) from error
    except UnicodeEncodeError as error:
        raise InputError(f"a scope, key or kind is not valid Unicode: {error.object!r}") from error
    except OverflowError as error:
        raise InputError(f"a number that no store can hold: {error}") from error
    except HoldfastError:
        raise
    except DAMAGE as error:
        raise StorageError(
            f"a row is damaged ({type(error).__name__}: {error}). Run `holdfast doctor` for the fix.",
            path=path,
        ) from error


def list_errors() -> tuple[type[Exception], ...]:
    """Return the types of the errors of SQLite, and of SQLCipher if it is in use: its module has its own."""
    cipher = sys.modules.get("sqlcipher3.dbapi2")
    if cipher is None:
        return (sqlite3.Error,)
    return (sqlite3.Error, cipher.Error)


def is_error(error: BaseException | None, name: str) -> bool:
    """Return whether an error of SQLite has a name that begins so."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(name)


def _explain(error: Exception, *, path: Path) -> StorageError:
    """Return an error that says what to do about one of SQLite; its own words if we know nothing better."""
    if is_error(error, "SQLITE_NOTADB"):
        refusal = explain_encryption(path, has_key=not isinstance(error, sqlite3.Error))
        if refusal is not None:
            return refusal
    for prefix, advice in _ADVICE.items():
        if is_error(error, prefix):
            return StorageError(advice, path=path)
    return StorageError(str(error), path=path)


def refuse_second_library(path: Path, *, has_key: bool) -> None:
    """Refuse a file that this process has open with SQLite, if it is to be opened with SQLCipher; and vice versa.

    Neither of the two knows the locks that the other has in the same process: the one that closes the file first would
    delete the log of the other.
    """
    opened = _open_files.get(_find_id(path))
    if opened and opened[0] != has_key:
        refusal = explain_encryption(path, has_key=has_key)
        if refusal is not None:
            raise refusal


@contextmanager
def note_open_file(path: Path, *, is_encrypted: bool) -> Iterator[None]:
    """Remember that this process has a file open."""
    opened = _open_files.setdefault(_find_id(path), [])
    opened.append(is_encrypted)
    try:
        yield
    finally:
        opened.pop()


def _find_id(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def explain_encryption(path: Path, *, has_key: bool) -> EncryptionError | None:
    """Return why a file that is no database with this key, or without one, may be one; None if it is none at all."""
    try:
        header = _read_header(path)
    except OSError:
        return None
    if header == _PLAIN_HEADER and has_key:
        return EncryptionError(
            "is not encrypted, and archive.encryption_key is set. Stop the programs that use it and run `holdfast"
            " encrypt`, or remove the setting.",
            path=path,
        )
    if header.startswith(_ENCRYPTED_HEADER) and has_key:
        return EncryptionError(
            "the key that archive.encryption_key names is not the key of this store (or its first page is damaged)."
            " Name the right one: nothing can be read without it. A backup from before the key was changed has the"
            " earlier one, which `holdfast encrypt --old-key PLACE` changes.",
            path=path,
        )
    if header.startswith(_ENCRYPTED_HEADER):
        return EncryptionError(
            "is encrypted. Set archive.encryption_key in your settings, or HOLDFAST_ARCHIVE__ENCRYPTION_KEY, to where"
            " its key is: keyring:NAME, env:NAME or command:...",
            path=path,
        )
    return None


def _read_header(path: Path) -> bytes:
    """Return the first bytes of a file.

    One that this process has open is not read: whoever closes it ends the locks that SQLite has on it.
    """
    opened = _open_files.get(_find_id(path))
    if opened and opened[0]:
        return _ENCRYPTED_HEADER
    if opened:
        return _PLAIN_HEADER
    with path.open("rb") as file:
        return file.read(len(_PLAIN_HEADER))


def is_store_file(path: Path) -> bool:
    """Return whether a file is a store, encrypted or not. No connection of this process should have it open."""
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    is_ours = header[_APPLICATION_AT : _APPLICATION_AT + 4] == APPLICATION.to_bytes(4, "big")
    return header.startswith(_ENCRYPTED_HEADER) or (header.startswith(_PLAIN_HEADER) and is_ours)


_ADVICE: Final = {
    "SQLITE_FULL": "the disk is full. Nothing was lost: make room and try again.",
    "SQLITE_READONLY": "the file or its disk is read-only. Nothing was lost: make it writable or choose another place.",
    "SQLITE_BUSY": "another process is writing for a very long time. Nothing was lost: try again.",
    "SQLITE_CORRUPT": "the file is damaged. Run `holdfast doctor --repair` to keep what is intact.",
    "SQLITE_NOTADB": "this is not a Holdfast store. Choose another file, or run `holdfast doctor --repair`.",
    "SQLITE_IOERR": "the disk could not be read or written. Nothing that was acknowledged is lost: check the disk.",
    "SQLITE_CANTOPEN": "could not be opened. Check that the folder exists and is yours.",
}


# --- tables: migrations are files; once released, one is never edited ------------------

SAVED_TABLES: Final = ("scopes", "messages", "facts", "records", "jobs")
"""The tables that cannot be made again from others: those that a repair saves."""
FOREIGN: Final = "a database of another program"

COUNTS: Final = {
    "messages": "SELECT count(*) FROM messages",
    "passages": "SELECT count(*) FROM passages WHERE alive = 1",
    "sessions": "SELECT count(*) FROM scopes WHERE EXISTS (SELECT 1 FROM messages WHERE scope = scopes.id)",
    "facts": "SELECT count(*) FROM (SELECT DISTINCT scope, id FROM facts)",
}
"""The counts of a store, and their queries."""

MIGRATIONS: Final = tuple(
    (Path(__file__).parent / "migrations" / f"{number}.sql").read_text("utf-8") for number in (1, 2, 3, 4)
)


def migrate(connection: sqlite3.Connection, *, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Run the missing migrations, each in a separate transaction."""
    connection.create_function("add_checksum", 1, add_checksum, deterministic=True)
    while True:
        version = _version(connection)
        if version >= len(migrations):
            break
        with write_transaction(connection):
            if _version(connection) != version:  # another process was first
                continue
            for statement in migrations[version].split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
    check_version(connection, path=path, known=len(migrations))


def check_version(connection: sqlite3.Connection, *, path: Path, known: int = len(MIGRATIONS)) -> None:
    """Refuse tables of a newer version, also if another process has just upgraded them."""
    version = _version(connection)
    if version > known:
        raise newer_version(version, path=path, known=known)


def newer_version(version: int, *, path: Path, known: int = len(MIGRATIONS)) -> StorageError:
    """Make the error for tables of a newer version."""
    return StorageError(
        f"written by a newer Holdfast (schema {version}, this one knows {known}): run `{UPGRADE}` and start this"
        " program again",
        path=path,
    )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
