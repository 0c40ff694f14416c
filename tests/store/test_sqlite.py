"""The embedded store: what only a SQLite file can get right or wrong."""

import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from holdfast.errors import InputError, StorageError
from holdfast.index import tables as index_tables
from holdfast.index.tables import BLOCK_PASSAGES
from holdfast.messages import Message, Text
from holdfast.store import sqlite_vectors
from holdfast.store.base import MessageRow, Period, Record, Scope, Select
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.processes import run_writers
from holdfast.testing.rows import (
    HERE,
    MODEL,
    fact,
    find_messages,
    make_message,
    make_query,
    readers,
    texts,
    use_store,
    vectors,
    word,
)
from support.stores import open_sqlite


def rows_of(path: Path, query: str) -> list[tuple[object, ...]]:
    """What a query says, asked by someone else."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


class TestTheFile:
    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        """The file, its log, its shared memory and every folder made for it belong to the owner alone."""
        before = os.umask(0)
        try:
            path = tmp_path / "deep" / "down" / "store.db"
            with SqliteStore(path) as store:
                store.add_messages([make_message("hello there")])
                assert [mode(path.with_name(f"store.db{end}")) for end in ("", "-wal", "-shm")] == [0o600] * 3
                assert [mode(path.parent), mode(path.parent.parent)] == [0o700] * 2
        finally:
            os.umask(before)

    def test_a_closed_store_leaves_one_file(self, tmp_path: Path) -> None:
        """Closing writes the log into the file; closing twice is fine; using it then is a typed error."""
        store = SqliteStore(tmp_path / "store.db")
        store.add_messages([make_message("hello there")])
        store.close()
        store.close()
        assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
        with pytest.raises(StorageError):
            texts(store)

    def test_many_can_open_a_new_one_at_once(self, tmp_path: Path) -> None:
        """Processes that open a store that is not there yet do not get in each other's way."""
        kept = run_writers(open_sqlite, tmp_path, writers=6, turns=1)
        with use_store(open_sqlite, tmp_path) as store:
            assert sorted(kept.values()) == sorted(texts(store, across=True))
            assert len(kept) == 6

    def test_another_programs_database_is_left_alone(self, tmp_path: Path) -> None:
        """A SQLite file of another program is refused, untouched."""
        path = tmp_path / "places.sqlite"
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE bookmarks(url)")
        before = path.read_bytes()
        with pytest.raises(StorageError, match="another program"):
            SqliteStore(path)
        assert path.read_bytes() == before

    def test_a_folder_that_cannot_be_made_is_a_typed_error(self, tmp_path: Path) -> None:
        """A path through a file says that it cannot be made there."""
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError, match="Choose another place"):
            SqliteStore(tmp_path / "file" / "store.db")

    def test_text_that_is_no_database_is_named_so(self, tmp_path: Path) -> None:
        """A file that is no database at all is refused, and the error includes the fix."""
        path = tmp_path / "store.db"
        path.write_text("this is not a database, " * 100)
        with pytest.raises(StorageError, match="holdfast doctor --repair"):
            SqliteStore(path)


