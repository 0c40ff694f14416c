"""Clawdbot's first session files."""

from pathlib import Path

from holdfast import providers
from holdfast.messages import units
from holdfast.transcripts import read
from support.paths import FIXTURES

FILE = FIXTURES / "clawdbot" / "simple.jsonl"


def test_calls_and_results_pair_by_name() -> None:
    """Lines without ids pair up: each result answers the first waiting call of its name."""
    messages = read(FILE).messages
    calls = {call.name: call for message in messages for call in message.calls}
    results = {result.name: result for message in messages for result in message.results}
    assert calls["read"].arguments == {"path": "a.txt"}
    assert results["read"].call_id == calls["read"].id
    assert results["list"].call_id == calls["list"].id
    assert [len(unit.messages) for unit in units(messages)] == [1, 5, 1]


def test_lines_come_back_as_they_were() -> None:
    """An unedited line is handed back itself; for a provider it is rendered as that provider wants it."""
    entries = read(FILE).entries
    assert [message.wire("clawdbot") for entry in entries for message in entry.messages] == [e.data for e in entries]
    rendered = providers.render(read(FILE).messages, "openai_chat")
    assert [wire["role"] for wire in rendered] == [
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


def test_a_call_that_shows_late(tmp_path: Path) -> None:
    """A file whose first tool call comes after a long talk is read the same way."""
    path = tmp_path / "late.jsonl"
    conversation = '{"role":"user","content":"hm"}\n' * 40
    path.write_text(
        conversation + '{"role":"tool_call","name":"read","params":{}}\n{"role":"tool_result","name":"read"}\n'
    )
    assert read(path).messages[-1].results[0].call_id == read(path).messages[-2].calls[0].id


def test_ids_are_used_if_there_are_any(tmp_path: Path) -> None:
    """A line with an id keeps it, a result without its call as well."""
    path = tmp_path / "ids.jsonl"
    lines = [
        '{"role":"tool_call","name":"read","id":"c9","params":{}}',
        '{"role":"tool_result","name":"other","toolCallId":"c9","content":"x","isError":true}',
        '{"role":"tool_result","name":"read","content":"nobody asked"}',
    ]
    path.write_text("\n".join(lines))
    answered, orphan = (message.results[0] for message in read(path).messages[1:])
    assert (answered.call_id, answered.is_error) == ("c9", True)
    assert (orphan.call_id, orphan.text) == ("", "nobody asked")
