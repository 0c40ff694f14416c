"""Where a memory rests: a file, or a folder of the plugin in place."""

import json
from pathlib import Path

import pytest

from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text
from holdfast.settings import Archive, Embedding, Settings
from holdfast.store.base import Job, Scope
from holdfast.store.folder import FolderStore
from holdfast.store.opening import store_file
from holdfast.store.sqlite import SqliteStore

SCOPE = Scope(session="abc")
HASHED = Settings(embedding=Embedding(provider="hash"))
LONG = "The harbour is open. " * 60


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A folder as the plugin leaves it: two segments, years old, and a fact."""
    folder = tmp_path / "context"
    folder.mkdir()
    lines = [
        {"id": f"u{n}", "sessionId": "abc", "timestamp": 1000 + n, "role": "user", "content": text, "tokens": 1}
        for n, text in enumerate(["We deploy to Frankfurt.", LONG])
    ]
    (folder / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    fact = {"id": "k", "type": "config", "content": "Deploys go to fra1", "timestamp": 5}
    (folder / "knowledge.jsonl").write_text(json.dumps(fact) + "\n", "utf-8")
    return folder


def test_a_folder_of_the_plugin_works_in_place(context: Path) -> None:
    """It opens, is searched by words and vectors, takes what is new, and stays the plugin's."""
    with Memory.open(context, settings=HASHED) as memory:
        assert isinstance(memory.store, FolderStore)
        assert memory.stats().messages == 2
        assert memory.waiting() == memory.store.counts()["passages"]
        assert memory.search("Frankfurt", scope=SCOPE)[0].text == "We deploy to Frankfurt."
        while memory.embed(limit=1):
            pass
        assert (memory.waiting(), memory.missing()) == (0, ())
        assert memory.search("Frankfurt", scope=SCOPE)[0].parts.cosine > 0
        memory.ingest([Message(role="user", parts=(Text(text="Now we deploy to Amsterdam."),))], scope=SCOPE)
        assert memory.waiting() == 1
        found = memory.recall(("where do we deploy",), scope=SCOPE)
        assert "Frankfurt" in found.block
        assert "Deploys go to fra1" in found.block
    lines = [json.loads(line) for line in (context / "segments.jsonl").read_text("utf-8").splitlines()]
    assert [line["content"] for line in lines][2] == "Now we deploy to Amsterdam."
    assert not (context / "holdfast.db").exists()


def test_only_bounds_that_were_set_hide_what_is_old(context: Path) -> None:
    """`archive.eviction_days` and `archive.max_segments` bound the index of a folder; unset, all is found."""
    for archive, expected in ((Archive(), 2), (Archive(eviction_days=90), 0), (Archive(max_segments=1), 1)):
        with Memory.open(context, settings=Settings(archive=archive, embedding=HASHED.embedding)) as memory:
            assert len({hit.message for hit in memory.search("deploy harbour", scope=SCOPE)}) == expected


def test_work_that_waits_is_kept_there_too(context: Path) -> None:
    """Jobs are found by their kind, oldest first, whosever they are."""
    with Memory.open(context, settings=HASHED) as memory:
        for name, number in (("a", 1), ("b", 2), ("a", 3)):
            memory.store.add_jobs([Job(scope=Scope(session=f"{number}"), kind=name, data={"n": number})])
        assert [job.data["n"] for job in memory.store.waiting("a", limit=9)] == [1, 3]
        assert [job.data["n"] for job in memory.store.waiting("a", limit=1)] == [1]


def test_a_store_of_ours_in_the_folder_comes_first(context: Path) -> None:
    """Where a file of our name is, that is the memory."""
    SqliteStore(context / "holdfast.db").close()
    assert store_file(context, settings=Settings()) == context / "holdfast.db"
    with Memory.open(context, settings=HASHED) as memory:
        assert isinstance(memory.store, SqliteStore)
