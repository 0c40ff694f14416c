"""`vectors.bin` of a memory-context folder in use: read for search, kept up to date, and still the plugin's."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from holdfast.cli import holdfast
from holdfast.embed import Choice, HashEmbedder
from holdfast.embed.base import Embedder, Floats, Purpose, Space, unit
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text
from holdfast.settings import Settings
from holdfast.store.base import Scope, Select
from holdfast.store.folder import FolderStore
from holdfast.store.vmem import Form, read_vectors, write_vectors

SCOPE = Scope(session="s1")
CONTENTS = [
    "The northern quay belongs to the merchant fleet.",
    "Staging listens on port 8443.",
    "Invoices are sent on the first Monday.",
    "我们使用 PostgreSQL 存储订单。",
    "Anna prefers tea in the morning.",
    "The backup runs at three o'clock.",
    "Use tabs in Makefiles only.",
    "The lighthouse was painted white and red.",
    "Webhook signatures are checked with HMAC.",
    "Deploys go to Frankfurt on Tuesdays.",
    "The tide table is kept in a CSV file.",
    "Nobody may restart the queue by hand.",
]
"""Sentences that have little in common: vectors are compared after their mean is subtracted."""
LONG = "The lighthouse keeper writes down the weather. " * 30


class CountingEmbedder:
    """Embeds as another embedder does, and counts the texts."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.space = embedder.space
        self.passages = 0

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        """Embed texts."""
        if kind == "passage":
            self.passages += len(texts)
        return self.embedder.embed(texts, kind=kind)


class OtherModel:
    """Another model of the same dimension."""

    space = Space(name="other", dimension=384, digest="other")

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - both are the same
        """Embed texts by a random projection of their hashed letters."""
        mixing = np.random.default_rng(1).normal(size=(384, 384)).astype(np.float32)
        return unit(HashEmbedder().embed(texts, kind="passage") @ mixing)


def name(number: int) -> str:
    """The id of a segment."""
    return str(uuid.UUID(int=number + 1, version=4))


def make_folder(path: Path, embedder: Embedder, *, form: Form = "text", contents: Sequence[str] = CONTENTS) -> Path:
    """Write a folder as the plugin does, with a vector for each segment."""
    path.mkdir()
    lines = [
        {"id": name(number), "sessionId": "s1", "timestamp": 1000 + number, "role": "user", "content": content}
        for number, content in enumerate(contents)
    ]
    (path / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = embedder.embed([content[:2000] for content in contents], kind="passage")
    rows = {name(number): row for number, row in enumerate(made)}
    write_vectors(path / "vectors.bin", rows, dimension=embedder.space.dimension, form=form)
    return path


def open_memory(folder: Path, embedder: Embedder) -> Memory:
    """Open a folder as a memory."""
    return Memory(
        store=FolderStore(folder), settings=Settings(), choice=Choice(embedder=embedder, reasons=()), clock=lambda: 9000
    )


def read_as_the_plugin(folder: Path) -> dict[str, list[float]]:
    """Read `vectors.bin` as the plugin does: four numbers, then ids as text and floats."""
    data = (folder / "vectors.bin").read_bytes()
    magic, version, dimension, count = struct.unpack_from("<4I", data)
    assert (magic, version) == (0x4D454D56, 1)
    place = 16
    rows: dict[str, list[float]] = {}
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, place)
        key = data[place + 2 : place + 2 + length].decode()
        rows[key] = list(struct.unpack_from(f"<{dimension}f", data, place + 2 + length))
        place += 2 + length + 4 * dimension
    assert place == len(data)
    return rows


@pytest.mark.parametrize("form", ["text", "binary", "bare"])
def test_its_vectors_are_searched(tmp_path: Path, form: Form) -> None:
    """If the embedder makes the same vectors, no passage is embedded again; the file stays as it is."""
    folder = make_folder(tmp_path / "context", HashEmbedder(), form=form, contents=[*CONTENTS, LONG])
    before = (folder / "vectors.bin").read_bytes()
    embedder = CountingEmbedder(HashEmbedder())
    with open_memory(folder, embedder) as memory:
        assert memory.search("merchants fleets", scope=SCOPE)[0].parts.cosine > 0
        assert memory.search("lighthouse keepers", scope=SCOPE)[0].parts.cosine > 0
        assert memory.embed() == 0
        assert memory.waiting() == 0
    assert embedder.passages <= 8
    assert (folder / "vectors.bin").read_bytes() == before


