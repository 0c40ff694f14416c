"""Find and open a store: one SQLite file, an existing memory-context folder, or a schema on a PostgreSQL server."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

import platformdirs

from holdfast.errors import EncryptionError, InputError, MissingExtraError, SettingsError, StorageError
from holdfast.settings import Settings
from holdfast.settings.schema import Postgres
from holdfast.settings.trust import is_trusted, links_out_of

if TYPE_CHECKING:  # the path of a memory is found without loading it
    from holdfast.settings.schema import Secret
    from holdfast.store.base import Store
    from holdfast.store.postgres import PostgresStore

STORE_NAME: Final = "holdfast.db"
_SIMPLE_ADDRESS: Final = re.compile(
    r"postgres(ql)?://([^@/?#]*@)?(?P<host>[^@:,/?#\[\]]*(:\d*)?)(/(?P<database>[^@/?#]*))?(\?(?P<options>[^@?#]*))?"
)
"""An address in which a password cannot be taken for something else. Only libpq knows how to read the others."""
HERE: Final = Path()
"""The working directory."""


def is_folder(path: Path) -> bool:
    """Return whether a path is a memory-context folder."""
    return any((path / name).is_file() for name in ("segments.jsonl", "knowledge.jsonl"))


def default_path() -> Path:
    """Return the default folder: `$HOLDFAST_HOME`, else the platform's data folder. An address is a SettingsError."""
    home = os.environ.get("HOLDFAST_HOME")
    if not home:
        return Path(platformdirs.user_data_dir("holdfast", appauthor=False))
    if "://" in home:
        raise SettingsError(
            "this is an address, and local files need a folder: unset it, and set HOLDFAST_ARCHIVE__PATH instead",
            source="environment",
            key="HOLDFAST_HOME",
        )
    return Path(home).expanduser()


def server_address(path: Path | str | None, *, settings: Settings) -> str | None:
    """Return the address of a memory on a server; None if it is in files."""
    asked = str(path or settings.archive.path or "")
    if not asked.startswith(("postgresql://", "postgres://")):
        return None
    return asked


def open_memory_store(path: Path | str | None, *, settings: Settings) -> Store:
    """Open the store of a memory: on the server or in the folder that is named, else in that of the settings."""
    address = server_address(path, settings=settings)
    if address is None:
        from holdfast.store.keys import find_key  # noqa: PLC0415 - the path of a memory is found without it

        return open_store(store_file(path, settings=settings), key=find_key(settings.archive.encryption_key))
    if settings.archive.encryption_key is not None:
        raise InputError(
            "archive.encryption_key is set, and only SQLite files are encrypted: remove the setting, and let the server"
            " encrypt its disk"
        )
    return open_server(address, settings)


def open_server(address: str, settings: Settings, *, timeout: float | None = None) -> PostgresStore:
    """Open a store on a PostgreSQL server. A `timeout` of 0 lets statements take any time."""
    try:
        from holdfast.store.postgres import PostgresStore  # noqa: PLC0415 - most memories are files
    except ImportError as error:
        raise MissingExtraError("a memory on a PostgreSQL server", extra="postgres") from error
    home = default_path()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen = settings.postgres
    if timeout is None:
        timeout = chosen.timeout_seconds
    return PostgresStore(
        address,
        home=home,
        schema=chosen.schema,
        partitions=chosen.partitions,
        connections=chosen.connections,
        timeout=timeout,
        wait=chosen.wait_seconds,
    )


def local_file(path: Path | str | None, *, settings: Settings, folder: Path = HERE) -> Path:
    """Return the file of a memory; for one on a server, the file next to which its local files are."""
    if server_address(path, settings=settings) is not None:
        return default_path() / STORE_NAME
    return store_file(path, settings=settings, folder=folder)


def locate_store(path: Path | str | None, *, settings: Settings, folder: Path) -> str:
    """Return the address of a memory on a server, or the absolute path of its file. A relative path is in `folder`."""
    address = server_address(path, settings=settings)
    if address is not None:
        return address
    return str(store_file(path, settings=settings, folder=folder).absolute())


