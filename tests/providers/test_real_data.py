"""Real transcripts: every message in them comes back byte for byte."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.providers import read, read_request, render, render_request
from support.external_data import DATA, needs_data

TRANSCRIPTS = DATA / "transcripts"
OWN = [
    '{"role": "user", "content": [{"type": "text", "text": "修复 \\ud83d", "x": 1.0, "cache_control": {"b": 1}}]}',
    '{"content": [{"input": {"path": "a"}, "type": "tool_use", "name": "read", "id": "t"}], "role": "assistant"}',
    '{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": ""}], "y": null}',
]


def lines(path: Path) -> Iterator[Any]:
    """The JSON lines of a file, plain or packed; comment lines are skipped."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            if line.startswith("{"):
                yield json.loads(line)


def objects_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside of a JSON value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def assert_comes_back(wires: list[dict[str, Any]], name: str | None = None) -> None:
    """Check that messages are rendered as they were read."""
    rendered = render(read(wires, format=name), name or "openai_chat")
    assert json.dumps(rendered) == json.dumps(wires)


def test_our_own_lines_come_back() -> None:
    """Half surrogates, odd key orders, numbers and nulls survive."""
    assert_comes_back([json.loads(line) for line in OWN], "anthropic")


@pytest.mark.nightly
@needs_data("transcripts/pi")
class TestSharedTranscripts:
    """The public transcripts."""

    @pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("swarm/*.gz")), ids=lambda path: path.name[:30])
    def test_request_bodies(self, path: Path) -> None:
        """Every message of every growing request, each read once."""
        seen: dict[str, dict[str, Any]] = {}
        for body in lines(path):
            last = {"messages": body["messages"]}
            seen.update((json.dumps(wire), wire) for wire in body["messages"])
        assert_comes_back(list(seen.values()), "openai_chat")
        assert render_request(read_request(last), "openai_chat") == last

    @pytest.mark.parametrize(
        ("pattern", "field", "name"),
        [
            ("claude_code/*.jsonl", "message", "anthropic"),
            ("migrate/claude/**/native/*.jsonl", "message", "anthropic"),
            ("codex/*.jsonl", "payload", "openai_responses"),
            ("migrate/codex/**/native/*.jsonl", "payload", "openai_responses"),
            ("pi/*.jsonl", "message", "pi"),
            ("migrate/pi/**/native/*.jsonl", "message", "pi"),
        ],
    )
    def test_session_files(self, pattern: str, field: str, name: str) -> None:
        """Every message of the agents' own files, in the format that they speak."""
        kinds = Counter[str]()
        for path in TRANSCRIPTS.glob(pattern):
            records = [record for record in lines(path) if isinstance(record.get(field), dict)]
            if field == "payload":
                records = [record for record in records if record["type"] == "response_item"]
            assert_comes_back([record[field] for record in records], name)
            kinds[name] += len(records)
        assert kinds[name] > 0

    def test_whatever_looks_like_a_message(self) -> None:
        """Any object with a role and content, in any file of any agent, is recognised, read and comes back."""
        found = 0
        for path in TRANSCRIPTS.glob("**/*.json*"):
            if path.suffix == ".gz" or path.name == "expected-ir.jsonl":
                continue
            values = lines(path) if path.suffix == ".jsonl" else iter([json.loads(path.read_text())])
            for data in (item for value in values for item in objects_of(value)):
                if isinstance(data.get("role"), str) and isinstance(data.get("content"), str | list):
                    found += _comes_back_by_itself(data)
        assert found > 1000


def _comes_back_by_itself(data: dict[str, Any]) -> int:
    if not all(
        isinstance(block, dict) and "type" in block for block in data["content"] if not isinstance(data["content"], str)
    ):
        return 0
    (message,) = read([data])
    assert message.origin is not None
    assert json.dumps(render([message], message.origin.format)) == json.dumps([data])
    return 1
