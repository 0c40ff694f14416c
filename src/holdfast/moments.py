"""Unix milliseconds as dates, whatever a clock said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["minute", "utc"]

_LAST: Final = 253_370_764_800_000
"""The year 9999. A year is left to its end, so that days can be counted on and time zones applied."""


def utc(milliseconds: int) -> datetime:
    """A moment as a date in UTC; one that is not between 1970 and 9999 is taken for the nearest that is."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=max(0, min(milliseconds, _LAST)))


def minute(milliseconds: int | None) -> str:
    """A moment in UTC, to the minute: `2026-02-10 14:31`. Nothing where it is not known, or no date says it."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "minutes")[:16]
    except (OverflowError, OSError, ValueError):
        return ""
