"""The providers' wire forms: read into the canonical message, and rendered from it.

What was read and not edited is rendered as it came, byte for byte: unknown fields, cache marks,
signatures and key order included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.anthropic import ANTHROPIC
from holdfast.formats.openai_chat import OPENAI_CHAT
from holdfast.formats.openai_responses import OPENAI_RESPONSES
from holdfast.formats.pi import PI
from holdfast.formats.wire import Format, Json, child
from holdfast.messages import Message, Text

__all__ = ["FORMATS", "Format", "detect", "read", "read_request", "render", "render_request"]

FORMATS: Final[dict[str, Format]] = {
    format_.name: format_ for format_ in (PI, OPENAI_RESPONSES, ANTHROPIC, OPENAI_CHAT)
}
"""Every format by name; where a list could be several, the first one here that has a mark in it wins ties."""

_PLAIN: Final = OPENAI_CHAT.name


def detect(messages: Sequence[Mapping[str, Any]]) -> str:
    """Name the format of a message list.

    A list without any mark (plain roles and text) reads the same in all of them and counts as Chat Completions.

    Raises:
        FormatError: The list holds marks of two formats, or something that is no message.
    """
    found: dict[str, tuple[str, str]] = {}
    for index, data in enumerate(messages):
        where = f"messages[{index}]"
        for name, mark in _marks(child(data, where)):
            found.setdefault(name, (where, mark))
    if PI.name in found:  # its reader knows the others' spellings too: real session files mix them
        return PI.name
    if len(found) > 1:
        (one, (where, mark)), (other, (there, second)) = list(found.items())[:2]
        raise FormatError(f"{mark} is {one}, but {second} in {there} is {other}: pass format=", where=where)
    return next(iter(found), _PLAIN)


def _marks(data: Json) -> Iterable[tuple[str, str]]:
    if "role" not in data and "type" not in data:
        raise FormatError("neither a role nor a type: this is not a message")
    marks = ((name, format_.marks(data)) for name, format_ in FORMATS.items())
    return [(name, mark) for name, mark in marks if mark is not None]


def read(messages: Iterable[Mapping[str, Any] | Message], *, format: str | None = None) -> list[Message]:
    """Read a message list of any known format; messages that are canonical already pass through."""
    items = list(messages)
    wire = [item for item in items if not isinstance(item, Message)]
    reader = _named(format if format is not None else detect(wire)).read
    return [
        item if isinstance(item, Message) else reader(child(item, f"messages[{index}]"), f"messages[{index}]")
        for index, item in enumerate(items)
    ]


def render(messages: Sequence[Message], format: str) -> list[Json]:
    """Render messages for a provider. What was read from this format and not edited comes back itself."""
    return _named(format).render(messages)


def _named(name: str) -> Format:
    if name not in FORMATS:
        raise FormatError(f"format {name!r} is not one of {', '.join(sorted(FORMATS))}", format=name)
    return FORMATS[name]


_SYSTEM_KEYS: Final = {ANTHROPIC.name: "system", OPENAI_RESPONSES.name: "instructions"}
_LIST_KEYS: Final = {OPENAI_RESPONSES.name: "input"}


def read_request(body: Mapping[str, Any], *, format: str | None = None) -> list[Message]:
    """Read the conversation out of a request body: the system prompt first, then the messages."""
    listed = body.get("messages", body.get("input"))
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    if not isinstance(listed, list):
        raise FormatError("expected a list under 'messages' or 'input'", where="body")
    if format is None:
        format = _detect_body(body, listed)
    system = body.get(_SYSTEM_KEYS.get(format, ""))
    messages = read(listed, format=format)
    return messages if not system else [_read_system(system, format), *messages]


def _detect_body(body: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> str:
    if "input" in body and "messages" not in body:
        return OPENAI_RESPONSES.name
    return ANTHROPIC.name if "system" in body else detect(listed)


def _read_system(system: Any, name: str) -> Message:
    if isinstance(system, str):
        return Message(role="system", parts=(Text(text=system),))
    return _named(name).read({"role": "system", "content": system}, "body.system")


def render_request(messages: Sequence[Message], format: str) -> dict[str, Any]:
    """Render a conversation as the fields of a request body, the system prompt where the provider wants it."""
    key = _SYSTEM_KEYS.get(format)
    list_key = _LIST_KEYS.get(format, "messages")
    leading = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    if key is None or leading == 0:
        return {list_key: render(messages, format)}
    system = _render_system(messages[:leading], format)
    return {key: system, list_key: render(messages[leading:], format)}


def _render_system(messages: Sequence[Message], name: str) -> Any:
    rendered = render(messages, name)
    if len(rendered) == 1 and all(message.wire(name) for message in messages):
        return rendered[0]["content"]
    return "\n\n".join(message.text for message in messages)
