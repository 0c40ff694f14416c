"""The settings of `holdfast chat`: those of the engine, and the table `[agent]` with those of the agent alone.

`settings.json` next to this file has a row for each setting of the agent: what it does, when to change it, its places
in an `openclaw.json`, and whether an untrusted project may set it. To add a setting, add a field here and its row
there, then run `make docs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from holdfast.settings import ENGINE, Loaded, Mmr, Schema, Secret, Settings, load_schema
from holdfast.settings.schema import Chars, Count, Duration, Kind, Positive, Provider, Share


class Workspace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's folder, and the files in it that are added to every prompt."""

    path: str | None = None
    access: Literal["rw", "ro", "none"] = "rw"
    bootstrap_max_chars: Chars = 20_000
    bootstrap_total_max_chars: Chars = 60_000
    skip_bootstrap: bool = False


class SessionReset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a new conversation starts automatically."""

    mode: Literal["daily", "idle", "never"] | None = None
    at_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    idle_minutes: Positive | None = None

    @property
    def is_daily(self) -> bool:
        """Whether each day begins a new conversation: by the mode, or by an hour without a mode."""
        if self.mode is None:
            return self.at_hour is not None
        return self.mode == "daily"


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a conversation starts and ends."""

    reset: SessionReset = SessionReset()
    reset_triggers: tuple[str, ...] = ("/new", "/reset")
    memory_file: bool = False


class HookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hooks that run around a compaction: a function as `module:name`, or a command."""

    before_compaction: tuple[str, ...] = ()
    after_compaction: tuple[str, ...] = ()
    summary: str | None = None
    timeout_seconds: Positive = 60


# --- long-term memories ----------------------------------------------------------


class LongTermEmbedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that turns long-term memories into vectors."""

    provider: Provider | None = None
    model: str | None = None
    api_key: Secret | None = None
    base_url: str | None = None
    dimensions: Positive | None = None


class LongTerm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memories that the agent or its user chose to keep: `memory_store`, `memory_recall`, `memory_forget`."""

    enabled: bool = True
    auto_capture: bool = False
    auto_recall: bool = True
    capture_max_chars: Annotated[int, Meta(ge=100, le=10_000)] = 500
    recall_max_chars: Positive = 1_000
    db_path: str | None = None
    embedding: LongTermEmbedding = LongTermEmbedding()


# --- the search over notes -------------------------------------------------------


class QmdPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further folder for QMD to index."""

    path: str
    name: str | None = None
    pattern: str | None = None


def _read_paths(value: object) -> object:
    """Accept a path as text in place of a table."""
    if not isinstance(value, list | tuple):
        return value
    return [{"path": item} if isinstance(item, str) else item for item in value]


class QmdSessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session transcripts in QMD."""

    enabled: bool = False
    export_dir: str | None = None
    retention_days: Annotated[int, Meta(ge=0, le=36_600)] | None = None


class QmdUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When QMD checks for changes."""

    interval: Duration = timedelta(minutes=5)
    embed_interval: Duration = timedelta(hours=1)
    debounce_ms: Count = 15_000
    on_boot: bool = True


class QmdLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a QMD search."""

    max_results: Positive = 6
    max_snippet_chars: Positive = 700
    max_injected_chars: Positive = 4_000
    timeout_ms: Count = 4_000


class QmdSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The QMD command as a backend."""

    command: str = "qmd"
    search_mode: Literal["search", "vsearch", "query"] = "search"
    include_default_memory: bool = True
    paths: Annotated[
        tuple[QmdPath, ...],
        Meta(
            extra={
                "kind": Kind(
                    _read_paths,
                    "list of paths, or of tables with `path`, `name` and `pattern`",
                    {"type": "array", "items": {"type": ["string", "object"]}},
                )
            }
        ),
    ] = ()
    sessions: QmdSessions = QmdSessions()
    update: QmdUpdate = QmdUpdate()
    limits: QmdLimits = QmdLimits()


class Experimental(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Features that may still change."""

    session_memory: bool = False


class Chunking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How notes are cut into passages."""

    tokens: Positive = 400
    overlap: Count = 80

    def __post_init__(self) -> None:
        if self.overlap >= self.tokens:
            raise ValueError("overlap must be smaller than tokens")


class TemporalDecay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decay of scores with age."""

    enabled: bool = False
    half_life_days: Positive = 30


class Hybrid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The combination of word and vector search."""

    enabled: bool = True
    vector_weight: Share = 0.7
    text_weight: Share = 0.3
    candidate_multiplier: Positive = 4
    mmr: Mmr = Mmr()
    temporal_decay: TemporalDecay = TemporalDecay()

    def __post_init__(self) -> None:
        if self.vector_weight + self.text_weight <= 0:
            raise ValueError("vector_weight and text_weight must not both be 0")


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a search returns."""

    max_results: Positive = 6
    min_score: Share = 0.35
    hybrid: Hybrid = Hybrid()


class Cache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of vectors."""

    enabled: bool = True
    max_entries: Positive = 50_000


class Remote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoint of a remote provider."""

    base_url: str | None = None
    api_key: Secret | None = None


class Local(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on this machine."""

    model_path: str | None = None


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When notes are checked for changes."""

    watch: bool = True
    watch_debounce_ms: Count = 1_500
    on_session_start: bool = True
    on_search: bool = True


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `memory_search` tool over the notes of a workspace."""

    enabled: bool = True
    backend: Literal["builtin", "qmd"] = "builtin"
    citations: Literal["auto", "on", "off"] = "auto"
    provider: Provider = "auto"
    model: str | None = None
    fallback: Provider = "none"
    output_dimensionality: Positive | None = None
    sources: tuple[Literal["memory", "sessions"], ...] = ("memory",)
    extra_paths: tuple[str, ...] = ()
    experimental: Experimental = Experimental()
    chunking: Chunking = Chunking()
    query: Query = Query()
    cache: Cache = Cache()
    sync: Watch = Watch()
    remote: Remote = Remote()
    local: Local = Local()
    qmd: QmdSettings = QmdSettings()


# --- all of them -----------------------------------------------------------------


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent of `holdfast chat`. No other command reads these settings."""

    block_streaming: Literal["off", "on"] = "off"
    timezone: str | None = None
    workspace: Workspace = Workspace()
    session: SessionSettings = SessionSettings()
    memory_search: MemorySearch = MemorySearch()
    long_term: LongTerm = LongTerm()
    hooks: HookSettings = HookSettings()


class ChatSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the engine, and those of the agent in `agent`."""

    agent: AgentSettings = AgentSettings()


CHAT: Final = Schema(struct=ChatSettings, files=(*ENGINE.files, Path(__file__).with_name("settings.json")))
"""Everything that a `holdfast.toml` or an `openclaw.json` may set."""


def load(
    *,
    files: Iterable[Path | str] = (),
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    trusted: bool = False,
    agent_id: str | None = None,
    **overrides: object,
) -> Loaded[ChatSettings]:
    """Load the settings of the engine and of the agent; see `holdfast.settings.load`."""
    return load_schema(
        CHAT,
        files=files,
        environ=environ,
        project=project,
        trusted=trusted,
        agent_id=agent_id,
        overrides=overrides,
    )
