"""Count tokens: estimate text and messages, and use the provider's reported usage where there is one.

The estimate adds up a weight for each pair of neighbouring characters. The weights were fitted so that the sum is
not below the count of any current tokenizer for any kind of text (docs/tokens.md has the figures). It needs no
files and no network. `tiktoken` and `tokenizers` can be used instead.
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
"""A function that counts the tokens of a text."""

MESSAGE_TOKENS: Final = 4
"""The tokens of a message besides its parts: role and delimiters."""
TOOL_TOKENS: Final = 8
"""The tokens of a tool call or result besides its text: ids and delimiters."""
MAX_REPORTS: Final = 9
"""How many of the provider's last reports correct the estimate."""
MIN_CALIBRATION_TOKENS: Final = 4000
"""A smaller request is not used to correct the estimate."""
MAX_SCALE: Final = 2.0
"""The maximum correction of the estimate."""
IMAGE_TOKENS: Final = 1600
"""The maximum tokens of an image after providers have scaled it down."""
FILE_CHARACTERS: Final = 30
"""Characters of an inline file (base64) per token."""

_OTHER_SCRIPTS: Final = re.compile("[^\u0000-\u024f\u1e00-\u1eff\u2000-\u206f]+")
_FILE_KEYS: Final = frozenset({"data", "file_data"})
_FILE: Final = re.compile(r"(?:data:[^,]{0,200};base64,)?[A-Za-z0-9+/_=\r\n-]{1000,}")


