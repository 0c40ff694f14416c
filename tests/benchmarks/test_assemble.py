"""What a turn costs."""

import pytest

from benchmarks.assemble import measure

pytestmark = pytest.mark.nightly


def test_every_figure_is_there() -> None:
    """A small run gives the shape of a large one: sizes, times by step, memory."""
    seen: list[int] = []
    found = measure(messages=40, segments=100, turns=3, limit=16_000, tokens=60, progress=seen.append)
    assert (found.messages, found.segments, found.turns) == (40, 100, 3)
    assert found.tokens > 40 * 40
    assert set(found.steps) >= {"archive", "plan", "recall", "record", "verify"}
    assert 0 < found.ms_p50 <= found.ms_p95
    assert 0 < found.cpu_ms_p50 <= found.cpu_ms_p95
    assert sum(seen) == 103
    assert found.rss_mb > 10
