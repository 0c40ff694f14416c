"""Settings of memory: what is kept, how it is found, what comes back into the window."""

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.settings.values import Count, Duration, Kind, Positive, Provider, Secret, Share, setting

__all__ = [
    "Archive",
    "Embedding",
    "Knowledge",
    "LongTerm",
    "LongTermEmbedding",
    "Memory",
    "Mmr",
    "Qmd",
    "QmdLimits",
    "QmdPath",
    "QmdSessions",
    "QmdUpdate",
    "Recall",
    "Search",
]


def _in_memory_context(*names: str) -> tuple[str, ...]:
    """The two places of a memory-context setting: built in, and as a plugin."""
    return tuple(
        f"{place}.{name}"
        for name in names
        for place in ("agents.defaults.memoryContext", "plugins.entries.memory-context.config")
    )


class Recall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of facts and passages that goes into a window."""

    enabled: Annotated[
        bool,
        setting(
            "Search memory at all.",
            openclaw=("agents.defaults.memoryContext.enabled", "plugins.entries.memory-context.enabled"),
        ),
    ] = True
    automatic: Annotated[
        bool,
        setting("Place a block by itself; off, only what is asked for.", openclaw=_in_memory_context("autoRecall")),
    ] = True
    hard_cap_tokens: Annotated[
        Count,
        setting(
            "The most a block may hold, headers and tags included.",
            openclaw=_in_memory_context("hardCapTokens", "autoRecallMaxTokens"),
        ),
    ] = 4_000
    max_window_share: Annotated[Share, setting("The same as a share of the window; the smaller of the two counts.")] = (
        0.10
    )
    position: Annotated[
        Literal["tail", "head"],
        setting(
            "`tail`: beside the newest user message, which keeps the provider's prompt cache; "
            "`head`: after the system prompt, replaced every turn."
        ),
    ] = "tail"
    min_score: Annotated[
        Share,
        setting(
            'The least score of a passage with `search.fusion = "weighted"`; the measured recipe has its own test.',
            openclaw=_in_memory_context("autoRecallMinScore"),
        ),
    ] = 0.7
    knowledge_share: Annotated[
        Share,
        setting("The share of the block for facts, the rest is for passages; what one leaves the other gets."),
    ] = 0.3
    max_facts: Annotated[Count, setting("The most facts in one block.")] = 10
    query_messages: Annotated[Positive, setting("How many of the last user messages make the query.")] = 3
    min_query_chars: Annotated[Count, setting("A shorter query recalls nothing.")] = 3
    neighbours: Annotated[
        Count, setting("Messages before and after a passage that may come along with it; the recipe looks 2 away.")
    ] = 2
    deadline_ms: Annotated[Positive, setting("After this long the window goes on without a block, and says so.")] = 250


class Archive(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where everything is kept, and how much of it is indexed. The archive itself is never cut."""

    path: Annotated[
        str | None,
        setting(
            "A folder or a `.db` file; unset, `$HOLDFAST_HOME` or the platform's data folder.",
            openclaw=_in_memory_context("storagePath"),
        ),
    ] = None
    redaction: Annotated[
        bool, setting("Mask secrets before anything is written.", openclaw=_in_memory_context("redaction"))
    ] = True
    cross_session: Annotated[
        bool,
        setting(
            "Recall passages of all sessions of the agent, not of this one alone.",
            openclaw=_in_memory_context("crossSession"),
        ),
    ] = False
    max_segments: Annotated[
        Positive | None,
        setting("Search only so many of the newest passages; unset, all.", openclaw=_in_memory_context("maxSegments")),
    ] = None
    eviction_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_600)] | None,
        setting(
            "Search only what was said in so many days; unset or 0, all.", openclaw=_in_memory_context("evictionDays")
        ),
    ] = None


class Knowledge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts drawn from what was said."""

    extraction: Annotated[
        bool, setting("Extract facts after a compaction.", openclaw=_in_memory_context("knowledgeExtraction"))
    ] = True
    allow_delete: Annotated[bool, setting("Let extraction delete facts; otherwise it can only supersede them.")] = False
    model: Annotated[str | None, setting("The model that extracts; unset, the agent's.")] = None


class Embedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What turns text into vectors."""

    provider: Annotated[
        Provider,
        setting(
            "`auto` takes the best that is available and says which; `none` searches by words alone.",
            openclaw=_in_memory_context("embeddingModel"),
        ),
    ] = "auto"
    model: Annotated[
        str | None,
        setting(
            "The provider's model or a local folder; unset, its usual one.",
            openclaw=_in_memory_context("embeddingModelName"),
        ),
    ] = None
    dimension: Annotated[
        Positive | None,
        setting("The length of a vector; unset, the model's own.", openclaw=_in_memory_context("embeddingDim")),
    ] = None
    base_url: Annotated[str | None, setting("Address of an endpoint other than the provider's.")] = None
    api_key: Annotated[Secret | None, setting("The provider's key; unset, its usual environment variable.")] = None
    allow_remote: Annotated[bool, setting("Let `auto` send text to a provider whose key is in the environment.")] = (
        False
    )
    batch_size: Annotated[Positive, setting("Texts in one request.")] = 64
    timeout_seconds: Annotated[Positive, setting("The deadline of one request.")] = 60
    cache_entries: Annotated[Count, setting("Queries whose vectors are remembered.")] = 1_000


