"""A memory-context folder in place: opened, searched, added to, and still the plugin's own."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.archive_rows import make_rows
from holdfast.embed.hashed import HashEmbedder
from holdfast.errors import StorageError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.store.base import Scope, Select
from holdfast.store.codec import to_json
from holdfast.store.folder import DATABASE, FolderStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.vmem import read_vectors, write_vectors
from holdfast.testing.rows import fact, find_messages, make_message, make_query, texts, vectors

S1 = Scope(session="s1")
NOW = 1_771_000_000_000
DAY = 86_400_000


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


def open_all(folder: Path) -> FolderStore:
    """Open the folder at a fixed time."""
    return FolderStore(folder, clock=lambda: NOW)


def change_state(folder: Path, change: Callable[[Any], dict[str, Any]], *, offset: int | None = None) -> None:
    """Change what the database knows of the files, as a crash would leave it."""
    with SqliteStore(folder / DATABASE) as inner:
        owner = Scope(tenant="", project="", agent="folder")
        (record,) = inner.read_records(Select(scope=owner), kind="state")
        state = change(record.data)
        if offset is not None:
            state["read"]["segments.jsonl"][2] = offset
        inner.add_records([replace(record, data=state)])


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
            assert find_messages(store.search(make_query("蓝色", scope=S1))) == [2]
            assert find_messages(store.search(make_query("session", scope=S1))) == []
            assert find_messages(store.search(make_query("session", scope=S1, across=True))) == [3]
            (row,) = store.read_messages(Select(scope=S1, ids=(2,)))
            assert (row.message.role, row.message.timestamp) == ("assistant", NOW)
            assert store.problems == ()
        assert (tmp_path / "segments.jsonl").read_bytes() == before

    def test_numbers_stay(self, tmp_path: Path) -> None:
        """A segment keeps the number it was given, whatever the plugin adds later and whoever opens the folder."""
        write(tmp_path / "segments.jsonl", segment("a", "first of all"), segment("b", "second of all"))
        with open_all(tmp_path) as store:
            assert store.add_messages([make_message("our own words", scope=S1)]) == [3]
            with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(segment("c", "added by the plugin")) + "\n")
            assert texts(store, scope=S1)[-1] == "added by the plugin"
        with open_all(tmp_path) as store:
            rows = store.read_messages(Select(scope=S1))
            assert [(row.id, row.message.text.split()[0]) for row in rows] == [
                (1, "first"), (2, "second"), (3, "our"), (4, "added"),
            ]  # fmt: skip

    def test_lines_that_cannot_be_used_are_skipped_and_reported(self, tmp_path: Path) -> None:
        """What is broken or lacks something is left out, named with its line, and stays in the file."""
        bad: list[Mapping[str, Any] | str] = [
            "{broken", "[1, 2]", segment("", "no id"), segment("x", "no session", sessionId=""),
            segment("x", "a prompt", role="system"), segment("x", "no time", timestamp="today"),
            json.dumps(segment("x", "no name", sessionId="half \ud800")), segment("x", "a list", role=["user"]),
            {**segment("x", "damaged"), "holdfast": {"scope": ["local"]}},
            {**segment("x", ""), "content": ["blocks"]}, segment("x", "true is no time", timestamp=True),
        ]  # fmt: skip
        write(tmp_path / "segments.jsonl", segment("a", "good words"), "", *bad, segment("b", "better words"))
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["good words", "better words"]
            assert [(problem.file, problem.line) for problem in store.problems] == [
                ("segments.jsonl", line) for line in range(3, 3 + len(bad))
            ]
            store.add_messages([make_message("ours", scope=S1)])
        assert (tmp_path / "segments.jsonl").read_text("utf-8").count("\n") == len(bad) + 4

    def test_times_in_iso_8601_and_outputs_of_tools_are_read(self, tmp_path: Path) -> None:
        """Other programs write them: they are archived and found like the rest, at their time."""
        write(
            tmp_path / "segments.jsonl",
            segment("a", "deploy the harbour", timestamp="2026-02-10T14:00:00.250Z"),
            segment("b", "the harbour is closed", role="tool", toolCallId="c1", toolName="grep"),
            segment("c", "端口是八千", role="toolResult", timestamp="2026-02-10T15:00:00+01:00"),
            segment("d", "a time without a zone", timestamp="2026-02-10T14:00:00"),
        )
        with open_all(tmp_path) as store:
            assert store.problems == ()
            rows = store.read_messages(Select(scope=S1))
            assert [row.message.role for row in rows] == ["user", "tool", "tool", "user"]
            assert [row.message.timestamp for row in rows] == [1770732000250, NOW, 1770732000000, 1770732000000]
            (result,) = rows[1].message.results
            assert (result.call_id, result.name, result.text) == ("c1", "grep", "the harbour is closed")
            assert find_messages(store.search(make_query("harbour", scope=S1))) == [1, 2]
            assert find_messages(store.search(make_query("端口", scope=S1))) == [3]
            store.remove_messages(Select(scope=S1, ids=(2,)))
        assert b"closed" not in (tmp_path / "segments.jsonl").read_bytes()

    def test_duplicates_count_once(self, tmp_path: Path) -> None:
        """The same words of the same role in the same session are one message, however often they stand there."""
        lines = [segment("a", "the same"), segment("b", "the same"), segment("c", "the same", role="assistant")]
        write(tmp_path / "segments.jsonl", *lines, segment("d", "the same", sessionId="s2"))
        with open_all(tmp_path) as store:
            assert len(texts(store, scope=S1)) == 2
            message = Message(role="user", parts=(Text(text="the same"),), timestamp=NOW)
            assert store.add_messages(make_rows([message], scope=S1)) == [1]

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
            {"id": "k5", "type": "issue", "content": "x", "timestamp": 6, "holdfast": {"scope": "local"}},
        )
        with open_all(tmp_path) as store:
            rows = {row.id: row for row in store.read_facts(Select(scope=S1))}
            assert (rows["k1"].content, rows["k1"].context, rows["k1"].time) == ("Use PostgreSQL", "db", 2)
            assert rows["k2"].superseded_by == "k3"
            assert (rows["k4"].deleted, rows["k4"].content) == (True, "SSL")
            assert [(problem.file, problem.line) for problem in store.problems] == [
                ("knowledge.jsonl", 4),
                ("knowledge.jsonl", 7),
            ]
            assert store.read_facts(Select(scope=replace(S1, tenant="else"))) == []

    def test_its_vectors_are_left_alone(self, tmp_path: Path) -> None:
        """A vector file says nothing about its model: it is neither searched nor overwritten."""
        write(tmp_path / "segments.jsonl", segment("a", "some words"))
        write_vectors(tmp_path / "vectors.bin", {"a": [1.0] * 8}, dimension=8)
        before = (tmp_path / "vectors.bin").read_bytes()
        with open_all(tmp_path) as store:
            assert store.search(make_query("words", scope=S1, seed=1)).cosine is None
            store.add_vectors([vectors(0, [1])])
            assert store.search(make_query("words", scope=S1, seed=1)).cosine is not None
        assert (tmp_path / "vectors.bin").read_bytes() == before

    def test_messages_that_version_0_1_kept_next_to_them_are_imported(self, tmp_path: Path) -> None:
        """Tool results and other messages of `holdfast.jsonl` are archived like the segments."""
        write(tmp_path / "segments.jsonl", segment("a", "some words"))
        tool = Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text="the output"),)),))
        line = {"kind": "message", "n": 2, "scope": ["local", "", "main", "s1"], "nonce": "x", "body": to_json(tool)}
        damaged = {"kind": "message", "n": 3}
        write(tmp_path / "holdfast.jsonl", line | {"text": "the output"}, {"kind": "job"}, damaged)
        with FolderStore(tmp_path, readonly=True) as store:
            assert len(texts(store, scope=S1)) == 2
        assert (tmp_path / "holdfast.jsonl").exists()
        write(tmp_path / "holdfast.jsonl", line | {"text": "the output"}, {"kind": "job"})
        with open_all(tmp_path) as store:
            rows = store.read_messages(Select(scope=S1))
            assert {row.message.role for row in rows} == {"user", "tool"}
            assert len(find_messages(store.search(make_query("output", scope=S1)))) == 1
        assert not (tmp_path / "holdfast.jsonl").exists()


class TestWhatWeWrite:
    def test_a_segment_has_the_plugins_fields(self, tmp_path: Path) -> None:
        """Words of users and assistants become lines that the plugin reads, tagged as it tags them."""
        with FolderStore(tmp_path, clock=lambda: NOW, new_id=lambda: "id-1") as store:
            store.add_messages([make_message("The bug is in src/app.py, ask me@example.org", scope=S1, time=NOW - 5)])
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
        assert own == {"scope": ["local", "", "main", "s1"], "digest": own["digest"], "nonce": ""}

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
            store.add_messages(make_rows(messages, scope=S1))
        assert [line["content"] for line in as_the_plugin_loads(tmp_path)] == ["where is the webhook?", "Let me look."]
        with open_all(tmp_path) as store:
            assert [row.message for row in store.read_messages(Select(scope=S1))] == messages
            assert find_messages(store.search(make_query("webhook", scope=S1))) == [2, 3, 4]

    def test_the_same_words_are_one_segment(self, tmp_path: Path) -> None:
        """The plugin's rule: session, role and text tell segments apart; another role or text is another."""
        with open_all(tmp_path) as store:
            row = make_message("said before", scope=S1)
            store.add_messages(
                [row, replace(row, nonce="again"), make_message("said before", scope=S1, role="assistant")]
            )
            store.add_messages([make_message("said later", scope=S1)])
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
            store.add_facts(
                [first, replace(first, superseded_by="k2"), replace(fact("k3", "x", scope=S1), deleted=True)]
            )
            assert store.read_facts(Select(scope=S1))[0] == first
        lines = [json.loads(line) for line in (tmp_path / "knowledge.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("holdfast")
        known = {"id": "k1", "type": "decision", "content": "Use MySQL", "context": "db", "timestamp": 5}
        assert lines[:2] == [known, known | {"supersededBy": "k2"}]
        assert lines[2]["_deleted"] is True

    def test_files_belong_to_their_owner(self, tmp_path: Path) -> None:
        """Every file and folder that is made can be read by its owner alone."""
        before = os.umask(0)
        try:
            with FolderStore(tmp_path / "memory" / "context") as store:
                store.add_messages([make_message("words", scope=S1)])
                store.add_facts([fact("f", "x", scope=S1)])
                store.add_vectors([vectors(0, [1])])
        finally:
            os.umask(before)
        folder = tmp_path / "memory" / "context"
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


_FULL = """
import random, resource
from holdfast.errors import StorageError
from holdfast.store.base import Scope, Record
from holdfast.store.folder import FolderStore
from holdfast.testing.rows import make_message
store = FolderStore({folder!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
count, noise = 0, random.Random(7)
try:
    while True:
        store.add_messages([make_message(noise.randbytes(900).hex(), scope=Scope(session="s1")) for _ in range(3)])
        count += 3
except StorageError as error:
    assert "Nothing" in str(error), error
print(count)
"""


class TestTrouble:
    def test_a_torn_line_is_reported_and_kept(self, tmp_path: Path) -> None:
        """A last line without an end is reported; what is added after it stands on a line of its own."""
        write(tmp_path / "segments.jsonl", segment("a", "whole words"), '{"id": "b", "sess', end="")
        with open_all(tmp_path) as store:
            assert "no end" in store.problems[0].reason
            store.add_messages([make_message("added later", scope=S1)])
            assert texts(store, scope=S1) == ["whole words", "added later"]
        assert '{"id": "b", "sess\n' in (tmp_path / "segments.jsonl").read_text()
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["whole words", "added later"]
            assert store.problems[0].line == 2

    def test_lines_that_a_crash_left_unwritten_are_written(self, tmp_path: Path) -> None:
        """What is in the database and did not reach the plugin's files is appended by the next who opens them, once."""
        with open_all(tmp_path) as store:
            store.add_messages([make_message("kept", scope=S1)])
            before = (tmp_path / "segments.jsonl").stat().st_size
            store.add_messages([make_message("first words", scope=S1), make_message("second words", scope=S1)])
        whole = (tmp_path / "segments.jsonl").read_bytes()
        lines = whole[before:].decode().splitlines(keepends=True)
        for size in (before, before + len(lines[0].encode()), len(whole)):
            with (tmp_path / "segments.jsonl").open("r+b") as file:
                file.truncate(size)
            change_state(tmp_path, lambda state: {**state, "unwritten": {"segments.jsonl": lines}}, offset=before)
            with open_all(tmp_path) as store:
                assert texts(store, scope=S1) == ["kept", "first words", "second words"]
            assert (tmp_path / "segments.jsonl").read_bytes() == whole

    def test_forgetting_that_was_cut_short_is_finished(self, tmp_path: Path) -> None:
        """A crash between the database and the files is made good by the next who opens the folder."""
        with open_all(tmp_path) as store:
            numbers = store.add_messages([make_message("zanzibar", scope=S1), make_message("kept", scope=S1)])
        with SqliteStore(tmp_path / DATABASE) as inner:
            inner.remove_messages(Select(scope=S1, ids=(numbers[0],)))
        change_state(tmp_path, lambda state: {**state, "is_forgetting": True})
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]
        assert b"zanzibar" not in (tmp_path / "segments.jsonl").read_bytes()

    def test_a_restored_file_does_not_bring_forgotten_words_back(self, tmp_path: Path) -> None:
        """A copy of the file from before is cleaned of what was forgotten since."""
        with open_all(tmp_path) as store:
            (number, _) = store.add_messages([make_message("zanzibar", scope=S1), make_message("kept", scope=S1)])
            (tmp_path / "copy").write_bytes((tmp_path / "segments.jsonl").read_bytes())
            store.remove_messages(Select(scope=S1, ids=(number,)))
        (tmp_path / "copy").replace(tmp_path / "segments.jsonl")
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]
        assert b"zanzibar" not in (tmp_path / "segments.jsonl").read_bytes()

    def test_forgotten_words_of_the_plugin_are_gone(self, tmp_path: Path) -> None:
        """Forgetting a segment takes every copy of it out of every file, its vector too; no one can bring it back."""
        write(tmp_path / "segments.jsonl", segment("a", "zanzibar"), segment("b", "zanzibar"), segment("c", "kept"))
        embedder = HashEmbedder()
        rows = embedder.embed(["zanzibar", "kept"], kind="passage")
        write_vectors(tmp_path / "vectors.bin", {"a": rows[0], "c": rows[1]}, dimension=384)
        with open_all(tmp_path) as store:
            assert store.remove_messages(Select(scope=S1, ids=(1,))) == 1
            assert texts(store, scope=S1) == ["kept"]
            message = Message(role="user", parts=(Text(text="zanzibar"),), timestamp=NOW)
            assert store.add_messages(make_rows([message], scope=S1)) == [0]
        assert not any(b"zanzibar" in path.read_bytes() for path in tmp_path.iterdir())
        saved = read_vectors(tmp_path / "vectors.bin")
        assert saved is not None
        assert list(saved.rows) == ["c"]
        with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(segment("e", "zanzibar")) + "\n")
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["kept"]

    def test_messages_after_forgetting_are_new(self, tmp_path: Path) -> None:
        """The same words with a later moment are another message, whoever writes them."""
        write(tmp_path / "segments.jsonl", segment("a", "zanzibar"))
        with open_all(tmp_path) as store:
            store.remove_messages(Select(scope=S1, ids=(1,)))
            before, after = (make_message("zanzibar", scope=S1, time=NOW + n, nonce=f"at:{n}") for n in (0, 1))
            assert store.add_messages([before]) == [0]
            (number,) = store.add_messages([after])
            assert number
            store.remove_messages(Select(scope=S1, ids=(number,)))
            assert store.add_messages([after]) == [0]
        with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(segment("b", "zanzibar", timestamp=NOW + 2)) + "\n")
        with open_all(tmp_path) as store:
            assert texts(store, scope=S1) == ["zanzibar"]

    def test_a_folder_that_may_not_be_written_can_be_read(self, tmp_path: Path) -> None:
        """A read-only folder is searched, with what is in the database and what came later; adding is a typed error."""
        write(tmp_path / "segments.jsonl", segment("a", "written in stone"))
        with open_all(tmp_path) as store:
            store.add_messages([make_message("ok", scope=S1)])
        with (tmp_path / "segments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(segment("b", "another stone")) + "\n")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with FolderStore(tmp_path, readonly=True) as store:
            assert texts(store, scope=S1) == ["written in stone", "ok", "another stone"]
            assert len(find_messages(store.search(make_query("stone", scope=S1)))) == 2
            with pytest.raises(StorageError):
                store.add_messages([make_message("more", scope=S1)])
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_a_full_disk_is_a_typed_error_and_nothing_is_lost(self, tmp_path: Path) -> None:
        """A batch that does not fit any more fails whole; what was acknowledged is there, and it continues later."""
        script = _FULL.format(folder=str(tmp_path))
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        with open_all(tmp_path) as store:
            assert len(texts(store, scope=S1)) == int(ended.stdout)
            store.add_messages([make_message("room again", scope=S1)])
            assert texts(store, scope=S1)[-1] == "room again"

    def test_a_path_that_is_no_folder_is_a_typed_error(self, tmp_path: Path) -> None:
        """A file where a folder should be is named."""
        (tmp_path / "file").write_text("x")
        with pytest.raises(StorageError):
            FolderStore(tmp_path / "file")

    def test_another_program_rewriting_a_file_is_noticed(self, tmp_path: Path) -> None:
        """When a file was replaced, what is new in it is added; what is no longer in it stays archived."""
        write(tmp_path / "segments.jsonl", segment("a", "one thing"), segment("b", "another thing"))
        write(tmp_path / "knowledge.jsonl", {"id": "k1", "type": "decision", "content": "Use MySQL", "timestamp": 1})
        with open_all(tmp_path) as store:
            assert find_messages(store.search(make_query("thing", scope=S1))) == [1, 2]
            write(tmp_path / "fresh", segment("b", "another thing"), segment("c", "a third thing"))
            (tmp_path / "fresh").replace(tmp_path / "segments.jsonl")
            (tmp_path / "copy").write_bytes((tmp_path / "knowledge.jsonl").read_bytes())
            (tmp_path / "copy").replace(tmp_path / "knowledge.jsonl")
            assert find_messages(store.search(make_query("thing", scope=S1))) == [1, 2, 3]
            assert len(store.read_facts(Select(scope=S1))) == 1
