"""Settings of memory: archive, search, embedding, recall, and the search over workspace notes."""

from datetime import timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from holdfast.settings.values import Count, Duration, Kind, Positive, Provider, Secret, Share, setting

__all__ = [
    "Archive",
    "Cache",
    "Chunking",
    "Embedding",
    "Experimental",
    "Hybrid",
    "Knowledge",
    "Local",
    "LongTerm",
    "LongTermEmbedding",
    "Memory",
    "MemorySearch",
    "Mmr",
    "Qmd",
    "QmdLimits",
    "QmdPath",
    "QmdSessions",
    "QmdUpdate",
    "Query",
    "Recall",
    "Remote",
    "Search",
    "TemporalDecay",
    "Watch",
]


def _in_memory_context(*names: str) -> tuple[str, ...]:
    """Return the two places of a memory-context setting: built in, and as a plugin."""
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
            "Search memory.",
            openclaw=("agents.defaults.memoryContext.enabled", "plugins.entries.memory-context.enabled"),
        ),
    ] = True
    automatic: Annotated[
        bool,
        setting("Add a recall block to every window; off, only on request.", openclaw=_in_memory_context("autoRecall")),
    ] = True
    hard_cap_tokens: Annotated[
        Count,
        setting(
            "The maximum size of a block, headers and tags included.",
            openclaw=_in_memory_context("hardCapTokens", "autoRecallMaxTokens"),
        ),
    ] = 4_000
    max_window_share: Annotated[Share, setting("The same as a share of the window; the smaller limit applies.")] = 0.10
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
            'The minimum score of a passage with `search.fusion = "weighted"`; the measured recipe has its own test.',
            openclaw=_in_memory_context("autoRecallMinScore"),
        ),
    ] = 0.7
    knowledge_share: Annotated[
        Share,
        setting("The share of the block for facts; the rest is for passages. Unused room goes to the other."),
    ] = 0.3
    max_facts: Annotated[Count, setting("The maximum number of facts in one block.")] = 10
    query_messages: Annotated[Positive, setting("How many of the last user messages make the query.")] = 3
    min_query_chars: Annotated[Count, setting("A shorter query recalls nothing.")] = 3
    neighbours: Annotated[
        Count, setting("Messages before and after a passage that may be added to it; the recipe uses up to 2.")
    ] = 2
    deadline_ms: Annotated[
        Positive, setting("After this time the window is built without a block, and the report says so.")
    ] = 250


