"""Contracts of `search`: what is found, when, and what has no say in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Final

import numpy as np

from holdfast.search.candidates import Candidates
from holdfast.store.base import Scope, Select, Store
from holdfast.testing.rows import HERE, MODEL, Check, Opener, asks, find_messages, opened, says, vectors, word

__all__ = ["CHECKS"]

MANY: Final = 1300
"""Passages enough for any index to have settled some and to hold others back."""
TOLERANCE: Final = 0.05
"""What a cosine may lose to rounding."""


def words_are_found_at_once(open_store: Opener, folder: Path) -> None:
    """A message is found by its words as soon as it was added, and by whoever opens the store later."""
    rows = [says(f"numbered {word('item', n)} of {word('kind', n % 3)}") for n in range(MANY)]
    with opened(open_store, folder) as store:
        numbers = store.add_messages(rows[:5])
        assert find_messages(store.search(asks(word("item", 3)))) == [numbers[3]]
        numbers += store.add_messages(rows[5:])
        _find_them(store, numbers)
        numbers += store.add_messages([says("改用蓝色按钮")])
    with opened(open_store, folder) as store:
        _find_them(store, numbers)
        assert find_messages(store.search(asks("蓝色"))) == [numbers[-1]]


def _find_them(store: Store, numbers: list[int]) -> None:
    for n in (0, 4, 511, 512, MANY - 1):
        assert find_messages(store.search(asks(word("item", n)))) == [numbers[n]], f"item {n} was not found"
    assert find_messages(store.search(asks(word("kind", 1)))) == numbers[1:MANY:3]
    assert find_messages(store.search(asks("nowhere"))) == []
    assert find_messages(store.search(asks())) == []


def two_openers_see_each_other(open_store: Opener, folder: Path) -> None:
    """Two that have the same store open find what the other adds, however much it was."""
    with opened(open_store, folder) as one, opened(open_store, folder) as two:
        numbers: list[int] = []
        for step, size in enumerate((1, 600, 3, 700, 2, 2300, 1)):
            writer, reader = (one, two) if step % 2 else (two, one)
            reader.search(asks("anything"))
            numbers += writer.add_messages([says(f"{word('w', len(numbers) + n)} common") for n in range(size)])
            for place in (0, len(numbers) // 2, len(numbers) - 1):
                for store in (reader, writer):
                    assert find_messages(store.search(asks(word("w", place)))) == [numbers[place]], (
                        f"word {place} is lost"
                    )
        assert find_messages(one.search(asks("common"))) == find_messages(two.search(asks("common"))) == numbers


def candidates_say_what_they_are(open_store: Opener, folder: Path) -> None:
    """Candidates come in order, with message, session, time, role, size and the passages beside them."""
    other = replace(HERE, session="s2")
    rows = [says("first", time=5), says("elsewhere", scope=other, role="assistant"), says("second words", time=7)]
    with opened(open_store, folder) as store:
        numbers = store.add_messages(rows)
        found = store.search(asks("words", across=True))
        assert found.messages.tolist() == numbers
        assert found.sessions[0] == found.sessions[2] != found.sessions[1]
        assert found.times.tolist() == [5, 0, 7]
        assert found.human.tolist() == [True, False, True]
        assert (found.previous.tolist(), found.following.tolist()) == ([-1, -1, 0], [2, -1, -1])
        assert found.sizes.tolist() == [5, 9, 12]
        assert found.windows.tolist() == [1, 1, 1]
        assert found.eligible.all()
        passages = store.read_passages(Select(scope=HERE, across=True, ids=tuple(found.passages.tolist())))
        assert [passage.message for passage in passages] == numbers
        words, cosines = found.score_windows(np.arange(3))
        assert (words > 0).tolist() == [False, False, True]
        assert cosines is None


def searches_are_bounded(open_store: Opener, folder: Path) -> None:
    """No more candidates than the limit come back, with their neighbours; the best by words and vector are there."""
    with opened(open_store, folder) as store:
        store.add_messages([says(f"passage {n} {'' if n % 100 else 'apple'}") for n in range(MANY)])
        store.add_vectors([vectors(n, [n]) for n in range(MANY)])
        question = replace(asks("apple", seed=777), limit=40)
        assert len(store.search(question)) <= question.limit
        found = store.search(replace(question, neighbours=1))
        assert len(found) <= 3 * question.limit
        assert {777, *range(0, MANY, 100)} <= set(found.passages.tolist())
        place = found.passages.tolist().index(777)
        assert found.passages[[found.previous[place], found.following[place]]].tolist() == [776, 778]


def exclusions_hold(open_store: Opener, folder: Path) -> None:
    """Excluded messages and passages, old ones and those beyond the newest may not be ranked, by any signal."""
    with opened(open_store, folder) as store:
        numbers = store.add_messages([says(f"apple {n}", time=10 * n) for n in range(6)])
        store.add_vectors([vectors(n, [7]) for n in range(6)])
        question = asks("apple", seed=7)
        for more, expected in (
            ({}, [0, 1, 2, 3, 4, 5]),
            ({"without_messages": numbers[:2]}, [2, 3, 4, 5]),
            ({"without_passages": (3, 99)}, [0, 1, 2, 4, 5]),
            ({"since": 30}, [0, 3, 4, 5]),
            ({"newest": 2}, [4, 5]),
            ({"newest": 0}, []),
        ):
            found = store.search(replace(question, **more))
            assert found.passages[found.eligible].tolist() == expected, f"{more} selects something else"
            assert bool(found.nearest.max(initial=0) > 0) == bool(expected), "an excluded vector is near"


def others_have_no_say(open_store: Opener, folder: Path) -> None:
    """What lies in another tenant's memory changes nothing in a ranking."""
    mine = [says(f"alpha beta {'gamma ' * n}") for n in range(4)]
    question = asks("alpha gamma missing")
    with opened(open_store, folder / "alone") as store:
        store.add_messages(mine)
        alone = _scores(store.search(question))
    with opened(open_store, folder / "shared") as store:
        theirs = replace(HERE, tenant="them")
        store.add_messages([says(f"gamma gamma alpha {n}", scope=theirs) for n in range(60)])
        store.add_messages(mine)
        store.add_messages([says(f"missing gamma {n}", scope=theirs) for n in range(60)])
        shared = _scores(store.search(question))
    assert np.allclose(alone, shared), "another tenant's words changed the ranking"


