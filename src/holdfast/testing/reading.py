"""Contracts of `fetch`: order, selection, and whose rows are seen."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.store.base import Job, Kind, Record, Row, Scope, Select, Store
from holdfast.testing.rows import HERE, Check, Opener, asks, fact, found, opened, says, texts, vectors

__all__ = ["CHECKS", "KINDS", "Canary", "crossings", "plant"]

ACROSS: Final = 0.5
KINDS: Final[tuple[Kind, ...]] = ("message", "passage", "fact", "record", "job")


def order_is_kept(open_store: Opener, folder: Path) -> None:
    """Rows come oldest first; selections by number, range, newest and limit keep that order."""
    with opened(open_store, folder) as store:
        numbers = store.add([says(f"message number {n}") for n in range(10)])
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
            rows = store.fetch(Select(kind="message", scope=HERE, **chosen))
            assert [numbers.index(row.id) for row in rows] == expected, f"{chosen} selects something else"


def keys_and_names_select(open_store: Opener, folder: Path) -> None:
    """Facts are selected by id, records by kind and key, jobs by kind."""
    with opened(open_store, folder) as store:
        store.add([Record(scope=HERE, kind=kind, key=key, data={}) for kind in ("edit", "report") for key in "ab"])
        store.add([fact("f1", "one"), fact("f2", "two"), fact("f1", "three")])
        store.add([Job(scope=HERE, kind=kind, data={}) for kind in ("embed", "extract", "embed")])
        records = store.fetch(Select(kind="record", scope=HERE, name="edit", keys=("b", "zzz")))
        assert [(row.kind, row.key) for row in records] == [("edit", "b")]
        assert [row.content for row in store.fetch(Select(kind="fact", scope=HERE, keys=("f1",)))] == ["one", "three"]
        assert {row.kind for row in store.fetch(Select(kind="job", scope=HERE, name="embed"))} == {"embed"}


def passages_say_where_they_stand(open_store: Opener, folder: Path) -> None:
    """A passage reads back with its words, place, windows, message, speaker and time."""
    long = " ".join(f"Sentence {n} says something about topic {n % 7}." for n in range(400))
    with opened(open_store, folder) as store:
        numbers = store.add([says("  short  "), says(long, role="assistant", time=9)])
        _, *passages = store.fetch(Select(kind="passage", scope=HERE))
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

    def rows(self) -> list[Row]:
        """Rows that all hold the word."""
        return [
            says(f"the shared word and {self.word}", scope=self.scope),
            fact("shared-id", self.word, scope=self.scope),
            Record(scope=self.scope, kind="shared", key="shared", data={"text": self.word}),
            Job(scope=self.scope, kind="shared", data={"text": self.word}),
        ]


def _names(scope: Scope) -> tuple[str, str, str, str]:
    return scope.tenant, scope.project, scope.agent, scope.session


def plant(store: Store, names: str = "ab") -> list[Canary]:
    """Put a canary into every scope that can be made of some names."""
    canaries = [
        Canary(Scope(tenant=tenant, project=project, agent=agent, session=session))
        for tenant, project, agent, session in product(names, repeat=4)
    ]
    for canary in canaries:
        store.add(canary.rows())
    (shape,) = {len(row.windows) for row in store.fetch(Select(kind="passage", scope=canaries[0].scope))}
    store.add([vectors(number, [1] * shape) for number in range(len(canaries))])
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
    every = tuple(range(200))
    for kind in KINDS:
        yield from store.fetch(Select(kind=kind, scope=scope, across=across))
        yield from store.fetch(Select(kind=kind, scope=scope, across=across, ids=every))
    for kind, key in (("fact", "shared-id"), ("record", "shared")):
        yield from store.fetch(Select(kind=kind, scope=scope, across=across, keys=(key,)))
    for named in ("record", "job"):
        yield from store.fetch(Select(kind=named, scope=scope, across=across, name="shared"))
    evidence = store.match(asks("shared word", scope=scope, across=across, seed=1))
    out = ~evidence.visible
    assert not evidence.keywords.passages[out].any(), "a score for what may not be seen"
    assert not evidence.keywords.share[out].any(), "a share for what may not be seen"
    assert evidence.cosine is not None
    assert not evidence.cosine[out[evidence.columns["passage"]]].any(), "a likeness to what may not be seen"
    numbers = np.flatnonzero(evidence.visible).tolist()
    yield from (evidence.scopes[number] for number in evidence.columns["scope"][numbers])
    yield from store.fetch(Select(kind="passage", scope=scope, across=across, ids=tuple(numbers)))
    assert len(found(evidence)) == len(numbers)


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


def _one_read(store: Store, reader: Canary, chance: random.Random, *, across: bool) -> list[Any]:
    kind = chance.choice(KINDS)
    about: dict[str, Any] = {"kind": kind, "scope": reader.scope, "across": across}
    way = chance.randrange(5)
    if way == 0:
        return store.fetch(Select(**about, ids=tuple(chance.sample(range(400), 50))))
    if way == 1:
        return store.fetch(Select(**about, after=chance.randrange(200), limit=chance.randrange(1, 50)))
    if way == 2 and kind in {"fact", "record"}:  # noqa: PLR2004 - one of five ways
        return store.fetch(Select(**about, keys=("shared", "shared-id")))
    if way == 3:  # noqa: PLR2004 - one of five ways
        evidence = store.match(asks("shared word", scope=reader.scope, across=across, seed=1))
        numbers = tuple(np.flatnonzero(evidence.keywords.passages).tolist())
        return store.fetch(Select(kind="passage", scope=reader.scope, across=across, ids=numbers))
    return store.fetch(Select(**about, newest=chance.random() < ACROSS, limit=chance.randrange(1, 50)))


def a_snapshot_stands(open_store: Opener, folder: Path) -> None:
    """What `match` returned stays as it was when more is added."""
    with opened(open_store, folder) as store:
        store.add([says(f"apple {n}") for n in range(3)])
        evidence = store.match(asks("apple"))
        store.add([says(f"apple again {n}") for n in range(3000)])
        store.match(asks("apple"))
        assert evidence.columns["length"].tolist() == [2, 2, 2]
        assert evidence.columns.passages == len(evidence.visible) == len(evidence.columns["message"])
        assert found(evidence) == evidence.columns["message"].tolist()


CHECKS: Final[tuple[Check, ...]] = (
    order_is_kept,
    keys_and_names_select,
    passages_say_where_they_stand,
    no_scope_sees_another,
    a_snapshot_stands,
)
