"""The commands on a transcript: show, tokens."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

from rich.console import Console
from rich.text import Text as Styled

from holdfast import text
from holdfast.cli.console import open_console, print_table
from holdfast.cli.opening import load_settings, missing_memory, owner_of, read_memory
from holdfast.cli.output import emit_json
from holdfast.errors import InputError
from holdfast.memory.sessions import make_title
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.moments import minute
from holdfast.store.base import Select
from holdfast.text import plural, printable, shorten_number
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_message, count_part, counter

_COLOURS: Final = {"system": "magenta", "user": "green", "assistant": "cyan", "tool": "yellow"}
_HEAD, _TAIL = 700, 300
_STYLES: Final[dict[type, str]] = {Thinking: "italic dim", ToolCall: "bold", ToolResult: "dim", Opaque: "dim"}


def show_transcript(
    *, file: Path, format_: str | None, full: bool, last: int | None, home: Path | None, as_json: bool
) -> None:
    """Print a transcript, or a session in memory if there is no such file."""
    from holdfast import transcripts  # noqa: PLC0415 - messages are also printed by commands without a transcript

    if not file.exists():
        _show_stored(str(file), full=full, last=last, home=home, as_json=as_json)
        return
    transcript = transcripts.read(file, format=format_)
    messages = transcript.messages[-last:] if last else transcript.messages
    if as_json:
        emit_json(
            {
                "path": str(transcript.path),
                "format": transcript.format,
                "session": transcript.session,
                "project": transcript.cwd or "",
                "agent": transcript.format,
                "title": transcript.title,
                "model": transcript.model,
                "cwd": transcript.cwd,
                "messages": len(transcript.messages),
                "problems": [{"line": problem.line, "what": problem.what} for problem in transcript.problems],
                "conversation": [message_to_json(message) for message in messages],
            }
        )
        return
    screen = open_console()
    heading = " · ".join(filter(None, (f"{transcript.format} session {transcript.session}", transcript.title)))
    screen.print(Styled(printable(heading, one_line=True), style="bold"))
    facts = [transcript.model, transcript.cwd, plural(len(transcript.messages), "message")]
    screen.print(Styled(" · ".join(printable(fact, one_line=True) for fact in facts if fact), style="dim"))
    for message in messages:
        screen.print()
        print_message(screen, message, full=full)
    for problem in transcript.problems:
        screen.print(Styled(f"line {problem.line}: {printable(problem.what)}", style="red"))


def _show_stored(name: str, *, full: bool, last: int | None, home: Path | None, as_json: bool) -> None:
    """Print a session in memory."""
    if missing_memory(home, settings=load_settings()) is not None:
        raise InputError(f"{name}: no such file")
    with read_memory(home) as memory:
        scopes = [scope for scope in memory.store.sessions() if scope.session == name]
        if not scopes:
            raise InputError(f"{name}: no such file, and no session in memory (`holdfast sessions` lists those)")
        if len(scopes) > 1:
            raise InputError(
                f"{len(scopes)} sessions are called {name}: holdfast get --session {quote(name)} --project NAME"
            )
        rows = memory.store.read_messages(Select(scope=scopes[0]))
        title = make_title(memory.store, scopes[0])
    messages = [row.message for row in rows][-last if last else 0 :]
    if as_json:
        conversation = [message_to_json(message) for message in messages]
        emit_json({**owner_of(scopes[0]), "title": title, "messages": len(rows), "conversation": conversation})
        return
    screen = open_console()
    heading = " · ".join(filter(None, (f"session {name}", title)))
    screen.print(Styled(printable(heading, one_line=True), style="bold"))
    for message in messages:
        screen.print()
        print_message(screen, message, full=full)


def print_message(screen: Console, message: Message, *, full: bool, label: str = "") -> None:
    """Print a message with its heading."""
    line = Styled(label, style="bold").append(message.role, style=f"bold {_COLOURS[message.role]}")
    when = minute(message.timestamp)
    line.append(f"  {when}  " if when else "  ", style="dim")
    mark = "  broken off" if message.is_broken else ""
    screen.print(line.append(f"{shorten_number(count_message(message))} tokens{mark}", style="dim"))
    for part in message.parts:
        content = printable(part_text(part))
        if not full:
            marker = f"\n  … {len(content) - _HEAD - _TAIL:,} characters …\n"
            content = text.clip(content, head=_HEAD, tail=_TAIL, marker=marker)
        style = "red" if isinstance(part, ToolResult) and part.is_error else _STYLES.get(type(part), "")
        screen.print(Styled(content, style=style), soft_wrap=True)


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message for `--json`."""
    return {
        "role": message.role,
        "id": message.id,
        "timestamp": message.timestamp,
        "tokens": count_message(message),
        "stop": message.stop,
        "parts": [{"kind": type(part).__name__, "text": part_text(part)} for part in message.parts],
    }


