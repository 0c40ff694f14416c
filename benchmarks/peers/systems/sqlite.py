"""SQLite with FTS5 and sqlite-vec, joined by reciprocal rank fusion, over passages of at most 600 characters.

APSW, because the `sqlite3` of many Pythons cannot load extensions.
"""

import re
from pathlib import Path
from typing import Any

import apsw
import sqlite_vec

CHARS = 600
RRF = 60


class System:
    """One file with two tables."""

    def __init__(self, folder: Path, embed: Any) -> None:
        self._embed = embed
        self._db = apsw.Connection(str(folder / "memory.db"))
        self._db.enable_load_extension(True)  # noqa: FBT003 - APSW takes it by place
        self._db.load_extension(sqlite_vec.loadable_path())
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("CREATE VIRTUAL TABLE words USING fts5(text, id UNINDEXED, tokenize = 'porter unicode61')")
        self._has_vectors = False

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Store passages with their vectors."""
        passages = [(one["id"], text) for one in documents for text in cut(one["text"])]
        vectors = self._embed([text for _, text in passages])
        if not self._has_vectors:
            self._db.execute(f"CREATE VIRTUAL TABLE meaning USING vec0(vector float[{len(vectors[0])}])")
            self._has_vectors = True
        with self._db:
            for (number, text), vector in zip(passages, vectors, strict=True):
                self._db.execute("INSERT INTO words (text, id) VALUES (?, ?)", (text, number))
                row = self._db.last_insert_rowid()
                values = (row, sqlite_vec.serialize_float32(vector))
                self._db.execute("INSERT INTO meaning (rowid, vector) VALUES (?, ?)", values)

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find passages by words and by vectors."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        by_words = self._db.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (words, limit))
        vector = sqlite_vec.serialize_float32(self._embed([question])[0])
        statement = "SELECT rowid FROM meaning WHERE vector MATCH ? AND k = ? ORDER BY distance"
        by_vectors = self._db.execute(statement, (vector, limit))
        scores: dict[int, float] = {}
        for rows in (list(by_words), list(by_vectors)):
            for rank, (row,) in enumerate(rows, 1):
                scores[row] = scores.get(row, 0.0) + 1 / (RRF + rank)
        found = []
        for row in sorted(scores, key=lambda row: -scores[row])[:limit]:
            ((number, text),) = self._db.execute("SELECT id, text FROM words WHERE rowid = ?", (row,))
            found.append({"id": number, "text": text, "score": scores[row]})
        return found


def cut(text: str) -> list[str]:
    """Cut a text at line ends, sentence ends or spaces into pieces of at most 600 characters."""
    pieces = []
    while len(text) > CHARS:
        part = text[:CHARS]
        place = max(part.rfind("\n"), part.rfind(". "), part.rfind("。"))
        if place < CHARS // 2:
            place = max(part.rfind(" "), CHARS // 2)
        pieces.append(text[: place + 1])
        text = text[place + 1 :]
    return [piece for piece in (*pieces, text) if piece.strip()]
