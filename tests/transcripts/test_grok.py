"""Grok CLI: a folder with updates and a summary."""

import json
from pathlib import Path
from typing import Any

from holdfast.messages import Image, Message, Text, Thinking, ToolCall
from holdfast.transcripts import read, sessions

SUMMARY = {
    "info": {"id": "g1", "cwd": "/home/ada/mill"},
    "generated_title": "水车",
    "current_model_id": "grok-4.5",
}


def update(kind: str, **fields: Any) -> dict[str, Any]:
    """A record of `updates.jsonl`."""
    params = {
        "sessionId": "g1",
        "update": {"sessionUpdate": kind, **fields},
        "_meta": {"agentTimestampMs": 1_788_219_544_878},
    }
    return {"timestamp": 1_788_219_544, "method": "session/update", "params": params}


def make_message(kind: str, text: str) -> dict[str, Any]:
    """A chunk of a message."""
    return update(kind, content={"type": "text", "text": text})


UPDATES = [
    make_message("user_message_chunk", "列出文件"),
    make_message("agent_thought_chunk", "The files, "),
    make_message("agent_thought_chunk", "then."),
    make_message("agent_message_chunk", "Loo"),
    make_message("agent_message_chunk", "king."),
    update("tool_call", toolCallId="c1", title="ls", rawInput={"path": "."}),
    update("tool_call_update", toolCallId="c1", status="in_progress", content=[]),
    update(
        "tool_call_update",
        toolCallId="c1",
        status="failed",
        content=[
            {"type": "content", "content": {"type": "text", "text": "denied"}},
            {"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": "aGk="}},
        ],
    ),
    update("plan", entries=[]),
]


def written(folder: Path) -> Path:
    """A session as Grok keeps it, with a file next to it that is no part of the conversation."""
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    (folder / "updates.jsonl").write_text("".join(json.dumps(record) + "\n" for record in UPDATES))
    (folder / "events.jsonl").write_text('{"event":"turn_started"}\n')
    return folder


def check(messages: list[Message]) -> None:
    """The conversation: a question, a thought, words, a call and its result. Chunks are joined."""
    user, thought, reply, call, result = messages
    assert (user.role, user.text, user.timestamp) == ("user", "列出文件", 1_788_219_544_878)
    assert thought.parts == (Thinking(text="The files, then."),)
    assert (reply.role, reply.text) == ("assistant", "Looking.")
    assert call.parts == (ToolCall(id="c1", name="ls", arguments={"path": "."}),)
    (answer,) = result.results
    assert (answer.is_error, answer.name) == (True, "ls")
    assert answer.content == (Text(text="denied"), Image(media_type="image/png", data="aGk="))


def test_a_session_is_a_folder(tmp_path: Path) -> None:
    """The folder is one session, named by its summary, and its files are no others."""
    folder = written(tmp_path / "g1")
    (found,) = sessions(tmp_path)
    assert (found.path, found.format, found.session, found.cwd, found.title) == (
        *(folder, "grok", "g1", "/home/ada/mill", "水车"),
    )
    transcript = read(folder / "updates.jsonl")
    assert (transcript.path, transcript.model) == (folder, "grok-4.5")
    check(transcript.messages)


def test_the_updates_alone_are_read(tmp_path: Path) -> None:
    """Without a summary the file of updates is the session."""
    folder = written(tmp_path / "g1")
    (folder / "summary.json").unlink()
    transcript = read(folder / "updates.jsonl")
    assert (transcript.format, transcript.session, transcript.cwd) == ("grok", "g1", None)
    check(transcript.messages)
