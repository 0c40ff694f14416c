"""Find the calendar periods that a question names: "yesterday", "on Monday last week", "in March", "上周", "三天前".

Unlike the ranges of `dates`, which raise scores, these have exact ends: whole days in the time zone of this machine. So
they can select sessions, or the facts that held then. One period in another narrows it ("in March last year"), two with
"to" between them are a range, and others are listed next to each other ("Monday and Tuesday").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from holdfast.moments import local
from holdfast.patterns import compile_once, load
from holdfast.search.dates import (
    CalendarDate,
    Range,
    find_calendar_dates,
    find_counts_back,
    read_number,
    read_unit,
)

_WEEK: Final = 7
_RECENT_DAYS: Final = 7
"""The days before today that "recently" and "lately" mean."""
_UNIT_DAYS: Final = {"day": 1, "week": _WEEK, "month": 31, "year": 366}
_MAX_TIMES: Final = 5
"""A shorter period that a longer one has more often ("on Monday ... last year") does not narrow it."""
_MIN_DIVIDED: Final = 28
"""The days of the shortest period that has a "beginning" or a "last week"."""
_MAX_MENTIONS: Final = 40
"""How many mentions are compared with each other. A log in a message may have thousands of dates."""
_MAX_BEFORE: Final = 40
"""The characters before a period that may belong to it: "ever since the", "the first week of"."""
_MONTHS: Final = 12
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - the places of periods in a text do not depend on the day

_Days: TypeAlias = tuple[datetime, datetime]
"""A first day, and the first day after, at midnight."""
_Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mention:
    """A period that a text names.

    Attributes:
        place: Where the text names it.
        days: When it is; for a weekday, or a date without a year, the last time.
        weekday: Which weekday it is, if it is one: 0 for Monday.
        date: Which day or month of any year it is, if it is one.
        part: Which part of it is meant; a name in `[parts]`.
        around: The places of longer periods that it is in.
    """

    place: _Place
    days: _Days
    weekday: int | None = None
    date: CalendarDate | None = None
    part: str = ""
    around: tuple[_Place, ...] = ()

    @property
    def length(self) -> timedelta:
        return self.days[1] - self.days[0]


def find_periods(text: str, *, now: int) -> list[Range]:
    """Return the periods that a text names, in order; none that begins after `now`."""
    found: list[Range] = []
    with suppress(OverflowError, OSError, ValueError):
        moment = local(now)
        today = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - local days, whatever their offset is
        for mention in _read_mentions(text, today):
            start, stop = mention.days
            period = (_milliseconds(start), _milliseconds(stop))
            if period[0] <= now and period not in found:
                found.append(period)
    return found


def remove_periods(text: str) -> str:
    """Return a text without the periods that it names."""
    places: set[_Place] = set()
    with suppress(OverflowError, ValueError):
        for mention in _read_mentions(text, _ANY_DAY):
            places.update((mention.place, *mention.around))
    for start, stop in sorted(places, reverse=True):
        text = f"{text[:start]} {text[stop:]}"
    return text


def _read_mentions(text: str, today: datetime) -> list[_Mention]:
    """Read the periods that a text names: those in other ones narrowed, the ends of ranges joined.

    Raises an OverflowError or a ValueError if one is out of the range of a calendar: "9999 years ago".
    """
    named = sorted(_list_mentions(text, today), key=lambda mention: mention.place)[:_MAX_MENTIONS]
    mentions = _choose([_add_part(text, mention) for mention in named])
    mentions = _join(text, _narrow(text, mentions))
    return [_extend(text, mention, today) for mention in mentions]


# --- finding periods ---------------------------------------------------------------------


def _list_mentions(text: str, today: datetime) -> Iterator[_Mention]:
    tables = load("periods")
    for name, pattern in tables["periods"].items():
        for match in _compile(pattern).finditer(text):
            yield _Mention(place=match.span(), days=_find_named(name, today))
    for number, pattern in enumerate(tables["weekdays"]["names"]):
        for match in _compile(pattern).finditer(text):
            day = today - timedelta((today.weekday() - number - 1) % _WEEK + 1)
            yield _Mention(place=match.span(), days=(day, day + timedelta(1)), weekday=number)
    for match in _compile(tables["dates"]["recent"]).finditer(text):
        count, unit = (group for group in match.groups() if group)
        first = today - timedelta(read_number(count) * _UNIT_DAYS[read_unit(unit)])
        yield _Mention(place=match.span(), days=(first, today + timedelta(1)))
    for back in find_counts_back(text):
        yield _Mention(place=back.place, days=_count_back(today, back.count, back.unit))
    for date in (*find_calendar_dates(text), *_list_numeric_dates(text)):
        yield from _find_calendar_days(date, today)


def _list_numeric_dates(text: str) -> Iterator[CalendarDate]:
    """Find "11/05": the month first, unless it can only be the day."""
    for match in _compile(load("periods")["dates"]["numeric"]).finditer(text):
        month = int(match["first"])
        day = int(match["second"])
        if month > _MONTHS:
            month = int(match["second"])
            day = int(match["first"])
        yield CalendarDate(month=month, day=day, place=match.span())


def _find_named(name: str, today: datetime) -> _Days:
    """Return the days of a name in `[periods]`."""
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
        case "three_days_ago":
            return today - 3 * day, today - 2 * day
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
        case _:  # recently
            return today - _RECENT_DAYS * day, today + day


def _count_back(today: datetime, count: int, unit: str) -> _Days:
    """Return the day, week, month or year that is `count` units ago."""
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


def _find_calendar_days(date: CalendarDate, today: datetime) -> Iterator[_Mention]:
    """Find a day or a month; without a year, the last one that has begun."""
    if date.year:
        for days in _make_days(date, date.year):
            yield _Mention(place=date.place, days=days)
        return
    for year in (today.year, today.year - 1):
        for days in _make_days(date, year):
            if days[0] <= today:
                yield _Mention(place=date.place, days=days, date=date)
                return


def _make_days(date: CalendarDate, year: int) -> list[_Days]:
    """Return the days of a date in a year; none if there is no such date."""
    try:
        start = datetime(year, date.month, date.day or 1)  # noqa: DTZ001 - as above
    except ValueError:
        return []
    if date.day:
        return [(start, start + timedelta(1))]
    return [(start, _add_months(start, 1))]


def _choose(mentions: Sequence[_Mention]) -> list[_Mention]:
    """Choose the first and longest of mentions that overlap in the text."""
    chosen: list[_Mention] = []
    stop = 0
    for mention in sorted(mentions, key=lambda mention: (mention.place[0], -mention.place[1])):
        if mention.place[0] >= stop:
            chosen.append(mention)
            stop = mention.place[1]
    return chosen


# --- parts of periods --------------------------------------------------------------------


def _add_part(text: str, mention: _Mention) -> _Mention:
    """Find the part of a month or year that is meant: "the last week of", 月底."""
    start, stop = mention.place
    if mention.length < timedelta(_MIN_DIVIDED):
        return mention
    for name, pattern in load("periods")["parts"].items():
        before = _search_before(f"(?:{pattern})$", text, start)
        if before is not None:
            return replace(mention, place=(before.start(), stop), part=name)
        after = _compile(pattern).match(text, stop)
        if after is not None:
            return replace(mention, place=(start, after.end()), part=name)
    return mention


def _divide(mention: _Mention) -> _Mention:
    """Return the part of a period that is meant, with whole days."""
    start, stop = mention.days
    week = timedelta(_WEEK)
    third = timedelta(round(mention.length.days / 3))
    parts = {
        "": (start, stop),
        "first_week": (start, start + week),
        "second_week": (start + week, start + 2 * week),
        "third_week": (start + 2 * week, start + 3 * week),
        "last_week": (stop - week, stop),
        "beginning": (start, start + third),
        "middle": (start + third, stop - third),
        "end": (stop - third, stop),
    }
    return replace(mention, days=parts[mention.part])


# --- several periods ---------------------------------------------------------------------


def _narrow(text: str, mentions: Sequence[_Mention]) -> list[_Mention]:
    """Replace a longer period and a shorter one in it by the shorter one: "on Wednesday last week"."""
    found: list[_Mention] = []
    for mention in sorted(mentions, key=lambda mention: -mention.length):  # the longest first
        narrowed = _find_in_shortest(text, mention, found) or [mention]
        found += map(_divide, narrowed)
    # A longer period with another one in it only says when that was: it is not a period of its own.
    used: set[_Place] = set()
    for mention in found:
        used.update(mention.around)
    left = [mention for mention in found if mention.place not in used]
    return sorted(left, key=lambda mention: mention.place)


def _find_in_shortest(text: str, mention: _Mention, others: Sequence[_Mention]) -> list[_Mention]:
    """Find the times of a period in the shortest of the longer ones that has any; none if it is in none of them."""
    for longer in sorted(others, key=lambda longer: longer.length):
        if longer.length <= mention.length or _is_apart(text, mention, longer):
            continue
        inside = _find_inside(mention, longer)
        if inside:
            return inside
    return []


def _find_inside(mention: _Mention, longer: _Mention) -> list[_Mention]:
    """Find the times of a shorter period in a longer one; none if there are too many."""
    start, stop = longer.days
    times: list[_Days] = []
    if mention.weekday is not None:
        day = start + timedelta((mention.weekday - start.weekday()) % _WEEK)
        while day < stop and len(times) <= _MAX_TIMES:
            times.append((day, day + timedelta(1)))
            day += timedelta(_WEEK)
    elif mention.date is not None:
        for year in range(start.year, stop.year + 1):
            times += _make_days(mention.date, year)
    else:
        times.append(mention.days)
    inside = [days for days in times if start <= days[0] and days[1] <= stop]
    if len(inside) > _MAX_TIMES:
        return []
    around = (longer.place, *longer.around)
    return [replace(mention, days=days, around=around) for days in inside]


def _is_apart(text: str, one: _Mention, other: _Mention) -> bool:
    """Return whether two periods are listed, or are the ends of a range."""
    first, second = sorted((one.place, other.place))
    between = text[first[1] : second[0]]
    return _is_only(between, "and") or _is_only(between, "to")


def _join(text: str, mentions: Sequence[_Mention]) -> list[_Mention]:
    """Join the two ends of a range: "from Monday to Wednesday", "between November 3 and November 5"."""
    joined: list[_Mention] = []
    for mention in mentions:
        if joined and _is_range(text, joined[-1], mention):
            joined[-1] = _make_range(joined[-1], mention)
        else:
            joined.append(_add_other_day(text, mention))
    return joined


def _is_range(text: str, first: _Mention, last: _Mention) -> bool:
    """Return whether two periods are the ends of a range: "between Monday and Friday", not "Monday and Friday"."""
    between = text[first.place[1] : last.place[0]]
    if _is_only(between, "to"):
        return True
    return _is_only(between, "and") and _is_between(text, first.place[0], last.place[1])


def _is_between(text: str, start: int, stop: int) -> bool:
    """Return whether a word next to a part of a text says that it is a range: "between", 之间."""
    ranges = load("periods")["ranges"]
    if _search_before(ranges["between_before"], text, start):
        return True
    return _compile(ranges["between_after"]).match(text, stop) is not None


def _make_range(first: _Mention, last: _Mention) -> _Mention:
    """Make the period from the beginning of one to the end of another."""
    start = first.days[0]
    end = last.days[1]
    if start >= end and first.weekday is not None:  # "from Monday to Friday", on a Tuesday
        start -= timedelta(_WEEK)
    elif start >= end and first.date is not None:
        start = start.replace(year=start.year - 1)
    place = (first.place[0], last.place[1])
    days = (min(start, last.days[0]), max(end, start + timedelta(1)))
    return _Mention(place=place, days=days, around=(*first.around, *last.around))


def _add_other_day(text: str, mention: _Mention) -> _Mention:
    """Find the other end of "November 3 to 5", "3-5 November", 11月3日到5日."""
    start, stop = mention.place
    first, end = mention.days
    if end - first > timedelta(1) or not any(map(str.isdecimal, text[start:stop])):
        return mention
    ranges = load("periods")["ranges"]
    after = _compile(ranges["last_day"]).match(text, stop)
    if after is not None and after["and"] and not _is_between(text, start, after.end()):  # "on November 3 and 5"
        after = None
    before = _search_before(ranges["first_day"], text, start)
    with suppress(ValueError):  # "February 3 to 31"
        if after is not None:
            last = first.replace(day=int(after["day"])) + timedelta(1)
            return replace(mention, place=(start, after.end()), days=(first, max(end, last)))
        if before is not None:
            earlier = first.replace(day=int(before["day"]))
            return replace(mention, place=(before.start(), stop), days=(min(first, earlier), end))
    return mention


def _extend(text: str, mention: _Mention, today: datetime) -> _Mention:
    """Extend "since Friday" until today."""
    start, stop = mention.place
    ranges = load("periods")["ranges"]
    before = _search_before(ranges["since_before"], text, start)
    after = _compile(ranges["since_after"]).match(text, stop)
    if before is None and after is None:
        return mention
    if before is not None:
        start = before.start()
    if after is not None:
        stop = after.end()
    first, end = mention.days
    return replace(mention, place=(start, stop), days=(first, max(end, today + timedelta(1))))


def _search_before(pattern: str, text: str, stop: int) -> re.Match[str] | None:
    """Find what directly precedes a place; the pattern ends with `$`."""
    return _compile(pattern).search(text, max(0, stop - _MAX_BEFORE), stop)


def _is_only(text: str, name: str) -> bool:
    """Return whether a text is nothing but a word of `[ranges]`: "to", "and"."""
    return _compile(load("periods")["ranges"][name]).fullmatch(text) is not None


def _add_months(month: datetime, count: int) -> datetime:
    number = month.year * 12 + month.month - 1 + count
    return month.replace(year=number // 12, month=number % 12 + 1)


def _milliseconds(day: datetime) -> int:
    return int(day.timestamp() * 1000)  # a date without an offset is a local one


def _compile(pattern: str) -> re.Pattern[str]:
    return compile_once(pattern, re.IGNORECASE | re.VERBOSE)
