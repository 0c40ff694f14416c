"""Durations, sizes and secrets, as people spell them."""

from datetime import timedelta

import pytest

from holdfast.settings import Secret, read_duration, spell_duration
from holdfast.settings.schema import read_bytes
from support.cases import each


@each(
    ("spelled", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("90s", 90),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("1w", 604_800),
        (" 5M ", 300),
        ("0", 0),
        ("5", 300),
        ("0.5", 30),
        (5, 300),
        (0.5, 30),
        (0, 0),
        (timedelta(seconds=7), 7),
    ],
)
def test_duration(spelled: object, seconds: float) -> None:
    """Units add up, and a bare number is minutes."""
    assert read_duration(spelled) == timedelta(seconds=seconds)


@each(
    "spelled",
    [
        "",
        "m",
        "soon",
        "5 minutes",
        "-5m",
        "5m!",
        "5mm",
        "1h,30m",
        "1e3",
        "٥m",
        "9" * 10_000,
        "9" * 10_000 + "m",
        "999999999w",
        "1h" * 100_000,
        -1,
        10**400,
        float("nan"),
        float("inf"),
        True,
        None,
        [5],
        timedelta(days=-1),
        timedelta(days=99_999),
    ],
)
def test_no_duration(spelled: object) -> None:
    """What is no duration, negative or longer than ten years is refused."""
    with pytest.raises(ValueError, match="not"):
        read_duration(spelled)


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [
        (0, "0s"),
        (300, "5m"),
        (5400, "1h30m"),
        (90, "1m30s"),
        (0.25, "250ms"),
        (86_400, "1d"),
        (93_784.005, "1d2h3m4s5ms"),
    ],
)
def test_spelling_a_duration(seconds: float, spelled: str) -> None:
    """A duration is spelled in the largest units that fit, and reads back as the same."""
    assert spell_duration(timedelta(seconds=seconds)) == spelled
    assert read_duration(spelled) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("spelled", "size"), [("0", 0), ("512", 512), ("2kb", 2048), ("2 MB", 2 * 2**20), ("1.5gb", 1.5 * 2**30), (7, 7)]
)
def test_size(spelled: object, size: float) -> None:
    """Sizes are bytes, or have a unit of 1024s; numbers are left as they are."""
    assert read_bytes(spelled) == size


@pytest.mark.parametrize("spelled", ["", "mb", "2 megabytes", "-2mb", "9" * 10_000], ids=range(5))
def test_no_size(spelled: str) -> None:
    """Text that is no size is refused."""
    with pytest.raises(ValueError, match="not a size"):
        read_bytes(spelled)


def test_secret_expands_once() -> None:
    """A variable's own text is not expanded again, and what is doubled stands for itself."""
    environ = {"A": "${B}", "B": "b"}
    assert Secret.expand("x-${A}-${B}-$${B}-$B-${", environ).reveal() == "x-${B}-b-${B}-$B-${"


@each("value", ["plain", "${A}", "$${A}", "$$${A}", "$", "${}", "a$", "密钥"])
def test_secret_spelled(value: str) -> None:
    """A secret is spelled so that it reads as itself."""
    assert Secret.expand(Secret(value).spell(), {}) == Secret(value)
