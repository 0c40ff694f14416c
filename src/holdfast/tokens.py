"""How many tokens: one rule for text, one for messages, and the provider's own figure where there is one.

The estimate adds up a weight for each pair of neighbouring characters. The weights were fitted so that the sum is
not below the count of any current tokenizer for any kind of text (docs/tokens.md has the figures). It needs no
files and no network. `tiktoken` and `tokenizers` take its place where they are installed and asked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import islice, pairwise
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import InputError, MissingExtraError
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ContextCount",
    "TokenCounter",
    "context_tokens",
    "count_json",
    "count_message",
    "count_messages",
    "count_part",
    "count_text",
    "count_thirds",
    "counter",
    "is_estimate",
    "reported_prompt",
    "scale_of",
]

TokenCounter: TypeAlias = Callable[[str], int]
"""Anything that tells how many tokens a text has."""

MESSAGE_TOKENS: Final = 4
"""What a message costs beside its parts: role and delimiters."""
TOOL_TOKENS: Final = 8
"""What a tool call or result costs beside its text: ids and delimiters."""
LOOKED_BACK: Final = 9
"""How many reports of the provider the correction of the estimate looks at."""
MIN_CALIBRATION_TOKENS: Final = 4000
"""A smaller request says little about the estimate."""
LARGEST_SCALE: Final = 2.0
"""The estimate is never corrected further than this."""
IMAGE_TOKENS: Final = 1600
"""What an image costs at most after the providers have scaled it down."""
FILE_CHARACTERS: Final = 30
"""Characters of an inline file (base64) for one token."""

_OTHER_SCRIPTS: Final = re.compile("[^\u0000-\u024f\u1e00-\u1eff\u2000-\u206f]+")
_FILE_KEYS: Final = frozenset({"data", "file_data"})
_FILE: Final = re.compile(r"(?:data:[^,]{0,200};base64,)?[A-Za-z0-9+/_=\r\n-]{1000,}")


def count_text(text: str, *, family: str = "any") -> int:
    """Estimate the tokens of a text for a family of tokenizers."""
    if len(text) <= _SHORT:
        return -(-_short_hundredths(text, family) // 100)
    return -(-sum(_hundredths(text, start, family) for start in range(0, len(text), _STEP)) // 100)


def count_thirds(text: str) -> int:
    """Count a third of a token for each Latin character and for each UTF-8 byte of everything else."""
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


def reported_prompt(message: Message) -> int:
    """The size of the request that a reply answers, as the provider reported it; 0 where it did not."""
    usage = message.usage
    if message.role != "assistant" or usage is None or message.is_broken:
        return 0
    return max(0, usage.context - usage.output)


def scale_of(reported: int, estimated: int) -> float | None:
    """How many tokens were reported for each estimated one, in steps of 5 %: at least 1, at most 2.

    None for a small request: there, what the client adds to each request outweighs what was estimated.
    """
    if estimated < MIN_CALIBRATION_TOKENS:
        return None
    steps = math.ceil(reported / estimated * 20)
    return min(LARGEST_SCALE, max(1.0, steps / 20))


def _reported(message: Message, since: int | None) -> int:
    if message.role != "assistant" or message.usage is None or message.is_broken:
        return 0
    if since is not None and (message.timestamp is None or message.timestamp <= since):
        return 0
    return message.usage.context


# --- the weights of the estimate ----------------------------------------------

_STEP: Final = 1 << 20
"""Characters that are weighed at a time, which bounds the memory that it takes."""
_SHORT: Final = 96
"""Characters up to which a text is weighed one by one: an array costs more than so few characters."""

_RARE_PAIRS: Final = (
    "31003213032000303000212313"  # a
    "03220333023023023012033303"
    "03230330030023033020033323"
    "00300223023133033102023323"  # d
    "02000023233000212000312023"
    "03330033033032033030033313"
    "03330310033030033001033323"  # g
    "03330333033232033120233323"
    "12000013332000013100303332"
    "03330333233333013303032333"  # j
    "12320213033120233202232333"
    "03210133033023013301023303"
    "01320333033202003313133303"  # m
    "03000202032232023300123323"
    "21103023222000113010010333"
    "03320332033023003010133213"  # p
    "33333333333033333233033333"
    "03110223031211023000123303"
    "03030330031123003200032323"  # s
    "03230230033223023001132303"
    "11010213133000303000333333"
    "02330323033333033333333333"  # v
    "03220330033231033012332333"
    "03030233033323303320333223"
    "22331333033021003200332332"  # y
    "03330333033203033333333302"
)
"""How rare each pair of letters is in English text and code, from 0 to 3: tokens are made of common pairs."""

_LETTERS: Final = ("aa", "aA", "Aa", "AA")
_PAIRS: Final = (
    " a", " A", "!a", "!A", "0a", "0A", "a", "A", "00", " 0", "0", " !", "!!", "!", "  ", " ", "\n\n", "\n", "\t\t",
    "\t", "\0",
)  # fmt: skip
"""A character after another one, by their classes; a single class stands for it after all others."""
_RULES: Final = "-=*#_."
_RULE_WEIGHT: Final = 12
"""Hundredths of a token for one of these characters after itself: lines of them are long tokens."""
_SCRIPTS: Final = (
    0x80, 0xC0, 0x180, 0x370, 0x400, 0x530, 0x590, 0x600, 0x900, 0x980, 0xA00, 0xB80, 0xC00, 0xD00, 0xE00, 0xE80,
    0x1000, 0x1100, 0x1E00, 0x1F00, 0x2070, 0x2500, 0x25A0, 0x2C00, 0x3000, 0x3040, 0x3100, 0x4E00, 0xA000, 0xAC00,
    0xD800, 0xE000, 0xF900, 0xFF00,
)  # fmt: skip
"""Where scripts begin, as UTF-16 units."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """What a family of tokenizers needs, in hundredths of a token.

    Attributes:
        letters: For a letter after a letter: by the case of both, and by how rare the pair is.
        pairs: For the other pairs.
        scripts: For each unit of a script.
    """

    letters: tuple[tuple[int, int, int, int], ...]
    pairs: tuple[int, ...]
    scripts: tuple[int, ...]


_FAMILIES: Final = {
    # The most that any of o200k, cl100k, Claude 2, Llama 3, Qwen 2 and 3.6, DeepSeek 4 and Mistral Tekken needs.
    "any": _Weights(
        ((3, 28, 99, 110), (2, 2, 35, 110), (2, 2, 110, 110), (72, 100, 107, 107)),
        (48, 50, 105, 125, 105, 50, 125, 90, 100, 200, 130, 100, 92, 60, 10, 44, 100, 60, 10, 97, 100),
        (200, 165, 228, 121, 57, 201, 107, 103, 125, 197, 302, 200, 225, 299, 176, 295, 202, 294, 120, 180, 286, 90,
         294, 200, 130, 99, 260, 120, 200, 130, 196, 293, 218, 180),
    ),
    # o200k alone, the tokenizer of GPT-4o and later.
    "gpt": _Weights(
        ((2, 15, 20, 110), (2, 88, 88, 88), (2, 110, 110, 110), (22, 73, 73, 73)),
        (48, 59, 94, 63, 50, 50, 69, 110, 36, 200, 105, 100, 67, 81, 10, 44, 50, 100, 60, 101, 96),
        (120, 35, 120, 30, 25, 27, 41, 26, 29, 32, 51, 30, 34, 38, 43, 160, 51, 294, 30, 180, 192, 90, 291, 200, 130,
         82, 260, 78, 200, 67, 130, 286, 220, 139),
    ),
}  # fmt: skip


def _hundredths(text: str, start: int, family: str) -> int:
    """Weigh the characters from `start`, each with the one before it."""
    import numpy as np  # noqa: PLC0415 - not needed to import the package

    symbols, weights = _tables(family)
    piece = (text[start - 1] if start else "\n") + text[start : start + _STEP]
    if piece.isascii():
        found = piece.encode("ascii")
    else:
        found = symbols.take(np.frombuffer(piece.encode("utf-16-le", "surrogatepass"), "<u2")).tobytes()
    # Two neighbouring bytes are one number: those at even places, and those at odd ones.
    even, odd = (np.frombuffer(found, "<u2", (len(found) - start) // 2, start) for start in (0, 1))
    return int(weights.take(even).sum()) + int(weights.take(odd).sum())


@lru_cache(maxsize=4096)
def _short_hundredths(text: str, family: str) -> int:
    """Weigh the characters of a short text, as `_hundredths` does."""
    symbols, rows = _short_tables(family)
    piece = "\n" + text
    if piece.isascii():
        found = piece.encode("ascii")
    else:
        found = bytes(map(symbols.__getitem__, memoryview(piece.encode("utf-16-le", "surrogatepass")).cast("H")))
    return sum(map(getitem, map(rows.__getitem__, found[1:]), found))


@cache
def _short_tables(family: str) -> tuple[bytes, list[list[int]]]:
    """Make the tables of `_tables` as Python's own values."""
    symbols, weights = _tables(family)
    return symbols.tobytes(), weights.reshape(256, 256).tolist()


