"""Contracts of `read_*`: order, selection, and whose rows are seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.store.base import Job, Record, Scope, Select, Store
from holdfast.testing.rows import HERE, Check, Opener, asks, fact, find_messages, opened, says, texts, vectors

__all__ = ["CHECKS", "Canary", "crossings", "plant", "readers"]

ACROSS: Final = 0.5


def readers(store: Store) -> list[Callable[[Select], Sequence[object]]]:
    """The methods that read rows of a kind."""
    return [store.read_messages, store.read_passages, store.read_facts, store.read_records, store.read_jobs]


def order_is_kept(open_store: Opener, folder: Path) -> None:
    """Rows come oldest first; selections by number, range, newest and limit keep that order."""
    with opened(open_store, folder) as store:
        numbers = store.add_messages([says(f"message number {n}") for n in range(10)])
        assert numbers == sorted(numbers)
        selections: list[tuple[dict[str, Any], list[int]]] = [
            ({}, list(range(10))),
            ({"limit": 3}, [0, 1, 2]),
            ({"limit": 3, "newest": True}, [7, 8, 9]),
            ({"limit": 0}, []),
            ({"limit": 0, "newest": True}, []),
            ({"after": numbers[3], "before": numbers[7]}, [4, 5, 6]),
            ({"after": numbers[3], "limit": 2}, [4, 5]),
            ({"before": numbers[7], "limit": 2, "newest": True}, [5, 6]),
            ({"ids": (numbers[8], numbers[2], 10**9)}, [2, 8]),
            ({"ids": ()}, []),
        ]
        for chosen, expected in selections:
            rows = store.read_messages(Select(scope=HERE, **chosen))
            assert [numbers.index(row.id) for row in rows] == expected, f"{chosen} selects something else"


def keys_and_names_select(open_store: Opener, folder: Path) -> None:
    """Facts are selected by id, records by kind and key, jobs by kind."""
    with opened(open_store, folder) as store:
        store.add_records(
            [Record(scope=HERE, kind=kind, key=key, data={}) for kind in ("edit", "report") for key in "ab"]
        )
        store.add_facts([fact("f1", "one"), fact("f2", "two"), fact("f1", "three")])
        store.add_jobs([Job(scope=HERE, kind=kind, data={}) for kind in ("embed", "extract", "embed")])
        records = store.read_records(Select(scope=HERE), kind="edit", keys=("b", "zzz"))
        assert [(row.kind, row.key) for row in records] == [("edit", "b")]
        assert [row.content for row in store.read_facts(Select(scope=HERE), keys=("f1",))] == ["one", "three"]
        assert {row.kind for row in store.read_jobs(Select(scope=HERE), kind="embed")} == {"embed"}


def passages_say_where_they_stand(open_store: Opener, folder: Path) -> None:
    """A passage reads back with its words, place, windows, message, speaker and time."""
    long = " ".join(f"Sentence {n} says something about topic {n % 7}." for n in range(400))
    with opened(open_store, folder) as store:
        numbers = store.add_messages([says("  short  "), says(long, role="assistant", time=9)])
        _, *passages = store.read_passages(Select(scope=HERE))
        assert "".join(passage.text for passage in passages) == long
        for number, passage in enumerate(passages, start=1):
            assert passage.number == number
            assert long[passage.start :].startswith(passage.text)
            assert (passage.message, passage.speaker, passage.time) == (numbers[1], "assistant", 9)
            assert "".join(passage.text[start:stop] for start, stop in passage.windows) == passage.text


class Canary:
    """Rows of every kind that belong to one scope, and a word that stands in them alone."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.word = "canary" + "".join(f"x{ord(letter)}" for letter in "|".join(_names(scope)))

    def plant(self, store: Store) -> None:
        """Add rows that all hold the word."""
        store.add_messages([says(f"the shared word and {self.word}", scope=self.scope)])
        store.add_facts([fact("shared-id", self.word, scope=self.scope)])
        store.add_records([Record(scope=self.scope, kind="shared", key="shared", data={"text": self.word})])
        store.add_jobs([Job(scope=self.scope, kind="shared", data={"text": self.word})])


def _names(scope: Scope) -> tuple[str, str, str, str]:
    return scope.tenant, scope.project, scope.agent, scope.session


