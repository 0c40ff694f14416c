"""A server in trouble: typed errors, nothing that was acknowledged is lost, and requests continue."""

import os
import random
import shutil
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast import Engine, Window
from holdfast.errors import StorageError, UnavailableError
from holdfast.settings import Embedding, Settings
from holdfast.settings.schema import Postgres
from holdfast.store.base import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_database import translate_errors
from holdfast.testing.rows import make_message, texts
from support.postgres_server import open_postgres, schema_of, start
from support.waiting import PATIENCE, until

Admin = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    """A connection of the operator, with the tables of the test in its path."""
    with psycopg.connect(start(), autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema_of(tmp_path))))
        yield connection


def test_a_replica_is_read_and_refuses_to_write(tmp_path: Path) -> None:
    """A server that only reads answers; a write names the primary, and is not repeated."""
    with closing(open_postgres(tmp_path)) as store:
        store.add_messages([make_message("before")])
    address = make_conninfo(start(), options="-c default_transaction_read_only=on")
    with closing(PostgresStore(address, home=tmp_path, schema=schema_of(tmp_path), wait=PATIENCE)) as replica:
        assert texts(replica) == ["before"]
        with pytest.raises(StorageError, match="address of the primary") as caught:
            replica.add_messages([make_message("after")])
        assert not isinstance(caught.value, UnavailableError)


@contextmanager
def small_disk(admin: Admin) -> Iterator[Path]:
    """Mount a disk of 1 MB for the server; skip where that is not possible."""
    ((data,),) = admin.execute("SHOW data_directory").fetchall()
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not Path(str(data)).exists():
        pytest.skip("a small disk needs root, and a server on this machine")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    place = folder / "disk"
    place.mkdir()
    options = f"size=1m,mode=0700,uid={Path(str(data)).stat().st_uid}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
        shutil.rmtree(folder)


def test_a_full_disk_loses_nothing(tmp_path: Path, admin: Admin) -> None:
    """A write that does not fit is a typed error, what was acknowledged stays, and with room it continues."""
    chance = random.Random(1)  # noqa: S311 - nothing that can be compressed
    space = schema_of(tmp_path)
    with closing(open_postgres(tmp_path)) as store, small_disk(admin) as place:
        admin.execute(f"CREATE TABLESPACE {space} LOCATION '{place}'".encode())
        admin.execute(f"ALTER TABLE messages_0 SET TABLESPACE {space}".encode())
        kept: list[str] = []
        with pytest.raises(StorageError, match="disk is full"):  # noqa: PT012 - at some point
            for _ in range(100):
                text = chance.randbytes(30_000).hex()
                store.add_messages([make_message(text)])
                kept.append(text)
        assert kept
        assert texts(store) == kept
        admin.execute("ALTER TABLE messages_0 SET TABLESPACE pg_default")
        store.add_messages([make_message(text)])
        assert texts(store) == [*kept, text]
        admin.execute(f"DROP TABLESPACE {space}".encode())


# --- requests go on -----------------------------------------------------------------------------


@contextmanager
def hurried(store: Store) -> Iterator[None]:
    """Let a store wait for a second at most; without trouble it waits for a busy machine."""
    assert isinstance(store, PostgresStore)
    timeout = store._timeout
    wait = store._wait
    store._timeout = 1.0
    store._wait = 1.0
    yield
    store._timeout = timeout
    store._wait = wait


@contextmanager
def refuse_connections(engine: Engine, admin: Admin) -> Iterator[None]:  # noqa: ARG001 - as the others
    """Use all connections of the process."""
    store = engine._memory.store
    assert isinstance(store, PostgresStore)
    with store._connect(), store._connect():
        yield


@contextmanager
def lock_tenant(engine: Engine, admin: Admin) -> Iterator[None]:  # noqa: ARG001 - as above
    """Let writers wait for longer than a statement may take."""
    with admin.transaction():
        admin.execute("SELECT 1 FROM tenants FOR UPDATE")
        yield