class Archive(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages are stored, and how many of them are searched. The archive itself is never reduced."""

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
            "Recall passages of all sessions of the agent, not only of this one.",
            openclaw=_in_memory_context("crossSession"),
        ),
    ] = False
    max_segments: Annotated[
        Positive | None,
        setting(
            "Search only this many of the newest passages; unset, all.", openclaw=_in_memory_context("maxSegments")
        ),
    ] = None
    eviction_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_600)] | None,
        setting(
            "Search only messages of this many days; unset or 0, all.", openclaw=_in_memory_context("evictionDays")
        ),
    ] = None


class Knowledge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The extraction of facts from conversations."""

    extraction: Annotated[
        bool, setting("Extract facts after a compaction.", openclaw=_in_memory_context("knowledgeExtraction"))
    ] = True
    allow_delete: Annotated[bool, setting("Let extraction delete facts; otherwise it can only supersede them.")] = False
    model: Annotated[str | None, setting("The model that extracts; unset, the agent's.")] = None


class Embedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that turns text into vectors."""

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
            "The provider's model or a local folder; unset, the default one.",
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
    timeout_seconds: Annotated[Positive, setting("The timeout of one request.")] = 60
    cache_entries: Annotated[Count, setting("How many query vectors are cached.")] = 1_000


class Mmr(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Re-ranking for diversity."""

    enabled: Annotated[
        bool, setting("Re-rank by maximal marginal relevance; answers that need several passages get worse.")
    ] = False
    relevance_weight: Annotated[
        Share, setting("Lambda: 1 is relevance alone, 0 is variety alone.", spelled="lambda")
    ] = 0.7


class Search(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the archive is searched."""

    fusion: Annotated[
        Literal["recipe", "weighted", "rrf"],
        setting(
            "How word and vector scores are combined: the measured recipe, fixed weights, or reciprocal ranks.",
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
        setting(
            "With `weighted`: the factor by which a score decays per day.",
            openclaw=_in_memory_context("search.timeDecay"),
        ),
    ] = 0.995
    mmr: Annotated[Mmr, setting("", openclaw=_in_memory_context("search.mmr"))] = Mmr()

    def __post_init__(self) -> None:
        if self.vector_weight + self.bm25_weight <= 0:
            raise ValueError("vector_weight and bm25_weight must not both be 0")


class LongTermEmbedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that turns long-term memories into vectors."""

    provider: Annotated[Provider | None, setting("Unset, `embedding.provider`; with a key alone, `openai`.")] = None
    model: Annotated[str | None, setting("Unset, `embedding.model`.")] = None
    api_key: Annotated[Secret | None, setting("Unset, `embedding.api_key`.")] = None
    base_url: Annotated[str | None, setting("Unset, `embedding.base_url`.")] = None
    dimensions: Annotated[Positive | None, setting("Unset, `embedding.dimension`.")] = None


class LongTerm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memories that the agent or its user chose to keep: `memory_store`, `memory_recall`, `memory_forget`."""

    enabled: Annotated[bool, setting("Offer the memory tools.", openclaw="plugins.entries.memory-lancedb.enabled")] = (
        True
    )
    auto_capture: Annotated[bool, setting("Store memories from user messages automatically.")] = False
    auto_recall: Annotated[bool, setting("Add stored memories to the recall block.")] = True
    capture_max_chars: Annotated[
        Annotated[int, Meta(ge=100, le=10_000)], setting("Longer messages are never captured.")
    ] = 500
    recall_max_chars: Annotated[Positive, setting("The maximum length of all recalled memories together.")] = 1_000
    db_path: Annotated[str | None, setting("A separate folder or `.db` file; unset, the archive.")] = None
    embedding: LongTermEmbedding = LongTermEmbedding()


class QmdPath(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further folder for QMD to index."""

    path: str
    name: str | None = None
    pattern: str | None = None


def _read_paths(value: object) -> object:
    """Convert plain text to a table with that path."""
    if not isinstance(value, list | tuple):
        return value
    return [{"path": item} if isinstance(item, str) else item for item in value]


class QmdSessions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session transcripts in QMD."""

    enabled: Annotated[bool, setting("Index session transcripts.")] = False
    export_dir: Annotated[str | None, setting("Where transcripts are exported to; unset, beside the index.")] = None
    retention_days: Annotated[
        Annotated[int, Meta(ge=0, le=36_600)] | None, setting("Days after which exports are deleted; unset, never.")
    ] = None


class QmdUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When QMD checks for changes."""

    interval: Annotated[Duration, setting("How often files are checked.")] = timedelta(minutes=5)
    embed_interval: Annotated[Duration, setting("How often new text is embedded.")] = timedelta(hours=1)
    debounce_ms: Annotated[Count, setting("The minimum time between two checks.")] = 15_000
    on_boot: Annotated[bool, setting("Check once at the start.")] = True


class QmdLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a QMD search."""

    max_results: Annotated[Positive, setting("The maximum number of hits.")] = 6
    max_snippet_chars: Annotated[Positive, setting("The maximum length of one hit.")] = 700
    max_injected_chars: Annotated[Positive, setting("The maximum length of all hits together.")] = 4_000
    timeout_ms: Annotated[Count, setting("The timeout of a search.")] = 4_000


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


class Experimental(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Features that may still change."""

    session_memory: Annotated[bool, setting('Index past sessions as well, if `sources` holds "sessions".')] = False


class Chunking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How notes are cut into passages."""

    tokens: Annotated[Positive, setting("The size of a passage.")] = 400
    overlap: Annotated[Count, setting("How many tokens of a passage the next one repeats; less than its size.")] = 80

    def __post_init__(self) -> None:
        if self.overlap >= self.tokens:
            raise ValueError("overlap must be smaller than tokens")


class TemporalDecay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The decay of scores with age."""

    enabled: Annotated[bool, setting("Lower the score of dated notes with their age.")] = False
    half_life_days: Annotated[Positive, setting("Days in which a score halves.")] = 30


class Hybrid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The combination of word and vector search."""

    enabled: Annotated[bool, setting("Search by words and by vectors, not by vectors alone.")] = True
    vector_weight: Annotated[Share, setting("The weight of vectors.")] = 0.7
    text_weight: Annotated[Share, setting("The weight of words.")] = 0.3
    candidate_multiplier: Annotated[Positive, setting("Candidates considered per result.")] = 4
    mmr: Mmr = Mmr()
    temporal_decay: TemporalDecay = TemporalDecay()

    def __post_init__(self) -> None:
        if self.vector_weight + self.text_weight <= 0:
            raise ValueError("vector_weight and text_weight must not both be 0")


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a search returns."""

    max_results: Annotated[Positive, setting("The maximum number of hits.")] = 6
    min_score: Annotated[Share, setting("The minimum score of a hit.")] = 0.35
    hybrid: Hybrid = Hybrid()


class Cache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of vectors."""

    enabled: Annotated[bool, setting("Cache embeddings.")] = True
    max_entries: Annotated[Positive, setting("The maximum number of cached texts.")] = 50_000


class Remote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoint of a remote provider."""

    base_url: Annotated[str | None, setting("The endpoint's address; unset, the provider's own.")] = None
    api_key: Annotated[
        Secret | None, setting("The endpoint's key; unset, the provider's usual environment variable.")
    ] = None


class Local(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on this machine."""

    model_path: Annotated[str | None, setting("The model's file or folder.")] = None


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When notes are checked for changes."""

    watch: Annotated[bool, setting("Index changed files while running.")] = True
    watch_debounce_ms: Annotated[Count, setting("How long a file must be unchanged before it is indexed.")] = 1_500
    on_session_start: Annotated[bool, setting("Check for changes at the start of a session.")] = True
    on_search: Annotated[bool, setting("Check for changes before a search.")] = True


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `memory_search` tool over the notes of a workspace."""

    enabled: Annotated[
        bool,
        setting(
            "Offer the search tool.",
            openclaw=(
                "agents.defaults.memorySearch.enabled",
                "memory.search.enabled",
                "plugins.entries.memory-core.enabled",
            ),
        ),
    ] = True
    provider: Annotated[Provider, setting("What embeds notes; `auto` follows `embedding.provider`.")] = "auto"
    model: Annotated[str | None, setting("The provider's model; unset, the default one.")] = None
    fallback: Annotated[Provider, setting("What embeds when the provider fails; `none` searches by words.")] = "none"
    output_dimensionality: Annotated[Positive | None, setting("The length of a vector; unset, the model's own.")] = None
    sources: Annotated[tuple[Literal["memory", "sessions"], ...], setting("The sources that are searched.")] = (
        "memory",
    )
    extra_paths: Annotated[tuple[str, ...], setting("Further Markdown files and folders.")] = ()
    experimental: Experimental = Experimental()
    chunking: Chunking = Chunking()
    query: Query = Query()
    cache: Cache = Cache()
    sync: Watch = Watch()
    remote: Remote = Remote()
    local: Local = Local()
