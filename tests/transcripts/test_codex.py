"""Codex rollouts."""

import json
from pathlib import Path

from holdfast import Engine
from holdfast.messages import Image, RedactedThinking, Usage
from holdfast.transcripts import read
from support.paths import FIXTURES

FILE = FIXTURES / "codex" / "rollout-2026-03-01T10-00-00-0199aaaa-0000-7000-8000-000000000002.jsonl"
EARLY = FIXTURES / "codex" / "rollout-2025-05-01T08-00-00-early.jsonl"


def test_session() -> None:
    """The first record names session and folder, the turns their model."""
    transcript = read(FILE)
    assert transcript.session == "0199aaaa-0000-7000-8000-000000000002"
    assert transcript.cwd == "/home/ada/mill"
    assert transcript.model == "gpt-5.5"


def test_items_are_the_conversation() -> None:
    """Response items are messages; events that repeat them, undo marks and compactions are metadata."""
    transcript = read(FILE)
    assert [message.role for message in transcript.messages] == [
        "system",
        "user",
        "assistant",
        "assistant",
        "tool",
        "assistant",
    ]
    assert transcript.messages[1].parts[1] == Image(media_type="image/png", data="iVBORw0KGgo=")
    assert transcript.messages[2].parts == (RedactedThinking(data="gAAA"),)
    silent = [entry.type for entry in transcript.entries if not entry.messages]
    assert silent.count("event_msg") == 4
    assert silent[-1] == "compacted"
    assert transcript.entries[-1].data["payload"]["message"] == "Two wheels were found."


def test_token_counts_belong_to_the_reply_before() -> None:
    """A count is the usage of the last thing the model said before it; an empty count is none."""
    charged = [message for message in read(FILE).messages if message.usage]
    assert [message.usage for message in charged] == [
        Usage(input=400, output=20, cache_read=600, total=1020),
        Usage(input=100, output=4, cache_read=1000, total=1104),
    ]
    assert charged[0].calls[0].name == "shell"
    assert charged[1].text == "Two wheels."


def test_a_reply_has_the_model_of_its_turn(tmp_path: Path) -> None:
    """A turn names its model before its items; one that names none has the model of the turn before it."""
    said = [{"type": "message", "role": "user", "content": "Build it."}]
    said.append({"type": "message", "role": "assistant", "content": "Built."})
    items = [{"type": "response_item", "payload": item} for item in said]
    turns = [{"type": "turn_context", "payload": {"model": name, "cwd": "/mill"}} for name in ("gpt-5.5", "", "gpt-6")]
    records = [{"type": "session_meta", "payload": {"id": "s1"}}]
    for turn in turns:
        records += [turn, *items]
    path = tmp_path / FILE.name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    messages = read(path).messages
    assert [message.model for message in messages if message.role == "assistant"] == ["gpt-5.5", "gpt-5.5", "gpt-6"]
    assert {message.model for message in messages if message.role == "user"} == {None}


def test_sub_agents_are_flagged(tmp_path: Path) -> None:
    """The rollout of a sub-agent is flagged throughout, and is its own conversation."""
    path = tmp_path / FILE.name
    path.write_text(FILE.read_text().replace('"originator"', '"source":{"subagent":"review"},"originator"'))
    transcript = read(path)
    assert all(entry.sidechain for entry in transcript.entries)
    assert transcript.messages == read(FILE).messages


def test_first_rollouts() -> None:
    """The first rollouts wrote bare items: they are read as well."""
    transcript = read(EARLY)
    assert transcript.session == "early-1"
    assert [entry.type for entry in transcript.entries] == [
        "session_meta",
        "state",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert transcript.messages[0].text == "hello"
    assert transcript.messages[2].results[0].text == "done"


def test_a_developer_message_between_call_and_output(tmp_path: Path) -> None:
    """What a hook adds between a call and its output stays in the conversation, and the call keeps its output."""
    message = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "用制表符缩进"}]}
    records = [
        {"type": "session_meta", "payload": {"id": "s1", "cwd": "/home/ada/mill"}},
        {"type": "world_state", "ordinal": 1, "payload": {"full": True, "state": {}}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": "Build it."}},
        {
            "type": "response_item",
            "payload": {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
        },
        {"type": "response_item", "payload": message},
        {"type": "token_usage_record", "ordinal": 5, "input_tokens": 12},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c1", "output": "built"}},
    ]
    path = tmp_path / "rollout-x.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    transcript = read(path)
    assert [message.role for message in transcript.messages] == ["user", "assistant", "system", "tool"]
    assert transcript.problems == ()
    with Engine.open(tmp_path / "home") as engine:
        window = engine.session("s").assemble(transcript.messages, limit=50_000)
    assert [part.text for message in window.messages for part in message.results] == ["built"]
    assert "用制表符缩进" in [message.text for message in window.messages]
