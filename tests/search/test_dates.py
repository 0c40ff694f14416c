"""Which days a question points at."""

from datetime import UTC, datetime

import pytest

from holdfast.search.dates import find_dates
from support.cases import each

YEARS = range(2022, 2025)
NOW = int(datetime(2024, 6, 15, 12, tzinfo=UTC).timestamp() * 1000)


def inside(text: str, *moment: int, now: int | None = NOW) -> bool:
    """Whether the question points at this day."""
    day = datetime(*moment, 12, tzinfo=UTC)  # type: ignore[arg-type,misc]
    at = int(day.timestamp() * 1000)
    return any(start <= at < stop for start, stop in find_dates(text, now=now, years=YEARS))


@each(
    ("text", "day"),
    [
        ("What did we do in May 2023?", (2023, 5, 20)),
        ("the trip of October", (2022, 10, 3)),
        ("on 3 June 2023", (2023, 6, 3)),
        ("on June 3rd, 2023", (2023, 6, 3)),
        ("the log of 2023-06-03", (2023, 6, 3)),
        ("in March", (2023, 3, 1)),
        ("两周前说了什么", (2024, 6, 1)),
        ("2023年5月", (2023, 5, 9)),
        ("五月三日那天".replace("三日", "3日"), (2023, 5, 3)),
        ("昨天的会议", (2024, 6, 14)),
        ("先週の話", (2024, 6, 10)),
        ("어제 뭐라고 했지", (2024, 6, 14)),
        ("two weeks ago", (2024, 6, 1)),
        ("a couple of days ago", (2024, 6, 13)),
        ("3 months ago", (2024, 3, 15)),
        ("last week", (2024, 6, 9)),
        ("last year", (2023, 9, 1)),
    ],
)
def test_days_are_found(text: str, day: tuple[int, ...]) -> None:
    """Named or counted back, in English, Chinese, Japanese or Korean."""
    assert inside(text, *day)


@pytest.mark.parametrize(
    "text",
    ["may I ask", "we march on", "nothing of the kind", "version 2.13.4", "9999 years ago", "the 31st February 2023"],
)
def test_other_words_are_no_days(text: str) -> None:
    """A verb, a version, a day that is none: nothing is pointed at, and nothing fails."""
    assert not any(
        inside(text, year, month, 10) for year in YEARS for month in range(1, 13) if (year, month) != (2023, 2)
    )


def test_counting_back_needs_a_now() -> None:
    """Without the moment of the question only named days count."""
    assert find_dates("yesterday", now=None, years=YEARS) == []
    assert find_dates("in May 2023", now=None, years=YEARS) != []


def test_a_moment_beyond_the_calendar_points_nowhere() -> None:
    """A clock that is far off is no error."""
    assert find_dates("yesterday", now=10**18, years=YEARS) == []
