"""Damage is found, said, and repaired from what is intact."""

import random
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.errors import StorageError
from holdfast.memory import archive
from holdfast.messages import Message
from holdfast.settings import Secret
from holdfast.store.base import Job, PassageText, Record, Scope, Select
from holdfast.store.connection import connect, is_store_file, migrate, open_file
from holdfast.store.cutting import plain_cut
from holdfast.store.repair import list_lost, recover_rows, repair
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check
from holdfast.testing.rows import HERE, fact, find_messages, make_message, make_query, texts, vectors, word
from support.killed_repair import MOMENTS, kill_repair
from support.stores import KEY, require_sqlcipher

PAGE = 4096
ELSEWHERE = Scope(tenant="other", session="s9")


def fill(path: Path, count: int = 700) -> list[int]:
    """A store with rows of every kind, in two scopes; one message is forgotten."""
    data, numbers = make_store(count)
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(data)
    return list(numbers)


@cache
def make_store(count: int) -> tuple[bytes, list[int]]:
    """Return the file of such a store, and the numbers of its messages."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        numbers = write_rows(path, count)
        return path.read_bytes(), numbers


def write_rows(path: Path, count: int, *, key: Secret | None = None) -> list[int]:
    """Store rows of every kind."""
    with SqliteStore(path, key=key) as store:
        numbers = store.add_messages([make_message(f"{word('item', n)} {'padding ' * (n % 60)}") for n in range(count)])
        store.add_messages([make_message("theirs", scope=ELSEWHERE)])
        store.add_facts([fact(f"f{n}", f"fact {n}") for n in range(20)])
        store.add_records([Record(scope=HERE, kind="edit", key=f"e{n}", data={"n": n}) for n in range(20)])
        store.add_jobs([Job(scope=HERE, kind="embed", data={"n": n}) for n in range(5)])
        store.add_vectors([vectors(n, [n]) for n in range(10)])
        store.remove_messages(Select(scope=HERE, ids=(numbers[3],)))
    return numbers


def find_pages(path: Path, *tables: str, key: Secret | None = None) -> list[int]:
    """Return the first page of each table, counted from 0. A small table has no other."""
    with closing(open_file(path, key=key)) as connection:
        pages = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
    return [pages[table] - 1 for table in tables]


def spoil(path: Path, *pages: int) -> None:
    """Overwrite pages of a file, counted from 0."""
    data = bytearray(path.read_bytes())
    for page in pages:
        data[page * PAGE : (page + 1) * PAGE] = random.Random(page).randbytes(PAGE)  # noqa: S311 - any bytes will do
    path.write_bytes(data)


def change(path: Path, statement: str) -> None:
    """Do what no store would do."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


