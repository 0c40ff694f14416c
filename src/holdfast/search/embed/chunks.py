"""Where a tokenizer never joins two characters, the tokens of a text are those of its chunks, one after the other.

Chunks come again and again, as words do, so their tokens are remembered. Whether a tokenizer has such places, and
which, is read from its own definition; where that does not say so, texts stay whole.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from holdfast.search.embed.weights import Ints

__all__ = ["Chunking", "Tokenize", "by_chunks", "chunking"]

Tokenize: TypeAlias = Callable[[str], Sequence[int] | Ints]

CHUNKS_REMEMBERED: Final = 1 << 15
"""About 5 MB of words. When there are more, all are forgotten: what is frequent is soon known again."""
LONGEST_REMEMBERED: Final = 40
"""Characters and tokens. What is longer is a run of a script without blanks, or data, and does not come again."""

_TOKEN_BYTES: Final = 8
_START: Final = "▁"
_PUNCTUATION: Final = r"!-/:-@\[-`{-~"
_HAN: Final = "㐀-䶿一-鿿"

_BERT: Final = rf"[^ \t\n\r{_PUNCTUATION}{_HAN}]+|[!-\-/:-@\[-`{{-~]+|[.{_HAN}]"
"""Bert cuts at blanks, which are no tokens, and around every mark and every character of Han."""

_BLANKS: Final = rf"[ {_START}]"
_PLAIN: Final = rf"(?:[A-Za-z]+|[\r{_PUNCTUATION}]+)"
_OTHER: Final = rf"[^\x00-\x7f{_START}{_HAN}]+{_PLAIN}?"
_PIECES: Final = (
    rf"[0-9]+|\n|{_BLANKS}*{_PLAIN}(?:{_OTHER})*|{_BLANKS}+(?:{_OTHER})*|(?:{_OTHER})+|[\x00-\x1f\x7f{_HAN}]"
)
"""Pieces begin with blanks, hold letters or marks, and leave digits, line ends and Han alone.

What is not ASCII may stand beside letters and beside marks.
"""
_PIECES_NORMALIZER: Final = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": _START},
        {"type": "Replace", "pattern": {"String": " "}, "content": _START},
    ],
}
_ODD_MERGES: Final = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """How texts may be cut.

    Attributes:
        pattern: A chunk of a text; what lies between two chunks is no token.
        lead: What the tokenizer puts before a text.
        mark: A character that is always a chunk of its own.
        whole: Texts that hold one of these are not to be cut.
    """

    pattern: re.Pattern[str]
    lead: str
    mark: str
    whole: tuple[str, ...]


def chunking(definition: Mapping[str, Any]) -> Chunking | None:
    """How texts may be cut for a tokenizer, by its `tokenizer.json`; None where it does not tell."""
    added = definition.get("added_tokens") or ()
    if any(token["normalized"] for token in added):
        return None
    whole = tuple(token["content"] for token in added)
    if _is_bert(definition):
        return Chunking(pattern=re.compile(_BERT), lead="", mark=".", whole=whole)
    if _is_pieces(definition) and _keeps(re.compile(_PIECES), definition["model"]["merges"]):
        return Chunking(pattern=re.compile(_PIECES), lead=" ", mark="\n", whole=whole)
    return None


def _is_bert(definition: Mapping[str, Any]) -> bool:
    normalizer, cutter = definition.get("normalizer") or {}, definition.get("pre_tokenizer") or {}
    return (
        definition["model"].get("type") == "WordPiece"
        and cutter.get("type") == "BertPreTokenizer"
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("handle_chinese_chars") is True
    )


def _is_pieces(definition: Mapping[str, Any]) -> bool:
    """Whether texts are merged whole, with `▁` for blanks. Only an unknown token keeps apart what stands beside it."""
    model = definition["model"]
    return (
        model.get("type") == "BPE"
        and model.get("unk_token") in model["vocab"]
        and not any(model.get(name) for name in _ODD_MERGES)
        and definition.get("normalizer") == _PIECES_NORMALIZER
        and not definition.get("pre_tokenizer")
    )


def _keeps(pattern: re.Pattern[str], merges: Iterable[str | Sequence[str]]) -> bool:
    """Whether no merged piece is cut: then none can ever reach over a cut, for two characters decide about it."""
    pieces = {merge.replace(" ", "") if isinstance(merge, str) else "".join(merge) for merge in merges}
    return all(map(pattern.fullmatch, pieces))


def by_chunks(encode: Tokenize, definition: Mapping[str, Any]) -> Tokenize:
    """The same tokens as `encode` gives, sooner where texts may be cut."""
    cuts = chunking(definition)
    if cuts is None:
        return encode
    once, twice = list(encode(cuts.mark)), list(encode(cuts.mark * 2))
    # A mark that the tokenizer does not know, or joins, cannot tell chunks apart.
    return _ChunkTokenizer(encode, cuts, mark=once[-1]) if once and twice == [*once, once[-1]] else encode


class _ChunkTokenizer:
    """Tokens of texts by those of their chunks. Threads may share it: what is known is only ever added to."""

    def __init__(self, encode: Tokenize, cuts: Chunking, *, mark: int) -> None:
        self._encode = encode
        self._cuts = cuts
        self._mark = mark
        self._known = self._least()

    def __call__(self, text: str) -> Sequence[int] | Ints:
        cuts, known = self._cuts, self._known
        if not text or any(token in text for token in cuts.whole):
            return self._encode(text)
        chunks = cuts.pattern.findall(cuts.lead + text)
        missing = [chunk for chunk in chunks if chunk not in known]
        if not missing:
            return np.frombuffer(b"".join(map(known.__getitem__, chunks)), np.int64)
        fresh = self._learn(list(dict.fromkeys(missing)))
        if fresh is None:
            return self._encode(text)
        return np.frombuffer(b"".join(fresh[chunk] if chunk in fresh else known[chunk] for chunk in chunks), np.int64)

    def _learn(self, chunks: Sequence[str]) -> dict[str, bytes] | None:
        """The tokens of chunks, encoded at once, each after a mark; None where something swallowed a mark."""
        parts = self._parts(self._encode("".join([self._cuts.mark + chunk for chunk in chunks])))
        if len(parts) != len(chunks):
            return None
        fresh = {chunk: _bytes(part) for chunk, part in zip(chunks, parts, strict=True)}
        if len(self._known) >= CHUNKS_REMEMBERED:
            self._known = self._least()
        self._known.update(item for item in fresh.items() if _is_short(*item))
        return fresh

    def _parts(self, ids: Iterable[int]) -> list[list[int]]:
        """What stands after each mark."""
        parts: list[list[int]] = []
        for token in ids:
            if token == self._mark:
                parts.append([])
            elif parts:
                parts[-1].append(token)
        return parts

    def _least(self) -> dict[str, bytes]:
        return {self._cuts.mark: _bytes([self._mark])}


def _bytes(ids: Sequence[int]) -> bytes:
    return array("q", ids).tobytes()


def _is_short(chunk: str, ids: bytes) -> bool:
    return len(chunk) <= LONGEST_REMEMBERED and len(ids) <= _TOKEN_BYTES * LONGEST_REMEMBERED
