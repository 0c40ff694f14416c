"""The memory store of LangGraph with an index: the nearest whole messages by cosine."""

from pathlib import Path
from typing import Any

from langgraph.store.memory import InMemoryStore

NAMESPACE = ("messages",)


class System:
    """A store in memory."""

    def __init__(self, _: Path, embed: Any) -> None:
        dims = len(embed(["size"])[0])
        self._store = InMemoryStore(index={"dims": dims, "embed": embed, "fields": ["text"]})

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Store messages one by one: a batch with two equal texts fails."""
        for one in documents:
            self._store.put(NAMESPACE, one["id"], {"text": one["text"]})

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages by vectors."""
        rows = self._store.search(NAMESPACE, query=question, limit=limit)
        return [{"id": row.key, "text": row.value["text"], "score": row.score} for row in rows]
