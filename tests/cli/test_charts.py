"""Pictures of tokens over requests."""

from __future__ import annotations

import io

from rich.console import Console

from holdfast.cli.charts import LivePlot, Point, draw_chart, make_point
from holdfast.report import Change, ContextReport


def drawn(points: list[Point], *, ceiling: int = 1000, width: int = 40, height: int = 4, turns: int = 0) -> list[str]:
    """The lines of a chart."""
    return draw_chart(points, ceiling=ceiling, width=width, height=height, turns=turns).plain.splitlines()


class TestChart:
    def test_a_full_window_reaches_the_top_and_an_empty_one_does_not(self) -> None:
        """Rows stand for equal shares of the room there is."""
        lines = drawn([Point(tokens=1000), Point(tokens=10)])
        assert lines[0].startswith("   1k ┤████")
        assert "█" not in lines[0][11:]
        assert "▁" in lines[3]

    def test_cuts_and_recalls_are_marked(self) -> None:
        """A cut above its column, a recall below it."""
        lines = drawn([Point(tokens=900), Point(tokens=400, cut=True), Point(tokens=500, recalled=True)])
        assert sum(line.count("▼") for line in lines[:4]) == 1
        assert lines[5].count("◆") == 1
        assert "3 requests" in lines[-1]

    def test_many_requests_share_a_column(self) -> None:
        """No line is wider than was asked for, and the spread of a column is drawn paler."""
        lines = drawn([Point(tokens=100 + 800 * (turn % 2)) for turn in range(500)], width=50)
        assert max(map(len, lines)) <= 50
        assert "▒" in lines[1]

    def test_a_chart_of_what_is_not_done_yet_keeps_its_scale(self) -> None:
        """Half of the requests fill half of the picture."""
        lines = drawn([Point(tokens=1000)] * 50, width=107, turns=100)
        assert lines[0].count("█") == 50

    def test_a_request_above_the_ceiling_raises_the_top(self) -> None:
        """Nothing is drawn outside the picture."""
        assert drawn([Point(tokens=2000, cut=True)], ceiling=1000)[0].startswith("   2k ┤▼")

    def test_a_report_becomes_a_point(self) -> None:
        """With its tokens, and whether it had a cut or a recall."""
        edits = tuple(
            Change(kind=kind, ids=(1,), reason="", tokens_before=1, tokens_after=1) for kind in ("trimmed", "recalled")
        )
        report = ContextReport(
            session="s", turn=1, total_tokens=7, raw_max_tokens=9, percentage=1.0, categories=(), changes=edits
        )
        assert make_point(report) == Point(tokens=7, cut=True, recalled=True)


class TestLive:
    def test_a_terminal_sees_the_picture_grow(self) -> None:
        """The bar has a count and a rate."""
        out = io.StringIO()
        screen = Console(file=out, force_terminal=True, width=80, height=30)
        with LivePlot(3, words="replaying", screen=screen) as live:
            live.add(None, ceiling=100)
            live._shown = 0.0
            live.add(None, ceiling=100)
            live._shown = 0.0
            live.add(Point(tokens=50), ceiling=100)
        assert "requests/s" in out.getvalue()
        assert "3/3" in out.getvalue()
        assert "█" in out.getvalue()

    def test_nobody_is_shown_nothing(self) -> None:
        """Where there is no terminal nothing is written."""
        out = io.StringIO()
        with LivePlot(1, words="replaying", screen=Console(file=out)) as live:
            live._shown = 0.0
            live.add(Point(tokens=50), ceiling=100)
        assert out.getvalue() == ""
