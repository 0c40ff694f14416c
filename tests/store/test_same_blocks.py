"""SQLite and PostgreSQL return the same block for the same question, byte for byte."""

from pathlib import Path

import pytest

from benchmarks.datasets import Conversation, load
from benchmarks.recall import Archive
from holdfast.embed.hashed import HashEmbedder
from holdfast.memory.recall import recall
from holdfast.search.relevance import ALWAYS, NORMAL
from holdfast.store.base import Store
from holdfast.store.sqlite import SqliteStore
from support.external_data import DATA, needs_data
from support.postgres_server import open_postgres

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"
EMBEDDER = HashEmbedder()


def blocks(conversation: Conversation, store: Store, folder: Path) -> list[str]:
    """The blocks of the first questions, with vectors and by words alone; also of those that get a small block."""
    archive = Archive(conversation, folder, embedder=EMBEDDER, store=store)
    archive.grow(len(conversation.sessions))
    requests = [
        archive.request(question, cap=cap, eagerness=eagerness)
        for question in conversation.questions[:20]
        for cap, eagerness in ((4000, NORMAL), (500, ALWAYS))
    ]
    return [recall(store, request, embedder=each).block for request in requests for each in (EMBEDDER, None)]


def compare(conversation: Conversation, folder: Path) -> None:
    """Archive a conversation in both stores, and ask both."""
    with SqliteStore(folder / "store.db") as store, open_postgres(folder) as server:
        found = blocks(conversation, store, folder)
        assert any(found)
        assert blocks(conversation, server, folder) == found


@pytest.mark.parametrize(("name", "path"), [("locomo", "locomo.json"), ("beam", "beam"), ("squad", "squad.json")])
def test_small_archives(name: str, path: str, tmp_path: Path) -> None:
    """Conversations, long messages, and articles."""
    compare(load(name, FILES / path)[0], tmp_path)


@pytest.mark.nightly
@needs_data("locomo")
def test_a_real_conversation(tmp_path: Path) -> None:
    """The longest conversation of the public LoCoMo data that is there."""
    talks = load("locomo", DATA / "locomo" / "locomo_dev.json")
    compare(max(talks, key=lambda conversation: sum(len(session.turns) for session in conversation.sessions)), tmp_path)
