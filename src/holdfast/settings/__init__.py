"""One strict schema for everything that can be set, and the sources it is read from.

    loaded = load(files=default_files())
    loaded.settings.recall.hard_cap_tokens
    loaded.origins["recall.hard_cap_tokens"]

`docs/settings.md` lists every setting; `python -m holdfast.settings` writes it.
"""

from holdfast.settings.loading import Loaded, default_files, load
from holdfast.settings.schema import (
    DEFAULT_CONTEXT_TOKENS,
    Agent,
    Archive,
    Compaction,
    Embedding,
    HardClear,
    HookSettings,
    Knowledge,
    LongTerm,
    LongTermEmbedding,
    Memory,
    MemoryFlush,
    MemorySearch,
    Mmr,
    Pruning,
    Qmd,
    QmdPath,
    QualityGuard,
    Recall,
    Search,
    Session,
    SessionReset,
    Settings,
    Slots,
    SoftTrim,
    Tokens,
    ToolFilter,
    Trim,
    Workspace,
)
from holdfast.settings.table import Setting, as_dict, reference, settings_table
from holdfast.settings.values import Secret, read_duration, spell_duration

__all__ = [
    "DEFAULT_CONTEXT_TOKENS",
    "Agent",
    "Archive",
    "Compaction",
    "Embedding",
    "HardClear",
    "HookSettings",
    "Knowledge",
    "Loaded",
    "LongTerm",
    "LongTermEmbedding",
    "Memory",
    "MemoryFlush",
    "MemorySearch",
    "Mmr",
    "Pruning",
    "Qmd",
    "QmdPath",
    "QualityGuard",
    "Recall",
    "Search",
    "Secret",
    "Session",
    "SessionReset",
    "Setting",
    "Settings",
    "Slots",
    "SoftTrim",
    "Tokens",
    "ToolFilter",
    "Trim",
    "Workspace",
    "as_dict",
    "default_files",
    "load",
    "read_duration",
    "reference",
    "settings_table",
    "spell_duration",
]
