"""The schema: one frozen struct with a section for each part of the package."""

from datetime import timedelta
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from holdfast.settings.memory import Archive, Embedding, Knowledge, LongTerm, Memory, MemorySearch, Recall, Search
from holdfast.settings.values import Bytes, Chars, Count, Duration, Positive, Share, setting

__all__ = [
    "DEFAULT_CONTEXT_TOKENS",
    "Agent",
    "Compaction",
    "HardClear",
    "HookSettings",
    "MemoryFlush",
    "Pruning",
    "QualityGuard",
    "Session",
    "SessionReset",
    "Settings",
    "Slots",
    "SoftTrim",
    "Tokens",
    "ToolFilter",
    "Trim",
    "Workspace",
]


class Workspace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's folder, and the files in it that are added to every prompt."""

    path: Annotated[
        str | None, setting("The folder; unset, the current one.", openclaw="agents.defaults.workspace")
    ] = None
    access: Annotated[
        Literal["rw", "ro", "none"],
        setting(
            "The agent's access to the workspace; without write access there is no memory flush.",
            openclaw="agents.defaults.sandbox.workspaceAccess",
        ),
    ] = "rw"
    bootstrap_max_chars: Annotated[
        Chars,
        setting(
            "The maximum length of one file; of a longer one, head and tail are used.",
            openclaw="agents.defaults.bootstrapMaxChars",
        ),
    ] = 20_000
    bootstrap_total_max_chars: Annotated[
        Chars, setting("The maximum length of all files together.", openclaw="agents.defaults.bootstrapTotalMaxChars")
    ] = 60_000
    skip_bootstrap: Annotated[
        bool,
        setting(
            "Do not create missing files; existing ones are read.",
            openclaw="agents.defaults.skipBootstrap",
        ),
    ] = False


def _in_reset(name: str) -> tuple[str, ...]:
    """Return the places of a reset setting: those of direct chats, such as the terminal, before that of all chats."""
    return tuple(f"session.{place}.{name}" for place in ("resetByType.direct", "resetByType.dm", "reset"))


class SessionReset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a new conversation starts automatically."""

    mode: Annotated[
        Literal["daily", "idle", "never"],
        setting("Start a new conversation every day, after a pause, or only on request.", openclaw=_in_reset("mode")),
    ] = "daily"
    at_hour: Annotated[
        Annotated[int, Meta(ge=0, le=23)],
        setting("With `daily`: the hour, local time.", openclaw=_in_reset("atHour")),
    ] = 4
    idle_minutes: Annotated[
        Positive | None,
        setting(
            "A pause after which the next message starts a new conversation; with `daily`, whichever comes first.",
            openclaw=(*_in_reset("idleMinutes"), "session.idleMinutes"),
        ),
    ] = None


class Session(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a conversation starts and ends."""

    reset: SessionReset = SessionReset()
    reset_triggers: Annotated[
        tuple[str, ...], setting("Further lines that start a new conversation, besides `/new` and `/reset`.")
    ] = ("/new", "/reset")
    memory_file: Annotated[
        bool,
        setting(
            "Write a note with the last messages to `memory/` when a conversation ends.",
            openclaw="hooks.internal.entries.session-memory.enabled",
        ),
    ] = False


