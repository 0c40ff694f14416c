"""Settings of the window: how much may be in it, what is cut, what is summarised."""

from datetime import timedelta
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from holdfast.settings.values import Bytes, Chars, Count, Duration, Positive, Share, setting

__all__ = [
    "DEFAULT_CONTEXT_TOKENS",
    "Agent",
    "Compaction",
    "HardClear",
    "MemoryFlush",
    "Pruning",
    "QualityGuard",
    "SoftTrim",
    "Tokens",
    "ToolFilter",
    "Trim",
]

DEFAULT_CONTEXT_TOKENS: Final = 200_000
"""The window of a model that nobody has said anything about."""


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
    prompt: Annotated[str | None, setting("The user prompt of the turn; unset, the one that comes with Holdfast.")] = (
        None
    )
    system_prompt: Annotated[
        str | None, setting("What is added to the system prompt; unset, the text that comes with Holdfast.")
    ] = None
    model: Annotated[str | None, setting("The model that runs the turn; unset, the agent's.")] = None
    force_flush_transcript_bytes: Annotated[
        Bytes, setting("Also run the turn when the transcript has grown to this size; 0 never does.")
    ] = 0
    max_failures: Annotated[
        Positive, setting("Failed turns in a row after which this cycle goes on without one.", openclaw=None)
    ] = 3


class QualityGuard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The audit of a summary before it may stand for history."""

    enabled: Annotated[bool, setting("Check that a summary holds the last request, identifiers and failures.")] = True
    max_retries: Annotated[
        Annotated[int, Meta(ge=0, le=3)],
        setting("How often a summary that misses something is asked for again before the missing is appended by rule."),
    ] = 1


class Compaction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how older history becomes a summary."""

    enabled: Annotated[bool, setting("Compact near the limit without being asked; `/compact` works either way.")] = True
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
        setting("The least that `reserve_tokens` counts as, below a quarter of the window; 0 switches the floor off."),
    ] = 20_000
    keep_recent_tokens: Annotated[Positive, setting("How much of the newest history stays as it is.")] = 20_000
    max_history_share: Annotated[
        Annotated[float, Meta(ge=0.1, le=0.9)],
        setting("The largest share of the window that kept history may take before its oldest chunks go as well."),
    ] = 0.5
    custom_instructions: Annotated[str | None, setting("What every summary should look out for.")] = None
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
    timeout_seconds: Annotated[Positive, setting("The deadline of one compaction.")] = 180
    quality_guard: QualityGuard = QualityGuard()
    memory_flush: MemoryFlush = MemoryFlush()


class SoftTrim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first stage: head and tail of a long tool result are kept."""

    max_chars: Annotated[Chars, setting("Tool results up to this length are left alone.")] = 4_000
    head_chars: Annotated[Chars, setting("How much of the beginning is kept.")] = 1_500
    tail_chars: Annotated[Chars, setting("How much of the end is kept.")] = 1_500


class HardClear(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The second stage: the oldest tool results give way to a placeholder."""

    enabled: Annotated[bool, setting("Go on to the second stage at all.")] = True
    placeholder: Annotated[str, setting("The text that stands for a cleared result.")] = (
        "[Old tool result content cleared]"
    )


class ToolFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose results may be pruned. Names may hold `*`; what is denied stays denied."""

    allow: Annotated[tuple[str, ...], setting("Only results of these tools; empty means all.")] = ()
    deny: Annotated[tuple[str, ...], setting("Never results of these tools.")] = ()


class Pruning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old tool results shrink. Text of users and assistants is never touched."""

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
        Count, setting("Tool results since this many assistant messages are left alone.")
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
    """How whole messages leave a window that is nearly full."""

    enabled: Annotated[bool, setting("Trim by relevance before a compaction becomes necessary.")] = True
    protected_recent: Annotated[Count, setting("The newest user and assistant messages, which are never trimmed.")] = 6
    hysteresis: Annotated[
        Annotated[float, Meta(ge=0, le=0.9)],
        setting("How far below the limit a cut goes, as a share of the window, so that cuts are rare."),
    ] = 0.15
    min_query_chars: Annotated[
        Count, setting("A shorter question says nothing about relevance; then the oldest messages go first.")
    ] = 3
