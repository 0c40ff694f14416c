"""The off-topic benchmark."""

from pathlib import Path

import pytest

from holdfast.bench.datasets import load
from holdfast.bench.offtopic import measure
from holdfast.errors import InputError

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "bench"


def test_questions_are_asked_at_home_and_abroad() -> None:
    """Every question gets a block from its own conversation and none from the other."""
    ticks: list[int] = []
    found = measure(load("locomo", FILES / "locomo.json"), embedder=None, progress=ticks.append)
    assert found == {"questions": 3, "kept": 1.0, "injected_offtopic": 0.0}
    assert len(ticks) == 3


def test_it_takes_two() -> None:
    """One conversation has no other to be asked of."""
    with pytest.raises(InputError, match="at least two"):
        measure(load("beam", FILES / "beam"), embedder=None)
