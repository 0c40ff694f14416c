"""Every path in `openclaw.json` that the documents of OpenClaw name: path, a value, our setting, and its default."""

from datetime import timedelta

CONTEXT = "agents.defaults.memoryContext."
PLUGIN = "plugins.entries.memory-context.config."
LANCE = "plugins.entries.memory-lancedb."
FLUSH = "agents.defaults.compaction.memoryFlush."

DOCUMENTED: list[tuple[str, object, str, object]] = [
    # the reference of all paths
    ("agents.defaults.compaction.mode", "safeguard", "compaction.mode", "default"),
    ("agents.defaults.compaction.reserveTokensFloor", 24000, "compaction.reserve_tokens_floor", None),
    ("agents.defaults.compaction.memoryFlush.enabled", False, "compaction.memory_flush.enabled", True),
    (FLUSH + "softThresholdTokens", 8000, "compaction.memory_flush.soft_threshold_tokens", None),
    (FLUSH + "systemPrompt", "Store.", "compaction.memory_flush.system_prompt", None),
    (FLUSH + "prompt", "Write.", "compaction.memory_flush.prompt", None),
    ("agents.defaults.contextPruning.mode", "cache-ttl", "pruning.mode", None),
    ("agents.defaults.contextPruning.ttl", "1h", "pruning.ttl", timedelta(minutes=5)),
    ("agents.defaults.contextPruning.keepLastAssistants", 5, "pruning.keep_last_assistants", 3),
    ("agents.defaults.contextPruning.softTrimRatio", 0.25, "pruning.soft_trim_ratio", 0.3),
    ("agents.defaults.contextPruning.hardClearRatio", 0.45, "pruning.hard_clear_ratio", 0.5),
    ("agents.defaults.contextPruning.minPrunableToolChars", 30000, "pruning.min_prunable_tool_chars", 50_000),
    ("agents.defaults.contextPruning.softTrim.maxChars", 6000, "pruning.soft_trim.max_chars", 4_000),
    ("agents.defaults.contextPruning.softTrim.headChars", 2500, "pruning.soft_trim.head_chars", 1_500),
    ("agents.defaults.contextPruning.softTrim.tailChars", 2500, "pruning.soft_trim.tail_chars", 1_500),
    ("agents.defaults.contextPruning.hardClear.enabled", False, "pruning.hard_clear.enabled", True),
    (
        "agents.defaults.contextPruning.hardClear.placeholder",
        "[Older tool output cleared — re-read file if needed]",
        "pruning.hard_clear.placeholder",
        "[Old tool result content cleared]",
    ),
    ("agents.defaults.contextPruning.tools.allow", ["exec", "read"], "pruning.tools.allow", ()),
    ("agents.defaults.contextPruning.tools.deny", ["*image*"], "pruning.tools.deny", ()),
    ("agents.defaults.contextTokens", 200000, "model.context_tokens", None),
    ("agents.defaults.bootstrapMaxChars", 10000, "agent.workspace.bootstrap_max_chars", 20_000),
    ("agents.defaults.memorySearch.provider", "voyage", "agent.memory_search.provider", "auto"),
    ("agents.defaults.memorySearch.model", "text-embedding-3-small", "agent.memory_search.model", None),
    ("agents.defaults.memorySearch.extraPaths", ["~/docs"], "agent.memory_search.extra_paths", ()),
    (
        "agents.defaults.memorySearch.experimental.sessionMemory",
        True,
        "agent.memory_search.experimental.session_memory",
        False,
    ),
    ("agents.defaults.memorySearch.sources", ["memory", "sessions"], "agent.memory_search.sources", ("memory",)),
    ("agents.defaults.memorySearch.query.hybrid.enabled", False, "agent.memory_search.query.hybrid.enabled", True),
    (
        "agents.defaults.memorySearch.query.hybrid.vectorWeight",
        0.6,
        "agent.memory_search.query.hybrid.vector_weight",
        0.7,
    ),
    ("agents.defaults.memorySearch.query.hybrid.textWeight", 0.4, "agent.memory_search.query.hybrid.text_weight", 0.3),
    ("agents.defaults.memorySearch.cache.enabled", False, "agent.memory_search.cache.enabled", True),
    ("agents.defaults.memorySearch.cache.maxEntries", 1, "agent.memory_search.cache.max_entries", 50_000),
    ("memory.backend", "qmd", "agent.memory_search.backend", "builtin"),
    ("memory.citations", "on", "agent.memory_search.citations", "auto"),
    ("memory.qmd.command", "/opt/qmd", "agent.memory_search.qmd.command", "qmd"),
    ("memory.qmd.includeDefaultMemory", False, "agent.memory_search.qmd.include_default_memory", True),
    ("memory.qmd.sessions.enabled", True, "agent.memory_search.qmd.sessions.enabled", False),
    ("memory.qmd.sessions.retentionDays", 30, "agent.memory_search.qmd.sessions.retention_days", None),
    ("memory.qmd.update.interval", "10m", "agent.memory_search.qmd.update.interval", timedelta(minutes=5)),
    ("memory.qmd.limits.maxResults", 9, "agent.memory_search.qmd.limits.max_results", 6),
    ("memory.qmd.limits.timeoutMs", 9000, "agent.memory_search.qmd.limits.timeout_ms", 4_000),
    ("session.reset.mode", "idle", "agent.session.reset.mode", None),
    ("session.reset.atHour", 5, "agent.session.reset.at_hour", None),
    ("session.reset.idleMinutes", 480, "agent.session.reset.idle_minutes", None),
    # the memory-context section; the defaults that differ: choosing Holdfast is the opting in (`enabled`), and its
    # index need not be bounded (`maxSegments`, `evictionDays`)
    (CONTEXT + "enabled", False, "recall.enabled", True),
    (CONTEXT + "hardCapTokens", 2000, "recall.hard_cap_tokens", 4_000),
    (CONTEXT + "embeddingModel", "hash", "embedding.provider", "auto"),
    (CONTEXT + "redaction", False, "archive.redaction", True),
    (CONTEXT + "knowledgeExtraction", False, "knowledge.extraction", True),
    (CONTEXT + "autoRecallMinScore", 0.6, "recall.min_score", 0.7),
    (CONTEXT + "maxSegments", 100, "archive.max_segments", None),
    (CONTEXT + "crossSession", True, "archive.cross_session", None),
    (CONTEXT + "evictionDays", 0, "archive.eviction_days", None),
    # the compaction section
    ("agents.defaults.compaction.maxHistoryShare", 0.4, "compaction.max_history_share", 0.5),
    ("agents.defaults.compaction.enabled", False, "compaction.enabled", True),
    ("agents.defaults.compaction.reserveTokens", 1, "compaction.reserve_tokens", None),
    ("agents.defaults.compaction.keepRecentTokens", 1, "compaction.keep_recent_tokens", 20_000),
    # named in running text
    (FLUSH + "softThreshold", 0.7, "compaction.memory_flush.soft_threshold", None),
    ("agents.defaults.contextPruning", "adaptive", "pruning.mode", None),
    (
        "agents.defaults.memorySearch.query.hybrid.candidateMultiplier",
        8,
        "agent.memory_search.query.hybrid.candidate_multiplier",
        4,
    ),
    (LANCE + "enabled", False, "agent.long_term.enabled", True),
    (LANCE + "config.embedding.model", "text-embedding-3-small", "agent.long_term.embedding.model", None),
    (LANCE + "config.autoCapture", True, "agent.long_term.auto_capture", False),
    (LANCE + "config.autoRecall", False, "agent.long_term.auto_recall", True),
    ("agents.defaults.skipBootstrap", True, "agent.workspace.skip_bootstrap", False),
    ("agents.defaults.blockStreamingDefault", "on", "agent.block_streaming", "off"),
    ("agents.defaults.sandbox.workspaceAccess", "ro", "agent.workspace.access", "rw"),
]