@contextmanager
def fill_disk(engine: Engine, admin: Admin) -> Iterator[None]:  # noqa: ARG001 - as above
    """Refuse new rows with the error of a full disk."""
    admin.execute("DROP FUNCTION IF EXISTS refuse CASCADE")
    admin.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$"
    )
    admin.execute("CREATE TRIGGER refuse BEFORE INSERT ON messages FOR EACH STATEMENT EXECUTE FUNCTION refuse()")
    yield
    admin.execute("DROP FUNCTION refuse CASCADE")


@contextmanager
def become_replica(engine: Engine, admin: Admin) -> Iterator[None]:
    """Fail over to a server that only reads: connections are lost, new ones cannot write."""
    store = engine._memory.store
    assert isinstance(store, PostgresStore)
    login = sql.Identifier(f"login_{store._schema}")
    admin.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(login))
    for connection in list(store._pool._pool):
        admin.execute("SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
    yield
    admin.execute(sql.SQL("ALTER ROLE {} RESET default_transaction_read_only").format(login))


PORTS = [{"role": "user", "content": f"The port of server {n} is {8000 + n}."} for n in range(3)]


@pytest.fixture
def engine(tmp_path: Path, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with a login and tables of its own."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    login = f"login_{schema_of(tmp_path)}"
    admin.execute(f"CREATE ROLE {login} LOGIN SUPERUSER".encode())
    tables = Postgres(schema=schema_of(tmp_path), partitions=1, wait_seconds=300, timeout_seconds=300, connections=2)
    settings = Settings(postgres=tables, embedding=Embedding(provider="none"))
    address = f"{start()}{'&' if '?' in start() else '?'}user={login}"
    with ExitStack() as stack:
        stack.callback(admin.execute, f"DROP ROLE {login}".encode())
        stack.callback(admin.execute, f"DROP OWNED BY {login} CASCADE".encode())
        yield stack.enter_context(Engine.open(address, settings=settings, background=False))


def assemble_in_trouble(
    engine: Engine, trouble: Callable[[Engine, Admin], AbstractContextManager[None]], admin: Admin
) -> Window:
    """Send the first message without trouble, and a second one while the server is in trouble."""
    session = engine.session("s1")
    session.assemble(PORTS[:1], limit=8000)
    with trouble(engine, admin), hurried(engine._memory.store):
        return session.assemble(PORTS[:2], limit=8000)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (refuse_connections, "connections"),
        (lock_tenant, "timeout_seconds"),
        (fill_disk, "disk is full"),
    ],
)
def test_a_request_passes_while_the_server_is_in_trouble(
    engine: Engine,
    admin: Admin,
    trouble: Callable[[Engine, Admin], AbstractContextManager[None]],
    reason: str,
) -> None:
    """The window has every message, the report gives the reason nothing was archived, and the next turn archives it."""
    window = assemble_in_trouble(engine, trouble, admin)
    assert "The port of server 1" in str(window.request("openai_chat"))
    assert any(reason in warning for warning in window.report.warnings), window.report.warnings
    session = engine.session("s1")
    session.assemble(PORTS, limit=8000)
    assert [hit.message for hit in session.search("Which port has server 1?")][:1] == [2]
    assert sum(info.messages for info in engine.sessions()) == 3


def test_a_connection_that_only_reads_is_replaced(engine: Engine, admin: Admin) -> None:
    """After a failover, a connection to the server that only reads is not kept: the turns that follow archive again."""
    window = assemble_in_trouble(engine, become_replica, admin)
    assert "The port of server 1" in str(window.request("openai_chat"))
    assert any("primary" in warning for warning in window.report.warnings), window.report.warnings
    session = engine.session("s1")

    def is_archived() -> bool:
        session.assemble(PORTS, limit=8000)
        return sum(info.messages for info in engine.sessions()) == 3

    until(is_archived)
    assert [hit.message for hit in session.search("Which port has server 1?")][:1] == [2]


