"""`holdfast encrypt` and `holdfast decrypt`: a SQLite store with a key, with another one, or without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.opening import load_settings
from holdfast.cli.options import as_json, home_option
from holdfast.cli.output import echo, print_result
from holdfast.errors import EncryptionError, InputError
from holdfast.server import client
from holdfast.settings import Secret, Settings
from holdfast.store.keys import create_key, find_key
from holdfast.store.opening import server_address, store_file


@click.command()
@click.option(
    "--old-key", metavar="PLACE", help="Change the key: where the present one is (keyring:…, env:… or command:…)."
)
@home_option
@as_json
def encrypt(*, old_key: str | None, home: Path | None, as_json: bool) -> None:
    """Encrypt the store with the key of archive.encryption_key, or change its key with --old-key.

    No other program may use the store meanwhile. If the key is to be in the keyring and is not, one is made.
    """
    from holdfast.store.encryption import convert, has_key, opens_with  # noqa: PLC0415 - an extra

    settings = load_settings()
    place = settings.archive.encryption_key
    if place is None:
        raise InputError(
            'set archive.encryption_key first, for example to "keyring:holdfast": it says where the key is'
        )
    file = _find_file(home, settings=settings)
    if file.exists():
        is_encrypted = has_key(file)
        if is_encrypted and old_key is None:
            raise EncryptionError("is encrypted already. To change its key, name the present one: --old-key", path=file)
        if not is_encrypted and old_key is not None:
            raise EncryptionError("is not encrypted: leave --old-key out", path=file)
    old = _read_place(old_key, option="--old-key")
    if create_key(place):
        echo(f"a new key is in the keyring ({place}). Keep a copy elsewhere: without it, all is lost.", err=True)
    new = find_key(place)
    if file.exists():
        if old is not None and new is not None and not opens_with(file, old) and opens_with(file, new):
            raise EncryptionError(
                "has the key that archive.encryption_key names already: there is nothing left to do", path=file
            )
        _check_key(file, old, named_by="--old-key")
        convert(file, old=old, new=new)
        text = f"{file} is encrypted." if old is None else f"{file} is encrypted with the new key."
    else:
        text = f"{file} does not exist yet. It will be encrypted."
    readable: list[str] = []
    with_earlier_key: list[str] = []
    for copy in _find_copies(file):
        store = copy.with_name(copy.name.removesuffix("-wal"))  # a log is encrypted if its file is
        if not store.exists() or not has_key(store):
            readable.append(str(copy))
        elif new is not None and not opens_with(store, new):
            with_earlier_key.append(str(copy))
    if readable:
        text += f" These copies of it are not: {', '.join(readable)}"
    if with_earlier_key:
        text += f" These copies of it have another key: {', '.join(with_earlier_key)}"
    shown = {
        "path": str(file),
        "encrypted": True,
        "key_changed": old is not None,
        "readable_copies": readable,
        "copies_with_earlier_key": with_earlier_key,
    }
    print_result(shown, text, as_json=as_json)


@click.command()
@click.option("--key", metavar="PLACE", help="Where the key is, if archive.encryption_key does not say it any more.")
@home_option
@as_json
def decrypt(*, key: str | None, home: Path | None, as_json: bool) -> None:
    """Decrypt the store. No other program may use it meanwhile. Remove archive.encryption_key afterwards."""
    from holdfast.store.encryption import convert, has_key  # noqa: PLC0415 - an extra

    settings = load_settings()
    place = key or settings.archive.encryption_key
    if place is None:
        raise InputError("name where the key is: --key keyring:NAME, env:NAME or command:…")
    file = _find_file(home, settings=settings)
    if not file.exists():
        raise InputError(f"no memory at {file}")
    is_set = settings.archive.encryption_key is not None
    if not has_key(file):
        fix = " Remove archive.encryption_key to use it." if is_set else ""
        raise EncryptionError(f"is not encrypted.{fix}", path=file)
    named_by = "archive.encryption_key" if key is None else "--key"
    old = _read_place(place, option=named_by)
    _check_key(file, old, named_by=named_by)
    convert(file, old=old, new=None)
    text = f"{file} is not encrypted any more."
    if is_set:
        text += " Remove archive.encryption_key from your settings: until then it is refused."
    print_result({"path": str(file), "encrypted": False}, text, as_json=as_json)


def _find_copies(path: Path) -> Iterator[Path]:
    """List what repairs have kept of a store, and the other stores in its folder, such as backups."""
    from holdfast.store.connection import is_store_file  # noqa: PLC0415 - takes time
    from holdfast.store.forgetting import damaged_copies  # noqa: PLC0415 - takes time

    damaged = damaged_copies(path)
    yield from damaged
    for file in sorted(path.resolve().parent.glob("*")):  # the folder may not exist
        if file not in damaged and file.resolve() != path.resolve() and is_store_file(file):
            yield file


def _find_file(home: Path | None, *, settings: Settings) -> Path:
    """Return the SQLite file of the memory, which no server may use."""
    if server_address(home, settings=settings) is not None:
        raise InputError("this memory is on a server: let the server encrypt its disk")
    file = store_file(home, settings=settings)
    if file.is_dir():
        raise InputError(f"{file} is a memory-context folder, whose files are shared with the plugin: import it first")
    server = client.find(str(file.parent))
    if server is not None:
        raise InputError(
            f"the server of this memory runs, process {server.get('pid')}: end it and the hosts that start it again"
        )
    return file


def _check_key(file: Path, key: Secret | None, *, named_by: str) -> None:
    """Raise unless a key is that of a store. None is that of a store which is not encrypted."""
    from holdfast.store.encryption import opens_with  # noqa: PLC0415 - an extra

    if key is not None and not opens_with(file, key):
        raise EncryptionError(
            f"the key that {named_by} names is not the key of this store (or its first page is damaged). Name the right"
            " one: nothing can be read without it.",
            path=file,
        )


def _read_place(place: str | None, *, option: str) -> Secret | None:
    """Return the key that an option or the setting names."""
    if place is not None and not place.startswith(("keyring:", "env:", "command:")):
        raise InputError("name where the key is, never the key itself: keyring:NAME, env:NAME or command:…")
    return find_key(place, setting=option)
