"""Session files of every agent we read: small ones of our own, and the real ones for those who have them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.transcripts import Entry
from support.external_data import DATA
from support.paths import FIXTURES

COPILOT: Final = FIXTURES / "copilot" / "session-state" / "5f0c1d2e-0000-4000-8000-00000000c0de"
KIMI: Final = FIXTURES / "kimi" / "session_7a11b0a7-0000-4000-8000-0000000000e1"
OPENHANDS: Final = FIXTURES / "openhands" / "0d15c0ff33"

OWN: Final = [
    ("claude_code", FIXTURES / "claude_code" / "harbour.jsonl"),
    ("codex", FIXTURES / "codex" / "rollout-2026-03-01T10-00-00-0199aaaa-0000-7000-8000-000000000002.jsonl"),
    ("codex", FIXTURES / "codex" / "rollout-2025-05-01T08-00-00-early.jsonl"),
    ("pi", FIXTURES / "pi" / "2026-03-01T11-00-00-000Z_pi-3.jsonl"),
    ("pi", FIXTURES / "pi" / "version-1.jsonl"),
    ("clawdbot", FIXTURES / "clawdbot" / "simple.jsonl"),
    ("copilot", COPILOT),
    ("kimi", KIMI),
    ("openhands", OPENHANDS),
    ("opencode", FIXTURES / "opencode" / "export.json"),
    ("opencode", FIXTURES / "opencode" / "storage" / "session" / "global" / "ses_0002.json"),
    ("aider", FIXTURES / "aider" / ".aider.chat.history.md"),
    ("hermes", FIXTURES / "hermes" / "session.txt"),
    ("request_log", FIXTURES / "request_log" / "growing.jsonl"),
    ("message_list", FIXTURES / "message_list" / "chat.json"),
    ("message_list", FIXTURES / "message_list" / "anthropic.jsonl"),
    ("message_list", FIXTURES / "message_list" / "rows.jsonl"),
]
"""Every reader with files of its own, by hand."""

TRANSCRIPTS: Final = DATA / "transcripts"

REAL: Final = [
    (format_, path)
    for format_, pattern in (
        ("claude_code", "claude_code/*.jsonl"),
        ("claude_code", "migrate/claude/*/*/native/*.jsonl"),
        ("codex", "codex/*.jsonl"),
        ("codex", "migrate/codex/*/*/native/*.jsonl"),
        ("pi", "pi/*.jsonl"),
        ("pi", "migrate/pi/*/*/native/*.jsonl"),
        ("copilot", "migrate/copilot/*/*/native/*/*/events.jsonl"),
        ("kimi", "migrate/kimi/*/*/native/*/agents/main/wire.jsonl"),
        ("openhands", "migrate/openhands/*/*/native/*/events"),
        ("opencode", "migrate/opencode/*/*/native/*.json"),
        ("aider", "aider/*.md"),
        ("hermes", "hermes_zh/*.txt"),
        ("request_log", "swarm/*.jsonl.gz"),
    )
    for path in sorted(TRANSCRIPTS.glob(pattern))
]
"""The public transcripts, by the reader that must claim them."""


def name(value: object) -> str:
    """How a test over files names its cases."""
    return value.name if isinstance(value, Path) else str(value)


def wire_records(format_: str, entry: Entry) -> Iterator[Mapping[str, Any]]:
    """The provider-shaped messages that a record holds, as they stand in it."""
    data = entry.data
    match format_:
        case "claude_code":
            yield data["message"]
        case "codex":
            yield data.get("payload", data)
        case "pi":
            if entry.type == "message":
                yield data["message"]
        case "message_list":
            yield from data.get("messages", data.get("traj", [data]))
        case "hermes":
            yield from (message for turn in data["turns"] for message in turn)
        case "request_log":
            yield from data["messages"]
