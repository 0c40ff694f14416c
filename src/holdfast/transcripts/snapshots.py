"""Conversations that are logged again and again as they grow: what is new in each snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.messages import Message, Text, ToolResult

__all__ = ["Conversation", "restates"]

_SMALL: Final = 64
_LARGE: Final = 128


@dataclass(slots=True)
class Conversation:
    """What was said so far in a conversation of which only snapshots are known.

    Attributes:
        seen: How often each message stood in one snapshot, by digest and time.
        restated: How many messages came again with a small change; the first wording counts.
    """

    seen: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    restated: int = 0

    def new(self, snapshot: Sequence[Message], *, after: Sequence[Message] = ()) -> list[Message]:
        """The messages of a snapshot that no earlier one held; what is said twice in it counts twice.

        `after` is the snapshot before it: whatever follows its last message is new, though it may have
        been said before; what only restates the message in the same place of it is not.
        """
        here: Counter[tuple[str, int | None]] = Counter()
        fresh: list[Message] = []
        known = _end(after, snapshot)
        for index, message in enumerate(snapshot):
            key = (message.digest, message.timestamp)
            here[key] += 1
            if index < known and here[key] <= self.seen[key]:
                continue
            if index < known and index < len(after) and restates(after[index], message):
                self.restated += 1
            else:
                fresh.append(message)
        self.seen |= here
        return fresh


def _end(before: Sequence[Message], snapshot: Sequence[Message]) -> int:
    """Where in a snapshot the one before it ends; its length, if that cannot be told."""
    if not before:
        return len(snapshot)
    last, place = before[-1], len(before) - 1
    if place < len(snapshot) and restates(last, snapshot[place]):
        return len(before)
    same = (index for index in range(len(snapshot) - 1, -1, -1) if snapshot[index].digest == last.digest)
    return next(same, len(snapshot) - 1) + 1


def restates(old: Message, new: Message) -> bool:
    """Whether a message says again what an older one said, with a small change.

    Clients move cache marks, stamp headers and clear old tool results: the call ids stay, or all but a
    short stretch of a text long enough to be known by the rest.
    """
    if old.role != new.role:
        return False
    ids = _ids(old)
    if ids or _ids(new):
        return ids == _ids(new)
    before, after = _words(old), _words(new)
    shared = _shared(before, after)
    changed = max(len(before), len(after)) - shared
    return changed <= _SMALL and shared >= max(_LARGE, 3 * changed)


def _ids(message: Message) -> tuple[str, ...]:
    return tuple(call.id for call in message.calls) + tuple(result.call_id for result in message.results)


def _words(message: Message) -> str:
    spoken = (part for part in message.parts if isinstance(part, Text | ToolResult))
    return "\n".join(part.text for part in spoken)


def _shared(left: str, right: str) -> int:
    """How many characters two texts share at their beginning and their end."""
    front = _prefix(left, right)
    left, right = left[front:][::-1], right[front:][::-1]
    return front + _prefix(left, right)


def _prefix(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
