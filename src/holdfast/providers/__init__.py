"""The providers' wire forms: read into canonical messages, shaped, rendered and checked.

A message that was read and not edited is rendered unchanged, byte for byte: unknown fields, cache marks, signatures
and key order included. An edited one keeps every field that the edit does not touch.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import PLAIN, Message, Opaque
from holdfast.providers.anthropic import ANTHROPIC, has_hints
from holdfast.providers.format import Format as Format
from holdfast.providers.gemini import GEMINI
from holdfast.providers.incoming import REPLY_ROLES, read_or_keep, read_plain
from holdfast.providers.incoming import Incoming as Incoming
from holdfast.providers.incoming import normalise as normalise
from holdfast.providers.openai_chat import OPENAI_CHAT
from holdfast.providers.openai_responses import OPENAI_RESPONSES, check_reasoning
from holdfast.providers.openai_responses import link_reasoning as link_reasoning
from holdfast.providers.pi import PI
from holdfast.providers.rules import Violation as Violation
from holdfast.providers.shaping import CONTINUED as CONTINUED
from holdfast.providers.shaping import Log as Log
from holdfast.providers.shaping import Repair as Repair
from holdfast.providers.wire import Json, expect_object, kind_of, leading_system

FORMATS: Final[dict[str, Format]] = {
    format_.name: format_ for format_ in (PI, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC)
}
"""Every format by name. A message with marks of several is read as the first of them."""

_READERS: Final = {**{name: format_.read for name, format_ in FORMATS.items()}, PLAIN: read_plain}
_CHAT_FIELDS: Final = ("name", "refusal", "audio", "reasoning_content", "reasoning", "usage")
_BY_LIST_KEY: Final = {"messages": OPENAI_CHAT, "input": OPENAI_RESPONSES, "contents": GEMINI}
_NO_LINKS: Final[Mapping[str, str]] = {}


def expect_format(name: str) -> Format:
    """Return a format by its name; raise a FormatError if there is none."""
    if name == PLAIN:
        return OPENAI_CHAT
    if name not in FORMATS:
        raise FormatError(f"format {name!r} is not one of {', '.join(sorted(FORMATS))}", format=name)
    return FORMATS[name]


def detect(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the format of a message list: that of the newest message with a mark of one.

    A list without marks (plain roles and text) reads the same in several formats and counts as Chat Completions,
    unless its blocks have something that Anthropic introduced.
    """
    listed = [item for item in normalise(messages) if not isinstance(item, Message)]
    return _newest_format((_format_of_message(data), data) for data in reversed(listed))


def format_of(messages: Sequence[Message], *, default: str = OPENAI_CHAT.name) -> str:
    """Return the name of the format that messages were read from, as `detect` does; `default` if none shows one."""
    origins = (message.origin for message in reversed(messages))
    return _newest_format(((origin.format, origin.data) for origin in origins if origin is not None), default=default)


def _newest_format(candidates: Iterable[tuple[str, Json]], *, default: str = OPENAI_CHAT.name) -> str:
    is_hinted = False
    for name, data in candidates:
        if name in FORMATS:
            return name
        is_hinted = is_hinted or has_hints(data)
    return ANTHROPIC.name if is_hinted else default


def _format_of_message(data: Json) -> str:
    """Return the format of one message by its marks alone."""
    for name, format_ in FORMATS.items():
        if format_.is_own(data):
            return name
    # Typed items are those of Responses, unless they are whole replies of Anthropic.
    if "role" not in data or (kind_of(data) == "message" and {"model", "usage", "stop_reason"}.isdisjoint(data)):
        return OPENAI_RESPONSES.name
    return PLAIN if all(data.get(key) is None for key in _CHAT_FIELDS) else OPENAI_CHAT.name


def read(messages: Iterable[Incoming], *, format: str | None = None, keep_malformed: bool = False) -> list[Message]:
    """Read a message list; without a `format`, each message in the format that it shows.

    Canonical messages are returned unchanged. Objects that an SDK returned are read as what one would send back.
    A message that breaks the rules of the format raises a FormatError. With `keep_malformed`, malformed parts of
    assistant messages, which a provider made, are kept as opaque parts.
    """
    if format is not None:
        expect_format(format)
    found: list[Message] = []
    for index, item in enumerate(normalise(messages)):
        if isinstance(item, Message):
            _check_time(item, index)
            found.append(item)
        else:
            found.append(_read_message(item, f"messages[{index}]", format, keep_malformed))
    return found


