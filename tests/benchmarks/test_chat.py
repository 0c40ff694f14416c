"""What a conversation costs next to the model."""

from __future__ import annotations

import pytest

from benchmarks.chat import Steps, first_screens, measure

pytestmark = pytest.mark.nightly


def test_turns_are_taken_apart() -> None:
    """Every step of a turn has its share, and the provider's time is not ours."""
    found = measure(turns=12)
    assert {"assemble", "prompt", "transcript", "sessions.json"} <= set(found["steps"])
    assert "provider" not in found["steps"]
    assert 0 < found["own"]["p50"] <= found["own"]["max"]


def test_a_moment_counts_for_the_innermost_step() -> None:
    """What a step within another takes is not counted twice."""
    now = [0.0]
    steps = Steps(lambda: now[0])
    with steps.step("outer"):
        now[0] = 1.0
        with steps.step("inner"):
            now[0] = 3.0
        now[0] = 4.0
    assert steps.taken() == {"other": 0.0, "outer": 2_000.0, "inner": 2_000.0}


def test_a_first_screen_comes() -> None:
    """The prompt is seen, and then takes keys."""
    found = first_screens(1)
    assert found["shown"]["p50"] <= found["takes_keys"]["p50"]
