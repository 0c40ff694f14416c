"""LanceDB: hybrid search with its default re-ranker (reciprocal rank fusion), over whole messages."""

from pathlib import Path
from typing import Any

import lancedb
from lancedb.rerankers import RRFReranker


class System:
    """A table with a full-text index. So few rows need no index of vectors: every row is compared."""

    def __init__(self, folder: Path, embed: Any) -> None:
        self._embed = embed
        self._db = lancedb.connect(str(folder))
        self._table: Any = None
        self._reranker = RRFReranker()

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Store messages with their vectors, and index their words."""
        vectors = self._embed([one["text"] for one in documents])
        rows = [
            {"id": one["id"], "text": one["text"], "vector": vector}
            for one, vector in zip(documents, vectors, strict=True)
        ]
        if self._table is None:
            self._table = self._db.create_table("messages", rows)
            self._table.create_fts_index("text")
        else:
            self._table.add(rows)
            self._table.optimize()

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages by words and vectors."""
        vector = self._embed([question])[0]
        query = self._table.search(query_type="hybrid").vector(vector).text(question)
        rows = query.distance_type("cosine").rerank(self._reranker).limit(limit).to_list()
        return [{"id": row["id"], "text": row["text"], "score": row["_relevance_score"]} for row in rows]