class Mmr(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Re-ranking for variety."""

    enabled: Annotated[bool, setting("Re-rank by maximal marginal relevance; it costs multi-part answers dearly.")] = (
        False
    )
    relevance_weight: Annotated[
        Share, setting("Lambda: 1 is relevance alone, 0 is variety alone.", spelled="lambda")
    ] = 0.7


class Search(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the archive is searched."""

    fusion: Annotated[
        Literal["recipe", "weighted", "rrf"],
        setting(
            "How words and vectors come together: the measured recipe, fixed weights, or reciprocal ranks.",
            openclaw=_in_memory_context("search.fusion"),
        ),
    ] = "recipe"
    vector_weight: Annotated[
        Share,
        setting("With `weighted`: the weight of vectors.", openclaw=_in_memory_context("search.vectorWeight")),
    ] = 0.7
    bm25_weight: Annotated[
        Share, setting("With `weighted`: the weight of words.", openclaw=_in_memory_context("search.bm25Weight"))
    ] = 0.3
    time_decay: Annotated[
        Share,
        setting("With `weighted`: what is left of a score per day.", openclaw=_in_memory_context("search.timeDecay")),
    ] = 0.995
    mmr: Annotated[Mmr, setting("", openclaw=_in_memory_context("search.mmr"))] = Mmr()

    def __post_init__(self) -> None:
        if self.vector_weight + self.bm25_weight <= 0:
            raise ValueError("vector_weight and bm25_weight must not both be 0")


class LongTermEmbedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What turns long-term memories into vectors."""

    provider: Annotated[Provider | None, setting("Unset, `embedding.provider`; with a key alone, `openai`.")] = None
    model: Annotated[str | None, setting("Unset, `embedding.model`.")] = None
    api_key: Annotated[Secret | None, setting("Unset, `embedding.api_key`.")] = None
    base_url: Annotated[str | None, setting("Unset, `embedding.base_url`.")] = None
    dimensions: Annotated[Positive | None, setting("Unset, `embedding.dimension`.")] = None


class LongTerm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memories that the agent or its user chose to keep: `memory_store`, `memory_recall`, `memory_forget`."""

    enabled: Annotated[bool, setting("Offer these tools.", openclaw="plugins.entries.memory-lancedb.enabled")] = True
    auto_capture: Annotated[bool, setting("Keep what a user says to remember without being asked to.")] = False
    auto_recall: Annotated[bool, setting("Let kept memories into the recall block.")] = True
    capture_max_chars: Annotated[
        Annotated[int, Meta(ge=100, le=10_000)], setting("Longer messages are never captured.")
    ] = 500
    recall_max_chars: Annotated[Positive, setting("The most that recalled memories may take together.")] = 1_000
    db_path: Annotated[str | None, setting("A folder or `.db` file of their own; unset, the archive.")] = None
    embedding: LongTermEmbedding = LongTermEmbedding()


class QmdPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further folder for QMD to index."""

    path: str
    name: str | None = None
    pattern: str | None = None


def _read_paths(value: object) -> object:
    """A bare text is a path."""
    if not isinstance(value, list | tuple):
        return value
    return [{"path": item} if isinstance(item, str) else item for item in value]


class QmdSessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session transcripts in QMD."""

    enabled: Annotated[bool, setting("Index session transcripts.")] = False
    export_dir: Annotated[str | None, setting("Where transcripts are exported to; unset, beside the index.")] = None
    retention_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_600)] | None, setting("Days after which exports go; unset, never.")
    ] = None


class QmdUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When QMD looks for changes."""

    interval: Annotated[Duration, setting("How often files are looked at again.")] = timedelta(minutes=5)
    embed_interval: Annotated[Duration, setting("How often new text is embedded.")] = timedelta(hours=1)
    debounce_ms: Annotated[Count, setting("The least time between two looks.")] = 15_000
    on_boot: Annotated[bool, setting("Look once at the start.")] = True


class QmdLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a QMD search may return and take."""

    max_results: Annotated[Positive, setting("The most hits.")] = 6
    max_snippet_chars: Annotated[Positive, setting("The most text of one hit.")] = 700
    max_injected_chars: Annotated[Positive, setting("The most text of all hits.")] = 4_000
    timeout_ms: Annotated[Count, setting("The deadline of a search.")] = 4_000


class Qmd(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The QMD command as a backend."""

    command: Annotated[str, setting("The command to run.")] = "qmd"
    search_mode: Annotated[
        Literal["search", "vsearch", "query"], setting("Search by words, by vectors, or by both with re-ranking.")
    ] = "search"
    include_default_memory: Annotated[bool, setting("Index `MEMORY.md` and `memory/**/*.md`.")] = True
    paths: Annotated[
        Annotated[
            tuple[QmdPath, ...],
            Meta(extra={"kind": Kind(_read_paths, "list of paths, or of tables with `path`, `name` and `pattern`")}),
        ],
        setting("Further folders to index."),
    ] = ()
    sessions: QmdSessions = QmdSessions()
    update: QmdUpdate = QmdUpdate()
    limits: QmdLimits = QmdLimits()


class Memory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The backend of `memory_search` and how it cites."""

    backend: Annotated[Literal["builtin", "qmd"], setting("Our own index, or the QMD command.")] = "builtin"
    citations: Annotated[
        Literal["auto", "on", "off"], setting("Add `path#L5-L9` to hits; `auto` does in direct chats.")
    ] = "auto"
    qmd: Qmd = Qmd()
