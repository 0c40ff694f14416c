"""Likeness seen from what all have in common."""

import numpy as np

from holdfast.index.vectors import Centering, Matrix, center_cosines, quantise


def test_it_is_the_cosine_of_vectors_taken_from_their_mean() -> None:
    """Three cosines and a length give what subtracting the mean from every vector would."""
    chance = np.random.default_rng(1)
    rows = chance.normal(size=(50, 8)) + 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    question = rows[0] + 0.3 * chance.normal(size=8)
    question /= np.linalg.norm(question)
    mean = rows.mean(axis=0)
    length = float(np.linalg.norm(mean))
    cosines = (rows @ mean / length).astype(np.float32)
    centre = Centering(length, float(question @ mean / length), np.arange(50), cosines)
    apart, asked = rows - mean, question - mean
    wanted = apart @ asked / np.linalg.norm(apart, axis=1) / np.linalg.norm(asked)
    assert np.allclose(center_cosines((rows @ question).astype(np.float32), centre), wanted, atol=1e-4)


def test_what_was_not_looked_at_is_not_seen() -> None:
    """Only the windows that the centre was held against are seen from it."""
    centre = Centering(0.5, 0.5, np.array([1]), np.array([0.5], np.float32))
    assert len(center_cosines(np.array([0.4, 0.5], np.float32), centre)) == 1


def test_a_matrix_returns_the_mean_of_its_windows() -> None:
    """The centre is the mean of the visible windows, drawn in where they are few; without vectors there is none."""
    rows = np.random.default_rng(2).normal(size=(300, 16)).astype(np.float32) + 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix = Matrix(16)
    assert matrix.centre(rows[0], np.zeros(300, np.float32)) is None
    matrix.store(0, quantise(rows))
    visible = np.arange(300) < 200
    cosine = matrix.cosine(rows[0], windows=300, visible=visible)
    centre = matrix.centre(rows[0], cosine, visible=visible)
    assert centre is not None
    mean = rows[:200].sum(axis=0) / 220
    assert np.isclose(centre.length, np.linalg.norm(mean), atol=0.01)
    assert centre.windows.tolist() == list(range(200))
    assert np.allclose(centre.cosines, rows[:200] @ mean / np.linalg.norm(mean), atol=0.02)
    assert np.isclose(centre.question, rows[0] @ mean / np.linalg.norm(mean), atol=0.01)