def part_text(part: Part) -> str:
    """Return the text of a part, with a placeholder if it has none."""
    match part:
        case Text() | Thinking():
            return part.text
        case RedactedThinking():
            return "[thinking that only the provider can read]"
        case ToolCall(arguments=given):
            return f"→ {part.name} {given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)}"
        case ToolResult():
            return "\n".join(part_text(block) for block in part.content) or "(no output)"
        case Image():
            return f"[{' '.join(filter(None, ['image', part.media_type]))}]"
        case Opaque():
            return f"[{part.kind}]"


@dataclass(frozen=True, slots=True)
class UsageCheck:
    """The provider's usage figures compared with the estimate.

    `requests` replies carried usage. For those after the first, the count (last report plus the estimate of
    what followed) was off by `error` on average, and too low in `underestimated` of the cases.
    """

    requests: int
    last: int
    error: float | None
    underestimated: float | None


def print_tokens(*, file: Path, format_: str | None, name: str | None, as_json: bool) -> None:
    """Print the tokens of a transcript by role and part."""
    from holdfast import transcripts  # noqa: PLC0415 - as above

    settings = load_settings()
    name = name or settings.tokens.full_name
    count = counter(name, model=settings.model.name)
    messages = transcripts.read(file, format=format_).messages
    table: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for message in messages:
        costs = [((message.role, type(part).__name__), count_part(part, count=count)) for part in message.parts]
        for key, cost in (*costs, (("", "framing"), MESSAGE_TOKENS)):
            table[key][0] += 1
            table[key][1] += cost
    total = sum(count_message(message, count=count) for message in messages)
    reported = check_usage(messages, count)
    if as_json:
        emit_json(
            {
                "file": str(file),
                "counter": name,
                "messages": len(messages),
                "tokens": total,
                "by_role": _sum_by(table, 0),
                "by_part": _sum_by(table, 1),
                "reported": asdict(reported),
            }
        )
        return
    ordered = sorted(table.items(), key=lambda item: -item[1][1])
    titles = ["role", "part", "number", "tokens", "share", ""]
    rows = [
        (*key, f"{number:,}", f"{cost:,}", f"{cost / max(1, total):.0%}", "█" * round(30 * cost / max(1, total)))
        for key, (number, cost) in ordered
    ]
    print_table(titles, rows, right=titles[2:5])
    screen = open_console()
    screen.print(f"{total:,} tokens by the counter {printable(name, one_line=True)} ({shorten_number(total)})")
    if reported.error is not None and reported.underestimated is not None:
        screen.print(
            f"The provider last reported {reported.last:,}. From one report to the next the count is off by"
            f" {reported.error:.1%}, and too low in {reported.underestimated:.0%} of {reported.requests - 1} requests."
        )


def _sum_by(table: Mapping[tuple[str, str], Sequence[int]], index: int) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for key, (_, total) in table.items():
        sums[key[index] or "framing"] += total
    return dict(sums)


def check_usage(messages: Sequence[Message], count: TokenCounter) -> UsageCheck:
    """Compare the running count with the usage that the provider reported at each reply."""
    errors: list[float] = []
    requests = last = following = 0
    for message in messages:
        following += count_message(message, count=count)
        real = message.usage.context if message.usage is not None else 0
        if message.role != "assistant" or real <= 0 or message.is_broken:
            continue
        if requests:
            errors.append((last + following - real) / real)
        requests, last, following = requests + 1, real, 0
    if not errors:
        return UsageCheck(requests, last, None, None)
    mean = sum(abs(error) for error in errors) / len(errors)
    return UsageCheck(requests, last, mean, sum(error < 0 for error in errors) / len(errors))