class TestTrouble:
    def test_a_full_disk_is_a_typed_error_and_nothing_is_lost(self, tmp_path: Path) -> None:
        """When the disk is full, the batch fails whole, what was there stays, and there is room again later."""
        with SqliteStore(tmp_path / "store.db") as store:
            store.add_messages([make_message("kept before")])
            pages = rows_of(store.path, "PRAGMA page_count")[0][0]
            store._writer.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StorageError, match="disk is full"):
                store.add_messages([make_message(NOISE.randbytes(4000).hex()) for _ in range(20)])
            assert texts(store) == ["kept before"]
            assert find_messages(store.search(make_query("kept")))
            store._writer.execute("PRAGMA max_page_count = 1000000")
            store.add_messages([make_message("kept after")])
            assert texts(store) == ["kept before", "kept after"]
        assert rows_of(tmp_path / "store.db", "PRAGMA integrity_check") == [("ok",)]

    def test_a_file_that_may_not_grow_is_a_typed_error(self, tmp_path: Path) -> None:
        """A write that the system refuses half way is a typed error; what was acknowledged is there."""
        path = tmp_path / "store.db"
        script = _SCRIPT.format(path=str(path))
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        count = int(ended.stdout)
        with SqliteStore(path) as store:
            assert len(texts(store)) == count
            store.add_messages([make_message("room again")])

    def test_a_read_only_place_is_a_typed_error(self, tmp_path: Path) -> None:
        """A store that may not be written says so, and stays as it is."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            store.add_messages([make_message("written in stone")])
        before = path.read_bytes()
        with _not_writable(tmp_path), pytest.raises(StorageError, match=r"read-only|could not be opened"):
            _as_nobody(lambda: SqliteStore(path).add_messages([make_message("not written")]))
        assert path.read_bytes() == before

    def test_a_file_of_an_earlier_version_that_cannot_be_written_has_no_figures(self, tmp_path: Path) -> None:
        """Nothing is added up, and nothing fails."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            store.add_messages([make_message("written in stone")])
        with closing(sqlite3.connect(path)) as connection:
            for table in ("usage", "turns"):
                connection.execute(f"DROP TABLE {table}")
            connection.execute("PRAGMA user_version = 3")
            connection.execute("PRAGMA journal_mode = DELETE")
        with _not_writable(tmp_path):
            _as_nobody(lambda: _expect_no_figures(path))

    def test_a_damaged_page_is_a_typed_error(self, tmp_path: Path) -> None:
        """A broken page is noticed, and the error names the command that repairs."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            store.add_messages([make_message(f"message {n} {'padding ' * 40}") for n in range(200)])
        data = bytearray(path.read_bytes())
        for start in range(4096 * 2, len(data), 4096):
            data[start : start + 64] = b"\xff" * 64
        path.write_bytes(data)
        with pytest.raises(StorageError, match="holdfast doctor --repair"):
            _read_all(path)

    def test_a_damaged_row_is_named(self, tmp_path: Path) -> None:
        """A row whose bytes are not what was written is left out and named by every read that meets it."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            (number,) = store.add_messages([make_message("a long text that is compressed " * 20)])
            store.add_facts([fact("f", "a fact")])
            store.add_records([Record(scope=HERE, kind="k", key="k", data={})])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE messages SET body = substr(body, 1, 20)")
            connection.execute("UPDATE facts SET data = substr(data, 1, 20)")
            connection.execute("UPDATE records SET data = x'ff'")
            connection.commit()
        with SqliteStore(path) as store:
            for read in readers(store):
                assert read(Select(scope=HERE)) == []
            assert [(gap.kind, gap.id) for gap in store.gaps] == [("message", number), ("fact", 1), ("record", 1)]
            assert all("is damaged and was left out: run `holdfast doctor --repair`" in str(gap) for gap in store.gaps)
            again = store.add_messages([make_message(f"intact {n}") for n in range(3)])
            for newest in (False, True):  # a limit counts what can be read
                found = store.read_messages(Select(scope=HERE, limit=2, newest=newest, before=again[2]))
                assert [row.id for row in found] == again[:2]

    def test_a_damaged_index_is_named(self, tmp_path: Path) -> None:
        """An index that is broken is told from a broken archive: nothing is lost, and `reindex` mends it."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as store:
            store.add_messages(
                [make_message("some words") for _ in range(1)] + [make_message(f"other {n}") for n in range(600)]
            )
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE blocks SET data = substr(data, 1, 1000)")
            connection.commit()
        with SqliteStore(path) as store:
            with pytest.raises(StorageError, match="holdfast reindex"):
                store.search(make_query("words"))
            assert len(texts(store)) == 601

    def test_waiting_for_a_writer_ends(self, tmp_path: Path) -> None:
        """A writer that never ends is a typed error after the wait, and nothing is lost."""
        path = tmp_path / "store.db"
        with SqliteStore(path, wait=0.05) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="another process is writing"):
                store.add_messages([make_message("blocked")])
            other.execute("ROLLBACK")
            store.add_messages([make_message("free again")])
            assert texts(store) == ["free again"]


NOISE = random.Random(7)  # noqa: S311 - text that does not compress, the same in every run
VECTOR_BLOCK = sqlite_vectors.VECTOR_BLOCK_PASSAGES
_SCRIPT = """
import os, random, resource
from holdfast.errors import StorageError
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import make_message, texts
store = SqliteStore({path!r})
store.add_messages([make_message("kept")])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
count, noise = 1, random.Random(7)
try:
    while True:
        store.add_messages([make_message(noise.randbytes(4000).hex())])
        count += 1
