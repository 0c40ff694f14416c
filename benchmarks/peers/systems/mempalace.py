"""MemPalace: one conversation file per session, mined with `mine_convos` and searched with `search_memories`."""

import contextlib
import io
import json
import os
from itertools import groupby
from pathlib import Path
from typing import Any


class System:
    """A palace in a folder."""

    def __init__(self, folder: Path, embed: Any) -> None:
        os.environ["MEMPALACE_EMBEDDING_MODEL"] = "openai-compat"
        os.environ["MEMPALACE_EMBEDDING_API_URL"] = "http://127.0.0.1:9"  # never called: see below
        os.environ["MEMPALACE_EMBEDDING_API_MODEL"] = "shared"
        from mempalace import convo_miner, embedding, searcher  # noqa: PLC0415 - they read these variables

        embedding.OpenAICompatEmbeddingFunction.__call__ = lambda self, input: embed(list(input))  # noqa: ARG005
        self._mine = convo_miner.mine_convos
        self._search = searcher.search_memories
        self._files = folder / "conversations"
        self._files.mkdir()
        self._palace = str(folder / "palace")

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Write sessions as lists of messages, and mine them."""
        for session, group in groupby(documents, key=lambda one: one["session"]):
            turns = list(group)
            first = turns[0]["speaker"]
            messages = [{"role": choose_role(one, first), "content": one["text"]} for one in turns]
            (self._files / f"session-{session}.json").write_text(json.dumps(messages), "utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            self._mine(str(self._files), self._palace, wing="chats")

    def search(self, question: str, limit: int) -> list[dict[str, Any]]:
        """Find exchanges."""
        answer = self._search(question, self._palace, n_results=limit)
        if "results" not in answer:
            raise RuntimeError(str(answer))
        found = []
        for row in answer["results"]:
            session = int(Path(row["source_file"]).stem.removeprefix("session-"))
            found.append({"session": session, "text": row["text"], "score": row.get("similarity")})
        return found


def choose_role(document: dict[str, Any], first: str) -> str:
    """Return the role of a message. Of two people who talk to each other, the first one is the user."""
    if not document["speaker"]:
        return str(document["role"])
    return "user" if document["speaker"] == first else "assistant"
