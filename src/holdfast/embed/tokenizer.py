"""Token ids of texts by a `tokenizer.json`, with a cache of chunks.

A text can be cut wherever its tokenizer never joins two characters, and the chunks repeat as words do. Whether and
where a tokenizer allows this is read from its own definition; texts of other tokenizers are encoded whole.

Without the cache, the `tokenizers` package takes most of the time of a static embedder. `StaticEmbedder.embed` with
wordllama on the windows of real texts, windows per second of one ARM core:

    windows of                           whole    by chunks
    LoCoMo, 126 characters each          7,100    14,900
    sessions of agents, 220 characters   4,800     9,200
    Chinese (CMRC 2018), 277 characters  1,800     2,900

An import of 2,309 texts of such sessions with their vectors took 2.7 s of the processor without it, 2.15 s with it.
"""

from __future__ import annotations

import importlib
import json
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.errors import EmbeddingError, MissingExtraError
from holdfast.patterns import compile_once

Ints: TypeAlias = npt.NDArray[np.int64]

TEXTS_BEFORE_CHUNKS: Final = 128
"""The first texts are encoded whole: reading the rules of a tokenizer takes as long as encoding hundreds of texts."""
MAX_CACHED_CHUNKS: Final = 1 << 15
"""About 5 MB. A full cache is emptied; frequent chunks soon return."""
MAX_CACHED_LENGTH: Final = 40
"""Characters and tokens of a cached chunk. Longer ones are data, or a script without spaces, and rarely repeat."""

_SPACE: Final = "▁"
_PUNCTUATION: Final = r"!-/:-@\[-`{-~"
_HAN: Final = "㐀-䶿一-鿿"

# Bert cuts at white space, which has no tokens, and around every punctuation mark and every Han character.
_BERT_CHUNK: Final = rf"[^ \t\n\r{_PUNCTUATION}{_HAN}]+|[{_PUNCTUATION}]+|[{_HAN}]"

# Pieces of a SentencePiece BPE begin with spaces, hold letters or punctuation, and leave digits, line ends and Han
# characters alone. Characters outside ASCII may be joined to letters and to punctuation.
_PLAIN: Final = rf"(?:[A-Za-z]+|[\r{_PUNCTUATION}]+)"
_OTHER: Final = rf"[^\x00-\x7f{_SPACE}{_HAN}]+{_PLAIN}?"
_BPE_CHUNK: Final = (
    rf"[0-9]+|\n|{_SPACE}*{_PLAIN}(?:{_OTHER})*|{_SPACE}+(?:{_OTHER})*|(?:{_OTHER})+|[\x00-\x1f\x7f{_HAN}]"
)
_BPE_NORMALIZER: Final = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": _SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE},
    ],
}
_UNSUPPORTED_BPE_OPTIONS: Final = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")


def import_tokenizers(*, provider: str, extra: str) -> Any:
    """Import the `tokenizers` package, which is an extra."""
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise MissingExtraError(f"the embedding provider {provider}", extra=extra) from None


def load_tokenizer(path: Path, *, provider: str, extra: str) -> Any:
    """Load a `tokenizer.json`, without padding and truncation; raises an EmbeddingError if it cannot be read."""
    tokenizers = import_tokenizers(provider=provider, extra=extra)
    try:
        # The other constructors raise nothing more precise than Exception.
        tokenizer = tokenizers.Tokenizer.from_buffer(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"{path} cannot be used: {error}. Download the model again.", provider=provider) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRules:
    """How the texts of a tokenizer may be cut."""

    pattern: re.Pattern[str]  # a chunk; text between two chunks has no tokens
    is_bpe: bool  # whether chunks are cut from the normalized text, and encoded by the model alone
    special_tokens: tuple[str, ...]  # texts that hold one of these must be encoded whole


def find_chunk_rules(definition: Mapping[str, Any]) -> ChunkRules | None:
    """Return the chunk rules of a tokenizer by its `tokenizer.json`; None if its texts must stay whole."""
    added = definition.get("added_tokens") or ()
    if any(token["normalized"] for token in added):
        return None
    special = tuple(token["content"] for token in added)
    if _is_bert(definition):
        return ChunkRules(pattern=compile_once(_BERT_CHUNK), is_bpe=False, special_tokens=special)
    if _is_separable_bpe(definition):
        return ChunkRules(pattern=compile_once(_BPE_CHUNK), is_bpe=True, special_tokens=special)
    return None


