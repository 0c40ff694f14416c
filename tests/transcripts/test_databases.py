"""Sessions in SQLite files: OpenClaw, OpenCode, Goose, Hermes and Cursor."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from holdfast.errors import TranscriptError
from holdfast.messages import Message
from holdfast.transcripts import Problem, read, sessions
from support.agent_files import TRANSCRIPTS
from support.external_data import needs_data

HEADER = {"type": "session", "version": 4, "id": "w1", "timestamp": "2026-09-01T10:00:00Z", "cwd": "/home/ada/mill"}


def create(file: Path, schema: str, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> Path:
    """An SQLite file with these tables and rows."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(schema)
        for table, values in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
    return file


def openclaw(folder: Path) -> Path:
    """Two sessions of OpenClaw, one with a compressed event."""
    message = {
        "type": "message",
        "id": "e1",
        "parentId": None,
        "message": {"role": "user", "content": "磨坊有几个轮子？"},
    }
    reply = {"role": "assistant", "content": [{"type": "text", "text": "Two. " * 100}]}
    packed = zstd.compress(json.dumps({"type": "message", "id": "e2", "parentId": "e1", "message": reply}).encode())
    rows: list[tuple[Any, ...]] = [
        ("w1", 0, json.dumps(HEADER), 1_788_000_000_000, None, None),
        ("w1", 1, json.dumps(message), 1_788_000_001_000, None, None),
        ("w1", 2, None, 1_788_000_002_000, packed, 600),
        ("w2", 0, json.dumps({**HEADER, "id": "w2"}), 1_788_000_009_000, None, None),
        ("w2", 1, json.dumps(message), 1_788_000_009_500, None, None),
    ]
    return create(
        folder / "agent" / "openclaw-agent.sqlite",
        "CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT,"
        " created_at INTEGER NOT NULL, event_zstd BLOB, event_utf8_bytes INTEGER, PRIMARY KEY (session_id, seq));",
        (("transcript_events", row) for row in rows),
    )


def opencode(folder: Path) -> Path:
    """One session of OpenCode with a call."""
    call = {"type": "tool", "tool": "bash", "callID": "c1"}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "wheel.md"}
    return create(
        folder / "opencode.db",
        "CREATE TABLE session (id TEXT, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT,"
        " time_created INTEGER, time_updated INTEGER);"
        "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER,"
        " data TEXT);",
        [
            ("session", ("ses_1", "p", None, "/home/ada/mill", "Wheels", 1_788_000_000_000, 1_788_000_005_000)),
            ("message", ("msg_1", "ses_1", 1, 1, json.dumps({"role": "user"}))),
            ("message", ("msg_2", "ses_1", 2, 2, json.dumps({"role": "assistant", "modelID": "m1"}))),
            ("part", ("prt_1", "msg_1", "ses_1", 1, 1, json.dumps({"type": "text", "text": "列出文件"}))),
            ("part", ("prt_2", "msg_2", "ses_1", 2, 2, json.dumps({**call, "state": state}))),
        ],
    )


def goose(folder: Path) -> Path:
    """One session of Goose with a call."""
    request = {"type": "toolRequest", "id": "c1", "toolCall": {"status": "success", "value": {"name": "shell"}}}
    answer = {"status": "success", "value": {"content": [{"type": "text", "text": "wheel.md"}], "isError": False}}
    contents = [
        ("user", [{"type": "text", "text": "列出文件"}]),
        ("assistant", [{"type": "text", "text": "Looking."}, request]),
        ("user", [{"type": "toolResponse", "id": "c1", "toolResult": answer}]),
    ]
    return create(
        folder / "sessions.db",
        "CREATE TABLE sessions (id TEXT, name TEXT, working_dir TEXT, updated_at TIMESTAMP);"
        "CREATE TABLE messages (id INTEGER, message_id TEXT, session_id TEXT, role TEXT, content_json TEXT,"
        " created_timestamp INTEGER);",
        [
            ("sessions", ("20260901_1", "Wheels", "/home/ada/mill", "2026-09-01 10:00:00")),
            *(
                ("messages", (n, f"m{n}", "20260901_1", role, json.dumps(content), 1_788_000_000 + n))
                for n, (role, content) in enumerate(contents)
            ),
        ],
    )


def hermes(folder: Path) -> Path:
    """One session of Hermes with a call."""
    calls = [{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}]
    return create(
        folder / "state.db",
        "CREATE TABLE sessions (id TEXT, title TEXT, cwd TEXT, model TEXT);"
        "CREATE TABLE messages (id INTEGER, session_id TEXT, role TEXT, content TEXT, tool_call_id TEXT,"
        " tool_calls TEXT, tool_name TEXT, timestamp REAL);",
        [
            ("sessions", ("h1", "Wheels", "/home/ada/mill", "m1")),
            ("messages", (1, "h1", "user", "列出文件", None, None, None, 1_788_000_000.5)),
            ("messages", (2, "h1", "assistant", "", None, json.dumps(calls), None, 1_788_000_001.5)),
            ("messages", (3, "h1", "tool", "wheel.md", "c1", None, "terminal", 1_788_000_002.5)),
        ],
    )


