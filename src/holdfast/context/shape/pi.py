"""Messages as pi and OpenClaw take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.context.shape.parts import Log, placed
from holdfast.formats.wire import kept
from holdfast.messages import Message

__all__ = ["shape"]

NAME: Final = "pi"


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already. pi sends them on to any provider, whose rules it keeps itself."""
    return placed(messages, _known, log, "role")


def _known(message: Message) -> Message:
    return replace(message, origin=None) if kept(message, NAME).get("role") == "developer" else message
