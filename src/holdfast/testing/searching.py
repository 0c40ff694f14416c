"""Contracts of `match`: what is found, when, and what has no say in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Final

import numpy as np

from holdfast.store.base import Scope, SearchResult, Select, Store
from holdfast.testing.rows import HERE, MODEL, Check, Opener, asks, found, opened, says, vectors, word

__all__ = ["CHECKS"]

MANY: Final = 1300
"""Passages enough for any index to have settled some and to hold others back."""
TOLERANCE: Final = 0.05
"""What a cosine may lose to rounding."""


def words_are_found_at_once(open_store: Opener, folder: Path) -> None:
    """A message is found by its words as soon as it was added, and by whoever opens the store later."""
    rows = [says(f"numbered {word('item', n)} of {word('kind', n % 3)}") for n in range(MANY)]
    with opened(open_store, folder) as store:
        numbers = store.add(rows[:5])
        assert found(store.match(asks(word("item", 3)))) == [numbers[3]]
        numbers += store.add(rows[5:])
        _find_them(store, numbers)
        numbers += store.add([says("改用蓝色按钮")])
    with opened(open_store, folder) as store:
        _find_them(store, numbers)
        assert found(store.match(asks("蓝色"))) == [numbers[-1]]


def _find_them(store: Store, numbers: list[int]) -> None:
    for n in (0, 4, 511, 512, MANY - 1):
        assert found(store.match(asks(word("item", n)))) == [numbers[n]], f"item {n} was not found"
    assert found(store.match(asks(word("kind", 1)))) == numbers[1:MANY:3]
    assert found(store.match(asks("nowhere"))) == []
    assert found(store.match(asks())) == []


def two_openers_see_each_other(open_store: Opener, folder: Path) -> None:
    """Two that have the same store open find what the other adds, however much it was."""
    with opened(open_store, folder) as one, opened(open_store, folder) as two:
        numbers: list[int] = []
        for step, size in enumerate((1, 600, 3, 700, 2, 2300, 1)):
            writer, reader = (one, two) if step % 2 else (two, one)
            reader.match(asks("anything"))
            numbers += writer.add([says(f"{word('w', len(numbers) + n)} common") for n in range(size)])
            for place in (0, len(numbers) // 2, len(numbers) - 1):
                for store in (reader, writer):
                    assert found(store.match(asks(word("w", place)))) == [numbers[place]], f"word {place} is lost"
        assert found(one.match(asks("common"))) == found(two.match(asks("common"))) == numbers


def order_of_evidence(open_store: Opener, folder: Path) -> None:
    """Columns describe the passages in order: message, scope, time, speaker, size, the passage before."""
    other = replace(HERE, session="s2")
    rows = [says("first", time=5), says("elsewhere", scope=other, role="assistant"), says("second words", time=7)]
    with opened(open_store, folder) as store:
        numbers = store.add(rows)
        evidence = store.match(asks("words", across=True))
        columns = evidence.columns
        assert columns["message"].tolist() == numbers
        assert [evidence.scopes[scope] for scope in columns["scope"]] == [HERE, other, HERE]
        assert columns["time"].tolist() == [5, 0, 7]
        assert columns["human"].tolist() == [True, False, True]
        assert columns["previous"].tolist() == [-1, -1, 0]
        assert columns["size"].tolist() == [5, 9, 12]
        assert columns["alive"].all()
        assert evidence.visible.all()


def others_have_no_say(open_store: Opener, folder: Path) -> None:
    """What lies in another tenant's memory changes nothing in a ranking."""
    mine = [says(f"alpha beta {'gamma ' * n}") for n in range(4)]
    question = asks("alpha gamma missing")
    with opened(open_store, folder / "alone") as store:
        store.add(mine)
        alone = _scores(store.match(question))
    with opened(open_store, folder / "shared") as store:
        theirs = replace(HERE, tenant="them")
        store.add([says(f"gamma gamma alpha {n}", scope=theirs) for n in range(60)])
        store.add(mine)
        store.add([says(f"missing gamma {n}", scope=theirs) for n in range(60)])
        shared = _scores(store.match(question))
    assert np.allclose(alone, shared), "another tenant's words changed the ranking"


def _scores(evidence: SearchResult) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    keywords, seen = evidence.keywords, evidence.visible
    return np.stack([keywords.passages[seen], keywords.share[seen]])


def vectors_are_compared(open_store: Opener, folder: Path) -> None:
    """The windows whose vectors are most like the question's have the highest cosine, wherever they were added."""
    with opened(open_store, folder) as store:
        store.add([says(f"passage {n}") for n in range(MANY)])
        assert store.match(asks(seed=1)).cosine is None
        store.add([vectors(n, [n]) for n in range(0, MANY, 2)])
        _most_alike(store, MANY - 2)
        store.add([vectors(n, [n]) for n in range(1, MANY, 2)])
        _most_alike(store, 7)
        store.add([vectors(7, [10_000])])
        _most_alike(store, 7, seed=10_000)
    with opened(open_store, folder) as store:
        _most_alike(store, 7, seed=10_000)
        _most_alike(store, MANY - 1)


def _most_alike(store: Store, passage: int, *, seed: int | None = None) -> None:
    cosine = store.match(asks(seed=passage if seed is None else seed)).cosine
    assert cosine is not None
    assert int(cosine.argmax()) == passage
    assert abs(cosine.max() - 1) < TOLERANCE


def spaces_never_meet(open_store: Opener, folder: Path) -> None:
    """A question in one space is compared with no vector of another, whatever their names and dimensions share."""
    spaces = [MODEL, replace(MODEL, digest="d2"), replace(MODEL, name="other"), replace(MODEL, dimension=16)]
    with opened(open_store, folder) as store:
        store.add([says(f"passage {n}") for n in range(len(spaces))])
        for number, space in enumerate(spaces):
            store.add([vectors(number, [7], space=space)])
        for number, space in enumerate(spaces):
            cosine = store.match(asks(seed=7, space=space)).cosine
            assert cosine is not None
            assert np.flatnonzero(cosine > 1 - TOLERANCE).tolist() == [number], f"{space} met another space"


def threads_share_a_store(open_store: Opener, folder: Path) -> None:
    """Threads add, search and read at once through one store; nothing is lost and nothing breaks."""
    failures: list[BaseException] = []
    with opened(open_store, folder) as store:
        threads = [Thread(target=_use, args=(store, n, failures)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert len(store.fetch(Select(kind="message", scope=HERE, across=True))) == 4 * 40


def _use(store: Store, thread: int, failures: list[BaseException]) -> None:
    scope = Scope(project=HERE.project, session=f"thread {thread}")
    try:
        for n in range(40):
            (number,) = store.add([says(f"thread {word('turn', n)}", scope=scope)])
            evidence = store.match(asks(word("turn", n), scope=scope))
            assert found(evidence) == [number]
            assert len(evidence.visible) == len(evidence.columns["alive"])
    except BaseException as error:  # noqa: BLE001 - whatever broke is raised in the thread of the check
        failures.append(error)


CHECKS: Final[tuple[Check, ...]] = (
    words_are_found_at_once,
    two_openers_see_each_other,
    order_of_evidence,
    others_have_no_say,
    vectors_are_compared,
    spaces_never_meet,
    threads_share_a_store,
)
