"""Request logs: one API request on each line, plain or `.gz`, each with the conversation so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.errors import FormatError
from holdfast.messages import Message, Text, ToolResult, Usage
from holdfast.providers.anthropic import USAGE
from holdfast.providers.openai_chat import read_usage as read_openai_usage
from holdfast.providers.wire import find, read_usage
from holdfast.text import plural
from holdfast.transcripts.entry import Entry, Item, Json, Problem, mapping, text, timestamp
from holdfast.transcripts.reader import Reader, facts, read_values

_LISTS: Final = ("messages", "input", "contents")
_BODIES: Final = ("request", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it was sent, with the whole conversation that it carried, the system prompt first.

    `data` is the row as it was read. The reply, the usage and the rest are there if the log holds them.
    """

    line: int
    messages: tuple[Message, ...]
    data: Json = field(repr=False)
    reply: tuple[Message, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    timestamp: int | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt as the provider counted them, cached ones included."""
        usage = self.usage
        return None if usage is None else usage.input + usage.cache_read + usage.cache_write


def _find_body(value: Any) -> Json | None:
    """Return the body of a request that a row is, or holds: a list of messages and a model."""
    row = mapping(value)
    bodies = (row, *(mapping(row.get(key)) for key in _BODIES))
    listed = (body for body in bodies if any(isinstance(body.get(key), list) for key in _LISTS))
    return next((body for body in listed if isinstance(body.get("model"), str)), None)


def requests(path: Path) -> Iterator[Request | Problem]:
    """Yield every request of a log with its whole conversation and the reported usage, as a replay needs it."""
    for value in read_values(path):
        if isinstance(value, Problem):
            yield value
            continue
        line, row = value[0], mapping(value[1])
        try:
            body = _find_body(row)
            if body is None:
                raise FormatError("expected a list of messages and a model", where=f"line {line}")  # noqa: TRY301
            places = (row, row.get("usage"), find(row, "response.usage"))
            usages = (read_openai_usage(data) or read_usage(data, USAGE) for data in places)
            yield Request(
                line=line,
                messages=tuple(providers.read_request(body)),
                data=row,
                reply=tuple(_read_reply(mapping(row.get("response")))),
                usage=next(filter(None, usages), None),
                model=text(body, "model"),
                timestamp=timestamp(row.get("timestamp")),
            )
        except FormatError as error:
            yield Problem(line, f"not a request that can be read: {error}")


def _read_reply(response: Json) -> list[Message]:
    """Read the messages of a response: Anthropic's envelope, a chat completion, or Responses output."""
    choices, output = response.get("choices"), response.get("output")
    if isinstance(choices, list):
        return providers.read([mapping(find(choice, "message")) for choice in choices[:1]])
    if isinstance(output, list):
        return providers.read(output, format="openai_responses")
    return providers.read([response], format="anthropic") if "content" in response else []


_MAX_CHANGE: Final = 64
_MIN_SHARED: Final = 128


@dataclass(slots=True)
class Conversation:
    """The messages so far of a conversation that is logged as snapshots.

    `seen` counts each message in one snapshot, by digest and time; `restated` those that were repeated with a small
    change, of which the first version is kept. `usage` belongs to the reply in the next request.
    """

    seen: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    restated: int = 0
    last: tuple[Message, ...] = ()
    usage: Usage | None = None

    def take_new(self, snapshot: Sequence[Message], *, after: Sequence[Message] = ()) -> list[Message]:
        """Return the messages of a snapshot that no earlier one held; a message that occurs twice counts twice.

        `after` is the snapshot before it: whatever follows its last message is new, even if it repeats an
        older message; a small change of the message at the same place is not new.
        """
        here: Counter[tuple[str, int | None]] = Counter()
        fresh: list[Message] = []
        known = _find_end(after, snapshot)
        for index, message in enumerate(snapshot):
            key = (message.digest, message.timestamp)
            here[key] += 1
            if index < known and here[key] <= self.seen[key]:
                continue
            if index < known and index < len(after) and restates(after[index], message):
                self.restated += 1
            else:
                fresh.append(message)
        self.seen |= here
        return fresh

    def take_new_of(self, request: Request) -> Iterator[Message]:
        """Yield the messages that a request adds; the first reply among them gets the usage of the last request."""
        for message in self.take_new((*request.messages, *request.reply), after=self.last):
            if message.role == "assistant" and message.usage is None and self.usage is not None:
                yield replace(message, usage=self.usage, timestamp=request.timestamp)
                self.usage = None
            else:
                yield replace(message, timestamp=request.timestamp)
        self.last = request.messages
        self.usage = None if request.reply else request.usage


def _find_end(before: Sequence[Message], snapshot: Sequence[Message]) -> int:
    """Return the position in a snapshot at which the one before it ends; its length if that is unknown."""
    if not before:
        return len(snapshot)
    last, place = before[-1], len(before) - 1
    if place < len(snapshot) and restates(last, snapshot[place]):
        return len(before)
    same = (index for index in range(len(snapshot) - 1, -1, -1) if snapshot[index].digest == last.digest)
    return next(same, len(snapshot) - 1) + 1


def restates(old: Message, new: Message) -> bool:
    """Return whether a message repeats an older one with a small change.

    Clients move cache marks, stamp headers and clear old tool results: the call ids stay the same, or all of a
    long text but a short part.
    """
    if old.role != new.role:
        return False
    ids = _list_call_ids(old)
    if ids or _list_call_ids(new):
        return ids == _list_call_ids(new)
    before, after = _join_text(old), _join_text(new)
    front = _count_prefix(before, after)
    shared = front + _count_prefix(before[front:][::-1], after[front:][::-1])
    changed = max(len(before), len(after)) - shared
    return changed <= _MAX_CHANGE and shared >= max(_MIN_SHARED, 3 * changed)


def _list_call_ids(message: Message) -> tuple[str, ...]:
    return tuple(call.id for call in message.calls) + tuple(result.call_id for result in message.results)


def _join_text(message: Message) -> str:
    parts = (part for part in message.parts if isinstance(part, Text | ToolResult))
    return "\n".join(part.text for part in parts)


def _count_prefix(left: str, right: str) -> int:
    """Count the characters that two texts share at their beginning."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _stream(path: Path) -> Iterator[Item]:
    """Yield each request as an entry with the messages that are new in it; together they are the conversation.

    A log also holds the requests of sub-agents. The main conversation is the one with the longest request;
    the file is read twice to find it.
    """
    length, longest = -1, ""
    for request in requests(path):
        if isinstance(request, Request) and len(request.messages) > length:
            length, longest = len(request.messages), _get_opening(request)
    threads: dict[str, Conversation] = {}
    for request in requests(path):
        if isinstance(request, Problem):
            yield request
            continue
        opening = _get_opening(request)
        yield Entry(
            type="request",
            data=request.data,
            line=request.line,
            timestamp=request.timestamp,
            messages=tuple(threads.setdefault(opening, Conversation()).take_new_of(request)),
            sidechain=opening != longest,
        )
    restated = sum(thread.restated for thread in threads.values())
    if restated:
        yield Problem(1, f"{plural(restated, 'message')} came again with a small change; the first wording was kept")


def _get_opening(request: Request) -> str:
    """Return the digest of the first message, which identifies a conversation."""
    return next((message.digest for message in request.messages if message.role != "system"), "")


REQUEST_LOG: Final = Reader(
    name="request_log",
    claims=lambda _path, head: any(_find_body(value) is not None for value in head.values),
    stream=_stream,
    describe=facts(session="session_id conversation_id experiment_id", model="request.model body.model model"),
)