def plant(store: Store, names: str = "ab") -> list[Canary]:
    """Put a canary into every scope that can be made of some names."""
    canaries = [
        Canary(Scope(tenant=tenant, project=project, agent=agent, session=session))
        for tenant, project, agent, session in product(names, repeat=4)
    ]
    for canary in canaries:
        canary.plant(store)
    (shape,) = {len(row.windows) for row in store.read_passages(Select(scope=canaries[0].scope))}
    store.add_vectors([vectors(number, [1] * shape) for number in range(len(canaries))])
    return canaries


def no_scope_sees_another(open_store: Opener, folder: Path) -> None:
    """No read in one scope returns a row of another, asked for by number, key, word or vector; `across` opens
    the other sessions of the same agent and nothing else.
    """  # noqa: D205 - one sentence
    with opened(open_store, folder) as store:
        canaries = plant(store)
        for canary, across in product(canaries, (False, True)):
            own = {one.word for one in canaries if _visible(one.scope, canary.scope, across=across)}
            for seen in _everything(store, canary.scope, across=across):
                words = {one.word for one in canaries if one.word in repr(seen)}
                assert words <= own, f"{canary.scope} saw a row of another scope"
            assert len(texts(store, scope=canary.scope, across=across)) == len(own)


def _visible(row: Scope, reader: Scope, *, across: bool) -> bool:
    return row == reader or (across and replace(row, session=reader.session) == reader)


def _everything(store: Store, scope: Scope, *, across: bool) -> Iterator[object]:
    """Whatever a reader can lay hands on, one after the other."""
    select = Select(scope=scope, across=across)
    for read in readers(store):
        yield from read(select)
        yield from read(replace(select, ids=tuple(range(200))))
    yield from store.read_facts(select, keys=("shared-id",))
    yield from store.read_records(select, kind="shared", keys=("shared",))
    yield from store.read_jobs(select, kind="shared")
    found = store.search(asks("shared word", scope=scope, across=across, seed=1))
    passages = store.read_passages(replace(select, ids=tuple(found.passages.tolist())))
    assert len(passages) == len(find_messages(found)) == len(found), "a candidate that may not be seen"
    yield from passages


def crossings(store: Store, canaries: Sequence[Canary], *, reads: int, seed: int = 1) -> int:
    """How many of so many reads, each another way in a scope drawn by chance, showed a row of another scope."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrecy
    crossed = 0
    for _ in range(reads):
        reader, across = chance.choice(canaries), chance.random() < ACROSS
        seen = repr(_one_read(store, reader, chance, across=across))
        others = (one for one in canaries if not _visible(one.scope, reader.scope, across=across))
        crossed += any(other.word in seen for other in others)
    return crossed


def _one_read(store: Store, reader: Canary, chance: random.Random, *, across: bool) -> Sequence[object]:
    read, select = chance.choice(readers(store)), Select(scope=reader.scope, across=across)
    match chance.randrange(5):
        case 0:
            return read(replace(select, ids=tuple(chance.sample(range(400), 50))))
        case 1:
            return read(replace(select, after=chance.randrange(200), limit=chance.randrange(1, 50)))
        case 2:
            return [*store.read_facts(select, keys=("shared-id",)), *store.read_records(select, keys=("shared",))]
        case 3:
            found = store.search(asks("shared word", scope=reader.scope, across=across, seed=1))
            return store.read_passages(replace(select, ids=tuple(found.passages.tolist())))
        case _:
            return read(replace(select, newest=chance.random() < ACROSS, limit=chance.randrange(1, 50)))


def a_snapshot_stands(open_store: Opener, folder: Path) -> None:
    """What `search` returned stays as it was when more is added."""
    with opened(open_store, folder) as store:
        numbers = store.add_messages([says(f"apple {n}") for n in range(3)])
        found = store.search(asks("apple"))
        scores = found.score_windows(np.arange(3))[0].tolist()
        store.add_messages([says(f"apple again {n}") for n in range(3000)])
        store.search(asks("apple"))
        assert found.messages.tolist() == find_messages(found) == numbers
        assert found.score_windows(np.arange(3))[0].tolist() == scores


CHECKS: Final[tuple[Check, ...]] = (
    order_is_kept,
    keys_and_names_select,
    passages_say_where_they_stand,
    no_scope_sees_another,
    a_snapshot_stands,
)
