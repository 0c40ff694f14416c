"""The screen of a conversation: Markdown as it arrives, tool calls with some lines of their output, the status line."""

from __future__ import annotations

import re
import time
from collections import deque
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
from holdfast.memory.sessions import make_title_of
from holdfast.messages import ToolCall, ToolResult
from holdfast.text import plural, printable, shorten_number
from holdfast_agent.agent import Agent
from holdfast_agent.toolbox import Action
from holdfast_agent.view import MINUTE, CommandResult, format_age

_THINKING: Final = "thinking"
_FRAMES: Final = 12.0
"""How often the spinner is drawn, per second."""
MAX_PERCENT: Final = 999
MIN_SHOWN_SECONDS: Final = 1.0
"""Work that takes longer is shown with its duration."""
MAX_RESULT_LINES: Final = 4
"""Lines of a result that are shown at once: the first ones, of an error the last ones."""
MAX_ERROR_COLUMNS: Final = 300
"""Columns of a line of an error, over as many lines of the terminal as that takes. Other lines are cut at its width."""
MIN_TITLE_COLUMNS: Final = 12
"""A title has at least this much room; what does not fit next to it is left out."""
MAX_EXPANDABLE: Final = 50
"""Shortened results that can still be shown in full."""
MAX_TAIL_CHARS: Final = 4_000
"""Characters of an unfinished block that are shown while it grows."""
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
"""The colour of a line of a change, by its first character."""
_ENDING: Final = re.compile(r"(?:^|\n)\[((?:exit status \d+|stopped after |cancelled by the user)[^\n]*)\]$")
"""Matches the line that the tool `bash` adds to the output of a command that failed or was stopped."""
_MAIN_ARGUMENTS: Final = ("command", "path", "query", "text", "id")
"""Arguments that say what a call does. The first that a call has is shown alone, without its name."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_THEME: Final = "ansi_dark"  # the terminal's own colours, on its own background


@dataclass(frozen=True, slots=True)
class _Shortened:
    """A result of which only a part was shown."""

    call: ToolCall
    text: str


class Screen:
    """A view for terminals: answers as Markdown, block by block; tool calls with their output; a spinner meanwhile.

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
        self._waiting: list[Styled] | None = []
        # Calls without a result, in the order in which they run, and whether the first of them is on the screen.
        self._calls: list[ToolCall] = []
        self._is_call_shown = False
        self._shortened: deque[_Shortened] = deque(maxlen=MAX_EXPANDABLE)

    def open(self) -> None:
        """Take over the screen."""
        waiting = self._waiting or []
        self._waiting = None
        for line in waiting:
            self.console.print(line)

    def begin(self) -> None:
        """Start a turn: show the spinner until there is something to show."""
        self.open()
        self._calls.clear()
        self._is_call_shown = False
        self.working("")
        self.resume()

    def resume(self) -> None:
        """Show the spinner again."""
        self._since = self._clock()
        if self._live is None and self.console.is_terminal:
            # The renderable is evaluated whenever something is drawn. `get_renderable` of `Live` is called only for a
            # new frame: a block that was just written above would be drawn a second time below.
            self._live = Live(_Below(self), console=self.console, transient=True, refresh_per_second=_FRAMES)
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
        """Take a tool call. It is shown with its result, or when the user is asked about it."""
        rest = self._blocks.end()
        if rest:
            self._write(rest)
        self._calls.append(call)
        if len(self._calls) == 1:
            self._begin_call()

    def result(self, result: ToolResult) -> None:
        """Show a call and some lines of its result, with the number of lines, the exit status and the time."""
        call = self._calls[0] if self._calls else ToolCall(id=result.call_id, name=result.name or "", arguments={})
        self._show_call()
        self._print_result(call, result)
        self._is_call_shown = False
        self._first = False  # a block that follows is separated by a blank line
        del self._calls[:1]
        if self._calls:
            self._begin_call()
        else:
            self.working("")

    def notice(self, text: str) -> None:
        """Show a message of the agent itself."""
        self._print_or_wait(Styled(printable(text), style="yellow"))

    def hint(self, text: str) -> None:
        """Show something for information, in one line of the terminal."""
        self._print_or_wait(Styled(shorten(printable(text, one_line=True), self.console.width), style="dim"))

    def working(self, what: str) -> None:
        """Show what takes time; an empty text means the answer itself."""
        if not self._working.startswith(what.partition(":")[0]) or not what:
            self._since = self._clock()
        self._working = what or _THINKING

    def show_action(self, action: Action) -> None:
        """Show an action to confirm, and release the screen for the answer."""
        self._stop()
        self._print_action(action)
        if action.guarded:
            self.console.print(Styled(f"  This always needs your confirmation: {action.guarded}.", style="bold yellow"))

    def show_change(self, action: Action) -> None:
        """Show a change of a file that needs no confirmation; a command is shown with its result."""
        if action.kind == "write":
            self._print_action(action)

    def expand(self) -> None:
        """Show the last result that was shortened in full; called again, the one before it."""
        if not self._shortened:
            self.console.print(Styled("No output was shortened.", style="dim"))
            return
        shown = self._shortened.pop()
        self.console.print(_format_call(shown.call))
        for line in shown.text.split("\n"):
            self.console.print(Styled(f"  {line}"), soft_wrap=True)
        self.console.print()

    def show(self, done: CommandResult) -> None:
        """Show the result of a command."""
        self.end()
        if done.report is not None:
            from holdfast.cli.context import print_window  # noqa: PLC0415 - only for this

            print_window(self.console, done.report)
        if done.text:
            self.console.print(Styled(printable(done.text)))
        self.console.print()

    # --- calls and results -----------------------------------------------------------

    def _begin_call(self) -> None:
        call = self._calls[0]
        self._since = self._clock()
        self._working = shorten(printable(f"{call.name}: {describe_call(call)}", one_line=True), 60)

    def _show_call(self) -> None:
        if self._calls and not self._is_call_shown:
            self._line(_format_call(self._calls[0]))
        self._is_call_shown = True

    def _print_action(self, action: Action) -> None:
        """Print what would be done, all of it; this takes the place of the line of the call."""
        if self._calls and not self._is_call_shown:
            self._line(Styled("▸ ", style="cyan").append(printable(self._calls[0].name), style="bold cyan"))
        self._is_call_shown = True
        prompt = "" if action.kind == "write" else "$ "
        for number, line in enumerate(printable(action.text).expandtabs(4).split("\n")):
            style = "bold"
            if not prompt and number:
                style = _DIFF_STYLES.get(line[:1], "dim")
            self.console.print(Padding(Styled(f"{prompt}{line}", style=style), (0, 0, 0, 2), expand=False))
            if prompt:
                prompt = "> "  # as a shell shows the further lines of a command

    def _print_result(self, call: ToolCall, result: ToolResult) -> None:
        text = printable(result.text).expandtabs(4).rstrip()
        ending = _ENDING.search(text) if call.name == "bash" else None
        facts: list[str] = []
        if ending is not None:
            text = text[: ending.start()]
            facts.append(ending[1].replace("exit status", "exit"))
        elif call.name == "bash" and not result.is_error:
            facts.append("exit 0")
        lines = text.split("\n")
        shown = lines[-MAX_RESULT_LINES:] if result.is_error else lines[:MAX_RESULT_LINES]
        for line in shown:
            if result.is_error:
                red = Styled(shorten(line, MAX_ERROR_COLUMNS), style="red")
                self.console.print(Padding(red, (0, 0, 0, 2), expand=False))
            else:
                self._line(Styled(f"  {line}", style="dim"))
        passed = self._clock() - self._since
        if facts or passed >= MIN_SHOWN_SECONDS:
            facts.append(f"{passed:.1f} s")
        if len(lines) > len(shown):
            self._shortened.append(_Shortened(call, text))
            which = "the last" if result.is_error else "the first"
            facts.insert(0, f"{which} {len(shown)} of {plural(len(lines), 'line')}")
            facts.append("Ctrl-O shows all")
        if facts:
            self._line(Styled(f"  └ {' · '.join(facts)}", style="dim"))

    # --- how it is drawn -----------------------------------------------------------

    def _print_or_wait(self, line: Styled) -> None:
        if self._waiting is not None:
            self._waiting.append(line)
        else:
            self.console.print(line)

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

    def render_below(self) -> RenderableType:
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