except StorageError as error:
    assert "Nothing" in str(error), error
print(count)
os._exit(0)
"""


def _read_all(path: Path) -> None:
    with SqliteStore(path) as store:
        texts(store)
        store.search(make_query("message"))


@contextmanager
def _not_writable(folder: Path) -> Iterator[None]:
    """A folder in which no one may write."""
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    parents = [parent for parent in folder.parents if parent.stat().st_uid == os.getuid() and parent != Path("/")]
    modes = [(parent, mode(parent)) for parent in parents[:3]]
    for parent, _ in modes:
        parent.chmod(0o755)
    try:
        yield
    finally:
        for parent, old in modes:
            parent.chmod(old)
        folder.chmod(0o755)


def _expect_no_figures(path: Path) -> None:
    with SqliteStore(path) as store:
        assert store.readonly
        assert not store.update_figures("local")
        assert store.sum_usage(Period(scope=Scope(), by="session")) == []
        assert store.sum_turns(Period(scope=Scope(), by="quarter")) == []
        assert store.read_turns(Scope(), first=1, last=9) == []


def _as_nobody(work: object) -> None:
    """Do something as a user to whom permissions apply."""
    assert callable(work)
    root = os.getuid() == 0
    if root:
        os.seteuid(65534)
    try:
        work()
    finally:
        if root:
            os.seteuid(0)


def test_reading_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """While a write waits for another process, searches and reads of the same store continue."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        store.add_messages([make_message("findable words")])
        other.execute("BEGIN IMMEDIATE")
        waiting = Thread(target=store.add_messages, args=([make_message("later words")],))
        waiting.start()
        assert texts(store) == ["findable words"]
        assert len(find_messages(store.search(make_query("words")))) == 1
        assert waiting.is_alive()
        other.execute("ROLLBACK")
        waiting.join()
        assert len(find_messages(store.search(make_query("words")))) == 2


