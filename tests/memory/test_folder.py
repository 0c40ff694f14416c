"""Memory as a memory-context folder: out, in, and in again."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.embed import Choice, HashEmbedder, StaticEmbedder
from holdfast.errors import StorageError
from holdfast.memory import transfer
from holdfast.memory.block import Detail, render
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.settings import Settings
from holdfast.store import opening
from holdfast.store.base import FactRow, MessageRow, Scope, Select
from holdfast.store.folder import FolderStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.vmem import read_vectors
from support.embed_models import static_folder

SCOPE = Scope(project="atlas", session="s1")
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
SAID = [
    Message(role="user", parts=(Text(text="We deploy to Frankfurt on Tuesdays."),), timestamp=1000, id="e1"),
    Message(
        role="assistant",
        parts=(Text(text="I look it up."), ToolCall(id="c1", name="read", arguments={"path": "deploy.md"})),
        timestamp=2000,
        id="e2",
    ),
    Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="region: fra1"),)),), timestamp=3000),
    Message(role="user", parts=(Text(text=f"The token is {TOKEN}, keep it safe."),), timestamp=4000),
    Message(role="user", parts=(Text(text="ok"),), timestamp=5000),
    Message(role="user", parts=(Text(text="时间容差是三百秒。"),), timestamp=6000, name="李雷"),
]


def open_memory(path: Path) -> Memory:
    """A memory with hash vectors."""
    choice = Choice(embedder=HashEmbedder(), reasons=())
    return Memory(store=SqliteStore(path / "holdfast.db"), settings=Settings(), choice=choice, clock=lambda: 9000)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A session with words, a tool, a secret and noise; a fact that rests on it, and one that took its place."""
    with open_memory(tmp_path / "from") as memory:
        numbers = memory.ingest(SAID, scope=SCOPE)
        memory.ingest([SAID[0]], scope=Scope(project="atlas", session="s2"))
        memory.pin(numbers[:1], scope=SCOPE)
        memory.exclude(numbers[3:4], scope=SCOPE)
        old = FactRow(scope=SCOPE, id="f1", type="config", content="Deploys go to fra1", time=1, evidence=(numbers[2],))
        memory.store.add_facts([old])
        memory.remember("Deploys go to ams1", scope=SCOPE, subject="deploy", slot="region")
        yield memory


def rows(store: Any, scope: Scope) -> list[tuple[Any, ...]]:
    """What an agent's messages are, without their numbers."""
    found: list[MessageRow] = store.read_messages(Select(scope=scope, across=True))
    return sorted((row.scope, row.nonce, row.message.digest, row.pinned, row.excluded) for row in found)


def facts(store: Any, scope: Scope) -> list[tuple[Any, ...]]:
    """What an agent's facts are, each with the words it rests on."""
    found: list[FactRow] = store.read_facts(Select(scope=scope, across=True))
    said = {row.id: row.message.digest for row in store.read_messages(Select(scope=scope, across=True))}
    return [(row.scope, row.id, row.content, row.slot, tuple(said[number] for number in row.evidence)) for row in found]


def test_there_and_back(memory: Memory, tmp_path: Path) -> None:
    """Everything comes back: words, tools, noise, flags, facts and what they rest on. Again, nothing changes."""
    written = tmp_path / "folder"
    assert transfer.save_folder(memory.store, [SCOPE], written, embedder=memory.embedder) == 9
    assert opening.is_folder(written)
    assert sorted(path.name for path in written.iterdir()) == [
        "holdfast-folder.db",
        "knowledge.jsonl",
        "segments.jsonl",
        "vectors.bin",
    ]
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    with open_memory(tmp_path / "to") as other:
        for _ in range(2):
            assert transfer.load_folder(other.store, written) == (9, [])
            assert rows(other.store, SCOPE) == rows(memory.store, SCOPE)
            assert facts(other.store, SCOPE) == facts(memory.store, SCOPE)
        assert other.store.counts()["passages"] == memory.store.counts()["passages"]
        assert other.search("时间容差", scope=SCOPE)[0].text == "时间容差是三百秒。"
    assert {path.name: path.read_bytes() for path in written.iterdir()} == before
    transfer.load_folder(memory.store, written)
    assert memory.store.counts()["messages"] == 7


