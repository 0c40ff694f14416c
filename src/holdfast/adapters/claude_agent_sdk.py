"""Memory for the Claude Agent SDK: `ClaudeAgentOptions(hooks=holdfast_hooks(engine))`.

The hooks archive the transcript of Claude Code after each turn and before a compaction, and recall for each prompt what
its window does not show. The window itself is Claude Code's: use `holdfast serve` to assemble it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from claude_agent_sdk import HookMatcher
from claude_agent_sdk.types import HookCallback, HookContext, HookEvent, HookInput, HookJSONOutput

from holdfast.adapters._history import guard, sync_engine
from holdfast.aio import AsyncEngine
from holdfast.engine import Engine
from holdfast.hooks.handlers import HostHooks

EVENTS: Final[tuple[HookEvent, ...]] = ("UserPromptSubmit", "Stop", "SubagentStop", "PreCompact")
"""The events that the SDK has and that are answered."""


def holdfast_hooks(
    engine: Engine | AsyncEngine, hooks: Mapping[HookEvent, list[HookMatcher]] | None = None
) -> dict[HookEvent, list[HookMatcher]]:
    """Return the hooks for `ClaudeAgentOptions`.

    Args:
        engine: The memory. The session is the one of Claude Code, the project its folder.
        hooks: Hooks of your own; ours run after them.
    """
    opened = sync_engine(engine)
    host = HostHooks(opened.memory, notify=opened.notify)

    async def answer(event: HookInput, tool_use_id: str | None, context: HookContext) -> HookJSONOutput:
        del tool_use_id, context
        output: dict[str, Any] = {}
        with guard("a hook event was not handled"):
            output = await asyncio.to_thread(host.handle, cast("Mapping[str, Any]", event))
        return cast("HookJSONOutput", output)

    given = dict(hooks or {})
    callback = cast("HookCallback", answer)
    return given | {event: [*given.get(event, []), HookMatcher(hooks=[callback])] for event in EVENTS}
