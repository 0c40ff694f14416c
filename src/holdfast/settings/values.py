"""The kinds of values that settings take, and how they are parsed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

_MAX_DURATION: Final = timedelta(days=3660)
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STEP: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s*", re.ASCII)
_SIZES: Final = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([kmgt]?b)?", re.ASCII)
_ENVIRONMENT: Final = re.compile(r"\$(\$?)\{(\w+)\}", re.ASCII)


class Secret:
    """A value that never appears in a `repr`, an error or an encoded form."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself, to pass it to a provider."""
        return self._value

    @classmethod
    def expand(cls, text: str, environ: Mapping[str, str]) -> "Secret":
        """Replace `${NAME}` with the variable and `$${NAME}` with `${NAME}`; a missing variable is a `KeyError`."""
        return cls(_ENVIRONMENT.sub(lambda match: match[0][1:] if match[1] else environ[match[2]], text))

    def spell(self) -> str:
        """Return the text that `expand` reads as this secret."""
        return _ENVIRONMENT.sub(r"$\g<0>", self._value)

    def __repr__(self) -> str:
        return "Secret('****')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def read_duration(value: object) -> timedelta:
    """Parse `5m`, `1h30m` or `90s`; a bare number is minutes. Whole milliseconds, ten years at most."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _parse_seconds(value.strip().lower())
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_DURATION.total_seconds():
        seconds = float(value) * 60
    else:
        raise ValueError("not a duration")
    if not 0 <= seconds <= _MAX_DURATION.total_seconds():
        raise ValueError("not between 0 and ten years")
    return timedelta(milliseconds=round(seconds * 1000))


def _parse_seconds(text: str) -> float:
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text, re.ASCII):
        return float(text) * 60
    steps = list(_STEP.finditer(text))
    if not steps or sum(len(step[0]) for step in steps) != len(text):
        raise ValueError("not a duration")
    return sum(float(step[1]) * _UNITS[step[2]] for step in steps)


def spell_duration(value: timedelta) -> str:
    """Format a duration as the shortest text that `read_duration` accepts: `1h30m`."""
    rest = round(value / timedelta(milliseconds=1))
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        size = round(_UNITS[unit] * 1000)
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def read_bytes(value: object) -> object:
    """Convert `2mb` to bytes; a number is returned unchanged."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError("not a size")
    return round(float(match[1]) * _SIZES[match[2] or "b"])


def read_provider(value: object) -> object:
    """Replace `transformer`, the former name of `onnx`."""
    return "onnx" if value == "transformer" else value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is parsed before the check, and its description where the type alone is not enough."""

    read: Callable[[object], object]
    words: str = ""


Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Chars: TypeAlias = Count
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Bytes: TypeAlias = Annotated[
    int, Meta(ge=0, le=2**50, extra={"kind": Kind(read_bytes, 'bytes, or a size such as "2mb"')})
]
Duration: TypeAlias = Annotated[
    timedelta,
    Meta(extra={"kind": Kind(read_duration, 'duration such as "5m", "1h30m" or "90s"; a bare number is minutes')}),
]
Provider: TypeAlias = Annotated[
    Literal[
        "auto",
        "none",
        "hash",
        "local",
        "static",
        "onnx",
        "openai",
        "gemini",
        "voyage",
        "mistral",
        "ollama",
        "openai-compatible",
    ],
    Meta(extra={"kind": Kind(read_provider)}),
]
