"""Find the calendar periods that a question names: "yesterday", "on Monday", "last week", "in March", "上周", "三天前".

Unlike the ranges of `dates`, which raise scores, these have exact ends: whole days in the time zone of this machine. So
a list of sessions can be made of them, or of the facts that held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from holdfast.moments import local
from holdfast.patterns import compile_once, load
from holdfast.search.dates import CalendarDate, Range, find_calendar_dates, find_counts_back, remove_dates

_WEEK: Final = 7
_RECENT_DAYS: Final = 7


def find_periods(text: str, *, now: int) -> list[Range]:
    """Return the periods that a text names, in order; none that begins after `now`."""
    found: list[Range] = []
    with suppress(OverflowError, OSError, ValueError):
        for start, stop in _list_days(text, local(now)):
            period = (_milliseconds(start), _milliseconds(stop))
            if period[0] <= now and period not in found:
                found.append(period)
    return found


def remove_periods(text: str) -> str:
    """Return a text without the periods that it names."""
    tables = load("periods")
    for pattern in (*tables["periods"].values(), tables["weekdays"]["of_last_week"], *tables["weekdays"]["names"]):
        text = _compile(pattern).sub(" ", text)
    return remove_dates(text)


def _list_days(text: str, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """List the periods as first day and the first day after it, at midnight."""
    today = datetime(now.year, now.month, now.day)  # noqa: DTZ001 - local days, whatever their offset is
    named = load("periods")["periods"]
    for name, pattern in named.items():
        if _compile(pattern).search(text):
            yield _find_named(name, today)
            break
    yield from _find_weekdays(text, today)
    for count, unit in find_counts_back(text):
        yield _count_back(today, count, unit)
    for date in find_calendar_dates(text):
        yield from _find_calendar_days(date, today)


def _find_named(name: str, today: datetime) -> tuple[datetime, datetime]:
    day = timedelta(1)
    monday = today - timedelta(today.weekday())
    month = today.replace(day=1)
    next_month = _add_months(month, 1)
    match name:
        case "today":
            return today, today + day
        case "yesterday":
            return today - day, today
        case "two_days_ago":
            return today - 2 * day, today - day
        case "last_weekend":
            saturday = monday - 2 * day
            if today.weekday() > _WEEK - 2:  # on a Sunday, Saturday is part of it
                saturday = monday + 5 * day
            return saturday, saturday + 2 * day
        case "last_week":
            return monday - _WEEK * day, monday
        case "week_before_last":
            return monday - 2 * _WEEK * day, monday - _WEEK * day
        case "this_week":
            return monday, monday + _WEEK * day
        case "last_month":
            return _add_months(month, -1), month
        case "this_month":
            return month, next_month
        case "last_year":
            return datetime(today.year - 1, 1, 1), datetime(today.year, 1, 1)  # noqa: DTZ001 - as above
        case "this_year":
            return datetime(today.year, 1, 1), datetime(today.year + 1, 1, 1)  # noqa: DTZ001 - as above
        case _:
            return today - _RECENT_DAYS * day, today + day


def _find_weekdays(text: str, today: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Find names of weekdays: the last such day before today, or that of the last calendar week."""
    weekdays = load("periods")["weekdays"]
    is_last_week = _compile(weekdays["of_last_week"]).search(text) is not None
    for number, pattern in enumerate(weekdays["names"]):
        if not _compile(pattern).search(text):
            continue
        if is_last_week:
            day = today - timedelta(today.weekday() + _WEEK - number)
        else:
            day = today - timedelta((today.weekday() - number - 1) % _WEEK + 1)
        yield day, day + timedelta(1)


def _count_back(today: datetime, count: int, unit: str) -> tuple[datetime, datetime]:
    """Return the day, week, month or year that is some of them ago."""
    if unit == "day":
        day = today - timedelta(count)
        return day, day + timedelta(1)
    if unit == "week":
        monday = today - timedelta(today.weekday() + _WEEK * count)
        return monday, monday + timedelta(_WEEK)
    if unit == "month":
        month = _add_months(today.replace(day=1), -count)
        return month, _add_months(month, 1)
    return datetime(today.year - count, 1, 1), datetime(today.year - count + 1, 1, 1)  # noqa: DTZ001 - as above


def _find_calendar_days(date: CalendarDate, today: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Return a day or a month; without a year, the last one that has begun."""
    with suppress(ValueError):
        year = date.year or today.year
        start = datetime(year, date.month, date.day or 1)  # noqa: DTZ001 - as above
        if not date.year and start > today:
            start = start.replace(year=year - 1)
        stop = start + timedelta(1) if date.day else _add_months(start, 1)
        yield start, stop


def _add_months(month: datetime, count: int) -> datetime:
    number = month.year * 12 + month.month - 1 + count
    return month.replace(year=number // 12, month=number % 12 + 1)


def _milliseconds(day: datetime) -> int:
    return int(day.timestamp() * 1000)  # a date without an offset is a local one


def _compile(pattern: str) -> re.Pattern[str]:
    return compile_once(pattern, re.IGNORECASE | re.VERBOSE)
