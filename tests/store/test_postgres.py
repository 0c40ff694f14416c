"""The store on a PostgreSQL server: its tables, tenants and work, and what happens when the server is in trouble."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from benchmarks.scopes import crossings
from holdfast import Engine
from holdfast.embed.base import Space
from holdfast.errors import InputError, StorageError, UnavailableError
from holdfast.memory.learning import run_job
from holdfast.memory.learning_queue import EXTRACT, OWN, queue_to_end
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, Usage
from holdfast.models.base import Prompt
from holdfast.settings import Embedding, Settings
from holdfast.settings.schema import Postgres
from holdfast.store.base import Job, Period, Record, Scope, Select, Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres_database import ROLE
from holdfast.testing.rows import (
    HERE,
    MODEL,
    add_canaries,
    fact,
    find_messages,
    make_message,
    make_query,
    texts,
    vectors,
)
from support.learning_model import depot_model, extract_depots
from support.postgres_server import open_postgres, require_hamming, schema_of, start
from support.waiting import PATIENCE, UNHURRIED, until

OTHER = replace(HERE, tenant="other")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PostgresStore]:
    """A store of its own."""
    with closing(open_postgres(tmp_path)) as store:
        yield store


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection of the operator, with the tables of the test in its path."""
    with psycopg.connect(start(), autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema_of(tmp_path))))
        yield connection


def drop_connections(admin: psycopg.Connection[tuple[object, ...]], store: PostgresStore) -> None:
    """End every connection of a store, as a failover does."""
    mine = [connection.info.backend_pid for connection in store._pool._pool]
    if (db := store._local.db) is not None:
        mine.append(db.connection.info.backend_pid)
    for pid in mine:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def make_settings(folder: Path) -> Settings:
    """Settings of an engine over the tables of a test."""
    tables = Postgres(schema=schema_of(folder), partitions=1, wait_seconds=round(PATIENCE))
    return Settings(postgres=tables, embedding=Embedding(provider="none"), recall=UNHURRIED)


def add_turns(engine: Engine, scope: Scope, *, turns: int) -> None:
    """Let a session grow turn by turn, with replies that report their usage."""
    session = engine._open_session(scope)
    history: list[Message] = []
    for number in range(turns):
        history.append(Message(role="user", parts=(Text(text=f"请看第{number}部分。"),)))
        session.assemble(history, limit=8_000)
        usage = Usage(input=100, output=5)
        history.append(Message(role="assistant", parts=(Text(text="好。"),), usage=usage, model="claude-sonnet-4-5"))
        session.append(history)


def sum_figures(store: Store, tenant: str) -> tuple[int, int, int]:
    """Return the replies, the tokens that they read, and the turns of a tenant."""
    while store.update_figures(tenant):
        pass
    period = Period(scope=Scope(tenant=tenant), across=True, by="session")
    usage = store.sum_usage(period)
    turns = store.sum_turns(period)
    return (
        sum(one.replies for one in usage),
        sum(one.usage.input for one in usage),
        sum(one.turns for one in turns),
    )


def transaction_of(store: PostgresStore) -> str:
    """Return the number that the server gave the transaction of this thread."""
    db = store._local.db
    assert db is not None
    (number,) = db.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
    return str(number)


