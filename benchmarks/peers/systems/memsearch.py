"""memsearch: one Markdown file per session with a heading for each message, in Milvus Lite."""

import asyncio
from itertools import groupby
from pathlib import Path
from typing import Any

from memsearch import core


class Shared:
    """The vectors of the benchmark."""

    model_name = "shared"
    batch_size = 1000

    def __init__(self, embed: Any) -> None:
        self._embed = embed
        self.dimension = len(embed(["size"])[0])

    async def embed(self, texts: list[str]) -> list[list[float]]:
        """Embed texts."""
        return list(self._embed(texts))


class System:
    """A folder of Markdown files and the index over it."""

    def __init__(self, folder: Path, embed: Any) -> None:
        core.get_provider = lambda *_, **__: Shared(embed)
        self._files = folder / "memory"
        self._files.mkdir()
        self._memory = core.MemSearch([self._files], milvus_uri=str(folder / "milvus.db"))

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Write sessions, and index the files that are new."""
        for session, group in groupby(documents, key=lambda one: one["session"]):
            parts = [f"## {one['speaker'] or one['role']}\n\n{one['text']}\n" for one in group]
            (self._files / f"session-{session}.md").write_text("\n".join(parts), "utf-8")
        report = asyncio.run(self._memory.index_with_report())
        if report.failed_files:
            raise RuntimeError(str(report.failed_files[0]))

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find parts of the files."""
        rows = asyncio.run(self._memory.search(question, top_k=limit))
        found = []
        for row in rows:
            session = int(Path(row["source"]).stem.removeprefix("session-"))
            found.append({"session": session, "text": row["content"], "score": row["score"]})
        return found
