"""Session files as they are found: cut off, damaged, missing, written by several at once."""

import os
import tracemalloc
from pathlib import Path

import pytest

from holdfast.errors import StorageError, TranscriptError
from holdfast.transcripts import Entry, Problem, stream
from holdfast.transcripts.session import Session, newest_session
from support.forked import Holdfast
from support.session_files import Ids, Ticks, begin, branch, records, reopen, says, texts, write_lines
from support.waiting import PATIENCE

HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-02-10T14:00:00.000Z", "cwd": "/w"}


# --- damage ------------------------------------------------------------------


def test_torn_last_line_is_kept_closed_and_reported(tmp_path: Path) -> None:
    """What a crash left of a line stays in the file, a line break behind it; the conversation continues before it."""
    file = begin(tmp_path).file
    Session.open(file).append_message(says("whole"))
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"type":"message","id":"dead')
    session = reopen(file)
    assert [(problem.line, problem.what.partition(":")[0]) for problem in session.problems] == [(3, "cut off")]
    assert "closed with a line break" in session.problems[0].what
    assert file.read_bytes() == whole + b'{"type":"message","id":"dead\n'
    session.append_message(says("next"))
    again = reopen(file)
    assert texts(again) == ["whole", "next"]
    assert [problem.line for problem in again.problems] == [3]


def test_last_line_without_its_line_break_is_an_entry(tmp_path: Path) -> None:
    """Where only the line break was lost the entry is whole: it is used, and the line break added."""
    session = begin(tmp_path)
    session.append_message(says("whole"))
    content = session.file.read_bytes()
    session.file.write_bytes(content[:-1])
    again = reopen(session.file)
    assert texts(again) == ["whole"]
    assert session.file.read_bytes() == content
    assert "no line break" in again.problems[0].what


def test_malformed_lines_are_kept_and_reported(tmp_path: Path) -> None:
    """Lines that cannot be read are left where they are, byte for byte, and named."""
    entry = b'{"type":"message","id":"%d","parentId":null,"message":{"role":"user","content":"%d"}}\n'
    bad = [b"{half\n", b"\xff\xfe\n", b"[]\n", b"\n", b'{"a":' * 3000 + b"\n"]
    file = write_lines(tmp_path / "s.jsonl", HEADER, entry % (1, 1), *bad, entry % (2, 2))
    before = file.read_bytes()
    session = reopen(file)
    assert [problem.line for problem in session.problems] == [3, 4, 5, 7]
    assert all("kept, not used" in problem.what for problem in session.problems)
    assert len(session.entries) == 2
    session.append_message(says("on"))
    assert file.read_bytes().startswith(before)


def test_entries_that_cannot_be_placed_are_reported(tmp_path: Path) -> None:
    """A missing id, an id twice, a parent that is not there, a second header: kept, and named."""
    file = write_lines(
        tmp_path / "s.jsonl",
        HEADER,
        {"type": "message", "message": {"role": "user", "content": "no id"}},
        {"type": "custom", "id": "a", "parentId": None},
        {"type": "custom", "id": "a", "parentId": None},
        {"type": "custom", "id": "b", "parentId": "gone"},
        HEADER,
    )
    session = reopen(file)
    assert {problem.line: problem.what.split(":")[0] for problem in session.problems} == {
        2: "an entry without an id",
        4: "id a is taken by line 3",
        5: "its parent gone is not in the file",
        6: "a second header",
    }
    assert len(session.entries) == 5


def test_stream_reports_in_place(tmp_path: Path) -> None:
    """Streaming yields a problem where a line cannot be read, and next to an entry whose message cannot."""
    file = write_lines(
        tmp_path / "s.jsonl",
        HEADER,
        b"{half\n",
        {"type": "message", "id": "a", "parentId": None, "message": {"role": "martian"}},
        {"type": "custom", "id": "b", "parentId": "a"},
    )
    items = list(stream(file, format="pi"))
    assert [(type(item), item.line) for item in items] == [
        (Entry, 1),
        (Problem, 2),
        (Entry, 3),
        (Problem, 3),
        (Entry, 4),
    ]


def test_stream_needs_little_memory(tmp_path: Path) -> None:
    """Memory does not grow with the file: 8 MB of entries pass in far less than one."""
    line = {"type": "message", "parentId": None, "message": {"role": "user", "content": "字" * 2000}}
    file = write_lines(tmp_path / "s.jsonl", HEADER, *({**line, "id": str(number)} for number in range(1300)))
    assert file.stat().st_size > 7_500_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in stream(file, format="pi")) == 1301
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


# --- places ------------------------------------------------------------------


def test_missing_file_folder_and_archive(tmp_path: Path) -> None:
    """What is no session file is a typed error that includes the fix."""
    (tmp_path / "packed.jsonl.gz").write_bytes(b"x")
    for name, why in (("none.jsonl", "no such file"), (".", "folder"), ("packed.jsonl.gz", "unpack")):
        with pytest.raises(TranscriptError, match=why):
            Session.open(tmp_path / name)
    with pytest.raises(TranscriptError, match="no such file"):
        list(stream(tmp_path / "none.jsonl", format="pi"))


