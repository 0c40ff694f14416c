"""`holdfast demo`: replay a long session in a small window, and ask about what has left it; no model, no key."""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.charts import MAX_WIDTH, LivePlot, draw_chart
from holdfast.cli.console import open_console
from holdfast.cli.output import align_to_words, emit_json, print_result
from holdfast.cli.replay import ReplayStats, find_requests, make_settings, record_window, replay_requests
from holdfast.context.budget import budget
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.messages import Message, Text
from holdfast.text import plural, printable, shorten_number
from holdfast.tokens import count_message


@dataclass(frozen=True, slots=True)
class Question:
    """A question to ask at the end of the session, and the text that answers it."""

    question: str
    answer: str


QUESTIONS: Final = (
    Question("How long do idempotency keys of refunds live, by which setting?", "REFUND_KEY_TTL_HOURS = 36"),
    Question("Who owns the settlement file format at Nordbank?", "Marta Lindqvist"),
    Question("At how many seconds of ledger lag does the alert fire?", "45 seconds"),
    Question("How many payouts were stuck in the incident of March 19?", "1,847 payouts"),
    Question("对账任务最后定在每天几点跑?", "三点四十分"),
)
"""One of them in Chinese, one about a correction, one about a number."""
_SYSTEM: Final = (
    "You are a careful engineer who works on the payments service tidepay. Look before you change anything,"
    " run the tests after every change, and say what you found in plain words."
)
_FIGURES: Final = (
    *("turns", "invalid", "over_limit", "cuts", "recalls", "recalled_tokens"),
    *("prefix_kept", "ms_p50", "ms_p95"),
)
"""The figures of a replay that `--json` prints."""
_RESERVE: Final = 4_000
_HEIGHT: Final = 7
_CONTEXT_CHARS: Final = 90
"""Characters shown on each side of an answer."""
_HEAD: Final = re.compile(r"^\[[^\]\n]{1,60}\] ", re.MULTILINE)
"""Matches the time and speaker before a passage of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The result of a question: whether the answer is in the block, and whether it had not left the window at all."""

    question: str
    answer: str
    in_window: bool
    found: bool
    passage: str
    block_tokens: int
    milliseconds: float

    def print(self, screen: Console) -> None:
        title = Styled("? ", style="bold cyan").append(self.question, style="bold")
        if not self.found:
            screen.print(title)
            screen.print(Padding(Styled(f"not in the block: {self.answer}", style="bold red"), (0, 0, 1, 2)))
            return
        where = "still in the window" if self.in_window else "not in the window"
        screen.print(title.append(f"  {where}, recalled in {self.milliseconds:.0f} ms", style="dim"))
        passage = Styled(printable(self.passage))
        passage.highlight_regex(r"^\[[^\]]*\]", style="dim")
        passage.highlight_words([self.answer], style="bold black on green")
        screen.print(Padding(passage, (0, 0, 1, 2)))


def run_demo(*, limit: int, save: Path | None, as_json: bool, screen: Console | None = None) -> None:
    """Run the demo, or save its session. It is printed on the terminal unless another screen is given."""
    if save is not None:
        text = "\n".join([*session_lines(), ""])
        if not save.exists():
            save.write_text(text, "utf-8")
        elif not save.is_file() or save.read_bytes() != text.encode():
            raise InputError(f"{save}: exists already: name a new file")
        print_result({"file": str(save)}, f"{save}: a session to try the other commands with", as_json=as_json)
        return
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long-session.jsonl"
        file.write_text("\n".join(session_lines()), "utf-8")
        messages = [Message(role="system", parts=(Text(text=_SYSTEM),)), *transcripts.read(file).messages]
    if screen is None:
        screen = Console(quiet=True) if as_json else open_console()
    stats = ReplayStats(files=1)
    with tempfile.TemporaryDirectory() as home, Engine.open(home, settings=make_settings(), background=False) as engine:
        run = _Run(engine, messages, limit, stats, screen)
        run.replay()
        answers = list(run.ask_questions())
    stats.summarise()
    seconds = time.perf_counter() - start
    if as_json:
        figures = {name: getattr(stats, name) for name in _FIGURES}
        emit_json({**figures, "seconds": round(seconds, 2), "answers": list(map(asdict, answers))})
    else:
        run.conclude(answers, seconds)
    if stats.invalid or stats.over_limit or not all(answer.found for answer in answers):
        sys.exit(1)


