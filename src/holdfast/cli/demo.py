"""`holdfast demo`: a long session in a small window, and five questions about what has left it. No model, no key."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.live import WIDEST, LivePlot
from holdfast.cli.output import as_json, at_words, console, echo, emit_json, human_tokens, printable
from holdfast.cli.plot import chart
from holdfast.cli.replay import Replayed, ceiling, judge
from holdfast.cli.story import QUESTIONS, SYSTEM, Asked, write
from holdfast.cli.trial import play, requests, settings_for
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.messages import Message, Text
from holdfast.tokens import count_message
from holdfast.window import Window

__all__ = ["demo"]

_LIMIT: Final = 32_000
_RESERVE: Final = 4_000
_HEIGHT: Final = 7
_AROUND: Final = 90
"""Characters shown on both sides of an answer."""
_HEAD: Final = re.compile(r"^\[[^\]\n]{1,60}\] ", re.MULTILINE)
"""What stands before a passage of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What became of a question.

    Attributes:
        in_window: The answer stands in the window without the block: it had not left.
        found: It stands in the block.
        passage: The words around it.
    """

    question: str
    answer: str
    in_window: bool
    found: bool
    passage: str
    block_tokens: int
    milliseconds: float


@click.command()
@click.option("--limit", type=click.IntRange(min=16_000), default=_LIMIT, show_default=True, help="Tokens in a window.")
@click.option("--save", type=click.Path(path_type=Path), help="Only write the session to this new file.")
@as_json
@click.pass_context
def demo(context: click.Context, *, limit: int, save: Path | None, as_json: bool) -> None:
    """Replay six weeks of work in a small window, then ask for what has left it. Needs no model and no key."""
    if save is not None:
        _save(save, as_json=as_json)
        return
    start = time.perf_counter()
    messages = _session()
    screen = Console(quiet=True) if as_json else console()
    done = Replayed(files=1)
    _introduce(screen, messages, limit)
    settings = settings_for(reserve=_RESERVE)
    with tempfile.TemporaryDirectory() as home, Engine.open(home, settings=settings, background=False) as engine:
        _replay(engine, messages, limit=limit, done=done, screen=screen)
        answers = list(_ask_all(engine, messages, limit=limit, done=done, screen=screen))
    done.finish()
    seconds = time.perf_counter() - start
    if as_json:
        emit_json(_as_data(done, answers, seconds))
    else:
        _conclude(screen, done, answers, seconds)
    if done.invalid or done.over_limit or not all(answer.found for answer in answers):
        context.exit(1)


def _save(file: Path, *, as_json: bool) -> None:
    if file.exists():
        raise InputError(f"{file}: it exists; name a new file")
    write(file)
    if as_json:
        emit_json({"file": str(file)})
    else:
        echo(f"{file}: a session to try the other commands with")


def _session() -> list[Message]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long-session.jsonl"
        write(file)
        return [Message(role="system", parts=(Text(text=SYSTEM),)), *transcripts.read(file).messages]


def _introduce(screen: Console, messages: Sequence[Message], limit: int) -> None:
    whole = sum(count_message(message) for message in messages)
    screen.print(Styled("Context compacts. Memory holds fast.", style="bold"))
    screen.print(
        f"A payments migration: {len(messages):,} messages, {human_tokens(whole)} tokens, in a window of"
        f" {human_tokens(limit)} ({human_tokens(_RESERVE)} of it kept for the reply).\n"
    )


def _replay(engine: Engine, messages: Sequence[Message], *, limit: int, done: Replayed, screen: Console) -> None:
    top = ceiling(engine.settings, limit)
    total = sum(1 for _ in requests(messages))
    with LivePlot(total, words="replaying", height=_HEIGHT, screen=screen) as live:
        for _, window in play(engine, messages, limit=limit):
            live.add(judge(window, done), ceiling=top)
    screen.print(chart(done.points, ceiling=top, width=min(WIDEST, screen.width - 2), height=_HEIGHT))
    screen.print()


# --- the questions -----------------------------------------------------------


def _ask_all(
    engine: Engine, messages: Sequence[Message], *, limit: int, done: Replayed, screen: Console
) -> Iterator[_Answer]:
    """Go on with the session: one question after the other, and what a model would say to each."""
    talk = list(messages)
    for asked in QUESTIONS:
        talk.append(Message(role="user", parts=(Text(text=asked.question),)))
        window = engine.session("replay").assemble(talk, limit=limit, provider="anthropic")
        judge(window, done)
        answer = _answer(window, asked)
        _show(screen, answer)
        yield answer
        reply = asked.answer if answer.found else "I do not know."
        talk.append(Message(role="assistant", parts=(Text(text=reply),)))


def _answer(window: Window, asked: Asked) -> _Answer:
    words = "\n".join(_words(item.message) for item in window.items)
    block = "\n".join(item.block.text for item in window.items[-1:] if item.block)
    return _Answer(
        question=asked.question,
        answer=asked.answer,
        in_window=asked.answer in words,
        found=asked.answer in block,
        passage=_passage(block, asked.answer),
        block_tokens=sum(item.block.tokens for item in window.items[-1:] if item.block),
        milliseconds=round(sum(window.report.milliseconds.values()), 1),
    )


def _words(message: Message) -> str:
    return "\n".join(str(getattr(part, "text", "")) for part in message.parts)


def _passage(block: str, answer: str) -> str:
    """The line of the block that the answer stands in, as much of it as fits, under its moment and speaker."""
    place = block.find(answer)
    if place < 0:
        return ""
    heads = [match for match in _HEAD.finditer(block, 0, place) if match.end() <= place]
    start = max(block.rfind("\n", 0, place) + 1, heads[-1].end() if heads else 0)
    end = block.find("\n", place)
    stop = len(block) if end < 0 else end
    first, last = max(start, place - _AROUND), min(stop, place + len(answer) + _AROUND)
    first, last = at_words(block, first, last)
    words = block[first:last].strip()
    left, right = "… " if first > start else "", " …" if last < stop else ""
    return f"{heads[-1].group() if heads else ''}{left}{words}{right}"


def _show(screen: Console, answer: _Answer) -> None:
    title = Styled("? ", style="bold cyan").append(answer.question, style="bold")
    if not answer.found:
        screen.print(title)
        screen.print(Padding(Styled(f"not in the block: {answer.answer}", style="bold red"), (0, 0, 1, 2)))
        return
    where = "still in the window too" if answer.in_window else "had left"
    screen.print(title.append(f"  {where}, back in {answer.milliseconds:.0f} ms", style="dim"))
    passage = Styled(printable(answer.passage))
    passage.highlight_regex(r"^\[[^\]]*\]", style="dim")
    passage.highlight_words([answer.answer], style="bold black on green")
    screen.print(Padding(passage, (0, 0, 1, 2)))


def _conclude(screen: Console, done: Replayed, answers: Sequence[_Answer], seconds: float) -> None:
    found = sum(answer.found for answer in answers)
    good = not done.invalid and not done.over_limit and found == len(answers)
    screen.print(Styled("─" * min(WIDEST, screen.width), style="dim"))
    line = Styled(f"{found} of {len(answers)} answered", style="bold green" if good else "bold red")
    line.append(
        f" · {done.turns:,} windows, {done.invalid} invalid, {done.over_limit} over · {done.cuts} cuts ·"
        f" {done.prefix_kept:.0%} prefix kept · {done.ms_p50:.0f} ms each · {seconds:.1f} s",
        style="default",
    )
    screen.print(line)


def _as_data(done: Replayed, answers: Sequence[_Answer], seconds: float) -> dict[str, Any]:
    named = ("turns", "invalid", "over_limit", "cuts", "recalls", "recalled_tokens", "prefix_kept", "ms_p50", "ms_p95")
    return {
        **{name: getattr(done, name) for name in named},
        "seconds": round(seconds, 2),
        "answers": [asdict(answer) for answer in answers],
    }
