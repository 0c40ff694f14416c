"""Convert Unix milliseconds to dates; values out of range do not raise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_MAX_MILLISECONDS: Final = 253_370_764_800_000
"""The start of the year 9999, so that adding days or a time zone does not overflow."""


def utc(milliseconds: int) -> datetime:
    """Convert a time to a date in UTC, clamped to 1970 to 9999."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=max(0, min(milliseconds, _MAX_MILLISECONDS)))


def local(milliseconds: int) -> datetime:
    """Convert a time to a date in the time zone of this machine, clamped as `utc` does."""
    return utc(milliseconds).astimezone()


def minute(milliseconds: int | None) -> str:
    """Format a time in UTC, to the minute: `2026-02-10 14:31`. Empty if it is unknown or out of range."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "minutes")[:16]
    except (OverflowError, OSError, ValueError):
        return ""
