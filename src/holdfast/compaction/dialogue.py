"""Extract text from messages: the words of a person, a rendering for a summariser, and identifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.context.edits import GAP
from holdfast.context.prune import excerpt
from holdfast.host_text import remove_host_text, replace_elements
from holdfast.messages import Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from holdfast.patterns import compile_once, load
from holdfast.quoting import escape_tags, tag_pattern
from holdfast.text import clip, head

_MAX_RESULT: Final = 2_000
"""The maximum characters of a tool result that a summariser reads. The archive has the rest."""
_MAX_ARGUMENT: Final = 600
"""The maximum characters of one argument of a tool call that a summariser reads."""
_MAX_ENDS: Final = 40_000
"""Characters at the beginning and at the end of a message that are searched for a person's words."""
# <system-reminder>...</system-reminder>: programs put tags of two words into a user's message.
_TAG: Final = re.compile(r"<(?P<name>[a-z][a-z0-9]{0,30}[-_][a-z0-9_-]{1,40})(?:\s[^>\n]{0,200})?>")
_BRACKETED: Final = re.compile(r"\[System note:[^\]]{0,2000}\]\s*")
_OWN_TAG: Final = tag_pattern("conversation", "previous-summary", "partial-summary", "summary")
_SPACE: Final = re.compile(r"\s+")


def own_words(message: Message) -> str:
    """Return what the author of a message wrote, without what programs added to it; it may be empty."""
    text = remove_host_text(clip(message.text, head=_MAX_ENDS, tail=_MAX_ENDS))
    own = replace_elements(text, _TAG, lambda _name, _content: "")
    return _BRACKETED.sub("", own).strip()


def one_line(text: str, limit: int) -> str:
    """Join a text into one line of at most `limit` characters."""
    flat = _SPACE.sub(" ", head(text, 4 * limit)).strip()
    if len(flat) <= limit:
        return flat
    return head(flat, limit - 1).rstrip() + "…"


def shorten(text: str, limit: int) -> str:
    """Keep the beginning, the end and the error lines of an output, in at most `limit` characters."""
    spans = excerpt(text, first=limit // 2, last=limit // 4, limit=limit)
    return GAP.join(text[start:stop] for start, stop in spans)


def escape(text: str) -> str:
    """Escape what would close or fake the tags that a text is quoted in."""
    return escape_tags(text, _OWN_TAG)


def call_text(call: ToolCall, *, limit: int = _MAX_ARGUMENT) -> str:
    """Render a call as `name(key="value", ...)`, each long argument shortened."""
    if not isinstance(call.arguments, Mapping):
        return f"{call.name}({one_line(call.arguments, limit)})"
    arguments: list[str] = []
    for key, value in call.arguments.items():
        text = json.dumps(value, ensure_ascii=False, default=str)
        short = clip(text, head=limit * 2 // 3, tail=limit // 3, marker=" … ")
        arguments.append(f"{key}={short}")
    return f"{call.name}({', '.join(arguments)})"


def render_messages(messages: Sequence[Message]) -> str:
    """Render messages for a summariser: speakers, words, tool calls and results. Thinking is left out."""
    entries: list[str] = []
    for message in messages:
        speaker = message.role.capitalize()
        for part in message.parts:
            entry = _render_part(part, speaker)
            if entry:
                entries.append(entry)
    return escape("\n\n".join(entries))


def _render_part(part: Part, speaker: str) -> str:
    match part:
        case Text() if part.text.strip():
            return f"[{speaker}]: {part.text}"
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
    """Shorten a result, name data that is not text, and count the characters that are left out."""
    lines = [result.text]
    for block in result.content:
        if isinstance(block, Image):
            lines.append("[image]")
        elif not isinstance(block, Text):
            lines.append("[data]")
    text = "\n".join(lines).strip() or "(no output)"
    kept = shorten(text, _MAX_RESULT)
    if kept == text:
        return text
    return f"{kept}\n[{len(text) - len(kept):,} characters left out]"


_MAX_SEARCHED: Final = 6_000
"""Characters at the beginning and at the end of a text that are searched for identifiers."""
_MAX_NAME: Final = 200
"""The maximum characters of an identifier."""


def find_identifiers(texts: Iterable[str], *, limit: int) -> tuple[str, ...]:
    """Find the first `limit` identifiers in texts, each once: paths, addresses, ids, hashes, ports, numbers.

    A summary must not reword them. Only the beginning and the end of a long text are searched.
    """
    identifier = compile_once("|".join(f"(?:{kind})" for kind in load("summaries")["identifiers"]))
    names: dict[str, None] = {}
    for text in texts:
        for match in identifier.finditer(clip(text, head=_MAX_SEARCHED, tail=_MAX_SEARCHED)):
            name = match.group().rstrip(".,;:!?)]}*'\"")
            if 1 < len(name) <= _MAX_NAME:
                names.setdefault(name)
        if len(names) >= limit:
            break
    return tuple(names)[:limit]


def list_identifiers(messages: Sequence[Message], *, limit: int) -> tuple[str, ...]:
    """List the identifiers of messages, newest first: those in their text, then those in their calls."""
    words: list[str] = []
    calls: list[str] = []
    for message in reversed(messages):
        words.append(own_words(message))
        calls += [str(call.arguments) for call in message.calls]
    return find_identifiers([*words, *calls], limit=limit)
