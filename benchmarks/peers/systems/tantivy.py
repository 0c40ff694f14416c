"""tantivy with its English stemmer, over whole messages."""

import re
from pathlib import Path
from typing import Any

import tantivy


class System:
    """An index on disk."""

    def __init__(self, folder: Path, _: Any) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("id", stored=True, tokenizer_name="raw")
        builder.add_text_field("text", stored=True, tokenizer_name="en_stem")
        self._index = tantivy.Index(builder.build(), path=str(folder))
        self._writer = self._index.writer(num_threads=1)

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Index messages."""
        for one in documents:
            self._writer.add_document(tantivy.Document(id=one["id"], text=one["text"]))
        self._writer.commit()
        self._index.reload()

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find messages that have any of the words."""
        words = " ".join(re.findall(r"\w+", question))  # without the signs of the query language
        query, _ = self._index.parse_query_lenient(words, ["text"])
        searcher = self._index.searcher()
        found = []
        for score, address in searcher.search(query, limit).hits:
            document = searcher.doc(address)
            found.append({"id": document["id"][0], "text": document["text"][0], "score": score})
        return found
