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

__all__ = ["WITHOUT_EFFECT", "openclaw_file"]

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
        "plugins.entries.memory-core",
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
    "plugins.entries": "active-memory memory-wiki",
    "plugins.entries.memory-lancedb.config": "customTriggers dreaming storageOptions",
    "session": "agentToAgent dmScope identityLinks mainKey maintenance maxRecentTurns parentForkMaxTokens "
    "resetByChannel scope sendPolicy store threadBindings transcriptRetentionDays typingIntervalSeconds "
    "typingMode",
    "session.resetByType": "group thread",
}
"""Names that OpenClaw itself knows, by the level they are on."""

_TWINS: Final = {
    "memory.search": "agents.defaults.memorySearch",
    "plugins.entries.memory-context.config": "agents.defaults.memoryContext",
}
"""Levels that hold the same names as another."""


_AGENT_ONLY: Final = frozenset({"id", "default", "name", "agentDir", "identity", "groupChat", "tools", "runtime"})
"""Names in an entry of `agents.list` that are no overrides of `agents.defaults`."""

_CACHE_TTL: Final = "agents.defaults.models.*.params.cacheControlTtl"

WITHOUT_EFFECT: Final = {
    "agents.defaults.heartbeat": "`holdfast chat` runs a turn only when the user says something",
    "agents.defaults.blockStreamingBreak": "a block ends at a blank line",
    "agents.defaults.blockStreamingChunk": "a block ends at a blank line",
    "agents.defaults.blockStreamingCoalesce": "a block ends at a blank line",
    "session.resetByChannel": "`holdfast chat` has no channels; set `session.reset`",
    "session.resetByType.group": "`holdfast chat` is a direct chat; set `session.reset`",
    "session.resetByType.thread": "`holdfast chat` is a direct chat; set `session.reset`",
    _CACHE_TTL: "requests to Anthropic are cached for five minutes; `contextPruning.ttl` sets when to prune",
}
"""Settings of the file that a user may expect to work here, and why they do not."""


def openclaw_file(
    data: bytes,
    *,
    source: str,
    environ: Mapping[str, str],
    allowed: Collection[str] | None = None,
    agent: str | None = None,
) -> tuple[Layer, ...]:
    """Read an `openclaw.json`, in JSON5: what it says of one agent, where it is named, and of all.

    Of the settings in it only those that are allowed count, where there is a list.
    """
    whole = _parsed(text_of(data, source=source), source=source)
    agents = whole.get("agents")
    listed = agents.get("list") if isinstance(agents, Mapping) else None
    own = next((entry for entry in listed if _is_agent(entry, agent)), None) if isinstance(listed, list) else None
    if own is None or not isinstance(agents, Mapping):
        return (_layer(whole, source=source, environ=environ, allowed=allowed),)
    overrides = {name: value for name, value in own.items() if name not in _AGENT_ONLY}
    at = f"{source}, agents.list {agent!r}"
    of_all = {**whole, "agents": {name: value for name, value in agents.items() if name != "list"}}
    return (
        _layer({"agents": {"defaults": overrides}}, source=at, environ=environ, allowed=allowed),
        _layer(of_all, source=source, environ=environ, allowed=allowed),
    )


def _is_agent(entry: object, agent: str | None) -> bool:
    name = entry.get("id") if isinstance(entry, Mapping) else None
    return agent is not None and isinstance(name, str) and name.strip().lower() == agent.strip().lower()


def _layer(
    data: Mapping[str, Any], *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None
) -> Layer:
    tree = openclaw_tree()
    found: dict[str, object] = {}
    ignored: dict[str, str] = {}
    refused: list[str] = []
    for name, value in nodes(data, tree):
        if name in tree.leaves and (allowed is None or tree.leaves[name].key in allowed):
            found[name] = value
        elif name in tree.leaves:
            refused.append(tree.leaves[name].key)
        elif _is_foreign(name, tree):
            ignored[name] = source
        else:
            raise unknown(name, value, tree, source=source)
        if name == "agents.defaults.models" and '"cacheControlTtl"' in json.dumps(value):
            ignored[_CACHE_TTL] = source
    _honour_slot(found, data, ignored, source)
    for name in [name for name in found if tree.leaves[name].secret]:
        found[name], missing = _secret(found[name], environ)
        if missing:
            del found[name]
            ignored[name] = f"{source}: {missing}"
    values = {name: _whole(value) for name, value in found.items()}
    known = layer(values, names=lambda row: row.openclaw, source=source, environ=environ, ignored=ignored)
    return replace(known, refused=tuple(refused))


def _honour_slot(found: dict[str, object], data: Mapping[str, Any], ignored: dict[str, str], source: str) -> None:
    """Pass over the entries of memory plugins that are not in the slot; one in the slot without an entry is off."""
    slot = found.get("plugins.slots.memory")
    if slot is None:
        return
    for plugin in ("memory-context", "memory-lancedb"):
        place = f"plugins.entries.{plugin}."
        for name in [name for name in found if slot != plugin and name.startswith(place)]:
            del found[name]
            ignored[name] = f"{source}: plugins.slots.memory is {slot!r}"
    if slot == "memory-context" and "memory-context" not in (data["plugins"].get("entries") or {}):
        found["plugins.entries.memory-context.enabled"] = False


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
