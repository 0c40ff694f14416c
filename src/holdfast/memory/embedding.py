"""Embed passages, one vector for each window, and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.calls import Deadline, start_thread
from holdfast.embed.base import Embedder, Floats, Space, behind_cache
from holdfast.errors import EmbeddingError
from holdfast.index.vectors import quantise
from holdfast.store.base import PassageText, VectorRow

_PROVIDER_SHARE: Final = 0.7
"""The share of the remaining time that a remote provider may take. The search itself needs the rest."""


def vector_rows(passages: Sequence[PassageText], embedder: Embedder) -> list[VectorRow]:
    """Embed the windows of passages, with the speaker's name if there is one, and make the rows of their vectors."""
    texts: list[str] = []
    for passage in passages:
        name = ""
        if passage.name:
            name = f"{passage.name}: "
        for start, stop in passage.windows:
            texts.append(name + passage.text[start:stop])
    vectors = quantise(embedder.embed(texts, kind="passage"))
    rows: list[VectorRow] = []
    start = 0
    for passage in passages:
        stop = start + len(passage.windows)
        rows.append(VectorRow(space=embedder.space, passage=passage.number, vectors=vectors[start:stop]))
        start = stop
    return rows


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The vector of a query and its space. Both are None if there is none; `warning` may say why."""

    vector: Floats | None = None
    space: Space | None = None
    warning: str = ""


def embed_query(embedder: Embedder | None, text: str, *, deadline: Deadline) -> QueryVector:
    """Embed a query, or give up in time.

    If a remote provider fails or is slow, the search goes on without it. A late vector is cached for the next time.
    """
    if embedder is None:
        return QueryVector()
    left = deadline.remaining
    if left is None:
        return _embed(embedder, text)
    from holdfast.embed.remote import RemoteEmbedder  # noqa: PLC0415 - only if there is a deadline

    if not isinstance(behind_cache(embedder), RemoteEmbedder):  # an embedder on this machine needs no thread
        return _embed(embedder, text)
    seconds = _PROVIDER_SHARE * left
    try:
        return start_thread(lambda: _embed(embedder, text), name="holdfast-query").result(timeout=seconds)
    except TimeoutError:
        return QueryVector(warning=f"{embedder.space.name} did not answer in {1000 * seconds:.0f} ms")


def _embed(embedder: Embedder, text: str) -> QueryVector:
    try:
        return QueryVector(embedder.embed([text], kind="query")[0], embedder.space)
    except EmbeddingError as error:
        return QueryVector(warning=str(error))
