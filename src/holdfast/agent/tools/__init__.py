"""The agent's tools: files, a shell, notes, long-term memories and the archive, in one box."""

from __future__ import annotations

from typing import Final

from holdfast.agent.memories import Memories
from holdfast.agent.notes import Notes
from holdfast.agent.paths import Bounds
from holdfast.agent.tools.archive import archive_tool, keeper
from holdfast.agent.tools.bash import bash_tool
from holdfast.agent.tools.files import append_only, file_tools
from holdfast.agent.tools.memories import memory_tools
from holdfast.agent.tools.notes import note_tools
from holdfast.agent.tools.offer import Action, Answer, Arguments, Confirm, Offer, offer
from holdfast.agent.tools.toolbox import Keep, Toolbox, called_off
from holdfast.engine import Engine
from holdfast.models.base import Tool
from holdfast.recovery import definition
from holdfast.settings import Settings
from holdfast.tokens import count_json

__all__ = [
    "Action",
    "Answer",
    "Arguments",
    "Confirm",
    "Keep",
    "Offer",
    "Toolbox",
    "agent_tools",
    "called_off",
    "flush_tools",
    "offer",
    "tool_tokens",
]

_FAMILIES: Final = frozenset({"memory-core", "memory-lancedb"})
"""The memory slots that come with tools."""


def agent_tools(
    engine: Engine,
    *,
    bounds: Bounds,
    session: str,
    notes: Notes | None = None,
    confirm: Confirm | None = None,
    memories: Memories | None = None,
    agent: str = "main",
) -> Toolbox:
    """Everything that the settings let an agent do.

    Args:
        engine: Its memory.
        bounds: Where it may read and write.
        session: The conversation that it is in.
        notes: The notes that it may search.
        confirm: Asks the user before a command runs or a file is written; without it neither can be done.
        memories: Its long-term memories; those in its memory unless given.
        agent: Whose memory it is.
    """
    offers = (
        *_workspace_tools(bounds, engine.settings, confirm),
        *_memory_tools(engine.settings, notes, memories or Memories(engine, agent)),
        archive_tool(engine, session=session, agent=agent),
    )
    return Toolbox(offers=offers, keep=keeper(engine, session=session, agent=agent))


def _workspace_tools(bounds: Bounds, settings: Settings, confirm: Confirm | None) -> tuple[Offer, ...]:
    access = settings.workspace.access
    files = () if access == "none" else file_tools(bounds, confirm=confirm)
    may_run = confirm is not None and access == "rw" and bounds.writable
    return (*files, bash_tool(bounds.root, confirm=confirm)) if confirm and may_run else files


def _memory_tools(settings: Settings, notes: Notes | None, memories: Memories) -> tuple[Offer, ...]:
    if settings.slots.memory not in _FAMILIES:
        return ()
    searched = notes is not None and settings.memory_search.enabled and settings.workspace.access != "none"
    return (
        *(note_tools(notes, memories) if notes is not None and searched else ()),
        *(memory_tools(memories) if settings.long_term.enabled else ()),
    )


def flush_tools(bounds: Bounds, *, note: str, mask: bool = True) -> Toolbox:
    """What an agent may do in the turn before a compaction: read, and add to the day's note."""
    return Toolbox(offers=append_only(bounds, note, mask=mask))


def tool_tokens(tool: Tool) -> int:
    """What a tool takes of every request."""
    return count_json(definition(tool))