def test_the_plugin_can_read_it(memory: Memory, tmp_path: Path) -> None:
    """Segments have the plugin's fields, facts are the last line of their id, and vectors have its header."""
    transfer.save_folder(memory.store, [SCOPE], tmp_path / "folder", embedder=memory.embedder)
    lines = [json.loads(line) for line in (tmp_path / "folder" / "segments.jsonl").read_text("utf-8").splitlines()]
    assert {"id", "sessionId", "timestamp", "role", "content", "tokens", "metadata"} <= lines[0].keys()
    assert lines[0]["content"] == "We deploy to Frankfurt on Tuesdays."
    assert {line["role"] for line in lines} == {"user", "assistant"}
    saved = read_vectors(tmp_path / "folder" / "vectors.bin")
    assert saved is not None
    assert set(saved.rows) == {line["id"] for line in lines}
    data = (tmp_path / "folder" / "vectors.bin").read_bytes()
    assert struct.unpack("<4I", data[:16]) == (0x4D454D56, 1, 384, struct.unpack("<4I", data[:16])[3])
    known = [json.loads(line) for line in (tmp_path / "folder" / "knowledge.jsonl").read_text("utf-8").splitlines()]
    assert (known[0]["id"], known[0]["type"]) == ("f1", "config")


def test_it_works_in_place(memory: Memory, tmp_path: Path) -> None:
    """The folder opens as a store, and finds by words and by vectors."""
    embedder = StaticEmbedder.from_folder(static_folder(tmp_path / "model"))
    transfer.save_folder(memory.store, [SCOPE], tmp_path / "folder", embedder=embedder)
    with FolderStore(tmp_path / "folder") as files:
        assert rows(files, SCOPE) == rows(memory.store, SCOPE)
        assert files.scopes() == [SCOPE, Scope(project="atlas", session="s2")]


def test_no_secret_gets_out_or_in(memory: Memory, tmp_path: Path) -> None:
    """I8: what is masked stays masked, and what the plugin did not mask is masked on the way in."""
    written = tmp_path / "folder"
    transfer.save_folder(memory.store, [SCOPE], written, embedder=memory.embedder)
    assert not any(TOKEN.encode() in path.read_bytes() for path in written.iterdir())
    assert b"[REDACTED:github-token]" in (written / "segments.jsonl").read_bytes()
    plugin = write_plugin_folder(tmp_path / "plugin", f"my token is {TOKEN} today", fact=f"token={TOKEN}")
    with open_memory(tmp_path / "to") as other:
        transfer.load_folder(other.store, plugin)
        assert not any(TOKEN.encode() in path.read_bytes() for path in (tmp_path / "to").iterdir())
    with open_memory(tmp_path / "open") as other:
        transfer.load_folder(other.store, plugin, masked=False)
        assert TOKEN in other.store.read_messages(Select(scope=Scope(), across=True))[0].message.text


def test_no_part_of_a_fact_brings_a_secret_in(tmp_path: Path) -> None:
    """I8: a fact has a subject and questions next to its words."""
    fact = FactRow(
        scope=SCOPE,
        id="f1",
        type="config",
        content="The token changed",
        context=f"It was {TOKEN}",
        subject=f"token {TOKEN}",
        quote=f"now it is {TOKEN}",
        questions=("Which token?", f"Is the token {TOKEN}?"),
    )
    with FolderStore(tmp_path / "folder") as files:
        files.add_facts([fact])
    with open_memory(tmp_path / "to") as other:
        transfer.load_folder(other.store, tmp_path / "folder")
        (found,) = other.store.read_facts(Select(scope=SCOPE, across=True))
    assert TOKEN not in repr(found)
    assert "Which token?" in found.questions


def test_what_is_forgotten_is_in_no_folder_and_comes_back_from_none(memory: Memory, tmp_path: Path) -> None:
    """I13: a folder that was written after forgetting does not hold it; one from before does not bring it back."""
    transfer.save_folder(memory.store, [SCOPE], tmp_path / "before", embedder=memory.embedder)
    memory.forget(scope=SCOPE, ids=[1], fact_ids=["f1"])
    transfer.load_folder(memory.store, tmp_path / "before")
    assert memory.get([1], scope=SCOPE) == []
    assert "f1" not in {fact.id for fact in memory.facts(scope=SCOPE)}
    memory.forget(scope=Scope(project="atlas", session="s2"))
    transfer.save_folder(memory.store, [SCOPE], tmp_path / "after", embedder=memory.embedder)
    assert not any(b"Frankfurt" in path.read_bytes() for path in (tmp_path / "after").iterdir())


