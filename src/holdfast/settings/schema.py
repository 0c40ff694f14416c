"""The schema of the engine: the kinds of values, and one frozen struct with a section for each part of the package.

`settings.json` has a row for each setting: what it does, when to change it, its places in an `openclaw.json`, whether
an untrusted project may set it. The settings of `holdfast chat` are in `holdfast_agent/settings.py`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast.errors import SettingsError

# --- values ----------------------------------------------------------------------

_MAX_DURATION: Final = timedelta(days=3660)
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STEP: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)\s*", re.ASCII)
_SIZES: Final = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}
_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([kmgt]?b)?", re.ASCII)
_SIZE_PATTERN: Final = r"^\s*[0-9]{1,9}(\.[0-9]{1,6})?\s*([kKmMgGtT]?[bB])?\s*$"
_DURATION_PATTERN: Final = r"^\s*([0-9]{1,9}(\.[0-9]{1,6})?\s*([mM][sS]|[smhdwSMHDW])?\s*)+$"
"""As `_SIZE` and `_STEP`, in the words of JSON Schema, for editors."""
_ENVIRONMENT: Final = re.compile(r"\$(\$?)\{(\w+)\}", re.ASCII)


class Secret:
    """A value that never appears in a `repr`, an error or an encoded form."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself, to pass it to a provider."""
        return self._value

    @classmethod
    def expand(cls, text: str, environ: Mapping[str, str]) -> "Secret":
        """Replace `${NAME}` with the variable and `$${NAME}` with `${NAME}`; a missing variable is a `KeyError`."""
        return cls(_ENVIRONMENT.sub(lambda match: match[0][1:] if match[1] else environ[match[2]], text))

    def spell(self) -> str:
        """Return the text that `expand` reads as this secret."""
        return _ENVIRONMENT.sub(r"$\g<0>", self._value)

    def __repr__(self) -> str:
        return "Secret('****')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def read_duration(value: object) -> timedelta:
    """Parse `5m`, `1h30m` or `90s`; a bare number is minutes. Whole milliseconds, ten years at most."""
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _parse_seconds(value.strip().lower())
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_DURATION.total_seconds():
        seconds = float(value) * 60
    else:
        raise ValueError("not a duration")
    if not 0 <= seconds <= _MAX_DURATION.total_seconds():
        raise ValueError("not between 0 and ten years")
    return timedelta(milliseconds=round(seconds * 1000))


def _parse_seconds(text: str) -> float:
    if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text, re.ASCII):
        return float(text) * 60
    steps = list(_STEP.finditer(text))
    if not steps or sum(len(step[0]) for step in steps) != len(text):
        raise ValueError("not a duration")
    return sum(float(step[1]) * _UNITS[step[2]] for step in steps)


def spell_duration(value: timedelta) -> str:
    """Format a duration as the shortest text that `read_duration` accepts: `1h30m`."""
    rest = round(value / timedelta(milliseconds=1))
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        size = round(_UNITS[unit] * 1000)
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def read_bytes(value: object) -> object:
    """Convert `2mb` to bytes; a number is returned unchanged."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip().lower())
    if match is None:
        raise ValueError("not a size")
    return round(float(match[1]) * _SIZES[match[2] or "b"])


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is parsed before the check, and its description if the type alone is not enough.

    Attributes:
        read: Parses a value.
        words: The accepted values, in words.
        schema: The accepted values, as JSON Schema.
        is_hidden: Whether a wrong value is not shown: somebody may have put a secret there.
    """

    read: Callable[[object], object]
    words: str = ""
    schema: Mapping[str, object] | None = None
    is_hidden: bool = False


