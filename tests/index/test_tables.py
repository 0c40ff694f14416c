"""Passages as rows: their numbers, and the one before each."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.messages import Message, Text
from holdfast.store.base import MessageRow, PassageText, Scope, VectorRow
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import MODEL, make_message

SESSIONS = "aabacbbca"
TABLES = (
    "SELECT * FROM messages ORDER BY id",
    "SELECT * FROM passages ORDER BY number",
    "SELECT * FROM pending ORDER BY number",
)


def rows() -> list[MessageRow]:
    """What three sessions say in turns; some of it is longer than one passage, one thing is said twice."""
    messages = [
        make_message(f"turn {turn} of many. " * 2 ** (turn + 2), scope=Scope(session=name))
        for turn, name in enumerate(SESSIONS)
    ]
    return [*messages[:7], messages[2], *messages[7:]]


def tables(path: Path) -> list[list[tuple[object, ...]]]:
    """All that a store has written."""
    with closing(sqlite3.connect(path)) as connection:
        return [connection.execute(query).fetchall() for query in TABLES]


def test_together_is_the_same_as_one_by_one(tmp_path: Path) -> None:
    """However rows are added, passages have the same numbers, terms, and passages before them."""
    with SqliteStore(tmp_path / "together.db") as together, SqliteStore(tmp_path / "single.db") as single:
        numbers = together.add_messages(rows()[:4]) + together.add_messages(rows()[4:])
        assert numbers == [number for row in rows() for number in single.add_messages([row])]
    assert tables(tmp_path / "together.db") == tables(tmp_path / "single.db")
    _, passages, pending = tables(tmp_path / "together.db")
    assert len(passages) == len(pending) > len(SESSIONS)
    assert [row[0] for row in passages] == list(range(len(passages)))
    latest: dict[object, object] = {}
    for number, _, scope, _, previous, *_ in passages:
        assert previous == latest.get(scope, -1)
        latest[scope] = number


def test_vectors_may_follow_their_passage_at_once(tmp_path: Path) -> None:
    """A write can build on an earlier one of the same transaction."""
    with SqliteStore(tmp_path / "store.db") as store:
        vector = VectorRow(space=MODEL, passage=0, vectors=np.ones((1, MODEL.dimension), np.int8))
        with store.transaction():
            store.add_messages([make_message("hello there")])
            assert store.add_vectors([vector]) == 1
        assert store.embedded(MODEL) == 1


def test_a_passage_without_terms_is_refused_with_its_batch(tmp_path: Path) -> None:
    """Nothing of a batch stays where one passage is no passage."""
    bare = PassageText(start=0, text="words", windows=((0, 5),))
    message = Message(role="user", parts=(Text(text="words"),))
    with SqliteStore(tmp_path / "store.db") as store:
        with pytest.raises(InputError):
            store.add_messages(
                [make_message("hello there"), MessageRow(scope=Scope(session="a"), message=message, passages=(bare,))]
            )
        assert store.counts()["messages"] == store.counts()["passages"] == 0
