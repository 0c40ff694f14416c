"""Forgotten is gone: from rows, posting lists, vectors, free pages and the log of a SQLite store."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.index.postings import term_ids
from holdfast.store import forgetting, upkeep
from holdfast.store.base import Select, VectorRow
from holdfast.store.codec import encode_message
from holdfast.store.connection import connect, write_transaction
from holdfast.store.rows import where
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check
from holdfast.testing.rows import HERE, MODEL, fact, find_messages, make_message, make_query, texts, vectors, word


def raw(folder: Path) -> bytes:
    """Everything that lies in the files of a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def traces(folder: Path, secrets: list[bytes]) -> int:
    """How many of these secrets have left a piece in the files. How a compressed text begins, others share."""
    held = raw(folder)
    starts = [(128 if secret[0] else 64, len(secret) // 2, len(secret) - 48) for secret in secrets]
    return sum(
        any(secret[start : start + 16] in held for start in places)
        for secret, places in zip(secrets, starts, strict=True)
    )


def test_no_piece_of_a_forgotten_message_is_left_in_any_file(tmp_path: Path) -> None:
    """After many rounds of writing and forgetting, pages that were split and merged keep nothing of what went."""
    chance = random.Random(5)  # noqa: S311 - chance, not secrecy
    kept: dict[int, bytes] = {}
    gone: list[bytes] = []
    with SqliteStore(tmp_path / "store.db") as store:
        for _ in range(20):
            sizes = [chance.choice((8, 10, 12, 40, 300)) for _ in range(15)]
            rows = [make_message(" ".join(chance.randbytes(6).hex() for _ in range(size))) for size in sizes]
            bodies = [encode_message(row.message) for row in rows]
            kept |= dict(zip(store.add_messages(rows), bodies, strict=True))
            chosen = chance.sample(sorted(kept), 10)
            gone += [kept.pop(number) for number in chosen]
            store.remove_messages(Select(scope=HERE, ids=tuple(chosen)))
        assert traces(tmp_path, gone) == 0
        assert traces(tmp_path, list(kept.values())) == len(kept)


def test_terms_and_vectors_of_a_forgotten_message_are_gone(tmp_path: Path) -> None:
    """Neither the posting lists of its words nor its vectors are left, pending or sealed, in a block or a row."""
    secret = np.random.default_rng(1).integers(-127, 127, (1, 8), np.int8)
    with SqliteStore(tmp_path / "store.db") as store:
        for place in (3, 600):
            store.add_messages([make_message(f"filler {word('f', place * 1000 + n)}") for n in range(place)])
            (number,) = store.add_messages([make_message(word("secret", place))])
            passage = store.read_passages(Select(scope=HERE))[-1].number
            store.add_vectors([VectorRow(space=MODEL, passage=passage, vectors=secret)])
            (term,) = term_ids([word("secret", place)]).tolist()
            assert any(term.to_bytes(8, order, signed=True) in raw(tmp_path) for order in ("little", "big"))
            store.remove_messages(Select(scope=HERE, ids=(number,)))
            for data in (
                term.to_bytes(8, "little", signed=True),
                term.to_bytes(8, "big", signed=True),
                secret.tobytes(),
            ):
                assert data not in raw(tmp_path)


def test_a_forgotten_message_in_a_sealed_block_leaves_the_others_in_place(tmp_path: Path) -> None:
    """Posting lists, columns and vectors of its neighbours stay exactly as they were."""
    with SqliteStore(tmp_path / "store.db") as store:
        numbers = store.add_messages([make_message(f"common {word('item', n)}") for n in range(1500)])
        store.add_vectors([vectors(n, [n]) for n in range(1500)])
        gone = [0, 511, 512, 700, 1499]
        assert store.remove_messages(Select(scope=HERE, ids=tuple(numbers[n] for n in gone))) == 5
        kept = [n for n in range(1500) if n not in gone]
        assert find_messages(store.search(make_query("common"))) == [numbers[n] for n in kept]
        for n in (1, 510, 513, 701, 1498):
            evidence = store.search(make_query(word("item", n), seed=n))
            assert find_messages(evidence) == [numbers[n]]
            assert evidence.cosine is not None
            assert evidence.passages[evidence.cosine.argmax()] == n
        assert check(store.path).sound


def test_forgetting_many_keeps_the_index_whole(tmp_path: Path) -> None:
    """Messages are forgotten and added in turns, in and out of blocks; index and rows agree after each."""
    chance = random.Random(2)  # noqa: S311 - chance, not secrecy
    with SqliteStore(tmp_path / "store.db") as store:
        kept: dict[int, str] = {}
        for turn in range(8):
            words = [word("item", turn * 1000 + n) for n in range(chance.randint(1, 300))]
            kept |= dict(zip(store.add_messages([make_message(text) for text in words]), words, strict=True))
            gone = chance.sample(sorted(kept), min(20, len(kept)))
            kept = {number: text for number, text in kept.items() if number not in gone}
            assert store.remove_messages(Select(scope=HERE, ids=tuple(gone))) == len(gone)
            assert check(store.path).index == ()
            for number in chance.sample(sorted(kept), min(5, len(kept))):
                assert find_messages(store.search(make_query(kept[number]))) == [number]


def test_forgotten_facts_are_gone_from_the_file(tmp_path: Path) -> None:
    """Every version of a forgotten fact is gone from the files; other facts stay."""
    with SqliteStore(tmp_path / "store.db") as store:
        store.add_facts([fact("f1", "zanzibar one"), fact("f2", "kept"), fact("f1", "zanzibar two")])
        assert store.remove_facts(Select(scope=HERE), keys=("f1",)) == 2
        assert b"zanzibar" not in raw(tmp_path)
        assert [row.content for row in store.read_facts(Select(scope=HERE))] == ["kept"]


def test_a_reader_who_holds_the_log_is_reported(tmp_path: Path) -> None:
    """While another process still reads the old state, forgetting says that the log could not be emptied yet."""
    path = tmp_path / "store.db"
    with SqliteStore(path, wait=0.05) as store, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        (number,) = store.add_messages([make_message("zanzibar")])
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        with pytest.raises(StorageError, match="forgotten, but another process"):
            store.remove_messages(Select(scope=HERE, ids=(number,)))
        assert texts(store) == []
        reader.execute("COMMIT")
        upkeep.vacuum(path)
        assert b"zanzibar" not in raw(tmp_path)


def test_a_crash_before_the_file_is_rewritten_is_noticed(tmp_path: Path) -> None:
    """Where forgetting was cut short, a check says that text may be left, until the file is written again."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.add_messages([make_message("zanzibar")])
    with closing(connect(path, wait=1)) as connection, write_transaction(connection):
        assert forgetting.remove(connection, "message", *where(connection, "message", Select(scope=HERE))) == 1
    assert "forgotten text may still be" in check(path).warnings[0]
    upkeep.vacuum(path)
    assert check(path).warnings == ()
