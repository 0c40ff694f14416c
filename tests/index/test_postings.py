"""Posting lists of many terms: made, merged, cut, put to rest and read back."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.index.columns import Columns
from holdfast.index.postings import (
    PAGE,
    Lists,
    Postings,
    chain,
    decode,
    encode,
    find,
    gather,
    merge,
    pages,
    pages_with,
    term_ids,
    windows_of_one,
    without,
)
from support.passage_rows import PassageRow, append
from support.strategies import examples

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 12)), max_size=120)


def made(pairs: list[tuple[int, int]]) -> Lists:
    """The lists of occurrences: window and term of each."""
    ordered = sorted(pairs, key=lambda pair: pair[0])
    return gather(np.array([w for w, _ in ordered], np.uint32), np.array([t for _, t in ordered], np.int64))


def plain(lists: Lists) -> dict[int, list[tuple[int, int]]]:
    """Each term, and in which windows it stands how often."""
    parts = lists.by_term().items()
    return {term: list(zip(windows.tolist(), counts.tolist(), strict=True)) for term, (windows, counts) in parts}


def counted(pairs: list[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
    """The same, reckoned plainly."""
    found: dict[int, list[tuple[int, int]]] = {}
    for (window, term), times in sorted(Counter(pairs).items()):
        found.setdefault(term, []).append((window, min(times, 255)))
    return found


@given(PAIRS)
def test_occurrences_become_lists(pairs: list[tuple[int, int]]) -> None:
    """Every term has its windows in order, and how often it stands in each."""
    lists = made(pairs)
    assert plain(lists) == counted(pairs)
    assert lists.is_sound(0, 41)


def test_a_count_ends_at_255() -> None:
    """A word that stands in a window more often than a byte can say counts 255 times."""
    assert plain(made([(3, 9)] * 300)) == {9: [(3, 255)]}


@given(st.lists(PAIRS, min_size=1, max_size=5))
def test_runs_become_one(runs: list[list[tuple[int, int]]]) -> None:
    """Runs that follow each other in window order say the same when they are one."""
    shifted = [[(window + 41 * number, term) for window, term in run] for number, run in enumerate(runs)]
    merged = merge([made(run) for run in shifted])
    assert plain(merged) == counted([pair for run in shifted for pair in run])


@given(PAIRS, st.sets(st.integers(0, 40)))
def test_windows_can_be_taken_out(pairs: list[tuple[int, int]], gone: set[int]) -> None:
    """What is left is what would have been made without them; where nothing goes, nothing is copied."""
    lists = made(pairs)
    kept = without(lists, np.array(sorted(gone), np.int64))
    assert plain(kept) == counted([pair for pair in pairs if pair[0] not in gone])
    assert (kept is lists) == all(window not in gone for window, _ in pairs)


class TestPages:
    @given(PAIRS)
    def test_a_page_comes_back(self, pairs: list[tuple[int, int]]) -> None:
        """What was put to rest is read back as it was."""
        page = encode(made(pairs))
        assert plain(decode(page)) == counted(pairs)
        for term in range(-6, 14):
            held = find(page, term)
            found = list(zip(*(part.tolist() for part in held), strict=True)) if held else []
            assert found == counted(pairs).get(term, [])

    def test_pages_hold_stretches_of_terms(self) -> None:
        """Many lists are cut into pages of one size, a long list into one of its own; together they are all of it."""
        common = [(window, 500) for window in range(3000)]
        lists = made([*common, *((term % 7, term) for term in range(2000))])
        cut = list(pages(lists))
        assert all(len(data) <= PAGE for term, data in cut if term != 500)
        assert windows_of_one(len(dict(cut)[500])) == 3000
        assert [term for term, _ in cut] == sorted(int(decode(data).terms[0]) for _, data in cut)
        assert plain(chain([decode(data) for _, data in cut])) == plain(lists)

    @given(st.lists(PAIRS, max_size=4), st.sets(st.integers(0, 40), max_size=3))
    def test_pages_with_postings_of_windows_are_found(
        self, runs: list[list[tuple[int, int]]], wanted: set[int]
    ) -> None:
        """Exactly those pages are named in which one of the windows stands."""
        found = pages_with(np.array(sorted(wanted), np.int64), [encode(made(run)) for run in runs])
        assert found == [n for n, run in enumerate(runs) if any(window in wanted for window, _ in run)]

    def test_nothing_makes_no_page(self) -> None:
        """No occurrences are no pages, and no pages are no lists."""
        assert list(pages(made([]))) == []
        assert plain(chain([])) == {}
        assert plain(merge([made([]), made([])])) == {}

    @pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\1" + b"\0" * 9, encode(made([(1, 2)])) + b"\1"])
    def test_what_is_no_page_is_refused(self, data: bytes) -> None:
        """Bytes that do not have the length they say are an error, never lists."""
        with pytest.raises(ValueError, match="not have the length"):
            decode(data)
        with pytest.raises(ValueError, match="not have the length"):
            find(data, 2)

    def test_disorder_is_noticed(self) -> None:
        """Windows out of order or out of reach, and terms out of order, are not sound."""
        lists = made([(3, 1), (5, 1), (2, 2)])
        assert lists.is_sound(2, 6)
        assert not lists.is_sound(3, 6)
        assert not lists.is_sound(2, 5)
        assert not Lists(lists.terms, lists.stops, lists.windows[[1, 0, 2]], lists.counts).is_sound(0, 9)
        assert not Lists(lists.terms[::-1], lists.stops, lists.windows, lists.counts).is_sound(0, 9)


class TestPostings:
    def test_a_term_is_counted_by_passage(self) -> None:
        """A passage has what its windows have, and postings of later passages follow."""
        columns = Columns()
        for lengths in [(2, 2), (1,), (3, 3)]:
            row = PassageRow(message=1, scope=0, time=0, previous=-1, human=True, size=9, window_lengths=lengths)
            append(columns, row)
        first = (np.array([0, 1, 2], np.uint32), np.array([1, 2, 1], np.uint8))
        second = (np.array([4], np.uint32), np.array([3], np.uint8))
        nothing = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))
        early, none, late = Postings.of([[first], [nothing], [second]], columns)
        assert (early.passages.tolist(), early.times.tolist()) == ([0, 1], [3, 1])
        both, alone = Postings.join([early, early], [late, none])
        assert (both.passages.tolist(), both.times.tolist(), both.windows.tolist()) == (
            [0, 1, 2],
            [3, 1, 3],
            [0, 1, 2, 4],
        )
        assert alone is early
        assert both.nbytes > early.nbytes > none.nbytes > 0  # a cache of terms that occur nowhere has a bound too


def test_terms_have_stable_numbers() -> None:
    """A term has the same number on every machine, whatever stands next to it, half a character included."""
    numbers = [term_ids(words).tolist()[-1] for words in (["webhook"], ["", "a" * 300, "证书", "webhook"])]
    assert numbers == [-4_598_337_629_493_767_478] * 2
    assert len(set(term_ids([a + b for a in "ab證书0" for b in "ab證书0"] + ["", "a", "aba"]).tolist())) == 28
    assert term_ids([]).tolist() == []
    assert len(set(term_ids(["\ud800", "\ud801"]).tolist())) == 2


def plain_term_id(term: str) -> int:
    """The number of a term, reckoned plainly."""
    base, wrap = 0x9E3779B97F4A7C15, (1 << 64) - 1
    number = sum((ord(character) + 1) * pow(base, place, 1 << 64) for place, character in enumerate(term, 1)) & wrap
    number = (number ^ number >> 32) * 0xD6E8FEB86659FD93 & wrap
    number ^= number >> 32
    return number - (1 << 64) if number >> 63 else number


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=12), max_size=20))
@settings(max_examples=examples(25))
def test_terms_are_numbered_as_if_alone(terms: list[str]) -> None:
    """The number of a term is a polynomial of its characters, however many are reckoned with it."""
    numbers = [plain_term_id(term) for term in terms]
    assert term_ids(terms).tolist() == numbers
    many = 9_000 // max(1, len(terms))
    assert term_ids(terms * many).tolist() == numbers * many


@given(PAIRS, st.randoms())
def test_the_order_of_occurrences_does_not_matter(pairs: list[tuple[int, int]], chance: Random) -> None:
    """Lists are in order whatever comes first."""
    chance.shuffle(pairs)
    lists = gather(np.array([w for w, _ in pairs], np.uint32), np.array([t for _, t in pairs], np.int64))
    assert plain(lists) == counted(pairs)