# --- messages -----------------------------------------------------------------------------------


@pytest.fixture
def login(tmp_path: Path, admin: Admin) -> Iterator[str]:
    """A login without any right."""
    name = f"login_{schema_of(tmp_path)}"
    admin.execute(f"CREATE ROLE {name} LOGIN".encode())
    yield name
    admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
    admin.execute(f"DROP ROLE {name}".encode())


def open_as(login: str, folder: Path, *, database: str | None = None) -> closing[PostgresStore]:
    """Open the store of the test with a login."""
    address = make_conninfo(start(), user=login, **({"dbname": database} if database else {}))
    store = PostgresStore(address, home=folder, schema=schema_of(folder), partitions=1, connections=2, wait=PATIENCE)
    return closing(store)


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("CONNECTION LIMIT 0", "too many connections for role.*raise the limit"),
        ("NOLOGIN", r"not permitted to log in.*check user and password.*\.pgpass"),
    ],
)
def test_a_connection_that_is_refused_later_has_a_reason(
    tmp_path: Path, admin: Admin, login: str, trouble: str, advice: str
) -> None:
    """When the server ends all connections and refuses new ones, calls say why; they go on when it takes them."""
    open_postgres(tmp_path).close()
    admin.execute(f"GRANT USAGE ON SCHEMA {schema_of(tmp_path)} TO {login}".encode())
    admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema_of(tmp_path)} TO {login}".encode())
    with open_as(login, tmp_path) as store:
        store.add_messages([make_message("before")])
        admin.execute(f"ALTER ROLE {login} {trouble}".encode())
        admin.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = %s", (login,))
        with hurried(store):
            for call in (lambda: texts(store), store.transaction().__enter__):
                with pytest.raises(StorageError, match=advice):
                    call()
        admin.execute(f"ALTER ROLE {login} LOGIN CONNECTION LIMIT -1".encode())

        def is_back() -> bool:
            with suppress(UnavailableError):
                return texts(store) == ["before"]
            return False

        until(is_back)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (b'password authentication failed for user "me"', "check user and password"),
        (b'no pg_hba.conf entry for host "10.0.0.1", user "me", database "db", no encryption', "pg_hba.conf"),
        (b'database "db" does not exist', "create it"),
        (b"sorry, too many clients already", "max_connections"),
        (b"the database system is starting up", "starting up.*start the server"),
    ],
)
def test_a_server_that_refuses_is_quoted(tmp_path: Path, said: bytes, advice: str) -> None:
    """The error has the words of the server, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = Thread(target=refuse, args=(server, said))
        answer.start()
        port = server.getsockname()[1]
        with pytest.raises(StorageError, match=advice) as caught:
            PostgresStore(f"postgresql://me@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable", home=tmp_path)
        answer.join()
    assert said.decode() in str(caught.value)


def test_a_server_that_does_not_run_is_said_in_one_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the question of libpq between the reason and the fix, in the error and in the log."""
    with pytest.raises(UnavailableError, match=r"port 1 failed: Connection refused[^?]*: start the server") as caught:
        PostgresStore("postgresql://me@127.0.0.1:1/db", home=tmp_path)
    assert "running" not in str(caught.value)
    with closing(open_postgres(tmp_path)) as store:
        address = store._address
        store._address = "postgresql://me@127.0.0.1:1/db"
        with pytest.raises(psycopg.OperationalError):
            store._check_server()
        store._address = address
    (line,) = [record.getMessage() for record in caplog.records if "does not answer" in record.getMessage()]
    assert "Connection refused" in line
    assert "running" not in line


