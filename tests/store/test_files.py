"""A memory-context folder in place: opened, searched, added to, and still the plugin's own."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import StorageError
from holdfast.memory import archive
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.search.embed.hashed import HashEmbedder
from holdfast.store import vmem
from holdfast.store.base import Job, Question, Record, Row, Scope, Select
from holdfast.store.files import FilesStore, Limits
from holdfast.testing.rows import MODEL, asks, fact, found, says, texts, vectors, word

S1 = Scope(session="s1")
NOW = 1_771_000_000_000
DAY = 86_400_000
ALL = Limits(eviction_days=0)


def segment(name: str, content: str, **fields: Any) -> dict[str, Any]:
    """A line as the plugin writes it."""
    line = {"id": name, "sessionId": "s1", "timestamp": NOW, "role": "user", "content": content, "tokens": 3}
    return line | {"metadata": {"topics": [], "entities": []}} | fields


def write(path: Path, *lines: Mapping[str, Any] | str, end: str = "\n") -> None:
    """A file of lines, some of which are no JSON."""
    written = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("\n".join(written) + end, "utf-8")


def as_the_plugin_loads(folder: Path) -> list[dict[str, Any]]:
    """The segments that the plugin sees: it skips what it cannot use."""
    lines = (folder / "segments.jsonl").read_text("utf-8").split("\n")
    loaded = []
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        usable = data.get("id") and data.get("sessionId") and data.get("role") in {"user", "assistant"}
        if usable and isinstance(data.get("content"), str) and isinstance(data.get("timestamp"), int | float):
            loaded.append(data)
    return loaded


def open_all(folder: Path) -> FilesStore:
    """The folder, however old what it holds is."""
    return FilesStore(folder, limits=ALL, clock=lambda: NOW)


class TestAFolderOfThePlugin:
    def test_it_opens_and_is_searched(self, tmp_path: Path) -> None:
        """Segments that the plugin wrote are messages of their session, found by their words, in their order."""
        write(
            tmp_path / "segments.jsonl",
            segment("a", "Use Stripe for payment processing"),
            segment("b", "改用蓝色按钮", role="assistant", timestamp=NOW + 0.5, embedding=[0.1, 0.2]),
            segment("c", "of another session", sessionId="s2"),
        )
        before = (tmp_path / "segments.jsonl").read_bytes()
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["Use Stripe for payment processing", "改用蓝色按钮"]
            assert found(store.match(asks("蓝色", scope=S1))) == [2]
            assert found(store.match(asks("session", scope=S1))) == []
            assert found(store.match(asks("session", scope=S1, across=True))) == [3]
            (row,) = store.fetch(Select(kind="message", scope=S1, ids=(2,)))
            assert (row.message.role, row.message.timestamp) == ("assistant", NOW)
            assert store.problems == ()
        assert (tmp_path / "segments.jsonl").read_bytes() == before

    def test_numbers_stay(self, tmp_path: Path) -> None:
        """A segment keeps the number it was given, whatever the plugin adds later and whoever opens the folder."""
        write(tmp_path / "segments.jsonl", segment("a", "first of all"), segment("b", "second of all"))
        with open_all(tmp_path) as store:
            assert store.add([says("our own words", scope=S1)]) == [3]
            with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(segment("c", "added by the plugin")) + "\n")
            assert texts(store, scope=S1)[-1] == "added by the plugin"
        with open_all(tmp_path) as store:
            rows = store.fetch(Select(kind="message", scope=S1))
            assert [(row.id, row.message.text.split()[0]) for row in rows] == [
                (1, "first"), (2, "second"), (3, "our"), (4, "added"),
            ]  # fmt: skip

    def test_lines_that_cannot_be_used_are_skipped_and_reported(self, tmp_path: Path) -> None:
        """What is broken or lacks something is left out, named with its line, and stays in the file."""
        bad: list[Mapping[str, Any] | str] = [
            "{broken", "[1, 2]", segment("", "no id"), segment("x", "no session", sessionId=""),
            segment("x", "a tool", role="tool"), segment("x", "no time", timestamp="today"),
            {**segment("x", ""), "content": ["blocks"]}, segment("x", "true is no time", timestamp=True),
        ]  # fmt: skip
        write(tmp_path / "segments.jsonl", segment("a", "good words"), "", *bad, segment("b", "better words"))
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["good words", "better words"]
            assert [(problem.file, problem.line) for problem in store.problems] == [
                ("segments.jsonl", line) for line in range(3, 3 + len(bad))
            ]
            store.add([says("ours", scope=S1)])
        assert (tmp_path / "segments.jsonl").read_text("utf-8").count("\n") == len(bad) + 4

    def test_duplicates_count_once(self, tmp_path: Path) -> None:
        """The same words of the same role in the same session are one message, however often they stand there."""
        lines = [segment("a", "the same"), segment("b", "the same"), segment("c", "the same", role="assistant")]
        write(tmp_path / "segments.jsonl", *lines, segment("d", "the same", sessionId="s2"))
        with open_all(tmp_path) as store:
            assert len(texts(store, scope=S1)) == 2
            message = Message(role="user", parts=(Text(text="the same"),), timestamp=NOW)
            assert store.add(archive.rows([message], scope=S1)) == [1]

    def test_knowledge_is_read_last_line_first(self, tmp_path: Path) -> None:
        """The last line of an id holds; what is superseded or deleted says so; every session sees it."""
        write(
            tmp_path / "knowledge.jsonl",
            {"id": "k1", "type": "decision", "content": "Use MySQL", "timestamp": 1},
            {"id": "k1", "type": "decision", "content": "Use PostgreSQL", "context": "db", "timestamp": 2},
            {"id": "k2", "type": "config", "content": "port 3000", "timestamp": 3, "supersededBy": "k3"},
            {"id": "k3", "type": "nonsense", "content": "x", "timestamp": 4},
            {"id": "k4", "type": "issue", "content": "SSL", "timestamp": 5},
            {"id": "k4", "_deleted": True},
        )
        with open_all(tmp_path) as store:
            rows = {row.id: row for row in store.fetch(Select(kind="fact", scope=S1))}
            assert (rows["k1"].content, rows["k1"].context, rows["k1"].time) == ("Use PostgreSQL", "db", 2)
            assert rows["k2"].superseded_by == "k3"
            assert (rows["k4"].deleted, rows["k4"].content) == (True, "SSL")
            assert [(problem.file, problem.line) for problem in store.problems] == [("knowledge.jsonl", 4)]
            assert store.fetch(Select(kind="fact", scope=replace(S1, tenant="else"))) == []

    def test_its_hash_vectors_are_recognised(self, tmp_path: Path) -> None:
        """Vectors of the plugin are used where they are hash vectors, and never taken for another model's."""
        contents = {"a": "Use Stripe for payment", "b": "改用蓝色按钮", "c": "The gateway listens on 8443"}
        write(tmp_path / "segments.jsonl", *(segment(name, text) for name, text in contents.items()))
        embedder = HashEmbedder()
        rows = embedder.embed(list(contents.values()), kind="passage")
        vmem.write(tmp_path / "vectors.bin", dict(zip(contents, rows, strict=True)), dimension=384)
        with open_all(tmp_path) as store:
            asked = embedder.embed(["蓝色按钮"], kind="query")[0]
            cosine = store.match(Question(scope=S1, terms={}, vector=asked, space=embedder.space)).cosine
            assert cosine is not None
            assert int(cosine.argmax()) == 1
            other = replace(embedder.space, name="minilm")
            assert store.match(Question(scope=S1, terms={}, vector=asked, space=other)).cosine is None

    def test_vectors_of_a_model_nobody_knows_are_left_alone(self, tmp_path: Path) -> None:
        """A vector file that cannot be told is neither searched nor overwritten."""
        write(tmp_path / "segments.jsonl", segment("a", "some words"))
        vmem.write(tmp_path / "vectors.bin", {"a": [1.0] * 8}, dimension=8)
        before = (tmp_path / "vectors.bin").read_bytes()
        with open_all(tmp_path) as store:
            assert store.match(asks("words", scope=S1, seed=1)).cosine is None
            store.add([vectors(0, [1])])
            assert store.match(asks("words", scope=S1, seed=1)).cosine is not None
        assert (tmp_path / "vectors.bin").read_bytes() == before


