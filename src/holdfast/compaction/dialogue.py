"""The text of messages: for a summariser, what a person wrote without what programs put around it, identifiers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.context.edits import GAP
from holdfast.context.prune import excerpt
from holdfast.messages import Image, Message, Opaque, Part, Text, ToolCall, ToolResult
from holdfast.patterns import compile_once, load
from holdfast.quoting import escape_tags, tag_pattern
from holdfast.text import clip, head

_MAX_RESULT: Final = 2_000
"""Characters of a tool result that a summariser reads; the archive has the rest."""
_MAX_ARGUMENT: Final = 600
_MAX_ENDS: Final = 40_000
# <system-reminder>...</system-reminder>: programs put tags of two words into a user's message.
_TAG: Final = re.compile(r"<([a-z][a-z0-9]{0,30}[-_][a-z0-9_-]{1,40})(?:\s[^>\n]{0,200})?>")
# What programs write in the user's name, and what a person ran in the agent's shell: none of it is a request.
_NOTE: Final = re.compile(
    r"\A\s*(?:Ran `[^\n]{1,2000}`\n|\(no content\)\s*\Z|\[Request interrupted|Caveat: The messages below|"
    r"This is a reminder that your todo list|Your todo list has changed|Note: \S+ was modified, either by|"
    r"This \w+ is being continued from a previous conversation|# AGENTS\.md instructions for )"
)
_BRACKETED: Final = re.compile(r"\[System note:[^\]]{0,2000}\]\s*")
_OWN_TAG: Final = tag_pattern("conversation", "previous-summary", "partial-summary", "summary")
_SPACE: Final = re.compile(r"\s+")


def own_words(message: Message) -> str:
    """Extract what the author of a message wrote, without what programs wrapped around it; it may be nothing."""
    text = clip(message.text, head=_MAX_ENDS, tail=_MAX_ENDS)
    own, place = "", 0
    open_ended: set[str] = set()  # a tag that is not closed is text
    for tag in _TAG.finditer(text):
        if tag.start() < place or tag[1] in open_ended:
            continue
        if (end := text.find(f"</{tag[1]}>", tag.end())) < 0:
            open_ended.add(tag[1])
        else:
            own += text[place : tag.start()]
            place = end + len(tag[1]) + 3
    own = _BRACKETED.sub("", own + text[place:])
    return "" if _NOTE.match(own) else own.strip()


def one_line(text: str, limit: int) -> str:
    """Join a text into one line of at most `limit` characters."""
    flat = _SPACE.sub(" ", head(text, 4 * limit)).strip()
    return flat if len(flat) <= limit else head(flat, limit - 1).rstrip() + "…"


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
    values = {key: json.dumps(value, ensure_ascii=False, default=str) for key, value in call.arguments.items()}
    head, tail = limit * 2 // 3, limit // 3
    arguments = (f"{key}={clip(text, head=head, tail=tail, marker=' … ')}" for key, text in values.items())
    return f"{call.name}({', '.join(arguments)})"


def render_messages(messages: Sequence[Message]) -> str:
    """Render messages for a summariser: speakers, words, tool calls and results. Thinking is left out."""
    lines = (_line(part, message.role.capitalize()) for message in messages for part in message.parts)
    return escape("\n\n".join(line for line in lines if line))


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
    """Shorten a result; data other than text is named, what is left out is counted."""
    others = [
        f"[{'image' if isinstance(block, Image) else 'data'}]"
        for block in result.content
        if not isinstance(block, Text)
    ]
    text = "\n".join([result.text, *others]).strip() or "(no output)"
    left = shorten(text, _MAX_RESULT)
    return left if left == text else f"{left}\n[{len(text) - len(left):,} characters left out]"


_MAX_SEARCHED: Final = 6_000
_MAX_NAME: Final = 200


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
    """List the identifiers of messages, newest first: those in words, then those in calls."""
    newest = messages[::-1]
    calls = [str(call.arguments) for message in newest for call in message.calls]
    return find_identifiers([*map(own_words, newest), *calls], limit=limit)
