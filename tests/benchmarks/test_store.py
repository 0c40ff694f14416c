"""What a store costs, measured and drawn."""

from dataclasses import asdict
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from benchmarks.growth import plot
from benchmarks.store import StoreCost, Writer, measure
from holdfast.embed.hashed import HashEmbedder

pytestmark = pytest.mark.nightly

TIMES = {"build_per_s", "append_ms_p50", "open_ms", "query_ms_p50", "query_ms_p95", "forget_ms"}


@pytest.fixture(scope="module")
def cost() -> StoreCost:
    """A small run."""
    return measure(60, dimension=32, embedder=HashEmbedder())


def test_every_figure_is_there(cost: StoreCost) -> None:
    """A run says what the tracker asks for, by the clock and by the processor."""
    found = asdict(cost)
    assert cost.segments == 60
    assert cost.vectors > 60
    assert all(found[name] > 0 for name in (*TIMES, "rss_mb", "disk_ratio"))
    assert cost.cpu.keys() == TIMES
    assert all(value > 0 for value in cost.cpu.values())
    assert cost.fts5["segments"] == 60
    assert cost.embedding["build_per_s"] > 0


def test_growth_is_drawn(cost: StoreCost) -> None:
    """Runs become one picture that is well formed, with a line a figure and a point a run."""
    runs = [asdict(cost) | {"segments": size} for size in (1_000_000, 20_000, 100_000)]
    picture = plot(runs)
    root = ET.fromstring(picture)  # noqa: S314 - our own
    assert root.tag.endswith("svg")
    assert picture.count("<polyline") == 5
    assert picture.count("<circle") == 15
    assert "1M" in picture


def test_one_run_can_be_drawn(cost: StoreCost) -> None:
    """A single size is a picture too."""
    assert plot([asdict(cost)]).count("<circle") == 5


def test_a_missing_figure_is_left_out(cost: StoreCost) -> None:
    """A run that has no figure for a panel has no point in it."""
    picture = plot([asdict(cost), {"segments": 20_000, "rss_mb": 100.0}])
    assert picture.count("<circle") == 6


def test_text_is_as_long_as_it_should_be() -> None:
    """Passages have about 1,000 characters' worth, a fifth are Chinese, and a question is a part of one."""
    writer = Writer(1)
    texts = [writer.text() for _ in range(200)]
    assert 900 < np.mean([len(text.encode()) for text in texts]) < 1400
    assert 20 < sum(not text.isascii() for text in texts) < 60
    assert all(writer.question(text) in text for text in texts)
