"""Messages as they rest in a transcript: their secrets masked, and still a message that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.memory.archive import mask
from holdfast.messages import Message, RedactedThinking, Thinking
from holdfast.providers.pi import PI
from holdfast.transcripts.records import wire_messages

__all__ = ["masked", "unmasked"]


def masked(message: Message) -> Message:
    """A message without secrets; itself where it has none. A signed thought that holds one goes as a whole."""
    hidden = mask(message)
    if hidden is message:
        return message
    parts = tuple(
        new
        for new, old in zip(hidden.parts, message.parts, strict=True)
        if new == old or not isinstance(old, Thinking | RedactedThinking)
    )
    return hidden if parts == hidden.parts else replace(hidden, parts=parts, origin=None)


def unmasked(message: Message, written: Sequence[Message], *, provider: str) -> list[Message]:
    """What was said, in the form and under the ids in which it was written down."""
    said = (PI.read(wire, "message") for wire in wire_messages(message, now=0, provider=provider))
    return [replace(whole, id=known.id, timestamp=known.timestamp) for whole, known in zip(said, written, strict=True)]
