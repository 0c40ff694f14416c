"""Message lists as they are found: in one provider's format, or in a mixture of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast import formats
from holdfast.errors import FormatError
from holdfast.formats import FORMATS
from holdfast.messages import Message

__all__ = ["formats_in", "read_body", "read_one"]


def formats_in(messages: Iterable[Mapping[str, Any]]) -> set[str]:
    """The formats that have a mark in these messages."""
    return {name for data in messages for name, format_ in FORMATS.items() if format_.marks(data) is not None}


def read_one(data: Mapping[str, Any], where: str, *, format: str | None = None) -> Message:
    """Read a message; without a format, in the first whose mark it bears, else in the one that it hints at.

    Raises:
        FormatError: It is no message.
    """
    name = format or next((name for name in FORMATS if name in formats_in([data])), None) or formats.detect([data])
    return FORMATS[name].read(data, where)


def read_body(body: Mapping[str, Any]) -> list[Message]:
    """Read the conversation out of a request body, also where a router's client has mixed two formats.

    Raises:
        FormatError: It holds no list of messages, or something that is no message.
    """
    try:
        return formats.read_request(body)
    except FormatError:
        listed = body.get("messages", body.get("input"))
        if not isinstance(listed, list) or not all(isinstance(data, Mapping) for data in listed):
            raise
    system = formats.read_request({**body, "messages": []}, format="anthropic")
    return [*system, *(read_one(data, f"messages[{index}]") for index, data in enumerate(listed))]
