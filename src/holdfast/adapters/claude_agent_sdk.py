"""Memory for the Claude Agent SDK.

    ClaudeAgentOptions(hooks=HoldfastHooks(engine), session_store=HoldfastSessionStore(engine))

The hooks archive the transcript of Claude Code after each turn and before a compaction, and recall for each prompt what
its window does not show. The store has the transcripts, so that a session can be resumed on another machine. The window
itself is Claude Code's: use `holdfast serve` to assemble it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.adapters._history import guard, require_extra, sync_engine
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.hooks.handlers import HostHooks
from holdfast.redaction import redact_value
from holdfast.store.base import Record, Scope, Select

if TYPE_CHECKING:
    from claude_agent_sdk import HookMatcher
    from claude_agent_sdk.types import (
        HookCallback,
        HookContext,
        HookEvent,
        HookInput,
        HookJSONOutput,
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
    )

EVENTS: Final[tuple[HookEvent, ...]] = ("UserPromptSubmit", "Stop", "SubagentStop", "PreCompact")
"""The events that the SDK has and that are answered."""
WAIT_SECONDS: Final = 0.05
MAX_WAITS: Final = 60
"""Maximum number of times the transcript is read before a turn is archived without its end."""
TRANSCRIPT: Final = "claude.transcript"
"""The kind of the records that name the transcripts of a session; the key is the subpath, empty for its own."""


class HoldfastHooks(dict["HookEvent", "list[HookMatcher]"]):
    """The hooks for `ClaudeAgentOptions`.

    Args:
        engine: The memory. The session is the one of Claude Code, the project its folder.
        hooks: Hooks of your own; ours run after them.

    Raises:
        MissingExtraError: The SDK is not installed.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, hooks: Mapping[HookEvent, list[HookMatcher]] | None = None
    ) -> None:
        with require_extra("claude-agent-sdk"):
            from claude_agent_sdk import HookMatcher  # noqa: PLC0415 - the store works without it

        super().__init__(hooks or {})
        opened = sync_engine(engine)
        self._host = HostHooks(
            opened._memory,
            find_reader=lambda project: opened._find_resources(project).learner.reader,
            notify=opened._notify,
            notify_end=opened._notify_end,
        )
        callback = cast("HookCallback", self._answer)
        for event in EVENTS:
            self[event] = [*self.get(event, []), HookMatcher(hooks=[callback])]

    async def _answer(self, event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        del tool_use_id, context
        output: dict[str, Any] = {}
        with guard("a hook event was not handled"):
            if event["hook_event_name"] == "Stop":
                await asyncio.to_thread(_wait_for_transcript, event)
            output = await asyncio.to_thread(self._host.handle, cast("Mapping[str, Any]", event))
        return cast("HookJSONOutput", output)


def _wait_for_transcript(event: Any) -> None:
    """Wait until the transcript has the reply that ends a turn: Claude Code may write it after the event."""
    path, prompt = Path(event.get("transcript_path") or ""), str(event.get("prompt_id") or "")
    reply = json.dumps(str(event.get("last_assistant_message") or "").strip()[-100:], ensure_ascii=False)[1:-1]
    for _ in range(MAX_WAITS if prompt else 0):
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        if prompt in text and reply in text.rpartition(prompt)[2]:
            return
        time.sleep(WAIT_SECONDS)


class HoldfastSessionStore:
    """A `session_store` of the SDK in a Holdfast memory. Secrets are masked, as in the archive.

    Args:
        engine: The memory. The session is the one of Claude Code, the project the key that the SDK gives its folder.
        tenant: The tenant that the memory belongs to, if several users share one store.
        agent: The agent that the sessions belong to.
    """

    def __init__(self, engine: Engine | AsyncEngine, *, tenant: str = "local", agent: str = "main") -> None:
        self._memory = sync_engine(engine)._memory
        self._owner = {"tenant": tenant, "agent": agent}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Store entries of a transcript; those that it has already, by their `uuid`, are not stored again."""
        await asyncio.to_thread(self._append, key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript, oldest first; None if it was never written."""
        rows = await asyncio.to_thread(self._memory.store.read_records, self._select(key), kind=_kind(key))
        return [cast("SessionStoreEntry", row.data) for row in rows] or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the sessions of a project, and when each was written to."""
        scope = Scope(**self._owner, project=project_key)
        rows = await asyncio.to_thread(self._transcripts, Select(scope=scope, across=True))
        return [{"session_id": row.scope.session, "mtime": row.time} for row in rows if not row.key]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the transcripts of the subagents of a session."""
        rows = await asyncio.to_thread(self._transcripts, self._select(key))
        return [row.key for row in rows if row.key]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; without a subpath, all of the session."""
        await asyncio.to_thread(self._delete, key)

    def _select(self, key: Mapping[str, Any]) -> Select:
        return Select(scope=Scope(**self._owner, project=key["project_key"], session=key["session_id"]))

    def _transcripts(self, select: Select) -> list[Record]:
        return self._memory.store.read_records(select, kind=TRANSCRIPT)

    def _append(self, key: Mapping[str, Any], entries: list[SessionStoreEntry]) -> None:
        store, select, kind, now = self._memory.store, self._select(key), _kind(key), self._memory.clock()
        given = {str(entry.get("uuid") or self._memory.new_id()): entry for entry in entries}
        known = {row.key for row in store.read_records(select, kind=kind, keys=list(given))}
        masked: Any = redact_value if self._memory.settings.archive.redaction else dict
        rows = [
            Record(scope=select.scope, kind=kind, key=name, data=masked(entry), time=now)
            for name, entry in given.items()
            if name not in known
        ]
        subpath = str(key.get("subpath") or "")
        store.add_records([*rows, Record(scope=select.scope, kind=TRANSCRIPT, key=subpath, data={}, time=now)])

    def _delete(self, key: Mapping[str, Any]) -> None:
        select, subpath = self._select(key), str(key.get("subpath") or "")
        subpaths = [subpath] if subpath else [row.key for row in self._transcripts(select)]
        for one in subpaths:
            self._memory.store.remove_records(select, kind=_kind({"subpath": one}))
        self._memory.store.remove_records(select, kind=TRANSCRIPT, keys=subpaths)


def _kind(key: Mapping[str, Any]) -> str:
    """Return the kind of the records of a transcript: an entry each, by its `uuid`."""
    return f"claude.entry:{key.get('subpath') or ''}"
