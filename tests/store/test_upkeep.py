"""Rebuilding the index, copying the file, giving space back."""

import os
import random
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.errors import StorageError
from holdfast.messages import Message, Text
from holdfast.store.base import Select
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import backup, check, reindex, vacuum
from holdfast.testing.rows import HERE, find_messages, make_message, make_query, texts, vectors, word


def filled(path: Path, count: int) -> SqliteStore:
    """A store with numbered words, of which one is forgotten."""
    store = SqliteStore(path)
    numbers = store.add_messages([make_message(f"common {word('item', n)}") for n in range(count)])
    store.add_vectors([vectors(n, [n]) for n in range(count)])
    store.remove_messages(Select(scope=HERE, ids=(numbers[1],)))
    return store


class TestReindex:
    def test_the_index_is_the_same_as_before(self, tmp_path: Path) -> None:
        """A rebuilt index finds the same messages with the same scores; vectors stay; a reader notices."""
        received: list[tuple[int, int]] = []
        with filled(tmp_path / "store.db", 1300) as store:
            before = store.search(make_query(f"common {word('item', 700)}", seed=3))
            assert reindex(store.path, progress=lambda done, total: received.append((done, total))) == 1300
            after = store.search(make_query(f"common {word('item', 700)}", seed=3))
            assert after.keyword.tolist() == before.keyword.tolist()
            assert after.cosine is not None
            assert before.cosine is not None
            assert after.cosine.tolist() == before.cosine.tolist()
            assert check(store.path).sound
        assert received == [(512, 1300), (1024, 1300), (1300, 1300)]

    def test_terms_are_made_anew(self, tmp_path: Path) -> None:
        """An index of other terms is replaced by that of everything that is archived."""
        with filled(tmp_path / "store.db", 600) as store:
            with closing(sqlite3.connect(store.path)) as database, database:
                database.execute("DELETE FROM postings")
                database.execute("UPDATE pending SET terms = zeroblob(length(terms))")
                database.execute("UPDATE counters SET value = value + 1 WHERE name = 'rewritten'")
            assert find_messages(store.search(make_query("common"))) == []
            reindex(store.path)
            assert len(find_messages(store.search(make_query("common")))) == 599
            store.add_messages([make_message("common again")])
            assert len(find_messages(store.search(make_query("common")))) == 600
            assert check(store.path).sound

    def test_a_speakers_name_stays_a_word(self, tmp_path: Path) -> None:
        """Who spoke is found by name after a rebuild as before."""
        with SqliteStore(tmp_path / "store.db") as store:
            message = Message(role="user", parts=(Text(text="I moved to Lisbon"),), name="Caroline")
            (number,) = store.add_messages(make_rows([message], scope=HERE))
            reindex(store.path)
            assert find_messages(store.search(make_query("Caroline"))) == [number]
            assert find_messages(store.search(make_query("user"))) == []

    def test_a_rebuild_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        """Where a rebuild ends early, the old index stays."""

        def broken(_done: int, _total: int) -> None:
            raise RuntimeError("no terms today")

        with filled(tmp_path / "store.db", 30) as store:
            with pytest.raises(RuntimeError, match="no terms today"):
                reindex(store.path, progress=broken)
            assert len(find_messages(store.search(make_query("common")))) == 29

    def test_a_store_that_is_not_there_is_not_made(self, tmp_path: Path) -> None:
        """Upkeep of a wrong path is a typed error, and makes no file."""
        for work in (reindex, vacuum):
            with pytest.raises(StorageError, match="no such store"):
                work(tmp_path / "nowhere.db")
        assert list(tmp_path.iterdir()) == []


class TestBackup:
    def test_a_copy_holds_everything_and_is_private(self, tmp_path: Path) -> None:
        """A copy made while the store is in use is a store of its own, which only its owner can read."""
        target = tmp_path / "copy.db"
        before = os.umask(0)
        try:
            with filled(tmp_path / "store.db", 40) as store:
                backup(store.path, target)
                store.add_messages([make_message("after the copy")])
        finally:
            os.umask(before)
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        with SqliteStore(target) as copy:
            assert len(texts(copy)) == 39
            assert len(find_messages(copy.search(make_query("common")))) == 39
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "store.db"]

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        """A copy never takes the place of a file that is there; a copy that cannot be made is a typed error."""
        with filled(tmp_path / "store.db", 3) as store:
            (tmp_path / "taken").write_text("mine")
            with pytest.raises(StorageError, match="is there already"):
                backup(store.path, tmp_path / "taken")
            with pytest.raises(StorageError, match="could not be made"):
                backup(store.path, tmp_path / "no" / "folder.db")
        assert (tmp_path / "taken").read_text() == "mine"


def test_vacuum_gives_space_back(tmp_path: Path) -> None:
    """A file with holes becomes smaller, and says what it was."""
    with SqliteStore(tmp_path / "store.db") as store:
        noise = random.Random(7)  # noqa: S311 - text that does not compress, the same in every run
        store.add_messages([make_message(noise.randbytes(500).hex()) for _ in range(300)])
        store._writer.execute("DELETE FROM messages WHERE id > 100")
        before, after = vacuum(store.path)
        assert after < before
        assert len(texts(store)) == 100
