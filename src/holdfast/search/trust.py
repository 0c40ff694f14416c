"""How far the vectors of a question can be trusted."""

from __future__ import annotations

from holdfast.search.embed.base import Embedder, behind_cache
from holdfast.search.embed.joint import JointEmbedder
from holdfast.search.embed.static import StaticEmbedder
from holdfast.text import is_unsegmented

__all__ = ["vector_trust"]


def vector_trust(embedder: Embedder | None, question: str) -> float:
    """How much of the vectors' weight counts for a question, 0 to 1.

    Static tables know nothing of scripts without spaces: the letters of such scripts take their share away.
    """
    letters = [character for character in question if character.isalpha()]
    if not letters or not isinstance(behind_cache(embedder), StaticEmbedder | JointEmbedder):
        return 1.0
    return 1 - sum(map(is_unsegmented, letters)) / len(letters)
