"""The vectors of passages, one for each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.search.embed.base import Embedder
from holdfast.search.vectors import quantise
from holdfast.store.base import PassageText, VectorRow

__all__ = ["vector_rows"]

_PLAIN_SPEAKERS: Final = frozenset({"user", "assistant", "tool", "system"})


def vector_rows(passages: Sequence[PassageText], embedder: Embedder) -> list[VectorRow]:
    """The rows that give passages their vectors."""
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
    """The texts of a passage's windows, with the speaker's name in front where there is one."""
    name = "" if passage.speaker in _PLAIN_SPEAKERS else f"{passage.speaker}: "
    return [name + passage.text[start:stop] for start, stop in passage.windows]
