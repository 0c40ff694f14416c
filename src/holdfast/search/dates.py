"""Find the dates in a query: "in May", "on 3 June 2023", "two weeks ago", "去年三月", "昨天", "先週".

Ranges are half-open, in Unix milliseconds. They only raise the score of messages from that time, and hide nothing. So
they are in UTC, and wider than the date that is named. `periods` has exact ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

Range = tuple[int, int]
"""Unix milliseconds, half-open."""

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = re.compile(
    r"\b(?:(?P<day>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?"
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?(?:,?\s+(?:of\s+)?(?P<year>(?:19|20)\d\d))?",
    re.IGNORECASE,
)
# "may" and "march" are months only after a time word, or with a day or a year.
_AMBIGUOUS_MONTHS: Final = frozenset({"may", "march", "mar"})
_TIME_WORD: Final = re.compile(
    r"\b(?:in|on|of|by|since|during|early|late|mid|last|this|until|before|after)[\s-]+$", re.IGNORECASE
)
_MAX_TIME_WORD: Final = 12
"""The characters of a time word and the spaces after it."""
_ISO: Final = re.compile(r"\b(?P<year>(?:19|20)\d\d)[-/.](?P<month>\d{1,2})(?:[-/.](?P<day>\d{1,2}))?\b")
_CJK: Final = re.compile(
    r"(?:(?P<year>(?:19|20)\d\d)\s*[年년]\s*)?(?P<month>\d{1,2}|十[一二]?|[一二三四五六七八九])\s*[月월]"
    r"(?:份?\s*(?P<day>\d{1,2}|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])\s*[日号號일])?"
)
_CJK_DIGITS: Final = {character: number for number, character in enumerate("一二三四五六七八九", start=1)} | {"两": 2}

_WORDS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTS: Final = {word: number for number, word in enumerate(_WORDS, start=1)} | {
    "a": 1,
    "an": 1,
    "couple": 2,
    "few": 3,
}
_AGO: Final = re.compile(
    rf"\b(?P<count>\d{{1,4}}|an?|{'|'.join(_WORDS)}|couple|few)\s+(?:of\s+)?(?P<unit>day|week|month|year)s?\s+ago\b"
    r"|(?P<cjk_count>\d{1,4}|[一二两三四五六七八九十]{1,3})\s*(?:个|個|か|ヶ)?(?P<cjk_unit>天|日|周|週間?|星期|月|年)\s*(?:之)?前",
    re.IGNORECASE,
)
_CJK_UNITS: Final = {
    "天": "day",
    "日": "day",
    "周": "week",
    "週": "week",
    "星": "week",
    "月": "month",
    "年": "year",
    "일": "day",
    "주": "week",
    "달": "month",
    "개": "month",
    "년": "year",
}
# By unit: its days, and how many days before and after still count.
_UNIT_DAYS: Final = {"day": (1.0, 1.5), "week": (7.0, 3.5), "month": (30.4, 12.5), "year": (365.0, 120.5)}
# Each with the days before now that it may mean.
_RECENT: Final = (
    (re.compile(r"\byesterday\b|昨天|昨日|어제", re.IGNORECASE), 2.0),
    (re.compile(r"\b(?:last|past|this|previous) (?:mon|tues|wednes|thurs|fri|satur|sun)day\b", re.IGNORECASE), 8.0),
    (
        re.compile(
            r"\b(?:last|past|this|previous) week(?:end)?\b|[上这本]周|[上这本]星期|先週|今週|지난주", re.IGNORECASE
        ),
        10.0,
    ),
    (re.compile(r"\b(?:last|past|this|previous) month\b|[上这本]个?月|先月|今月|지난달", re.IGNORECASE), 40.0),
    (re.compile(r"\b(?:last|past|this|previous) year\b|[去今]年|昨年|작년", re.IGNORECASE), 400.0),
)


def find_dates(text: str, *, now: int | None, years: range) -> list[Range]:
    """Return the ranges that a query names, or counts back from `now`; a month without a year is in any of `years`."""
    found: list[Range] = []
    for date in find_calendar_dates(text):
        found += _days(date, years)
    if now is None:
        return found
    # Every relative English date has the name of a unit ("yesterday", "last Monday", "two weeks ago"). Most questions
    # have none, and need not be searched with all the patterns.
    lowered = text.lower()
    if text.isascii() and not any(unit in lowered for unit in _UNIT_DAYS):
        return found
    with suppress(OverflowError, OSError, ValueError):
        today = datetime.fromtimestamp(now / 1000, UTC)
        for back in find_counts_back(text):
            days, slack = _UNIT_DAYS[back.unit]
            middle = today - timedelta(back.count * days)
            found.append(_range(middle - timedelta(slack), middle + timedelta(slack)))
        for pattern, days in _RECENT:
            if pattern.search(text):
                found.append(_range(today - timedelta(days), today + timedelta(0.5)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarDate:
    """A day or a month of a year that a text names, and its place in the text. A part that is not named is 0."""

    year: int = 0
    month: int
    day: int = 0
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountBack:
    """A number of days, weeks, months or years (`unit`) before today, and the place in the text that says so."""

    count: int
    unit: str
    place: tuple[int, int]


def find_counts_back(text: str) -> Iterator[CountBack]:
    """Find "three weeks ago", "两天前"."""
    for match in _AGO.finditer(text):
        count = read_number(match["count"] or match["cjk_count"])
        yield CountBack(count=count, unit=read_unit(match["unit"] or match["cjk_unit"]), place=match.span())


def read_unit(word: str) -> str:
    """Return `day`, `week`, `month` or `year` for a word of a language: "days", 周, 星期."""
    return _CJK_UNITS.get(word[0]) or word.lower().removesuffix("s")


def read_number(word: str) -> int:
    """Return the number in digits or words: "3", "three", 三, 二十一; 0 if it is not a number."""
    if word.isdecimal():
        return int(word)
    if word.lower() in _COUNTS:
        return _COUNTS[word.lower()]
    tens, ten, ones = word.rpartition("十")
    number = _CJK_DIGITS.get(ones, 0)
    if ten:  # 十 alone is ten, 二十 twenty
        number += 10 * _CJK_DIGITS.get(tens, 1)
    return number


def find_calendar_dates(text: str) -> Iterator[CalendarDate]:
    """Find the days and months that a text names: "in May", "on 3 June 2023", "3月5日"."""
    for match in _MONTH.finditer(text):
        name, day, after, year = match.group("month", "day", "after", "year")
        is_month = name.lower() not in _AMBIGUOUS_MONTHS or any((day, after, year))
        if not is_month and name[0].isupper():
            start = match.start()
            is_month = _TIME_WORD.search(text, max(0, start - _MAX_TIME_WORD), start) is not None
        if is_month:
            month = _MONTHS.index(name.lower()[:3]) + 1
            number = int(day or after or 0)
            yield CalendarDate(year=int(year or 0), month=month, day=number, place=match.span())
    matches = list(_ISO.finditer(text))
    if not text.isascii():
        matches += _CJK.finditer(text)
    for match in matches:
        month = read_number(match["month"])
        day = read_number(match["day"] or "")
        yield CalendarDate(year=int(match["year"] or 0), month=month, day=day, place=match.span())


def _days(date: CalendarDate, years: range) -> Iterator[Range]:
    month = date.month
    if date.year:
        years = range(date.year, date.year + 1)
    for year in years:
        try:
            if 1 <= date.day <= 31:  # noqa: PLR2004 - days of a month
                middle = datetime(year, month, date.day, tzinfo=UTC)
                yield _range(middle - timedelta(3), middle + timedelta(4))
            else:
                first = datetime(year, month, 1, tzinfo=UTC)
                yield _range(first, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC))
        except ValueError:  # 30 February, month 13
            continue


def _range(first: datetime, last: datetime) -> Range:
    return int(first.timestamp() * 1000), int(last.timestamp() * 1000)
