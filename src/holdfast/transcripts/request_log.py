"""Request logs: one API request on each line, the conversation growing from one to the next. Plain or `.gz`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.errors import FormatError
from holdfast.messages import Message, Usage
from holdfast.providers.anthropic import read_usage as read_anthropic_usage
from holdfast.providers.openai_chat import read_usage as read_openai_usage
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, mapping, text, timestamp
from holdfast.transcripts.rows import read_rows
from holdfast.transcripts.snapshots import Conversation

__all__ = ["REQUEST_LOG", "Request", "requests"]

_LISTS: Final = ("messages", "input", "contents")
_BODIES: Final = ("request", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it was sent.

    Attributes:
        line: Where it stands in the file.
        messages: The whole conversation that it carried, the system prompt first.
        data: The row as it was read.
        reply: What the model answered, where the log holds it.
        usage: What the provider charged for it.
        model: Which model was asked.
        timestamp: When, in Unix milliseconds.
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


def claims(_path: Path, head: Head) -> bool:
    """Rows that are, or hold, the body of a request: a list of messages and a model to send it to."""
    return any(_body(value) is not None for value in head.values)


def _body(value: Any) -> Json | None:
    row = mapping(value)
    bodies = (row, *(mapping(row.get(key)) for key in _BODIES))
    listed = (body for body in bodies if any(isinstance(body.get(key), list) for key in _LISTS))
    return next((body for body in listed if isinstance(body.get("model"), str)), None)


def requests(path: Path) -> Iterator[Request | Problem]:
    """Every request of a log as one snapshot, with what the provider charged for it: what a replay needs."""
    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
            continue
        line, value = row
        try:
            yield _request(mapping(value), line)
        except FormatError as error:
            yield Problem(line, f"not a request that can be read: {error}")


def _request(row: Json, line: int) -> Request:
    body = _body(row)
    if body is None:
        raise FormatError("expected a list of messages and a model", where=f"line {line}")
    return Request(
        line=line,
        messages=tuple(providers.read_request(body)),
        data=row,
        reply=tuple(_reply(mapping(row.get("response")))),
        usage=_usage(row),
        model=text(body.get("model")),
        timestamp=timestamp(row.get("timestamp")),
    )


def _reply(response: Json) -> list[Message]:
    """The messages of a provider's answer: Anthropic's envelope, a chat completion, or Responses' output."""
    choices, output = response.get("choices"), response.get("output")
    if isinstance(choices, list):
        return providers.read([mapping(mapping(choice).get("message")) for choice in choices[:1]])
    if isinstance(output, list):
        return providers.read(output, format="openai_responses")
    return providers.read([response], format="anthropic") if "content" in response else []


def _usage(row: Json) -> Usage | None:
    """What the row, or the provider's answer in it, says about cost; nothing counted is no usage."""
    for data in (row, row.get("usage"), mapping(row.get("response")).get("usage")):
        usage = read_openai_usage(data) or read_anthropic_usage(data)
        if usage is not None and usage.context:
            return usage
    return None


# --- as one session ----------------------------------------------------------


@dataclass(slots=True)
class _Thread:
    """A conversation in the log, and what its last request cost: that is told with the reply to it."""

    said: Conversation = field(default_factory=Conversation)
    last: tuple[Message, ...] = ()
    usage: Usage | None = None


def stream(path: Path) -> Iterator[Item]:
    """Each request as an entry with the messages that are new in it: all of them together are the conversation.

    The log of an agent holds its sub-agents' requests too. The main conversation is the one with the
    longest request; the file is read twice to know it.
    """
    longest = _longest(path)
    threads: dict[str, _Thread] = {}
    for request in requests(path):
        if isinstance(request, Problem):
            yield request
            continue
        opening = _opening(request)
        thread = threads.setdefault(opening, _Thread())
        yield _entry(request, tuple(_new(request, thread)), sidechain=opening != longest)
    restated = sum(thread.said.restated for thread in threads.values())
    if restated:
        yield Problem(1, f"{restated} messages came again with a small change; the first wording was kept")


def _longest(path: Path) -> str:
    """The opening of the longest request."""
    length, opening = -1, ""
    for request in requests(path):
        if isinstance(request, Request) and len(request.messages) > length:
            length, opening = len(request.messages), _opening(request)
    return opening


def _opening(request: Request) -> str:
    """What a conversation is known by: the first thing said in it."""
    return next((message.digest for message in request.messages if message.role != "system"), "")


def _new(request: Request, thread: _Thread) -> Iterator[Message]:
    """The messages that this request adds; the first reply among them is the one that the last request cost."""
    for message in thread.said.new((*request.messages, *request.reply), after=thread.last):
        if message.role == "assistant" and message.usage is None and thread.usage is not None:
            yield replace(message, usage=thread.usage, timestamp=request.timestamp)
            thread.usage = None
        else:
            yield replace(message, timestamp=request.timestamp)
    thread.last = request.messages
    thread.usage = None if request.reply else request.usage


def _entry(request: Request, messages: tuple[Message, ...], *, sidechain: bool) -> Entry:
    return Entry(
        type="request",
        data=request.data,
        line=request.line,
        timestamp=request.timestamp,
        messages=messages,
        sidechain=sidechain,
    )


def notes(data: Json) -> About:
    """Rows may name the session; each names its model."""
    keys = ("session_id", "conversation_id", "experiment_id")
    session = next((found for key in keys if (found := text(data.get(key)))), None)
    return About(session=session, model=text(mapping(_body(data)).get("model")))


REQUEST_LOG: Final = Reader(name="request_log", claims=claims, stream=stream, notes=notes)
