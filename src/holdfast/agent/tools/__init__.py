"""The tools of the agent: files, a shell, notes, long-term memories and the archive."""

from __future__ import annotations

from holdfast.agent.memories import Memories
from holdfast.agent.notes import Notes
from holdfast.agent.paths import Bounds
from holdfast.agent.tools.memory import archive_text, archive_tools, memory_tools, note_tools
from holdfast.agent.tools.toolbox import Action, Answer, Arguments, Confirm, Toolbox, ToolFunction, make_tool
from holdfast.agent.tools.workspace import bash_tools, file_tools, flush_tools
from holdfast.session import Session

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
]


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
    access, functions = settings.workspace.access, list[ToolFunction]()
    if access != "none":
        functions += file_tools(bounds, confirm=confirm)
    if access == "rw" and confirm is not None:
        functions += bash_tools(bounds, confirm=confirm)
    if settings.slots.memory in {"memory-core", "memory-lancedb"}:  # other slots come without tools
        if notes is not None and settings.memory_search.enabled and access != "none":
            functions += note_tools(notes, session)
        if settings.long_term.enabled:
            functions += memory_tools(memories or Memories(session.engine, session.scope.agent), session)
    return Toolbox(functions=(*functions, *archive_tools(session)), archive=archive_text(session))
