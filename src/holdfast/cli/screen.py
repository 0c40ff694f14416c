"""What a person sees of a conversation: answers as they come, a line for each tool, and how full the window is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text as Styled

from holdfast.agent.commands import Done
from holdfast.agent.loop import Agent
from holdfast.agent.tools import Action
from holdfast.cli.console import SafeConsole
from holdfast.cli.markdown import Blocks, Prose
from holdfast.cli.output import human_tokens, printable
from holdfast.messages import ToolCall, ToolResult

__all__ = ["Screen", "shortened", "status_line"]

_THINKING: Final = "thinking"
_FRAMES: Final = 12.0
_PATIENCE: Final = 1.0
"""Seconds that something may take without being told how long it has been."""
_LONGEST_ERROR: Final = 300
_LONGEST_RESULT: Final = 2_000


class Screen:
    """A view for people: answers as Markdown, block by block; tools in a line each; a wheel while there is nothing.

    Everything is written above the block that grows and the wheel, in one write each, so that nothing flickers.
    What is told before `open` waits for it: the screen still belongs to the prompt.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or SafeConsole(highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._blocks = Blocks()
        self._first = True
        self._live: Live | None = None
        self._wheel = Spinner("dots", style="cyan")
        self._working = _THINKING
        self._since = 0.0
        self._waiting: list[str] | None = []
        self._calls = self._answered = 0

    def open(self) -> None:
        """Take over the screen."""
        told, self._waiting = self._waiting or [], None
        for text in told:
            self.notice(text)

    # --- what is told --------------------------------------------------------------

    def begin(self) -> None:
        """Something was asked: turn the wheel until there is something to show."""
        self.open()
        self._calls = self._answered = 0
        self.working("")
        self.resume()

    def resume(self) -> None:
        """Turn the wheel again."""
        if self._live is None and self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._below, transient=True, refresh_per_second=_FRAMES
            )
            self._live.start()

    def text(self, piece: str) -> None:
        """Show a piece of the reply: whole blocks for good, the one at hand while it grows."""
        for block in self._blocks.feed(piece):
            self._write(block)

    def end(self) -> None:
        """Show what is left, and let go of the screen."""
        rest = self._blocks.end()
        self._stop()
        if rest:
            self._write(rest)
        if not self._first:
            self.console.print()
        self._first = True

    def call(self, call: ToolCall) -> None:
        """Name the tool that runs, and what it is asked."""
        if rest := self._blocks.end():
            self._write(rest)
        if self._answered == self._calls:
            self._calls = self._answered = 0
        self._calls += 1
        line = Styled("▸ ", style="cyan").append(printable(call.name), style="bold cyan")
        self._line(line.append(f" {_asked(call)}", style="dim"))
        self.working(f"{printable(call.name)[:40]} runs")

    def result(self, result: ToolResult) -> None:
        """Show the beginning of an answer."""
        name = f"{printable(result.name or '')}: " if self._calls > 1 else ""
        text = name + " ".join(printable(result.text[:_LONGEST_RESULT]).split())
        self._answered += 1
        if result.is_error:
            shown = Styled(shortened(text, _LONGEST_ERROR), style="red")
            self.console.print(Padding(shown, (0, 0, 0, 2)))
        else:
            self._line(Styled(f"  {text}", style="dim"))
        self.working("")

    def notice(self, text: str) -> None:
        """Say something about the conversation."""
        if self._waiting is not None:
            self._waiting.append(text)
            return
        self.console.print(Styled(printable(text), style="yellow"))

    def working(self, what: str) -> None:
        """Tell what takes its time; nothing stands for the answer itself."""
        if not self._working.startswith(what.partition(":")[0]) or not what:
            self._since = self._clock()
        self._working = what or _THINKING

    def ask(self, action: Action) -> None:
        """Show what may be done, and let go of the screen for the answer."""
        self._stop()
        for number, line in enumerate(printable(action.text).split("\n")):
            mark = "" if action.kind == "write" else "$ " if number == 0 else "> "
            self.console.print(Styled(f"  {mark}{line}", style="bold"))
        if action.guarded:
            self.console.print(Styled(f"  This is always asked for: {action.guarded}.", style="bold yellow"))

    def show(self, done: Done) -> None:
        """Show what came of a command."""
        self.end()
        if done.report is not None:
            from holdfast.cli.context import print_window  # noqa: PLC0415 - only for this

            print_window(self.console, done.report)
        if done.text:
            self.console.print(Styled(printable(done.text)))
        self.console.print()

    # --- how it is drawn -----------------------------------------------------------

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _write(self, block: str) -> None:
        prose = Prose(block)
        self.console.print(prose if self._first else Group(Styled(), prose))
        self._first = False

    def _line(self, line: Styled) -> None:
        line.truncate(self.console.width, overflow="ellipsis")
        self.console.print(line, no_wrap=True)

    def _below(self) -> RenderableType:
        """What stands under all that is written: the block that grows, and the wheel."""
        self._wheel.update(text=self._told())
        tail = self._blocks.tail
        if not tail.strip():
            return self._wheel
        gap = () if self._first else (Styled(),)
        return Group(*gap, Prose(tail, last=max(1, self.console.height - 4)), self._wheel)

    def _told(self) -> Styled:
        lasted = self._clock() - self._since
        seconds = f" · {lasted:.0f} s" if lasted >= _PATIENCE else ""
        words = Styled(f"{self._working}{seconds} · Ctrl-C breaks off", style="dim", no_wrap=True)
        words.truncate(max(1, self.console.width - 3), overflow="ellipsis")
        return words


def _asked(call: ToolCall) -> str:
    given: dict[str, Any] = {"arguments": call.arguments} if isinstance(call.arguments, str) else {**call.arguments}
    return " ".join(printable(f"{key}={value}") for key, value in given.items()).replace("\n", " ")


def shortened(text: str, most: int) -> str:
    """A text in so many columns at most."""
    return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"


# --- the line that tells all -----------------------------------------------------


def status_line(agent: Agent, *, width: int) -> str:
    """The conversation in one line: how full, how often compacted, what was recalled, what it cost; as fits."""
    kept: list[str] = []
    for part in _status(agent):
        if cell_len(" · ".join([*kept, part])) <= width:
            kept.append(part)
    return " · ".join(kept)


def _status(agent: Agent) -> Iterator[str]:
    """What there is to tell, the most important first."""
    entry, report = agent.opened.entry, agent.window.report if agent.window else None
    used = entry.total_tokens or (report.total_tokens if report else 0)
    recalled = sum(part.tokens for part in report.categories if part.name == "recall") if report else 0
    yield f"ctx {min(999, round(100 * used / max(1, agent.limit)))} %"
    yield f"⟳ {entry.compaction_count}"
    yield f"recalled {human_tokens(recalled)}"
    if entry.estimated_cost_usd:
        yield f"${entry.estimated_cost_usd:.2f}"
    yield printable(agent.model.name, one_line=True)
    name = agent.opened.key.partition(":")[2]
    if name != "main:main":
        yield printable(name.removeprefix("main:"), one_line=True)
