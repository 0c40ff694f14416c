"""Count tokens: estimate text and messages, and use the provider's reported usage if there is one.

The estimate adds up a weight for each pair of neighbouring characters. The weights were fitted so that the sum is
not below the count of any current tokenizer for any kind of text (docs/tokens.md has the figures). It needs no
files and no network. `tiktoken` and `tokenizers` can be used instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from functools import cache, lru_cache, partial
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import InputError, MissingExtraError
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TokenCounter: TypeAlias = Callable[[str], int]
"""A function that counts the tokens of a text."""

MESSAGE_TOKENS: Final = 4
"""The tokens of a message in addition to its parts: role and delimiters."""
TOOL_TOKENS: Final = 8
"""The tokens of a tool call or result in addition to its text: ids and delimiters."""
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
    return math.ceil(measure_text(text, family=family))


def measure_text(text: str, *, family: str = "any") -> float:
    """Estimate the tokens of a part of a text, not rounded up, since parts are added up."""
    if len(text) <= _MAX_SHORT_CHARS:
        return _weigh_short(text, family) / 100
    return sum([_weigh(text, start, family) for start in range(0, len(text), _CHUNK_CHARS)]) / 100


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
            given = part.arguments
            arguments = count(given) if isinstance(given, str) else count_json(given, count=count)
            return TOOL_TOKENS + count(part.name) + arguments
        case ToolResult():
            return TOOL_TOKENS + sum(count_part(block, count=count) for block in part.content)
        case Image():
            return IMAGE_TOKENS
        case Opaque():
            files: list[str] = []
            text = _remove_files(part.data, files)
            return count_json(text, count=count) + sum(len(file) // FILE_CHARACTERS for file in files)


def count_message(message: Message, *, count: TokenCounter = count_text) -> int:
    """Count the tokens of a message with all of its parts."""
    return MESSAGE_TOKENS + sum(count_part(part, count=count) for part in message.parts)


def count_messages(messages: Iterable[Message], *, count: TokenCounter = count_text) -> int:
    """Count the tokens of a conversation."""
    return sum(count_message(message, count=count) for message in messages)


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


_CHUNK_CHARS: Final = 1 << 20
"""Characters that are weighed at once, which bounds the memory."""
_MAX_SHORT_CHARS: Final = 96
"""A text up to this length is weighed character by character, which is faster than an array."""

_RULES: Final = b"-=*#_."
_RULE_WEIGHT: Final = 12
"""Hundredths of a token for one of these characters after itself: lines of them are long tokens."""


def _weigh(text: str, start: int, family: str) -> int:
    """Weigh the characters from `start`, each with the one before it."""
    import numpy as np  # noqa: PLC0415 - not needed to import the package

    symbols, weights, _, _ = _make_tables(family)
    piece = (text[start - 1] if start else "\n") + text[start : start + _CHUNK_CHARS]
    if piece.isascii():
        codes = piece.encode("ascii")
    else:
        codes = symbols.take(np.frombuffer(piece.encode("utf-16-le", "surrogatepass"), "<u2")).tobytes()
    # Two neighbouring bytes are one number, at every place.
    pairs = np.ndarray(len(codes) - 1, "<u2", codes, strides=(1,))
    return int(np.add.reduce(weights.take(pairs)))


@lru_cache(maxsize=4096)
def _weigh_short(text: str, family: str) -> int:
    """Weigh the characters of a short text, with the same result as `_weigh`."""
    _, _, symbols, rows = _make_tables(family)
    piece = "\n" + text
    if piece.isascii():
        codes = piece.encode("ascii")
    else:
        codes = bytes(map(symbols.__getitem__, memoryview(piece.encode("utf-16-le", "surrogatepass")).cast("H")))
    return sum(map(getitem, map(rows.__getitem__, codes[1:]), codes))


@cache
def _make_tables(family: str) -> tuple[NDArray[np.uint8], NDArray[np.uint16], bytes, list[list[int]]]:
    """Make the symbol of each UTF-16 unit (ASCII is itself, a script is one), and the weight of a pair of symbols.

    The index of a pair is the second symbol times 256, plus the first. Both follow again as plain Python values.
    """
    import numpy as np  # noqa: PLC0415 - as above

    data = json.loads(Path(__file__).with_name("tokens.json").read_bytes())
    known = data["families"][family]
    letters: dict[str, list[int]] = dict(zip(data["letters"], known["letters"], strict=True))
    pairs: dict[str, int] = dict(zip(data["pairs"], known["pairs"], strict=True))
    symbols = np.arange(1 << 16).clip(max=127).astype(np.uint8)
    weights = np.zeros((256, 256), np.uint16)
    for symbol, (first, weight) in enumerate(zip(data["scripts"], known["scripts"], strict=True), start=128):
        symbols[first:] = symbol
        weights[symbol] = weight
    kinds = [_classify(char) for char in map(chr, range(256))]
    for kind in set(kinds[:128]):
        weights[[code for code in range(128) if kinds[code] == kind]] = [
            pairs.get(before + kind, pairs.get(kind, 0)) for before in kinds
        ]
    rarity = np.array([list(row) for row in data["rare_pairs"]], np.intp)
    for both, levels in letters.items():
        old, new = map(ord, both)
        weights[new : new + 26, old : old + 26] = np.take(levels, rarity).T
    rules = np.frombuffer(_RULES, np.uint8)
    weights[rules, rules] = _RULE_WEIGHT
    return symbols, weights.reshape(-1), symbols.tobytes(), weights.tolist()


def _classify(char: str) -> str:
    if not char.isascii() or not char.isprintable():
        return char if char in "\n\t" else "\n" if char == "\r" else "\0"
    return "a" if char.islower() else "A" if char.isupper() else "0" if char.isdigit() else " " if char == " " else "!"


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
    tokenizer.json). `estimate` alone is the estimate for the model's tokenizer if that is known, else for any.
    """
    if name == "estimate" and model and _GPT.search(model.lower()):
        return _ESTIMATES["estimate:gpt"]
    if name in _ESTIMATES:
        return _ESTIMATES[name]
    kind, _, argument = name.partition(":")
    if kind == "tiktoken" or (kind == "tokenizers" and argument):
        return _open_tokenizer(kind, argument or "o200k_base")
    known = "estimate[:any|:gpt], thirds, tiktoken:ENCODING, tokenizers:FILE"
    raise InputError(f"token counter {name!r} is not one of {known}")


def is_estimate(count: TokenCounter) -> bool:
    """Return whether a counter estimates, so that a margin is needed."""
    return count in _ESTIMATES.values()


def _open_tokenizer(kind: str, argument: str) -> TokenCounter:
    encode: Callable[[str], Sized]
    try:
        if kind == "tiktoken":
            import tiktoken  # noqa: PLC0415 - an extra

            problem = f"tiktoken has no encoding {argument!r} here"  # an unknown name, or it could not be downloaded
            encode = partial(tiktoken.get_encoding(argument).encode, disallowed_special=())
        else:
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra

            problem = f"{argument}: not a tokenizer.json that can be read"
            encode = partial(Tokenizer.from_buffer(Path(argument).read_bytes()).encode, add_special_tokens=False)
    except ImportError:
        raise MissingExtraError(f"counting with {kind}", extra=kind) from None
    except (ValueError, OSError) as error:
        raise InputError(f"{problem}: {error}") from error
    # Tokenizers refuse lone surrogates.
    return lambda text: len(encode(text.encode("utf-8", "replace").decode()))
