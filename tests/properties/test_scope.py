"""I9 and I12 through the memory: no reader sees the rows of others, and no model the vectors of another model."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.embed import Choice, HashEmbedder
from holdfast.memory import transfer
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text
from holdfast.settings import Settings
from holdfast.store.base import Scope
from holdfast.store.folder import FolderStore
from holdfast.store.sqlite import SqliteStore
from support.strategies import examples

scopes = st.builds(
    Scope,
    tenant=st.sampled_from(["a", "b", ""]),
    project=st.sampled_from(["", "p", "a"]),
    agent=st.sampled_from(["main", "x"]),
    session=st.sampled_from(["1", "2", "a"]),
)


def sees(reader: Scope, owner: Scope, *, across: bool) -> bool:
    """Return whether a reader may see the rows of an owner."""
    return reader == owner or (across and replace(owner, session=reader.session) == reader)


@settings(max_examples=examples(15), deadline=None)
@given(owners=st.lists(scopes, min_size=1, max_size=6, unique=True), reader=scopes, across=st.booleans())
def test_no_read_crosses(owners: list[Scope], reader: Scope, across: bool) -> None:  # noqa: FBT001 - drawn
    """Search, recall, get, facts, scores and export show exactly what the reader may see."""
    with tempfile.TemporaryDirectory() as home:
        choice = Choice(embedder=HashEmbedder(dimension=8), reasons=())
        with Memory(store=SqliteStore(Path(home) / "a.db"), settings=Settings(), choice=choice) as memory:
            message = {}
            for number, owner in enumerate(owners):
                text = f"the harbour of owner{number} is open"
                (message[number],) = memory.ingest([Message(role="user", parts=(Text(text=text),))], scope=owner)
                memory.remember(f"harbour fact{number}", scope=owner)
            memory.embed()
            mine = {number for number, owner in enumerate(owners) if sees(reader, owner, across=across)}
            hits = {hit.message for hit in memory.search("harbour owner", scope=reader, across=across, limit=50)}
            assert hits == {message[number] for number in mine}
            rows = memory.get(list(message.values()), scope=reader, across=across, around=5)
            assert {row.id for row in rows} == hits
            held = {fact.content for fact in memory.facts(scope=reader, across=across)}
            assert held == {f"harbour fact{number}" for number in mine}
            block = memory.recall(("the harbour of owner is open",), scope=reader, across=across).block
            assert not any(f"owner{n} " in block or f"fact{n}\n" in block for n in message if n not in mine)
            scored = memory.scores(("harbour owner",), scope=reader)
            assert set(scored) <= {message[n] for n, owner in enumerate(owners) if owner == reader}
            transfer.save_folder(memory.store, [reader], Path(home) / "out")
        with FolderStore(Path(home) / "out") as files:
            assert all(sees(reader, owner, across=True) for owner in files.scopes())


@pytest.mark.parametrize("dimension", [8, 16])
def test_vectors_of_two_models_never_meet(tmp_path: Path, dimension: int) -> None:
    """I12: with another model, the same store is searched by words until that model has embedded it."""
    scope = Scope(session="s")
    with SqliteStore(tmp_path / "a.db") as store:
        memory = Memory(
            store=store, settings=Settings(), choice=Choice(embedder=HashEmbedder(dimension=12), reasons=())
        )
        memory.ingest([Message(role="user", parts=(Text(text="the harbour is open"),))], scope=scope)
        memory.embed()
        assert memory.search("harbour", scope=scope)[0].parts.cosine > 0
        other = Memory(
            store=store, settings=Settings(), choice=Choice(embedder=HashEmbedder(dimension=dimension), reasons=())
        )
        assert other.search("harbour", scope=scope)[0].parts.cosine == 0
        other.embed()
        assert other.search("harbour", scope=scope)[0].parts.cosine > 0
        assert memory.search("harbour", scope=scope)[0].parts.cosine > 0
