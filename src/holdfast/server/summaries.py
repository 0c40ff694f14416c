"""Complete the summary that a host asked its model for: what it lacks is added at its end, while it streams."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

from holdfast.providers.replies import Json, get_text, load_json

_EVENT_END: Final = re.compile(rb"(\r?\n\r?\n)")
_DATA: Final = re.compile(rb"^data:[ \t]*(.*?)\r?$", re.MULTILINE)

MAX_SUMMARY_BYTES: Final = 4 * 2**20
"""Bytes of the text and of one event of a stream that is completed. The last event may repeat the whole request."""

Find = Callable[[str], Awaitable[str]]
"""Returns what a summary lacks, as text to add to it."""


async def complete_stream(chunks: AsyncIterator[bytes], format: str, find: Find) -> AsyncIterator[bytes]:
    """Pass the events of a streamed summary on, and add what it lacks before its text ends."""
    summary = _Summary(format)
    rest = b""
    is_too_large = False
    async for chunk in chunks:
        is_too_large = is_too_large or len(rest) + len(summary.text) > MAX_SUMMARY_BYTES
        if is_too_large:  # not a summary: it passes unchanged
            yield rest + chunk
            rest = b""
            continue
        parts = _EVENT_END.split(rest + chunk)
        rest = parts.pop()
        for event, end in zip(parts[::2], parts[1::2], strict=True):
            data = _DATA.search(event)
            value = load_json(data[1]) if data else {}
            if summary.is_ending(value):
                summary.more = await find(summary.text)
            for one in summary.extend(value) if summary.more else ():
                yield _encode(one) + end
            yield (_encode(value) if summary.is_repeated else event) + end
    yield rest


async def complete_body(content: bytes, format: str, find: Find) -> bytes:
    """Return the body of a summary with what it lacks; as it came if it has no text."""
    body = load_json(content)
    places = [(holder, key) for holder, key in _texts(body, format) if isinstance(holder.get(key), str)]
    if not places:
        return content
    holder, key = places[-1]
    more = await find("\n".join(holder[key] for holder, key in places))
    if not more:
        return content
    holder[key] += f"\n\n{more}"
    return json.dumps(body).encode()


def _texts(body: Json, format: str) -> Iterator[tuple[Json, str]]:
    """Yield the places of the text in a reply."""
    if format == "openai_chat":
        for choice in _objects(body.get("choices"))[:1]:
            yield from ((message, "content") for message in _objects([choice.get("message")]))
        return
    items = _objects(body.get("output")) if format == "openai_responses" else [body]
    for block in (block for item in items for block in _objects(item.get("content"))):
        if get_text(block, "type") in {"text", "output_text"}:
            yield block, "text"


def _objects(value: Any) -> list[Json]:
    """Return the objects of a list; none if it is not a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


class _Summary:
    """The text of a streamed summary so far.

    Attributes:
        text: The text.
        more: What is added to it; empty until its end.
        is_repeated: Whether the last event repeats the whole text.
    """

    def __init__(self, format: str) -> None:
        self.text = ""
        self.more = ""
        self.is_repeated = False
        self._format = format
        self._delta: Json = {}
        self._has_ended = False

    def is_ending(self, event: Json) -> bool:
        """Read an event; whether the text ends with it."""
        is_end = self._read(event) and bool(self.text) and not self._has_ended
        self._has_ended |= is_end
        return is_end

    def _read(self, event: Json) -> bool:
        """Add the text of an event, and return whether it ends a text."""
        if self._format == "anthropic":
            self.text += "".join(get_text(delta, "text") for delta in _objects([event.get("delta")]))
            return event.get("type") == "content_block_stop"
        if self._format == "openai_chat":
            choices = _objects(event.get("choices"))[:1]
            self.text += "".join(
                get_text(delta, "content") for one in choices for delta in _objects([one.get("delta")])
            )
            return any(choice.get("finish_reason") for choice in choices)
        if event.get("type") == "response.output_text.delta":
            self.text += get_text(event, "delta")
            self._delta = event
        return get_text(event, "type") in {"response.output_text.done", "response.output_item.done"}

    def extend(self, event: Json) -> Iterator[Json]:
        """Yield the event that adds more before the one that ends the text; later ones get the longer text."""
        more = f"\n\n{self.more}"
        kind = event.get("type")
        self.is_repeated = False
        if self._format == "openai_responses":
            if self._delta:
                yield {**self._delta, "delta": more}
                self._delta = {}
            self.is_repeated = _replace_text(event, self.text, self.text + more)
        elif kind == "content_block_stop" and self.text:
            yield {
                "type": "content_block_delta",
                "index": event.get("index", 0),
                "delta": {"type": "text_delta", "text": more},
            }
            self.text = ""
        elif self.text and any(choice.get("finish_reason") for choice in _objects(event.get("choices"))):
            yield {**event, "usage": None, "choices": [{"index": 0, "delta": {"content": more}, "finish_reason": None}]}
            self.text = ""


def _replace_text(value: Any, old: str, new: str) -> bool:
    """Replace every text that is the old one; whether there was one."""
    found = False
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if item == old:
            value[key] = new
            found = True
        else:
            found = _replace_text(item, old, new) or found
    return found


def _encode(event: Json) -> bytes:
    kind = event.get("type")
    head = f"event: {kind}\n" if isinstance(kind, str) else ""
    return f"{head}data: {json.dumps(event)}".encode()
