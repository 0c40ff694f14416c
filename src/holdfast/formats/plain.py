"""Messages without any mark of a provider: they are sent as they came in every format that they are valid in."""

from __future__ import annotations

from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import Json, bounded, child, expect, number
from holdfast.messages import PLAIN, Message, Opaque, Part, Role, Text, Thinking

__all__ = ["read"]

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MILLISECONDS: Final = 10**11
"""A smaller number is no Unix time in milliseconds of this century."""


def read(data: Json, where: str) -> Message:
    """Read one message; a block that is neither text nor thinking is carried as it came."""
    name = expect(data, "role", str, where)
    if name not in _ROLES:
        raise FormatError(f"role {name[:40]!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=PLAIN)
    time = number(data.get("timestamp")) or 0
    message = Message(
        role=_ROLES[name],
        parts=_read_content(data.get("content"), f"{where}.content"),
        timestamp=time if time > _MILLISECONDS else None,
    )
    return message.read_from(data, format=PLAIN)


def _read_content(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        found = type(content).__name__
        raise FormatError(f"expected text or a list of blocks, found {found}", where=where, format=PLAIN)
    return tuple(_read_block(block, f"{where}[{index}]") for index, block in enumerate(content))


def _read_block(block: Any, where: str) -> Part:
    data = child(block, where)
    kind = expect(data, "type", str, where)
    part: Part
    if kind == "text":
        part = Text(text=expect(data, "text", str, where))
    elif kind == "thinking" and isinstance(data.get("thinking"), str):
        part = Thinking(text=data["thinking"])
    else:
        part = Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=PLAIN)
