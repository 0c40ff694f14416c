"""Vectors as signed bytes: the order of cosine, in any number, whoever may see them."""

import numpy as np
import pytest

from holdfast.index.vectors import PAGE, Matrix, quantise
from holdfast.search.arrays import Floats


def some(count: int, dimension: int = 32, *, seed: int = 1) -> Floats:
    """Vectors like any others."""
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def exact(rows: Floats, query: Floats) -> Floats:
    """Cosine as the textbook has it."""
    alike: Floats = rows @ query / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))
    return alike


def test_bytes_keep_the_cosine() -> None:
    """What is lost by keeping a byte for each dimension is less than a hundredth."""
    rows, query = some(500), some(1, seed=2)[0]
    matrix = Matrix(32)
    matrix.store(0, quantise(rows))
    assert np.abs(matrix.cosine(query, windows=500) - exact(rows, query)).max() < 0.02


@pytest.mark.parametrize("first", [0, 5, PAGE - 3, 3 * PAGE - 1])
def test_rows_are_where_they_were_stored(first: int) -> None:
    """Wherever rows are put, over the edge of a page too, their windows have them and no others do."""
    rows = some(10)
    matrix = Matrix(32)
    matrix.store(first, quantise(rows))
    alike = matrix.cosine(rows[4], windows=first + 20)
    assert int(alike.argmax()) == first + 4
    assert not alike[:first].any()
    assert not alike[first + 10 :].any()


def test_rows_can_be_replaced() -> None:
    """A later vector of a window takes the place of the earlier one."""
    matrix = Matrix(32)
    matrix.store(0, quantise(some(3)))
    matrix.store(1, quantise(some(1, seed=9)))
    assert int(matrix.cosine(some(1, seed=9)[0], windows=3).argmax()) == 1


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_what_is_out_of_sight_is_like_nothing(share: float) -> None:
    """Windows that may not be seen have cosine 0; the others what they have anyway."""
    rows, query = some(2 * PAGE), some(1, seed=2)[0]
    matrix = Matrix(32)
    matrix.store(0, quantise(rows))
    seen = np.random.default_rng(3).random(2 * PAGE) < share
    alike = matrix.cosine(query, windows=2 * PAGE, visible=seen)
    assert not alike[~seen].any()
    assert np.allclose(alike[seen], matrix.cosine(query, windows=2 * PAGE)[seen], atol=1e-6)


def test_fewer_windows_than_rows_are_fine() -> None:
    """Asked for fewer windows than there are rows, only those are compared; asked for more, the rest is 0."""
    matrix = Matrix(32)
    matrix.store(0, quantise(some(10)))
    assert len(matrix.cosine(some(1)[0], windows=3)) == 3
    assert matrix.cosine(some(1)[0], windows=12)[10:].tolist() == [0, 0]
    assert len(matrix.cosine(some(1)[0], windows=0)) == 0
    assert not Matrix(32).cosine(some(1)[0], windows=4).any()


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -np.inf])
def test_a_vector_that_is_none_is_like_nothing(bad: float) -> None:
    """Zeros and what is no number become zeros, as a row and as a question."""
    rows = some(3)
    rows[1] = bad
    stored = quantise(rows)
    assert not stored[1].any()
    assert stored[0].any()
    matrix = Matrix(32)
    matrix.store(0, stored)
    assert matrix.cosine(some(1)[0], windows=3)[1] == 0
    assert not matrix.cosine(np.full(32, bad, np.float32), windows=3).any()


def test_any_scale_gives_the_same_bytes() -> None:
    """Large and tiny vectors of one direction are one."""
    row = some(1)
    for scale in (1e-30, 1e30):
        assert np.abs(quantise(row * np.float32(scale)).astype(int) - quantise(row)).max() <= 1
    assert quantise(np.zeros((0, 4), np.float32)).shape == (0, 4)


class TestVeryMany:
    def test_the_best_are_found_by_their_signs(self) -> None:
        """Of very many windows those most like the question are found, with the cosine they have anyway."""
        topics = np.repeat(some(600, seed=3), 8, axis=0)  # neighbours speak of the same
        rows = topics + 0.5 * some(4800, seed=4)
        rough, exact_one = Matrix(32, many=100, looked_into=400), Matrix(32)
        for matrix in (rough, exact_one):
            matrix.store(0, quantise(rows))
        hits = 0
        for query in topics[::480]:
            wanted = exact_one.cosine(query, windows=4795)
            found = rough.cosine(query, windows=4795)
            best = np.argsort(-wanted)[:8]
            hits += int(np.count_nonzero(found[best]))
            assert np.allclose(found[found != 0], wanted[found != 0], atol=1e-6)
            assert np.count_nonzero(found) < 4795 / 10
        assert hits >= 0.95 * 8 * len(topics[::480])

    def test_how_many_have_a_vector_is_known_all_the_same(self) -> None:
        """That most windows were not compared does not mean that they have no vector."""
        matrix = Matrix(32, many=100, looked_into=50)
        rows = quantise(some(4000, seed=5))
        rows[3000:] = 0
        matrix.store(0, rows)
        query = some(1, seed=7)[0]
        for visible in (None, np.arange(4000) % 2 == 0):
            cosine = matrix.cosine(query, windows=4000, visible=visible)
            centre = matrix.centre(query, cosine, visible=visible)
            assert np.count_nonzero(cosine) <= 50
            assert centre is not None
            assert centre.known == pytest.approx(0.75, abs=0.02)

    def test_what_may_not_be_seen_is_left_out(self) -> None:
        """Windows out of sight have cosine 0; where few may be seen, each of those is compared."""
        matrix = Matrix(32, many=1000, looked_into=500)
        rows = some(4000, seed=5)
        matrix.store(0, quantise(rows))
        most = np.arange(4000) % 10 > 0
        assert not matrix.cosine(rows[10], windows=4000, visible=most)[~most].any()
        few = np.arange(4000) % 10 == 0
        assert np.count_nonzero(matrix.cosine(rows[10], windows=4000, visible=few)) >= 399

    def test_new_vectors_count_at_once(self) -> None:
        """A vector that replaces another is found in its place."""
        matrix = Matrix(32, many=100, looked_into=50)
        rows = some(400, seed=6)
        matrix.store(0, quantise(rows))
        query = some(1, seed=7)[0]
        matrix.cosine(query, windows=400)
        matrix.store(200, quantise(np.repeat(query[None, :], 4, axis=0)))
        assert matrix.cosine(query, windows=400)[200:204].tolist() == pytest.approx([1] * 4, abs=0.01)