def count_text(text: str, *, family: str = "any") -> int:
    """Estimate the tokens of a text for a family of tokenizers."""
    if len(text) <= _MAX_SHORT_CHARS:
        return -(-_weigh_short(text, family) // 100)
    return -(-sum(_weigh(text, start, family) for start in range(0, len(text), _CHUNK_CHARS)) // 100)


def count_thirds(text: str) -> int:
    """Count a third of a token for each Latin character and for each UTF-8 byte of everything else."""
    if text.isascii():
        return (len(text) + 2) // 3
    others = "".join(_OTHER_SCRIPTS.findall(text))
    weight = len(text) - len(others) + len(others.encode("utf-8", "surrogatepass"))
    return (weight + 2) // 3


def count_json(value: Any, *, count: TokenCounter = count_text) -> int:
    """Count the tokens of a JSON value as a provider would write it."""
    return count(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def _count_opaque(data: Any, *, count: TokenCounter) -> int:
    """Count the tokens of an opaque value: as JSON, with the files in it counted by length."""
    files: list[str] = []
    tokens = count_json(_remove_files(data, files), count=count)
    return tokens + sum(len(file) // FILE_CHARACTERS for file in files)


def _remove_files(value: Any, files: list[str], *, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _remove_files(item, files, key=name) for name, item in value.items()}
    if isinstance(value, list):
        return [_remove_files(item, files) for item in value]
    if key in _FILE_KEYS and isinstance(value, str) and _FILE.fullmatch(value):
        files.append(value)
        return ""
    return value


def count_part(part: Part, *, count: TokenCounter = count_text) -> int:
    """Count the tokens of one part of a message."""
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
    """Count the tokens of a message with all of its parts."""
    return MESSAGE_TOKENS + sum(count_part(part, count=count) for part in message.parts)


def count_messages(messages: Iterable[Message], *, count: TokenCounter = count_text) -> int:
    """Count the tokens of a conversation."""
    return sum(count_message(message, count=count) for message in messages)


# --- calibration -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCount:
    """The tokens in a window, and how they were counted.

    Attributes:
        tokens: The total: `reported` plus `trailing`.
        reported: The provider's last report; 0 without one.
        trailing: The estimate of the messages after that report, corrected by `scale`.
        scale: The factor by which the estimate was too low between earlier reports, at least 1.
        index: The index of the message with the report, or None.
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

    `since` is the time of the last compaction in Unix milliseconds: earlier reports are ignored, because they
    include history that was removed. Broken replies and zero usage report nothing.
    """
    reports = _find_reports(messages, since)
    index, reported = reports[-1] if reports else (None, 0)
    new = count_messages(messages[0 if index is None else index + 1 :], count=count)
    scale = _compute_scale(messages, reports, count)
    trailing = math.ceil(new * scale)
    return ContextCount(tokens=reported + trailing, reported=reported, trailing=trailing, scale=scale, index=index)


def _find_reports(messages: Sequence[Message], since: int | None) -> list[tuple[int, int]]:
    """Return the index and the tokens of the provider's last reports, oldest first."""
    places = ((index, _read_report(messages[index], since)) for index in range(len(messages) - 1, -1, -1))
    return list(islice(((index, tokens) for index, tokens in places if tokens > 0), MAX_REPORTS))[::-1]


def _compute_scale(messages: Sequence[Message], reports: Sequence[tuple[int, int]], count: TokenCounter) -> float:
    """Return reported growth over estimated growth between the reports, at least 1 and at most 2."""
    growth = estimated = 0
    for (first, before), (last, after) in pairwise(reports):
        usage = messages[last].usage
        if usage is not None and after - usage.output > before:
            growth += after - usage.output - before
            estimated += count_messages(messages[first + 1 : last], count=count)
    return min(MAX_SCALE, max(1.0, growth / estimated)) if estimated else 1.0


def reported_prompt(message: Message) -> int:
    """Return the size of the request of a reply, as the provider reported it; 0 if it did not."""
    usage = message.usage
    if message.role != "assistant" or usage is None or message.is_broken:
        return 0
    return max(0, usage.context - usage.output)


def scale_of(reported: int, estimated: int) -> float | None:
    """Return how many tokens were reported per estimated one, in steps of 5 %, at least 1 and at most 2.

    None for a small request, in which the parts that the client adds to each request dominate.
    """
    if estimated < MIN_CALIBRATION_TOKENS:
        return None
    steps = math.ceil(reported / estimated * 20)
    return min(MAX_SCALE, max(1.0, steps / 20))


def _read_report(message: Message, since: int | None) -> int:
    if message.role != "assistant" or message.usage is None or message.is_broken:
        return 0
    if since is not None and (message.timestamp is None or message.timestamp <= since):
        return 0
    return message.usage.context


# --- the weights of the estimate ----------------------------------------------

_CHUNK_CHARS: Final = 1 << 20
"""Characters that are weighed at once, which bounds the memory."""
_MAX_SHORT_CHARS: Final = 96
"""A text up to this length is weighed character by character, which is faster than an array."""

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
"""Pairs of character classes; a single class stands for a character after any other class."""
_RULES: Final = "-=*#_."
_RULE_WEIGHT: Final = 12
"""Hundredths of a token for one of these characters after itself: lines of them are long tokens."""
_SCRIPTS: Final = (
    0x80, 0xC0, 0x180, 0x370, 0x400, 0x530, 0x590, 0x600, 0x900, 0x980, 0xA00, 0xB80, 0xC00, 0xD00, 0xE00, 0xE80,
    0x1000, 0x1100, 0x1E00, 0x1F00, 0x2070, 0x2500, 0x25A0, 0x2C00, 0x3000, 0x3040, 0x3100, 0x4E00, 0xA000, 0xAC00,
    0xD800, 0xE000, 0xF900, 0xFF00,
)  # fmt: skip
"""The first UTF-16 unit of each script."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights of a family of tokenizers, in hundredths of a token.

    Attributes:
        letters: For a letter after a letter: by the case of both, and by how rare the pair is.
        pairs: For the other pairs.
        scripts: For each unit of a script.
    """

    letters: tuple[tuple[int, int, int, int], ...]
    pairs: tuple[int, ...]
    scripts: tuple[int, ...]


_FAMILIES: Final = {
    # The maximum over o200k, cl100k, Claude 2, Llama 3, Qwen 2 and 3.6, DeepSeek 4 and Mistral Tekken.
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


def _weigh(text: str, start: int, family: str) -> int:
    """Weigh the characters from `start`, each with the one before it."""
    import numpy as np  # noqa: PLC0415 - not needed to import the package

    symbols, weights = _make_tables(family)
    piece = (text[start - 1] if start else "\n") + text[start : start + _CHUNK_CHARS]
    if piece.isascii():
        codes = piece.encode("ascii")
    else:
        codes = symbols.take(np.frombuffer(piece.encode("utf-16-le", "surrogatepass"), "<u2")).tobytes()
    # Two neighbouring bytes are one number: those at even places, and those at odd ones.
    even, odd = (np.frombuffer(codes, "<u2", (len(codes) - start) // 2, start) for start in (0, 1))
    return int(weights.take(even).sum()) + int(weights.take(odd).sum())


@lru_cache(maxsize=4096)
def _weigh_short(text: str, family: str) -> int:
    """Weigh the characters of a short text, with the same result as `_weigh`."""
    symbols, rows = _make_short_tables(family)
    piece = "\n" + text
    if piece.isascii():
        codes = piece.encode("ascii")
    else:
        codes = bytes(map(symbols.__getitem__, memoryview(piece.encode("utf-16-le", "surrogatepass")).cast("H")))
    return sum(map(getitem, map(rows.__getitem__, codes[1:]), codes))


@cache
def _make_short_tables(family: str) -> tuple[bytes, list[list[int]]]:
    """Make the tables of `_make_tables` as plain Python values."""
    symbols, weights = _make_tables(family)
    return symbols.tobytes(), weights.reshape(256, 256).tolist()


@cache
def _make_tables(family: str) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    """Make the tables: the symbol of each UTF-16 unit (ASCII is itself, a script is one), and the weight of a pair.

    The index of a pair is the second symbol times 256, plus the first.
    """
    import numpy as np  # noqa: PLC0415 - as above

    family_weights = _FAMILIES[family]
    letters, pairs = (
        dict(zip(_LETTERS, family_weights.letters, strict=True)),
        dict(zip(_PAIRS, family_weights.pairs, strict=True)),
    )
    symbols = np.arange(1 << 16).clip(max=127).astype(np.uint8)
    weights = np.zeros((256, 256), np.uint16)
    for symbol, (first, weight) in enumerate(zip(_SCRIPTS, family_weights.scripts, strict=True), start=128):
        symbols[first:] = symbol
        weights[symbol] = weight
    for old in map(chr, range(256)):
        for new in map(chr, range(128)):
            both = _classify(old) + _classify(new)
            weight = pairs.get(both, pairs.get(_classify(new), 0))
            if both in letters:
                weight = letters[both][int(_RARE_PAIRS[(ord(old) | 32) * 26 + (ord(new) | 32) - 27 * ord("a")])]
            elif old == new and old in _RULES:
                weight = _RULE_WEIGHT
            weights[ord(new), ord(old)] = weight
    return symbols, weights.reshape(-1)


def _classify(char: str) -> str:
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
    """Return the counter of this name, for a model.

    Names are `estimate`, `estimate:any`, `estimate:gpt`, `thirds`, `tiktoken:ENCODING` and `tokenizers:FILE` (a
    tokenizer.json). `estimate` alone is the estimate for the model's tokenizer where that is known, else for any.
    """
    if name == "estimate" and model and _GPT.search(model.lower()):
        return _ESTIMATES["estimate:gpt"]
    if name in _ESTIMATES:
        return _ESTIMATES[name]
    kind, _, argument = name.partition(":")
    if kind == "tiktoken":
        return _open_tiktoken(argument or "o200k_base")
    if kind == "tokenizers" and argument:
        return _open_tokenizers(Path(argument))
    known = "estimate[:any|:gpt], thirds, tiktoken:ENCODING, tokenizers:FILE"
    raise InputError(f"token counter {name!r} is not one of {known}")


def is_estimate(count: TokenCounter) -> bool:
    """Whether a counter estimates, so that a margin is needed."""
    return count in _ESTIMATES.values()


def _open_tiktoken(encoding: str) -> TokenCounter:
    try:
        import tiktoken  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("counting with tiktoken", extra="tiktoken") from None
    try:
        encode = tiktoken.get_encoding(encoding).encode
    except (ValueError, OSError) as error:  # an unknown name, or tables that it could not download
        raise InputError(f"tiktoken has no encoding {encoding!r} here: {error}") from error
    return lambda text: len(encode(_replace_surrogates(text), disallowed_special=()))


def _open_tokenizers(path: Path) -> TokenCounter:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("counting with tokenizers", extra="tokenizers") from None
    tokenizer = Tokenizer.from_str(_read_tokenizer(path))
    return lambda text: len(tokenizer.encode(_replace_surrogates(text), add_special_tokens=False).ids)


def _read_tokenizer(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        known = json.loads(text)
    except OSError as error:
        raise InputError(f"{path}: the tokenizer could not be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a tokenizer.json: {error}") from error
    if not isinstance(known, dict) or "model" not in known:
        raise InputError(f"{path}: not a tokenizer.json: it names no model")
    return text


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode()
