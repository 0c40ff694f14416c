"""Read settings from arguments, the environment, `holdfast.toml` and `openclaw.json`, each into a checked layer."""

import json
import re
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import SettingsError
from holdfast.files import open_regular
from holdfast.settings.table import Setting, Tree, find_similar_names, openclaw_tree, settings_table, toml_tree
from holdfast.settings.values import Secret

__all__ = ["WITHOUT_EFFECT", "Layer", "read_arguments", "read_environment", "read_file", "read_openclaw", "read_toml"]

_MAX_FILE_BYTES: Final = 512 * 1024
"""A settings file has a few kilobytes; anything near this is another kind of file."""

_MAX_KEY_PARTS: Final = 16
_DEEP_KEY: Final = re.compile(
    r"(?<![\w\"'.-])(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
    rf"(?:[ \t]*+\.[ \t]*+(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')){{{_MAX_KEY_PARTS}}}"
)
"""Matches a dotted key that is too long: the parser needs memory quadratic in its parts."""

_PREFIX: Final = "HOLDFAST_"
_NOT_SETTINGS: Final = frozenset({"HOLDFAST_HOME"})
_SIMILAR: Final = 0.9
_LIKELY: Final = 0.45
_MAX_NAME_CHARS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The settings of one source.

    Attributes:
        values: The checked values, by setting.
        origins: The place of each value, by setting.
        ignored: Names that were not used, with the place or reason.
        refused: Settings that this source may not set.
    """

    values: Mapping[str, object]
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: tuple[str, ...] = ()


def _make_layer(
    raw_values: Mapping[str, object],
    *,
    names: Callable[[Setting], tuple[str, ...]],
    source: str,
    environ: Mapping[str, str],
    ignored: Mapping[str, str],
    from_text: bool = False,
) -> Layer:
    """Check the values of a source. Of several names for one setting the first is used and the others are ignored."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    unused = dict(ignored)
    for row in settings_table():
        given = [name for name in names(row) if name in raw_values]
        if given:
            raw = _expand_secret(raw_values[given[0]], environ, row=row, at=(source, given[0]))
            values[row.key] = _check(raw, row, at=(source, given[0]), strict=not from_text)
            origins[row.key] = f"{source}: {given[0]}"
            unused |= dict.fromkeys(given[1:], f"{source}: {given[0]} says the same")
        if row.key in values and row.rival in values:
            raise SettingsError(f"says the same as {row.rival!r}; keep one of them", source=source, key=row.key)
    return Layer(values=values, origins=origins, ignored=unused)


def read_arguments(overrides: Mapping[str, object], *, environ: Mapping[str, str]) -> Layer:
    """Read keyword arguments: a mapping for each section."""
    return _read_tables(overrides, source="arguments", environ=environ)


def read_environment(environ: Mapping[str, str]) -> Layer:
    """Read the variables `HOLDFAST_<SECTION>__<FIELD>`; an empty variable counts as not set."""

    def names(row: Setting) -> tuple[str, ...]:
        return (row.variable, *(f"{_PREFIX}{alias.upper()}" for alias in row.aliases))

    known = {name: row for row in settings_table() for name in names(row)}
    given = {name: text for name, text in environ.items() if name.startswith(_PREFIX) and text}
    others = sorted(given.keys() - known.keys() - _NOT_SETTINGS)
    for name in others:
        _refuse_misspelt(name, known)
    raw_values = {name: _parse_list(row, given[name]) for name, row in known.items() if name in given}
    return _make_layer(
        raw_values,
        names=names,
        source="environment",
        environ=environ,
        ignored=dict.fromkeys(others, "environment"),
        from_text=True,
    )


def _refuse_misspelt(name: str, known: Collection[str]) -> None:
    """Raise for a variable that looks like a misspelt setting; others may belong to another program."""
    near = find_similar_names(name, known, cutoff=_SIMILAR)
    if near or "__" in name:
        near = near or find_similar_names(name, known, cutoff=_LIKELY)
        raise SettingsError("unknown setting.", source="environment", key=_show_name(name), nearest=near)


def read_toml(data: bytes, *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None = None) -> Layer:
    """Read a `holdfast.toml`; where `allowed` is given, other settings are refused."""
    import tomllib  # noqa: PLC0415 - most runs read no file

    text = _decode(data, source=source)
    deep = _DEEP_KEY.search(text)
    if deep:
        place = text.count("\n", 0, deep.start()) + 1
        raise SettingsError(f"line {place} has a key of more than {_MAX_KEY_PARTS} parts", source=source)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else text.count("\n") + 1
        raise SettingsError(f"line {number} is not valid TOML: {error}", source=source) from error
    except (RecursionError, ValueError) as error:
        raise SettingsError("not valid TOML: nested too deeply, or a number too long", source=source) from error
    return _read_tables(tables, source=source, environ=environ, allowed=allowed)


