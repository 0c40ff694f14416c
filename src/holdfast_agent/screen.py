"""The screen of a conversation: Markdown as it arrives, a line for each tool call, and the status line."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text as Styled

from holdfast.cli.console import SafeConsole
from holdfast.messages import ToolCall, ToolResult
from holdfast.text import printable
from holdfast.tokens import human_tokens
from holdfast_agent.agent import Agent
from holdfast_agent.toolbox import Action
from holdfast_agent.view import CommandResult

_THINKING: Final = "thinking"
_FRAMES: Final = 12.0
"""How often the spinner is drawn, per second."""
MAX_PERCENT: Final = 999
MIN_SHOWN_SECONDS: Final = 1.0
"""Work that takes longer is shown with its duration."""
MAX_ERROR_COLUMNS: Final = 300
"""Columns of a failed result, over as many lines as that takes. Other results are one line of the terminal."""
MAX_RESULT_CHARS: Final = 2_000
"""Characters of a result that are looked at: more than any line shows, but not megabytes."""
MAX_TAIL_CHARS: Final = 4_000
"""Characters of an unfinished block that are shown while it grows."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_THEME: Final = "ansi_dark"  # the terminal's own colours, on its own background


class Screen:
    """A view for terminals: answers as Markdown, block by block; one line for each tool; a spinner meanwhile.

    Everything is written above the growing block and the spinner, in one write each, so that nothing flickers.
    Notices before `open` wait for it: the screen still belongs to the prompt.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or SafeConsole(highlight=False, markup=False, emoji=False)
        self._clock = clock
        self._blocks = MarkdownBlocks()
        self._first = True
        self._live: Live | None = None
        self._spinner = Spinner("dots", style="cyan")
        self._working = _THINKING
        self._since = 0.0
        self._waiting: list[str] | None = []
        self._calls = 0
        self._results = 0

    def open(self) -> None:
        """Take over the screen."""
        waiting = self._waiting or []
        self._waiting = None
        for text in waiting:
            self.notice(text)

    def begin(self) -> None:
        """Start a turn: show the spinner until there is something to show."""
        self.open()
        self._calls = 0
        self._results = 0
        self.working("")
        self.resume()

    def resume(self) -> None:
        """Show the spinner again."""
        if self._live is None and self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._render_live, transient=True, refresh_per_second=_FRAMES
            )
            self._live.start()

    def text(self, piece: str) -> None:
        """Show a piece of the reply: finished blocks once, the last one while it grows."""
        for block in self._blocks.feed(piece):
            self._write(block)

    def end(self) -> None:
        """Show what is left, and release the screen."""
        rest = self._blocks.end()
        self._stop()
        if rest:
            self._write(rest)
        if not self._first:
            self.console.print()
        self._first = True

    def call(self, call: ToolCall) -> None:
        """Show the tool that runs and its arguments."""
        rest = self._blocks.end()
        if rest:
            self._write(rest)
        if self._results == self._calls:  # the calls of another reply
            self._calls = 0
            self._results = 0
        self._calls += 1
        line = Styled("▸ ", style="cyan").append(printable(call.name), style="bold cyan")
        given = {"arguments": call.arguments} if isinstance(call.arguments, str) else call.arguments
        arguments = " ".join(printable(f"{key}={value}") for key, value in given.items()).replace("\n", " ")
        self._line(line.append(f" {arguments}", style="dim"))
        self.working(f"{printable(call.name)[:40]} runs")

    def result(self, result: ToolResult) -> None:
        """Show the beginning of a result in one line, with white space joined; an error up to `MAX_ERROR_COLUMNS`."""
        name = f"{printable(result.name or '')}: " if self._calls > 1 else ""
        text = name + " ".join(printable(result.text[:MAX_RESULT_CHARS]).split())
        self._results += 1
        if result.is_error:
            shown = Styled(shorten(text, MAX_ERROR_COLUMNS), style="red")
            self.console.print(Padding(shown, (0, 0, 0, 2)))
        else:
            self._line(Styled(f"  {text}", style="dim"))
        self.working("")

    def notice(self, text: str) -> None:
        """Show a message of the agent itself."""
        if self._waiting is not None:
            self._waiting.append(text)
            return
        self.console.print(Styled(printable(text), style="yellow"))

    def working(self, what: str) -> None:
        """Show what takes time; an empty text means the answer itself."""
        if not self._working.startswith(what.partition(":")[0]) or not what:
            self._since = self._clock()
        self._working = what or _THINKING

    def show_action(self, action: Action) -> None:
        """Show an action to confirm, and release the screen for the answer."""
        self._stop()
        prompt = "" if action.kind == "write" else "$ "
        for line in printable(action.text).split("\n"):
            self.console.print(Styled(f"  {prompt}{line}", style="bold"))
            if prompt:
                prompt = "> "  # as a shell shows the further lines of a command
        if action.guarded:
            self.console.print(Styled(f"  This always needs your confirmation: {action.guarded}.", style="bold yellow"))

    def show(self, done: CommandResult) -> None:
        """Show the result of a command."""
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
        markdown = SafeMarkdown(block)
        self.console.print(markdown if self._first else Group(Styled(), markdown))
        self._first = False

    def _line(self, line: Styled) -> None:
        line.truncate(self.console.width, overflow="ellipsis")
        self.console.print(line, no_wrap=True)

    def _render_live(self) -> RenderableType:
        """Render what is below everything written: the growing block and the spinner."""
        passed = self._clock() - self._since
        seconds = f" · {passed:.0f} s" if passed >= MIN_SHOWN_SECONDS else ""
        words = Styled(f"{self._working}{seconds} · Ctrl-C interrupts", style="dim", no_wrap=True)
        words.truncate(max(1, self.console.width - 3), overflow="ellipsis")
        self._spinner.update(text=words)
        tail = self._blocks.tail
        if not tail.strip():
            return self._spinner
        gap = () if self._first else (Styled(),)
        return Group(*gap, SafeMarkdown(tail, last=max(1, self.console.height - 4)), self._spinner)


def shorten(text: str, max_columns: int) -> str:
    """Shorten a text to a number of columns."""
    if cell_len(text) <= max_columns:
        return text
    return set_cell_size(text, max_columns - 1).rstrip() + "…"


# --- the status line ---------------------------------------------------------------


def status_line(agent: Agent, *, width: int) -> str:
    """Return the state in one line: fullness, compactions, recalled tokens, cost, model; as much as fits."""
    entry = agent.conversation.entry
    used = entry.total_tokens
    recalled = 0
    if agent.window is not None:
        report = agent.window.report
        used = used or report.total_tokens
        recalled = sum(part.tokens for part in report.categories if part.name == "recall")
    percent = min(MAX_PERCENT, round(100 * used / max(1, agent.limit)))
    # The most important first: what does not fit is left out.
    parts = [f"ctx {percent} %", f"⟳ {entry.compaction_count}", f"recalled {human_tokens(recalled)}"]
    if entry.estimated_cost_usd:
        parts.append(f"${entry.estimated_cost_usd:.2f}")
    parts.append(printable(agent.model.name, one_line=True))
    name = agent.conversation.key.partition(":")[2]
    if name != "main:main":
        parts.append(printable(name.removeprefix("main:"), one_line=True))
    line = parts[0] if cell_len(parts[0]) <= width else ""
    for part in parts[1:]:
        longer = f"{line} · {part}" if line else part
        if cell_len(longer) <= width:
            line = longer
    return line


# --- Markdown ------------------------------------------------------------------------------


@dataclass(slots=True)
class MarkdownBlocks:
    """Splits a text that arrives in pieces at blank lines outside of code. `fence` is that of an open code block."""

    fence: str = ""
    _lines: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)

    def feed(self, piece: str) -> Iterator[str]:
        """Take a piece, and yield the blocks that are complete now."""
        first, *others = piece.split("\n")
        self._line.append(first)
        for start in others:
            line = "".join(self._line)
            self._lines.append(line)
            self._line = [start]
            if self._is_end(line):
                block = self._take()
                if block:
                    yield block

    def _is_end(self, line: str) -> bool:
        """Whether a block ends with a line; keep track of the fence of a code block."""
        fence = _FENCE.match(line)
        if fence is None:
            return not self.fence and not line.strip()
        if not self.fence:
            self.fence = fence[1]
            return False
        # A closing fence is at least as long as the opening one, and nothing follows it.
        is_closing = fence[1].startswith(self.fence) and not line.strip().strip(self.fence[0])
        if is_closing:
            self.fence = ""
        return is_closing

    def end(self) -> str:
        """Return the rest: nothing follows."""
        self._lines.append("".join(self._line))
        self._line = []
        self.fence = ""
        return self._take()

    @property
    def tail(self) -> str:
        """The end of the incomplete block, short enough to be drawn many times a second."""
        last = "".join(self._line)[-MAX_TAIL_CHARS:]
        lines = [last]
        room = MAX_TAIL_CHARS - len(last)
        for line in reversed(self._lines):
            room -= len(line) + 1
            if room < 0:
                lines.append(self.fence)  # so that the rest of a code block is drawn as code
                break
            lines.append(line)
        return "\n".join(reversed(lines))

    def _take(self) -> str:
        text = "\n".join(self._lines).strip("\n")
        self._lines.clear()
        return text if text.strip() else ""


class SafeMarkdown:
    """Markdown without control characters: links are written out, and HTML is shown as text.

    With `last`, only that many last lines are shown.
    """

    def __init__(self, text: str, *, last: int = 0) -> None:
        self._markdown = _Markdown("", code_theme=_THEME, hyperlinks=False)
        self._markdown.parsed = (
            MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(printable(text))
        )
        self._last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False)
        written = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
        shown = lines[written[0] : written[-1] + 1] if written else []
        for line in shown[-self._last :]:
            # An HTML entity has become a character only now.
            yield from (Segment(printable(part.text), part.style) for part in line)
            yield Segment.line()


class _Heading(Heading):
    """A heading that is always aligned to the left."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}
