"""LlamaIndex: documents in a vector index, and its retriever."""

from pathlib import Path
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding


class Shared(BaseEmbedding):
    """The vectors of the benchmark."""

    function: Any

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return list(self.function(texts))

    def _get_text_embedding(self, text: str) -> list[float]:
        return list(self.function([text])[0])

    def _get_query_embedding(self, query: str) -> list[float]:
        return list(self.function([query])[0])

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class System:
    """An index in memory, with the default splitter of documents."""

    def __init__(self, _: Path, embed: Any) -> None:
        self._index = VectorStoreIndex.from_documents([], embed_model=Shared(function=embed, embed_batch_size=1000))

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Store messages; a long one is split."""
        self._index.refresh_ref_docs([Document(text=one["text"], id_=one["id"]) for one in documents])

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find passages by vectors."""
        rows = self._index.as_retriever(similarity_top_k=limit).retrieve(question)
        return [{"id": row.node.ref_doc_id, "text": row.node.get_content(), "score": row.score} for row in rows]
