"""How many tokens: one rule for text, one for messages, and the provider's own figure where there is one.

The estimate is a third of a token for each Latin character and for each UTF-8 byte of everything else, so
one token for a Chinese, Japanese or Korean character. It needs no tables and no network. `tiktoken` and
`tokenizers` take its place where they are installed and asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import InputError, MissingExtraError
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult

__all__ = [
    "ContextCount",
    "TokenCounter",
    "context_tokens",
    "count_json",
    "count_message",
    "count_messages",
    "count_part",
    "count_text",
    "counter",
]

TokenCounter: TypeAlias = Callable[[str], int]
"""Anything that tells how many tokens a text has."""

MESSAGE_TOKENS: Final = 4
"""What a message costs beside its parts: role and delimiters."""
TOOL_TOKENS: Final = 8
"""What a tool call or result costs beside its text: ids and delimiters."""
IMAGE_TOKENS: Final = 1600
"""What an image costs at most after the providers have scaled it down."""
ATTACHMENT_CHARS: Final = 30
"""Characters of an inline document (base64) for one token."""

_OTHER_SCRIPTS: Final = re.compile("[^\u0000-\u024f\u1e00-\u1eff\u2000-\u206f]+")


def count_text(text: str) -> int:
    """Estimate the tokens of a text."""
    if text.isascii():
        return (len(text) + 2) // 3
    others = "".join(_OTHER_SCRIPTS.findall(text))
    weight = len(text) - len(others) + len(others.encode("utf-8", "surrogatepass"))
    return (weight + 2) // 3


def count_json(value: Any, *, count: TokenCounter = count_text) -> int:
    """Tokens of a JSON value as a provider would write it; long inline data counts as the attachment it is."""
    data = value.get("data") if isinstance(value, Mapping) else None
    if isinstance(data, str) and len(data) > IMAGE_TOKENS * ATTACHMENT_CHARS:
        return len(data) // ATTACHMENT_CHARS + count_json({**value, "data": ""}, count=count)
    if isinstance(value, Mapping) and isinstance(value.get("source"), Mapping):
        return count_json(value["source"], count=count) + count_json({**value, "source": ""}, count=count)
    return count(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def count_part(part: Part, *, count: TokenCounter = count_text) -> int:
    """Tokens of one part of a message."""
    match part:
        case Text() | Thinking():
            return count(part.text)
        case RedactedThinking():
            return count(part.data)
        case ToolCall():
            text = part.arguments if isinstance(part.arguments, str) else None
            arguments = count(text) if text is not None else count_json(part.arguments, count=count)
            return TOOL_TOKENS + count(part.name) + arguments
        case ToolResult():
            return TOOL_TOKENS + sum(count_part(block, count=count) for block in part.content)
        case Image():
            return IMAGE_TOKENS
        case Opaque():
            return count_json(part.data, count=count)


def count_message(message: Message, *, count: TokenCounter = count_text) -> int:
    """Tokens of a message with all of its parts."""
    return MESSAGE_TOKENS + sum(count_part(part, count=count) for part in message.parts)


def count_messages(messages: Iterable[Message], *, count: TokenCounter = count_text) -> int:
    """Tokens of a conversation."""
    return sum(count_message(message, count=count) for message in messages)


# --- calibration -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCount:
    """How full a window is, and how that is known.

    Attributes:
        tokens: The figure to go by.
        reported: What the provider last reported; 0 where it never did.
        trailing: The estimate of what came after that report.
        index: Which message carried the report, or None.
    """

    tokens: int
    reported: int
    trailing: int
    index: int | None


def context_tokens(
    messages: Sequence[Message], *, since: int | None = None, count: TokenCounter = count_text
) -> ContextCount:
    """Count a conversation from the provider's last report, and estimate only what follows it.

    `since` is the time of the last compaction in Unix milliseconds: what was reported before it speaks of
    a history that is gone. Broken replies and zero usage report nothing.
    """
    for index in range(len(messages) - 1, -1, -1):
        if (reported := _reported(messages[index], since)) > 0:
            trailing = count_messages(messages[index + 1 :], count=count)
            return ContextCount(tokens=reported + trailing, reported=reported, trailing=trailing, index=index)
    total = count_messages(messages, count=count)
    return ContextCount(tokens=total, reported=0, trailing=total, index=None)


def _reported(message: Message, since: int | None) -> int:
    if message.role != "assistant" or message.usage is None or message.stop in {"error", "aborted"}:
        return 0
    if since is not None and (message.timestamp is None or message.timestamp <= since):
        return 0
    return message.usage.context


# --- real tokenizers ---------------------------------------------------------


def counter(name: str = "estimate") -> TokenCounter:
    """The counter of this name: `estimate`, `tiktoken:<encoding>` or `tokenizers:<path to tokenizer.json>`."""
    kind, _, argument = name.partition(":")
    if kind == "estimate":
        return count_text
    if kind == "tiktoken":
        return _tiktoken(argument or "o200k_base")
    if kind == "tokenizers" and argument:
        return _tokenizers(Path(argument))
    raise InputError(f"token counter {name!r} is not one of estimate, tiktoken:ENCODING, tokenizers:FILE")


def _tiktoken(encoding: str) -> TokenCounter:
    try:
        import tiktoken  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("counting with tiktoken", extra="tiktoken") from None
    encode = tiktoken.get_encoding(encoding).encode
    return lambda text: len(encode(text.encode("utf-8", "replace").decode(), disallowed_special=()))


def _tokenizers(path: Path) -> TokenCounter:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("counting with tokenizers", extra="tokenizers") from None
    if not path.is_file():
        raise InputError(f"{path}: no such tokenizer file")
    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: len(tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False).ids)