def test_newest_session(tmp_path: Path) -> None:
    """The newest session of a folder is the one written to last; copies, traces and others do not count."""
    assert newest_session(tmp_path / "none") is None
    old, new = begin(tmp_path, "old.jsonl").file, begin(tmp_path, "new.jsonl").file
    others = ["new.checkpoint.1f.jsonl", "new.trajectory.jsonl", "notes.jsonl", "blob.jsonl"]
    for name, content in zip(others, [old.read_bytes(), old.read_bytes(), b"{}\n", b"\0"], strict=True):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jsonl").mkdir()
    for age, path in enumerate([old, new, *(tmp_path / name for name in others)]):
        os.utime(path, (age, age))
    assert newest_session(tmp_path) == new
    os.utime(old, (99, 99))
    assert newest_session(tmp_path) == old


# --- several writers ---------------------------------------------------------


def test_two_writers_continue_from_each_other(tmp_path: Path) -> None:
    """What another process appended meanwhile becomes part of our path: one line of entries, nothing hidden."""
    ours = begin(tmp_path)
    ours.append_message(says("a"))
    theirs = reopen(ours.file)
    theirs.append_message(says("b"))
    ours.append_message(says("c"))
    theirs.append_message(says("d"))
    assert texts(ours) == ["a", "b", "c"]
    assert texts(theirs) == texts(reopen(ours.file)) == ["a", "b", "c", "d"]


def test_branch_of_another_writer_does_not_move_us(tmp_path: Path) -> None:
    """Someone who goes back and takes another way leaves us on ours."""
    ours = begin(tmp_path)
    (root,) = ours.append_message(says("root"))
    ours.append_message(says("ours"))
    theirs = reopen(ours.file)
    branch(theirs, root.id)
    theirs.append_message(says("theirs"))
    ours.append_message(says("more of ours"))
    assert texts(ours) == texts(reopen(ours.file)) == ["root", "ours", "more of ours"]
    assert len(ours.entries) == 5


def test_line_that_another_program_tears_is_closed(tmp_path: Path) -> None:
    """A line that someone else left unfinished never swallows ours."""
    session = begin(tmp_path)
    with session.file.open("ab") as file:
        file.write(b'{"type":"mess')
    session.append_message(says("ours"))
    assert session.file.read_bytes().splitlines()[1] == b'{"type":"mess'
    assert texts(reopen(session.file)) == ["ours"]
    assert session.problems[0].line == 2


def test_file_that_another_program_replaces_is_read_anew(tmp_path: Path) -> None:
    """Where another file has taken the place of ours, we continue with what is there."""
    session = begin(tmp_path)
    session.append_message(says("old"))
    other = begin(tmp_path, "other.jsonl")
    other.append_message(says("new"))
    other.file.replace(session.file)
    session.append_message(says("on"))
    assert texts(session) == texts(reopen(session.file)) == ["new", "on"]


def test_file_that_another_program_cuts_is_read_anew(tmp_path: Path) -> None:
    """A file that lost its end is read from the start, and appended to."""
    session = begin(tmp_path)
    session.append_message(says("one"))
    cut = session.file.stat().st_size
    session.append_message(says("two"))
    os.truncate(session.file, cut)
    session.append_message(says("three"))
    assert texts(session) == ["one", "three"]


def test_file_that_is_gone(tmp_path: Path) -> None:
    """A session whose file was removed says so when something is appended."""
    session = begin(tmp_path)
    session.file.unlink()
    with pytest.raises(StorageError, match="moved or removed"):
        session.append_message(says("lost?"))


def test_migration_by_another_process(tmp_path: Path) -> None:
    """Whoever holds a session while another one opens it again loses nothing."""
    old = {"type": "message", "timestamp": "", "message": {"role": "user", "content": "one"}}
    file = write_lines(tmp_path / "s.jsonl", {"type": "session", "id": "s"}, old)
    first, second = reopen(file), Session.open(file, clock=Ticks(), new_id=Ids(0x2000))
    first.append_message(says("two"))
    second.append_message(says("three"))
    assert texts(reopen(file)) == ["one", "two", "three"]


WRITER = """
import sys
from holdfast.messages import Message, Text
from holdfast.transcripts.session import Session
session = Session.open(sys.argv[1])
for number in range(25):
    text = f"{sys.argv[2]} {number} " + "x" * 5000
    session.append_message(Message(role="user", parts=(Text(text=text),)), durable=False)
"""


def test_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    """Three processes append at the same time: every line whole, every entry there, all in one row."""
    file = begin(tmp_path).file
    writers = [Holdfast[str](str(file), name, code=WRITER) for name in "abc"]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    session = reopen(file)
    assert session.problems == ()
    messages = [text.split()[:2] for text in texts(session)]
    assert sorted(messages) == sorted([name, str(number)] for name in "abc" for number in range(25))
    assert [[number for name, number in messages if name == who] for who in "abc"] == [[str(n) for n in range(25)]] * 3
    assert len({record["id"] for record in records(file)}) == 76
