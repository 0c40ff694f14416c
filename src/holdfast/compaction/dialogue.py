"""Messages as plain words: what a summariser reads, and what a person said without what programs put around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.context.edits import GAP
from holdfast.context.excerpt import excerpt
from holdfast.messages import Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from holdfast.text import clip, head

__all__ = ["call_text", "one_line", "quoted", "shortened", "told", "words"]

_RESULT: Final = 2_000
"""Characters of a tool result that are worth a summariser's time; the archive holds the rest."""
_ARGUMENT: Final = 600
_LONGEST_WORDS: Final = 40_000
# <system-reminder>...</system-reminder>: tags of two words are what programs put into a user's message.
_TAG: Final = re.compile(r"<([a-z][a-z0-9]{0,30}[-_][a-z0-9_-]{1,40})(?:\s[^>\n]{0,200})?>")
# What programs say in the user's name, and what a person ran in the agent's shell: nothing of it is a request.
_NOTE: Final = re.compile(
    r"\A\s*(?:Ran `[^\n]{1,2000}`\n|\(no content\)\s*\Z|\[Request interrupted|Caveat: The messages below|"
    r"This is a reminder that your todo list|Your todo list has changed|Note: \S+ was modified, either by|"
    r"This \w+ is being continued from a previous conversation|# AGENTS\.md instructions for )"
)
_BRACKETED: Final = re.compile(r"\[System note:[^\]]{0,2000}\]\s*")
_OWN_TAG: Final = re.compile(r"<(?=\s*/?\s*(?:conversation|previous-summary|partial-summary|summary)\b)", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s+")


def words(message: Message) -> str:
    """What was said in a message, without what programs wrapped around it; nothing where that is all there is."""
    text = clip(message.text, head=_LONGEST_WORDS, tail=_LONGEST_WORDS)
    own = _BRACKETED.sub("", _unwrapped(text))
    return "" if _NOTE.match(own) else own.strip()


def _unwrapped(text: str) -> str:
    """A text without what stands between the tags of programs; a tag that is not closed is a word like any other."""
    kept: list[str] = []
    place = 0
    open_ended: set[str] = set()
    for tag in _TAG.finditer(text):
        if tag.start() < place or tag[1] in open_ended:
            continue
        closing = f"</{tag[1]}>"
        end = text.find(closing, tag.end())
        if end < 0:
            open_ended.add(tag[1])
            continue
        kept.append(text[place : tag.start()])
        place = end + len(closing)
    return "".join([*kept, text[place:]])


def one_line(text: str, limit: int) -> str:
    """A text as one line of at most `limit` characters."""
    flat = _SPACE.sub(" ", head(text, 4 * limit)).strip()
    return flat if len(flat) <= limit else head(flat, limit - 1).rstrip() + "…"


def shortened(text: str, limit: int) -> str:
    """A long output's beginning, end and lines of trouble, in at most `limit` characters."""
    spans = excerpt(text, first=limit // 2, last=limit // 4, limit=limit)
    return GAP.join(text[start:stop] for start, stop in spans)


def quoted(text: str) -> str:
    """A text that cannot close or fake the tags it is quoted in."""
    return _OWN_TAG.sub("&lt;", text)


def call_text(call: ToolCall, *, limit: int = _ARGUMENT) -> str:
    """A call as `name(key="value", ...)`, each long argument shortened."""
    if not isinstance(call.arguments, Mapping):
        return f"{call.name}({one_line(call.arguments, limit)})"
    given = ", ".join(f"{key}={_value(value, limit)}" for key, value in call.arguments.items())
    return f"{call.name}({given})"


def _value(value: Any, limit: int) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return clip(text, head=limit * 2 // 3, tail=limit // 3, marker=" … ")


def told(messages: Sequence[Message]) -> str:
    """Messages as a summariser reads them: who says what, which tools are called, and what they answer.

    Thoughts are left out: what came of them is said, and they are long.
    """
    return quoted("\n\n".join(line for message in messages for line in _lines(message)))


def _lines(message: Message) -> Iterator[str]:
    speaker = message.role.capitalize()
    for part in message.parts:
        line = _line(part, speaker)
        if line:
            yield line


def _line(part: Part, speaker: str) -> str:
    match part:
        case Text():
            return f"[{speaker}]: {part.text}" if part.text.strip() else ""
        case ToolCall():
            return f"[Tool call]: {call_text(part)}"
        case ToolResult():
            kind = "Tool failure" if part.is_error else "Tool result"
            return f"[{kind}]: {_output(part)}"
        case Image():
            return f"[{speaker}]: [image]"
        case Opaque():
            return f"[{speaker}]: [{part.kind}]"
        case _:
            return ""


def _output(result: ToolResult) -> str:
    """What of a result is worth reading; what is no text is named, what is left out is counted."""
    others = [
        f"[{'image' if isinstance(block, Image) else 'data'}]"
        for block in result.content
        if not isinstance(block, Text)
    ]
    text = "\n".join([result.text, *others]).strip() or "(no output)"
    left = shortened(text, _RESULT)
    return left if left == text else f"{left}\n[{len(text) - len(left):,} characters left out]"