def _is_bert(definition: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer cuts texts into words as Bert does, around every Han character too."""
    model = definition.get("model") or {}
    normalizer = definition.get("normalizer") or {}
    splitter = definition.get("pre_tokenizer") or {}
    return (
        model.get("type") == "WordPiece"
        and splitter.get("type") == "BertPreTokenizer"
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("handle_chinese_chars") is True
    )


def _is_separable_bpe(definition: Mapping[str, Any]) -> bool:
    """Return whether whole texts are merged, with `▁` for spaces, and no token can reach over a cut.

    An unknown token keeps its neighbours apart. Merges start with two characters: it is enough to check their results.
    """
    model = definition["model"]
    if model.get("type") != "BPE" or model.get("unk_token") not in model["vocab"]:
        return False
    if any(model.get(name) for name in _UNSUPPORTED_BPE_OPTIONS):
        return False
    if definition.get("normalizer") != _BPE_NORMALIZER or definition.get("pre_tokenizer"):
        return False
    chunk = compile_once(_BPE_CHUNK)
    for merge in model.get("merges", ()):
        merged = "".join(merge).replace(" ", "")
        if chunk.fullmatch(merged) is None:
            return False
    return True


class _ChunkCache(dict[str, bytes]):
    """Token ids by chunk, encoded when they are first needed."""

    def __init__(self, encode: Callable[[str], Sequence[int]]) -> None:
        self._encode = encode

    def __missing__(self, chunk: str) -> bytes:
        tokens = self._encode(chunk)
        ids = array("q", tokens).tobytes()
        if max(len(chunk), len(tokens)) <= MAX_CACHED_LENGTH:
            if len(self) >= MAX_CACHED_CHUNKS:
                self.clear()
            self[chunk] = ids
        return ids


class ChunkTokenizer:
    """Returns the token ids of texts, without special tokens and without the unknown token. Threads may share it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        token = getattr(tokenizer.model, "unk_token", None)
        self._unknown: int | None = None if token is None else tokenizer.token_to_id(token)
        if type(tokenizer.model).__name__ == "Unigram":
            self._unknown = json.loads(tokenizer.to_str())["model"].get("unk_id")
        self._texts = count()

    def __call__(self, text: str) -> Sequence[int] | Ints:
        """Return the token ids of a text."""
        if next(self._texts) < TEXTS_BEFORE_CHUNKS:
            return self.encode(text)
        return self.encode_by_chunks(text)

    def encode(self, text: str) -> Sequence[int]:
        """Encode a text whole."""
        # One by one in this thread: a batch would start threads that a later fork warns about, and switching them
        # off is possible for the whole process only.
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return self._without_unknown(ids)

    def encode_by_chunks(self, text: str) -> Sequence[int] | Ints:
        """Encode a text by its chunks, with the same result; whole if the tokenizer does not allow chunks."""
        rules = self.chunk_rules
        if rules is None or not text or any(token in text for token in rules.special_tokens):
            return self.encode(text)
        if rules.is_bpe:
            text = _SPACE + text.replace(" ", _SPACE)
        chunks = rules.pattern.findall(text)
        return np.frombuffer(b"".join(map(self._cache.__getitem__, chunks)), np.int64)

    @cached_property
    def chunk_rules(self) -> ChunkRules | None:
        """How texts may be cut; None if they must stay whole."""
        return find_chunk_rules(json.loads(self._tokenizer.to_str()))

    @cached_property
    def _cache(self) -> _ChunkCache:
        model = self._tokenizer.model

        def encode_piece(chunk: str) -> Sequence[int]:
            return self._without_unknown([token.id for token in model.tokenize(chunk)])

        return _ChunkCache(encode_piece if self.chunk_rules and self.chunk_rules.is_bpe else self.encode)

    def _without_unknown(self, ids: list[int]) -> Sequence[int]:
        return ids if self._unknown not in ids else [token for token in ids if token != self._unknown]
