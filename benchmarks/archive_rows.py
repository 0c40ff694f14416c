"""Rows of a conversation as the archive makes them, to put them into a store directly."""

from collections.abc import Iterable

from holdfast.memory import archive
from holdfast.memory.block import NO_MARKS, Marks
from holdfast.messages import Message
from holdfast.store.base import Known, MessageRow, Scope


def make_rows(
    messages: Iterable[Message], *, scope: Scope, redact: bool = True, marks: Marks = NO_MARKS
) -> list[MessageRow]:
    """Make the rows of a conversation for an archive that contains none of it."""
    stripped, _ = archive.strip_recalled(list(messages), marks)
    own = [archive.mask(message) if redact else message for message in stripped if message is not None]
    keys = archive.identify(own, known=Known(numbers={}, forgotten={}))
    return [
        MessageRow(scope=scope, message=message, nonce=key.nonce, passages=tuple(archive.passages_of(message, marks)))
        for message, key in zip(own, keys, strict=True)
    ]
