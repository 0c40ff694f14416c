"""Gemini CLI, Qwen Code and Cline."""

import json
from pathlib import Path
from typing import Any

from holdfast.messages import Thinking, Usage
from holdfast.transcripts import read, sessions

ABOUT = {"sessionId": "g1", "projectHash": "ab", "startTime": "2026-09-01T10:00:00Z", "directories": ["/home/ada/mill"]}
ASKED = {"id": "m1", "timestamp": "2026-09-01T10:00:01Z", "type": "user", "content": [{"text": "列出文件"}]}
CALL = {"id": "c1", "name": "ls", "args": {"path": "."}, "status": "executing"}
ANSWER = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "wheel.md"}}}
REPLY = {
    "id": "m2",
    "timestamp": "2026-09-01T10:00:02Z",
    "type": "gemini",
    "content": "Looking.",
    "thoughts": [{"subject": "Files", "description": "List them."}],
    "tokens": {"input": 100, "output": 7, "cached": 40, "thoughts": 3, "total": 110},
    "model": "gemini-3-pro",
}


def write(path: Path, *records: Any) -> Path:
    """A file with one record on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def check(path: Path) -> None:
    """The conversation of the file: a question, a reply with a call, its result."""
    transcript = read(path)
    assert (transcript.format, transcript.session, transcript.cwd) == ("gemini", "g1", "/home/ada/mill")
    assert transcript.model == "gemini-3-pro"
    user, reply, result = transcript.messages
    assert user.text == "列出文件"
    assert reply.parts[0] == Thinking(text="Files\nList them.")
    assert (reply.text, reply.calls[0].arguments) == ("Looking.", {"path": "."})
    assert reply.usage == Usage(input=60, output=10, cache_read=40, total=110)
    assert [(part.call_id, part.text) for part in result.results] == [("c1", "wheel.md")]
    assert transcript.problems == ()


def test_gemini_log(tmp_path: Path) -> None:
    """A record with a known id replaces the earlier one; what a compression drops stays; what is taken back goes."""
    final = {**REPLY, "toolCalls": [{**CALL, "status": "success", "result": [ANSWER]}]}
    path = write(
        tmp_path / "chats" / "session-2026-09-01T10-00-g1.jsonl",
        ABOUT,
        ASKED,
        {**REPLY, "toolCalls": [CALL]},
        final,
        {"$set": {"lastUpdated": "2026-09-01T10:00:03Z", "messages": [final]}},
        {"id": "m3", "type": "user", "content": "Wrong question."},
        {"$rewindTo": "m3"},
        {"id": "m4", "type": "info", "content": "Signed in."},
    )
    check(path)
    assert [one.session for one in sessions(tmp_path)] == ["g1"]


def test_gemini_document(tmp_path: Path) -> None:
    """Earlier versions wrote one document."""
    final = {**REPLY, "toolCalls": [{**CALL, "status": "success", "result": [ANSWER]}]}
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps({**ABOUT, "messages": [ASKED, final]}, indent=2))
    check(path)


def test_qwen(tmp_path: Path) -> None:
    """Parts of the Gemini API in records like Claude Code's."""
    base = {"sessionId": "q1", "cwd": "/home/ada/mill", "timestamp": "2026-09-01T10:00:00Z"}
    answer = {"functionResponse": {"id": "c1", "name": "ls", "response": {"error": "没有这个文件夹"}}}
    path = write(
        tmp_path / "q1.jsonl",
        {**base, "uuid": "1", "parentUuid": None, "type": "system", "systemPayload": {"status": "success"}},
        {
            **base,
            "uuid": "2",
            "parentUuid": "1",
            "type": "user",
            "message": {"role": "user", "parts": [{"text": "Hi"}]},
        },
        {
            **base,
            "uuid": "3",
            "parentUuid": "2",
            "type": "assistant",
            "model": "qwen3",
            "message": {
                "role": "model",
                "parts": [{"text": "Hm.", "thought": True}, {"functionCall": {"id": "c1", "name": "ls", "args": {}}}],
            },
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12},
        },
        {**base, "uuid": "4", "parentUuid": "3", "type": "tool_result", "message": {"role": "user", "parts": [answer]}},
    )
    transcript = read(path)
    assert (transcript.format, transcript.session, transcript.model) == ("qwen", "q1", "qwen3")
    assert [message.role for message in transcript.messages] == ["user", "assistant", "tool"]
    assert transcript.messages[1].usage == Usage(input=10, output=2, total=12)
    (result,) = transcript.messages[2].results
    assert (result.call_id, result.text, result.is_error) == ("c1", "没有这个文件夹", True)


