"""Settings that an existing `openclaw.json` holds, and the rest of that file, which is left to its owner.

Some levels of the file are shared: there, a name that is not ours is passed over and reported, unless it looks
like a slip of one of ours. Inside our own sections an unknown name is an error, except for those listed here.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import SettingsError
from holdfast.settings.sources import Layer, layer, nodes, text_of, unknown
from holdfast.settings.table import Tree, openclaw_tree
from holdfast.settings.values import Secret

__all__ = ["openclaw_file"]

_SHARED: Final = frozenset(
    {
        "",
        "agents",
        "agents.defaults",
        "agents.defaults.sandbox",
        "hooks",
        "hooks.internal",
        "hooks.internal.entries",
        "hooks.internal.entries.session-memory",
        "plugins",
        "plugins.entries",
        "plugins.entries.memory-context",
        "plugins.entries.memory-lancedb",
        "plugins.slots",
        "session",
    }
)

_SECTIONS: Final = frozenset({"compaction", "contextPruning", "memoryContext", "memoryFlush", "memorySearch"})
"""Names that are ours wherever they stand: in the wrong place they are a mistake."""

_FOREIGN: Final = {
    "": "$include $schema acp approvals audio auth bindings broadcast browser canvasHost channels cli commands cron "
    "diagnostics discovery env gateway logging mcp media messages meta models multiAgent nodeHost proxy secrets "
    "skills surfaces talk tools ui update web wizard",
    "agents": "entries list ownership",
    "agents.defaults": "additionalSystemPrompt blockStreamingBreak blockStreamingChunk blockStreamingCoalesce "
    "bootstrapPromptTruncationWarning cliBackends contextInjection contextLimits cwd elevatedDefault embeddedAgent "
    "embeddedPi envelopeElapsed envelopeTimestamp envelopeTimezone experimental fastModeDefault heartbeat humanDelay "
    "imageGenerationModel imageMaxDimensionPx imageModel imageQuality maxConcurrent mediaMaxMb mediaModels modelPolicy "
    "models params pdfMaxBytesMb pdfMaxMb pdfMaxPages pdfModel reasoningDefault repoRoot sessionStore silentReply "
    "skills skipOptionalBootstrapFiles startupContext subagents thinkingDefault timeFormat timeoutSeconds "
    "toolProgressDetail typingIntervalSeconds typingMode utilityModel verboseDefault voiceModel",
    "agents.defaults.compaction": "maxActiveTranscriptBytes midTurnPrecheck notifyUser postCompactionSections "
    "postIndexSync provider thinkingLevel truncateAfterCompaction",
    "agents.defaults.memoryContext": "budget indexType vectorPersist",
    "agents.defaults.memorySearch": "documentInputType inputType multimodal qmd queryInputType "
    "rememberAcrossConversations store",
    "agents.defaults.memorySearch.local": "modelCacheDir",
    "agents.defaults.memorySearch.remote": "batch headers",
    "agents.defaults.memorySearch.sync": "embeddingBatchTimeoutSeconds intervalMinutes sessions",
    "agents.defaults.model": "timeoutMs",
    "memory.qmd": "mcporter scope searchTool",
    "memory.qmd.update": "commandTimeoutMs embedTimeoutMs updateTimeoutMs waitForBootSync",
    "plugins": "allow deny enabled installs load",
    "plugins.entries": "active-memory memory-core memory-wiki",
    "plugins.entries.memory-lancedb.config": "customTriggers dreaming storageOptions",
    "session": "agentToAgent dmScope identityLinks mainKey maintenance maxRecentTurns parentForkMaxTokens "
    "resetByChannel resetByType scope sendPolicy store threadBindings transcriptRetentionDays typingIntervalSeconds "
    "typingMode",
}
"""Names that OpenClaw itself knows, by the level they are on."""

_TWINS: Final = {
    "memory.search": "agents.defaults.memorySearch",
    "plugins.entries.memory-context.config": "agents.defaults.memoryContext",
}
"""Levels that hold the same names as another."""


def openclaw_file(
    data: bytes, *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None = None
) -> Layer:
    """Read an `openclaw.json`, in JSON5; of the settings in it only those that are allowed, where there is a list."""
    tree = openclaw_tree()
    found: dict[str, object] = {}
    ignored: dict[str, str] = {}
    refused: list[str] = []
    for name, value in nodes(_parsed(text_of(data, source=source), source=source), tree):
        if name in tree.leaves and (allowed is None or tree.leaves[name].key in allowed):
            found[name] = value
        elif name in tree.leaves:
            refused.append(tree.leaves[name].key)
        elif _is_foreign(name, tree):
            ignored[name] = source
        else:
            raise unknown(name, value, tree, source=source)
    for name in [name for name in found if tree.leaves[name].secret]:
        found[name], missing = _secret(found[name], environ)
        if missing:
            del found[name]
            ignored[name] = f"{source}: {missing}"
    values = {name: _whole(value) for name, value in found.items()}
    known = layer(values, names=lambda row: row.openclaw, source=source, environ=environ, ignored=ignored)
    return replace(known, refused=tuple(refused))


def _is_foreign(path: str, tree: Tree) -> bool:
    if path in tree.branches:
        return False
    level, _, name = path.rpartition(".")
    for twin, original in _TWINS.items():
        if f"{level}.".startswith(f"{twin}."):
            level = original + level.removeprefix(twin)
    if name in _FOREIGN.get(level, "").split():
        return True
    return level in _SHARED and name not in _SECTIONS and not tree.resembling(path)


def _secret(value: object, environ: Mapping[str, str]) -> tuple[object, str]:
    """A key of another program may rest where we cannot see it. That is no reason to refuse the whole file."""
    match value:
        case {"source": "env", "id": str(variable)}:
            text = f"${{{variable}}}"
        case {"source": str(kind)}:
            return value, f"kept in {kind!r}, which only OpenClaw can read"
        case str(text):
            pass
        case _:
            return value, ""
    try:
        return Secret.expand(text, environ), ""
    except KeyError as error:
        return value, f"the environment variable {error.args[0]} is not set"


def _whole(value: object) -> object:
    """JavaScript knows one kind of number: 2e4 and 20000.0 are whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parsed(text: str, *, source: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)  # what programs write, read a thousand times faster
    except (ValueError, RecursionError):
        data = _json5(text, source=source)
    if not isinstance(data, dict):
        raise SettingsError("expected an object with settings", source=source)
    return data


def _json5(text: str, *, source: str) -> Any:
    import json5  # noqa: PLC0415 - only for files that people write

    try:
        return json5.loads(text)
    except ValueError as error:
        message = str(error).removeprefix("<string>:")
        line = message.split(" ", 1)[0]
        place = f"line {line} " if line.isdigit() else ""
        reason = message.removeprefix(f"{line} ") if place else message
        raise SettingsError(f"{place}is not valid JSON5: {reason}", source=source) from error
    except RecursionError as error:
        raise SettingsError("not valid JSON5: nested too deeply", source=source) from error
