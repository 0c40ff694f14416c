"""How the cost of a store grows with what is in it, drawn: one small panel for each figure, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["plot"]

_WIDTH, _HEIGHT = 460, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 98, 40, 40
_ACROSS: Final = 2
_COLOURS: Final = ("#1f6feb", "#d1495b")
_LABELS: Final = (17, -8)
"""How far below its point the value of a line stands: of two lines, one below and one above."""
_LAST_LABELS: Final = (10, 0)
"""The same for the last point, whose value stands to the right of it, outside of the grid."""
_FAINT: Final = "#d0d7de"
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:13px}"
    ".small{font-size:11px}rect{fill:#fff}"
    ".value{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:4px}"  # lines end before a value
)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One figure: its title, the lines in it by name, and where each is found in a run."""

    title: str
    lines: Mapping[str, tuple[str, ...]]


_PANELS: Final = (
    _Panel("hybrid query, ms of processor time", {"p50": ("cpu", "query_ms_p50"), "p95": ("cpu", "query_ms_p95")}),
    _Panel("open to first answer, ms of processor time", {"open": ("cpu", "open_ms")}),
    _Panel("memory of the process that asks, MB", {"memory": ("rss_mb",)}),
    _Panel("import by words, passages per s", {"import": ("cpu", "build_per_s")}),
)


def plot(runs: Sequence[Mapping[str, Any]]) -> str:
    """The figures of several runs, as `python -m benchmarks store --json` prints them, as one SVG picture.

    A figure that a run does not have is left out.
    """
    ordered = sorted(runs, key=lambda run: int(run["segments"]))
    rows = -(-len(_PANELS) // _ACROSS)
    size = f'width="{_ACROSS * _WIDTH}" height="{rows * _HEIGHT}"'
    parts = []
    for place, panel in enumerate(_PANELS):
        x, y = place % _ACROSS * _WIDTH, place // _ACROSS * _HEIGHT
        parts.append(f'<g transform="translate({x},{y})">{_panel(panel, ordered)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%"/>{"".join(parts)}</svg>\n'
    )


def _panel(panel: _Panel, runs: Sequence[Mapping[str, Any]]) -> str:
    lines = {name: list(_values(runs, path)) for name, path in panel.lines.items()}
    x = _Scale.over([float(run["segments"]) for run in runs], _LEFT, _WIDTH - _RIGHT)
    y = _Scale.over([value for line in lines.values() for _, value in line], _HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text class="title" x="{_LEFT}" y="22">{panel.title}</text>', *_grid(x, y)]
    labels: list[str] = []
    for place, (name, line) in enumerate(lines.items()):
        points = [(x(size), y(value), value) for size, value in line]
        parts += _line(points, _COLOURS[place])
        labels += _label(name, points, place)
    return "".join([*parts, *labels])


def _values(runs: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> Iterator[tuple[float, float]]:
    """The size of each run and its figure, of those runs that have one."""
    for run in runs:
        found: Any = run
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is not None:
            yield float(run["segments"]), max(float(found), 0.01)


@dataclass(frozen=True, slots=True)
class _Scale:
    """A logarithmic axis: which powers of ten it spans, and where they lie."""

    low: int
    high: int
    start: float
    stop: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, stop: float) -> _Scale:
        """The axis that holds these values."""
        low = math.floor(math.log10(min(values, default=1)))
        high = math.ceil(math.log10(max(values, default=10)))
        return cls(low, max(high, low + 1), start, stop)

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Each power of ten: where it lies, and what stands beside it."""
        for power in range(self.low, self.high + 1):
            yield self(10.0**power), _short(10.0**power)


def _grid(x: _Scale, y: _Scale) -> Iterator[str]:
    left, right, top, bottom = _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM
    for place, text in y.ticks():
        yield f'<path d="M{left} {place}H{right}" stroke="{_FAINT}"/>'
        yield f'<text class="small" x="{left - 6}" y="{place + 4}" text-anchor="end">{text}</text>'
    for place, text in x.ticks():
        yield f'<path d="M{place} {top}V{bottom}" stroke="{_FAINT}"/>'
        yield f'<text class="small" x="{place}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
    middle = (left + right) / 2
    yield f'<text class="small" x="{middle}" y="{bottom + 32}" text-anchor="middle">passages</text>'


def _line(points: Sequence[tuple[float, float, float]], colour: str) -> Iterator[str]:
    """A line through points."""
    path = " ".join(f"{x},{y}" for x, y, _ in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y, _ in points:
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'


def _label(name: str, points: Sequence[tuple[float, float, float]], place: int) -> Iterator[str]:
    """The values of the points of a line, above or below them; the last to the right of it, with the name."""
    for x, y, value in points[:-1]:
        yield _value(_short(value), x, y + _LABELS[place], anchor="middle", colour=_COLOURS[place])
    for x, y, value in points[-1:]:
        text = f"{name} {_short(value)}"
        yield _value(text, x + 9, y + _LAST_LABELS[place], anchor="start", colour=_COLOURS[place])


def _value(text: str, x: float, y: float, *, anchor: str, colour: str) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="value" {where} style="fill:{colour}">{text}</text>'


def _short(value: float) -> str:
    """A number in a few characters: 20k, 1M, 7.4."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
