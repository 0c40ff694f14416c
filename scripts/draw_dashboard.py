"""Draw docs/dashboard.svg: four panels of the dashboard, from the metrics of the demo's requests.

The session of `holdfast demo` is assembled request by request in a window of 32,000 tokens, and the metrics are read
after each as Prometheus would read them.
"""

from __future__ import annotations

import re
import tempfile
from itertools import pairwise
from pathlib import Path

from click.testing import CliRunner

from holdfast import Engine, Settings
from holdfast.cli import holdfast
from holdfast.server.metrics import Metrics
from holdfast.settings import Embedding, Recall
from holdfast.telemetry import add_observer
from holdfast.transcripts.session import Session as Transcript

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "dashboard.svg"
LIMIT = 32_000
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=Recall(deadline_ms=600_000))
COLOURS = ("#1f9e89", "#d95f02", "#7570b3", "#e7298a", "#66a61e")
WIDTH, HEIGHT, GAP, TOP = 440, 220, 20, 30
SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$", re.MULTILINE)

Series = dict[str, list[float]]


def main() -> None:
    """Replay the demo, and write the picture."""
    readings = replay()
    sent = differences(readings, "holdfast_window_tokens_total")
    whole = differences(readings, "holdfast_whole_tokens_total")
    kinds = sorted({name for reading in readings for name in reading if name.startswith("holdfast_edits_total")})
    edits = {re.findall('"(.*)"', kind)[0]: [reading.get(kind, 0) for reading in readings] for kind in kinds}
    panels: list[tuple[str, Series]] = [
        ("Tokens of each request", {"whole": whole, "sent": sent}),
        ("Edits of windows, in all", edits),
        (
            "Recalled, in all",
            {
                "passages": [reading.get("holdfast_recalled_passages_total", 0) for reading in readings],
                "facts": [reading.get("holdfast_recalled_facts_total", 0) for reading in readings],
            },
        ),
        ("Tokens in all, millions", {"whole": add_up(whole), "sent": add_up(sent)}),
    ]
    drawn = [draw(title, series, place=number) for number, (title, series) in enumerate(panels)]
    size = f"{2 * WIDTH + 3 * GAP} {2 * HEIGHT + 3 * GAP}"
    style = "text{font:12px sans-serif;fill:#444}.t{font-weight:bold;fill:#222}"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{style}</style>', *drawn, "</svg>"]
    PICTURE.write_text("\n".join(lines) + "\n", "utf-8")


def replay() -> list[dict[str, float]]:
    """Assemble each request of the demo, and return the metrics after each."""
    metrics = Metrics()
    readings: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, add_observer(metrics):
        file = Path(folder, "demo.jsonl")
        CliRunner().invoke(holdfast, ["demo", "--save", str(file)], catch_exceptions=False)
        messages = Transcript.open(file).context().messages
        with Engine.open(Path(folder, "memory"), settings=SETTINGS, background=False) as engine:
            session = engine.session("demo")
            for number, message in enumerate(messages, start=1):
                if message.role == "user":
                    session.assemble(messages[:number], limit=LIMIT)
                    readings.append(
                        {name + labels: float(value) for name, labels, value in SAMPLE.findall(metrics.render())}
                    )
    return readings


def differences(readings: list[dict[str, float]], name: str) -> list[float]:
    """Return by how much a counter grew with each request."""
    counts = [0.0, *(reading.get(name, 0.0) for reading in readings)]
    return [after - before for before, after in pairwise(counts)]


def add_up(values: list[float]) -> list[float]:
    """Return the sums so far, in millions."""
    return [sum(values[: number + 1]) / 1e6 for number in range(len(values))]


def draw(title: str, series: Series, *, place: int) -> str:
    """Draw a panel with a line for each series."""
    left = GAP + (WIDTH + GAP) * (place % 2)
    top = GAP + (HEIGHT + GAP) * (place // 2)
    highest = max(max(values) for values in series.values()) or 1
    shown = f"{highest:,.0f}" if highest > 100 else f"{highest:.3g}"  # noqa: PLR2004 - enough digits
    bottom = HEIGHT - 40
    parts = [
        f'<g transform="translate({left} {top})">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#fff" stroke="#ccc"/>',
        f'<text class="t" x="12" y="20">{title}</text>',
        f'<text x="12" y="{TOP + 12}">{shown}</text>',
        f'<line x1="12" x2="{WIDTH - 12}" y1="{bottom}" y2="{bottom}" stroke="#999"/>',
    ]
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number]
        step = (WIDTH - 24) / max(1, len(values) - 1)
        points = " ".join(
            f"{12 + step * place:.1f},{bottom - (bottom - TOP - 16) * value / highest:.1f}"
            for place, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{12 + 104 * number}" y="{HEIGHT - 25}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{26 + 104 * number}" y="{HEIGHT - 16}">{name}</text>')
    return "".join([*parts, "</g>"])


if __name__ == "__main__":
    main()
