"""Charts of the inspector as SVG. Colours are classes of the style sheet, so that they follow the theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from markupsafe import Markup

from holdfast.context.edits import Item
from holdfast.report import NAMES, categorise
from holdfast.timeline import WindowSource

PARTS: Final = NAMES[:-2]
"""The parts of a window that hold text; the reserve and the free rest are not drawn."""
MAX_COLUMNS: Final = 360
MAP_ROWS: Final = 14
MAP_WIDTH: Final = 720
MAP_ROW: Final = 20
CHART: Final = (960, 150)


def class_of(part: str) -> str:
    """Return the style class of a part of a window."""
    return f"part-{part.replace(' ', '-')}"


def sparkline(recent: Sequence[WindowSource]) -> Markup:
    """Draw the use of the window over the last turns; a cut is a mark below."""
    width, height, step = 144, 28, 3
    bars: list[str] = []
    for place, source in enumerate(recent):
        share = min(1.0, sum(source.sizes[:-2]) / max(1, source.window))
        tall = max(1.0, share * (height - 4))
        kind = "cut" if {"trimmed", "compacted"} & {*source.changes} else "use"
        bars.append(_rectangle(kind, place * step, height - 4 - tall, 2, tall))
        if kind == "cut":
            bars.append(_rectangle(kind, place * step, height - 2, 2, 2))
    label = "no request yet"
    if recent:
        share = sum(recent[-1].sizes[:-2]) / max(1, recent[-1].window)
        label = f"the window over the last {len(recent)} requests, now {share:.0%} full"
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{label}">{"".join(bars)}</svg>'
    )


def timeline(turns: Sequence[tuple[int, int, WindowSource]]) -> Markup:
    """Draw the tokens of each turn by part, with marks where something was cut, compacted or recalled.

    If there are too many turns, each column is the last of several, with the marks of all of them.
    """
    width, height = CHART
    step = max(1, -(-len(turns) // MAX_COLUMNS))
    groups = [turns[max(0, end - step) : end] for end in range(len(turns), 0, -step)][::-1]
    top = max((max(source.window, sum(source.sizes[:-2])) for _, _, source in turns), default=1)
    wide = width / max(1, len(groups))
    columns: list[str] = []
    for place, group in enumerate(groups):
        number, _, source = group[-1]
        x, y, body = place * wide, float(height - 18), ""
        for part, size in zip(PARTS, source.sizes, strict=False):
            tall = size / top * (height - 24)
            y -= tall
            body += _rectangle(class_of(part), x, y, max(wide - 0.6, 0.6), tall)
        body += _marks({kind for _, _, one in group for kind in one.changes}, x + wide / 2, height)
        columns.append(f'<g class="turn" data-turn="{number}"><title>turn {number}</title>{body}</g>')
    line = height - 18 - (height - 24) * (turns[-1][2].window / top if turns else 1)
    return Markup(  # noqa: S704 - numbers and our own names only
        f'<svg class="chart" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="tokens of {len(turns)} requests by part">'
        f'<line class="limit" x1="0" x2="{width}" y1="{line:.1f}" y2="{line:.1f}"/>{"".join(columns)}</svg>'
    )


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def _marks(kinds: set[str], x: float, height: int) -> str:
    """Draw a square for a cut, a diamond for a compaction, a dot for a recall."""
    marks = ""
    if "compacted" in kinds:
        marks += f'<path class="mark compacted" d="M{x:.1f} {height - 16} l4 4 l-4 4 l-4 -4 z"/>'
    elif "trimmed" in kinds:
        marks += f'<rect class="mark trimmed" x="{x - 3:.1f}" y="{height - 15}" width="6" height="6"/>'
    if "recalled" in kinds:
        marks += f'<circle class="mark recalled" cx="{x:.1f}" cy="{height - 4}" r="2.4"/>'
    return marks


def window_map(items: Sequence[Item], *, window: int) -> Markup:
    """Draw a window as rows of blocks, each as wide as its tokens; what is free stays empty."""
    per_row = max(1, window) / MAP_ROWS
    scale = MAP_WIDTH / per_row
    shapes: list[str] = []
    at = 0.0
    for item in items:
        pieces = [(categorise(item), item.tokens)]
        pieces += [("recall", block.tokens) for block in item.blocks]
        for part, size in pieces:
            title = f"{part}, message {item.id}, {size:,} tokens" if item.id else f"{part}, {size:,} tokens"
            shapes += _place(part, at, size, per_row, scale, title=title, number=item.id)
            at += size
    height = MAP_ROWS * MAP_ROW
    frames = "".join(
        f'<rect class="empty" x="0" y="{row * MAP_ROW}" width="{MAP_WIDTH}" height="{MAP_ROW - 3}"/>'
        for row in range(MAP_ROWS)
    )
    return Markup(  # noqa: S704 - escaped above
        f'<svg class="map" viewBox="0 0 {MAP_WIDTH} {height}" role="img" aria-label="the window, {at:,.0f} of '
        f'{window:,} tokens">{frames}{"".join(shapes)}</svg>'
    )


def _place(part: str, at: float, size: int, per_row: float, scale: float, *, title: str, number: int) -> list[str]:
    """Return the rectangles of one block; it may go over several rows."""
    shapes: list[str] = []
    left = float(size)
    while left > 0 and at < per_row * MAP_ROWS:
        row = int(at / per_row)
        room = min(left, (row + 1) * per_row - at)
        x, wide = (at - row * per_row) * scale, max(room * scale - 1, 0.7)
        link = f' data-message="{number}"' if number else ""
        shapes.append(
            f'<rect class="{class_of(part)}" x="{x:.1f}" y="{row * MAP_ROW}" width="{wide:.1f}" '
            f'height="{MAP_ROW - 3}"{link}><title>{escape(title)}</title></rect>'
        )
        at, left = at + max(room, 1e-6), left - max(room, 1e-6)
    return shapes