Count: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Chars: TypeAlias = Count
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Bytes: TypeAlias = Annotated[
    int,
    Meta(
        ge=0,
        le=2**50,
        extra={
            "kind": Kind(
                read_bytes,
                'bytes, or a size such as "2mb"',
                {"type": ["integer", "string"], "minimum": 0, "pattern": _SIZE_PATTERN},
            )
        },
    ),
]
Duration: TypeAlias = Annotated[
    timedelta,
    Meta(
        extra={
            "kind": Kind(
                read_duration,
                'duration such as "5m", "1h30m" or "90s"; a bare number is minutes',
                {"type": ["number", "string"], "minimum": 0, "pattern": _DURATION_PATTERN},
            )
        }
    ),
]
_KEY_SOURCE_PATTERN: Final = r"^(keyring|env|command):\s*\S"
KeySource: TypeAlias = Annotated[
    str,
    Meta(
        pattern=_KEY_SOURCE_PATTERN,
        extra={
            "kind": Kind(
                lambda value: value,
                '"keyring:NAME", "env:NAME" or "command:..."',
                {"type": "string", "pattern": _KEY_SOURCE_PATTERN},
                is_hidden=True,
            )
        },
    ),
]
Price: TypeAlias = Annotated[str, Meta(pattern=r"^\S+( [0-9]{1,6}(\.[0-9]{1,6})?){2,4}\Z")]
Provider: TypeAlias = Annotated[
    Literal[
        "auto",
        "none",
        "hash",
        "local",
        "static",
        "onnx",
        "openai",
        "gemini",
        "voyage",
        "mistral",
        "ollama",
        "openai-compatible",
    ],
    # An openclaw.json has "transformer".
    Meta(extra={"kind": Kind(lambda value: "onnx" if value == "transformer" else value)}),
]


# --- sections ----------------------------------------------------------------------

DEFAULT_CONTEXT_TOKENS: Final = 200_000
"""The context window that is assumed for an unknown model."""
DEFAULT_RESERVE_TOKENS: Final = 16_384
"""Tokens that are kept free for the reply if `compaction.reserve_tokens` is unset and the window is large enough."""
DEFAULT_RESERVE_TOKENS_FLOOR: Final = 20_000
"""The minimum of the reserve if `compaction.reserve_tokens_floor` is unset and the window is large enough."""

DEFAULT_FLUSH_TOKENS: Final = 4_000
"""How far below the compaction threshold a memory flush runs if that is unset and the window is large enough."""


class Recall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of facts and passages that goes into a window."""

    enabled: bool = True
    automatic: bool = True
    eagerness: Literal["shy", "normal", "generous"] = "normal"
    hard_cap_tokens: Count = 4_000
    max_window_share: Share = 0.10
    fill: Literal["adaptive", "full"] = "adaptive"
    header: Literal["compact", "full"] = "compact"
    position: Literal["tail", "head"] = "tail"
    overview_tokens: Count = 400
    min_score: Share = 0.7
    knowledge_share: Share = 0.3
    max_facts: Count = 10
    query_messages: Positive = 3
    min_query_chars: Count = 3
    neighbours: Count = 2
    deadline_ms: Positive = 250


class Archive(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages are stored, and how many of them are searched. The archive itself is never reduced."""

    path: str | None = None
    encryption_key: KeySource | None = None
    redaction: bool = True
    cross_session: bool | None = None
    max_segments: Positive | None = None
    eviction_days: Annotated[int, Meta(ge=0, le=36_600)] | None = None
    timeout_seconds: Positive = 30