def session_lines() -> list[str]:
    """Return the lines of the session, a file that pi and OpenClaw can read: six weeks of a payments migration."""
    return files("holdfast.cli").joinpath("demo.jsonl").read_text("utf-8").rstrip("\n").split("\n")


def _excerpt(block: str, answer: str) -> str:
    """Return the line of the block with the answer, shortened, after its time and speaker."""
    place = block.find(answer)
    if place < 0:
        return ""
    heads = [match for match in _HEAD.finditer(block, 0, place) if match.end() <= place]
    start = max(block.rfind("\n", 0, place) + 1, heads[-1].end() if heads else 0)
    end = block.find("\n", place)
    stop = len(block) if end < 0 else end
    first, last = max(start, place - _CONTEXT_CHARS), min(stop, place + len(answer) + _CONTEXT_CHARS)
    first, last = align_to_words(block, first, last)
    excerpt = block[first:last].strip()
    left, right = "… " if first > start else "", " …" if last < stop else ""
    return f"{heads[-1].group() if heads else ''}{left}{excerpt}{right}"


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the demo."""

    engine: Engine
    messages: Sequence[Message]
    limit: int
    stats: ReplayStats
    screen: Console

    @property
    def reserve(self) -> int:
        """The tokens that are kept for the reply."""
        return min(_RESERVE, self.limit // 4)

    def replay(self) -> None:
        messages, limit, screen = self.messages, self.limit, self.screen
        whole = sum(count_message(message) for message in messages)
        screen.print(Styled("Context compacts. Memory holds fast.", style="bold"))
        screen.print(
            f"A payments migration: {len(messages):,} messages, {shorten_number(whole)} tokens, in a window of"
            f" {shorten_number(limit)} ({shorten_number(self.reserve)} of it kept for the reply).\n"
        )
        top = budget(self.engine.settings, window=limit, reserve=self.reserve).prompt
        total = sum(1 for _ in find_requests(messages))
        with LivePlot(total, words="replaying", height=_HEIGHT, screen=screen) as live:
            for _, window in replay_requests(self.engine, messages, limit=limit, reserve=self.reserve):
                live.add(record_window(window, self.stats), ceiling=top)
        screen.print(draw_chart(self.stats.points, ceiling=top, width=min(MAX_WIDTH, screen.width - 2), height=_HEIGHT))
        screen.print()

    def ask_questions(self) -> Iterator[_Answer]:
        """Continue the session with one question after the other, and the reply that a model would give."""
        history = list(self.messages)
        for question in QUESTIONS:
            history.append(Message(role="user", parts=(Text(text=question.question),)))
            window = self.engine.session("replay").assemble(
                history, limit=self.limit, reserve=self.reserve, provider="anthropic"
            )
            record_window(window, self.stats)
            texts = (str(getattr(part, "text", "")) for item in window.items for part in item.message.parts)
            block = "\n".join(item.block.text for item in window.items[-1:] if item.block)
            answer = _Answer(
                question=question.question,
                answer=question.answer,
                in_window=question.answer in "\n".join(texts),
                found=question.answer in block,
                passage=_excerpt(block, question.answer),
                block_tokens=sum(item.block.tokens for item in window.items[-1:] if item.block),
                milliseconds=round(sum(window.report.milliseconds.values()), 1),
            )
            answer.print(self.screen)
            yield answer
            reply = question.answer if answer.found else "I do not know."
            history.append(Message(role="assistant", parts=(Text(text=reply),)))

    def conclude(self, answers: Sequence[_Answer], seconds: float) -> None:
        stats, screen = self.stats, self.screen
        found = sum(answer.found for answer in answers)
        good = not stats.invalid and not stats.over_limit and found == len(answers)
        screen.print(Styled("─" * min(MAX_WIDTH, screen.width), style="dim"))
        line = Styled(f"{found} of {len(answers)} answered", style="bold green" if good else "bold red")
        line.append(
            f" · {stats.turns:,} windows, {stats.invalid} invalid, {stats.over_limit} over ·"
            f" prefix {stats.prefix_kept:.0%} between {plural(stats.cuts, 'cut')} ·"
            f" {stats.ms_p50:.0f} ms each · {seconds:.1f} s",
            style="default",
        )
        screen.print(line)