def spoken(messages: list[Message]) -> list[tuple[str, str]]:
    """Who said what, results in the place of words."""
    return [(message.role, message.text or "".join(part.text for part in message.results)) for message in messages]


def test_openclaw(tmp_path: Path) -> None:
    """Every session of the database is found and read, compressed events with it."""
    file = openclaw(tmp_path)
    listed = list(sessions(tmp_path))
    assert [(one.format, one.session, one.cwd) for one in listed] == [
        ("openclaw", "w1", "/home/ada/mill"),
        ("openclaw", "w2", "/home/ada/mill"),
    ]
    transcript = read(file / "w1")
    assert spoken(transcript.messages) == [("user", "磨坊有几个轮子？"), ("assistant", "Two. " * 100)]
    assert [message.id for message in transcript.messages] == ["e1", "e2"]


def test_compressed_events_need_the_extra(tmp_path: Path) -> None:
    """Without the library the session is named with the line that installs it, and the others are read."""
    openclaw(tmp_path)
    script = (
        "import sys; sys.modules['backports'] = sys.modules['compression'] = None\n"
        "from pathlib import Path\n"
        "from holdfast.transcripts import sessions\n"
        "print([one.session for one in sessions(Path(sys.argv[1]), on_problem=lambda found: print(found.what))])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "holdfast-memory[zstd]" in done.stdout
    assert "['w2']" in done.stdout


def test_a_session_must_be_named(tmp_path: Path) -> None:
    """A database of several sessions asks for the name of one, and knows its names."""
    file = openclaw(tmp_path)
    with pytest.raises(TranscriptError, match=r"holds 2 sessions: name one, for example .*openclaw-agent\.sqlite/w2"):
        read(file)
    with pytest.raises(TranscriptError, match="no session of that name"):
        read(file / "w3")


@pytest.mark.parametrize("made", [opencode, goose, hermes])
def test_one_session(made: Any, tmp_path: Path) -> None:
    """A database of one session is read like a file: folder, title, words, call and result."""
    transcript = read(made(tmp_path))
    (one,) = sessions(tmp_path)
    assert (transcript.format, transcript.cwd, transcript.title) == (made.__name__, "/home/ada/mill", "Wheels")
    assert (one.format, one.session, one.title) == (transcript.format, transcript.session, "Wheels")
    assert one.modified // 1_000_000 == 1_788_000
    user, reply, result = transcript.messages
    assert (user.role, user.text) == ("user", "列出文件")
    assert reply.calls[0].id == "c1"
    assert [(part.call_id, part.text, part.is_error) for part in result.results] == [("c1", "wheel.md", False)]
    assert transcript.problems == ()


HALF, DEEP = '{"type":', "[" * 100_000
DAMAGE = [
    *(
        (openclaw, "INSERT INTO transcript_events VALUES ('w1', 3, ?, 1, NULL, NULL)", value)
        for value in (HALF, DEEP, "[]")
    ),
    (openclaw, "UPDATE transcript_events SET event_zstd = ? WHERE seq = 2", zstd.compress(b"{}" * 99)[:-9]),
    (opencode, "UPDATE part SET data = ? WHERE id = 'prt_2'", HALF),
    (opencode, "UPDATE message SET data = ? WHERE id = 'msg_2'", "[]"),
    (opencode, "UPDATE part SET data = ? WHERE id = 'prt_2'", DEEP),
    *((goose, "UPDATE messages SET content_json = ? WHERE id = 1", value) for value in (HALF, DEEP)),
    *((hermes, "UPDATE messages SET tool_calls = ? WHERE id = 2", value) for value in (HALF, DEEP)),
]


@pytest.mark.parametrize(("make", "statement", "value"), DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_row_is_reported_and_the_others_are_read(
    make: Any, statement: str, value: str | bytes, tmp_path: Path
) -> None:
    """What is no JSON, no entry or no whole compressed event is a problem of its line, as in a file."""
    file = make(tmp_path)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement, (value,))
    transcript = read(file / "w1" if make is openclaw else file)
    assert len(transcript.problems) == 1
    assert transcript.messages[0].role == "user"


def test_other_databases(tmp_path: Path) -> None:
    """A database of another program is passed over in a folder, and refused when it is named."""
    file = create(tmp_path / "photos.db", "CREATE TABLE photo (id TEXT);", [])
    problems: list[Problem] = []
    assert list(sessions(tmp_path, on_problem=problems.append)) == []
    assert problems == []
    with pytest.raises(TranscriptError, match="of no agent that we know"):
        read(file)


@needs_data("transcripts/migrate")
def test_real_hermes() -> None:
    """A real database on a read-only disk: twelve messages, every call answered."""
    (file,) = TRANSCRIPTS.glob("migrate/hermes/*/*/native/state.db")
    transcript = read(file)
    assert len(transcript.messages) == 12
    calls = {call.id for message in transcript.messages for call in message.calls}
    assert calls == {result.call_id for message in transcript.messages for result in message.results}
    assert transcript.cwd == "/fixture/work"


CURSOR_TABLES = (
    "CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);"
    "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);"
)


def cursor(folder: Path) -> Path:
    """Write chats of Cursor: one with calls, one of an older version, an empty one and one that is damaged."""
    headers = [
        {"bubbleId": name, "type": kind} for name, kind in (("b1", 1), ("b2", 2), ("b3", 2), ("b4", 2), ("b5", 2))
    ]
    chat = {
        "composerId": "c1",
        "name": "風車の輪",
        "createdAt": 1_766_691_308_486,
        "lastUpdatedAt": 1_766_692_125_731,
        "modelConfig": {"modelName": "m1"},
        "fullConversationHeadersOnly": headers,
    }
    read = {"toolCallId": "t1", "name": "read_file", "rawArgs": '{"path": "mill.toml"}', "status": "completed"}
    failed = {"toolCallId": "t2", "name": "run_terminal_cmd", "params": {"command": "make"}, "status": "error"}
    time = "2026-06-27T10:00:00.000Z"
    address = "file:///home/ada/the%20mill"
    bubbles = {
        "b1": {"type": 1, "text": "風車には輪がいくつありますか。", "createdAt": time, "workspaceUris": [address]},
        "b2": {"type": 2, "text": "", "thinking": {"text": "I look."}, "createdAt": time},
        "b3": {"type": 2, "text": "I read it.", "toolFormerData": {**read, "result": "wheels = 2"}},
        "b4": {"type": 2, "toolFormerData": {**failed, "error": "no such target"}},
        "gone": {"type": 2, "text": "A reply that was undone."},
    }
    older = {"composerId": "c2", "createdAt": 1_700_000_000_000, "conversation": [{"type": 1, "text": "Hello."}]}
    rows = {
        "composerData:c1": json.dumps(chat),
        "composerData:c2": json.dumps(older).encode(),
        "composerData:c3": json.dumps({"composerId": "c3", "fullConversationHeadersOnly": []}),
        "composerData:c4": "{",
        **{f"bubbleId:c1:{name}": json.dumps({"bubbleId": name, **bubble}) for name, bubble in bubbles.items()},
    }
    return create(
        folder / "globalStorage" / "state.vscdb", CURSOR_TABLES, (("cursorDiskKV", row) for row in rows.items())
    )


def test_chats_of_cursor(tmp_path: Path) -> None:
    """Calls and their results are read; what is listed and missing, or no longer listed, is a problem."""
    file = cursor(tmp_path)
    found = list(sessions(tmp_path))
    assert [(ref.session, ref.format, ref.title) for ref in found] == [
        ("c2", "cursor", None),
        ("c1", "cursor", "風車の輪"),
    ]
    chat = read(file / "c1")
    assert (chat.cwd, chat.model, chat.title) == ("/home/ada/the mill", "m1", "風車の輪")
    assert [(message.role, message.whole_text) for message in chat.messages] == [
        ("user", "風車には輪がいくつありますか。"),
        ("assistant", ""),
        ("assistant", 'I read it.\nread_file({"path": "mill.toml"})'),
        ("tool", "wheels = 2"),
        ("assistant", 'run_terminal_cmd({"command": "make"})'),
        ("tool", "no such target"),
    ]
    assert chat.messages[-1].results[0].is_error
    assert {message.timestamp for message in chat.messages} == {1_782_554_400_000, 1_766_691_308_486}
    problems = [problem.what for problem in chat.problems]
    assert len(problems) == 2
    assert "bubble b5 is listed" in problems[0]
    assert "1 bubbles that the chat no longer lists" in problems[1]
    assert [message.text for message in read(file / "c2").messages] == ["Hello."]


def test_the_state_of_other_editors_is_no_session(tmp_path: Path) -> None:
    """VS Code has a file of the same name, without the table of chats."""
    create(tmp_path / "state.vscdb", "CREATE TABLE ItemTable (key TEXT, value BLOB);", [])
    skipped: list[Path] = []
    assert list(sessions(tmp_path, on_skipped=skipped.append)) == []
    assert skipped == [tmp_path / "state.vscdb"]


@needs_data("transcripts/migrate")
def test_real_cursor() -> None:
    """Cursor's chats are named with the reason why they are not read."""
    problems: list[Problem] = []
    assert list(sessions(TRANSCRIPTS / "migrate" / "cursor", on_problem=problems.append)) == []
    assert "Cursor keeps chats in a binary format" in problems[0].what
