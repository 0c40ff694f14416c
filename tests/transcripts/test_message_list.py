"""Message lists of any provider."""

import json
from pathlib import Path

import pytest

from holdfast.errors import TranscriptError
from holdfast.messages import Thinking
from holdfast.transcripts import read
from support.paths import FIXTURES

LISTS = FIXTURES / "message_list"


def written(path: Path, *values: object) -> Path:
    """A file with one value on each line."""
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))
    return path


def test_array() -> None:
    """An array is a conversation, each message an entry in its place."""
    transcript = read(LISTS / "chat.json")
    assert [(entry.line, entry.type) for entry in transcript.entries] == [
        (1, "system"),
        (2, "user"),
        (3, "assistant"),
        (4, "tool"),
    ]


def test_array_on_one_line(tmp_path: Path) -> None:
    """An array is the same on one line."""
    values = json.loads((LISTS / "chat.json").read_text())
    assert read(written(tmp_path / "a.json", values)).entries == read(LISTS / "chat.json").entries


def test_the_format_of_a_list_holds_for_all_of_it() -> None:
    """A mark anywhere tells the format of every message, so that each comes back as it was."""
    transcript = read(LISTS / "anthropic.jsonl")
    assert [message.wire("anthropic") for message in transcript.messages] == [e.data for e in transcript.entries]


def test_conversations_on_lines() -> None:
    """A record with a list of messages is one entry with all of them, its system prompt first."""
    first, second, mark = read(LISTS / "rows.jsonl").entries
    assert [message.role for message in first.messages] == ["system", "user", "assistant"]
    assert [message.text for message in second.messages] == ["two?", "2"]
    assert (mark.type, mark.messages) == ("_checkpoint", ())


def test_a_mixture_of_formats(tmp_path: Path) -> None:
    """Lists that mix two formats, as a router's clients write them, are read message by message."""
    block = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {}}]}
    beside = {"role": "assistant", "content": None, "tool_calls": [{"id": "t2", "function": {"name": "ls"}}]}
    expected = ["anthropic", "openai_chat"]
    lines = read(written(tmp_path / "lines.jsonl", block, beside)).messages
    assert [message.origin and message.origin.format for message in lines] == expected
    listed = read(written(tmp_path / "list.jsonl", {"system": "You list.", "messages": [block, beside]})).messages
    assert [message.origin and message.origin.format for message in listed[1:]] == expected
    assert listed[0].text == "You list."


def test_times_and_ids(tmp_path: Path) -> None:
    """A message's own id and time are kept, the time in seconds, milliseconds or words."""
    conversation = [
        {"role": "user", "content": "a", "id": "m1", "timestamp": "2026-03-01T09:00:00Z"},
        {"role": "user", "content": "b", "timestamp": 1772355600},
        {"role": "user", "content": "c", "timestamp": 1772355600000},
        {"role": "user", "content": "d", "timestamp": "soon"},
    ]
    messages = read(written(tmp_path / "t.jsonl", *conversation)).messages
    assert messages[0].id == "m1"
    assert [message.timestamp for message in messages] == [1772355600000] * 3 + [None]


def test_what_is_no_message(tmp_path: Path) -> None:
    """A record that is no message is kept as an entry, and reported; one that is no object is reported."""
    path = written(
        tmp_path / "m.jsonl", {"role": "user", "content": "a"}, {"b": 1}, [2], {"role": "king", "content": ""}
    )
    transcript = read(path)
    assert [entry.line for entry in transcript.entries] == [1, 2, 4]
    assert [problem.line for problem in transcript.problems] == [2, 3, 4]
    assert "neither a message nor a list of messages" in transcript.problems[0].what
    assert "role 'king' is not one of" in transcript.problems[2].what


@pytest.mark.parametrize("value", [[1, 2, 3], [{"a": 1}], {"messages": [1]}, {"messages": []}])
def test_lists_of_something_else(tmp_path: Path, value: object) -> None:
    """An array of non-messages is no transcript."""
    with pytest.raises(TranscriptError, match="in no format that we know"):
        read(written(tmp_path / "x.json", value))


def test_unsigned_thinking_is_thinking(tmp_path: Path) -> None:
    """A list that has nothing but unsigned thinking to tell its format by is read as it would be in one piece."""
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    path = written(tmp_path / "thought.jsonl", {"role": "user", "content": "go on"}, thought)
    assert read(path).messages[1].parts == (Thinking(text="hm"),)
