"""Hook events of hosts that run a command for each of them: Claude Code, Codex, Qwen Code, Gemini CLI.

The transcript of the host is archived when a turn ends and before a compaction. A new prompt gets what memory recalls
for it, without what the host's window still shows. After a compaction the details that the summary lost are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

from holdfast.memory.memory import Memory
from holdfast.messages import Message
from holdfast.store.base import Record, Scope, Select

MAX_CONTEXT_CHARS: Final = 9_500
"""Hosts cut a longer text off."""
MAX_BLOCK_TOKENS: Final = 1_500
"""A block of this size is below that; it is never cut, because its end mark belongs to it."""
MAX_HOSTS: Final = 256
"""Sessions whose state is kept between two events."""
HOST: Final = "host"
"""The kind of the record about a host: what it has compacted, and how much of its transcript is archived."""

Payload = Mapping[str, Any]
Output = dict[str, Any]


@dataclass(slots=True)
class _Host:
    """What is known of the session of a host.

    Attributes:
        scope: The owner of the session.
        lock: Held while an event of the session is handled.
        previous, compacted: The last archived messages that the last two compactions have removed from its window.
        messages: The archived messages that its window shows.
        transcript: The file that was read, its size then, and how many of its messages are archived.
        quoted: The passages that its window was given.
    """

    scope: Scope
    lock: RLock = field(default_factory=RLock)
    previous: int = 0
    compacted: int = 0
    messages: list[int] = field(default_factory=list)
    transcript: tuple[str, int, int] = ("", 0, 0)
    quoted: set[int] = field(default_factory=set)


class HostHooks:
    """Answers hook events. One object serves any number of sessions and threads.

    Args:
        memory: The memory.
        notify: Called when there is something new in it.
    """

    def __init__(self, memory: Memory, *, notify: Callable[[], None] = lambda: None) -> None:
        self._memory = memory
        self._notify = notify
        self._hosts: dict[Scope, _Host] = {}
        self._lock = Lock()

    def handle(self, payload: Payload) -> Output:
        """Answer an event with what its host expects; an event that is not known gets an empty answer."""
        event = str(payload.get("hook_event_name", ""))
        action = _ACTIONS.get(event)
        session = str(payload.get("session_id") or "")
        if action is None or not session:
            return {}
        host = self._find(Scope(project=str(payload.get("cwd") or ""), session=session))
        with host.lock:
            context = action(self, payload, host)
        if not context:
            return {}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}

    def _archive(self, payload: Payload, host: _Host) -> str:
        """Archive what is new in the transcript of the host."""
        path = Path(str(payload.get("transcript_path") or ""))
        if not path.is_file():
            return ""
        size = path.stat().st_size
        name, known_size, known = host.transcript
        if (name, known_size) == (str(path), size):
            return ""
        messages = _read(path)
        if name != str(path) or len(messages) < known:  # another file, or one that was rewritten
            known = 0
        host.messages += self._memory.ingest(messages[known:], scope=host.scope)
        host.transcript = (str(path), size, len(messages))
        self._record(host)
        self._notify()
        return ""

    def _recall(self, payload: Payload, host: _Host) -> str:
        """Recall for a prompt what the window does not show."""
        from holdfast.memory.query import build_query  # noqa: PLC0415 - other events do not need it

        memory = self._memory
        query = build_query(
            memory.settings,
            (str(payload.get("prompt") or ""),),
            scope=host.scope,
            now=memory.clock(),
            cap=min(MAX_BLOCK_TOKENS, memory.settings.recall.hard_cap_tokens),
            in_window=host.messages,
            automatic=True,
        )
        found = memory.recall(replace(query, quoted=host.quoted))
        host.quoted |= {hit.passage for hit in found.hits}
        return found.block

    def _record_compaction(self, payload: Payload, host: _Host) -> str:
        """Archive what the host will compact, and record how far that goes."""
        self._archive(payload, host)
        host.previous, host.compacted = host.compacted, max(host.messages, default=host.compacted)
        host.messages, host.quoted = [], set()
        self._record(host)
        return ""

    def _restore_details(self, payload: Payload, host: _Host) -> str:
        """After a compaction, return the details that the host's summary lost."""
        if payload.get("source") != "compact":
            return self._archive(payload, host) if payload.get("source") == "resume" else ""
        from holdfast.compaction.host_summary import find_lost  # noqa: PLC0415 - only for this

        select = Select(scope=host.scope, after=host.previous, before=host.compacted + 1)
        history = [row.message for row in self._memory.store.read_messages(select)]
        return find_lost(history, _summary(payload), settings=self._memory.settings.compaction)[:MAX_CONTEXT_CHARS]

    def _find(self, scope: Scope) -> _Host:
        """Return what is known of a session; of an earlier process, what was recorded."""
        with self._lock:
            host = self._hosts.pop(scope, None) or self._load(scope)
            self._hosts[scope] = host  # the session that was used last is the last to go
            while len(self._hosts) > MAX_HOSTS:
                del self._hosts[next(iter(self._hosts))]
            return host

    def _load(self, scope: Scope) -> _Host:
        host = _Host(scope)
        for row in self._memory.store.read_records(Select(scope=scope), kind=HOST):
            host.previous, host.compacted = row.data.get("previous", 0), row.data.get("compacted", 0)
            host.transcript = (row.data.get("path", ""), row.data.get("size", 0), row.data.get("messages", 0))
        shown = self._memory.store.read_messages(Select(scope=scope, after=host.compacted))
        host.messages = [row.id for row in shown]
        return host

    def _record(self, host: _Host) -> None:
        path, size, count = host.transcript
        data = {"previous": host.previous, "compacted": host.compacted, "path": path, "size": size, "messages": count}
        row = Record(scope=host.scope, kind=HOST, key="", data=data, time=self._memory.clock())
        self._memory.store.add_records([row])


_ACTIONS: Final[Mapping[str, Callable[[HostHooks, Payload, _Host], str]]] = {
    "SessionStart": HostHooks._restore_details,  # noqa: SLF001 - its own methods
    "UserPromptSubmit": HostHooks._recall,  # noqa: SLF001
    "BeforeAgent": HostHooks._recall,  # noqa: SLF001
    "PreCompact": HostHooks._record_compaction,  # noqa: SLF001
    "PreCompress": HostHooks._record_compaction,  # noqa: SLF001
    "Stop": HostHooks._archive,  # noqa: SLF001
    "AfterAgent": HostHooks._archive,  # noqa: SLF001
    "SubagentStop": HostHooks._archive,  # noqa: SLF001
    "SessionEnd": HostHooks._archive,  # noqa: SLF001
}
"""What is done for each event, by its name in Claude Code or in Gemini CLI."""


def _read(path: Path) -> list[Message]:
    from holdfast import transcripts  # noqa: PLC0415 - takes time, and prompts do not need it

    return transcripts.read(path).messages


def _summary(payload: Payload) -> str:
    """Return the host's summary: the text of the event, or the last long text of its transcript."""
    if isinstance(given := payload.get("compact_summary"), str):
        return given
    path = Path(str(payload.get("transcript_path") or ""))
    messages = _read(path) if path.is_file() else []
    return next((message.text for message in reversed(messages) if message.role == "user" and message.text), "")
