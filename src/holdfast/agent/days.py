"""Days as the user counts them: local time in the settings' time zone, and the note of a day."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import SettingsError
from holdfast.moments import utc

__all__ = ["daily_note", "local_time", "today"]


def local_time(now: int, *, timezone: str | None) -> datetime:
    """A moment (Unix milliseconds) as the user's clock shows it; without a time zone, the machine's.

    Raises:
        SettingsError: There is no such time zone.
    """
    moment = utc(now)
    if timezone is None:
        return moment.astimezone()
    try:
        return moment.astimezone(ZoneInfo(timezone))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(
            f"no time zone {timezone!r}: write one such as 'Europe/Berlin', or leave it out for the machine's",
            source="settings",
            key="agent.timezone",
        ) from error


def today(now: int, *, timezone: str | None) -> str:
    """The user's date: `2026-02-10`."""
    return local_time(now, timezone=timezone).strftime("%Y-%m-%d")


def daily_note(now: int, *, timezone: str | None) -> str:
    """The name of the day's note in a workspace: `memory/2026-02-10.md`."""
    return f"memory/{today(now, timezone=timezone)}.md"
