"""The whole of the settings: one frozen value with a section for each part of the house."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.settings.memory import Archive, Embedding, Knowledge, LongTerm, Memory, Recall, Search
from holdfast.settings.notes import MemorySearch
from holdfast.settings.values import Chars, Positive, setting
from holdfast.settings.window import Agent, Compaction, Pruning, Tokens, Trim

__all__ = ["HookSettings", "Session", "SessionReset", "Settings", "Slots", "Workspace"]


class Workspace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's folder and the files of it that go into every prompt."""

    path: Annotated[
        str | None, setting("The folder; unset, the current one.", openclaw="agents.defaults.workspace")
    ] = None
    access: Annotated[
        Literal["rw", "ro", "none"],
        setting(
            "Whether the agent may write there; without it there is no memory flush.",
            openclaw="agents.defaults.sandbox.workspaceAccess",
        ),
    ] = "rw"
    bootstrap_max_chars: Annotated[
        Chars,
        setting("The most of one file; of more, head and tail.", openclaw="agents.defaults.bootstrapMaxChars"),
    ] = 20_000
    bootstrap_total_max_chars: Annotated[
        Chars, setting("The most of all files together.", openclaw="agents.defaults.bootstrapTotalMaxChars")
    ] = 60_000
    skip_bootstrap: Annotated[
        bool,
        setting(
            "Create no missing files; those there are read.",
            openclaw="agents.defaults.skipBootstrap",
        ),
    ] = False


def _in_reset(name: str) -> tuple[str, ...]:
    """The places of a reset setting: that of direct chats, of which the terminal is one, before that of all."""
    return tuple(f"session.{place}.{name}" for place in ("resetByType.direct", "resetByType.dm", "reset"))


class SessionReset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a conversation starts afresh by itself."""

    mode: Annotated[
        Literal["daily", "idle", "never"],
        setting("Every day, after a pause, or only when asked to.", openclaw=_in_reset("mode")),
    ] = "daily"
    at_hour: Annotated[
        Annotated[int, Meta(ge=0, le=23)],
        setting("With `daily`: the hour, local time.", openclaw=_in_reset("atHour")),
    ] = 4
    idle_minutes: Annotated[
        Positive | None,
        setting(
            "A pause after which the next message starts afresh; with `daily`, whichever comes first.",
            openclaw=(*_in_reset("idleMinutes"), "session.idleMinutes"),
        ),
    ] = None


class Session(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The life of a conversation."""

    reset: SessionReset = SessionReset()
    reset_triggers: Annotated[
        tuple[str, ...], setting("What a user says to start afresh, beside `/new` and `/reset`; the whole line.")
    ] = ("/new", "/reset")
    memory_file: Annotated[
        bool,
        setting(
            "Leave a note with its last words in `memory/` when a conversation ends.",
            openclaw="hooks.internal.entries.session-memory.enabled",
        ),
    ] = False


class Slots(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of several families of one thing is in use."""

    memory: Annotated[
        str,
        setting(
            "The memory tools that the agent gets: `memory-core` searches notes, `memory-lancedb` keeps memories, "
            "`memory-context` recalls alone, names of other plugins offer nothing, `none` turns recall off too."
        ),
    ] = "memory-core"
    context_engine: Annotated[str, setting("What assembles the window in a host that asks.")] = "legacy"


class HookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `holdfast chat` runs around a compaction: a function as `module:name`, or a command."""

    before_compaction: Annotated[
        tuple[str, ...], setting("Run before a compaction, beside it; a command reads the event as JSON.")
    ] = ()
    after_compaction: Annotated[tuple[str, ...], setting("Run after a compaction.")] = ()
    summary: Annotated[
        str | None,
        setting(
            "Asked for the summary; a command prints JSON with `summary` and `details`, or `cancel`, or nothing to "
            "leave it to the model."
        ),
    ] = None
    timeout_seconds: Annotated[Positive, setting("The deadline of one command before or after a compaction.")] = 60


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set. `load` reads it from its sources."""

    agent: Agent = Agent()
    tokens: Tokens = Tokens()
    compaction: Annotated[Compaction, setting("", openclaw="agents.defaults.compaction")] = Compaction()
    pruning: Annotated[Pruning, setting("", openclaw="agents.defaults.contextPruning")] = Pruning()
    trim: Trim = Trim()
    recall: Recall = Recall()
    archive: Archive = Archive()
    knowledge: Knowledge = Knowledge()
    embedding: Embedding = Embedding()
    search: Search = Search()
    memory_search: Annotated[MemorySearch, setting("", openclaw=("agents.defaults.memorySearch", "memory.search"))] = (
        MemorySearch()
    )
    memory: Annotated[Memory, setting("", openclaw="memory")] = Memory()
    long_term: Annotated[LongTerm, setting("", openclaw="plugins.entries.memory-lancedb.config")] = LongTerm()
    workspace: Workspace = Workspace()
    session: Annotated[Session, setting("", openclaw="session")] = Session()
    slots: Annotated[Slots, setting("", openclaw="plugins.slots")] = Slots()
    hooks: HookSettings = HookSettings()
