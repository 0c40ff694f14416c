"""The highest of many values."""

import numpy as np
import pytest

from holdfast.search.arrays import highest


@pytest.mark.parametrize("size", [0, 5, 50, 3000, 100_000])
@pytest.mark.parametrize("spread", ["even", "few", "rising", "same"])
def test_it_is_what_sorting_would_give(size: int, spread: str) -> None:
    """However the values lie, the highest are found, in the order they stand in."""
    chance = np.random.default_rng(size)
    values = {
        "even": chance.standard_normal(size),
        "few": np.where(chance.random(size) < 0.001, chance.random(size), 0),
        "rising": np.arange(size),
        "same": np.ones(size),
    }[spread].astype(np.float32)
    found = highest(values, 40)
    assert len(found) == min(40, size)
    assert (np.diff(found) > 0).all()
    assert np.sort(values[found]).tolist() == np.sort(values)[-40:].tolist()