def is_read_from(message: Message, data: Any, *, format: str) -> bool:
    """Return whether a message, which nothing has edited, was read from this wire form, which is plain JSON."""
    origin = message.origin
    if origin is None or origin.format != format or origin.data != data:
        return False
    known: Any = origin.data
    # For Python `1`, `1.0` and `True` are equal, and so are objects with another order of keys. They are not the same
    # bytes, and `same` takes longer than reading the message again. Version 2 has no references between values.
    return marshal.dumps(known, 2) == marshal.dumps(data, 2)


def _check_time(message: Message, index: int) -> None:
    """Refuse a canonical message whose time cannot be stored."""
    time = message.timestamp
    if time is not None and type(time) is not int:
        raise FormatError(f"timestamp={time!r}: give Unix milliseconds, a whole number", where=f"messages[{index}]")


def _read_message(data: Json, where: str, format: str | None, keep_malformed: bool) -> Message:  # noqa: FBT001
    name = format or _format_of_message(data)
    if keep_malformed and name in FORMATS and data.get("role") in REPLY_ROLES:
        message = read_or_keep(data, where, format=FORMATS[name])
    else:
        message = _READERS[name](data, where)
    if format is not None and not _has_known_parts(message):
        _refuse_other_format(data, where, format)
    # A reply and the same reply inside a history are one message; only one of them has the provider's id.
    return message if message.id is None else replace(message, id=None)


def _has_known_parts(message: Message) -> bool:
    return not all(isinstance(part, Opaque) for part in message.parts)


def _refuse_other_format(data: Json, where: str, format: str) -> None:
    """Refuse a message of which nothing was understood in the named format, if it can be read in the one it shows."""
    shown = _format_of_message(data)
    if shown == format:
        return
    try:
        other = _READERS[shown](data, where)
    except FormatError:
        return
    if _has_known_parts(other):
        raise FormatError(
            f"is a message of {shown}, not of {format}: name that format, or leave `format` out", where=where
        )


def render(messages: Sequence[Message], format: str) -> list[Json]:
    """Render messages for a provider.

    Messages that were read from this format and not edited are returned unchanged.
    """
    return expect_format(format).render(messages)


def check(wire: Sequence[Json], format: str, *, reasoning: Mapping[str, str] = _NO_LINKS) -> list[Violation]:
    """List the rules of a provider that a message list breaks; none means that it can be sent.

    The rules are those that the providers' documents and their refusals state. `reasoning` links the items of the whole
    conversation to the reasoning that they came after, as `link_reasoning` returns it.
    """
    form = expect_format(format)
    if not wire:
        return [Violation("empty-window", "messages", "there is no message")]
    missing = check_reasoning(wire, reasoning) if reasoning else []
    return [*form.check(wire), *missing]


def read_request(body: Mapping[str, Any], *, format: str | None = None, keep_malformed: bool = False) -> list[Message]:
    """Read the conversation in a request body: the system prompt first, then the messages, as `read` does."""
    list_key = next(filter(expect_object(body, "body").__contains__, _BY_LIST_KEY), "messages")
    listed = body.get(list_key)
    if isinstance(listed, str) and list_key == GEMINI.list_key:
        listed = [{"role": "user", "parts": [{"text": listed}]}]
    elif isinstance(listed, str) and list_key == "input":  # Responses; elsewhere the provider refuses it
        listed = [{"role": "user", "content": listed}]
    if not isinstance(listed, list):
        raise FormatError("expected a list under 'messages', 'input' or 'contents'", where="body")
    detected = ANTHROPIC if list_key == "messages" and "system" in body else _BY_LIST_KEY[list_key]
    form = expect_format(format or detected.name)
    name = format or (form.name if form.list_key != "messages" else None)
    messages = read(listed, format=name, keep_malformed=keep_malformed)
    key = next(filter(body.get, form.system_keys), None)
    if key is None or form.read_system is None:
        return messages
    # A system prompt outside of the list has no wire form of its own, unlike a system message in the list.
    return [Message(role="system", parts=form.read_system(body[key], f"body.{key}")), *messages]


def render_request(messages: Sequence[Message], format: str) -> dict[str, Any]:
    """Render a conversation as the fields of a request body, with the system prompt in the provider's field for it."""
    form = expect_format(format)
    lead = leading_system(messages, form.name)
    fields: dict[str, Any] = {form.list_key: form.render(messages[lead:])}
    if lead and form.render_system is not None:
        return {form.system_keys[0]: form.render_system(messages[:lead]), **fields}
    return fields
