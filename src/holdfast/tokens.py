"""How many tokens: one rule for text, one for messages, and the provider's own figure where there is one.

The estimate is a third of a token for each Latin character and for each UTF-8 byte of everything else, so
one token for a Chinese, Japanese or Korean character. It needs no tables and no network. `tiktoken` and
`tokenizers` take its place where they are installed and asked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
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
LOOKED_BACK: Final = 9
"""How many reports of the provider the correction of the estimate looks at."""
LARGEST_SCALE: Final = 2.0
"""The estimate is never corrected further than this."""
IMAGE_TOKENS: Final = 1600
"""What an image costs at most after the providers have scaled it down."""
FILE_CHARACTERS: Final = 30
"""Characters of an inline file (base64) for one token."""

_OTHER_SCRIPTS: Final = re.compile("[^\u0000-\u024f\u1e00-\u1eff\u2000-\u206f]+")
_FILE_KEYS: Final = frozenset({"data", "file_data"})
_FILE: Final = re.compile(r"(?:data:[^,]{0,200};base64,)?[A-Za-z0-9+/_=\r\n-]{1000,}")


def count_text(text: str) -> int:
    """Estimate the tokens of a text."""
    if text.isascii():
        return (len(text) + 2) // 3
    others = "".join(_OTHER_SCRIPTS.findall(text))
    weight = len(text) - len(others) + len(others.encode("utf-8", "surrogatepass"))
    return (weight + 2) // 3


def count_json(value: Any, *, count: TokenCounter = count_text) -> int:
    """Tokens of a JSON value as a provider would write it."""
    return count(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def _count_opaque(data: Any, *, count: TokenCounter) -> int:
    """Tokens of what we do not interpret: as JSON, but for the files in it."""
    files: list[str] = []
    written = count_json(_without_files(data, files), count=count)
    return written + sum(len(file) // FILE_CHARACTERS for file in files)


def _without_files(value: Any, files: list[str], *, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _without_files(item, files, key=name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_files(item, files) for item in value]
    if key in _FILE_KEYS and isinstance(value, str) and _FILE.fullmatch(value):
        files.append(value)
        return ""
    return value


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
            return _count_opaque(part.data, count=count)


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
        trailing: The estimate of what came after that report, corrected by `scale`.
        scale: How far the estimate was too low between earlier reports; 1 where it was not.
        index: Which message carried the report, or None.
    """

    tokens: int
    reported: int
    trailing: int
    scale: float
    index: int | None


def context_tokens(
    messages: Sequence[Message], *, since: int | None = None, count: TokenCounter = count_text
) -> ContextCount:
    """Count a conversation from the provider's last report, and estimate only what follows it.

    `since` is the time of the last compaction in Unix milliseconds: what was reported before it speaks of
    a history that is gone. Broken replies and zero usage report nothing.
    """
    reports = _last_reports(messages, since)
    index, reported = reports[-1] if reports else (None, 0)
    new = count_messages(messages[0 if index is None else index + 1 :], count=count)
    scale = _scale(messages, reports, count)
    trailing = math.ceil(new * scale)
    return ContextCount(tokens=reported + trailing, reported=reported, trailing=trailing, scale=scale, index=index)


def _last_reports(messages: Sequence[Message], since: int | None) -> list[tuple[int, int]]:
    """Where the provider reported last, and what, oldest first."""
    places = ((index, _reported(messages[index], since)) for index in range(len(messages) - 1, -1, -1))
    return list(islice(((index, tokens) for index, tokens in places if tokens > 0), LOOKED_BACK))[::-1]


def _scale(messages: Sequence[Message], reports: Sequence[tuple[int, int]], count: TokenCounter) -> float:
    """How much more than estimated was reported from one report to the next; never less than 1, nor more than 2."""
    grown = estimated = 0
    for (first, before), (last, after) in pairwise(reports):
        usage = messages[last].usage
        if usage is not None and after - usage.output > before:
            grown += after - usage.output - before
            estimated += count_messages(messages[first + 1 : last], count=count)
    return min(LARGEST_SCALE, max(1.0, grown / estimated)) if estimated else 1.0


def _reported(message: Message, since: int | None) -> int:
    if message.role != "assistant" or message.usage is None or message.is_broken:
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
    try:
        encode = tiktoken.get_encoding(encoding).encode
    except (ValueError, OSError) as error:  # a name it does not know, or tables that it could not fetch
        raise InputError(f"tiktoken has no encoding {encoding!r} here: {error}") from error
    return lambda text: len(encode(_whole(text), disallowed_special=()))


def _tokenizers(path: Path) -> TokenCounter:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("counting with tokenizers", extra="tokenizers") from None
    tokenizer = Tokenizer.from_str(_tokenizer_json(path))
    return lambda text: len(tokenizer.encode(_whole(text), add_special_tokens=False).ids)


def _tokenizer_json(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        known = json.loads(text)
    except OSError as error:
        raise InputError(f"{path}: no tokenizer could be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a tokenizer.json: {error}") from error
    if not isinstance(known, dict) or "model" not in known:
        raise InputError(f"{path}: not a tokenizer.json: it names no model")
    return text


def _whole(text: str) -> str:
    """The text without half surrogates, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode()
