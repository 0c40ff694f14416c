"""Random conversations through the whole path of a window."""

from __future__ import annotations

import pytest

from benchmarks.fuzz import Fuzzed, measure


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("windows", "seed"), [(100, 0), *(pytest.param(250, seed, marks=pytest.mark.nightly) for seed in range(4))]
)
def test_no_window_is_invalid_or_over_its_limit(windows: int, seed: int) -> None:
    """For five providers, from five formats, in sessions that grow request by request."""
    found = measure(windows=windows, seed=seed)
    assert found.windows >= windows
    assert (found.invalid, found.over_limit, found.unmanaged) == (0, 0, 0)
    assert found.refused < found.windows / 20
    assert found.blunt <= 1


def test_the_same_seed_makes_the_same_windows() -> None:
    """So that a failure can be reproduced."""
    assert measure(windows=25, seed=7) == measure(windows=25, seed=7)


def test_figures_add_up() -> None:
    """Field by field."""
    one = Fuzzed(windows=1, invalid=2, over_limit=3, refused=4, blunt=5, unmanaged=6)
    assert one + one == Fuzzed(windows=2, invalid=4, over_limit=6, refused=8, blunt=10, unmanaged=12)