class Slots(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which plugin is in use for a task that several can do."""

    memory: Annotated[
        str,
        setting(
            "The memory tools that the agent gets: `memory-core` searches notes, `memory-lancedb` keeps memories, "
            "`memory-context` recalls alone, names of other plugins offer nothing, `none` turns recall off too."
        ),
    ] = "memory-core"
    context_engine: Annotated[str, setting("The context engine, for hosts that ask for it.")] = "legacy"


class HookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hooks that `holdfast chat` runs around a compaction: a function as `module:name`, or a command."""

    before_compaction: Annotated[
        tuple[str, ...],
        setting("Commands to run before a compaction, in parallel to it; each reads the event as JSON."),
    ] = ()
    after_compaction: Annotated[tuple[str, ...], setting("Commands to run after a compaction.")] = ()
    summary: Annotated[
        str | None,
        setting(
            "Asked for the summary; a command prints JSON with `summary` and `details`, or `cancel`, or nothing to "
            "leave it to the model."
        ),
    ] = None
    timeout_seconds: Annotated[Positive, setting("The timeout of one command before or after a compaction.")] = 60


DEFAULT_CONTEXT_TOKENS: Final = 200_000
"""The context window that is assumed for an unknown model."""


class Agent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent and its model."""

    model: Annotated[
        str | None,
        setting(
            "The model that answers, as `provider/name`.",
            openclaw=("agents.defaults.model.primary", "agents.defaults.model"),
        ),
    ] = None
    fallback_models: Annotated[
        tuple[str, ...],
        setting(
            "Models to try in order when the first one is not available.", openclaw="agents.defaults.model.fallbacks"
        ),
    ] = ()
    context_tokens: Annotated[
        Positive | None,
        setting(
            "The size of the context window; unset, the model's own where it is known, else 200,000.",
            openclaw="agents.defaults.contextTokens",
        ),
    ] = None
    block_streaming: Annotated[
        Literal["off", "on"],
        setting("Show replies block by block as they are written.", openclaw="agents.defaults.blockStreamingDefault"),
    ] = "off"
    timezone: Annotated[
        str | None,
        setting(
            "The time zone of dates in prompts and daily notes, such as `Europe/Berlin`; unset, the machine's.",
            openclaw="agents.defaults.userTimezone",
        ),
    ] = None


class Tokens(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tokens are counted."""

    counter: Annotated[
        Literal["estimate", "thirds", "tiktoken", "tokenizers"],
        setting(
            "What counts: the estimate, a third of a token per Latin character, or a real tokenizer where its package"
            " is installed."
        ),
    ] = "estimate"
    encoding: Annotated[
        str | None,
        setting(
            "The tokenizer's encoding or file; for the estimate `gpt` or `any`. Unset, the estimate follows the"
            " agent's model."
        ),
    ] = None
    margin: Annotated[
        Share,
        setting(
            "How much larger than estimated a request may be until the provider has reported usage in the session."
        ),
    ] = 0.05


class MemoryFlush(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The silent turn before a compaction in which the agent writes down what must last."""

    enabled: Annotated[bool, setting("Run the silent turn.")] = True
    soft_threshold_tokens: Annotated[
        Count,
        setting(
            "How many tokens before the compaction threshold the turn runs.",
            rival="compaction.memory_flush.soft_threshold",
        ),
    ] = 4_000
    soft_threshold: Annotated[
        Share | None,
        setting(
            "The same as a share of the window: 0.7 runs the turn when 70 % is in use.",
            rival="compaction.memory_flush.soft_threshold_tokens",
        ),
    ] = None
    prompt: Annotated[str | None, setting("The user prompt of the turn; unset, Holdfast's own.")] = None
    system_prompt: Annotated[str | None, setting("Text added to the system prompt; unset, Holdfast's own.")] = None
    model: Annotated[str | None, setting("The model that runs the turn; unset, the agent's.")] = None
    force_flush_transcript_bytes: Annotated[
        Bytes, setting("Also run the turn when the transcript has grown to this size; 0 never does.")
    ] = 0
    max_failures: Annotated[
        Positive, setting("Failed turns in a row after which the compaction continues without one.", openclaw=None)
    ] = 3


class QualityGuard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The check of a summary before it replaces history."""

    enabled: Annotated[bool, setting("Check that a summary holds the last request, identifiers and failures.")] = True
    max_retries: Annotated[
        Annotated[int, Meta(ge=0, le=3)],
        setting("How often an incomplete summary is requested again before the missing items are appended by rule."),
    ] = 1


class Compaction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how older history is summarised."""

    enabled: Annotated[bool, setting("Compact automatically near the limit; `/compact` works either way.")] = True
    auto: Annotated[
        Literal["off", "inline", "background"] | None,
        setting(
            "How an engine outside `holdfast chat` compacts and learns near the limit: in the call (`inline`) or in "
            "its thread (`background`); unset, `background` where it has a model, else `off`.",
            openclaw=None,
        ),
    ] = None
    mode: Annotated[
        Literal["default", "safeguard"],
        setting("`safeguard` summarises very long histories in adaptive chunks and merges the parts."),
    ] = "default"
    reserve_tokens: Annotated[Count, setting("Room kept free for the next reply; at most a quarter of the window.")] = (
        16_384
    )
    reserve_tokens_floor: Annotated[
        Count,
        setting("The minimum of `reserve_tokens`, up to a quarter of the window; 0 means no minimum."),
    ] = 20_000
    keep_recent_tokens: Annotated[Positive, setting("How many tokens of the newest history are kept unchanged.")] = (
        20_000
    )
    max_history_share: Annotated[
        Annotated[float, Meta(ge=0.1, le=0.9)],
        setting(
            "The maximum share of the window for kept history; above it, its oldest chunks are summarised as well."
        ),
    ] = 0.5
    custom_instructions: Annotated[str | None, setting("Further instructions for every summary.")] = None
    recent_turns_preserve: Annotated[
        Annotated[int, Meta(ge=0, le=12)], setting("User turns that a summary repeats word for word.")
    ] = 3
    identifier_policy: Annotated[
        Literal["strict", "off", "custom"],
        setting("Whether a summary must keep ids, hashes, paths, URLs and numbers exactly as they were written."),
    ] = "strict"
    identifier_instructions: Annotated[
        str | None, setting('What to keep exactly, with `identifier_policy = "custom"`.')
    ] = None
    model: Annotated[str | None, setting("The model that summarises; unset, the agent's.")] = None
    timeout_seconds: Annotated[Positive, setting("The timeout of one compaction.")] = 180
    quality_guard: QualityGuard = QualityGuard()
    memory_flush: MemoryFlush = MemoryFlush()


class SoftTrim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first stage: head and tail of a long tool result are kept."""

    max_chars: Annotated[Chars, setting("Tool results up to this length are not shortened.")] = 4_000
    head_chars: Annotated[Chars, setting("How much of the beginning is kept.")] = 1_500
    tail_chars: Annotated[Chars, setting("How much of the end is kept.")] = 1_500


class HardClear(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The second stage: the oldest tool results are replaced with a placeholder."""

    enabled: Annotated[bool, setting("Enable the second stage.")] = True
    placeholder: Annotated[str, setting("The text that replaces a cleared result.")] = (
        "[Old tool result content cleared]"
    )


class ToolFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools whose results may be pruned. Names may contain `*`; `deny` overrides `allow`."""

    allow: Annotated[tuple[str, ...], setting("Prune only results of these tools; empty means all.")] = ()
    deny: Annotated[tuple[str, ...], setting("Never prune results of these tools.")] = ()


class Pruning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old tool results are shortened. Text of users and assistants is never changed."""

    mode: Annotated[
        Literal["off", "cache-ttl", "adaptive", "aggressive"] | None,
        setting(
            "`cache-ttl` prunes once the provider's cache has gone cold, `adaptive` by how full the window is, "
            "`aggressive` everything that may be, images too; unset, `cache-ttl` for Anthropic's models, else `off`.",
            shorthand=True,
        ),
    ] = None
    ttl: Annotated[Duration, setting("With `cache-ttl`: how long the provider's cache stays warm.")] = timedelta(
        minutes=5
    )
    keep_last_assistants: Annotated[
        Count, setting("Tool results since this many assistant messages are not pruned.")
    ] = 3
    soft_trim_ratio: Annotated[Share, setting("Share of the window in use from which long results are shortened.")] = (
        0.3
    )
    hard_clear_ratio: Annotated[Share, setting("Share of the window in use from which old results are cleared.")] = 0.5
    min_prunable_tool_chars: Annotated[
        Chars, setting("Nothing is cleared while the prunable results are shorter than this together.")
    ] = 50_000
    soft_trim: SoftTrim = SoftTrim()
    hard_clear: HardClear = HardClear()
    tools: ToolFilter = ToolFilter()


class Trim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How whole messages are removed from a window that is nearly full."""

    enabled: Annotated[bool, setting("Trim by relevance before a compaction becomes necessary.")] = True
    protected_recent: Annotated[Count, setting("The newest user and assistant messages, which are never trimmed.")] = 6
    hysteresis: Annotated[
        Annotated[float, Meta(ge=0, le=0.9)],
        setting("How far below the limit a cut goes, as a share of the window, so that cuts are rare."),
    ] = 0.15
    min_query_chars: Annotated[
        Count, setting("With a shorter query, the oldest messages are trimmed first instead of the least relevant.")
    ] = 3


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. `load` reads them from their sources."""

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
