"""Find out which session a model request belongs to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from threading import Lock
from typing import Any, Final

from holdfast.messages import Message

OWN_HEADER: Final = "x-holdfast-session"
"""The header in which a user names a session: every request with it belongs to the conversation."""
SESSION_HEADERS: Final = (
    OWN_HEADER,
    "x-claude-code-session-id",
    "session-id",
    "x-session-id",
    "agent-session-id",
)
"""Headers in which hosts name their session, the most specific first."""
SUBAGENT_HEADER: Final = "x-claude-code-agent-id"
"""The header in which Claude Code names a subagent. It has a conversation of its own inside the session."""
MAX_CONVERSATIONS: Final = 1_000
"""Conversations without a name that are kept in memory, and responses from which a request may go on."""
COMPARED_MESSAGES: Final = 50
"""Messages of a conversation by which it is recognised."""


def host_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the session that the host names in its headers or in the body; empty where it names none."""
    for name in SESSION_HEADERS:
        if value := headers.get(name, "").strip():
            subagent = headers.get(SUBAGENT_HEADER, "").strip()
            return f"{value}/{subagent}" if subagent else value
    conversation = body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    for key in (body.get("prompt_cache_key"), named):
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
    that of the first. After a restart a history goes on in the stored session whose messages it repeats.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[list[str]]] = {}
        self._responses: dict[str, str] = {}
        self._lock = Lock()

    def add_response(self, response: str, session: str) -> None:
        """Remember the session of a response of the provider."""
        with self._lock:
            self._responses[response] = session
            while len(self._responses) > MAX_CONVERSATIONS:
                del self._responses[next(iter(self._responses))]

    def find_previous(self, body: Mapping[str, Any]) -> str:
        """Return the session of the response that a request goes on from; empty where it is not known."""
        with self._lock:
            return self._responses.get(str(body.get("previous_response_id")), "")

    def find(
        self, messages: Sequence[Message], *, owner: str, load: Callable[[str], Sequence[Sequence[Message]]]
    ) -> str:
        """Return the session of a conversation.

        Args:
            messages: Its history.
            owner: Whose conversations are compared.
            load: Returns the first messages of the stored sessions of a name: of NAME, NAME-2, NAME-3 and so on.
        """
        history = [message for message in messages if message.role != "system"]
        if not history:
            return ""
        digests = [message.digest for message in history[:COMPARED_MESSAGES]]
        name = "chat-" + hashlib.sha256(digests[0].encode()).hexdigest()[:12]
        with self._lock:
            branches = self._known.pop((owner, name), None)
            if branches is None:
                branches = [  # clients do not send replies back as they came
                    ["" if one.role == "assistant" else one.digest for one in stored if one.role != "system"]
                    for stored in load(name)
                ]
            number = _best_branch(digests, branches)
            branches[number : number + 1] = [digests]
            self._known[owner, name] = branches  # the conversation that was used last is the last to go
            while len(self._known) > MAX_CONVERSATIONS:
                del self._known[next(iter(self._known))]
        return name + (f"-{number + 1}" if number else "")


def _best_branch(digests: Sequence[str], branches: Sequence[Sequence[str]]) -> int:
    """Return the number of the known history that shares most with this one; a new number where none does.

    A history goes on from a known one where it repeats it, or goes back in it but not to its beginning.
    """
    shared = [sum(takewhile(bool, map(_is_same, digests, known))) for known in branches]
    going_on = [number for number, known in enumerate(branches) if shared[number] > 1 or shared[number] == len(known)]
    return max(going_on, key=shared.__getitem__, default=len(branches))


def _is_same(digest: str, known: str) -> bool:
    return known in {"", digest}
