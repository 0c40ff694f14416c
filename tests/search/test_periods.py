"""The calendar periods that a question names, as whole days in the time zone of the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from holdfast.moments import local
from holdfast.search.periods import find_periods, remove_periods
from support.cases import each

TUESDAY = datetime(2026, 11, 17, 15, 0)  # noqa: DTZ001 - a local time


def read(text: str, *, now: datetime = TUESDAY) -> list[tuple[str, str]]:
    """The first day of each period, and the first day after it."""
    found = find_periods(text, now=int(now.timestamp() * 1000))
    return [(f"{local(start):%Y-%m-%d}", f"{local(stop):%Y-%m-%d}") for start, stop in found]


@each(
    ("text", "start", "stop"),
    [
        ("What did we do today?", "2026-11-17", "2026-11-18"),
        ("What did we do yesterday?", "2026-11-16", "2026-11-17"),
        ("the day before yesterday", "2026-11-15", "2026-11-16"),
        ("three days ago", "2026-11-14", "2026-11-15"),
        ("on Monday", "2026-11-16", "2026-11-17"),
        ("on Tuesday", "2026-11-10", "2026-11-11"),
        ("on Wednesday", "2026-11-11", "2026-11-12"),
        ("this week", "2026-11-16", "2026-11-23"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("two weeks ago", "2026-11-02", "2026-11-09"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("in March", "2026-03-01", "2026-04-01"),
        ("in December", "2025-12-01", "2026-01-01"),
        ("on 5 November", "2026-11-05", "2026-11-06"),
        ("on 2026-03-05", "2026-03-05", "2026-03-06"),
        ("on 11/05", "2026-11-05", "2026-11-06"),
        ("on 25/10", "2026-10-25", "2026-10-26"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("昨天我们做了什么？", "2026-11-16", "2026-11-17"),
        ("前天", "2026-11-15", "2026-11-16"),
        ("大前天", "2026-11-14", "2026-11-15"),
        ("两天前", "2026-11-15", "2026-11-16"),
        ("上周", "2026-11-09", "2026-11-16"),
        ("上周四", "2026-11-12", "2026-11-13"),
        ("星期三", "2026-11-11", "2026-11-12"),
        ("上个月", "2026-10-01", "2026-11-01"),
        ("三月份", "2026-03-01", "2026-04-01"),
        ("11月3日", "2026-11-03", "2026-11-04"),
        ("十一月五号", "2026-11-05", "2026-11-06"),
        ("十月二十一日", "2026-10-21", "2026-10-22"),
        ("昨日は何をしましたか", "2026-11-16", "2026-11-17"),
        ("先週", "2026-11-09", "2026-11-16"),
        ("어제 뭐 했지?", "2026-11-16", "2026-11-17"),
        ("지난주", "2026-11-09", "2026-11-16"),
    ],
)
def test_a_period_has_its_first_day_and_the_first_day_after_it(text: str, start: str, stop: str) -> None:
    """In English, Chinese, Japanese and Korean."""
    assert read(text) == [(start, stop)]


@each(
    ("text", "start", "stop"),
    [
        ("in the last week of February", "2026-02-22", "2026-03-01"),
        ("the last week of October", "2026-10-25", "2026-11-01"),
        ("the first week of November", "2026-11-01", "2026-11-08"),
        ("at the beginning of October", "2026-10-01", "2026-10-11"),
        ("in late October", "2026-10-22", "2026-11-01"),
        ("the first week of last month", "2026-10-01", "2026-10-08"),
        ("on Wednesday last week", "2026-11-11", "2026-11-12"),
        ("last week on Wednesday", "2026-11-11", "2026-11-12"),
        ("on Tuesday this week", "2026-11-17", "2026-11-18"),
        ("in March last year", "2025-03-01", "2025-04-01"),
        ("the last week of March last year", "2025-03-25", "2025-04-01"),
        ("on 5 November last year", "2025-11-05", "2025-11-06"),
        ("十月最后一周", "2026-10-25", "2026-11-01"),
        ("十月初", "2026-10-01", "2026-10-11"),
        ("上个月底", "2026-10-22", "2026-11-01"),
        ("去年三月", "2025-03-01", "2025-04-01"),
        ("上星期三", "2026-11-11", "2026-11-12"),
        ("上上周三", "2026-11-04", "2026-11-05"),
        ("本周二", "2026-11-17", "2026-11-18"),
        ("上周一起做了什么", "2026-11-09", "2026-11-16"),
        ("先週の水曜日", "2026-11-11", "2026-11-12"),
        ("10月の最後の週", "2026-10-25", "2026-11-01"),
        ("지난주 수요일", "2026-11-11", "2026-11-12"),
        ("작년 3월", "2025-03-01", "2025-04-01"),
    ],
)
def test_a_period_in_a_longer_one_is_the_shorter_one(text: str, start: str, stop: str) -> None:
    """Not both of them."""
    assert read(text) == [(start, stop)]


@each(
    ("text", "start", "stop"),
    [
        ("between November 3 and November 5", "2026-11-03", "2026-11-06"),
        ("between November 3 and 5", "2026-11-03", "2026-11-06"),
        ("from November 3 to 5", "2026-11-03", "2026-11-06"),
        ("3-5 November", "2026-11-03", "2026-11-06"),
        ("from Monday to Wednesday last week", "2026-11-09", "2026-11-12"),
        ("from Thursday to Monday", "2026-11-12", "2026-11-17"),
        ("from Monday to Friday", "2026-11-09", "2026-11-14"),
        ("from November to February", "2025-11-01", "2026-03-01"),
        ("since Friday", "2026-11-13", "2026-11-18"),
        ("since last week", "2026-11-09", "2026-11-18"),
        ("in the last three days", "2026-11-14", "2026-11-18"),
        ("over the past 2 weeks", "2026-11-03", "2026-11-18"),
        ("11月3日到5日", "2026-11-03", "2026-11-06"),
        ("11月3日至11月5日", "2026-11-03", "2026-11-06"),
        ("11月3日和11月5日之间", "2026-11-03", "2026-11-06"),
        ("上周一到周三", "2026-11-09", "2026-11-12"),
        ("周五以来", "2026-11-13", "2026-11-18"),
        ("从周五开始", "2026-11-13", "2026-11-18"),
        ("最近三天", "2026-11-14", "2026-11-18"),
        ("过去两周", "2026-11-03", "2026-11-18"),
        ("金曜日以降", "2026-11-13", "2026-11-18"),
        ("지난 3일", "2026-11-14", "2026-11-18"),
    ],
)
def test_a_range_has_every_day_from_its_first_to_its_last(text: str, start: str, stop: str) -> None:
    """Without a last day, until today."""
    assert read(text) == [(start, stop)]


@pytest.mark.parametrize("text", ["on Monday and Sunday", "周一和周日", "周日、周一"])
def test_a_list_has_each_of_its_periods(text: str) -> None:
    """And no day between them."""
    assert sorted(read(text)) == [("2026-11-15", "2026-11-16"), ("2026-11-16", "2026-11-17")]


@each(
    "text",
    [
        "Which port does staging use?",
        "You may ask.",
        "They sat down.",
        "tomorrow",
        "next week",
        "Version 2.1",
        "3/4 of the tests pass",
        "明天",
        "",
    ],
)
def test_most_questions_name_none(text: str) -> None:
    """Nor does what is still to come."""
    assert read(text) == []


def test_a_date_that_is_still_to_come_is_no_period() -> None:
    """Nothing can have been done in it."""
    assert read("on 2027-03-05") == []


def test_a_text_without_its_periods() -> None:
    """What is left may name a subject."""
    assert remove_periods("What did we do on 5 November about Redis?").split()[-2:] == ["about", "Redis?"]
    assert remove_periods("上周我们做了什么？").strip() == "我们做了什么？"
    assert remove_periods("11月3日到5日我们做了什么？").strip() == "我们做了什么？"
    assert remove_periods("since Friday").strip() == ""
    assert remove_periods("in the last week of March last year").split() == ["in"]


@pytest.fixture
def in_auckland(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that is 13 hours ahead."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_auckland")
def test_days_are_those_of_the_machine() -> None:
    """What was yesterday evening here is today in UTC."""
    morning = datetime(2026, 11, 17, 8, 0)  # noqa: DTZ001 - a local time
    ((start, stop),) = find_periods("yesterday", now=int(morning.timestamp() * 1000))
    evening = int(datetime(2026, 11, 16, 22, 0).timestamp() * 1000)  # noqa: DTZ001 - a local time
    assert start <= evening < stop


def test_a_message_with_very_many_dates_is_read_too() -> None:
    """Only the first of them are compared with each other."""
    log = "\n".join(f"2026-11-{1 + number % 15:02} in March last year" for number in range(1_000))
    assert 1 < len(read(log)) < 40
    assert remove_periods("Before it. " + log).startswith("Before it.")
