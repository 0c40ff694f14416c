"""Holdfast keeps long-running LLM agents inside their context window without losing anything.

    from holdfast import Engine

    with Engine.open("~/agent-memory") as engine:
        window = engine.session("s1").assemble(messages, limit=200_000)

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a hook is done before `typing` is imported
if TYPE_CHECKING:
    from typing import Any, Final

    from holdfast.aio import AsyncEngine as AsyncEngine
    from holdfast.aio import AsyncSession as AsyncSession
    from holdfast.compaction.audit import Checklist as Checklist
    from holdfast.compaction.events import Compacted as Compacted
    from holdfast.compaction.events import Compacting as Compacting
    from holdfast.compaction.events import Hooks as Hooks
    from holdfast.compaction.events import SummaryRequest as SummaryRequest
    from holdfast.compaction.events import SummaryResult as SummaryResult
    from holdfast.compaction.plan import CompactionPlan as CompactionPlan
    from holdfast.compaction.run import Compaction as Compaction
    from holdfast.compaction.summarise import Progress as Progress
    from holdfast.compaction.summarise import Summary as Summary
    from holdfast.compaction.tool_calls import Activity as Activity
    from holdfast.compaction.tool_calls import FailedCall as FailedCall
    from holdfast.compaction.tool_calls import PlanStep as PlanStep
    from holdfast.context.edits import Block as Block
    from holdfast.context.edits import Edit as Edit
    from holdfast.context.edits import Forgotten as Forgotten
    from holdfast.context.edits import Item as Item
    from holdfast.context.edits import OverviewAdded as OverviewAdded
    from holdfast.context.edits import Pinned as Pinned
    from holdfast.context.edits import Pruned as Pruned
    from holdfast.context.edits import Recalled as Recalled
    from holdfast.context.edits import Relevance as Relevance
    from holdfast.context.edits import Restored as Restored
    from holdfast.context.edits import Summarised as Summarised
    from holdfast.context.edits import Trimmed as Trimmed
    from holdfast.context.validate import ValidWindow as ValidWindow
    from holdfast.engine import Engine as Engine
    from holdfast.errors import ClosedError as ClosedError
    from holdfast.errors import CompactionError as CompactionError
    from holdfast.errors import ConflictError as ConflictError
    from holdfast.errors import EmbeddingError as EmbeddingError
    from holdfast.errors import EncryptionError as EncryptionError
    from holdfast.errors import FormatError as FormatError
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import InputError as InputError
    from holdfast.errors import InvalidWindowError as InvalidWindowError
    from holdfast.errors import MissingExtraError as MissingExtraError
    from holdfast.errors import ModelBudgetError as ModelBudgetError
    from holdfast.errors import ModelBusyError as ModelBusyError
    from holdfast.errors import ModelCancelledError as ModelCancelledError
    from holdfast.errors import ModelError as ModelError
    from holdfast.errors import ModelOverflowError as ModelOverflowError
    from holdfast.errors import ModelRefusedError as ModelRefusedError
    from holdfast.errors import ModelTimeoutError as ModelTimeoutError
    from holdfast.errors import SettingsError as SettingsError
    from holdfast.errors import StorageError as StorageError
    from holdfast.errors import TranscriptError as TranscriptError
    from holdfast.errors import UnavailableError as UnavailableError
    from holdfast.errors import WindowError as WindowError
    from holdfast.errors import WindowTooSmallError as WindowTooSmallError
    from holdfast.index.query import PassageText as PassageText
    from holdfast.memory.archive import AppendResult as AppendResult
    from holdfast.memory.conflicts import Conflict as Conflict
    from holdfast.memory.exclusion import Exclusions as Exclusions
    from holdfast.memory.facts import FactHit as FactHit
    from holdfast.memory.learning_state import LearningState as LearningState
    from holdfast.memory.memory import Stats as Stats
    from holdfast.memory.passage_search import Hit as Hit
    from holdfast.memory.recall import Missed as Missed
    from holdfast.memory.recall import Recall as Recall
    from holdfast.memory.session_lines import SessionLine as SessionLine
    from holdfast.memory.sessions import SessionInfo as SessionInfo
    from holdfast.messages import Image as Image
    from holdfast.messages import Message as Message
    from holdfast.messages import Opaque as Opaque
    from holdfast.messages import Origin as Origin
    from holdfast.messages import Part as Part
    from holdfast.messages import RedactedThinking as RedactedThinking
    from holdfast.messages import Role as Role
    from holdfast.messages import Text as Text
    from holdfast.messages import Thinking as Thinking
    from holdfast.messages import ToolCall as ToolCall
    from holdfast.messages import ToolResult as ToolResult
    from holdfast.messages import Usage as Usage
    from holdfast.models.base import Model as Model
    from holdfast.models.base import Prompt as Prompt
    from holdfast.models.base import Reply as Reply
    from holdfast.models.base import Tool as Tool
    from holdfast.providers import Incoming as Incoming
    from holdfast.providers import Repair as Repair
    from holdfast.providers import Violation as Violation
    from holdfast.redaction import redact as redact
    from holdfast.report import Category as Category
    from holdfast.report import Change as Change
    from holdfast.report import ContextReport as ContextReport
    from holdfast.report import Window as Window
    from holdfast.report import WorkspaceFile as WorkspaceFile
    from holdfast.search.fuse import Parts as Parts
    from holdfast.session import AutoCompaction as AutoCompaction
    from holdfast.session import Session as Session
    from holdfast.settings import Loaded as Loaded
    from holdfast.settings import ProjectSettings as ProjectSettings
    from holdfast.settings import Settings as Settings
    from holdfast.store.base import FactRow as FactRow
    from holdfast.store.base import FactType as FactType
    from holdfast.store.base import MessageRow as MessageRow
    from holdfast.store.base import Scope as Scope
    from holdfast.store.base import Store as Store
    from holdfast.timeline import Cut as Cut
    from holdfast.timeline import CutMessage as CutMessage
    from holdfast.timeline import CutText as CutText
    from holdfast.tokens import count_messages as count_messages
    from holdfast.tokens import count_text as count_text
    from holdfast.transcripts import Entry as Entry
    from holdfast.transcripts import Problem as Problem
    from holdfast.transcripts import Transcript as Transcript

__version__ = "0.3.0"

_HOMES: Final = {
    "holdfast.aio": "AsyncEngine AsyncSession",
    "holdfast.compaction.audit": "Checklist",
    "holdfast.compaction.events": "Compacted Compacting Hooks SummaryRequest SummaryResult",
    "holdfast.compaction.plan": "CompactionPlan",
    "holdfast.compaction.run": "Compaction",
    "holdfast.compaction.summarise": "Progress Summary",
    "holdfast.compaction.tool_calls": "Activity FailedCall PlanStep",
    "holdfast.context.edits": (
        "Block Edit Forgotten Item OverviewAdded Pinned Pruned Recalled Relevance Restored Summarised Trimmed"
    ),
    "holdfast.context.validate": "ValidWindow",
    "holdfast.engine": "Engine",
    "holdfast.errors": "ClosedError CompactionError ConflictError EmbeddingError EncryptionError FormatError"
    " HoldfastError InputError InvalidWindowError MissingExtraError ModelBudgetError ModelBusyError"
    " ModelCancelledError ModelError ModelOverflowError ModelRefusedError ModelTimeoutError SettingsError StorageError"
    " TranscriptError UnavailableError WindowError WindowTooSmallError",
    "holdfast.index.query": "PassageText",
    "holdfast.memory.archive": "AppendResult",
    "holdfast.memory.conflicts": "Conflict",
    "holdfast.memory.exclusion": "Exclusions",
    "holdfast.memory.facts": "FactHit",
    "holdfast.memory.learning_state": "LearningState",
    "holdfast.memory.memory": "Stats",
    "holdfast.memory.passage_search": "Hit",
    "holdfast.memory.recall": "Missed Recall",
    "holdfast.memory.session_lines": "SessionLine",
    "holdfast.memory.sessions": "SessionInfo",
    "holdfast.messages": "Image Message Opaque Origin Part RedactedThinking Role Text Thinking ToolCall ToolResult"
    " Usage",
    "holdfast.models.base": "Model Prompt Reply Tool",
    "holdfast.providers": "Incoming Repair Violation",
    "holdfast.redaction": "redact",
    "holdfast.report": "Category Change ContextReport Window WorkspaceFile",
    "holdfast.search.fuse": "Parts",
    "holdfast.session": "AutoCompaction Session",
    "holdfast.settings": "Loaded ProjectSettings Settings",
    "holdfast.store.base": "FactRow FactType MessageRow Scope Store",
    "holdfast.timeline": "Cut CutMessage CutText",
    "holdfast.tokens": "count_messages count_text",
    "holdfast.transcripts": "Entry Problem Transcript",
}
_HOME: Final = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605 - the names above


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