class TestCheck:
    def test_a_whole_store_is_found_whole(self, tmp_path: Path) -> None:
        """A store in order is said to be so, with what it holds, and looking changes nothing."""
        path = tmp_path / "store.db"
        fill(path)
        before = path.read_bytes()
        health = check(path)
        assert (health.sound, health.damage, health.index, health.warnings) == (True, (), (), ())
        counts = {name: count for name, count in health.counts.items() if name != "sessions"}
        assert counts == {"messages": 700, "passages": 700, "facts": 20}
        assert path.read_bytes() == before

    @pytest.mark.variants
    @pytest.mark.parametrize(
        ("statement", "part", "text"),
        [
            ("UPDATE messages SET body = substr(body, 1, 20) WHERE id = 7", "damage", "message 7 cannot be read"),
            ("DELETE FROM messages WHERE id = 7", "damage", "1 passages without their message"),
            ("DELETE FROM scopes WHERE id = 1", "damage", "1 messages without their scope"),
            ("INSERT INTO vectors(space, passage, data) VALUES (1, 9999, x'00')", "damage", "1 vectors without"),
            ("DELETE FROM pending WHERE number = 699", "index", "passage 699 is not in the index"),
            ("UPDATE pending SET terms = x'00' WHERE number = 699", "index", "passage 699 is not in the index"),
            ("INSERT INTO pending VALUES (1, x'00')", "index", "1 passages are pending and sealed at once"),
            ("DELETE FROM blocks", "index", "0 passages are in blocks, 512 in runs"),
            ("UPDATE blocks SET data = x'00'", "index", "the block of passages 0 to 511"),
            ("UPDATE passages SET alive = 0 WHERE number = 9", "index", "the block of passages 0 to 511"),
            ("UPDATE postings SET data = CAST(data || x'01' AS BLOB)", "index", "is broken"),
            ("UPDATE postings SET data = x'ffffffff01'", "index", "is broken"),
            ("UPDATE passages SET windows = x'00'", "damage", "a row is damaged"),
            ("UPDATE runs SET first = 5", "index", "do not follow each other"),
            (
                "INSERT INTO postings VALUES (99, 1, x'0000000001')",
                "index",
                "1 runs of posting lists belong to nothing",
            ),
            ("DELETE FROM passages WHERE number = 600", "index", "numbers of passages are missing"),
        ],
    )
    def test_what_does_not_fit_is_named(self, tmp_path: Path, statement: str, part: str, text: str) -> None:
        """Rows that cannot be read, that belong to nothing, or that the index does not know are named."""
        path = tmp_path / "store.db"
        fill(path)
        change(path, statement)
        health = check(path)
        assert any(text in problem for problem in getattr(health, part))
        assert not health.sound

    def test_broken_pages_are_named(self, tmp_path: Path) -> None:
        """A file whose structure is broken is reported as such, also where SQLite cannot open it at all."""
        path = tmp_path / "store.db"
        fill(path)
        spoil(path, 20, 21)
        assert not check(path).sound
        spoil(path, 0)
        assert any("doctor --repair" in problem for problem in check(path).damage)

    def test_what_is_not_a_store_of_this_version_is_refused(self, tmp_path: Path) -> None:
        """A database of another program, and a store of a newer version: a repair would not help."""
        other = tmp_path / "app.db"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE customers(name)")
        with pytest.raises(StorageError, match="a database of another program"):
            check(other)
        path = tmp_path / "store.db"
        fill(path, 10)
        change(path, "PRAGMA user_version = 99")
        with pytest.raises(StorageError, match="written by a newer Holdfast"):
            check(path)

    def test_a_store_without_its_header_is_damaged(self, tmp_path: Path) -> None:
        """A repair writes another header."""
        path = tmp_path / "store.db"
        fill(path, 10)
        change(path, "PRAGMA user_version = 0")
        assert check(path).damage == ("the header is not that of a Holdfast store",)
        repair(path, stamp="t")
        assert check(path).damage == ()

    def test_lost_facts_are_named(self, tmp_path: Path) -> None:
        """As messages are, by their numbers."""
        path = tmp_path / "store.db"
        fill(path, 10)
        change(path, "DELETE FROM facts WHERE version IN (3, 4)")
        report = repair(path, stamp="t")
        assert "the facts with these numbers, unless they were forgotten before: 3-4" in report.lost

    @pytest.mark.parametrize("is_encrypted", [False, True])
    def test_lost_records_and_jobs_are_counted(self, tmp_path: Path, *, is_encrypted: bool) -> None:
        """By kind, as far as the indexes list them: titles and edits have no numbers without gaps."""
        path = tmp_path / "store.db"
        key = None
        if is_encrypted:
            require_sqlcipher()
            key = KEY
        write_rows(path, 10, key=key)
        spoil(path, *find_pages(path, "records", "jobs", key=key))
        before = path.read_bytes()
        lost = ("20 records (20 edit)", "5 jobs (5 embed)")
        assert list_lost(path, key=key)[-2:] == lost
        assert path.read_bytes() == before
        assert repair(path, key=key, stamp="t").lost[-2:] == lost
        assert set(lost).isdisjoint(list_lost(path, key=key))

    def test_a_missing_file_is_not_made(self, tmp_path: Path) -> None:
        """A wrong path is a typed error, and no file comes of it."""
        for look in (check, repair):
            with pytest.raises(StorageError, match="no such store"):
                look(tmp_path / "nowhere.db")
        assert list(tmp_path.iterdir()) == []


