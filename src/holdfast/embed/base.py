"""The protocol of an embedder, and what all of them share: identity, clean text, unit vectors, batches, the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.cache import LruCache
from holdfast.tokens import count_text

Floats: TypeAlias = npt.NDArray[np.float32]
Purpose: TypeAlias = Literal["query", "passage"]
"""The purpose of an embedding. Some models treat queries and passages differently."""

MAX_CACHED_QUERIES: Final = 128
MAX_CACHED_PASSAGES: Final = 4_096
"""About 10 MB with vectors of 384 numbers, 55 MB with 3,072.

In sessions of coding agents, 26 % of the windows repeat one of the 4,096 texts before them.
"""
MAX_BATCH_TOKENS: Final = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The identity of an embedding model. Vectors of different spaces are never compared."""

    name: str
    dimension: int
    digest: str


class Embedder(Protocol):
    """Turns text into vectors."""

    @property
    def space(self) -> Space:
        """The space of its vectors. It never changes; two embedders share one only if their vectors agree."""

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Return one row of length 1 for each text; a row of zeros for a text without content.

        The same text has the same row whatever other texts are embedded with it.

        Raises:
            EmbeddingError: The texts cannot be embedded.
        """


def clean(text: str) -> str:
    """Return the text without surrogates, which UTF-8 cannot encode, and without white space at its ends."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.strip()


def unit(rows: npt.NDArray[np.floating]) -> Floats:
    """Scale rows to length 1; rows of length 0 and rows with NaN or infinity become zeros."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    usable = np.isfinite(lengths) & (lengths > 0)
    scaled: Floats = np.divide(wide, lengths, out=np.zeros_like(wide), where=usable).astype(np.float32)
    return scaled


def make_digest(*parts: str, files: Iterable[Path] = ()) -> str:
    """Return a digest of strings and of the contents of files, in order: 32 hexadecimal characters."""
    combined = hashlib.sha256("\0".join(parts).encode())
    for path in files:
        with path.open("rb") as file:
            combined.update(hashlib.file_digest(file, "sha256").digest())
    return combined.hexdigest()[:32]


def batches(texts: Sequence[str], *, size: int, tokens: int = MAX_BATCH_TOKENS) -> Iterator[Sequence[str]]:
    """Group consecutive texts, at most `size` and about `tokens` tokens in a group."""
    start = 0
    total = 0
    for index, text in enumerate(texts):
        cost = count_text(text)
        is_full = index - start >= size or total + cost > tokens
        if index > start and is_full:
            yield texts[start:index]
            start = index
            total = 0
        total += cost
    if start < len(texts):
        yield texts[start:]


class CachedEmbedder:
    """An embedder with a cache for the vectors of recent queries and passages. Threads may share it."""

    def __init__(self, embedder: Embedder, *, size: int = MAX_CACHED_QUERIES) -> None:
        self.embedder = embedder
        self.space = embedder.space
        self._size = size
        # Separate, so that an import does not drop the queries.
        self._caches: dict[Purpose, LruCache[str, Floats]] = {
            "query": LruCache(size),
            "passage": LruCache(MAX_CACHED_PASSAGES),
        }
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"CachedEmbedder({self.embedder!r}, size={self._size})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Embed with the wrapped embedder, or from the cache. The same text is embedded once."""
        cache = self._caches[kind]
        keys = [text.strip() for text in texts]
        if not keys:
            return np.zeros((0, self.space.dimension), np.float32)
        rows: dict[str, Floats] = {}
        with self._lock:
            for key in keys:
                known = cache.get(key)
                if known is not None:
                    rows[key] = known
        missing = [key for key in dict.fromkeys(keys) if key not in rows]
        if missing:
            for key, row in zip(missing, self.embedder.embed(missing, kind=kind), strict=True):
                rows[key] = row
                # A row of zeros is cheap to make again, and may come from a temporary fault of a provider.
                if row.any():
                    with self._lock:
                        cache[key] = row.copy()  # a row alone would keep all rows of its batch
        return np.stack([rows[key] for key in keys])


def behind_cache(embedder: Embedder | None) -> Embedder | None:
    """Return the embedder that a cache wraps, or the embedder itself."""
    return embedder.embedder if isinstance(embedder, CachedEmbedder) else embedder
