"""Likeness seen from what all have in common."""

import numpy as np

from holdfast.search.centre import Centre, centred


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
    centre = Centre(length, float(question @ mean / length), np.arange(50), cosines)
    apart, asked = rows - mean, question - mean
    wanted = apart @ asked / np.linalg.norm(apart, axis=1) / np.linalg.norm(asked)
    assert np.allclose(centred((rows @ question).astype(np.float32), centre), wanted, atol=1e-4)


def test_what_was_not_looked_at_is_like_nothing() -> None:
    """Only the windows that the centre was held against are seen from it."""
    centre = Centre(0.5, 0.5, np.array([1]), np.array([0.5], np.float32))
    assert centred(np.array([0.4, 0.5], np.float32), centre)[0] == 0
