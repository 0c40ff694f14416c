"""Read the bodies of model requests. A client sends its whole conversation again with every request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count as count_up
from threading import Lock
from typing import Any, Final

from holdfast import providers
from holdfast.cache import LruCache
from holdfast.exchange import Json, ModelRequest, read_body
from holdfast.messages import Message

MAX_KEPT_BYTES: Final = 16 * 2**20
"""Bytes of the bodies whose messages are kept. The sessions of most of them keep the same messages anyway."""
MAX_KEPT: Final = 32
"""The requests whose messages are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """The messages in the list of a body, without a system prompt next to it, and the bytes of the body."""

    messages: Sequence[Message]
    size: int

    @property
    def weight(self) -> int:
        """The part of `MAX_KEPT_BYTES` that it takes: at least such a part that there are no more than `MAX_KEPT`."""
        return max(self.size, MAX_KEPT_BYTES // MAX_KEPT)


class Readings:
    """Reads bodies, and of a conversation that is sent again only the messages that have changed.

    The messages of the last requests are kept. A body is compared with them value by value, so it does not matter who
    sent it. Threads may share it.
    """

    def __init__(self) -> None:
        self._kept: LruCache[int, _Reading] = LruCache(MAX_KEPT_BYTES, weigh=lambda reading: reading.weight)
        self._numbers = count_up()
        self._lock = Lock()

    def read(self, body: Json, *, format: str, size: int) -> ModelRequest:
        """Read the body of a model request; see `holdfast.exchange.read_body`.

        Args:
            body: The body.
            format: Its format.
            size: Its bytes.
        """
        list_key = providers.expect_format(format).list_key
        listed = body.get(list_key)
        if not isinstance(listed, list):
            return read_body(body, format=format)
        with self._lock:
            kept = self._kept.items()
        known = -1
        messages: Sequence[Message] = ()
        alike = 0
        for number, reading in kept:
            count = _count_alike(reading.messages, listed)  # the exact comparison takes long, so it is made once
            if count > alike:
                known = number
                messages = reading.messages
                alike = count
        repeated = _count_repeated(messages, listed, format=format)
        # A message that was read already is taken as it is.
        asked = read_body({**body, list_key: [*messages[:repeated], *listed[repeated:]]}, format=format)
        asked = replace(asked, body=body)
        with self._lock:
            if repeated == len(messages):  # it continues this request; else both may be continued
                self._kept.pop(known)
            own = asked.messages[max(0, len(asked.messages) - len(listed)) :]
            self._kept[next(self._numbers)] = _Reading(messages=own, size=size)
        return asked


def _count_alike(messages: Sequence[Message], listed: Sequence[Any]) -> int:
    """Count the messages at the beginning of a list whose values are equal in these messages, as are `1` and `true`."""
    alike = 0
    for message, data in zip(messages, listed, strict=False):
        if message.origin is None or message.origin.data != data:
            break
        alike += 1
    return alike


def _count_repeated(messages: Sequence[Message], listed: Sequence[Any], *, format: str) -> int:
    """Count how many messages at the beginning of a list were read before."""
    repeated = 0
    for message, data in zip(messages, listed, strict=False):
        if not providers.is_read_from(message, data, format=format):
            break
        repeated += 1
    return repeated
