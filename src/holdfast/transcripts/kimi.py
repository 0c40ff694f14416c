"""Kimi Code: `~/.kimi-code/sessions/**/session_<id>/agents/<agent>/wire.jsonl`, with `state.json` next to `agents`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Message, Role, ToolCall
from holdfast.providers.wire import find, read_usage
from holdfast.transcripts import reader
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.lines import read_document
from holdfast.transcripts.reader import Facts, Reader, make_call, make_result, read_block, read_blocks

NAME: Final = "kimi"
_MAIN: Final = "agents/main/wire.jsonl"
_STATE: Final = "state.json"
_USAGE: Final = {
    "input": "inputOther",
    "output": "output",
    "cache_read": "inputCacheRead",
    "cache_write": "inputCacheCreation",
}
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def _is_own(data: Json) -> bool:
    """Return whether a record is the protocol line that opens a file, or adds to the context."""
    kind = data.get("type")
    return (kind == "metadata" and "protocol_version" in data) or str(kind).startswith("context.append_")


def _stream(path: Path) -> Iterator[Item]:
    """Yield every record of the main agent, then those of its sub-agents."""
    if not path.is_dir():
        yield from _stream_agent(path)
        return
    if (state := path / _STATE).is_file():
        try:
            yield make_entry(mapping(read_document(state)), 1, type="state", id="", parent="", time="createdAt")
        except (ValueError, TranscriptError) as error:
            yield Problem(1, f"{_STATE}: {error}")
    yield from _stream_agent(path / _MAIN)
    for wire in sorted(path.glob("agents/*/wire.jsonl")):
        if wire != path / _MAIN:
            for item in _stream_agent(wire):
                yield replace(item, sidechain=True) if isinstance(item, Entry) else item


def _stream_agent(path: Path) -> Iterator[Item]:
    return reader.delay_items(reader.read_entries(path, _read_messages, _frame), _set_usage)


def _frame(data: Json, line: int) -> Entry:
    kind, event = str(data.get("type", "")), mapping(data.get("event"))
    entry = make_entry(
        data,
        line,
        type=f"{kind}:{event['type']}" if "type" in event else kind,
        time="time" if "time" in data else "created_at",
        sidechain=data.get("agentId", "main") != "main",
    )
    ids = text(data, "event.uuid", "message.id"), text(data, "event.parentUuid", "event.stepUuid")
    return replace(entry, id=ids[0], parent=ids[1])


def _read_messages(entry: Entry) -> Sequence[Message]:
    event, data = mapping(entry.data.get("event")), mapping(entry.data.get("message"))
    match event.get("type"):
        case "content.part":
            return (Message(role="assistant", parts=(read_block(mapping(event.get("part")), NAME),)),)
        case "tool.call":
            call = make_call(string(event, "toolCallId"), string(event, "name"), event.get("args"))
            return (Message(role="assistant", parts=(call,)),)
        case "tool.result":
            content, is_error = read_blocks(event, "result.output", NAME), bool(find(event, "result.isError"))
            return make_result(string(event, "toolCallId"), content, is_error=is_error)
    if entry.type != "context.append_message":
        return ()
    role, content = _ROLES.get(str(data.get("role")), "user"), read_blocks(data, "content", NAME)
    if role == "tool":
        return make_result(string(data, "toolCallId"), content)
    return (Message(role=role, parts=(*content, *map(_read_call, objects(data, "toolCalls")))),)


def _read_call(item: Json) -> ToolCall:
    """Read a call in OpenAI's shape or the agent's own."""
    function = mapping(item.get("function")) or item
    return make_call(string(item, "id"), string(function, "name"), function.get("arguments", function.get("args")))


def _set_usage(delayed: deque[Item], entry: Entry) -> None:
    """Set usage and stop reason of the last message of a step, from the record that ends the step."""
    event = mapping(entry.data.get("event"))
    if event.get("type") != "step.end":
        return
    usage, stop = read_usage(event.get("usage"), _USAGE), text(event, "finishReason")
    reader.amend_last(
        delayed,
        lambda item: find(item.data, "event.stepUuid") == entry.id,
        lambda message: replace(message, usage=usage, stop=stop),
    )


_STATE_FACTS: Final = reader.facts(session="id", cwd="cwd", title="title")
_RECORD_FACTS: Final = reader.facts(cwd="environmentDisclosure.cwd")
_REQUEST_FACTS: Final = _RECORD_FACTS | reader.facts(model="model")


def _describe(data: Json) -> Facts:
    if "agents" in data and "type" not in data:
        return _STATE_FACTS
    return _REQUEST_FACTS if data.get("type") == "llm.request" else _RECORD_FACTS


KIMI: Final = Reader(
    name=NAME,
    claims=reader.claims_if(_is_own),
    stream=_stream,
    describe=_describe,
    folder=reader.folder_with(_MAIN, beside=[_STATE]),
)
