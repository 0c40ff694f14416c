"""The tools of the agent: files, a shell, notes, long-term memories and the archive."""

from __future__ import annotations

from typing import Final

from holdfast.agent.memories import Memories
from holdfast.agent.notes import Notes
from holdfast.agent.paths import Bounds
from holdfast.agent.tools.memory import archive_text, archive_tools, memory_tools, note_tools
from holdfast.agent.tools.toolbox import Action, Answer, Arguments, Confirm, Toolbox, ToolFunction, make_tool
from holdfast.agent.tools.workspace import append_tools, bash_tool, file_tools
from holdfast.models.base import Tool
from holdfast.recovery import definition
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.tokens import count_json

__all__ = [
    "Action",
    "Answer",
    "Arguments",
    "Confirm",
    "ToolFunction",
    "Toolbox",
    "agent_tools",
    "flush_tools",
    "make_tool",
    "tool_tokens",
]

_MEMORY_SLOTS: Final = frozenset({"memory-core", "memory-lancedb"})
"""The memory slots that come with tools."""


def agent_tools(
    session: Session,
    *,
    bounds: Bounds,
    notes: Notes | None = None,
    confirm: Confirm | None = None,
    memories: Memories | None = None,
) -> Toolbox:
    """Make all tools that the settings allow.

    Args:
        session: The conversation.
        bounds: Where the agent may read and write.
        notes: The notes that it may search.
        confirm: Asks the user before a command runs or a file is written; without it neither is possible.
        memories: Its long-term memories; by default those in the engine's memory.
    """
    settings = session.engine.settings
    known = memories or Memories(session.engine, session.scope.agent)
    functions = (
        *_workspace_tools(bounds, settings, confirm),
        *_memory_tools(session, settings, notes, known),
        *archive_tools(session),
    )
    return Toolbox(functions=functions, archive=archive_text(session))


def _workspace_tools(bounds: Bounds, settings: Settings, confirm: Confirm | None) -> tuple[ToolFunction, ...]:
    access = settings.workspace.access
    files = () if access == "none" else file_tools(bounds, confirm=confirm)
    if confirm is None or access != "rw" or not bounds.writable:
        return files
    return (*files, bash_tool(bounds.root, confirm=confirm))


def _memory_tools(
    session: Session, settings: Settings, notes: Notes | None, memories: Memories
) -> tuple[ToolFunction, ...]:
    if settings.slots.memory not in _MEMORY_SLOTS:
        return ()
    can_search = settings.memory_search.enabled and settings.workspace.access != "none"
    return (
        *(note_tools(notes, session) if notes is not None and can_search else ()),
        *(memory_tools(memories, session) if settings.long_term.enabled else ()),
    )


def flush_tools(bounds: Bounds, *, note: str, mask: bool = True) -> Toolbox:
    """Make the tools of the turn before a compaction: read files, and append to the note of the day."""
    return Toolbox(functions=append_tools(bounds, note, mask=mask))


def tool_tokens(tool: Tool) -> int:
    """Count the tokens of a tool's definition."""
    return count_json(definition(tool))
