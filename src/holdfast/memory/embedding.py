"""Embed passages: one vector for each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.search.embed.base import Embedder
from holdfast.search.vectors import quantise
from holdfast.store.base import PassageText, VectorRow

__all__ = ["vector_rows"]

_ROLES: Final = frozenset({"user", "assistant", "tool", "system"})


def vector_rows(passages: Sequence[PassageText], embedder: Embedder) -> list[VectorRow]:
    """Embed passages, and make the rows of their vectors."""
    texts = [window for passage in passages for window in _windows(passage)]
    vectors = quantise(embedder.embed(texts, kind="passage"))
    rows: list[VectorRow] = []
    start = 0
    for passage in passages:
        stop = start + len(passage.windows)
        rows.append(VectorRow(space=embedder.space, passage=passage.number, vectors=vectors[start:stop]))
        start = stop
    return rows


def _windows(passage: PassageText) -> list[str]:
    """List the texts of a passage's windows, each after the name of the speaker where there is one."""
    name = "" if passage.speaker in _ROLES else f"{passage.speaker}: "
    return [name + passage.text[start:stop] for start, stop in passage.windows]