def read_file(path: Path) -> bytes:
    """Read a settings file.

    Raises:
        SettingsError: It cannot be read, or is too large.
    """
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", source=str(path)) from error
    if len(data) > _MAX_FILE_BYTES:
        raise SettingsError("too large for a settings file; is it the right one?", source=str(path))
    return data


def _decode(data: bytes, *, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"line {line} is not UTF-8 text", source=source) from error


def _walk_names(data: Mapping[str, Any], tree: Tree, *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every dotted name that holds a value, or that the tree does not know."""
    for name, value in data.items():
        # A name with a dot in it is not a path: in quotes it matches nothing.
        path = f'{prefix}"{name}"' if "." in str(name) else f"{prefix}{name}"
        if isinstance(value, Mapping) and path in tree.branches:
            yield from _walk_names(value, tree, prefix=f"{path}.")
        else:
            yield path, value


def _make_unknown_error(path: str, value: object, tree: Tree, *, source: str) -> SettingsError:
    """Make the error for a name that is not a setting."""
    if path in tree.branches:
        # The value is not shown: it may be an API key in place of its section.
        kind = type(value).__name__
        return SettingsError(f"expected a table of settings, found a value of type {kind}", source=source, key=path)
    return SettingsError("unknown setting.", source=source, key=_show_name(path), nearest=tree.nearest(path))


def _read_tables(
    data: Mapping[str, object], *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None = None
) -> Layer:
    tree = toml_tree()
    raw_values: dict[str, object] = {}
    refused: list[str] = []
    for path, value in _walk_names(data, tree):
        if path not in tree.leaves:
            raise _make_unknown_error(path, value, tree, source=source)
        if allowed is None or tree.leaves[path].key in allowed:
            raw_values[path] = value
        else:
            refused.append(tree.leaves[path].key)
    checked = _make_layer(
        raw_values, names=lambda row: (row.key, *row.aliases), source=source, environ=environ, ignored={}
    )
    return replace(checked, refused=tuple(refused))


def _parse_list(row: Setting, text: str) -> object:
    """Parse the text of a list, which is JSON or separated by commas; other text is returned as it is."""
    if not row.is_list:
        return text
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SettingsError("not a valid JSON list", source="environment", key=row.variable) from error
    return [item.strip() for item in text.split(",") if item.strip()]


def _expand_secret(value: object, environ: Mapping[str, str], *, row: Setting, at: tuple[str, str]) -> object:
    if not row.secret or not isinstance(value, str):
        return value
    try:
        return Secret.expand(value, environ)
    except KeyError as error:
        message = f"the environment variable {error.args[0]} is not set"
        raise SettingsError(message, source=at[0], key=at[1]) from error


def _check(value: object, row: Setting, *, at: tuple[str, str], strict: bool) -> object:
    try:
        return msgspec.convert(row.read(value) if row.read else value, row.type, strict=strict)
    except (ValueError, msgspec.ValidationError):
        # `from None`: the cause would repeat the value, which may be a secret.
        shown = "a value of another kind" if row.secret else _show_value(value)
        raise SettingsError(f"expected {row.kind}, found {shown}", source=at[0], key=at[1]) from None


def _show_name(name: str) -> str:
    return name[:_MAX_NAME_CHARS] if name.isprintable() else ascii(name[:_MAX_NAME_CHARS])


def _show_value(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not print very long numbers
        return f"a very long {type(value).__name__}"


# --- openclaw ----------


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
"""Names that are always ours: in the wrong place they are a mistake."""

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
"""OpenClaw's own names, by level."""

_TWINS: Final = {
    "memory.search": "agents.defaults.memorySearch",
    "plugins.entries.memory-context.config": "agents.defaults.memoryContext",
}
"""Levels with the same names as another level."""


_AGENT_ONLY: Final = frozenset({"id", "default", "name", "agentDir", "identity", "groupChat", "tools", "runtime"})
"""Names in an entry of `agents.list` that do not override `agents.defaults`."""

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


def read_openclaw(
    data: bytes,
    *,
    source: str,
    environ: Mapping[str, str],
    allowed: Collection[str] | None = None,
    agent: str | None = None,
) -> tuple[Layer, ...]:
    """Read an `openclaw.json` (JSON5): the overrides of `agent`, if it is listed, then the settings of all agents.

    Where `allowed` is given, other settings are refused.
    """
    whole = _parse_json(_decode(data, source=source), source=source)
    agents = whole.get("agents")
    listed = agents.get("list") if isinstance(agents, Mapping) else None
    own = next((entry for entry in listed if _is_agent(entry, agent)), None) if isinstance(listed, list) else None
    if own is None or not isinstance(agents, Mapping):
        return (_read_openclaw_names(whole, source=source, environ=environ, allowed=allowed),)
    overrides = {name: value for name, value in own.items() if name not in _AGENT_ONLY}
    at = f"{source}, agents.list {agent!r}"
    defaults = {**whole, "agents": {name: value for name, value in agents.items() if name != "list"}}
    return (
        _read_openclaw_names({"agents": {"defaults": overrides}}, source=at, environ=environ, allowed=allowed),
        _read_openclaw_names(defaults, source=source, environ=environ, allowed=allowed),
    )


def _is_agent(entry: object, agent: str | None) -> bool:
    name = entry.get("id") if isinstance(entry, Mapping) else None
    return agent is not None and isinstance(name, str) and name.strip().lower() == agent.strip().lower()


def _read_openclaw_names(
    data: Mapping[str, Any], *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None
) -> Layer:
    tree = openclaw_tree()
    raw_values: dict[str, object] = {}
    ignored: dict[str, str] = {}
    refused: list[str] = []
    for name, value in _walk_names(data, tree):
        row = tree.leaves.get(name)
        if row is None:
            ignored |= _ignore_foreign(name, value, tree, source=source)
        elif allowed is None or row.key in allowed:
            raw_values[name] = value
        else:
            refused.append(row.key)
    _apply_slot(raw_values, data, ignored, source)
    for name, value in list(raw_values.items()):
        if tree.leaves[name].secret:
            raw_values[name], missing = _resolve_secret(value, environ)
            if missing:
                del raw_values[name]
                ignored[name] = f"{source}: {missing}"
        elif isinstance(value, float) and value.is_integer():
            raw_values[name] = int(value)  # JavaScript has one kind of number: 2e4 and 20000.0 are whole numbers
    checked = _make_layer(raw_values, names=lambda row: row.openclaw, source=source, environ=environ, ignored=ignored)
    return replace(checked, refused=tuple(refused))


def _ignore_foreign(name: str, value: object, tree: Tree, *, source: str) -> dict[str, str]:
    """Return the names to ignore for a name that is not ours.

    Raises:
        SettingsError: It is not OpenClaw's either.
    """
    if not _is_foreign(name, tree):
        raise _make_unknown_error(name, value, tree, source=source)
    has_ttl = name == "agents.defaults.models" and '"cacheControlTtl"' in json.dumps(value)
    return dict.fromkeys((name, _CACHE_TTL) if has_ttl else (name,), source)


def _apply_slot(raw_values: dict[str, object], data: Mapping[str, Any], ignored: dict[str, str], source: str) -> None:
    """Ignore the entries of memory plugins that are not in the slot; one in the slot without an entry is off."""
    slot = raw_values.get("plugins.slots.memory")
    if slot is None:
        return
    for plugin in ("memory-context", "memory-lancedb"):
        place = f"plugins.entries.{plugin}."
        for name in [name for name in raw_values if slot != plugin and name.startswith(place)]:
            del raw_values[name]
            ignored[name] = f"{source}: plugins.slots.memory is {slot!r}"
    if slot == "memory-context" and "memory-context" not in (data["plugins"].get("entries") or {}):
        raw_values["plugins.entries.memory-context.enabled"] = False


def _is_foreign(path: str, tree: Tree) -> bool:
    if path in tree.branches:
        return False
    level, _, name = path.rpartition(".")
    for twin, original in _TWINS.items():
        if f"{level}.".startswith(f"{twin}."):
            level = original + level.removeprefix(twin)
    if name in _FOREIGN.get(level, "").split():
        return True
    return level in _SHARED and name not in _SECTIONS and not tree.find_similar(path)


def _resolve_secret(value: object, environ: Mapping[str, str]) -> tuple[object, str]:
    """Return a secret and why it is missing. A secret that only OpenClaw can read does not make the file invalid."""
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


def _parse_json(text: str, *, source: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text)  # much faster than JSON5, and enough for files that programs write
    except (ValueError, RecursionError):
        data = _parse_json5(text, source=source)
    if not isinstance(data, dict):
        raise SettingsError("expected an object with settings", source=source)
    return data


def _parse_json5(text: str, *, source: str) -> Any:
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
