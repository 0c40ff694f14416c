"""mem0 with `infer=False`: messages as they are, in Qdrant's local mode."""

import os
from pathlib import Path
from typing import Any


class Shared:
    """The vectors of the benchmark, in place of those of a provider."""

    def __init__(self, embed: Any) -> None:
        self._embed = embed

    def embed(self, text: str, _: str = "add") -> list[float]:
        """Embed a text."""
        return list(self._embed([text])[0])

    def embed_batch(self, texts: list[str], _: str = "add") -> list[list[float]]:
        """Embed texts."""
        return list(self._embed(texts))


class System:
    """A memory of one user."""

    def __init__(self, folder: Path, embed: Any) -> None:
        os.environ["MEM0_TELEMETRY"] = "False"
        os.environ["MEM0_DIR"] = str(folder / "home")
        os.environ["OPENAI_API_KEY"] = "unused"  # a client is made, though no model is called
        from mem0 import Memory  # noqa: PLC0415 - it reads these variables when it is imported

        dims = len(embed(["size"])[0])
        store = {"collection_name": "messages", "path": str(folder / "qdrant"), "embedding_model_dims": dims}
        config = {
            "vector_store": {"provider": "qdrant", "config": {**store, "on_disk": True}},
            "history_db_path": str(folder / "history.db"),
        }
        self._memory = Memory.from_config(config)
        self._memory.embedding_model = Shared(embed)

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Add messages one by one: the metadata of a call is that of all its messages."""
        for one in documents:
            message = {"role": one["role"], "content": one["text"]}
            self._memory.add([message], user_id="user", metadata={"document": one["id"]}, infer=False)

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages."""
        rows = self._memory.search(question, filters={"user_id": "user"}, top_k=limit)["results"]
        return [{"id": row["metadata"]["document"], "text": row["memory"], "score": row["score"]} for row in rows]

    def close(self) -> None:
        """Close the vector store, which would keep all messages in memory."""
        self._memory.vector_store.client.close()
