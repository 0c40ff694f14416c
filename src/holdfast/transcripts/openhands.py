"""OpenHands: `~/.openhands/conversations/<id>/events/event-<n>-<id>.json`, one file for each event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Message, Part, Role, Text, Thinking
from holdfast.providers.wire import find, image_from_url
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.lines import read_document
from holdfast.transcripts.reader import Reader, attach_messages, claims_if, facts, make_call, make_result, read_block

NAME: Final = "openhands"
_EVENTS: Final = "event-*.json"
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def _find_folder(path: Path) -> Path | None:
    """Return the conversation's folder, for itself, its folder of events and any event."""
    events = path if path.name == "events" else path.parent if path.match(_EVENTS) else path / "events"
    return events.parent if events.name == "events" and _list_events(events.parent) else None


def _list_events(home: Path) -> list[Path]:
    events = home / "events"
    return sorted(events.glob(_EVENTS)) if events.is_dir() else []


def _stream(path: Path) -> Iterator[Item]:
    """Yield every event, in the order of the file names."""
    files = _list_events(path) if path.is_dir() else [path]
    for line, file in enumerate(files, start=1):
        try:
            data = read_document(file)
        except (ValueError, TranscriptError) as error:
            yield Problem(line, f"{file.name}: {error}")
            continue
        if isinstance(data, Mapping):
            entry = make_entry(data, line, type=string(data, "kind"), parent="action_id")
            yield from attach_messages(entry, _read_messages)
        else:
            yield Problem(line, f"{file.name}: a JSON {type(data).__name__}, not an object")


def _read_messages(entry: Entry) -> Sequence[Message]:
    data = entry.data
    match entry.type:
        case "SystemPromptEvent":
            blocks = (mapping(data.get(key)) for key in ("system_prompt", "dynamic_context"))
            return (Message(role="system", parts=_read_parts(block for block in blocks if block)),)
        case "MessageEvent":
            message = mapping(data.get("llm_message"))
            role = _ROLES.get(str(message.get("role")), "user")
            return (Message(role=role, parts=(*_read_thinking(message), *_read_parts(objects(message, "content")))),)
        case "ActionEvent":
            arguments = find(data, "tool_call.arguments")
            arguments = arguments if isinstance(arguments, str) else data.get("action")
            call = make_call(string(data, "tool_call_id"), string(data, "tool_name"), arguments)
            parts = (*_read_thinking(data), *_read_parts(objects(data, "thought")), call)
            return (Message(role="assistant", parts=parts),)
        case "ObservationEvent":
            content = _read_parts(objects(data, "observation.content"))
            is_error = bool(find(data, "observation.is_error"))
            return make_result(string(data, "tool_call_id"), content, is_error=is_error, name=text(data, "tool_name"))
        case "AgentErrorEvent" | "UserRejectObservation":
            reason = string(data, "error" if entry.type == "AgentErrorEvent" else "rejection_reason")
            call_id, name = string(data, "tool_call_id"), text(data, "tool_name")
            return make_result(call_id, (Text(text=reason),), is_error=True, name=name)
    return ()


def _read_thinking(data: Json) -> Iterator[Part]:
    blocks = objects(data, "thinking_blocks")
    for block in blocks:
        yield Thinking(text=string(block, "thinking"), signature=text(block, "signature"))
    if not blocks and (content := text(data, "reasoning_content")):
        yield Thinking(text=content)


def _read_parts(blocks: Iterable[Json]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for block in blocks:
        if isinstance(urls := block.get("image_urls"), list):
            parts += [image_from_url(str(url)).read_from(block, format=NAME) for url in urls]
        else:
            parts.append(read_block(block, NAME))
    return tuple(parts)


OPENHANDS: Final = Reader(
    name=NAME,
    claims=claims_if(lambda record: string(record, "kind").endswith("Event") and "source" in record),
    stream=_stream,
    describe=facts(model="model"),
    folder=_find_folder,
)
