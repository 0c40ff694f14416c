"""Open SQLite files that SQLCipher encrypts: every page of the file and of its log, with AES-256 and an HMAC.

A file begins with a salt of 16 bytes. Half of it is the same in every store of ours, so that an encrypted store is
recognised without its key; the rest of the file cannot be told from random bytes.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.errors import MissingExtraError

try:
    from sqlcipher3 import dbapi2 as sqlcipher
except ImportError as missing:
    raise MissingExtraError("an encrypted store", extra="encrypted") from missing

if TYPE_CHECKING:
    from holdfast.settings.schema import Secret

HEADER: Final = b"Holdfast"
"""The first bytes of an encrypted store. A salt is not secret."""
_SALT_BYTES: Final = 16

T = TypeVar("T")


def describe_cipher() -> str:
    """Return the name and version of the library."""
    with closing(sqlcipher.connect(":memory:")) as connection:
        (version,) = connection.execute("PRAGMA cipher_version").fetchone()
    return f"SQLCipher {version} with SQLite {sqlcipher.sqlite_version}"


@cache
def _connection_class(methods: type[Any]) -> type[Any]:
    """Return the class of connections with the methods of a class: those of SQLCipher are not `sqlite3.Connection`s."""
    return type("EncryptedDatabase", (methods, sqlcipher.Connection), {"is_encrypted": True})


def open_encrypted(address: Path | str, *, key: Secret | None, methods: type[T], **options: Any) -> T:
    """Open a file with SQLCipher, as a connection with the methods of a class. A wrong key fails the first statement.

    Without a key, the file is one that is not encrypted.
    """
    base: Any = methods  # mypy does not know that every class is hashable
    connection = sqlcipher.connect(str(address), isolation_level=None, factory=_connection_class(base), **options)
    connection.execute("PRAGMA cipher_log_level = NONE")  # else a wrong key is reported on standard error
    if key is not None:
        connection.set_key(f"x'{key.reveal()}'")
    return cast("T", connection)


def make_new_key(key: Secret) -> str:
    """Return a key in the words of SQLCipher, with the salt of a new file."""
    salt = HEADER + secrets.token_bytes(_SALT_BYTES - len(HEADER))
    return f"x'{key.reveal()}{salt.hex()}'"


def create_encrypted(path: Path, *, key: Secret, application: int) -> None:
    """Create an encrypted file without tables, unless there is such a file.

    It is complete when it gets its name: two processes that both began to write it would each have their own salt.

    Raises:
        FileExistsError: There is such a file.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlcipher.connect(str(part), isolation_level=None)) as connection:
            connection.set_key(make_new_key(key))
            connection.execute(f"PRAGMA application_id = {application}")
        try:
            os.link(part, path)
        except FileExistsError:
            raise
        except OSError:  # a disk without hard links
            part.rename(path)
    finally:
        part.unlink(missing_ok=True)
