"""bm25s with its English stop words and a Snowball stemmer, over whole messages."""

from pathlib import Path
from typing import Any

import bm25s
import Stemmer


class System:
    """An index in memory. It cannot grow, so it is made again."""

    def __init__(self, _: Path, __: Any) -> None:
        self._stemmer = Stemmer.Stemmer("english")
        self._documents: list[dict[str, Any]] = []
        self._index: Any = None

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Index all messages."""
        self._documents += documents
        self._index = bm25s.BM25()
        self._index.index(self._tokenize([one["text"] for one in self._documents]), show_progress=False)

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages by words."""
        count = min(limit, len(self._documents))
        numbers, scores = self._index.retrieve(self._tokenize([question]), k=count, show_progress=False)
        found = []
        for number, score in zip(numbers[0].tolist(), scores[0].tolist(), strict=True):
            if score > 0:
                document = self._documents[number]
                found.append({"id": document["id"], "text": document["text"], "score": score})
        return found

    def _tokenize(self, texts: list[str]) -> Any:
        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)