@dataclass(frozen=True, slots=True)
class _Below:
    """What is below everything written, as it is at the moment at which it is drawn."""

    screen: Screen

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        yield self.screen.render_below()


def describe_call(call: ToolCall) -> str:
    """Say in one line what a call does: its main argument, or all of them."""
    if isinstance(call.arguments, str):
        return " ".join(call.arguments.split())
    for name in _MAIN_ARGUMENTS:
        if name in call.arguments:
            return " ".join(str(call.arguments[name]).split())
    return " ".join(" ".join(f"{name}={value}" for name, value in call.arguments.items()).split())


def _format_call(call: ToolCall) -> Styled:
    line = Styled("▸ ", style="cyan").append(printable(call.name), style="bold cyan")
    return line.append(f" {printable(describe_call(call))}", style="dim")


def shorten(text: str, max_columns: int) -> str:
    """Shorten a text to a number of columns."""
    if cell_len(text) <= max_columns:
        return text
    return set_cell_size(text, max_columns - 1).rstrip() + "…"


# --- the status line ---------------------------------------------------------------


def status_line(agent: Agent, *, width: int) -> str:
    """Return the state in one line: fullness, compactions, recalled tokens, cost, model; as much as fits."""
    entry = agent.conversation.entry
    report = agent.measure()
    percent = 0.0
    recalled = 0
    if report is not None:
        percent = min(MAX_PERCENT, report.percentage)
        recalled = sum(part.tokens for part in report.categories if part.name == "recall")
    # The most important first: what does not fit is left out.
    parts = [f"ctx {percent:g}%", f"⟳ {entry.compaction_count}", f"recalled {shorten_number(recalled)}"]
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


# --- the beginning -----------------------------------------------------------------


def describe_resumed(agent: Agent, *, width: int) -> list[str]:
    """Return two lines about the conversation that is continued, as wide as the terminal; none about a new one."""
    title = ""
    last = ""
    for message in agent.history:
        if message.role == "user" and not title:
            title = make_title_of(message.text)
        if message.role in {"user", "assistant"} and message.text.strip():
            speaker = "you" if message.role == "user" else "answer"
            last = f"  last {speaker}: {' '.join(message.text.split())}"
    if not agent.history:
        return []
    entry = agent.conversation.entry
    passed = agent.sessions.clock() - (entry.last_interaction_at or entry.updated_at)
    age = "just now" if passed < MINUTE else f"{format_age(passed)} ago"
    facts = f" · {age} · /new begins another"
    with_length = f" · {plural(len(agent.history), 'message')}{facts}"
    if cell_len(with_length) + 3 * MIN_TITLE_COLUMNS <= width:
        facts = with_length
    room = max(MIN_TITLE_COLUMNS, width - cell_len(f"Continues “”{facts}"))
    begin = f"Continues “{shorten(title, room)}”" if title else "Continues the last conversation"
    lines = [f"{begin}{facts}"]
    if last:
        lines.append(last)
    return [shorten(line, width) for line in lines]


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
