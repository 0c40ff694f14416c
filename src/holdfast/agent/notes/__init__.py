"""Search over the notes of a workspace: `MEMORY.md`, `memory/**/*.md`, further files, and past sessions."""

from holdfast.agent.notes.embedding import Fallback
from holdfast.agent.notes.excerpt import Excerpt, excerpt
from holdfast.agent.notes.found import Found, Hit
from holdfast.agent.notes.notes import Notes, Synced

__all__ = ["Excerpt", "Fallback", "Found", "Hit", "Notes", "Synced", "excerpt"]