class TestTables:
    def test_every_table_and_key_begins_with_the_tenant(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """Tables can be distributed by tenant: each is partitioned by it, and nothing is unique outside of it."""
        partitioned = admin.execute(
            "SELECT relname, pg_get_partkeydef(oid) FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        ).fetchall()
        keys = {name: key for name, key in partitioned if name != "tenants"}
        assert len(keys) >= 13
        assert set(keys.values()) == {"HASH (tenant)"}
        constraints = admin.execute(
            "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype IN ('p', 'u', 'f') AND connamespace = current_schema()::regnamespace AND conparentid = 0"
        ).fetchall()
        indexes = admin.execute(
            "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
        ).fetchall()
        for table, definition in (*constraints, *indexes):
            assert str(table) == "tenants" or "(tenant," in str(definition), definition
        assert store.counts()["messages"] == 0

    def test_a_second_process_finds_the_tables_made(self, tmp_path: Path) -> None:
        """Two that open a new store at once wait for each other, and both can use it."""
        opened: list[PostgresStore] = []
        threads = [Thread(target=lambda: opened.append(open_postgres(tmp_path))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        opened[0].add_messages([make_message("hello")])
        assert [texts(one) for one in opened] == [["hello"]] * 3
        for one in opened:
            one.close()

    @pytest.mark.usefixtures("store")
    def test_a_newer_schema_is_refused(self, admin: psycopg.Connection[tuple[object, ...]], tmp_path: Path) -> None:
        """Tables of a newer version are not touched."""
        admin.execute(f"COMMENT ON SCHEMA {schema_of(tmp_path)} IS 'holdfast 99'".encode())
        with pytest.raises(StorageError, match="newer Holdfast"):
            open_postgres(tmp_path)

    def test_a_schema_without_figures_of_turns_is_brought_up_to_date(
        self, tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """Schema 2 gets the tables of schema 3, and figures of the rows that it has, of each tenant its own."""
        tenants = ("local", "other")
        with Engine.open(start(), settings=make_settings(tmp_path), background=False) as engine:
            for tenant in tenants:
                add_turns(engine, Scope(tenant=tenant, session="老会话"), turns=len(tenant))
            store = engine._memory.store
            known = {tenant: sum_figures(store, tenant) for tenant in tenants}
            kept = {tenant: store.read_messages(Select(scope=Scope(tenant=tenant), across=True)) for tenant in tenants}
        assert known == {"local": (5, 500, 5), "other": (5, 500, 5)}
        admin.execute("DROP TABLE usage, turns")
        admin.execute("DELETE FROM counters WHERE name IN ('usage', 'turns')")
        admin.execute(f"COMMENT ON SCHEMA {schema_of(tmp_path)} IS 'holdfast 2'".encode())
        with Engine.open(start(), settings=make_settings(tmp_path), background=False) as engine:
            store = engine._memory.store
            assert {tenant: sum_figures(store, tenant) for tenant in tenants} == known
            for tenant, rows in kept.items():
                assert store.read_messages(Select(scope=Scope(tenant=tenant), across=True)) == rows
            add_turns(engine, Scope(session="新会话"), turns=1)
            assert [sum_figures(store, tenant) for tenant in tenants] == [(6, 600, 6), (5, 500, 5)]

    def test_an_append_reads_few_rows_before_the_server_analyzes(
        self, tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """A server that knows nothing of a table yet does not collect all rows of a tenant to find the last one."""
        query = "SELECT sum(idx_tup_read)::int FROM pg_stat_user_indexes WHERE schemaname = current_schema()"
        read: list[object] = []
        for count in (2000, 1):
            with closing(open_postgres(tmp_path)) as store:
                scopes = [replace(HERE, session=f"session {number % 50}") for number in range(count)]
                store.add_messages(
                    [make_message(f"{number} of {count}", scope=scope) for number, scope in enumerate(scopes)]
                )
                drop_connections(admin, store)  # a connection reports what it read when it ends
            admin.execute("SELECT pg_stat_clear_snapshot()")
            read += admin.execute(query).fetchone() or ()
        assert int(str(read[1])) - int(str(read[0])) < 500


class TestTenants:
    def test_row_security_keeps_tenants_apart(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """A statement without any condition sees the rows of the tenant of its transaction, and none without one."""
        store.add_messages([make_message("mine")])
        store.add_messages([make_message("theirs", scope=OTHER), make_message("theirs too", scope=OTHER)])
        counts = []
        for tenant in ("", "0", "1"):
            with admin.transaction():
                admin.execute(f"SET LOCAL ROLE {ROLE}".encode())
                admin.execute("SELECT set_config('holdfast.tenant', %s, true)", (tenant,))
                counts.append(admin.execute("SELECT count(*) FROM messages").fetchone())
                assert admin.execute("SELECT count(*) FROM messages_0").fetchone() == (0,)
                with pytest.raises(psycopg.errors.InsufficientPrivilege), admin.transaction():
                    admin.execute("INSERT INTO counters(tenant, name, value) VALUES (7, 'x', 1)")
        assert counts == [(0,), (1,), (2,)]

    def test_the_role_cannot_bypass_row_security(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """Transactions of a superuser's login run as a role that row security applies to."""
        found = admin.execute("SELECT rolsuper, rolbypassrls, rolcanlogin FROM pg_roles WHERE rolname = %s", (ROLE,))
        assert found.fetchone() == (False, False, False)
        assert store.read("x", lambda db: db.execute("SELECT current_user").fetchone()) == (ROLE,)

    def test_only_the_owner_can_rewrite_the_tables(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]], tmp_path: Path
    ) -> None:
        """PostgreSQL skips tables of others with a warning: that is an error, and the text still counts as there."""
        store.remove_messages(Select(scope=HERE, ids=tuple(store.add_messages([make_message("mine")]))))
        schema, login = schema_of(tmp_path), f"{schema_of(tmp_path)}_app"
        admin.execute(f"CREATE ROLE {login} LOGIN".encode())
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {login}".encode())
        admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {login}".encode())
        address = make_conninfo(start(), user=login)
        with closing(
            PostgresStore(address, home=tmp_path, schema=schema, partitions=1, connections=2, wait=PATIENCE)
        ) as app:
            with pytest.raises(StorageError, match="owns the tables"):
                app.vacuum()
            assert "vacuum" in app.check().warnings[0]
        admin.execute(f"DROP OWNED BY {login}; DROP ROLE {login}".encode())
        store.vacuum()
        assert not store.check().warnings

    def test_no_read_crosses(self, store: PostgresStore) -> None:
        """Reads of every kind, in scopes drawn by chance, show no row of another scope."""
        assert crossings(store, add_canaries(store), reads=300) == 0

    def test_numbers_of_passages_differ_between_tenants(self, store: PostgresStore) -> None:
        """A vector is stored with the passage of its tenant, and found by no other."""
        store.add_messages([make_message("mine")])
        store.add_messages([make_message("theirs", scope=OTHER)])
        (mine,), (theirs,) = (store.read_passages(Select(scope=scope)) for scope in (HERE, OTHER))
        assert mine.number != theirs.number
        assert [passage.number for passage in store.without_vectors(MODEL, limit=9)] == [mine.number, theirs.number]
        assert store.add_vectors([vectors(theirs.number, [3])]) == 1
        assert [passage.number for passage in store.without_vectors(MODEL, limit=9)] == [mine.number]
        assert store.search(make_query("mine", seed=3)).cosine is None
        found = store.search(make_query("theirs", seed=3, scope=OTHER))
        assert found.passages.tolist() == [theirs.number]
        assert store.embedded(MODEL) == 1


class TestVectors:
    def compare_with_all(self, store: PostgresStore, large: PostgresStore, scopes: list[Scope], space: Space) -> None:
        """Check that the best of a store whose vectors stay on the server are those of a comparison with all."""
        for number, across in product((3, 1650, 2999), (False, True)):
            scope = scopes[number >= 2500]
            exact, found = (
                each.search(make_query(seed=number, scope=scope, across=across, space=space)) for each in (store, large)
            )
            assert exact.cosine is not None
            assert found.cosine is not None
            assert found.passages[found.cosine.argmax()] == exact.passages[exact.cosine.argmax()] == number
            assert np.allclose(found.nearest, exact.nearest, atol=0.01)

    @pytest.mark.variants(first=True)
    @pytest.mark.parametrize("signs", [1000, 9000])
    def test_vectors_of_a_large_tenant_stay_on_the_server(
        self, store: PostgresStore, tmp_path: Path, signs: int
    ) -> None:
        """Signs in memory, or an index of them on the server, tell which windows are compared, in any scope."""
        space = replace(MODEL, dimension=72)
        scopes = [HERE, replace(HERE, session="s2")]
        for scope, numbers in zip(scopes, (range(2500), range(2500, 3000)), strict=True):
            store.add_messages([make_message(f"passage {n}", scope=scope) for n in numbers])
        passages = store.read_passages(Select(scope=HERE, across=True))
        store.add_vectors([vectors(row.number, [row.number], space=space) for row in passages])
        limits: dict[str, Any] = {"wait": PATIENCE, "max_loaded_windows": 1000, "max_loaded_signs": signs}
        with closing(PostgresStore(start(), home=tmp_path, schema=schema_of(tmp_path), **limits)) as large:
            if signs == 1000:
                require_hamming()
                assert large.index_vectors() == ["vectors_near_0_1"]
            assert large.index_vectors() == []
            self.compare_with_all(store, large, scopes, space)
            renewed = [vectors(row.number, [7000 if row.number == 3 else row.number], space=space) for row in passages]
            assert large.add_vectors(renewed) == 3000  # in place of the earlier ones
            for is_moved in (False, True):
                if is_moved:
                    large.vacuum()  # writes every row to another place
                for seed, number in ((7000, 3), (1650, 1650)):
                    changed = large.search(make_query(seed=seed, across=True, space=space))
                    assert changed.cosine is not None
                    assert changed.passages[changed.cosine.argmax()] == number
            large.remove_messages(Select(scope=HERE, ids=(4,)))
            gone = large.search(make_query(seed=7000, across=True, space=space))
            assert gone.cosine is not None
            assert gone.cosine.max() < 0.9


class TestWork:
    def test_one_process_works_for_a_tenant_at_a_time(self, store: PostgresStore, tmp_path: Path) -> None:
        """A second process is given another tenant's work, and none if there is no other, or another is asked for."""
        store.add_jobs([Job(scope=HERE, kind="extract", data={})])
        store.add_messages([make_message("ours"), make_message("theirs", scope=OTHER)])
        with closing(open_postgres(tmp_path)) as second, store.lock_work(MODEL) as first_may:
            assert first_may
            assert len(store.waiting("extract", limit=9)) == 1
            assert len(store.without_vectors(MODEL, limit=9)) == 1
            with second.lock_work(MODEL) as second_may:
                assert second_may
                assert second.waiting("extract", limit=9) == []
                assert len(second.without_vectors(MODEL, limit=9)) == 1
            with second.lock_work(None) as second_may:
                assert not second_may
            for tenant, is_free in ((HERE.tenant, False), (OTHER.tenant, True)):
                with second.lock_work(None, tenant=tenant) as second_may:
                    assert second_may == is_free

    def test_a_tenant_with_work_that_waits_does_not_hold_up_vectors_of_others(self, store: PostgresStore) -> None:
        """Jobs may wait for hours."""
        store.add_jobs([Job(scope=HERE, kind="open", data={})])
        store.add_messages([make_message("theirs", scope=OTHER)])
        with store.lock_work(MODEL) as may:
            assert may
            assert len(store.without_vectors(MODEL, limit=9)) == 1

    def test_facts_of_several_tenants_are_read_once(self, store: PostgresStore) -> None:
        """Also a batch that another process reads at the same time."""
        memory = Memory(store=store, settings=Settings(embedding=Embedding(provider="none")))
        scopes = [Scope(tenant=tenant, session="s") for tenant in ("t1", "t2")]
        for scope in scopes:
            said = [make_message(f"Depot d{number} closes at 10:0{number}.", scope=scope) for number in range(3)]
            store.add_messages(said)
            queue_to_end(store, scope, OWN, time=1)
        jobs = store.waiting(EXTRACT, limit=9)

        def answer(prompt: Prompt) -> str:
            for job in jobs:
                run_job(memory, job, model=depot_model())
            return extract_depots(prompt)

        for job in jobs:
            run_job(memory, job, model=depot_model(answer))
        for scope in scopes:
            facts = [row.content for row in store.read_facts(Select(scope=scope, across=True))]
            assert sorted(facts) == [f"Depot d{number} closes at 10:0{number}" for number in range(3)]

    def test_processes_hear_of_work(self, store: PostgresStore, tmp_path: Path) -> None:
        """A job that one process adds wakes another, and what it forgets leaves the other's memory."""
        with closing(open_postgres(tmp_path)) as second:
            (number,) = second.add_messages([make_message("a secret")])
            assert find_messages(second.search(make_query("secret"))) == [number]
            heard = Event()
            second.listen(heard.set)
            while not heard.wait(0.1):  # until it listens
                store.add_jobs([Job(scope=HERE, kind="extract", data={})])
            store.remove_messages(Select(scope=HERE, ids=(number,)))
            until(lambda: not any(tenant.cache.index for tenant in second._tenants.values()))


class TestTrouble:
    def test_a_lost_connection_is_replaced(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """Reads and writes continue over another connection, and a write is done once."""
        store.add_messages([make_message("before")])
        for turn in range(3):
            drop_connections(admin, store)
            assert texts(store) == ["before", *(f"after {n}" for n in range(turn))]
            drop_connections(admin, store)
            store.add_messages([make_message(f"after {turn}")])

    def test_a_transaction_that_loses_its_connection_leaves_nothing(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """The caller is told, nothing of the batch is stored, and the next write succeeds."""
        with pytest.raises(UnavailableError), store.transaction():  # noqa: PT012 - a transaction is a block
            store.add_messages([make_message("half of a batch")])
            drop_connections(admin, store)
            store.add_facts([fact("f", "the other half")])
        assert texts(store) == []
        store.add_messages([make_message("whole")])
        assert texts(store) == ["whole"]

    def test_a_commit_without_an_answer_is_looked_up(self, store: PostgresStore) -> None:
        """Whether a transaction was committed is asked of the server, so that nothing is lost or stored twice."""
        with store.transaction():
            store.add_messages([make_message("kept")])
            committed = transaction_of(store)
        assert store._has_committed(committed)
        with pytest.raises(InputError), store.transaction():  # noqa: PT012 - as above
            store.add_messages([make_message("not kept")])
            undone = transaction_of(store)
            raise InputError("something else")
        assert not store._has_committed(undone)
        assert not store._has_committed(str(2**40))

    def test_a_commit_that_fails_is_repeated(
        self, store: PostgresStore, admin: psycopg.Connection[tuple[object, ...]]
    ) -> None:
        """Where the server ends the connection in the middle of the commit, the message is stored once all the same."""
        admin.execute("CREATE SEQUENCE commits")
        admin.execute(
            "CREATE FUNCTION end_first_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            " IF nextval('commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
            " RETURN NULL; END $$"
        )
        admin.execute(
            "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION end_first_commit()"
        )
        store.add_facts([fact("f", "stored already")])
        assert store.add_messages([make_message("once")]) == [1]
        assert texts(store) == ["once"]
        assert admin.execute("SELECT last_value FROM commits").fetchone() == (2,)

    def test_a_slow_statement_ends(self, store: PostgresStore, tmp_path: Path) -> None:
        """A statement that takes longer than allowed is a typed error; nothing is retried or changed."""
        store.add_messages([make_message("hello")])
        hurried = PostgresStore(start(), home=tmp_path, schema=schema_of(tmp_path), timeout=0.1, wait=PATIENCE)
        with closing(hurried), store.transaction():
            store.add_messages([make_message("holds the lock of the tenant")])
            with pytest.raises(UnavailableError, match="timeout_seconds") as caught:
                hurried.add_messages([make_message("waits")])
            assert not caught.value.can_retry

    def test_no_free_connection_is_a_typed_error(self, tmp_path: Path) -> None:
        """Where all connections are in use, a call waits as long as allowed, and includes the fix."""
        limits: dict[str, Any] = {"connections": 2, "partitions": 1, "wait": PATIENCE}
        store = PostgresStore(start(), home=tmp_path, schema=schema_of(tmp_path), **limits)
        with closing(store), store._connect(), store._connect():
            store._wait = 0.2
            with pytest.raises(UnavailableError, match="connections"):
                store.read_messages(Select(scope=HERE))

    def test_what_a_server_cannot_keep_is_an_input_error(self, store: PostgresStore) -> None:
        """A zero byte or half a character in a name is refused, and nothing is stored."""
        for key in ("nul \0", "half \ud800"):
            with pytest.raises(InputError):
                store.add_records([Record(scope=HERE, kind="edit", key=key, data={})])
        assert store.read_records(Select(scope=HERE)) == []

    def test_an_address_without_a_server_is_reported_without_its_password(self, tmp_path: Path) -> None:
        """The message has the address, and the password is left out."""
        with pytest.raises(StorageError, match=r"127\.0\.0\.1:9/db") as caught:
            PostgresStore("postgresql://me:hunter2@127.0.0.1:9/db", home=tmp_path)
        assert "hunter2" not in str(caught.value)


class TestEngine:
    def test_an_engine_fails_open(
        self, tmp_path: Path, admin: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A conversation is recalled from the server; while it refuses connections, a request passes unchanged."""
        monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
        tables = Postgres(schema=schema_of(tmp_path), partitions=1, wait_seconds=300)
        settings = Settings(postgres=tables, embedding=Embedding(provider="none"))
        with Engine.open(start(), settings=settings) as engine:
            session = engine.session("s1")
            history = [{"role": "user", "content": "The port of the staging server is 8443."}]
            session.assemble(history, limit=8000)
            assert [hit.message for hit in session.search("Which port has the staging server?")] == [1]
            assert engine.stats().path.startswith("postgresql://")
            admin.execute(f"ALTER SCHEMA {schema_of(tmp_path)} RENAME TO away".encode())
            try:
                window = session.assemble([*history, {"role": "user", "content": "Are you there?"}], limit=8000)
            finally:
                admin.execute(f"ALTER SCHEMA away RENAME TO {schema_of(tmp_path)}".encode())
            assert "Are you there?" in str(window.request("openai_chat"))
            assert any("archive" in warning or "postgresql" in warning for warning in window.report.warnings)
            session.assemble([*history, {"role": "user", "content": "Are you there?"}], limit=8000)
            assert sum(info.messages for info in engine.sessions()) == 2
