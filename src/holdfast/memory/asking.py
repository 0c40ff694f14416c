"""The vector of a question, got in time or not at all.

A model in this process answers in a moment. A provider may be slow or fail: then the question is asked by its
words alone, and a note says so. What comes too late is not lost: the same question has its vector the next time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from holdfast.errors import EmbeddingError
from holdfast.search.embed.base import Embedder, Floats, behind_cache

__all__ = ["Asked", "Deadline", "TooLateError", "ask"]

_SHARE: Final = 0.7
"""The part of the time that is left which a provider may take; the search itself needs the rest."""


class TooLateError(Exception):
    """The deadline of a recall has passed."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a recall must be done; never, where `ends` is None."""

    ends: float | None
    timer: Callable[[], float]

    @classmethod
    def after(cls, seconds: float | None, *, timer: Callable[[], float] = time.monotonic) -> Deadline:
        """So many seconds from now."""
        return cls(None if seconds is None else timer() + seconds, timer)

    @property
    def left(self) -> float | None:
        """Seconds that are left, 0 at least; None where there is no end."""
        return None if self.ends is None else max(0.0, self.ends - self.timer())

    def check(self) -> None:
        """Raise TooLateError once it has passed."""
        if self.left == 0:
            raise TooLateError


@dataclass(frozen=True, slots=True)
class Asked:
    """The vector of a question; None where it goes by words alone, and then a note may say why."""

    vector: Floats | None = None
    note: str = ""


def ask(embedder: Embedder | None, text: str, *, deadline: Deadline) -> Asked:
    """The vector of a question."""
    if embedder is None:
        return Asked()
    left = deadline.left
    if left is None:
        return _embedded(embedder, text)
    from holdfast.search.embed.remote import RemoteEmbedder  # noqa: PLC0415 - only where there is a deadline

    if not isinstance(behind_cache(embedder), RemoteEmbedder):
        return _embedded(embedder, text)
    answers: SimpleQueue[Asked] = SimpleQueue()
    Thread(target=lambda: answers.put(_embedded(embedder, text)), daemon=True).start()
    try:
        return answers.get(timeout=_SHARE * left)
    except Empty:
        return Asked(note=f"{embedder.space.name} did not answer in {1000 * _SHARE * left:.0f} ms: by words alone")


def _embedded(embedder: Embedder, text: str) -> Asked:
    try:
        return Asked(embedder.embed([text], kind="query")[0])
    except EmbeddingError as error:
        return Asked(note=f"{error}: by words alone")
