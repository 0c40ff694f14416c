"""The providers' wire forms: read into the canonical message, and rendered from it.

What was read and not edited is rendered as it came, byte for byte: unknown fields, cache marks,
signatures and key order included. What was edited keeps every field that the edit does not touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats import plain
from holdfast.formats.anthropic import ANTHROPIC, hints, read_content, render_content
from holdfast.formats.gemini import GEMINI, read_parts, render_parts
from holdfast.formats.openai_chat import OPENAI_CHAT
from holdfast.formats.openai_responses import OPENAI_RESPONSES, reasoned
from holdfast.formats.pi import PI
from holdfast.formats.sdk import Incoming, without_sdk
from holdfast.formats.wire import Format, Json, child, kept, kind_of
from holdfast.messages import PLAIN, Message, Part, Text

__all__ = [
    "FORMATS",
    "Format",
    "Incoming",
    "detect",
    "format_of",
    "incoming",
    "leading_system",
    "read",
    "read_request",
    "reasoned",
    "render",
    "render_request",
]

FORMATS: Final[dict[str, Format]] = {
    format_.name: format_ for format_ in (PI, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC)
}
"""Every format by name. A message with marks of several is of the first: its reader carries what it does not know."""

_DEFAULT: Final = OPENAI_CHAT.name
_READERS: Final = {**{name: format_.read for name, format_ in FORMATS.items()}, PLAIN: plain.read}
_REPLY_FIELDS: Final = frozenset({"model", "usage", "stop_reason"})
_CHAT_FIELDS: Final = ("name", "refusal", "audio", "reasoning_content", "reasoning", "usage")


def detect(messages: Iterable[Mapping[str, Any]]) -> str:
    """Name the format of a message list: that of the newest message with a mark of one.

    A list without any mark (plain roles and text) reads the same in several formats and counts as Chat
    Completions, unless its blocks have what began with Anthropic.

    Raises:
        FormatError: The list holds something that is no message.
    """
    listed = [item for item in incoming(messages) if not isinstance(item, Message)]
    return _newest((_format_of(data), data) for data in reversed(listed))


def format_of(messages: Sequence[Message], *, default: str = _DEFAULT) -> str:
    """Name the format that messages were read from, as `detect` does; the default where none shows one."""
    origins = (message.origin for message in reversed(messages))
    return _newest(((origin.format, origin.data) for origin in origins if origin is not None), default=default)


def _newest(found: Iterable[tuple[str, Json]], *, default: str = _DEFAULT) -> str:
    hinted = False
    for name, data in found:
        if name in FORMATS:
            return name
        hinted = hinted or hints(data)
    return ANTHROPIC.name if hinted else default


def _format_of(data: Json) -> str:
    """The format of one message, by its marks alone."""
    for name, format_ in FORMATS.items():
        if format_.marks(data) is not None:
            return name
    if "role" not in data or (kind_of(data) == "message" and _REPLY_FIELDS.isdisjoint(data)):
        return OPENAI_RESPONSES.name  # no other format has typed items
    return PLAIN if all(data.get(key) is None for key in _CHAT_FIELDS) else OPENAI_CHAT.name


def incoming(messages: Any) -> list[Message | Json]:
    """The messages as they can be read: what an SDK returned as what one would send back, item by item.

    Raises:
        FormatError: This is no list, or something in it is no message; `where` is the path to it.
    """
    if isinstance(messages, Mapping):
        raise FormatError("expected a list of messages, found an object: read_request reads bodies", where="messages")
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise FormatError(f"expected a list of messages, found {type(messages).__name__}", where="messages")
    listed = without_sdk(messages)
    for index, item in enumerate(listed):
        if not (isinstance(item, dict) and "role" in item) and not isinstance(item, Message):
            _check_message(item, f"messages[{index}]")
    return listed


def _check_message(item: Any, where: str) -> None:
    if {"role", "type", "parts"}.isdisjoint(child(item, where)):
        raise FormatError("neither a role nor a type: this is not a message", where=where)


def read(messages: Iterable[Incoming], *, format: str | None = None) -> list[Message]:
    """Read a message list, each message in the format that it shows unless one is named.

    Messages that are canonical already pass through; what an SDK returned is read as what one would send back.

    Raises:
        FormatError: Something is not as the format has it; `where` is the path to it.
    """
    if format is not None:
        _named(format)
    return [
        item if isinstance(item, Message) else _read(item, f"messages[{index}]", format)
        for index, item in enumerate(incoming(messages))
    ]


def _read(data: Json, where: str, format: str | None) -> Message:
    message = _READERS[format or _format_of(data)](data, where)
    # A reply and the same reply inside a history are one message; only one of them has the provider's id.
    return message if message.id is None else replace(message, id=None)


def render(messages: Sequence[Message], format: str) -> list[Json]:
    """Render messages for a provider. What was read from this format and not edited comes back itself."""
    return _named(format).render(messages)


def _named(name: str) -> Format:
    if name == PLAIN:
        return OPENAI_CHAT
    if name not in FORMATS:
        raise FormatError(f"format {name!r} is not one of {', '.join(sorted(FORMATS))}", format=name)
    return FORMATS[name]


# --- request bodies ----------------------------------------------------------

_SYSTEM_KEYS: Final = {
    ANTHROPIC.name: ("system",),
    OPENAI_RESPONSES.name: ("instructions",),
    GEMINI.name: ("systemInstruction", "system_instruction"),
}
_LIST_KEYS: Final = {OPENAI_RESPONSES.name: "input", GEMINI.name: "contents"}


def read_request(body: Mapping[str, Any], *, format: str | None = None) -> list[Message]:
    """Read the conversation out of a request body: the system prompt first, then the messages."""
    child(body, "body")
    listed = next((body[key] for key in ("messages", "input", "contents") if key in body), None)
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    if not isinstance(listed, list):
        raise FormatError("expected a list under 'messages', 'input' or 'contents'", where="body")
    named = format or _format_of_body(body)
    return [*_read_system(body, named), *read(listed, format=format or (named if named in _LIST_KEYS else None))]


def _format_of_body(body: Json) -> str:
    if "messages" in body:
        return ANTHROPIC.name if "system" in body else _DEFAULT
    return OPENAI_RESPONSES.name if "input" in body else GEMINI.name


def _read_system(body: Json, format: str) -> list[Message]:
    """The system prompt beside the list. It has no wire form of its own, unlike a system message in the list."""
    key = next((key for key in _SYSTEM_KEYS.get(format, ()) if body.get(key)), None)
    if key is None:
        return []
    parts: tuple[Part, ...]
    if format == ANTHROPIC.name:
        parts = read_content(body[key], f"body.{key}")
    elif format == GEMINI.name and isinstance(body[key], Mapping):
        parts = read_parts(body[key].get("parts"), f"body.{key}.parts")
    elif isinstance(body[key], str):
        parts = (Text(text=body[key]),)
    else:
        raise FormatError(f"expected a string, found {type(body[key]).__name__}", where=f"body.{key}")
    return [Message(role="system", parts=parts)]


def render_request(messages: Sequence[Message], format: str) -> dict[str, Any]:
    """Render a conversation as the fields of a request body, the system prompt where the provider wants it."""
    listed = _LIST_KEYS.get(format, "messages")
    beside = leading_system(messages, format)
    if beside == 0:
        return {listed: render(messages, format)}
    key = _SYSTEM_KEYS[format][0]
    return {key: _render_system(messages[:beside], format), listed: render(messages[beside:], format)}


def leading_system(messages: Sequence[Message], format: str) -> int:
    """How many messages at the front are the system prompt beside the list of this format, not a part of the list."""
    if format not in _SYSTEM_KEYS:
        return 0
    is_beside = (message.role == "system" and not _is_listed(message, format) for message in messages)
    return next((index for index, beside in enumerate(is_beside) if not beside), len(messages))


def _is_listed(message: Message, format: str) -> bool:
    """Tell whether a system message was read from a list of this format, where a conversation may begin with one."""
    is_plain = message.origin is not None and message.origin.format == PLAIN
    return bool(kept(message, format)) and not (is_plain and format == ANTHROPIC.name)


def _render_system(messages: Sequence[Message], format: str) -> Any:
    parts = [part for message in messages for part in message.parts]
    if format == GEMINI.name:
        return {"parts": render_parts(parts)}
    if format == ANTHROPIC.name and any(kept(part, format) for part in parts):
        return render_content(parts)
    return "\n\n".join(message.text for message in messages)
