"""Hook events of hosts that run a command for each of them: Claude Code, Codex, Qwen Code, Gemini CLI.

The transcript of the host is archived when a turn ends and before a compaction. A new prompt gets what memory recalls
for it, without what the host's window still shows. After a compaction the details that the summary lost are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from holdfast import transcripts
from holdfast.compaction.audit import audit, find_requirements
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.memory.query import build_query
from holdfast.messages import Message
from holdfast.session import Session
from holdfast.store.base import Record, Select

MAX_CONTEXT_CHARS: Final = 9_500
"""Hosts cut a longer text off."""
MAX_BLOCK_TOKENS: Final = 1_500
"""A block of this size is below that; it is never cut, because its end mark belongs to it."""
COMPACTED: Final = "compacted"
"""The kind of the record that says which messages the host has compacted."""
LOST: Final = "The summary of the conversation left these details out. They are quoted from the archive:"

Payload = Mapping[str, Any]
Output = dict[str, Any]


@dataclass(slots=True)
class _Host:
    """What the window of a host shows: its messages after the last compaction, and the passages it was given."""

    compacted: int
    messages: Sequence[int] = ()
    quoted: set[int] = field(default_factory=set)


class HostHooks:
    """Answers hook events. One object serves any number of sessions and threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._hosts: dict[str, _Host] = {}
        self._lock = Lock()

    def handle(self, payload: Payload) -> Output:
        """Answer an event with what its host expects; an event that is not known gets an empty answer."""
        event = str(payload.get("hook_event_name", ""))
        action = _ACTIONS.get(event)
        session = str(payload.get("session_id") or "")
        if action is None or not session:
            return {}
        with self._lock:
            context = action(self, payload, self._engine.session(session, project=str(payload.get("cwd") or "")))
        if not context:
            return {}
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": context}}

    def _archive(self, payload: Payload, session: Session) -> str:
        """Archive the transcript of the host."""
        path = Path(str(payload.get("transcript_path") or ""))
        if path.is_file():
            messages = transcripts.read(path).messages
            self._host(session).messages = self._engine.memory.ingest(messages, scope=session.scope)
            self._engine.notify()
        return ""

    def _recall(self, payload: Payload, session: Session) -> str:
        """Recall for a prompt what the window does not show."""
        if session.id not in self._hosts:  # a session of an earlier process
            self._archive(payload, session)
        host, memory = self._host(session), self._engine.memory
        query = build_query(
            self._engine.settings,
            (str(payload.get("prompt") or ""),),
            scope=session.scope,
            now=memory.clock(),
            cap=min(MAX_BLOCK_TOKENS, self._engine.settings.recall.hard_cap_tokens),
            in_window=[number for number in host.messages if number > host.compacted],
            automatic=True,
        )
        found = memory.recall(replace(query, quoted=host.quoted))
        host.quoted |= {hit.passage for hit in found.hits}
        return found.block

    def _record_compaction(self, payload: Payload, session: Session) -> str:
        """Archive what the host will compact, and record how far that goes."""
        self._archive(payload, session)
        host = self._host(session)
        last = max(host.messages, default=host.compacted)
        self._hosts[session.id] = _Host(last, host.messages)
        row = Record(scope=session.scope, kind=COMPACTED, key="", data={"last": last}, time=self._engine.memory.clock())
        self._engine.memory.store.add_records([row])
        return ""

    def _restore_details(self, payload: Payload, session: Session) -> str:
        """After a compaction, return the details that the host's summary lost."""
        if payload.get("source") != "compact":
            return self._archive(payload, session) if payload.get("source") == "resume" else ""
        plan = session.compact(dry_run=True).plan
        required = find_requirements(plan, settings=self._engine.settings.compaction)
        lost = audit(_summary(payload), required)
        lines = [line for line in str(lost).splitlines() if not line.startswith("- the heading")]
        return "\n".join([LOST, *lines])[:MAX_CONTEXT_CHARS] if lines else ""

    def _host(self, session: Session) -> _Host:
        if session.id not in self._hosts:
            records = self._engine.memory.store.read_records(Select(scope=session.scope), kind=COMPACTED)
            self._hosts[session.id] = _Host(max((row.data.get("last", 0) for row in records), default=0))
        return self._hosts[session.id]


_ACTIONS: Final[Mapping[str, Callable[[HostHooks, Payload, Session], str]]] = {
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


def _summary(payload: Payload) -> str:
    """Return the host's summary: the text of the event, or the last long text of its transcript."""
    if isinstance(given := payload.get("compact_summary"), str):
        return given
    try:
        messages: Sequence[Message] = transcripts.read(Path(str(payload.get("transcript_path") or ""))).messages
    except HoldfastError:
        return ""
    return next((message.text for message in reversed(messages) if message.role == "user" and message.text), "")