def test_a_command_searches_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast search` on a folder that was never opened uses its vectors."""
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "hash")
    folder = make_folder(tmp_path / "context", HashEmbedder())
    done = CliRunner().invoke(holdfast, ["search", "merchant quays", "--home", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["parts"]["cosine"] > 0


@pytest.mark.parametrize("embedder", [OtherModel(), HashEmbedder(dimension=128)], ids=["model", "dimension"])
def test_vectors_of_another_model_are_not_compared(tmp_path: Path, embedder: Embedder) -> None:
    """I12: the file says nothing about its model, so it is asked. Its vectors are neither used nor added to."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    before = (folder / "vectors.bin").read_bytes()
    with open_memory(folder, embedder) as memory:
        assert memory.search("merchant fleet", scope=SCOPE)[0].parts.cosine == 0
        memory.ingest([Message(role="user", parts=(Text(text="A new quay is being built."),))], scope=SCOPE)
        assert memory.embed() == len(CONTENTS) + 1
        assert memory.search("merchant fleet", scope=SCOPE)[0].parts.cosine > 0
    assert (folder / "vectors.bin").read_bytes() == before


def test_new_segments_get_a_vector_there(tmp_path: Path) -> None:
    """It is appended in place, with the id of the segment, close to what the plugin would make of its text."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    inode = (folder / "vectors.bin").stat().st_ino
    texts = ["A new quay is being built.", "端口是八千四百四十三。", "ok"]
    with open_memory(folder, HashEmbedder()) as memory:
        memory.ingest([Message(role="user", parts=(Text(text=text),)) for text in texts], scope=SCOPE)
        memory.embed()
        memory.ingest([Message(role="user", parts=(Text(text="Another quay is planned."),))], scope=SCOPE)
        memory.embed()
    lines = [json.loads(line) for line in (folder / "segments.jsonl").read_text("utf-8").splitlines()]
    rows = read_as_the_plugin(folder)
    assert rows.keys() == {line["id"] for line in lines}
    assert len(rows) == len(CONTENTS) + 3
    for line in lines:
        made = HashEmbedder().embed([line["content"]], kind="passage")[0]
        assert float(made @ np.array(rows[line["id"]], np.float32)) > 0.99
    assert (folder / "vectors.bin").stat().st_ino == inode
    with open_memory(folder, HashEmbedder()) as memory:
        assert memory.search("quays", scope=SCOPE)[0].parts.cosine > 0


def test_a_forgotten_segment_has_no_vector(tmp_path: Path) -> None:
    """The others stay, and what is said later is added again."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    with open_memory(folder, HashEmbedder()) as memory:
        assert memory.search("merchant fleet", scope=SCOPE)
        memory.forget(scope=SCOPE, ids=[1])
        assert name(0) not in read_as_the_plugin(folder)
        memory.ingest([Message(role="user", parts=(Text(text="Another quay is planned."),))], scope=SCOPE)
        memory.embed()
    assert len(read_as_the_plugin(folder)) == len(CONTENTS)


def test_a_file_that_the_plugin_wrote_again_is_judged_again(tmp_path: Path) -> None:
    """With vectors of another model in it, nothing is appended and nothing new is taken from it."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    with open_memory(folder, HashEmbedder()) as memory:
        assert memory.search("merchant fleet", scope=SCOPE)[0].parts.cosine > 0
        made = OtherModel().embed(CONTENTS, kind="passage")
        write_vectors(folder / "vectors.bin", {name(n): row for n, row in enumerate(made)}, dimension=384)
        before = (folder / "vectors.bin").read_bytes()
        memory.ingest([Message(role="user", parts=(Text(text="Another quay is planned."),))], scope=SCOPE)
        memory.embed()
        assert memory.search("merchant fleet", scope=SCOPE)[0].parts.cosine > 0
    assert (folder / "vectors.bin").read_bytes() == before


def test_without_a_file_none_is_made(tmp_path: Path) -> None:
    """The plugin would compare its vectors with those of its own model."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    (folder / "vectors.bin").unlink()
    with open_memory(folder, HashEmbedder()) as memory:
        memory.embed()
        assert memory.search("merchant fleet", scope=SCOPE)[0].parts.cosine > 0
    assert not (folder / "vectors.bin").exists()


def test_a_lost_database_costs_no_vector(tmp_path: Path) -> None:
    """Segments of our own find theirs again, by the id of their line."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    with open_memory(folder, HashEmbedder()) as memory:
        assert memory.search("merchant fleet", scope=SCOPE)
        memory.ingest([Message(role="user", parts=(Text(text="Another quay is planned."),))], scope=SCOPE)
        memory.embed()
    for file in folder.glob("holdfast-folder.db*"):
        file.unlink()
    embedder = CountingEmbedder(HashEmbedder())
    with open_memory(folder, embedder) as memory:
        assert memory.embed() == len(CONTENTS) + 1
        assert memory.store.embedded(embedder.space) == len(CONTENTS) + 1
        assert len(memory.store.read_messages(Select(scope=SCOPE))) == len(CONTENTS) + 1
    assert embedder.passages <= 8


def test_a_damaged_file_is_no_trouble(tmp_path: Path) -> None:
    """What can be read of it is used; something else is left alone."""
    folder = make_folder(tmp_path / "context", HashEmbedder())
    data = (folder / "vectors.bin").read_bytes()
    for damaged in (data[:-700], data[:8], b"something else" * 9, struct.pack("<4I", 0x4D454D56, 1, 384, 2**32 - 1)):
        (folder / "vectors.bin").write_bytes(damaged)
        with open_memory(folder, HashEmbedder()) as memory:
            assert memory.search("merchant fleet", scope=SCOPE)
            memory.ingest([Message(role="user", parts=(Text(text=f"Said at {len(damaged)}."),))], scope=SCOPE)
            memory.embed()
        assert (folder / "vectors.bin").read_bytes() == damaged
    assert read_vectors(folder / "vectors.bin") is not None
