"""A memory moves from a file to a server and back, whole, however often the copy is interrupted."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from holdfast.cli import holdfast
from holdfast.errors import InputError
from holdfast.memory.block import open_marks
from holdfast.memory.memory import Memory
from holdfast.settings import Settings
from holdfast.settings.schema import Postgres
from holdfast.store.base import Record, Select, Store
from holdfast.store.moving import move
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import HERE, MODEL, fact, make_message, make_query, vectors
from support.command import Done, run_command
from support.postgres_server import open_postgres, schema_of, start

OTHER = replace(HERE, tenant="other")
CITY = "The capital of Mongolia is Ulaanbaatar."


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SqliteStore]:
    """A file with two tenants, vectors, and something forgotten."""
    with SqliteStore(tmp_path / "source.db") as store:
        store.add_messages([make_message(f"theirs {n}", scope=OTHER) for n in range(3)])
        numbers = store.add_messages(
            [make_message(f"mine {n} 改用蓝色 {'word ' * (n * 40)}", time=n) for n in range(30)]
        )
        store.add_facts([replace(fact("f", CITY), evidence=(numbers[3],)), fact("g", "gone")])
        store.add_records([Record(scope=HERE, kind="edit", key="1", data={"ids": numbers[:2]}, is_new=True)])
        rows = store.read_passages(Select(scope=HERE))
        store.add_vectors([vectors(row.number, range(len(row.windows))) for row in rows])
        last = store.add_messages([make_message("the last, whose number is not given again")])
        store.remove_messages(Select(scope=HERE, ids=(numbers[5], *last)))
        store.remove_facts(Select(scope=HERE), keys=("g",))
        yield store


def content(store: Store) -> list[object]:
    """Whatever a reader sees, and how a question is ranked; passages are numbered by each store."""
    select = Select(scope=HERE)
    passages = [replace(row, number=0) for row in store.read_passages(select)]
    found = store.search(make_query("mine 7 蓝色", seed=2))
    assert found.cosine is not None
    scores = np.stack([found.messages, found.keyword, found.together, found.cosine]).round(4)
    rows = [store.read_messages(select), store.read_facts(select), store.read_records(select), passages]
    return [*rows, scores.tolist(), found.nearest.round(4).tolist()]


def test_a_memory_moves_to_a_server_and_back(source: SqliteStore, tmp_path: Path) -> None:
    """All rows, numbers, vectors and rankings are the same there and back; what was forgotten stays out."""
    forgotten = make_message(f"mine 5 改用蓝色 {'word ' * 200}", time=5)
    with closing(open_postgres(tmp_path)) as server, SqliteStore(tmp_path / "back.db") as back:
        there = [move(source, server, tenant) for tenant in source.tenants()]
        again = move(server, back, "local")
        assert [one.rows["messages"] for one in there] == [29, 3]
        assert again.digest == there[0].digest
        assert content(source) == content(server) == content(back)
        for store in (server, back):
            assert store.embedded(MODEL) == len(store.read_passages(Select(scope=HERE)))
            assert store.add_messages([forgotten, make_message("new")]) == [0, 35]
        with pytest.raises(InputError, match="empty target"):
            move(source, server, "local")


def test_an_interrupted_copy_continues(source: SqliteStore, tmp_path: Path) -> None:
    """A copy that stops after any step is completed by the next."""
    reached: list[str] = []

    def interrupt(table: str, _: int) -> None:
        if table not in reached:
            reached.append(table)
            raise KeyboardInterrupt

    with closing(open_postgres(tmp_path)) as server:
        for _ in range(4):
            with pytest.raises(KeyboardInterrupt):
                move(source, server, "local", progress=interrupt)
        assert reached == ["messages", "facts", "records", "passages"]
        assert move(source, server, "local").rows["messages"] == 29
        assert content(source) == content(server)


def test_a_complete_copy_is_only_compared(source: SqliteStore, tmp_path: Path) -> None:
    """After an interruption in a later tenant the command is repeated; the keys of the store come along once."""
    keys = open_marks(source).keys
    with closing(open_postgres(tmp_path)) as server, SqliteStore(tmp_path / "back.db") as back:
        first = move(source, server, "local")
        assert move(source, server, "local") == first
        assert move(source, server, "other").rows["messages"] == 3
        move(server, back, "local")
        assert open_marks(server).keys == open_marks(back).keys == keys
        source.add_messages([make_message("later")])
        with pytest.raises(InputError, match="other rows of tenant local"):
            move(source, server, "local")


def test_a_file_with_keys_moves_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of the store itself are no tenant: a memory of one tenant moves to a file without naming it."""
    monkeypatch.setenv("HOLDFAST_POSTGRES__SCHEMA", schema_of(tmp_path))
    monkeypatch.setenv("HOLDFAST_POSTGRES__PARTITIONS", "1")
    with SqliteStore(tmp_path / "source.db") as store:
        store.add_messages([make_message("mine")])
        keys = open_marks(store).keys
    for source, target in ((tmp_path / "source.db", start()), (start(), tmp_path / "back.db")):
        result = CliRunner().invoke(holdfast, ["migrate", str(source), str(target), "--json"], catch_exceptions=False)
        assert [one["tenant"] for one in json.loads(result.stdout)] == ["local"]
    with SqliteStore(tmp_path / "back.db") as store:
        assert open_marks(store).keys == keys