def _scores(found: Candidates) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.stack([found.keyword, found.share, found.together, found.session_keyword])


def vectors_are_compared(open_store: Opener, folder: Path) -> None:
    """The windows whose vectors are most like the question's have the highest cosine, wherever they were added."""
    with opened(open_store, folder) as store:
        store.add_messages([says(f"passage {n}") for n in range(MANY)])
        assert store.search(asks(seed=1)).cosine is None
        store.add_vectors([vectors(n, [n]) for n in range(0, MANY, 2)])
        _most_alike(store, MANY - 2)
        store.add_vectors([vectors(n, [n]) for n in range(1, MANY, 2)])
        _most_alike(store, 7)
        store.add_vectors([vectors(7, [10_000])])
        _most_alike(store, 7, seed=10_000)
    with opened(open_store, folder) as store:
        _most_alike(store, 7, seed=10_000)
        _most_alike(store, MANY - 1)


def _most_alike(store: Store, passage: int, *, seed: int | None = None) -> None:
    found = store.search(asks(seed=passage if seed is None else seed))
    assert found.cosine is not None
    assert found.passages[found.cosine.argmax()] == passage
    assert abs(found.cosine.max() - 1) < TOLERANCE
    assert abs(found.nearest.max() - 1) < TOLERANCE
    assert 0 < found.embedded_windows <= found.total_windows == MANY


def spaces_never_meet(open_store: Opener, folder: Path) -> None:
    """A question in one space is compared with no vector of another, whatever their names and dimensions share."""
    spaces = [MODEL, replace(MODEL, digest="d2"), replace(MODEL, name="other"), replace(MODEL, dimension=16)]
    with opened(open_store, folder) as store:
        store.add_messages([says(f"passage {n}") for n in range(len(spaces))])
        for number, space in enumerate(spaces):
            store.add_vectors([vectors(number, [7], space=space)])
        for number, space in enumerate(spaces):
            cosine = store.search(asks(seed=7, space=space)).cosine
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
        assert len(store.read_messages(Select(scope=HERE, across=True))) == 4 * 40


def _use(store: Store, thread: int, failures: list[BaseException]) -> None:
    scope = Scope(project=HERE.project, session=f"thread {thread}")
    try:
        for n in range(40):
            (number,) = store.add_messages([says(f"thread {word('turn', n)}", scope=scope)])
            found = store.search(asks(word("turn", n), scope=scope))
            assert find_messages(found) == [number]
            assert len(found) == n + 1
    except BaseException as error:  # noqa: BLE001 - whatever broke is raised in the thread of the check
        failures.append(error)


CHECKS: Final[tuple[Check, ...]] = (
    words_are_found_at_once,
    two_openers_see_each_other,
    candidates_say_what_they_are,
    searches_are_bounded,
    exclusions_hold,
    others_have_no_say,
    vectors_are_compared,
    spaces_never_meet,
    threads_share_a_store,
)