@cache
def _tables(family: str) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Make the tables: the symbol of each UTF-16 unit (ASCII is itself, a script is one), and the weight of a pair.

    The index of a pair is the second symbol times 256, and the first.
    """
    import numpy as np  # noqa: PLC0415 - as above

    known = _FAMILIES[family]
    letters, pairs = dict(zip(_LETTERS, known.letters, strict=True)), dict(zip(_PAIRS, known.pairs, strict=True))
    symbols = np.arange(1 << 16).clip(max=127).astype(np.uint8)
    weights = np.zeros((256, 256), np.uint16)
    for symbol, (first, weight) in enumerate(zip(_SCRIPTS, known.scripts, strict=True), start=128):
        symbols[first:] = symbol
        weights[symbol] = weight
    for old in map(chr, range(256)):
        for new in map(chr, range(128)):
            both = _class(old) + _class(new)
            weight = pairs.get(both, pairs.get(_class(new), 0))
            if both in letters:
                weight = letters[both][int(_RARE_PAIRS[(ord(old) | 32) * 26 + (ord(new) | 32) - 27 * ord("a")])]
            elif old == new and old in _RULES:
                weight = _RULE_WEIGHT
            weights[ord(new), ord(old)] = weight
    return symbols, weights.reshape(-1)


def _class(char: str) -> str:
    if not char.isascii() or not char.isprintable():
        return char if char in "\n\t" else "\n" if char == "\r" else "\0"
    return "a" if char.islower() else "A" if char.isupper() else "0" if char.isdigit() else " " if char == " " else "!"


# --- real tokenizers ---------------------------------------------------------


_ESTIMATES: Final[Mapping[str, TokenCounter]] = {
    "estimate": count_text,
    "estimate:any": count_text,
    "estimate:gpt": partial(count_text, family="gpt"),
    "thirds": count_thirds,
}
_GPT: Final = re.compile(r"(?:^|[/:])(?:gpt-(?:4o|4\.[1-9]|[5-9]|oss)|o[1-9]\b|chatgpt|codex)")


def counter(name: str = "estimate", *, model: str | None = None) -> TokenCounter:
    """The counter of this name, for a model.

    Names are `estimate`, `estimate:any`, `estimate:gpt`, `thirds`, `tiktoken:ENCODING` and `tokenizers:FILE` (a
    tokenizer.json). `estimate` alone is the estimate for the model's tokenizer where that is known, else for any.
    """
    if name == "estimate" and model and _GPT.search(model.lower()):
        return _ESTIMATES["estimate:gpt"]
    if name in _ESTIMATES:
        return _ESTIMATES[name]
    kind, _, argument = name.partition(":")
    if kind == "tiktoken":
        return _tiktoken(argument or "o200k_base")
    if kind == "tokenizers" and argument:
        return _tokenizers(Path(argument))
    known = "estimate[:any|:gpt], thirds, tiktoken:ENCODING, tokenizers:FILE"
    raise InputError(f"token counter {name!r} is not one of {known}")


def is_estimate(count: TokenCounter) -> bool:
    """Tell whether a counter estimates, so that a margin is needed."""
    return count in _ESTIMATES.values()


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
