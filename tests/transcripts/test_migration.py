"""Older and damaged files brought to version 3."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import TranscriptError
from holdfast.transcripts.session import Session, compaction_region
from support.external_data import DATA, needs_data
from support.session_files import START, Ids, Ticks, records, reopen, says, texts, write_lines

STAMP = "2026-02-10T14-00-00.000Z"
TIME = "2025-12-08T22:41:05.306Z"
HEADER = {"type": "session", "id": "old", "timestamp": TIME, "cwd": "/w", "provider": "anthropic", "branchedFrom": "/x"}


def old_entry(kind: str, **fields: Any) -> dict[str, Any]:
    """An entry of version 1: no id, no parent."""
    return {"type": kind, "timestamp": TIME, **fields}


def old_message(text: str, role: str = "user") -> dict[str, Any]:
    """A message of version 1."""
    return old_entry("message", message={"role": role, "content": text, "timestamp": 1})


def version_1(file: Path) -> Path:
    """A small session of version 1 with a compaction that keeps from its third entry on."""
    return write_lines(
        file,
        HEADER,
        old_message("one"),
        old_message("two"),
        old_message("three"),
        old_entry("compaction", summary="s", firstKeptEntryIndex=3, tokensBefore=5),
        old_message("four", role="hookMessage"),
    )


def test_version_1_gets_ids_and_parents(tmp_path: Path) -> None:
    """Every entry gets an id and follows the one before it; unknown fields of the header stay."""
    session = reopen(version_1(tmp_path / "s.jsonl"))
    header, *entries = records(session.file)
    assert header == {**HEADER, "version": 3}
    assert [entry["id"] for entry in entries] == [f"{n:08x}" for n in range(1, 6)]
    assert [entry["parentId"] for entry in entries] == [None, *(entry["id"] for entry in entries[:-1])]
    assert entries[4]["message"]["role"] == "custom"


def test_index_of_the_first_kept_entry(tmp_path: Path) -> None:
    """The index over all lines, the header's too, becomes an id, and the same messages are kept."""
    session = reopen(version_1(tmp_path / "s.jsonl"))
    compaction = records(session.file)[4]
    assert compaction["firstKeptEntryId"] == "00000003"
    assert "firstKeptEntryIndex" not in compaction
    assert texts(session)[1:] == ["three", "four"]


@pytest.mark.parametrize(("index", "kept"), [(0, "00000001"), (1, "00000001"), (2, "00000002"), (99, "00000002")])
def test_indexes_at_the_edges(tmp_path: Path, index: int, kept: str) -> None:
    """The header stands for the start; an index ahead of the compaction keeps nothing before it."""
    compaction = old_entry("compaction", summary="s", firstKeptEntryIndex=index, tokensBefore=5)
    session = reopen(write_lines(tmp_path / "s.jsonl", HEADER, old_message("one"), compaction))
    assert records(session.file)[2]["firstKeptEntryId"] == kept


def test_compaction_that_names_no_entry(tmp_path: Path) -> None:
    """An index that is no number is dropped, and nothing before the compaction is kept."""
    compaction = old_entry("compaction", summary="s", firstKeptEntryIndex="x", tokensBefore=5)
    session = reopen(write_lines(tmp_path / "s.jsonl", HEADER, old_message("one"), compaction))
    assert not {"firstKeptEntryIndex", "firstKeptEntryId"} & records(session.file)[2].keys()
    assert len(texts(session)) == 1