def test_all_tenants_of_a_file_move_to_another_file(source: SqliteStore, tmp_path: Path) -> None:
    """By one command, which is repeated after an interruption in the second tenant."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with SqliteStore(tmp_path / "copy.db") as copy:
        move(source, copy, "local")
        with pytest.raises(KeyboardInterrupt):
            move(source, copy, "other", progress=interrupt)
    command = ["migrate", str(tmp_path / "source.db"), str(tmp_path / "copy.db"), "--json"]
    result = CliRunner().invoke(holdfast, command, catch_exceptions=False)
    assert [(one["tenant"], one["rows"]["messages"]) for one in json.loads(result.stdout)] == [
        ("local", 29),
        ("other", 3),
    ]
    with SqliteStore(tmp_path / "copy.db") as copy:
        assert content(copy) == content(source)
        assert copy.tenants() == source.tenants()


def test_tenants_of_a_server_need_a_file_each(tmp_path: Path) -> None:
    """They have the same numbers there, and a file has every number once."""
    with closing(open_postgres(tmp_path)) as server, SqliteStore(tmp_path / "back.db") as back:
        for scope in (HERE, OTHER):
            server.add_messages([make_message(f"the first of {scope.tenant}", scope=scope)])
        before = move(server, back, "local")
        with pytest.raises(InputError, match="give tenant other a target of its own"):
            move(server, back, "other")
        assert move(server, back, "local") == before


def test_a_command_that_copies_nothing_says_so(tmp_path: Path) -> None:
    """If a tenant does not exist, or the memory is empty."""
    with SqliteStore(tmp_path / "source.db") as store:
        store.add_messages([make_message("mine")])
    SqliteStore(tmp_path / "empty.db").close()

    def run_migrate(name: str, *options: str) -> Done:
        return run_command("migrate", name, "copy.db", *options, folder=tmp_path, environ={"HOME": str(tmp_path)})

    unknown = run_migrate("source.db", "--tenant", "nobody")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "source.db has no tenant nobody; it has local" in unknown.stderr
    assert not (tmp_path / "copy.db").exists()
    same = run_command("migrate", "source.db", "./source.db", folder=tmp_path, environ={"HOME": str(tmp_path)})
    assert same.returncode == 1
    assert "SOURCE and TARGET are the same memory, source.db: name another place" in same.stderr
    empty = run_migrate("empty.db")
    assert empty.returncode == 0
    assert "empty.db is empty: nothing was copied" in empty.stderr


def test_the_commands_work_on_a_server(source: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`migrate`, `stats`, `reindex`, `search`, `forget`, `vacuum`, `doctor` and `export` take an address."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_POSTGRES__SCHEMA", schema_of(tmp_path))
    monkeypatch.setenv("HOLDFAST_POSTGRES__PARTITIONS", "1")
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    source.close()
    address = start()

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(holdfast, arguments, catch_exceptions=False)
        assert result.exit_code == 0, (arguments, result.output)
        return result.stdout

    moved = json.loads(run("migrate", str(tmp_path / "source.db"), address, "--json"))
    assert [one["tenant"] for one in moved] == ["local", "other"]
    here = ("--home", address)
    assert json.loads(run("stats", *here, "--json"))["messages"] == 32
    assert json.loads(run("reindex", *here, "--json"))["passages"] > 32
    hits = json.loads(run("search", "mine 7", *here, "--json"))
    assert hits
    run("forget", str(hits[0]["message"]), "--yes", *here)
    assert "holdfast vacuum" in run("doctor", *here)
    run("vacuum", *here)
    assert "holdfast vacuum" not in run("doctor", *here)
    run("export", str(tmp_path / "out.jsonl"), *here)
    settings = Settings(postgres=Postgres(schema=schema_of(tmp_path)))
    with Memory.open(address, settings=settings) as memory:
        assert memory.store.counts()["messages"] == 31
    assert CITY in (tmp_path / "out.jsonl").read_text()
