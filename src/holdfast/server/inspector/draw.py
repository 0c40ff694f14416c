"""Charts of the inspector as SVG. Colours are classes of the style sheet, so that they follow the theme."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from html import escape
from typing import Final

from markupsafe import Markup

from holdfast.context.edits import Item, Relevance
from holdfast.report import NAMES, categorise
from holdfast.server.inspector.past import KIND_NAMES
from holdfast.text import percent, shorten_number
from holdfast.timeline import PastTurn, WindowSource

PARTS: Final = NAMES[:-2]
"""The parts of a window that hold text; the reserve and the free rest are not drawn."""
MAX_COLUMNS: Final = 360
MAP_ROWS: Final = 14
MAP_WIDTH: Final = 720
MAP_ROW: Final = 20
CHART_HEIGHT: Final = 190
PLOT_BOTTOM: Final = 152
"""Where the columns stand; marks and turn numbers are below."""
PLOT_HEIGHT: Final = 136
MAX_TICKS: Final = 5
"""Numbers on the axis of tokens, besides 0."""
MIN_LABELLED: Final = 9
"""Turns from which on there are numbers between the first and the last."""
SCALE_TURN: Final = 60
"""The share of a scale from which on labels are on the left of their mark."""


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
        full = percent(_used(recent[-1]), recent[-1].window)
        label = f"the window over the last {len(recent)} requests, now {full} full"
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{label}">{"".join(bars)}</svg>'
    )


def timeline(turns: Sequence[PastTurn], *, at_least: int = 0) -> Markup:
    """Draw the tokens of each turn by part, with axes, and marks where something was cut, compacted or recalled.

    The axis goes up to `at_least` tokens, so that two charts can have the same.

    Places across are shares of the width, so that texts keep their shape. If there are too many turns, each column is
    the last of several, with the marks of all of them. The limit, and the usable part of it without the reserve for the
    reply, are drawn last, over the columns.
    """
    if not turns:
        return Markup()
    step = max(1, -(-len(turns) // MAX_COLUMNS))
    groups = [turns[max(0, end - step) : end] for end in range(len(turns), 0, -step)][::-1]
    sizes = [max(turn.source.window, _used(turn.source)) for turn in turns]
    top = _round_up(max(sizes, default=1))
    top = max(top, _round_up(at_least))
    wide = 100 / max(1, len(groups))
    columns: list[str] = []
    for place, group in enumerate(groups):
        turn = group[-1]
        y = float(PLOT_BOTTOM)
        body = f'<rect class="hit" x="{place * wide:.3f}%" y="0" width="{wide:.3f}%" height="{CHART_HEIGHT}"/>'
        for part, size in zip(PARTS, turn.source.sizes, strict=False):
            tall = size / top * PLOT_HEIGHT
            y -= tall
            if tall:
                body += _column(class_of(part), place * wide, y, wide, tall)
        kinds = {kind for one in group for kind in one.source.changes}
        body += _marks(kinds, (place + 0.5) * wide)
        label = describe_turns(group, kinds)
        columns.append(
            f'<g class="turn" data-turn="{turn.number}" data-label="{escape(label)}"><title>{escape(label)}</title>'
            f"{body}</g>"
        )
    grid = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{_height(value, top):.1f}" y2="{_height(value, top):.1f}"/>'
        for value in _ticks(top)
    )
    axis = "".join(
        f'<text x="46" y="{_height(value, top) + 4:.1f}" text-anchor="end">{shorten_number(value)}</text>'
        for value in _ticks(top)
    )
    newest = turns[-1].source
    limits = f"the limit is {newest.window:,} tokens, and {_usable(newest):,} are usable"
    label = f"tokens of {len(turns)} requests by part; {limits}"
    usable = _limit_line([_usable(group[-1].source) for group in groups], top, wide, kind="usable")
    limit = _limit_line([group[-1].source.window for group in groups], top, wide, kind="limit")
    return Markup(  # noqa: S704 - numbers and our own names only
        f'<div class="plot"><svg class="axis" width="50" height="{CHART_HEIGHT}" aria-hidden="true">'
        f'<text class="unit" x="46" y="10" text-anchor="end">tokens</text>{axis}</svg>'
        f'<svg class="chart" height="{CHART_HEIGHT}" role="img" aria-label="{label}">{grid}{"".join(columns)}'
        f"{usable}{limit}{_turn_labels(groups, wide)}</svg></div>"
    )


def describe_turns(turns: Sequence[PastTurn], kinds: Collection[str]) -> str:
    """Describe the turns of a column in one line: how full the window of the last one was, and what happened."""
    last = turns[-1]
    used = _used(last.source)
    window = last.source.window
    name = f"Turn {last.number}"
    if len(turns) > 1:
        name = f"Turns {turns[0].number} to {last.number}, the last"
    words = f"{name}: {used:,} of {window:,} tokens ({percent(used, window)})"
    named = [name for kind, name in KIND_NAMES.items() if kind in kinds]
    return f"{words}; {', '.join(named)}" if named else words


def _used(source: WindowSource) -> int:
    return sum(source.sizes[:-2])


def _usable(source: WindowSource) -> int:
    """Return the tokens of the window without the reserve for the reply."""
    return source.window - source.sizes[len(PARTS)]


def _height(value: float, top: float) -> float:
    return PLOT_BOTTOM - value / top * PLOT_HEIGHT


def _round_up(value: float) -> float:
    """Return the top of an axis: room over the largest value, so that the limit is not at the edge."""
    return max(1.0, value * 1.06)


def _ticks(top: float) -> list[float]:
    """Return a few round numbers from 0 on."""
    size: float = 10 ** math.floor(math.log10(top))
    for share in (0.2, 0.25, 0.5, 1.0, 2.0, 2.5):
        step = size * share
        if top / step <= MAX_TICKS:
            break
    return [step * number for number in range(int(top / step) + 1)]


def _limit_line(limits: Sequence[int], top: float, wide: float, *, kind: str) -> str:
    """Draw a limit over the turns, in steps: it changes with the model."""
    lines = ""
    begin = 0
    before: float | None = None
    for place, limit in enumerate(limits):
        is_last = place + 1 == len(limits)
        if not is_last and limits[place + 1] == limit:
            continue
        y = _height(limit, top)
        if before is not None:
            step = f'x1="{begin * wide:.3f}%" x2="{begin * wide:.3f}%" y1="{before:.1f}" y2="{y:.1f}"'
            lines += f'<line class="{kind}" {step}/>'
        ends = f'x1="{begin * wide:.3f}%" x2="{(place + 1) * wide:.3f}%" y1="{y:.1f}" y2="{y:.1f}"'
        lines += f'<line class="limit-ground" {ends}/><line class="{kind}" {ends}/>'
        begin = place + 1
        before = y
    return lines


def _turn_labels(groups: Sequence[Sequence[PastTurn]], wide: float) -> str:
    """Write some turn numbers below the columns."""
    count = len(groups)
    places = [0, count - 1]
    if count >= MIN_LABELLED:
        places = [0, count // 4, count // 2, 3 * count // 4, count - 1]
    labels = ""
    for place in dict.fromkeys(places):
        if place < 0:
            continue
        anchor = "start" if place == 0 else "end" if place == count - 1 else "middle"
        x = 0.0 if anchor == "start" else 100.0 if anchor == "end" else (place + 0.5) * wide
        labels += f'<text x="{x:.2f}%" y="{CHART_HEIGHT - 3}" text-anchor="{anchor}">{groups[place][-1].number}</text>'
    return labels


def _column(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.3f}%" y="{y:.1f}" width="{width * 0.86:.3f}%" height="{height:.1f}"/>'


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def _marks(kinds: Collection[str], x: float) -> str:
    """Draw the marks of a turn in two lines below the columns.

    A square is a cut, a diamond a compaction, a dot a recall, a ring an overview.
    """
    marks = ""
    if "compacted" in kinds:
        marks += _mark(x, '<path class="mark compacted" d="M0 -4 l4 4 l-4 4 l-4 -4 z"/>')
    elif "trimmed" in kinds:
        marks += _mark(x, '<rect class="mark trimmed" x="-3" y="-3" width="6" height="6"/>')
    elif "pruned" in kinds:
        marks += _mark(x, '<rect class="mark pruned" x="-3" y="-1" width="6" height="2.5"/>')
    if "recalled" in kinds:
        marks += f'<circle class="mark recalled" cx="{x:.3f}%" cy="{PLOT_BOTTOM + 15}" r="2.4"/>'
    if "overview" in kinds:  # a ring: it goes around the dot of a recall in the same turn
        marks += f'<circle class="mark overview" cx="{x:.3f}%" cy="{PLOT_BOTTOM + 15}" r="3.8"/>'
    return marks


def _mark(x: float, shape: str) -> str:
    return f'<svg x="{x:.3f}%" y="{PLOT_BOTTOM + 6}" overflow="visible">{shape}</svg>'


def window_map(items: Sequence[Item], *, window: int, new: Collection[int] = ()) -> Markup:
    """Draw a window as rows of blocks, each as wide as its tokens; what is free stays empty.

    Messages of `new` are outlined.
    """
    per_row = max(1, window) / MAP_ROWS
    scale = MAP_WIDTH / per_row
    shapes: list[str] = []
    at = 0.0
    last = ""
    is_odd = False
    for item in items:
        pieces = [(categorise(item), item.tokens)]
        pieces += [("recall", block.tokens) for block in item.blocks]
        for part, size in pieces:
            title = f"{part}, message {item.id}, {size:,} tokens" if item.id else f"{part}, {size:,} tokens"
            kind = class_of(part)
            if part == last and not is_odd:  # two of a kind next to each other are told apart by their shade
                kind += " odd"
            is_odd = part == last and not is_odd
            last = part
            if item.id in new:
                title += ", new in this turn"
                kind += " fresh"
            shapes += _place(kind, at, size, per_row, scale, title=title, number=item.id)
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


def _place(kind: str, at: float, size: int, per_row: float, scale: float, *, title: str, number: int) -> list[str]:
    """Return the rectangles of one block; it may go over several rows."""
    shapes: list[str] = []
    left = float(size)
    while left > 0 and at < per_row * MAP_ROWS:
        row = int(at / per_row)
        room = min(left, (row + 1) * per_row - at)
        x, wide = (at - row * per_row) * scale, max(room * scale - 1.5, 0.7)
        link = f' data-message="{number}"' if number else ""
        shapes.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{row * MAP_ROW}" width="{wide:.1f}" '
            f'height="{MAP_ROW - 3}"{link}><title>{escape(title)}</title></rect>'
        )
        at, left = at + max(room, 1e-6), left - max(room, 1e-6)
    return shapes


# --- scales ------------------------------------------------------------------


def confidence_scale(confidence: float, low: float, high: float) -> Markup:
    """Draw a confidence on a scale from no match to a sure one, with the limits of a weak and a sure match."""
    value = min(confidence, high)
    weak = percent(low, high)
    label = f"confidence {percent(value, high)} of a sure match; weak up to {weak}"
    return _scale(value, high, [(low, f"weak {weak}"), (high, "sure 100%")], label=label)


def relevance_scale(relevance: Relevance, score: float | None) -> Markup:
    """Draw the score of what left against the lowest score of what stayed and the best of all."""
    if score is None:
        score = relevance.scores[0][1] if relevance.scores else 0.0
    top = max(relevance.top(score), 0.01)
    marks: list[tuple[float, str]] = []
    if relevance.least_kept is not None:
        marks.append((relevance.least_kept, f"stayed {percent(relevance.least_kept, top)}"))
    return _scale(score, top, marks, label=f"score {percent(score, top)} of the best")


def _scale(value: float, top: float, marks: Sequence[tuple[float, str]], *, label: str) -> Markup:
    body = '<rect class="track" y="4" width="100%" height="8" rx="3"/>'
    body += f'<rect class="fill" y="4" width="{100 * max(0.0, value) / top:.2f}%" height="8" rx="3"/>'
    for at, name in marks:
        x = 100 * max(0.0, at) / top
        anchor = "end" if x > SCALE_TURN else "start"
        body += f'<line class="tick" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="16"/>'
        body += f'<text x="{x:.2f}%" y="27" text-anchor="{anchor}">{name}</text>'
    return Markup(f'<svg class="scale" height="32" role="img" aria-label="{label}">{body}</svg>')  # noqa: S704 - numbers
