"""Which of the nearest passages a PostgreSQL store finds whose vectors stay on the server, on real questions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.archive_rows import make_rows
from benchmarks.datasets import Conversation
from benchmarks.postgres import SCHEMA, server
from holdfast.embed import Embedder
from holdfast.memory.embedding import vector_rows
from holdfast.messages import Message, Text
from holdfast.store.base import Scope, SearchQuery
from holdfast.store.postgres import PostgresStore

__all__ = ["measure"]

_DEPTHS: Final = (10, 50)
_BATCH: Final = 1000
_LIMITS: Final[dict[str, dict[str, int]]] = {
    "all vectors": {"max_loaded_windows": 1 << 40},
    "signs in memory": {"max_loaded_windows": 0},
    "index of signs": {"max_loaded_windows": 0, "max_loaded_signs": 0},
}


def measure(conversations: Iterable[Conversation], *, embedder: Embedder, questions: int) -> dict[str, dict[str, Any]]:
    """Store conversations for one tenant, and return the share of the truly nearest passages that each way finds."""
    known = list(conversations)
    asked = [question.text for conversation in known for question in conversation.questions]
    asked = asked[:: max(1, len(asked) // questions)]
    with TemporaryDirectory() as name, server(Path(name)) as address, ExitStack() as stack:
        stores = {
            way: stack.enter_context(PostgresStore(address, home=Path(), schema=SCHEMA, timeout=0, **limits))
            for way, limits in _LIMITS.items()
        }
        store = stores["index of signs"]
        _fill(store, known, embedder)
        vectors = embedder.embed(asked, kind="query")
        exact, *others = ([_nearest(one, vector, embedder) for vector in vectors] for one in stores.values())
        passages = store.counts()["passages"]
    return {
        way: {"passages": passages, "questions": len(asked)}
        | {f"top {depth}": _share(exact, found, depth) for depth in _DEPTHS}
        for way, found in zip(list(stores)[1:], others, strict=True)
    }


def _fill(store: PostgresStore, conversations: Iterable[Conversation], embedder: Embedder) -> None:
    for number, conversation in enumerate(conversations):
        said = [
            Message(role="user", parts=(Text(text=turn.text),))
            for session in conversation.sessions
            for turn in session.turns
        ]
        for start in range(0, len(said), _BATCH):
            rows = make_rows(said[start : start + _BATCH], scope=Scope(session=f"{number} {start}"))
            store.add_messages(rows)
    while missing := store.without_vectors(embedder.space, limit=_BATCH):
        store.add_vectors(vector_rows(missing, embedder))
    store.index_vectors()


def _nearest(store: PostgresStore, vector: Any, embedder: Embedder) -> list[int]:
    """Return the nearest passages, by the cosine of their best window."""
    query = SearchQuery(scope=Scope(session="0"), across=True, terms={}, vector=vector, space=embedder.space)
    found = store.search(query)
    assert found.cosine is not None
    order: list[int] = found.passages[np.argsort(-found.cosine, kind="stable")][: max(_DEPTHS)].tolist()
    return order


def _share(exact: list[list[int]], found: list[list[int]], depth: int) -> float:
    hits = sum(len({*right[:depth]} & {*ours[:depth]}) for right, ours in zip(exact, found, strict=True))
    return round(hits / sum(len(right[:depth]) for right in exact), 4)
