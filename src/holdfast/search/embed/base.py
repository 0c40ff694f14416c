"""What an embedder promises, and what all of them share: identity, clean text, unit vectors, batches, the cache."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.tokens import count_text

__all__ = [
    "CachedEmbedder",
    "Embedder",
    "Floats",
    "Purpose",
    "Space",
    "batches",
    "behind_cache",
    "clean",
    "file_digest",
    "text_digest",
    "unit",
]

Floats: TypeAlias = npt.NDArray[np.float32]
Purpose: TypeAlias = Literal["query", "passage"]
"""What a text is embedded for: to ask, or to be found. Some models want to know."""

QUERIES_REMEMBERED: Final = 128
BATCH_TOKENS: Final = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The identity of an embedding model: vectors of different spaces never meet."""

    name: str
    dimension: int
    digest: str


class Embedder(Protocol):
    """Turns text into vectors."""

    @property
    def space(self) -> Space:
        """The space of its vectors. It never changes, and two embedders share one only if their vectors agree."""
        ...

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """One row for each text, of length 1; a text without content is a row of zeros.

        The same text has the same row whatever stands beside it. What cannot be embedded is an `EmbeddingError`.
        """
        ...


def clean(text: str) -> str:
    """The text as UTF-8 can carry it: surrogate pairs joined, half ones replaced, blanks at the ends gone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.strip()


def unit(rows: npt.NDArray[np.floating]) -> Floats:
    """The rows at length 1; one that has no length, or is not made of numbers, is all zeros."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    usable = np.isfinite(lengths) & (lengths > 0)
    scaled: Floats = np.divide(wide, lengths, out=np.zeros_like(wide), where=usable).astype(np.float32)
    return scaled


def text_digest(*parts: str) -> str:
    """A digest of an identity that is told by words: 32 hexadecimal characters."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def file_digest(paths: Iterable[Path], *parts: str) -> str:
    """A digest of what files hold, in order, and of words that go with them: 32 hexadecimal characters."""
    whole = hashlib.sha256("\0".join(parts).encode())
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:32]


def batches(texts: Sequence[str], *, size: int, tokens: int = BATCH_TOKENS) -> Iterator[Sequence[str]]:
    """Consecutive texts in groups of at most `size`, and of about `tokens` tokens where texts are not longer."""
    start = held = 0
    for index, text in enumerate(texts):
        cost = count_text(text)
        if index > start and (index - start >= size or held + cost > tokens):
            yield texts[start:index]
            start, held = index, 0
        held += cost
    if start < len(texts):
        yield texts[start:]


class CachedEmbedder:
    """An embedder that remembers the vectors of the last questions, trimmed. Threads may share it."""

    def __init__(self, embedder: Embedder, *, size: int = QUERIES_REMEMBERED) -> None:
        self.embedder = embedder
        self._size = size
        self._rows: OrderedDict[str, Floats] = OrderedDict()
        self._lock = Lock()

    @property
    def space(self) -> Space:
        """The space of the embedder behind."""
        return self.embedder.space

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.embedder!r}, size={self._size})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """As the embedder behind does; a question that was asked lately costs nothing. Passages are not kept."""
        if kind != "query" or self._size <= 0:
            return self.embedder.embed(texts, kind=kind)
        keys = [text.strip() for text in texts]
        known = self._known(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        if missing:
            found = dict(zip(missing, self.embedder.embed(missing, kind=kind), strict=True))
            self._keep(found)
            known |= found
        return np.stack([known[key] for key in keys]) if keys else np.zeros((0, self.space.dimension), np.float32)

    def _known(self, keys: Iterable[str]) -> dict[str, Floats]:
        with self._lock:
            known = {key: self._rows[key] for key in keys if key in self._rows}
            for key in known:
                self._rows.move_to_end(key)
            return known

    def _keep(self, rows: dict[str, Floats]) -> None:
        with self._lock:
            # A row of zeros is cheap to make again, and may come from a provider that had a bad moment.
            self._rows.update((key, row) for key, row in rows.items() if row.any())
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)


def behind_cache(embedder: Embedder | None) -> Embedder | None:
    """The embedder itself, where questions are remembered before it."""
    return embedder.embedder if isinstance(embedder, CachedEmbedder) else embedder