class TestTheIndex:
    def test_it_is_sealed_and_merged_as_it_grows(self, tmp_path: Path) -> None:
        """Passages go from pending to blocks and runs, runs are merged, and everything stays findable."""
        total = BLOCK_PASSAGES * index_tables.RUNS_PER_MERGE + BLOCK_PASSAGES + 5
        with SqliteStore(tmp_path / "store.db") as store:
            numbers = store.add_messages(
                [make_message(f"{word('item', n)} and {word('kind', n % 5)}") for n in range(total)]
            )
            assert rows_of(store.path, "SELECT first, stop, level FROM runs") == [
                (0, BLOCK_PASSAGES * index_tables.RUNS_PER_MERGE, 1),
                (BLOCK_PASSAGES * index_tables.RUNS_PER_MERGE, BLOCK_PASSAGES * (index_tables.RUNS_PER_MERGE + 1), 0),
            ]
            assert rows_of(store.path, "SELECT count(*) FROM pending") == [(5,)]
            assert find_messages(store.search(make_query(word("kind", 3)))) == numbers[3::5]
            for n in (0, BLOCK_PASSAGES - 1, BLOCK_PASSAGES, total - 6, total - 5, total - 1):
                assert find_messages(store.search(make_query(word("item", n)))) == [numbers[n]]

    def test_a_batch_that_fails_leaves_memory_right(self, tmp_path: Path) -> None:
        """After a batch that was rolled back in the middle of sealing, searches and numbers are as if it never was."""
        wrong = vectors(0, [1, 2, 3])
        with SqliteStore(tmp_path / "store.db") as store:
            numbers = store.add_messages([make_message(f"{word('item', n)}") for n in range(BLOCK_PASSAGES - 2)])
            store.search(make_query("x"))
            with pytest.raises(InputError), store.transaction():  # noqa: PT012 - two writes that are one
                store.add_messages(
                    [*(make_message(f"lost {n}") for n in range(700)), make_message("x", scope=Scope(tenant="new"))]
                )
                store.add_vectors([wrong])
            assert find_messages(store.search(make_query("lost"))) == []
            numbers += store.add_messages([make_message(f"{word('item', n)}") for n in range(BLOCK_PASSAGES - 2, 1500)])
            for n in (0, BLOCK_PASSAGES - 3, BLOCK_PASSAGES - 2, 1499):
                assert find_messages(store.search(make_query(word("item", n)))) == [numbers[n]]

    def test_an_interrupted_read_is_forgotten(self, tmp_path: Path) -> None:
        """A read that is broken off leaves nothing half learned behind."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as reader, SqliteStore(path) as writer:
            writer.add_messages([make_message(f"{word('item', n)}") for n in range(700)])
            reader._reader.set_progress_handler(lambda: 1, 300)
            with pytest.raises(StorageError):
                reader.search(make_query(word("item", 5)))
            reader._reader.set_progress_handler(None, 0)
            assert len(find_messages(reader.search(make_query(word("item", 5))))) == 1
            assert len(find_messages(reader.search(make_query(word("item", 699))))) == 1

    def test_a_known_message_is_found_without_reading_the_others(self, tmp_path: Path) -> None:
        """Every turn looks up its messages: the steps that SQLite takes do not grow with the session."""
        steps: list[int] = []
        with SqliteStore(tmp_path / "store.db") as store:
            known = make_message("the first message")
            for count in (10, 2000):
                store.add_messages([known, *(make_message(f"{word('item', n)}") for n in range(count))])
                steps.append(0)

                def step() -> int:
                    steps[-1] += 1
                    return 0

                store._reader.set_progress_handler(step, 1)
                assert list(store.find(HERE, [known.message.digest]).numbers) == [known.message.digest]
                store._reader.set_progress_handler(None, 0)
        assert steps[1] < 2 * steps[0]

    def test_a_reader_catches_up_with_any_number_of_blocks(self, tmp_path: Path) -> None:
        """A process that had loaded half a block reads on correctly when others have sealed that one and more."""
        path = tmp_path / "store.db"
        with SqliteStore(path) as reader, SqliteStore(path) as writer:
            numbers = writer.add_messages([make_message(f"{word('item', n)}") for n in range(BLOCK_PASSAGES + 100)])
            assert len(find_messages(reader.search(make_query(word("item", 5))))) == 1
            numbers += writer.add_messages(
                [make_message(f"{word('item', n)}") for n in range(len(numbers), 4 * BLOCK_PASSAGES + 7)]
            )
            for n in (
                0,
                BLOCK_PASSAGES + 99,
                BLOCK_PASSAGES + 100,
                3 * BLOCK_PASSAGES,
                len(numbers) - 1,
            ):
                found = reader.search(make_query(word("item", n)))
                assert find_messages(found) == [numbers[n]]
            assert found.messages.tolist() == numbers

    def test_the_only_passage_is_not_shown_to_others(self, tmp_path: Path) -> None:
        """A store with one passage does not score it for a reader who may not see it."""
        with SqliteStore(tmp_path / "store.db") as store:
            store.add_messages([make_message("only mine")])
            assert not len(store.search(make_query("mine", scope=Scope(tenant="you"))))

    def test_vectors_are_sealed_into_blocks(self, tmp_path: Path) -> None:
        """Once every passage of a stretch has its vectors they become one block, which later changes go into."""
        total = VECTOR_BLOCK + 10
        with SqliteStore(tmp_path / "store.db") as store, SqliteStore(store.path) as other:
            store.add_messages([make_message(f"passage {n}") for n in range(total)])
            store.remove_messages(Select(scope=HERE, limit=1))
            order = np.random.default_rng(1).permutation(np.arange(1, total)).tolist()
            for start in range(0, total, 500):
                store.add_vectors([vectors(n, [n]) for n in order[start : start + 500]])
                other.search(make_query(seed=5))
            assert rows_of(store.path, "SELECT first, length(data) FROM vector_blocks") == [(0, VECTOR_BLOCK * 8)]
            assert rows_of(store.path, "SELECT count(*) FROM vectors") == [(10,)]
            store.add_vectors([vectors(7, [777_777])])
            for reader in (store, other):
                for passage, seed in ((1, 1), (total - 1, total - 1), (7, 777_777)):
                    found = reader.search(make_query(seed=seed))
                    assert found.cosine is not None
                    assert found.passages[found.cosine.argmax()] == passage
            assert store.without_vectors(MODEL, limit=10) == []

    def test_passages_without_vectors_are_listed(self, tmp_path: Path) -> None:
        """What still has to be embedded is listed oldest first, up to a limit, with its text."""
        with SqliteStore(tmp_path / "store.db") as store:
            store.add_messages([make_message(f"passage {n}") for n in range(20)])
            store.add_vectors([vectors(n, [n]) for n in (0, 3)])
            missing = store.without_vectors(MODEL, limit=3)
            assert [(passage.number, passage.text) for passage in missing] == [(n, f"passage {n}") for n in (1, 2, 4)]

    def test_a_long_question_is_asked_by_its_telling_terms(self, tmp_path: Path) -> None:
        """A question of many words finds by the rare ones, in a store and out of those that may be seen."""
        with SqliteStore(tmp_path / "store.db") as store:
            numbers = store.add_messages([make_message(f"common words {word('item', n)}") for n in range(600)])
            question = f"common words {' '.join(word('unknown', n) for n in range(80))} {word('item', 7)}"
            alone = store.search(make_query(question))
            assert alone.messages[alone.keyword.argmax()] == numbers[7]
            store.add_messages([make_message("common words", scope=Scope(tenant="you"))])
            shared = store.search(make_query(question))
            assert np.allclose(shared.keyword, alone.keyword)
            assert find_messages(store.search(make_query(question, scope=Scope(tenant="you")))) == [numbers[-1] + 1]

    def test_what_is_there_can_be_counted(self, tmp_path: Path) -> None:
        """Messages, passages, sessions, facts, bytes and vectors are counted; what is forgotten is not."""
        total = VECTOR_BLOCK + 3
        with SqliteStore(tmp_path / "store.db") as store:
            numbers = store.add_messages([make_message(f"passage {n}") for n in range(total)])
            store.add_messages([make_message("elsewhere", scope=Scope(session="s9"))])
            store.add_facts([fact("f", "one"), fact("f", "two"), fact("g", "three", scope=Scope(session="s10"))])
            assert store.embedded(MODEL) == 0
            store.add_vectors([vectors(n, [n]) for n in range(total - 1)])
            assert store.embedded(MODEL) == total - 1
            store.remove_messages(Select(scope=HERE, ids=(numbers[5],)))
            assert store.embedded(MODEL) == total - 2
            assert 5 not in store.search(make_query(seed=5)).passages
            counts = store.counts()
            assert counts.pop("bytes") > 100_000
            assert counts == {"messages": total, "passages": total, "sessions": len(store.sessions()), "facts": 2}


class TestWhatIsKept:
    def test_words_are_stored_once(self, tmp_path: Path) -> None:
        """A passage that stands in its message word for word keeps no copy; another keeps its own text."""
        with SqliteStore(tmp_path / "store.db") as store:
            store.add_messages(
                [
                    make_message("in the message"),
                    MessageRow(scope=HERE, message=_other(), passages=make_message("not in it").passages),
                ]
            )
            assert rows_of(store.path, "SELECT text IS NULL FROM passages") == [(1,), (0,)]
            assert [row.text for row in store.read_passages(Select(scope=HERE))] == [
                "in the message",
                "not in it",
            ]

    def test_half_a_character_in_a_name_is_a_typed_error(self, tmp_path: Path) -> None:
        """What no file can hold as a name is refused by its name, and the store continues."""
        with SqliteStore(tmp_path / "store.db") as store:
            with pytest.raises(InputError, match="text that UTF-8 can represent"):
                store.add_messages([make_message("x", scope=Scope(session="\ud800"))])
            with pytest.raises(InputError, match="no store can hold"):
                store.read_messages(Select(scope=HERE, after=2**70))
            with pytest.raises(InputError, match="cannot be kept as JSON"):
                store.add_records([Record(scope=HERE, kind="k", key="k", data={"not": object()})])
            store.add_messages([make_message("goes on")])
            assert texts(store) == ["goes on"]

    def test_a_question_of_another_length_is_refused(self) -> None:
        """A question's vector must be as long as its space says."""
        with pytest.raises(InputError, match="one vector of 8"):
            replace(make_query("x"), vector=np.ones(3, np.float32))


def _other() -> Message:
    return Message(role="user", parts=(Text(text="something else"),))
