"""`holdfast show FILE`: print a transcript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast import text
from holdfast.cli.console import open_console
from holdfast.cli.output import as_json, emit_json, human_time, human_tokens, printable
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.tokens import count_message

if TYPE_CHECKING:
    from holdfast.transcripts import Transcript

__all__ = ["message_to_json", "print_message", "show"]

_COLOURS: Final = {"system": "magenta", "user": "green", "assistant": "cyan", "tool": "yellow"}
_HEAD, _TAIL = 700, 300


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "format_", metavar="NAME", help="The format of the file; default: recognise it.")
@click.option("--full", is_flag=True, help="Show every message whole.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N messages.")
@as_json
def show(*, file: Path, format_: str | None, full: bool, last: int | None, as_json: bool) -> None:
    """Show the transcript FILE of any known agent."""
    from holdfast import transcripts  # noqa: PLC0415 - messages are also printed by commands without a transcript

    transcript = transcripts.read(file, format=format_)
    messages = transcript.messages[-last:] if last else transcript.messages
    if as_json:
        emit_json(_describe(transcript) | {"conversation": [message_to_json(message) for message in messages]})
        return
    screen = open_console()
    title = f" · {transcript.title}" if transcript.title else ""
    heading = printable(f"{transcript.format} session {transcript.session}{title}", one_line=True)
    screen.print(Styled(heading, style="bold"))
    facts = [transcript.model, transcript.cwd, f"{len(transcript.messages)} messages"]
    screen.print(Styled(" · ".join(printable(fact, one_line=True) for fact in facts if fact), style="dim"))
    for message in messages:
        screen.print()
        print_message(screen, message, full=full)
    for problem in transcript.problems:
        screen.print(Styled(f"line {problem.line}: {printable(problem.what)}", style="red"))


def _describe(transcript: Transcript) -> dict[str, Any]:
    return {
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
    }


def print_message(screen: Console, message: Message, *, full: bool, label: str = "") -> None:
    """Print a message with its heading."""
    screen.print(Styled(label, style="bold") + _format_heading(message))
    for part in message.parts:
        screen.print(_format_part(part, full=full), soft_wrap=True)


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message for `--json`."""
    return {
        "role": message.role,
        "id": message.id,
        "timestamp": message.timestamp,
        "tokens": count_message(message),
        "parts": [{"kind": type(part).__name__, "text": _get_text(part)} for part in message.parts],
    }


def _format_heading(message: Message) -> Styled:
    line = Styled(message.role, style=f"bold {_COLOURS[message.role]}")
    when = human_time(message.timestamp)
    line.append(f"  {when}  " if when else "  ", style="dim")
    return line.append(f"{human_tokens(count_message(message))} tokens", style="dim")


def _format_part(part: Part, *, full: bool) -> Styled:
    content = printable(_get_text(part))
    if not full:
        marker = f"\n  … {len(content) - _HEAD - _TAIL:,} characters …\n"
        content = text.clip(content, head=_HEAD, tail=_TAIL, marker=marker)
    style = "red" if isinstance(part, ToolResult) and part.is_error else _STYLES.get(type(part), "")
    return Styled(content, style=style)


_STYLES: Final[dict[type, str]] = {Thinking: "italic dim", ToolCall: "bold", ToolResult: "dim", Opaque: "dim"}


def _get_text(part: Part) -> str:
    match part:
        case Text() | Thinking():
            return part.text
        case RedactedThinking():
            return "[thinking that only the provider can read]"
        case ToolCall(arguments=str(arguments)):
            return f"→ {part.name} {arguments}"
        case ToolCall():
            return f"→ {part.name} {json.dumps(part.arguments, ensure_ascii=False)}"
        case ToolResult():
            return "\n".join(_get_text(block) for block in part.content) or "(no output)"
        case Image(media_type=media_type):
            return f"[image {media_type}]" if media_type else "[image]"
        case Opaque():
            return f"[{part.kind}]"
