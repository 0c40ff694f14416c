"""How a history is cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction import plan


@dataclass(frozen=True)
class Piece:
    """Something of a size."""

    tokens: int


def pieces(*sizes: int) -> list[Piece]:
    """Pieces of these sizes."""
    return [Piece(size) for size in sizes]


def sizes(runs: list[list[Piece]]) -> list[list[int]]:
    """The sizes in each run."""
    return [[piece.tokens for piece in run] for run in runs]


@pytest.mark.parametrize(
    ("found", "ratio"),
    [
        ((), 0.4),
        ((100, 200), 0.4),
        ((833, 833), 0.4),  # just below a tenth of the window, margin included
        ((1_000, 1_000), 0.16),
        ((1_100,), 0.15),
        ((9_000,), 0.15),
    ],
)
def test_the_ratio_adapts_to_the_average(found: tuple[int, ...], ratio: float) -> None:
    """A chunk takes 40 % of the window, less where messages are large, never less than 15 %."""
    assert plan.chunk_ratio(pieces(*found), 10_000) == pytest.approx(ratio)


def test_the_chunk_leaves_room_for_the_rest_of_the_request() -> None:
    """4,096 tokens are kept for instructions and thinking, but a small window still gets something to read."""
    assert plan.chunk_tokens(pieces(10), 200_000) == 80_000 - 4_096
    assert plan.chunk_tokens(pieces(10), 8_000) == 1_000
    assert plan.chunk_tokens(pieces(10), 1) == 1


def test_by_share_makes_two_parts_of_about_the_same_size() -> None:
    """The cut is where the share would be passed; order is kept."""
    assert sizes(plan.split_by_share(pieces(3, 3, 2, 2, 2))) == [[3, 3], [2, 2, 2]]
    assert sizes(plan.split_by_share(pieces(9))) == [[9]]
    assert sizes(plan.split_by_share(pieces(1, 9))) == [[1], [9]]
    assert plan.split_by_share(pieces()) == []


def test_by_maximum_counts_with_the_margin() -> None:
    """A run takes at most the maximum with a fifth to spare; what is larger stands alone."""
    assert sizes(plan.split_by_size(pieces(50, 50, 50), 120)) == [[50, 50], [50]]
    assert sizes(plan.split_by_size(pieces(10, 500, 10), 120)) == [[10], [500], [10]]


def test_a_piece_is_oversized_from_half_the_window_on() -> None:
    """The margin counts here too."""
    assert not plan.is_oversized(Piece(416), 1_000)
    assert plan.is_oversized(Piece(417), 1_000)


def test_prune_takes_the_oldest_parts_off() -> None:
    """Parts go until the rest fits; the last one stays in any case."""
    dropped, rest = plan.drop_oldest(pieces(4, 4, 4, 4), 8)
    assert [piece.tokens for piece in dropped] == [4, 4]
    assert [piece.tokens for piece in rest] == [4, 4]
    assert plan.drop_oldest(pieces(4, 4), 100) == ([], pieces(4, 4))
    assert plan.drop_oldest(pieces(9), 1) == ([], pieces(9))


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(1, 5), st.integers(1, 200))
def test_no_cut_loses_or_moves_a_piece(found: list[int], parts: int, most: int) -> None:
    """Joined again, the runs are what was cut, and none is empty."""
    given_pieces = pieces(*found)
    for runs in (plan.split_by_share(given_pieces, parts), plan.split_by_size(given_pieces, most)):
        assert [piece for run in runs for piece in run] == given_pieces
        assert all(runs)
    assert len(plan.split_by_share(given_pieces, parts)) <= parts
    dropped, rest = plan.drop_oldest(given_pieces, most)
    assert dropped + rest == given_pieces
