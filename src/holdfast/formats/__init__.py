"""The providers' wire forms: read into the canonical message, and rendered from it.

What was read and not edited is rendered as it came, byte for byte: unknown fields, cache marks,
signatures and key order included. What was edited keeps every field that the edit does not touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.anthropic import ANTHROPIC, hints, read_content, render_content
from holdfast.formats.openai_chat import OPENAI_CHAT
from holdfast.formats.openai_responses import OPENAI_RESPONSES
from holdfast.formats.pi import PI
from holdfast.formats.wire import Format, Json, child, kept
from holdfast.messages import Message, Part, Text

__all__ = ["FORMATS", "Format", "detect", "read", "read_request", "render", "render_request"]

FORMATS: Final[dict[str, Format]] = {
    format_.name: format_ for format_ in (PI, OPENAI_RESPONSES, ANTHROPIC, OPENAI_CHAT)
}
"""Every format by name."""

_PLAIN: Final = OPENAI_CHAT.name


def detect(messages: Iterable[Mapping[str, Any]]) -> str:
    """Name the format of a message list.

    A list without any mark (plain roles and text) reads the same in all of them and counts as Chat Completions.

    Raises:
        FormatError: The list holds marks of two formats, or something that is no message.
    """
    return _detect((item, f"messages[{index}]") for index, item in enumerate(_listed(messages)))


def _detect(placed: Iterable[tuple[Any, str]]) -> str:
    found: dict[str, tuple[str, str]] = {}
    hinted = False
    for item, where in placed:
        data = _message(item, where)
        for name, format_ in FORMATS.items():
            if (mark := format_.marks(data)) is not None:
                found.setdefault(name, (where, mark))
        hinted = hinted or hints(data)
    if PI.name in found:  # its reader knows the others' spellings too: real session files mix them
        return PI.name
    if len(found) > 1:
        (one, (where, mark)), (other, (there, second)) = list(found.items())[:2]
        raise FormatError(f"{mark} is {one}, but {second} in {there} is {other}: pass format=", where=where)
    return next(iter(found), ANTHROPIC.name if hinted else _PLAIN)


def _message(item: Any, where: str) -> Json:
    data = child(item, where)
    if "role" not in data and "type" not in data:
        raise FormatError("neither a role nor a type: this is not a message", where=where)
    return data


def _listed(messages: Any) -> list[Any]:
    if isinstance(messages, Mapping):
        raise FormatError("expected a list of messages, found an object: read_request reads bodies", where="messages")
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise FormatError(f"expected a list of messages, found {type(messages).__name__}", where="messages")
    return list(messages)


def read(messages: Iterable[Mapping[str, Any] | Message], *, format: str | None = None) -> list[Message]:
    """Read a message list of any known format; messages that are canonical already pass through.

    Raises:
        FormatError: Something is not as the format has it; `where` is the path to it.
    """
    placed = [(item, f"messages[{index}]") for index, item in enumerate(_listed(messages))]
    if format is None:
        format = _detect((item, where) for item, where in placed if not isinstance(item, Message))
    reader = _named(format).read
    return [item if isinstance(item, Message) else reader(_message(item, where), where) for item, where in placed]


def render(messages: Sequence[Message], format: str) -> list[Json]:
    """Render messages for a provider. What was read from this format and not edited comes back itself."""
    return _named(format).render(messages)


def _named(name: str) -> Format:
    if name not in FORMATS:
        raise FormatError(f"format {name!r} is not one of {', '.join(sorted(FORMATS))}", format=name)
    return FORMATS[name]


# --- request bodies ----------------------------------------------------------

_SYSTEM_KEYS: Final = {ANTHROPIC.name: "system", OPENAI_RESPONSES.name: "instructions"}
_LIST_KEYS: Final = {OPENAI_RESPONSES.name: "input"}


def read_request(body: Mapping[str, Any], *, format: str | None = None) -> list[Message]:
    """Read the conversation out of a request body: the system prompt first, then the messages."""
    listed = child(body, "body").get("messages", body.get("input"))
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    if not isinstance(listed, list):
        raise FormatError("expected a list under 'messages' or 'input'", where="body")
    if format is None:
        format = _detect_body(body, listed)
    return [*_read_system(body, format), *read(listed, format=format)]


def _detect_body(body: Json, listed: Sequence[Any]) -> str:
    if "input" in body and "messages" not in body:
        return OPENAI_RESPONSES.name
    return ANTHROPIC.name if "system" in body else detect(listed)


def _read_system(body: Json, format: str) -> list[Message]:
    """The system prompt beside the list. It has no wire form of its own, unlike a system message in the list."""
    key = _SYSTEM_KEYS.get(format)
    if key is None or not body.get(key):
        return []
    parts: tuple[Part, ...]
    if format == ANTHROPIC.name:
        parts = read_content(body[key], f"body.{key}")
    elif isinstance(body[key], str):
        parts = (Text(text=body[key]),)
    else:
        raise FormatError(f"expected a string, found {type(body[key]).__name__}", where=f"body.{key}")
    return [Message(role="system", parts=parts)]


def render_request(messages: Sequence[Message], format: str) -> dict[str, Any]:
    """Render a conversation as the fields of a request body, the system prompt where the provider wants it."""
    listed = _LIST_KEYS.get(format, "messages")
    key = _SYSTEM_KEYS.get(format)
    beside = 0 if key is None else _leading_system(messages, format)
    if key is None or beside == 0:
        return {listed: render(messages, format)}
    return {key: _render_system(messages[:beside], format), listed: render(messages[beside:], format)}


def _leading_system(messages: Sequence[Message], format: str) -> int:
    """How many system messages stand at the front that were not read from this format's own list."""
    is_beside = (message.role == "system" and not kept(message, format) for message in messages)
    return next((index for index, beside in enumerate(is_beside) if not beside), len(messages))


def _render_system(messages: Sequence[Message], format: str) -> Any:
    parts = [part for message in messages for part in message.parts]
    if format == ANTHROPIC.name and any(kept(part, format) for part in parts):
        return render_content(parts)
    return "\n\n".join(message.text for message in messages)
