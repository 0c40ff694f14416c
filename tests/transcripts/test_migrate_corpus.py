"""Nine agents' sessions against rows that another tool made of them, row by row.

`expected-ir.jsonl` lists every message part, call, result and picture, and one row for each piece of metadata that
the tool carries along. What we read is flattened here into the same rows. Three things are that tool's own choice
and are distinguished below, agent by agent: which records it takes as the session's head or as a repetition and lists
nowhere (`unlisted`); which fields next to the message it lists as a row (`next to`); and what it will not hand to
another agent as words, namely system prompts, injected text and signed reasoning (`withheld`). Its names for the
reasons (`opaque_reason`, `context_type`) are compared as to the kind of the row alone.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.transcripts import Entry, read
from support.agent_files import TRANSCRIPTS
from support.external_data import needs_data

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """How one agent's records are listed.

    Attributes:
        native: Where its session lies.
        blocks: The list in a record that a part's index counts in.
        unlisted: Records that have no row.
        next to: How many rows a record has beyond its parts.
        withheld: Records whose words are not listed.
        context: Records and parts that are listed as context.
        prefix: What stands before the record's type.
        unnamed: Whether results are listed without the tool's name.
    """

    native: str
    blocks: Callable[[Entry], Any] = lambda _: ()
    unlisted: Callable[[Entry], bool] = lambda _: False
    beside: Callable[[Entry], int] = lambda _: 0
    withheld: Callable[[Entry], bool] = lambda _: False
    context: frozenset[str] = frozenset()
    prefix: str = ""
    unnamed: bool = False


def inside(key: str, *path: str) -> Callable[[Entry], Any]:
    """The value under a path of keys in a record, an empty list where there is none."""

    def found(entry: Entry) -> Any:
        value: Any = entry.data
        for step in (key, *path):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value or []

    return found


def codex_repeats(entry: Entry) -> bool:
    """Events that say again what an item says."""
    repeated = {"user_message", "agent_message", "task_started"}
    return entry.type == "session_meta" or entry.data["payload"].get("type") in repeated


def copilot_blocks(entry: Entry) -> Any:
    """Attachments of the user, requests of the assistant."""
    return inside("data", "attachments")(entry) or inside("data", "toolRequests")(entry)


def copilot_beside(entry: Entry) -> int:
    """The prompt as it was sent, the result as it was shown."""
    return bool(inside("data", "transformedContent")(entry)) + bool(inside("data", "result", "detailedContent")(entry))


def kimi_unlisted(entry: Entry) -> bool:
    """The head of the file, and the marks around a step."""
    return entry.type in {"state", "metadata"} or entry.type.endswith((":step.begin", ":step.end"))


AGENTS = {
    "claude": Agent(
        native="*.jsonl",
        blocks=inside("message", "content"),
        unlisted=lambda entry: entry.type in {"custom-title", "queue-operation", "last-prompt"},
        beside=lambda entry: "toolUseResult" in entry.data,
        context=frozenset({"document"}),
    ),
    "codex": Agent(
        native="*.jsonl",
        blocks=inside("payload", "content"),
        unlisted=codex_repeats,
        context=frozenset({"turn_context"}),
    ),
    "copilot": Agent(
        native="session-state/*",
        blocks=copilot_blocks,
        unlisted=lambda entry: (
            entry.type in {"workspace", "session.start", "session.binary_asset", "tool.execution_start"}
        ),
        beside=copilot_beside,
        withheld=lambda entry: entry.type == "system.message",
    ),
    "grok": Agent(native="*", unlisted=lambda entry: entry.type == "summary", prefix="grok.", unnamed=True),
    "kimi": Agent(
        native="session_*",
        blocks=inside("message", "content"),
        unlisted=kimi_unlisted,
        withheld=lambda entry: inside("message", "origin", "kind")(entry) == "injection",
    ),
    "opencode": Agent(
        native="export.json",
        blocks=inside("parts"),
        beside=lambda entry: (
            sum(key in entry.data for key in ("summary", "permission"))
            + bool(entry.type == "user" and "summary" in entry.data["info"])
        ),
    ),
    "openhands": Agent(
        native="*",
        blocks=inside("llm_message", "content"),
        withheld=lambda entry: entry.type == "SystemPromptEvent",
        prefix="openhands.",
    ),
    "pi": Agent(
        native="*.jsonl",
        blocks=inside("message", "content"),
        unlisted=lambda entry: entry.type in {"session", "session_info"},
        beside=lambda entry: "details" in entry.data.get("message", {}),
    ),
    "qwen": Agent(native="*.jsonl", blocks=inside("message", "parts")),
}


# --- our entries as those rows -----------------------------------------------


def flatten(entries: Sequence[Entry], agent: Agent) -> list[Row]:
    """The rows of a session; records outside the conversation's tree come last."""
    listed = [entry for entry in entries if not agent.unlisted(entry)]
    outside = [entry for entry in listed if agent is AGENTS["claude"] and entry.id is None]
    inside_tree = [entry for entry in listed if entry not in outside]
    return [row for entry in (*inside_tree, *outside) for row in entry_rows(entry, agent)]


def entry_rows(entry: Entry, agent: Agent) -> list[Row]:
    """The rows of a record: its parts in their order, and what stands next to them after the first."""
    if agent is AGENTS["opencode"]:
        return opencode_rows(entry, agent)
    if agent.withheld(entry) or not entry.messages:
        return [row(entry, agent, None, **bare(entry.type, "system", agent))]
    messages = [part_row(part, message, entry, agent) for message in entry.messages for part in message.parts]
    beside = [row(entry, agent, None, kind="opaque") for _ in range(agent.beside(entry))]
    return [*messages[:1], *beside, *messages[1:]]


