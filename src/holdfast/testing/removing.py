"""Contracts of `remove`: what is forgotten is gone, from everywhere, and stays out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.store.base import Job, Record, Select, Store
from holdfast.testing.rows import HERE, Check, Opener, asks, fact, find_messages, opened, says, texts, vectors

__all__ = ["CHECKS", "on_disk"]

CANARY: Final = "zanzibarquux"
SAME: Final = 0.98
"""Only a vector and itself are so much alike."""


def on_disk(folder: Path, text: str) -> list[str]:
    """The files under a folder in which a text stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def forgotten_is_gone(open_store: Opener, folder: Path) -> None:
    """A forgotten message is in no row, no passage, no search, no vector and no file; the others stay as they were."""
    with opened(open_store, folder) as store, opened(open_store, folder) as other:
        numbers = store.add_messages([says(f"plain words {n}") for n in range(600)])
        (secret,) = store.add_messages([says(f"the password is {CANARY}")])
        numbers += store.add_messages([says(f"more words {n}") for n in range(600)])
        store.add_vectors([vectors(n, [n]) for n in range(1201)])
        assert find_messages(other.search(asks(CANARY, seed=600))) == [secret]
        assert store.remove_messages(Select(scope=HERE, ids=(secret,))) == 1
        for reader in (store, other):
            _is_gone(reader, secret, numbers)
        assert on_disk(folder, CANARY) == []
    with opened(open_store, folder) as store:
        _is_gone(store, secret, numbers)
    assert on_disk(folder, CANARY) == []


def _is_gone(store: Store, secret: int, numbers: list[int]) -> None:
    found = store.search(asks(CANARY, seed=600))
    assert find_messages(found) == [], "still found by its words"
    assert found.cosine is not None
    assert found.cosine.max() < SAME, "still found by its vector"
    assert secret not in found.messages
    assert store.read_messages(Select(scope=HERE, ids=(secret,))) == []
    assert secret not in {passage.message for passage in store.read_passages(Select(scope=HERE))}
    _others_stay(store, numbers)


def _others_stay(store: Store, numbers: list[int]) -> None:
    assert [row.id for row in store.read_messages(Select(scope=HERE))] == numbers
    assert find_messages(store.search(asks("words"))) == numbers
    assert find_messages(store.search(asks("599"))) == [numbers[599], numbers[1199]]


def forgotten_stays_out(open_store: Opener, folder: Path) -> None:
    """An import does not bring forgotten messages and facts back; the same words in another message are new."""
    row, told = says(CANARY), fact("f1", CANARY)
    with opened(open_store, folder) as store:
        number, _ = store.add_messages([row, says("a neighbour")])
        store.add_facts([told])
        store.remove_messages(Select(scope=HERE, ids=(number,)))
        store.remove_facts(Select(scope=HERE), keys=("f1",))
    with opened(open_store, folder) as store:
        assert store.add_messages([row]) == store.add_facts([told]) == [0]
        assert texts(store) == ["a neighbour"]
        assert store.read_facts(Select(scope=HERE)) == []
        assert on_disk(folder, CANARY) == []
        elsewhere = replace(HERE, session="s2")
        assert all(store.add_messages([replace(row, scope=elsewhere)]) + store.add_facts([fact("f2", "something")]))
        assert texts(store, scope=elsewhere) == [CANARY]
        assert all(store.add_messages([replace(row, nonce="again")])), "another message of the same words was left out"
    with opened(open_store, folder) as store:
        assert store.add_messages([row]) == [0]
        assert texts(store) == ["a neighbour", CANARY]


def numbers_are_not_used_again(open_store: Opener, folder: Path) -> None:
    """What comes after a forgotten message gets a new number, and is found under it."""
    with opened(open_store, folder) as store:
        (first,) = store.add_messages([says("to be forgotten")])
        store.remove_messages(Select(scope=HERE))
    with opened(open_store, folder) as store:
        (second,) = store.add_messages([says("to be kept")])
        assert second > first
        assert find_messages(store.search(asks("kept"))) == [second]
        (passage,) = store.read_passages(Select(scope=HERE))
        store.remove_messages(Select(scope=HERE))
        (third,) = store.add_messages([says("to be kept too")])
        assert find_messages(store.search(asks("kept"))) == [third]
        assert store.add_vectors([vectors(passage.number, [1])]) == 0, "vectors of a forgotten passage were taken"


def only_what_is_selected_goes(open_store: Opener, folder: Path) -> None:
    """Removing messages keeps to scope, numbers and limit."""
    other = replace(HERE, session="s2")
    with opened(open_store, folder) as store:
        numbers = store.add_messages([says(f"message {n}") for n in range(6)])
        store.add_messages([says("of the other session", scope=other)])
        assert store.remove_messages(Select(scope=HERE, limit=1)) == 1
        assert store.remove_messages(Select(scope=HERE, newest=True, limit=1)) == 1
        assert store.remove_messages(Select(scope=HERE, ids=(numbers[2],))) == 1
        assert store.remove_messages(Select(scope=other, ids=tuple(numbers))) == 0
        assert texts(store) == ["message 1", "message 3", "message 4"]
        left = len(texts(store, across=True))
        assert store.remove_messages(Select(scope=HERE, across=True)) == left
        assert texts(store, across=True) == []


def records_and_jobs_go_alone(open_store: Opener, folder: Path) -> None:
    """Records and jobs are taken out one by one and stay out."""
    with opened(open_store, folder) as store:
        store.add_records([Record(scope=HERE, kind="edit", key=key, data={}) for key in "abc"])
        job, _ = store.add_jobs([Job(scope=HERE, kind="embed", data={}), Job(scope=HERE, kind="embed", data={})])
        assert store.remove_records(Select(scope=HERE), keys=("b",)) == 1
        assert store.remove_jobs(Select(scope=HERE, ids=(job,))) == 1
    with opened(open_store, folder) as store:
        assert [row.key for row in store.read_records(Select(scope=HERE))] == ["a", "c"]
        assert [row.id > job for row in store.read_jobs(Select(scope=HERE))] == [True]


CHECKS: Final[tuple[Check, ...]] = (
    forgotten_is_gone,
    forgotten_stays_out,
    numbers_are_not_used_again,
    only_what_is_selected_goes,
    records_and_jobs_go_alone,
)
