"""Days as the user counts them."""

import pytest

from holdfast.errors import SettingsError
from holdfast_agent.workspace import local_time

NOW = 1_770_768_000_000
"""2026-02-11T00:00:00Z."""


@pytest.mark.parametrize(
    ("timezone", "date"),
    [("UTC", "2026-02-11"), ("America/New_York", "2026-02-10"), ("Asia/Tokyo", "2026-02-11")],
)
def test_a_day_is_the_users(timezone: str, date: str) -> None:
    """The same moment lies in different days for different users."""
    assert f"{local_time(NOW, timezone=timezone):%Y-%m-%d}" == date


def test_without_a_time_zone_the_machine_decides() -> None:
    """Local time is the machine's where nothing is set, and still the same moment."""
    assert local_time(NOW, timezone=None).timestamp() * 1000 == NOW


@pytest.mark.parametrize("timezone", ["Mars/Olympus", "../etc/passwd", "", "Europe"])
def test_an_unknown_time_zone_is_named(timezone: str) -> None:
    """A time zone that does not exist is a settings error with the key and an example."""
    with pytest.raises(SettingsError, match="Europe/Berlin") as caught:
        local_time(NOW, timezone=timezone)
    assert caught.value.key == "agent.timezone"
