"""Draw how much evidence each system finds: one panel for each data set, one row for each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from benchmarks.peers.environments import SYSTEMS

__all__ = ["draw"]

TITLES: Final = {
    "locomo": "LoCoMo",
    "longmemeval": "LongMemEval S-like",
    "longmemeval-pool": "LongMemEval pool",
    "beam": "BEAM 100K",
    "realmem": "RealMem",
}
LEFT_OUT: Final = frozenset({"holdfast-full"})
"""The table has it; the picture shows what is installed."""
_ACROSS: Final = 2
_WIDTH: Final = 460
_ROW: Final = 21
_LEFT: Final = 138
_RIGHT: Final = 24
_TOP: Final = 46
_BOTTOM: Final = 30
_HEAD: Final = 62
_RADII: Final = (3.0, 4.5, 6.0)
"""The size of a dot, by budget."""
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.ground{fill:#ffffff}.head{font-weight:600;font-size:15px}"
    ".title{font-weight:600;font-size:13px}.small{font-size:11px;fill:#57606a}.ours{font-weight:600}"
    ".grid{stroke:#d8dee4}.range{stroke:#8c959f;stroke-width:2}.dot{fill:#8c959f}"
    ".range.ours{stroke:#0b6bcb;stroke-width:3}.dot.ours{fill:#0b6bcb}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.small{fill:#9da7b1}"
    ".grid{stroke:#30363d}.range{stroke:#7d8590}.dot{fill:#7d8590}"
    ".range.ours{stroke:#58a6ff}.dot.ours{fill:#58a6ff}}"
)


def draw(found: Mapping[str, Any]) -> str:
    """Draw the figures of a run, as `python -m benchmarks peers --json` prints them, as one SVG picture."""
    sets = {name: found["sets"][name] for name in TITLES if name in found["sets"]}
    names = _order(sets)
    height = _TOP + _ROW * len(names) + _BOTTOM
    lines = -(-len(sets) // _ACROSS)
    across = min(_ACROSS, len(sets))
    panels: list[str] = []
    for place, (name, figures) in enumerate(sets.items()):
        x = place % _ACROSS * _WIDTH
        y = _HEAD + place // _ACROSS * height
        plural = "" if figures["questions"] == 1 else "s"
        title = f"{TITLES[name]}, {figures['questions']:,} question{plural}"
        panels.append(f'<g transform="translate({x},{y})">{"".join(_panel(title, figures, names, height))}</g>')
    width = across * _WIDTH
    total = _HEAD + lines * height
    budgets = ", ".join(f"{budget:,}" for budget in found["budgets"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" viewBox="0 0 {width} {total}" '
        f'role="img"><title>Share of the evidence in a prompt, by memory system</title><style>{_STYLE}</style>'
        f'<rect class="ground" width="100%" height="100%"/>'
        '<text class="head" x="16" y="28">Share of the evidence for a question that is in the prompt</text>'
        f'<text class="small" x="16" y="48">in {budgets} tokens (small to large dots); '
        "same messages, same vectors, headers charged</text>"
        f"{''.join(panels)}</svg>\n"
    )


def _order(sets: Mapping[str, Any]) -> list[str]:
    """Return the systems, that with the largest mean share first, Holdfast before all."""
    means: dict[str, list[float]] = {}
    for figures in sets.values():
        for name, one in figures["systems"].items():
            means.setdefault(name, []).extend(one["found"].values())
    names = [name for name in means if name not in LEFT_OUT]
    return sorted(names, key=lambda name: (name != "holdfast", -sum(means[name]) / len(means[name])))


def _panel(title: str, figures: Mapping[str, Any], names: list[str], height: int) -> Iterator[str]:
    bottom = height - _BOTTOM
    yield f'<text class="title" x="{_LEFT}" y="18">{escape(title)}</text>'
    for tenth in range(0, 11, 2):
        x = _place(tenth / 10)
        yield f'<path class="grid" d="M{x} {_TOP - 16}V{bottom}"/>'
        yield f'<text class="small" x="{x}" y="{bottom + 15}" text-anchor="middle">{tenth * 10} %</text>'
    for row, name in enumerate(names):
        y = _TOP + _ROW * row
        kind = " ours" if name == "holdfast" else ""
        label = escape(SYSTEMS[name].title)
        yield f'<text class="name{kind}" x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{label}</text>'
        if name not in figures["systems"]:
            continue
        shares = list(figures["systems"][name]["found"].values())
        low = _place(min(shares))
        high = _place(max(shares))
        yield f'<path class="range{kind}" d="M{low} {y}H{high}"/>'
        for share, radius in zip(shares, _RADII, strict=True):
            yield f'<circle class="dot{kind}" cx="{_place(share)}" cy="{y}" r="{radius}"/>'


def _place(share: float) -> float:
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)