def test_cline(tmp_path: Path) -> None:
    """A task's folder is one session, named by the folder; what the editor shows of it is not a second one."""
    task = tmp_path / "tasks" / "1788000000000"
    task.mkdir(parents=True)
    history = [
        {"role": "user", "content": [{"type": "text", "text": "列出文件"}], "ts": 1_788_000_000_000},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "wheel.md"}]},
    ]
    (task / "api_conversation_history.json").write_text(json.dumps(history))
    (task / "ui_messages.json").write_text(json.dumps([{"ts": 1, "type": "say", "text": "列出文件"}]))
    (one,) = sessions(tmp_path)
    assert (one.format, one.session, one.path) == ("cline", "1788000000000", task)
    transcript = read(task / "api_conversation_history.json")
    assert [message.role for message in transcript.messages] == ["user", "assistant", "tool"]
    assert transcript.messages[0].timestamp == 1_788_000_000_000


def test_a_session_that_was_resumed_and_compressed(tmp_path: Path) -> None:
    """Snapshots of the window repeat messages with other times and shapes, and a compression adds the host's words."""
    context = {
        "id": "m0",
        "type": "user",
        "content": [{"text": "<session_context>\nToday is Monday.</session_context>"}],
    }
    asked = {"id": "m1", "type": "user", "content": [{"text": "列出端口"}]}
    result = {"functionResponse": {"id": "c1", "name": "sh", "response": {"output": "5433"}}}
    call = {"id": "c1", "name": "sh", "args": {"command": "ports"}, "result": [result], "status": "success"}
    called = {"id": "m2", "type": "gemini", "content": "", "toolCalls": [call]}
    answered = {"id": "m3", "type": "user", "content": [result]}
    again = {"id": "m2", "type": "gemini", "content": [{"functionCall": {"id": "c1", "name": "sh", "args": {}}}]}
    summary = {"id": "m4", "type": "user", "content": [{"text": "We worked on several things."}]}
    unknown = {"functionResponse": {"id": "c9", "name": "sh", "response": {"output": "late"}}}
    rows: list[dict[str, Any]] = [
        {"sessionId": "s1", "projectHash": "p"},
        {"$set": {"messages": [context]}},
        *(asked, {**called, "toolCalls": []}, called, answered),
        {"$set": {"messages": [context, asked, again, {**answered, "id": "m2"}, answered]}},
        {"$set": {"messages": [context, summary]}},
        {"id": "m5", "type": "user", "content": [unknown]},
    ]
    file = tmp_path / "chats" / "session-2026.jsonl"
    file.parent.mkdir()
    (tmp_path / ".project_root").write_text("/srv/shop")
    file.write_text("\n".join(json.dumps({"timestamp": "2026-09-01T10:00:00Z", **row}) for row in rows), "utf-8")
    assert read(file).cwd == "/srv/shop"
    messages = read(file).messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "system", "tool"]
    assert [call.id for call in messages[2].calls] == ["c1"]
    assert [message.results[0].text for message in messages if message.role == "tool"] == ["5433", "late"]


def test_a_session_of_the_cline_cli(tmp_path: Path) -> None:
    """Its messages are in one file, and what is known about it in another next to it."""
    asked = {"id": "u1", "role": "user", "content": [{"type": "text", "text": "列出文件"}], "ts": 1788000000000}
    data = {"version": 1, "sessionId": "178_ab", "messages": [asked, "no message"]}
    file = tmp_path / "178_ab" / "178_ab.messages.json"
    file.parent.mkdir()
    file.write_text(json.dumps(data))
    assert (read(file).format, read(file).session, read(file).cwd) == ("cline", "178_ab", None)
    (tmp_path / "178_ab" / "178_ab.json").write_text(json.dumps({"session_id": "178_ab", "cwd": "/srv", "model": "m1"}))
    transcript = read(file)
    assert (transcript.cwd, transcript.model, len(transcript.problems)) == ("/srv", "m1", 1)
    assert [(one.text, one.timestamp) for one in transcript.messages] == [("列出文件", 1788000000000)]
    assert [one.session for one in sessions(tmp_path)] == ["178_ab"]