def opencode_rows(entry: Entry, agent: Agent) -> list[Row]:
    """OpenCode's summaries come first; its parts follow one by one, a call with its result and their metadata."""
    rows = [row(entry, agent, None, kind="opaque") for _ in range(agent.beside(entry))]
    messages = [part_row(part, message, entry, agent) for message in entry.messages for part in message.parts]
    for index, block in enumerate(agent.blocks(entry)):
        own = [found for found in messages if found["provenance"]["block_index"] == index]
        rows += own or [row(entry, agent, index, kind="opaque")]
        if "metadata" in block.get("state", {}):
            rows.append(row(entry, agent, index, kind="opaque"))
    return rows


def row(entry: Entry, agent: Agent, index: int | None, **fields: Any) -> Row:
    """One row, with where it comes from."""
    return {
        **fields,
        "provenance": {"block_index": index, "record_type": agent.prefix + entry.type},
        "timestamp_category": "absent" if entry.timestamp is None else "present",
    }


def part_row(part: Part, message: Message, entry: Entry, agent: Agent) -> Row:
    """The row of one part."""
    blocks = agent.blocks(entry)
    data = part.origin.data if part.origin is not None else None
    index = next((index for index, block in enumerate(blocks) if block is data), None)
    return row(entry, agent, index, **part_fields(part, message, agent))


def part_fields(part: Part, message: Message, agent: Agent) -> Row:
    """What one part says, in the words of the rows."""
    match part:
        case Text():
            return {"kind": "message", "role": message.role, "text": part.text}
        case Thinking():
            words = None if part.signature else part.text  # signed reasoning is withheld
            return {"kind": "readable_reasoning", "role": "assistant", "text": words}
        case RedactedThinking():
            return {"kind": "readable_reasoning", "role": "assistant", "text": None}
        case Image():
            return {"kind": "user_image", "role": message.role, "media": media(part)}
        case ToolCall():
            named = {"tool_call_id": part.id, "tool_name": part.name}
            return {"kind": "tool_call", "role": "assistant", "input": part.arguments, **named}
        case ToolResult():
            return result_fields(part) | ({"tool_name": None} if agent.unnamed else {})
        case Opaque():
            return bare(part.kind, message.role, agent)


def result_fields(result: ToolResult) -> Row:
    """What a tool answered."""
    return {
        "kind": "tool_result",
        "role": "tool",
        "text": result.text,
        "content_blocks": [content(block) for block in result.content],
        "is_error": result.is_error,
        "tool_call_id": result.call_id,
        "tool_name": result.name,
    }


def content(block: ResultContent) -> Row:
    """A block inside a result."""
    if isinstance(block, Text):
        return {"type": "text", "text": block.text}
    assert isinstance(block, Image)
    return {"type": "image", "media": media(block)}


def media(image: Image) -> Row:
    """A picture by its digest."""
    digest = hashlib.sha256(base64.b64decode(image.data or "")).hexdigest()
    return {"media_type": image.media_type, "sha256": digest, "transport": "data" if image.data else "url"}


def bare(kind: str, role: str, agent: Agent) -> Row:
    """A row without words."""
    return {"kind": "context", "role": role} if kind in agent.context else {"kind": "opaque"}


# --- the comparison ----------------------------------------------------------


def expected(folder: Path) -> Iterator[Row]:
    """The rows of the other tool, without its names for its reasons."""
    for line in (folder / "expected-ir.jsonl").read_text().splitlines():
        yield {key: value for key, value in json.loads(line).items() if key not in {"opaque_reason", "context_type"}}


@needs_data("transcripts/migrate")
@pytest.mark.parametrize("name", AGENTS)
def test_rows(name: str) -> None:
    """Every row of the other tool is one of ours, in the same order, and there are no more."""
    (folder,) = (TRANSCRIPTS / "migrate" / name).glob("*/*")
    (native,) = (folder / "native").glob(AGENTS[name].native)
    transcript = read(native)
    assert flatten(transcript.entries, AGENTS[name]) == list(expected(folder))
    assert transcript.problems == ()


@needs_data("transcripts/migrate")
@pytest.mark.parametrize("name", AGENTS)
def test_session(name: str) -> None:
    """The session's id, title and folder are those that the capture was made with."""
    (folder,) = (TRANSCRIPTS / "migrate" / name).glob("*/*")
    (native,) = (folder / "native").glob(AGENTS[name].native)
    provenance = json.loads((folder / "provenance.json").read_text())
    transcript = read(native)
    # OpenHands names its folders by the id without dashes.
    assert transcript.session.replace("-", "") == provenance["native_session_id"].replace("-", "")
    # Codex, Kimi, Qwen and OpenHands keep no title in the session itself; OpenHands no folder either.
    assert transcript.title in {provenance["native_title"], None}
    assert (transcript.title is None) == (name in {"codex", "kimi", "openhands", "qwen"})
    assert transcript.cwd == (None if name == "openhands" else provenance["native_cwd"])


@needs_data("transcripts/migrate")
def test_signed_reasoning_is_read() -> None:
    """Reasoning that the rows withhold is read by us, words and signature."""
    (native,) = TRANSCRIPTS.glob("migrate/claude/*/*/native/*.jsonl")
    thoughts = [part for message in read(native).messages for part in message.parts if isinstance(part, Thinking)]
    assert len(thoughts) == 3
    assert all(part.text and part.signature for part in thoughts)
