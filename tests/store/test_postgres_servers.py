"""Servers as a system installs them: versions older than that of the other tests, and without pgvector."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.store.base import Scope, Select
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_database import MIGRATIONS
from holdfast.testing.rows import HERE, MODEL, find_messages, make_message, make_query, texts, vectors
from holdfast.testing.store import check_store
from support.postgres_server import open_postgres, require_hamming, schema_of, start
from support.waiting import PATIENCE, until

_PROGRAMS: Final = [Path(f"/usr/lib/postgresql/{version}/bin") for version in (14, 15)]
"""The programs of Debian's packages of versions that lack statements of newer ones."""
_WORDS_AND_BYTES: Final = [
    ("blocks", "data"),
    ("facts", "data"),
    ("jobs", "data"),
    ("messages", "body"),
    ("passages", "text"),
    ("pending", "terms"),
    ("postings", "data"),
    ("records", "data"),
    ("vectors", "data"),
]
"""Columns whose values are compressed already, or are not compressible."""


@pytest.fixture(scope="module", params=_PROGRAMS, ids=lambda programs: programs.parent.name)
def older(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server of an older version, without pgvector unless it is installed there."""
    programs = request.param
    if not (programs / "initdb").exists():
        pytest.skip(f"PostgreSQL {programs.parent.name} is not installed")
    folder = Path(tempfile.mkdtemp())
    user = None
    if os.geteuid() == 0:  # a server refuses to run as root
        user = "nobody"
        shutil.chown(folder, user)
    data = folder / "data"

    def run(name: str, *arguments: str) -> None:
        command = [str(programs / name), "-D", str(data), *arguments]
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8")
        run("pg_ctl", "start", "-w", "-l", str(folder / "log"), "-o", f"-F -h '' -k {folder}")
        yield f"postgresql://postgres@/postgres?host={folder}"
        run("pg_ctl", "stop", "-w", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection of the operator to the server of the other tests."""
    open_postgres(tmp_path).close()
    with psycopg.connect(start(), autocommit=True) as connection:
        yield connection


def _open_at(address: str, folder: Path) -> PostgresStore:
    return PostgresStore(address, home=folder, schema=schema_of(folder), partitions=2, wait=PATIENCE)


class TestVersions:
    def test_an_older_server_keeps_a_memory(self, older: str, tmp_path: Path) -> None:
        """The tables are made on PostgreSQL 14 and 15; what is stored is found by words and by vectors, and removed."""
        with closing(_open_at(older, tmp_path)) as store:
            ids = store.add_messages([make_message("the port is 8790"), make_message("支払いは火曜日")])
            rows = store.read_passages(Select(scope=HERE))
            store.add_vectors([vectors(row.number, [row.number]) for row in rows])
            found = store.search(make_query("火曜日", seed=rows[0].number))
            assert find_messages(found) == ids[1:]
            assert found.cosine is not None
            assert found.passages[found.cosine.argmax()] == rows[0].number
            store.remove_messages(Select(scope=HERE, ids=(ids[0],)))
            store.vacuum()
            store.reindex()
            assert store.check().sound
            assert texts(store) == ["支払いは火曜日"]

    def test_an_append_reads_few_rows_before_the_server_analyzes(self, older: str, tmp_path: Path) -> None:
        """An older server finds the last passage by its key, too, when it knows nothing of the table yet."""
        ours = "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'holdfast'"
        query = "SELECT sum(idx_tup_read)::int FROM pg_stat_user_indexes WHERE schemaname = %s"
        read: list[int] = []
        with psycopg.connect(older, autocommit=True) as admin:
            for count in (2000, 1):
                with closing(_open_at(older, tmp_path)) as store:
                    scopes = [replace(HERE, session=f"session {number % 50}") for number in range(count)]
                    store.add_messages([make_message(f"{number}", scope=scope) for number, scope in enumerate(scopes)])
                until(lambda: admin.execute(ours).fetchone() == (0,))  # a connection reports what it read when it ends
                read += admin.execute(query, (schema_of(tmp_path),)).fetchone() or ()
        assert read[1] - read[0] < 500

    @pytest.mark.nightly
    def test_an_older_server_passes_every_check(self, older: str, tmp_path: Path) -> None:
        """Every statement of the store is known there."""
        check_store(partial(_open_at, older), tmp_path)

    def test_the_tables_use_no_clause_of_a_newer_version(self) -> None:
        """PostgreSQL 16 added `STORAGE` to the columns of CREATE TABLE; before that, ALTER TABLE sets it."""
        for script in MIGRATIONS:
            assert "STORAGE" not in script.replace("SET STORAGE", "")

    def test_what_is_compressed_already_is_stored_as_it_is(
        self, admin: psycopg.Connection[tuple[object, ...]], tmp_path: Path
    ) -> None:
        """Each partition has the storage of its table."""
        found = admin.execute(
            "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
            " WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND attstorage = 'e'",
            (schema_of(tmp_path),),
        )
        assert sorted(found) == [(f"{table}_0", column) for table, column in _WORDS_AND_BYTES]


@pytest.fixture
def database(admin: psycopg.Connection[tuple[object, ...]], tmp_path: Path) -> Iterator[str]:
    """A database as a system without a locale makes it, of a login that may not create the extension."""
    name = f"bare_{schema_of(tmp_path)}"
    admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    admin.execute(f"CREATE DATABASE {name} OWNER {name} {options}".encode())
    yield name
    admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    admin.execute(f"DROP ROLE {name}".encode())


def test_a_database_without_an_encoding_keeps_every_name(database: str, tmp_path: Path) -> None:
    """The cluster of a system without a locale has the encoding SQL_ASCII: names are sent and read as UTF-8."""
    address = make_conninfo(start(), dbname=database, user=database)
    scope = Scope(tenant="東京", project="매장", session="会话")
    for _ in range(2):
        with closing(_open_at(address, tmp_path)) as store:
            store.add_messages([make_message("支払いは火曜日", scope=scope)])
            assert store.scopes() == [scope]
            assert texts(store, scope=scope) == ["支払いは火曜日"]


class TestWithoutPgvector:
    def open_bare(self, database: str, folder: Path) -> closing[PostgresStore]:
        """Open a store that leaves the signs of 30 windows on the server if that has an index for them."""
        address = make_conninfo(start(), dbname=database, user=database)
        store = PostgresStore(
            address, home=folder, partitions=1, wait=PATIENCE, max_loaded_windows=10, max_loaded_signs=30
        )
        return closing(store)

    def test_vectors_are_found_and_the_extension_is_used_once_it_is_there(self, database: str, tmp_path: Path) -> None:
        """All signs are in memory, and a check names the tenant that needs the extension until there is an index."""
        require_hamming()
        space = replace(MODEL, dimension=72)
        with self.open_bare(database, tmp_path) as store:
            store.add_messages([make_message(f"passage {number}") for number in range(20)])
            assert store.check().warnings == ()
            store.add_messages([make_message(f"passage {number}") for number in range(20, 600)])
            rows = store.read_passages(Select(scope=HERE))
            store.add_vectors([vectors(row.number, [row.number], space=space) for row in rows])
            found = store.search(make_query(seed=17, space=space))
            assert found.cosine is not None
            assert found.passages[found.cosine.argmax()] == 17
            assert store.index_vectors() == []
            (warning,) = store.check().warnings
            assert warning.startswith("tenant local has ")
            assert "CREATE EXTENSION vector" in warning
        with psycopg.connect(make_conninfo(start(), dbname=database), autocommit=True) as superuser:
            superuser.execute("CREATE SCHEMA extensions")
            superuser.execute("CREATE EXTENSION vector SCHEMA extensions")
            superuser.execute("GRANT USAGE ON SCHEMA extensions TO PUBLIC")
        with self.open_bare(database, tmp_path) as store:
            assert store.index_vectors() == ["vectors_near_0_1"]
            assert store.check().warnings == ()
            found = store.search(make_query(seed=17, space=space))
            assert found.cosine is not None
            assert found.passages[found.cosine.argmax()] == 17
