"""Consoles that replace control characters, and that write no trailing blanks to a pipe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final, Self, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.segment import Segment
from rich.text import Text as Styled

from holdfast.text import printable

PIPE_WIDTH: Final = 400
_GAP: Final = 2
"""Blanks between the columns of a table."""
_MAX_NAME_COLUMNS: Final = 20
"""The width of names next to figures in a narrow terminal; longer ones are folded."""
_BLANKS: Final = re.compile(r" +(?=\n)")


class SafeConsole(Console):
    """A console that replaces control characters in all text. Its own codes, for styles and the cursor, pass.

    With `NO_COLOR` there are no codes for styles either, also not for bold and dim text, as in `echo_styled`.
    """

    def __init__(self, **options: Any) -> None:
        if os.environ.get("NO_COLOR"):
            options["color_system"] = None
        super().__init__(**options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise, so that the command ends as it does for plain output."""
        raise BrokenPipeError


def open_console() -> SafeConsole:
    """Open standard output for tables and styled text, without markup, so that no text is interpreted as markup.

    Output that is not shown on a screen is not wrapped.
    """
    if sys.stdout.isatty():
        return SafeConsole(markup=False, highlight=False, emoji=False)
    return SafeConsole(markup=False, highlight=False, emoji=False, width=PIPE_WIDTH, file=cast("IO[str]", _Piped()))


class _Piped:
    """Standard output without the blanks that pad a line to the width."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return sys.stdout.write(_BLANKS.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return False


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str | Styled]],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """Print a table: columns aligned to the `right`, and columns that `fold` a long text."""
    from rich.table import Table  # noqa: PLC0415 - most commands print none

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        justify: JustifyMethod = "right" if title in right else "left"
        table.add_column(title, justify=justify, overflow="fold", no_wrap=title not in fold)
    for row in rows:
        table.add_row(*row)
    open_console().print(table)


def print_figures(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of names and figures. Columns that do not fit are in another table below it: no figure is cut."""
    widths = [max(cell_len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    room = open_console().width - min(widths[0], _MAX_NAME_COLUMNS)
    tables: list[list[int]] = [[]]
    used = 0
    for column in range(1, len(titles)):
        used += widths[column] + _GAP
        if used > room and tables[-1]:
            tables.append([])
            used = widths[column] + _GAP
        tables[-1].append(column)
    for columns in tables:
        shown = [titles[column] for column in columns]
        cells = [(row[0], *(row[column] for column in columns)) for row in rows]
        print_table([titles[0], *shown], cells, right=shown, fold=titles[:1])


class Progress:
    """Shows how much of `total` bytes is done, the speed, the remaining time, and the current step.

    Without a total, the bar shows only that something is done.
    """

    def __init__(self, total: int | None = None) -> None:
        from rich import progress  # noqa: PLC0415 - most commands draw none

        self.screen = SafeConsole(stderr=True)
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=20),  # leaves half of a line of 80 columns to the step
            progress.TaskProgressColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}", markup=False),
            console=self.screen,
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, size: int, description: str) -> None:
        """Add `size` bytes to what is done."""
        self._bar.update(self._task, advance=size, description=description)

    def set_total(self, size: int) -> None:
        """Set the total, if it was not known before."""
        self._bar.update(self._task, total=size)

    def describe(self, description: str) -> None:
        """Describe the current step. It is shown at once: it may be over before the next refresh."""
        self._bar.update(self._task, description=description, refresh=True)