@pytest.mark.skipif(os.name == "nt", reason="libpq does not look at modes there")
def test_a_password_file_that_others_may_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library ignores it, and says so only on standard error; another file needs no such hint."""
    file = tmp_path / "pass word"
    file.write_text("127.0.0.1:*:*:*:geheim\n")
    monkeypatch.setenv("PGPASSFILE", str(file))
    for mode, has_hint in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        error = psycopg.OperationalError("connection failed: fe_sendauth: no password supplied")
        with (
            pytest.raises(StorageError, match="check user and password") as caught,
            translate_errors("postgresql://db/"),
        ):
            raise error
        assert (f"{file} was ignored, because others may read it: chmod 600 '{file}'" in str(caught.value)) is has_hint


def refuse(server: socket.socket, said: bytes) -> None:
    """Answer one connection as a PostgreSQL server that refuses it."""
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        fields = b"SFATAL\0C00000\0M" + said + b"\0\0"
        connection.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("postgresql://me:sec%zzret@host/db", "invalid percent-encoded token"),
        ('postgresql://me:sec%zz"ret@host/db', "invalid percent-encoded token"),
        ("postgresql://me:secret@[::1/db", "IPv6 host address"),
        ("postgresql://me:x@host/db?password=secret=", "extra key/value separator"),
    ],
)
def test_an_address_with_a_mistake_is_refused_without_its_password(tmp_path: Path, address: str, fault: str) -> None:
    """Neither the error nor the one behind it quotes what was given."""
    with pytest.raises(StorageError, match=fault) as caught:
        PostgresStore(address, home=tmp_path)
    said = "".join(traceback.format_exception(caught.value, limit=0))
    assert "sec" not in said
    assert "ret" not in said


def test_an_old_server_is_refused(tmp_path: Path) -> None:
    """The error has the version that the server has told, and the one that it needs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = Thread(target=accept_as_version, args=(server, b"13.23"))
        answer.start()
        port = server.getsockname()[1]
        with pytest.raises(StorageError, match=r"PostgreSQL 13\.23, and Holdfast needs 14 or newer"):
            PostgresStore(f"postgresql://me@127.0.0.1:{port}/db?sslmode=disable&gssencmode=disable", home=tmp_path)
        answer.join()


def accept_as_version(server: socket.socket, version: bytes) -> None:
    """Let one connection in as a PostgreSQL server of a version, and wait for its end."""
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(b"R" + (8).to_bytes(4, "big") + bytes(4))
        for name, value in ((b"server_version", version), (b"client_encoding", b"UTF8")):
            setting = name + b"\0" + value + b"\0"
            connection.sendall(b"S" + (len(setting) + 4).to_bytes(4, "big") + setting)
        connection.sendall(b"Z" + (5).to_bytes(4, "big") + b"I")
        connection.recv(1000)


def test_what_a_login_lacks_is_named(tmp_path: Path, admin: Admin, login: str) -> None:
    """Each missing right comes with the statement that gives it."""
    database = f"d{schema_of(tmp_path)}"
    admin.execute(f"CREATE DATABASE {database}".encode())
    with ExitStack() as stack:
        stack.callback(admin.execute, f"DROP DATABASE {database} WITH (FORCE)".encode())
        with pytest.raises(StorageError, match=f'GRANT CREATE ON DATABASE "{database}" TO "{login}"'):
            open_as(login, tmp_path, database=database)
        admin.execute(f"GRANT CREATE ON DATABASE {database} TO {login}".encode())
        with open_as(str(admin.info.user), tmp_path, database=database):
            pass
        schema = schema_of(tmp_path)
        with pytest.raises(StorageError, match=f'GRANT USAGE ON SCHEMA "{schema}" TO "{login}"'):
            open_as(login, tmp_path, database=database)
        with psycopg.connect(make_conninfo(start(), dbname=database), autocommit=True) as other:
            other.execute(f"GRANT USAGE ON SCHEMA {schema} TO {login}".encode())
        with (
            open_as(login, tmp_path, database=database) as store,
            pytest.raises(StorageError, match=r"permission denied for table tenants.*GRANT"),
        ):
            texts(store)