class Postgres(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory on a PostgreSQL server, which `archive.path` names by its address."""

    schema: Annotated[str, Meta(pattern=r"^[a-z_][a-z0-9_]{0,39}\Z")] = "holdfast"
    partitions: Annotated[int, Meta(ge=1, le=1024)] = 8
    connections: Annotated[int, Meta(ge=2, le=1000)] = 8
    timeout_seconds: Positive = 60
    wait_seconds: Positive = 5


class Knowledge(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The extraction of facts from conversations."""

    extraction: bool = True
    allow_delete: bool = False
    model: str | None = None
    host_model: str | None = None
    idle: Duration = timedelta(minutes=10)
    max_calls_per_hour: Count = 60
    max_tokens_per_day: Count = 1_000_000


class Embedding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that turns text into vectors."""

    provider: Provider = "auto"
    model: str | None = None
    dimension: Positive | None = None
    base_url: str | None = None
    api_key: Secret | None = None
    allow_remote: bool = False
    batch_size: Positive = 64
    timeout_seconds: Positive = 60
    cache_entries: Count = 1_000


class Mmr(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Re-ranking for diversity."""

    enabled: bool = False
    relevance_weight: Share = 0.7


class Search(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the archive is searched."""

    fusion: Literal["recipe", "weighted", "rrf"] = "recipe"
    vector_weight: Share = 0.7
    bm25_weight: Share = 0.3
    time_decay: Share = 0.995
    mmr: Mmr = Mmr()

    def __post_init__(self) -> None:
        if self.vector_weight + self.bm25_weight <= 0:
            raise ValueError("vector_weight and bm25_weight must not both be 0")


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model that answers, and the size of its context window."""

    name: str | None = None
    fallbacks: tuple[str, ...] = ()
    context_tokens: Positive | None = None
    prices: tuple[Price, ...] = ()


class Tokens(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tokens are counted."""

    counter: Literal["estimate", "thirds", "tiktoken", "tokenizers"] = "estimate"
    encoding: str | None = None
    margin: Share = 0.05

    @property
    def full_name(self) -> str:
        """The counter and its encoding, as `holdfast.tokens.counter` takes them."""
        return f"{self.counter}:{self.encoding}" if self.encoding else self.counter


class MemoryFlush(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The silent turn before a compaction in which the agent writes down what must last."""

    enabled: bool = True
    soft_threshold_tokens: Count | None = None
    soft_threshold: Share | None = None
    prompt: str | None = None
    system_prompt: str | None = None
    model: str | None = None
    force_flush_transcript_bytes: Bytes = 0
    max_failures: Positive = 3


class QualityGuard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The check of a summary before it replaces history."""

    enabled: bool = True
    max_retries: Annotated[int, Meta(ge=0, le=3)] = 1


class Compaction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how older history is summarised."""

    enabled: bool = True
    auto: Literal["off", "inline", "background"] | None = None
    mode: Literal["default", "safeguard"] = "default"
    # Unset is not the same as a default here: a value that the user chose is kept in a small window too.
    reserve_tokens: Count | None = None
    reserve_tokens_floor: Count | None = None
    keep_recent_tokens: Positive = 20_000
    max_history_share: Annotated[float, Meta(ge=0.1, le=0.9)] = 0.5
    custom_instructions: str | None = None
    recent_turns_preserve: Annotated[int, Meta(ge=0, le=12)] = 3
    identifier_policy: Literal["strict", "off", "custom"] = "strict"
    identifier_instructions: str | None = None
    model: str | None = None
    timeout_seconds: Positive = 180
    quality_guard: QualityGuard = QualityGuard()
    memory_flush: MemoryFlush = MemoryFlush()


class SoftTrim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first stage: head and tail of a long tool result are kept."""

    max_chars: Chars = 4_000
    head_chars: Chars = 1_500
    tail_chars: Chars = 1_500


class HardClear(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The second stage: the oldest tool results are replaced with a placeholder."""

    enabled: bool = True
    placeholder: str = "[Old tool result content cleared]"


class ToolFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools whose results may be pruned. Names may contain `*`; `deny` overrides `allow`."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Pruning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How old tool results are shortened. Text of users and assistants is never changed."""

    mode: Literal["off", "cache-ttl", "adaptive", "aggressive"] | None = None
    ttl: Duration = timedelta(minutes=5)
    keep_last_assistants: Count = 3
    soft_trim_ratio: Share = 0.3
    hard_clear_ratio: Share = 0.5
    min_prunable_tool_chars: Chars = 50_000
    soft_trim: SoftTrim = SoftTrim()
    hard_clear: HardClear = HardClear()
    tools: ToolFilter = ToolFilter()


class Trim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How whole messages are removed from a window that is nearly full."""

    enabled: bool = True
    protected_recent: Count = 6
    hysteresis: Annotated[float, Meta(ge=0, le=0.9)] = 0.25
    min_query_chars: Count = 3


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`holdfast serve`, `holdfast ui` and `holdfast mcp --http`: what clients may take, and who is who among them."""

    max_connections: Positive = 1_000
    identity: Literal["credential", "one-person"] = "credential"
    owner_keys: tuple[str, ...] = ()
    max_request_bytes: Bytes = 64 * 2**20
    max_decompressed_bytes: Bytes = 64 * 2**20
    max_reply_bytes: Bytes = 64 * 2**20
    max_open_bytes: Bytes = 2**30
    max_session_bytes: Bytes = 256 * 2**20
    metrics: bool = False
    log_format: Literal["text", "json"] = "text"


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the engine. `load` reads them from their sources."""

    model: ModelSettings = ModelSettings()
    tokens: Tokens = Tokens()
    compaction: Compaction = Compaction()
    pruning: Pruning = Pruning()
    trim: Trim = Trim()
    recall: Recall = Recall()
    archive: Archive = Archive()
    postgres: Postgres = Postgres()
    knowledge: Knowledge = Knowledge()
    embedding: Embedding = Embedding()
    search: Search = Search()
    server: ServerSettings = ServerSettings()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not isinstance(getattr(self, name), Struct):  # its value may be a secret, and is not shown
                raise SettingsError(f"use load({name}={{...}}).settings, which checks it", source="Settings", key=name)
