"""Chroma: the nearest whole messages by cosine."""

from pathlib import Path
from typing import Any

import chromadb
from chromadb.config import Settings


class System:
    """A collection on disk."""

    def __init__(self, folder: Path, embed: Any) -> None:
        self._embed = embed
        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        self._collection = client.create_collection(
            "messages", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Store messages with their vectors."""
        for start in range(0, len(documents), 1000):
            batch = documents[start : start + 1000]
            texts = [one["text"] for one in batch]
            self._collection.add(ids=[one["id"] for one in batch], documents=texts, embeddings=self._embed(texts))

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages by vectors."""
        count = min(limit, self._collection.count())
        rows = self._collection.query(query_embeddings=self._embed([question]), n_results=count)
        return [
            {"id": number, "text": text, "score": 1 - distance}
            for number, text, distance in zip(rows["ids"][0], rows["documents"][0], rows["distances"][0], strict=True)
        ]
