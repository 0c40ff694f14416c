"""Find out which session a model request belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import takewhile
from threading import Lock
from typing import Any, Final

from holdfast.messages import Message

SESSION_HEADERS: Final = (
    "x-holdfast-session",
    "x-claude-code-session-id",
    "session-id",
    "x-session-id",
    "agent-session-id",
)
"""Headers in which hosts name their session, the most specific first."""
MAX_CONVERSATIONS: Final = 1_000
"""Conversations without a name that are kept in memory."""


def host_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the session that the host names in its headers or in the body; empty where it names none."""
    for name in SESSION_HEADERS:
        if value := headers.get(name, "").strip():
            return value
    key = body.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return key
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    return _session_of_user(user) if isinstance(user, str) else ""


def _session_of_user(user: str) -> str:
    """Return the session inside `metadata.user_id`: a JSON object with `session_id`, or text that ends in it."""
    try:
        value = json.loads(user)
    except ValueError:
        return user.rpartition("_session_")[2] if "_session_" in user else ""
    named = value.get("session_id") if isinstance(value, dict) else None
    return named if isinstance(named, str) else ""


class Conversations:
    """The sessions of clients that name none: a conversation is known by its first user message.

    Where two conversations begin with the same words, the second one gets a number: its history does not go on from
    that of the first. After a restart a history of several messages goes on in the stored session of its name.
    """

    def __init__(self) -> None:
        self._known: dict[str, list[list[str]]] = {}
        self._lock = Lock()

    def find(self, messages: Sequence[Message], *, stored: Callable[[], Container[str]]) -> str:
        """Return the session of a conversation; `stored` returns the names of all stored sessions."""
        digests = [message.digest for message in messages if message.role != "system"]
        if not digests:
            return ""
        name = "chat-" + hashlib.sha256(digests[0].encode()).hexdigest()[:12]
        with self._lock:
            if name not in self._known and name in stored():
                self._known[name] = [digests[: max(1, len(digests) - 1)] if len(digests) > 1 else [""]]
            branches = self._known.setdefault(name, [])
            number = next((index for index, known in enumerate(branches) if _goes_on(digests, known)), len(branches))
            branches[number : number + 1] = [digests]
            while len(self._known) > MAX_CONVERSATIONS:
                del self._known[next(iter(self._known))]
        return name + (f"-{number + 1}" if number else "")


def _goes_on(digests: Sequence[str], known: Sequence[str]) -> bool:
    """Whether a history goes on from a known one, repeats it, or goes back in it but not to its beginning."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(digests, known, strict=False)))
    return shared == len(known) or shared > 1
