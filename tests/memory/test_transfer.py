"""Memory as JSON Lines and as Markdown."""

import io
from pathlib import Path

import pytest

from holdfast.embed import Choice
from holdfast.errors import InputError
from holdfast.memory import transfer
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Scope, Select
from holdfast.store.sqlite import SqliteStore

SCOPE = Scope(session="s")
WHOSE = Scope()


def open_memory(path: Path) -> Memory:
    """A memory without vectors."""
    return Memory(store=SqliteStore(path), settings=Settings(), choice=Choice(embedder=None, reasons=()))


def exported(memory: Memory, path: Path) -> Path:
    """All of the agent, in a file."""
    with path.open("w", encoding="utf-8") as file:
        transfer.to_jsonl(memory.store, [WHOSE], file)
    return path


def test_lines_bring_everything_back(tmp_path: Path) -> None:
    """Messages, flags and facts; a fact rests on the same words, whatever their number is now."""
    with open_memory(tmp_path / "a.db") as first, open_memory(tmp_path / "b.db") as second:
        numbers = first.ingest([Message(role="user", parts=(Text(text=f"port {n}"),)) for n in range(3)], scope=SCOPE)
        first.pin(numbers[:1], scope=SCOPE)
        first.exclude(numbers[1:2], scope=SCOPE)
        fact = FactRow(scope=SCOPE, id="f", type="config", content="The port is 2", evidence=(numbers[2], 99))
        first.store.add_facts([fact])
        file = exported(first, tmp_path / "out.jsonl")
        assert transfer.claims(file)
        second.ingest([Message(role="user", parts=(Text(text="here before"),))], scope=SCOPE)
        for _ in range(2):
            assert transfer.load_jsonl(second.store, file) == 4
        rows = second.store.read_messages(Select(scope=SCOPE))
        assert [row.message.text for row in rows] == ["here before", "port 0", "port 1", "port 2"]
        assert [(row.pinned, row.excluded) for row in rows[1:]] == [(True, False), (False, True), (False, False)]
        (kept,) = second.store.read_facts(Select(scope=SCOPE))
        assert kept.evidence == (rows[3].id,)


def test_many_messages_go_in_batches(tmp_path: Path) -> None:
    """More than a batch, and nothing is lost at its end."""
    with open_memory(tmp_path / "a.db") as first, open_memory(tmp_path / "b.db") as second:
        first.ingest([Message(role="user", parts=(Text(text=f"port {n}"),)) for n in range(550)], scope=SCOPE)
        transfer.load_jsonl(second.store, exported(first, tmp_path / "out.jsonl"))
        assert second.store.counts()["messages"] == 550


@pytest.mark.parametrize(
    "line", ['{"kind":"message","scope":{}}', '{"kind":"fact","scope":{"planet":"earth"}}', "{broken"]
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    """What is not a line of an export is an error with its place."""
    file = tmp_path / "bad.jsonl"
    file.write_text(f'{{"kind":"holdfast-export","version":1}}\n{line}\n', "utf-8")
    with open_memory(tmp_path / "a.db") as memory, pytest.raises(InputError, match=r"bad\.jsonl:2"):
        transfer.load_jsonl(memory.store, file)


def test_other_files_are_no_export(tmp_path: Path) -> None:
    """A folder, a missing file and someone else's lines are left to others."""
    (tmp_path / "other.jsonl").write_text('{"type":"session"}\n', "utf-8")
    assert not any(transfer.claims(tmp_path / name) for name in ("", "missing", "other.jsonl"))


def test_a_document_for_people(tmp_path: Path) -> None:
    """Facts first, then every session, tools with what they returned, fences longer than any inside."""
    with open_memory(tmp_path / "a.db") as memory:
        call = ToolCall(id="c", name="read", arguments={"path": "a.md"})
        result = ToolResult(call_id="c", content=(Text(text="```\ncode\n```"),))
        messages = [
            Message(role="user", parts=(Text(text="read it"),)),
            Message(role="assistant", parts=(call,)),
            Message(role="tool", parts=(result,)),
        ]
        memory.ingest(messages, scope=SCOPE)
        memory.remember("Use Frankfurt", scope=SCOPE)
        page = io.StringIO()
        count = transfer.to_markdown(memory.store, [WHOSE], page, moment=lambda time: "" if time is None else "then")
    text = page.getvalue()
    assert count == 3
    assert text.startswith(
        "# Memory of main\n\n## Facts\n\n- [decision] Use Frankfurt\n\n## Session s\n\n### #1 user then\n"
    )
    assert '`read` {"path": "a.md"}' in text
    assert "````text\n```\ncode\n```\n````" in text