def name_memory(store: str, *, settings: Settings) -> str:
    """Return the name of what `locate_store` returned, the same for every process that uses it.

    It is the path of the file, or the address without login and password, with the schema if that is not the default.
    """
    if "://" not in store:
        return os.path.realpath(store)
    name = _hide_login(store)
    schema = settings.postgres.schema
    if schema != Postgres().schema:
        name += f" (schema {schema})"
    return name


def _hide_login(address: str) -> str:
    simple = _SIMPLE_ADDRESS.fullmatch(address)
    if simple is None:
        try:
            from holdfast.store.postgres import hide_password  # noqa: PLC0415 - hooks do not wait for it
        except ImportError as error:
            raise MissingExtraError("a memory on a PostgreSQL server", extra="postgres") from error
        return hide_password(address)
    options = dict(parse_qsl(simple["options"] or ""))
    host, _, port = simple["host"].partition(":")
    host = options.get("host", unquote(host)) or "localhost"
    port = options.get("port", port)
    database = options.get("dbname", unquote(simple["database"] or ""))
    if port not in {"", "5432"}:
        host = f"{host}:{port}"
    return f"postgresql://{host}/{database}"


def store_file(path: Path | str | None, *, settings: Settings, folder: Path = HERE) -> Path:
    """Return the file of a memory: in the named folder, else in that of the settings, else in the default folder.

    A memory-context folder is itself what is opened. An address is a StorageError, and so are a folder that cannot be
    entered and a relative path that leads out of `folder` by a link that the user has not trusted.
    """
    asked = str(path or settings.archive.path or default_path())
    if "://" in asked:
        message = "this is an address, and only files will do here: name a folder or a .db file on this machine"
        if server_address(asked, settings=settings) is None:
            message = "no such address: that of a memory on a server begins with postgresql://, any other is a path"
        raise StorageError(message, path=asked.partition("://")[0] + "://…")  # an address may hold a password
    place = Path(asked).expanduser()
    check_links(place, folder=folder)
    place = folder / place
    file = place / STORE_NAME
    if place.suffix == ".db":
        file = place
    try:
        file.stat()  # and not `exists`, which does not tell a missing file from a folder that cannot be entered
    except FileNotFoundError:
        if is_folder(place):
            return place
        return file
    except NotADirectoryError as error:
        raise StorageError("is a file, and no memory. Name a folder or a .db file.", path=place) from error
    except OSError as error:
        fix = "Make the folder yours, or name another with HOLDFAST_HOME or --home."
        raise StorageError(f"cannot be opened: {error.strerror}. {fix}", path=file) from error
    return file


def check_links(place: Path, *, folder: Path = HERE) -> None:
    """Refuse a relative path that leads out of a folder by a link, unless the user has trusted the link.

    Another user may have made it.
    """
    if place.is_absolute():  # the user named it
        return
    for link, target in links_out_of(folder, folder / place).items():
        if not is_trusted(link, target):
            raise StorageError(
                f"this link leads out of the working directory, to {os.fsdecode(target)}: name that path, or run "
                f"`holdfast trust {link}`",
                path=link,
            )


def database_file(path: Path) -> Path:
    """Return the SQLite file of what `store_file` returned: that of a folder is next to the plugin's files."""
    if not is_folder(path):
        return path
    from holdfast.store.folder import DATABASE  # noqa: PLC0415 - most memories are one SQLite file

    return path / DATABASE


def open_store(path: Path, *, key: Secret | None = None) -> Store:
    """Open what `store_file` returned, encrypted with the key if there is one."""
    if is_folder(path):
        if key is not None:
            raise EncryptionError(
                "a memory-context folder cannot be encrypted: its files are shared with the plugin. Use `holdfast"
                " import` to copy it into a store, or remove archive.encryption_key.",
                path=path,
            )
        from holdfast.store.folder import FolderStore  # noqa: PLC0415 - as above

        return FolderStore(path)
    from holdfast.store.sqlite import SqliteStore  # noqa: PLC0415 - the path of a memory is found without loading it

    return SqliteStore(path, key=key)
