"""Settings of the search over workspace notes: `MEMORY.md`, `memory/**/*.md`, further paths, past sessions."""

from typing import Annotated, Literal

from msgspec import Struct

from holdfast.settings.memory import Mmr
from holdfast.settings.values import Count, Positive, Provider, Secret, Share, setting

__all__ = [
    "Cache",
    "Chunking",
    "Experimental",
    "Hybrid",
    "Local",
    "MemorySearch",
    "Query",
    "Remote",
    "TemporalDecay",
    "Watch",
]


class Experimental(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may still change."""

    session_memory: Annotated[bool, setting('Index past sessions as well, if `sources` holds "sessions".')] = False


class Chunking(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How notes are cut into passages."""

    tokens: Annotated[Positive, setting("The size of a passage.")] = 400
    overlap: Annotated[Count, setting("How much of a passage the next one repeats; less than its size.")] = 80

    def __post_init__(self) -> None:
        if self.overlap >= self.tokens:
            raise ValueError("overlap must be smaller than tokens")


class TemporalDecay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Newer notes first."""

    enabled: Annotated[bool, setting("Let dated notes lose score with age.")] = False
    half_life_days: Annotated[Positive, setting("Days in which a score halves.")] = 30


class Hybrid(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words and vectors together."""

    enabled: Annotated[bool, setting("Search by words and by vectors, not by vectors alone.")] = True
    vector_weight: Annotated[Share, setting("The weight of vectors.")] = 0.7
    text_weight: Annotated[Share, setting("The weight of words.")] = 0.3
    candidate_multiplier: Annotated[Positive, setting("Candidates looked at per result.")] = 4
    mmr: Mmr = Mmr()
    temporal_decay: TemporalDecay = TemporalDecay()

    def __post_init__(self) -> None:
        if self.vector_weight + self.text_weight <= 0:
            raise ValueError("vector_weight and text_weight must not both be 0")


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a search returns."""

    max_results: Annotated[Positive, setting("The most hits.")] = 6
    min_score: Annotated[Share, setting("The least score of a hit.")] = 0.35
    hybrid: Hybrid = Hybrid()


class Cache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Vectors of text that has not changed."""

    enabled: Annotated[bool, setting("Embed nothing twice.")] = True
    max_entries: Annotated[Positive, setting("The most texts remembered.")] = 50_000


class Remote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The endpoint of a remote provider."""

    base_url: Annotated[str | None, setting("Its address; unset, the provider's own.")] = None
    api_key: Annotated[Secret | None, setting("Its key; unset, the provider's usual environment variable.")] = None


class Local(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on this machine."""

    model_path: Annotated[str | None, setting("Its file or folder.")] = None


class Watch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When notes are looked at again."""

    watch: Annotated[bool, setting("Notice changed files while running.")] = True
    watch_debounce_ms: Annotated[Count, setting("How long a file must be quiet before it is indexed.")] = 1_500
    on_session_start: Annotated[bool, setting("Look at the start of a session.")] = True
    on_search: Annotated[bool, setting("Look before a search.")] = True


class MemorySearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `memory_search` tool over the notes of a workspace."""

    enabled: Annotated[
        bool,
        setting(
            "Offer the tool.",
            openclaw=(
                "agents.defaults.memorySearch.enabled",
                "memory.search.enabled",
                "plugins.entries.memory-core.enabled",
            ),
        ),
    ] = True
    provider: Annotated[Provider, setting("What embeds notes; `auto` follows `embedding.provider`.")] = "auto"
    model: Annotated[str | None, setting("The provider's model; unset, its usual one.")] = None
    fallback: Annotated[Provider, setting("What embeds when the provider fails; `none` searches by words.")] = "none"
    output_dimensionality: Annotated[Positive | None, setting("The length of a vector; unset, the model's own.")] = None
    sources: Annotated[tuple[Literal["memory", "sessions"], ...], setting("What is searched.")] = ("memory",)
    extra_paths: Annotated[tuple[str, ...], setting("Further Markdown files and folders.")] = ()
    experimental: Experimental = Experimental()
    chunking: Chunking = Chunking()
    query: Query = Query()
    cache: Cache = Cache()
    sync: Watch = Watch()
    remote: Remote = Remote()
    local: Local = Local()
