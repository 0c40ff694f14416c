"""Several static models as one: their vectors side by side, so that a cosine is the mean of theirs.

Models that were made differently err differently. Two small tables together find more than either, at the cost
of a longer vector; the store sees one space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from holdfast.search.embed.base import Embedder, Floats, Purpose, Space, text_digest

__all__ = ["JointEmbedder"]


class JointEmbedder:
    """Embeds a text by every model at once."""

    def __init__(self, embedders: Sequence[Embedder]) -> None:
        if not embedders:
            raise ValueError("a joint embedder needs a model")
        self._embedders = tuple(embedders)
        spaces = [embedder.space for embedder in self._embedders]
        self._space = Space(
            name="+".join(space.name for space in spaces),
            dimension=sum(space.dimension for space in spaces),
            digest=text_digest("joint", *(space.digest for space in spaces)),
        )

    @property
    def space(self) -> Space:
        """Named after all models; the digest is that of theirs, in order."""
        return self._space

    def __repr__(self) -> str:
        return f"JointEmbedder({list(self._embedders)!r})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """The models' vectors side by side, at length 1. A model that has no vector for a text adds nothing to it."""
        parts = [embedder.embed(texts, kind=kind) for embedder in self._embedders]
        known = np.stack([part.any(axis=1) for part in parts]).sum(axis=0)
        rows: Floats = np.concatenate(parts, axis=1, dtype=np.float32)
        rows /= np.sqrt(np.maximum(known, 1))[:, None]
        return rows
