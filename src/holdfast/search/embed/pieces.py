"""Texts as numbers of tokens: with the `tokenizers` package, or by the longest known piece of each word."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.search.embed.chunks import Tokenize, by_chunks
from holdfast.search.embed.weights import Ints

__all__ = ["Tokenize", "longest_pieces", "open_tokenizer", "tokenizer_ids"]

TEXTS_BEFORE_CHUNKS: Final = 128
"""So many texts are encoded as they are: to learn how they may be cut takes as long as hundreds of them."""

_WORD: Final = re.compile(r"\w+")
_WORD_START: Final = "▁"
_WORDS_REMEMBERED: Final = 1 << 16


def open_tokenizer(path: Path, *, provider: str, extra: str) -> Any:
    """The tokenizer in a `tokenizer.json`, without padding or truncation of its own."""
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError:
        raise MissingExtraError(f"the embedding provider {provider}", extra=extra) from None
    try:
        # Its other ways in raise nothing more precise than Exception.
        tokenizer = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"{path} cannot be used: {error}. Fetch the model again.", provider=provider) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokenizer_ids(path: Path, *, extra: str) -> Tokenize:
    """The token numbers of a text by a `tokenizer.json`, without special tokens and without the unknown one."""
    tokenizer = open_tokenizer(path, provider="static", extra=extra)
    unknown = _unknown(tokenizer, path)

    def encode(text: str) -> Sequence[int]:
        # One by one in this thread: a batch would start threads that a later fork warns about, and
        # switching them off is possible for the whole process only.
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids if unknown not in ids else [token for token in ids if token != unknown]

    @cache
    def chunked() -> Tokenize:
        return by_chunks(encode, json.loads(tokenizer.to_str()))

    texts = count()

    def tokenize(text: str) -> Sequence[int] | Ints:
        return encode(text) if next(texts) < TEXTS_BEFORE_CHUNKS else chunked()(text)

    return tokenize


def _unknown(tokenizer: Any, path: Path) -> int | None:
    model = tokenizer.model
    if type(model).__name__ == "Unigram":
        number: int | None = json.loads(path.read_bytes())["model"].get("unk_id")
        return number
    token = getattr(model, "unk_token", None)
    return None if token is None else tokenizer.token_to_id(token)


def longest_pieces(path: Path) -> Tokenize:
    """The numbers of the longest known pieces of each word, by a list of pieces, one a line.

    A piece that begins a word is written with `▁` before it. A character that stands in no piece is left out.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"{path} cannot be used: {error}", provider="static") from error
    pieces = {piece: number for number, piece in enumerate(lines) if piece}
    split = lru_cache(_WORDS_REMEMBERED)(partial(_split, pieces, max(map(len, pieces), default=0)))

    def tokenize(text: str) -> Sequence[int]:
        return [number for word in _WORD.findall(text.lower()) for number in split(word)]

    return tokenize


def _split(pieces: Mapping[str, int], longest: int, word: str) -> tuple[int, ...]:
    found: list[int] = []
    start = 0
    while start < len(word):
        mark = "" if start else _WORD_START
        stops = range(min(len(word), start + longest), start, -1)
        stop = next((stop for stop in stops if mark + word[start:stop] in pieces), 0)
        if stop:
            found.append(pieces[mark + word[start:stop]])
        start = stop or start + 1
    return tuple(found)