class TestWhatWeWrite:
    def test_a_segment_has_the_plugins_fields(self, tmp_path: Path) -> None:
        """Words of users and assistants become lines that the plugin reads, tagged as it tags them."""
        with FilesStore(tmp_path, clock=lambda: NOW, new_id=lambda: "id-1") as store:
            store.add([says("The bug is in src/app.py, ask me@example.org", scope=S1, time=NOW - 5)])
        (line,) = as_the_plugin_loads(tmp_path)
        own = line.pop("holdfast")
        assert line == {
            "id": "id-1",
            "sessionId": "s1",
            "timestamp": NOW - 5,
            "role": "user",
            "content": "The bug is in src/app.py, ask me@example.org",
            "tokens": 15,
            "metadata": {
                "topics": ["programming"],
                "entities": [
                    {"type": "email", "value": "me@example.org", "offset": 30},
                    {"type": "project", "value": "src/app.py", "offset": 14},
                ],
            },
        }
        assert own["n"] == 1
        assert "body" not in own

    def test_only_words_worth_finding_are_segments(self, tmp_path: Path) -> None:
        """Tool calls, results, noise and system prompts are kept in our own file, and read back with the rest."""
        call = ToolCall(id="c", name="grep", arguments={"pattern": "webhook"})
        messages = [
            Message(role="system", parts=(Text(text="You are an agent."),)),
            Message(role="user", parts=(Text(text="[Sun 2026-02-15 18:49 GMT+8] where is the webhook?"),), id="e1"),
            Message(role="assistant", parts=(Text(text="Let me look."), call)),
            Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text="src/webhook.ts:12"),)),)),
            Message(role="user", parts=(Text(text="ok"),)),
        ]
        with open_all(tmp_path) as store:
            store.add(archive.rows(messages, scope=S1))
        assert [line["content"] for line in as_the_plugin_loads(tmp_path)] == ["where is the webhook?", "Let me look."]
        with open_all(tmp_path) as store:
            assert [row.message for row in store.fetch(Select(kind="message", scope=S1))] == messages
            assert found(store.match(asks("webhook", scope=S1))) == [2, 3, 4]

    def test_the_same_words_are_one_segment(self, tmp_path: Path) -> None:
        """The plugin's rule: session, role and text tell segments apart; another role or text is another."""
        with open_all(tmp_path) as store:
            row = says("said before", scope=S1)
            store.add([row, replace(row, nonce="again"), says("said before", scope=S1, role="assistant")])
            store.add([says("said later", scope=S1)])
            assert len(texts(store, scope=S1)) == 4
        keys = {
            f"{line['sessionId']}:{line['role']}:{hashlib.sha256(line['content'].encode()).hexdigest()[:16]}"
            for line in as_the_plugin_loads(tmp_path)
        }
        assert len(keys) == len(as_the_plugin_loads(tmp_path)) == 3

    def test_facts_are_lines_the_plugin_reads(self, tmp_path: Path) -> None:
        """Facts have the plugin's fields; what it does not know stands apart; history stays in the file."""
        with open_all(tmp_path) as store:
            first = replace(fact("k1", "Use MySQL", scope=S1), time=5, context="db", slot="engine", evidence=(1, 2))
            store.add([first, replace(first, superseded_by="k2"), replace(fact("k3", "x", scope=S1), deleted=True)])
            assert store.fetch(Select(kind="fact", scope=S1))[0] == first
        lines = [json.loads(line) for line in (tmp_path / "knowledge.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("holdfast")
        known = {"id": "k1", "type": "decision", "content": "Use MySQL", "context": "db", "timestamp": 5}
        assert lines[:2] == [known, known | {"supersededBy": "k2"}]
        assert lines[2]["_deleted"] is True

    def test_vectors_are_the_plugins_file(self, tmp_path: Path) -> None:
        """A segment's vector stands under its id, at length 1; windows of a long one stand beside it."""
        long = " ".join(f"Sentence {n} says something about topic {n % 7}." for n in range(30))
        with open_all(tmp_path) as store:
            store.add([says("short words", scope=S1), says(long, scope=S1)])
            windows = len(store.fetch(Select(kind="passage", scope=S1))[1].windows)
            store.add([vectors(0, [1]), vectors(1, range(2, 2 + windows))])
            cosine = store.match(asks(scope=S1, seed=4)).cosine
            assert cosine is not None
            assert int(cosine.argmax()) == 3
        saved = vmem.read(tmp_path / "vectors.bin")
        assert saved is not None
        names = [line["id"] for line in as_the_plugin_loads(tmp_path)]
        assert set(names) <= set(saved.rows)
        assert len(saved.rows) == 2 + windows
        assert all(abs(float(np.linalg.norm(row)) - 1) < 1e-5 for row in saved.rows.values())
        assert saved.dimension == MODEL.dimension

    def test_files_belong_to_their_owner(self, tmp_path: Path) -> None:
        """Every file and folder that is made can be read by its owner alone."""
        before = os.umask(0)
        try:
            with FilesStore(tmp_path / "memory" / "context") as store:
                store.add([says("words", scope=S1), fact("f", "x", scope=S1)])
                store.add([vectors(0, [1])])
        finally:
            os.umask(before)
        folder = tmp_path / "memory" / "context"
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


class TestOurOwnFile:
    def test_it_does_not_grow_without_end(self, tmp_path: Path) -> None:
        """Records that were replaced and jobs that are done leave the file some day; everything else stays."""
        with open_all(tmp_path) as store:
            store.add([says("kept words", scope=S1), says("pinned words", scope=S1)])
            store.add([replace(store.fetch(Select(kind="message", scope=S1))[1], pinned=True)])
            for turn in range(1100):
                store.add([Record(scope=S1, kind="turn", key="last", data={"n": turn})])
            job, other = store.add([Job(scope=S1, kind="embed", data={}), Job(scope=S1, kind="extract", data={})])
            store.remove(Select(kind="job", scope=S1, ids=(job,)))
        assert (tmp_path / "holdfast.jsonl").read_text().count("\n") > 1100
        for _ in range(2):
            with open_all(tmp_path) as store:
                assert texts(store, scope=S1) == ["kept words", "pinned words"]
                assert store.fetch(Select(kind="message", scope=S1))[1].pinned
                assert [row.data for row in store.fetch(Select(kind="record", scope=S1))] == [{"n": 1099}]
                assert [row.id for row in store.fetch(Select(kind="job", scope=S1))] == [other]
                assert store.problems == ()
            assert (tmp_path / "holdfast.jsonl").read_text().count("\n") < 20
        with open_all(tmp_path) as store:
            assert store.add([Job(scope=S1, kind="embed", data={})]) == [other + 1]


class TestLimits:
    def test_the_oldest_leave_the_index_and_stay_in_the_file(self, tmp_path: Path) -> None:
        """Of more than `max_segments`, the oldest are no longer found; the file and the archive keep all."""
        with FilesStore(tmp_path, limits=Limits(max_segments=3, eviction_days=0)) as store:
            numbers = [store.add([says(f"common {word('item', n)}", scope=S1)])[0] for n in range(5)]
            assert found(store.match(asks("common", scope=S1))) == numbers[2:]
            store.add([says("common again", scope=S1)])
            assert len(found(store.match(asks("common", scope=S1)))) == 3
            assert len(texts(store, scope=S1)) == 6
            assert len(store.fetch(Select(kind="passage", scope=S1))) == 3
        assert len(as_the_plugin_loads(tmp_path)) == 6
        with FilesStore(tmp_path, limits=Limits(max_segments=2, eviction_days=0)) as store:
            assert len(found(store.match(asks("common", scope=S1)))) == 2

    def test_the_old_leave_the_index(self, tmp_path: Path) -> None:
        """What is older than `eviction_days` is not found; 0 finds everything."""
        write(
            tmp_path / "segments.jsonl",
            segment("a", "old news", timestamp=NOW - 91 * DAY),
            segment("b", "fresh news", timestamp=NOW - 89 * DAY),
        )
        with FilesStore(tmp_path, clock=lambda: NOW) as store:
            assert found(store.match(asks("news", scope=S1))) == [2]
            assert len(texts(store, scope=S1)) == 2
        with open_all(tmp_path) as store:
            assert found(store.match(asks("news", scope=S1))) == [1, 2]


_FULL = """
import os, resource
from holdfast.errors import StorageError
from holdfast.store.base import Scope, Record
from holdfast.store.files import FilesStore
from holdfast.testing.rows import says
store = FilesStore({folder!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
count = 0
try:
    while True:
        store.add([says(os.urandom(900).hex(), scope=Scope(session="s1")) for _ in range(3)])
        count += 3
except StorageError as error:
    assert "not grow" in str(error), error
print(count)
"""


class TestTrouble:
    def test_a_torn_line_is_reported_and_kept(self, tmp_path: Path) -> None:
        """A last line without an end is reported; what is added after it stands on a line of its own."""
        write(tmp_path / "segments.jsonl", segment("a", "whole words"), '{"id": "b", "sess', end="")
        with open_all(tmp_path) as store:
            assert "no end" in store.problems[0].reason
            store.add([says("added later", scope=S1)])
            assert texts(store, scope=S1) == ["whole words", "added later"]
        assert '{"id": "b", "sess\n' in (tmp_path / "segments.jsonl").read_text()
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["whole words", "added later"]
            assert store.problems[0].line == 2

    @pytest.mark.parametrize("file", ["segments.jsonl", "knowledge.jsonl", "holdfast.jsonl"])
    def test_half_a_batch_does_not_count(self, tmp_path: Path, file: str) -> None:
        """When a crash left only a part of a batch, none of it counts, and it is reported; it can be added again."""
        tool = Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text="batch output"),)),))
        with open_all(tmp_path) as store:
            store.add([says("kept", scope=S1)])
            rows: list[Row] = [
                says("batch words", scope=S1),
                *archive.rows([tool], scope=S1),
                fact("f", "batch", scope=S1),
            ]
            store.add(rows)
        lines = (tmp_path / file).read_text().splitlines(keepends=True)
        (tmp_path / file).write_text("".join(lines[:-1]))
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]
            assert store.fetch(Select(kind="fact", scope=S1)) == []
            assert any("cut short" in problem.reason for problem in store.problems)
            assert all(store.add(rows))
            assert texts(store, scope=S1) == ["kept", "batch words", ""]

    def test_forgetting_that_was_cut_short_is_finished(self, tmp_path: Path) -> None:
        """A crash between saying what goes and writing the files anew is made good by whoever opens the folder next."""
        with open_all(tmp_path) as store:
            store.add([says("zanzibar", scope=S1), says("kept", scope=S1)])
            kept = (tmp_path / "segments.jsonl").read_bytes()
            store.remove(Select(kind="message", scope=S1, ids=(1,)))
        (tmp_path / "segments.jsonl").write_bytes(kept)
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]
        assert b"zanzibar" not in (tmp_path / "segments.jsonl").read_bytes()

    def test_forgotten_words_of_the_plugin_are_gone(self, tmp_path: Path) -> None:
        """Forgetting a segment takes every copy of it out of every file, its vector too; nobody can bring it back."""
        write(tmp_path / "segments.jsonl", segment("a", "zanzibar"), segment("b", "zanzibar"), segment("c", "kept"))
        embedder = HashEmbedder()
        rows = embedder.embed(["zanzibar", "kept"], kind="passage")
        vmem.write(tmp_path / "vectors.bin", {"a": rows[0], "c": rows[1]}, dimension=384)
        with open_all(tmp_path) as store:
            assert store.remove(Select(kind="message", scope=S1, ids=(1,))) == 1
            assert texts(store, scope=S1) == ["kept"]
            message = Message(role="user", parts=(Text(text="zanzibar"),), timestamp=NOW)
            assert store.add(archive.rows([message], scope=S1)) == [0]
        assert not any(b"zanzibar" in path.read_bytes() for path in tmp_path.iterdir())
        saved = vmem.read(tmp_path / "vectors.bin")
        assert saved is not None
        assert list(saved.rows) == ["c"]
        with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(segment("e", "zanzibar")) + "\n")
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]

    def test_what_is_said_after_forgetting_is_new(self, tmp_path: Path) -> None:
        """The same words with a later moment are another message, whoever writes them; version 0.1 forgot words."""
        write(tmp_path / "segments.jsonl", segment("a", "zanzibar"))
        with open_all(tmp_path) as store:
            store.remove(Select(kind="message", scope=S1, ids=(1,)))
            before, after = (says("zanzibar", scope=S1, time=NOW + n, nonce=f"at:{n}") for n in (0, 1))
            assert store.add([before]) == [0]
            (number,) = store.add([after])
            assert number
            store.remove(Select(kind="message", scope=S1, ids=(number,)))
            assert store.add([after]) == [0]
        with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(segment("b", "zanzibar", timestamp=NOW + 2)) + "\n")
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["zanzibar"]
        old = {"kind": "forgotten", "scope": ["local", "", "main", "s1"], "digest": says("old").message.digest}
        with (tmp_path / "holdfast.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(old) + "\n")
        with open_all(tmp_path) as store:
            assert store.add([says("old", scope=S1, time=NOW + 9)]) == [0]

    def test_a_folder_that_may_not_be_written_can_be_read(self, tmp_path: Path) -> None:
        """A read-only folder is searched; adding to it is a typed error."""
        folder = tmp_path / "context"
        folder.mkdir()
        write(folder / "segments.jsonl", segment("a", "written in stone"))
        (folder / "holdfast.jsonl").symlink_to(tmp_path / "nowhere" / "else.jsonl")
        with open_all(folder) as store:
            assert texts(store, scope=S1) == ["written in stone"]
            assert found(store.match(asks("stone", scope=S1))) == [1]
            with pytest.raises(StorageError):
                store.add([says("more", scope=S1)])

    def test_a_full_disk_is_a_typed_error_and_nothing_is_lost(self, tmp_path: Path) -> None:
        """A batch that does not fit any more fails whole; what was acknowledged is there, and it goes on later."""
        script = _FULL.format(folder=str(tmp_path))
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        with open_all(tmp_path) as store:
            assert len(texts(store, scope=S1)) == int(ended.stdout)
            store.add([says("room again", scope=S1)])
            assert texts(store, scope=S1)[-1] == "room again"

    def test_a_path_that_is_no_folder_is_a_typed_error(self, tmp_path: Path) -> None:
        """A file where a folder should be is named."""
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError):
            FilesStore(tmp_path / "file")

    def test_another_program_rewriting_a_file_is_noticed(self, tmp_path: Path) -> None:
        """When a file was replaced, everything is read anew; passages keep their numbers while the store is open."""
        write(tmp_path / "segments.jsonl", segment("a", "one thing"), segment("b", "another thing"))
        with open_all(tmp_path) as store:
            assert found(store.match(asks("thing", scope=S1))) == [1, 2]
            fresh = tmp_path / "fresh"
            write(fresh, segment("b", "another thing"), segment("c", "a third thing"))
            fresh.replace(tmp_path / "segments.jsonl")
            assert found(store.match(asks("thing", scope=S1))) == [2, 3]
            assert [passage.number for passage in store.fetch(Select(kind="passage", scope=S1))] == [1, 2]