def test_old_file_is_kept(tmp_path: Path) -> None:
    """The file before is saved next to the new one, to the byte, for our eyes only, and reported."""
    file = version_1(tmp_path / "s.jsonl")
    before = file.read_bytes()
    session = Session.open(file, clock=Ticks(), new_id=Ids())
    backup = tmp_path / f"s.jsonl.bak.{STAMP}"
    assert backup.read_bytes() == before
    assert [path.stat().st_mode & 0o777 for path in (file, backup)] == [0o600, 0o600]
    assert [problem.what for problem in session.problems] == [
        f"version 1 brought to 3; the old file is kept as {backup.name}"
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.jsonl", backup.name]


def test_backup_never_overwrites(tmp_path: Path) -> None:
    """A backup of the same moment is left alone; ours gets a number."""
    file = version_1(tmp_path / "s.jsonl")
    (tmp_path / f"s.jsonl.bak.{STAMP}").write_text("mine")
    Session.open(file, clock=lambda: START)
    assert (tmp_path / f"s.jsonl.bak.{STAMP}").read_text() == "mine"
    assert (tmp_path / f"s.jsonl.bak.{STAMP}.1").is_file()


def test_migration_is_idempotent(tmp_path: Path) -> None:
    """A file that was brought to version 3 is opened as it is from then on."""
    file = version_1(tmp_path / "s.jsonl")
    reopen(file)
    after = file.read_bytes()
    session = reopen(file)
    assert (file.read_bytes(), session.problems) == (after, ())
    assert len(list(tmp_path.iterdir())) == 2


def test_version_2_changes_what_it_must(tmp_path: Path) -> None:
    """A version 2 header on entries of version 3 is raised; lines that need no change keep their bytes."""
    spaced = (
        b'{"type": "message", "id": "a", "parentId": null, "timestamp": "", "message": {"role":"user","content":"x"}}\n'
    )
    hook = {"type": "message", "id": "b", "parentId": "a", "message": {"role": "hookMessage", "content": "y"}}
    file = write_lines(tmp_path / "s.jsonl", {**HEADER, "version": 2}, spaced, hook)
    session = reopen(file)
    assert file.read_bytes().splitlines(keepends=True)[1] == spaced
    assert [record.get("version", record.get("id")) for record in records(file)] == [3, "a", "b"]
    assert records(file)[2]["message"]["role"] == "custom"
    assert texts(session) == ["x", "y"]


def test_version_1_with_ids_of_its_own(tmp_path: Path) -> None:
    """Ids and parents that an entry has already are not taken away."""
    own = {"type": "message", "id": "mine", "timestamp": TIME, "message": {"role": "user", "content": "x"}}
    compaction = old_entry("compaction", summary="s", firstKeptEntryIndex=1, tokensBefore=1)
    file = write_lines(tmp_path / "s.jsonl", HEADER, own, compaction)
    reopen(file)
    assert [record["id"] for record in records(file)] == ["old", "mine", "00000002"]
    assert records(file)[2]["firstKeptEntryId"] == "mine"


def test_damaged_lines_survive(tmp_path: Path) -> None:
    """Malformed, blank and torn lines are carried over as they are, in their places, and reported."""
    file = write_lines(
        tmp_path / "s.jsonl", HEADER, b"{broken\n", b"\n", old_message("one"), b"[1]\n", b'{"type":"mess'
    )
    session = reopen(file)
    lines = file.read_bytes().splitlines(keepends=True)
    assert [lines[n] for n in (1, 2, 4, 5)] == [b"{broken\n", b"\n", b"[1]\n", b'{"type":"mess\n']
    assert [problem.line for problem in session.problems] == [1, 2, 5, 6]
    assert texts(session) == ["one"]


def test_numbers_that_are_none(tmp_path: Path) -> None:
    """NaN in an old file does not stop its migration."""
    file = write_lines(tmp_path / "s.jsonl", HEADER, b'{"type":"custom","timestamp":"","customType":"x","data":NaN}\n')
    assert len(reopen(file).entries) == 1
    assert b'"data":NaN' in file.read_bytes()


def test_crash_between_two_tries(tmp_path: Path) -> None:
    """What a crash left of an earlier try is swept away, and symbolic links stay links."""
    (tmp_path / "real").mkdir()
    real = version_1(tmp_path / "real" / "s.jsonl")
    (tmp_path / "real" / ".s.jsonl.new").write_text("half a fi")
    link = tmp_path / "link.jsonl"
    link.symlink_to(real)
    assert len(reopen(link).entries) == 5
    assert link.is_symlink()
    assert not (tmp_path / "real" / ".s.jsonl.new").exists()


def test_newer_version(tmp_path: Path) -> None:
    """A file from the future is refused with what to do, and not touched."""
    file = write_lines(tmp_path / "s.jsonl", {**HEADER, "version": 4})
    before = file.read_bytes()
    with pytest.raises(TranscriptError, match="pip install --upgrade holdfast-memory"):
        Session.open(file)
    assert file.read_bytes() == before


# --- files without a header --------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n\n", b'{"type":"sess', b'{"ty\n{"type":"session","version":3,"id":"a\n'])
def test_file_without_anything_gets_a_header(tmp_path: Path, content: bytes) -> None:
    """An empty file, or one whose creation was cut short, becomes a session in its place; no byte is dropped."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(content)
    session = Session.open(file, cwd="/w", clock=Ticks(), new_id=Ids())
    assert (session.file, session.cwd, session.id[:8]) == (file, "/w", "00000001")
    assert file.read_bytes().startswith(content)
    assert "no header" in session.problems[0].what
    session.append_message(says("hi"))
    assert texts(reopen(file)) == ["hi"]


def test_entries_without_a_header_get_one(tmp_path: Path) -> None:
    """Entries that lost their header keep their bytes behind a new one; the old file is kept too."""
    entry = {
        "type": "message",
        "id": "a",
        "parentId": None,
        "timestamp": TIME,
        "message": {"role": "user", "content": "x"},
    }
    file = write_lines(tmp_path / "s.jsonl", entry, {"type": "new", "id": "b", "parentId": "a"}, b"{torn")
    before = file.read_bytes()
    session = Session.open(file, clock=Ticks(), new_id=Ids())
    assert session.id[:8] == "00000001"
    assert file.read_bytes().endswith(before + b"\n")
    assert (tmp_path / f"s.jsonl.bak.{STAMP}").read_bytes() == before
    assert texts(session) == ["x"]


def test_header_further_down_is_found(tmp_path: Path) -> None:
    """A header that is not the first record opens the file, and stays where it was as well."""
    entry = {
        "type": "message",
        "id": "a",
        "parentId": None,
        "timestamp": TIME,
        "message": {"role": "user", "content": "x"},
    }
    session = reopen(write_lines(tmp_path / "s.jsonl", entry, {**HEADER, "version": 3}))
    assert session.id == "old"
    assert [record["type"] for record in records(session.file)] == ["session", "message", "session"]
    assert any("second header" in problem.what for problem in session.problems)


def test_old_entries_without_a_header(tmp_path: Path) -> None:
    """Version 1 entries that lost their header are linked like the others."""
    session = reopen(write_lines(tmp_path / "s.jsonl", old_message("one"), old_message("two")))
    assert texts(session) == ["one", "two"]
    assert records(session.file)[0]["version"] == 3


@pytest.mark.parametrize(
    "content",
    [
        b"just some notes\n",
        b'{"type":"user","uuid":"1","sessionId":"s","message":{"role":"user","content":"x"}}\n',
        b'{"role":"user","content":"x"}\n',
        b'{"timestamp":"2026-01-01T00:00:00Z","type":"response_item","payload":{}}\n',
        b"\x00\x01\x02",
        b"\xff\xfe\n",
    ],
)
def test_files_of_others_are_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """A text, another agent's file, a binary: a typed error, and not a byte changed."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(content)
    with pytest.raises(TranscriptError):
        Session.open(file)
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


# --- real files --------------------------------------------------------------


def adopted(name: str, folder: Path) -> Session:
    """A copy of a real session, brought to version 3."""
    copy = folder / name
    shutil.copyfile(DATA / "transcripts" / "pi" / name, copy)
    os.chmod(copy, 0o644)  # noqa: PTH101
    return reopen(copy)


@needs_data("transcripts/pi")
def test_real_session_with_compactions(tmp_path: Path) -> None:
    """1,002 real entries: every one is there, linked, and both compactions keep what their index named."""
    session = adopted("before-compaction.jsonl", tmp_path)
    assert Counter(entry.type for entry in session.entries) == {
        "message": 990,
        "model_change": 5,
        "thinking_level_change": 5,
        "compaction": 2,
    }
    roles = Counter(entry.data["message"]["role"] for entry in session.entries if entry.type == "message")
    assert roles == {"user": 55, "assistant": 484, "toolResult": 448, "bashExecution": 3}
    stops = Counter(entry.data["message"].get("stopReason") for entry in session.entries if entry.type == "message")
    assert [stops[word] for word in ("toolUse", "stop", "aborted", "error")] == [434, 31, 18, 1]
    compactions = [entry for entry in session.entries if entry.type == "compaction"]
    assert [entry.data["firstKeptEntryId"] for entry in compactions] == [f"{index:08x}" for index in (293, 551)]
    assert [entry.data["tokensBefore"] for entry in compactions] == [175004, 185014]
    assert len(session.path()) == 1002


@needs_data("transcripts/pi")
def test_real_context_with_compactions(tmp_path: Path) -> None:
    """The context is the last summary, what it kept and what came after; the region is the same without the summary."""
    session = adopted("before-compaction.jsonl", tmp_path)
    context = session.context()
    region = compaction_region(session.path())
    assert context.problems == ()
    assert context.messages[0].text.startswith("The conversation history before this point was compacted")
    assert region[0].id == f"{551:08x}"
    assert len(context.messages) == 1 + sum(entry.type == "message" for entry in region)
    usage = [message.usage.context for message in context.messages if message.usage and message.stop != "aborted"]
    assert usage[-1] == 168018


@needs_data("transcripts/pi")
def test_real_session_without_totals(tmp_path: Path) -> None:
    """1,018 real entries of an older form: all there, and the usage without a total is summed."""
    session = adopted("large-session.jsonl", tmp_path)
    roles = Counter(entry.data["message"]["role"] for entry in session.entries if entry.type == "message")
    assert roles == {"user": 88, "assistant": 453, "toolResult": 373}
    context = session.context()
    assert len(context.messages) == 914
    used = [m.usage.context for m in context.messages if m.usage and m.stop not in {"aborted", "error"}]
    assert [total for total in used if total][-1] == 177657


@needs_data("transcripts/pi")
@pytest.mark.parametrize("name", ["before-compaction.jsonl", "large-session.jsonl"])
def test_nothing_of_a_real_session_is_lost(tmp_path: Path, name: str) -> None:
    """Every record after migration holds everything that the old one held."""
    session = adopted(name, tmp_path)
    old = records(DATA / "transcripts" / "pi" / name)
    dropped = {"version", "firstKeptEntryIndex"}
    for before, after in zip(old, records(session.file), strict=True):
        assert {key: after.get(key) for key in before if key not in dropped} == {
            key: value for key, value in before.items() if key not in dropped
        }