class TestRepair:
    def test_a_link_to_the_store_stays_a_link_and_the_log_is_read(self, tmp_path: Path) -> None:
        """The log is next to the file, and not next to the link."""
        open_path = tmp_path / "open.db"
        file = tmp_path / "disk" / "store.db"
        file.parent.mkdir()
        with SqliteStore(open_path) as store:
            store.add_messages([make_message("a message that only the log has")])
            for suffix in ("", "-wal"):  # as a crash leaves them
                shutil.copyfile(f"{open_path}{suffix}", f"{file}{suffix}")
        link = tmp_path / "store.db"
        link.symlink_to(file)
        repair(link)
        assert link.is_symlink()
        with SqliteStore(link) as store:
            assert texts(store) == ["a message that only the log has"]

    def test_a_whole_store_stays_as_it_is(self, tmp_path: Path) -> None:
        """Repairing what is not broken keeps every row under its number, in its scope, and what is forgotten out."""
        path = tmp_path / "store.db"
        numbers = fill(path)
        report = repair(path, stamp="t1")
        assert report.kept == {"messages": 700, "facts": 20, "records": 20, "jobs": 5}
        assert (report.lost, report.unscoped) == ((), 0)
        with SqliteStore(path) as store:
            kept = store.read_messages(Select(scope=HERE))
            assert [row.id for row in kept] == [number for number in numbers if number != numbers[3]]
            assert texts(store, scope=ELSEWHERE) == ["theirs"]
            assert find_messages(store.search(make_query(word("item", 600)))) == [numbers[600]]
            assert store.add_messages([make_message(f"{word('item', 3)} {'padding ' * 3}")]) == [0]
            assert store.add_messages([make_message("something new")])[0] > max(numbers)
            assert [row.content for row in store.read_facts(Select(scope=HERE))][-1] == "fact 19"
            assert store.read_records(Select(scope=HERE), keys=("e7",))[0].data == {"n": 7}
        assert check(path).sound

    def test_every_row_on_an_intact_page_is_saved(self, tmp_path: Path) -> None:
        """Whatever pages are broken, inner ones and the first one too, rows on the others are saved."""
        path = tmp_path / "store.db"
        numbers = fill(path)
        whole = path.read_bytes()
        chance = random.Random(4)  # noqa: S311 - chance, not secrecy
        for turn in range(3):
            path.write_bytes(whole)
            pages = {0, *chance.sample(range(len(whole) // PAGE), 4)}
            spoil(path, *pages)
            report = repair(path, stamp=f"t{turn}")
            assert report.kept["messages"] >= 700 - 4 * 45
            with SqliteStore(path) as store:
                for row in store.read_messages(Select(scope=HERE, across=True)):
                    assert row.message.text.split()[0] == word("item", numbers.index(row.id))
                assert store.add_messages([make_message("goes on")])
            assert check(path).sound

    def test_the_log_is_read_too(self, tmp_path: Path) -> None:
        """What was acknowledged and is only in the write-ahead log is saved with the rest."""
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        store.add_messages([make_message("in the file")])
        store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.add_messages([make_message("in the log")])
        copy = tmp_path / "copy.db"
        for end in ("", "-wal"):
            copy.with_name(f"copy.db{end}").write_bytes(path.with_name(f"store.db{end}").read_bytes())
        store.close()
        spoil(copy, 0)
        report = repair(copy, stamp="t")
        with SqliteStore(copy) as repaired:
            assert texts(repaired) == ["in the file", "in the log"]
        assert report.damaged.with_name(f"{report.damaged.name}-wal").exists()

    def test_the_damaged_file_is_kept_and_both_are_private(self, tmp_path: Path) -> None:
        """The damaged file stays next to the new one under its stamp; only the owner can read either."""
        path = tmp_path / "store.db"
        fill(path, 50)
        spoil(path, 0)
        before = path.read_bytes()
        report = repair(path)
        assert report.damaged.read_bytes() == before
        assert report.damaged.name.startswith("store.db.damaged.2")
        assert [stat.S_IMODE(file.stat().st_mode) for file in (path, report.damaged)] == [0o600, 0o600]
        assert sorted(file.name for file in tmp_path.iterdir()) == ["store.db", report.damaged.name]
        assert report.damaged.name in report.summary

    def test_files_that_cannot_be_read_are_reported(self, tmp_path: Path) -> None:
        """A row that cannot be read is named as lost; one whose scope is lost goes where no one else looks."""
        path = tmp_path / "store.db"
        fill(path, 20)
        change(path, "UPDATE messages SET body = x'01ff' WHERE id = 7")
        change(path, "DELETE FROM scopes WHERE id = 1")
        report = repair(path, stamp="t")
        assert report.lost == ("message 7 cannot be read",)
        assert report.unscoped == 1
        assert "message 7 cannot be read" in report.summary
        with SqliteStore(path) as store:
            assert texts(store, scope=ELSEWHERE) == []
            assert texts(store, scope=Scope(tenant="recovered"), across=True) == ["theirs"]

    def test_noise_stays_out_of_the_index(self, tmp_path: Path) -> None:
        """The index is built with the caller's own cut of a message."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            store.add_messages(
                make_rows(
                    [row.message for row in (make_message("thanks"), make_message("the gateway listens on 8443"))],
                    scope=HERE,
                )
            )
        repair(path, cutter=lambda _: archive.passages_of, stamp="t")
        with SqliteStore(path) as store:
            assert len(texts(store)) == 2
            assert len(store.read_passages(Select(scope=HERE))) == 1

    @pytest.mark.parametrize(
        "spoiled", [lambda _: b"", lambda data: data[: len(data) // 2 + 100]], ids=["empty", "half"]
    )
    def test_however_little_is_left_the_repaired_store_opens(
        self, tmp_path: Path, spoiled: Callable[[bytes], bytes]
    ) -> None:
        """It has what the report says."""
        path = tmp_path / "store.db"
        fill(path, 60)
        path.write_bytes(spoiled(path.read_bytes()))
        report = repair(path, stamp="t")
        with SqliteStore(path) as store:
            assert len(texts(store, across=True)) + len(texts(store, scope=ELSEWHERE)) == report.kept["messages"]
        assert check(path).sound

    @pytest.mark.parametrize("data", [b"\xff" * 9000, b"SQLite format 3\0" + b"\0" * 40, b"My notes.\n"])
    def test_a_file_with_nothing_from_a_store_is_left_as_it_is(self, tmp_path: Path, data: bytes) -> None:
        """It may be something else, and an empty store in its place is worth nothing."""
        path = tmp_path / "notes.txt"
        path.write_bytes(data)
        with pytest.raises(StorageError, match="nothing in this file is from a Holdfast store"):
            repair(path, stamp="t")
        assert path.read_bytes() == data
        assert list(tmp_path.iterdir()) == [path]

    def test_a_database_of_another_program_is_left_as_it_is(self, tmp_path: Path) -> None:
        """Even if a row of it looks like one of ours."""
        path = tmp_path / "app.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE customers(id INTEGER PRIMARY KEY, a, b, c, d)")
            connection.execute("INSERT INTO customers VALUES (1, 'Ada', 'Berlin', 'x', 'y')")
            connection.commit()
        before = path.read_bytes()
        with pytest.raises(StorageError, match="a database of another program, which is left as it is"):
            repair(path, stamp="t")
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:],
            lambda data: data[:16] + bytes(PAGE - 16) + data[PAGE:],
            lambda data: data[:64] + bytes(512 - 64) + data[512:],
        ],
        ids=["a bit of the mark", "all but the name of the format", "the end of the header"],
    )
    def test_a_store_with_a_damaged_mark_is_not_taken_for_anothers(
        self, tmp_path: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        """What is on the other pages is saved."""
        path = tmp_path / "store.db"
        fill(path, 60)
        path.write_bytes(damage(path.read_bytes()))
        assert repair(path, stamp="t").kept["messages"] == 60

    def test_a_copy_of_the_tables_has_no_mark_and_is_ours(self, tmp_path: Path) -> None:
        """As the shell of SQLite makes it with `.dump`."""
        path = tmp_path / "store.db"
        fill(path, 60)
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            target.executescript("\n".join(source.iterdump()))
        assert not is_store_file(copy)
        assert repair(copy, stamp="t").kept["messages"] == 60

    def test_an_empty_file_with_the_log_of_another_program(self, tmp_path: Path) -> None:
        """All of the database is in the log."""
        path = tmp_path / "app.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE customers(a, b, c, d)")
            connection.execute("INSERT INTO customers VALUES ('Ada', 'Berlin', 'x', 'y')")
            connection.commit()
            shutil.copyfile(f"{path}-wal", tmp_path / "lost.db-wal")
        (tmp_path / "lost.db").touch()
        with pytest.raises(StorageError, match="Choose another file"):
            repair(tmp_path / "lost.db", stamp="t")

    def test_a_store_whose_tables_are_in_the_log_only_is_repaired(self, tmp_path: Path) -> None:
        """Its file does not say yet whose it is."""
        path = tmp_path / "store.db"
        with closing(connect(path, wait=0)) as writer:
            migrate(writer, path=path)
            with SqliteStore(path) as store:
                store.add_messages([make_message("the gateway listens on 8443")])
            copy = tmp_path / "copy.db"
            for ending in ("", "-wal"):
                shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        assert not is_store_file(copy)
        assert repair(copy, stamp="t").kept["messages"] == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
class TestKilledRepair:
    """A repair that is killed leaves parts of copies of the store."""

    @pytest.mark.variants(first=True)
    @MOMENTS
    def test_the_next_repair_deletes_what_is_left(self, tmp_path: Path, moment: str) -> None:
        """The damaged copy that it keeps itself stays."""
        path = tmp_path / "store.db"
        fill(path, 60)
        spoil(path, 5)
        assert kill_repair(path, moment=moment)
        report = repair(path)
        assert sorted(tmp_path.rglob("*")) == [path, report.damaged]
        assert check(path).sound

    @pytest.mark.variants(first=True)
    @MOMENTS
    def test_forgetting_deletes_what_is_left(self, tmp_path: Path, moment: str) -> None:
        """It may contain what is forgotten."""
        path = tmp_path / "store.db"
        fill(path, 60)
        left = kill_repair(path, moment=moment)
        with SqliteStore(path) as store:
            store.remove_messages(Select(scope=HERE, ids=(5,)))
            assert not any(file.exists() for file in left)
        assert sorted(tmp_path.rglob("*")) == [path]

    def test_forgetting_leaves_files_of_others_alone(self, tmp_path: Path) -> None:
        """Even if they have similar names, or a link leads to a file with the name of a copy."""
        path = tmp_path / "memory" / "store.db"
        fill(path, 60)
        theirs = [
            path.parent / ".repair-notes" / "todo.md",
            path.parent / "store.db.repaired.txt",
            path.parent / "store.db.converted.txt",
            tmp_path / "elsewhere" / "copy.db",
        ]
        for file in theirs:
            file.parent.mkdir(exist_ok=True)
            file.write_text("mine", "utf-8")
        (path.parent / ".repair-elsewhere").symlink_to(tmp_path / "elsewhere")
        with SqliteStore(path) as store:
            store.remove_messages(Select(scope=HERE, ids=(5,)))
        assert [file.read_text("utf-8") for file in theirs] == ["mine"] * len(theirs)

    def test_a_repair_whose_work_is_deleted_changes_nothing(self, tmp_path: Path) -> None:
        """Another process has forgotten a message meanwhile. The log of the store stays too."""
        path = tmp_path / "store.db"
        fill(path, 60)
        with SqliteStore(path) as store:
            store.add_messages([make_message("in the log")])
            before = {file.name: file.read_bytes() for file in (path, tmp_path / "store.db-wal")}

            def delete(message: Message) -> Sequence[PassageText]:
                for file in tmp_path.glob("store.db.repaired.*"):
                    file.unlink()
                return plain_cut(message)

            with pytest.raises(StorageError):
                repair(path, cutter=lambda _: delete)
            assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_forgetting_through_a_link_deletes_damaged_copies(tmp_path: Path) -> None:
    """They are next to the file, not next to the link."""
    path = tmp_path / "disk" / "store.db"
    link = tmp_path / "store.db"
    fill(path, 60)
    link.symlink_to(path)
    report = repair(link)
    assert report.damaged.exists()
    with SqliteStore(link) as store:
        store.remove_messages(Select(scope=HERE, ids=(5,)))
    assert not report.damaged.exists()


def test_long_rows_and_every_type_of_value_are_read(tmp_path: Path) -> None:
    """Rows that continue over many pages, and numbers of every width, are read straight from the pages."""
    path = tmp_path / "any.db"
    values = [None, 0, 1, -5, 300, -70_000, 2**31, 2**45, -(2**62), 1.5, "text 文", "x" * 9000, b"y" * 20_000]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, value)")
        connection.executemany("INSERT INTO t(value) VALUES (?)", [(value,) for value in values])
        connection.execute("CREATE TABLE gone(id INTEGER PRIMARY KEY, value)")
        connection.executemany("INSERT INTO gone(value) VALUES (?)", [("deleted" * 100,)] * 200)
        connection.execute("DROP TABLE gone")
        connection.commit()
    found = {number: row[1] if row else None for number, row in recover_rows(path)}
    assert [found[number] for number in range(1, len(values) + 1)] == values
    assert "deleted" * 100 not in found.values()