def write_plugin_folder(path: Path, *contents: str, fact: str = "Deploys go to fra1") -> Path:
    """A folder as the plugin leaves it, with a line that is damaged."""
    path.mkdir()
    lines = [
        {"id": f"u{n}", "sessionId": "abc", "timestamp": 1000 + n, "role": "user", "content": text, "tokens": 1}
        for n, text in enumerate(contents)
    ]
    (path / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n", "utf-8")
    known = {"id": "k1", "type": "config", "content": fact, "timestamp": 5}
    (path / "knowledge.jsonl").write_text(json.dumps(known) + "\n", "utf-8")
    return path


def test_a_folder_of_the_plugin_is_taken_over_and_left_as_it_was(tmp_path: Path) -> None:
    """Its sessions become sessions of this agent, damaged lines are told, and nothing in it is touched."""
    plugin = write_plugin_folder(tmp_path / "plugin", "We deploy to Frankfurt.", "端口是八千。")
    names = sorted(path.name for path in plugin.iterdir())
    with open_memory(tmp_path / "to") as memory:
        for _ in range(2):
            count, problems = transfer.load_folder(memory.store, plugin, owner=Scope(project="atlas", agent="coder"))
            assert count == 3
            assert [problem.partition("plugin/")[2][:17] for problem in problems] == ["segments.jsonl:3:"]
        mine = Scope(project="atlas", agent="coder", session="abc")
        assert [row.message.text for row in memory.get([1, 2], scope=mine)] == [
            "We deploy to Frankfurt.",
            "端口是八千。",
        ]
        assert memory.store.counts()["messages"] == 2
        (fact,) = memory.facts(scope=mine, across=True)
        assert fact.content == "Deploys go to fra1"
    assert sorted(path.name for path in plugin.iterdir()) == names


def test_messages_that_a_session_has_are_not_imported_twice(tmp_path: Path) -> None:
    """Of a session whose transcript was imported, the plugin's copies stay out; recalled blocks do too."""
    with open_memory(tmp_path / "to") as memory:
        block = render([], [Detail(role="user", time=1, text="an echo of old words")], memory.marks)
        plugin = write_plugin_folder(tmp_path / "plugin", "We deploy to Frankfurt.", "Something new was said.", block)
        said = Message(role="user", parts=(Text(text="[Sun 2026-02-15 18:49 GMT+8] We deploy to Frankfurt."),), id="e7")
        memory.store.add_messages(make_rows([said], scope=Scope(session="abc")))
        transfer.load_folder(memory.store, plugin)
        assert [row.message.text for row in memory.get([1, 2, 3], scope=Scope(session="abc"))] == [
            said.text,
            "Something new was said.",
        ]


@pytest.mark.parametrize("made", ["file", "folder"])
def test_nothing_is_written_over(memory: Memory, tmp_path: Path, made: str) -> None:
    """A place where something is already is refused."""
    target = tmp_path / "there"
    if made == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    with pytest.raises(StorageError, match="name a new folder"):
        transfer.save_folder(memory.store, [SCOPE], target)


def test_an_empty_folder_will_do(memory: Memory, tmp_path: Path) -> None:
    """Without an embedder there are no vectors."""
    target = tmp_path / "empty"
    target.mkdir()
    assert not opening.is_folder(target)
    transfer.save_folder(memory.store, [SCOPE], target)
    assert not (target / "vectors.bin").exists()


def test_no_secret_is_remembered_as_a_subject(tmp_path: Path) -> None:
    """I8: what a fact is about is masked like its words."""
    with open_memory(tmp_path / "own") as memory:
        fact = memory.remember(f"It is {TOKEN}", scope=SCOPE, subject=f"token {TOKEN}", slot=f"value {TOKEN}")
    assert TOKEN not in repr(fact)
    assert fact.subject.startswith("token ")
