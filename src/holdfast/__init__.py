"""Holdfast keeps long-running LLM agents inside their context window without losing anything.

    from holdfast import Engine

    with Engine.open("~/agent-memory") as engine:
        window = engine.session("s1").assemble(messages, limit=200_000)

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.aio import AsyncEngine, AsyncSession
    from holdfast.compact import Compaction
    from holdfast.compaction.plan import CompactionPlan
    from holdfast.context.edits import Edit
    from holdfast.engine import Engine
    from holdfast.errors import (
        CompactionError,
        ConflictError,
        EmbeddingError,
        FormatError,
        HoldfastError,
        InputError,
        InvalidWindowError,
        MissingExtraError,
        ModelCancelledError,
        ModelError,
        SettingsError,
        StorageError,
        TranscriptError,
        WindowError,
        WindowTooSmallError,
    )
    from holdfast.events import Compacted, Compacting, Hooks, SummaryRequest, SummaryResult
    from holdfast.memory.archive import Ingested
    from holdfast.memory.facts import FactHit
    from holdfast.memory.memory import Stats
    from holdfast.memory.recall import Hit, Recall
    from holdfast.messages import (
        Image,
        Message,
        Opaque,
        RedactedThinking,
        Text,
        Thinking,
        ToolCall,
        ToolResult,
        Usage,
    )
    from holdfast.models.base import Model
    from holdfast.redact import redact
    from holdfast.report import Category, Change, ContextReport
    from holdfast.session import Session
    from holdfast.settings import Settings
    from holdfast.store.base import FactRow, MessageRow, Scope, Store
    from holdfast.tokens import count_messages, count_text
    from holdfast.transcripts import Transcript
    from holdfast.window import Window

__version__ = "0.2.0"

__all__ = [
    "AsyncEngine",
    "AsyncSession",
    "Category",
    "Change",
    "Compacted",
    "Compacting",
    "Compaction",
    "CompactionError",
    "CompactionPlan",
    "ConflictError",
    "ContextReport",
    "Edit",
    "EmbeddingError",
    "Engine",
    "FactHit",
    "FactRow",
    "FormatError",
    "Hit",
    "HoldfastError",
    "Hooks",
    "Image",
    "Ingested",
    "InputError",
    "InvalidWindowError",
    "Message",
    "MessageRow",
    "MissingExtraError",
    "Model",
    "ModelCancelledError",
    "ModelError",
    "Opaque",
    "Recall",
    "RedactedThinking",
    "Scope",
    "Session",
    "Settings",
    "SettingsError",
    "Stats",
    "StorageError",
    "Store",
    "SummaryRequest",
    "SummaryResult",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Transcript",
    "TranscriptError",
    "Usage",
    "Window",
    "WindowError",
    "WindowTooSmallError",
    "__version__",
    "count_messages",
    "count_text",
    "redact",
]

_HOMES: Final = {
    "holdfast.aio": ("AsyncEngine", "AsyncSession"),
    "holdfast.compact": ("Compaction",),
    "holdfast.compaction.plan": ("CompactionPlan",),
    "holdfast.context.edits": ("Edit",),
    "holdfast.engine": ("Engine",),
    "holdfast.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "holdfast.events": ("Compacted", "Compacting", "Hooks", "SummaryRequest", "SummaryResult"),
    "holdfast.memory.facts": ("FactHit",),
    "holdfast.memory.archive": ("Ingested",),
    "holdfast.memory.memory": ("Stats",),
    "holdfast.memory.recall": ("Hit", "Recall"),
    "holdfast.messages": (
        *("Image", "Message", "Opaque", "RedactedThinking", "Text", "Thinking", "ToolCall", "ToolResult", "Usage"),
    ),
    "holdfast.models.base": ("Model",),
    "holdfast.redact": ("redact",),
    "holdfast.report": ("Category", "Change", "ContextReport"),
    "holdfast.session": ("Session",),
    "holdfast.settings": ("Settings",),
    "holdfast.store.base": ("FactRow", "MessageRow", "Scope", "Store"),
    "holdfast.tokens": ("count_messages", "count_text"),
    "holdfast.transcripts": ("Transcript",),
    "holdfast.window": ("Window",),
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
