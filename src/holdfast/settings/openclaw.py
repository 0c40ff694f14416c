"""Read an `openclaw.json`: what is ours in it becomes settings, the rest is ignored and listed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from holdfast.errors import SettingsError
from holdfast.settings.schema import Secret
from holdfast.settings.sources import Layer, SortedNames, Source
from holdfast.settings.table import Tree, load_json

_CACHE_TTL: Final = "agents.defaults.models.*.params.cacheControlTtl"
_MEMORY_SLOT: Final = "plugins.slots.memory"
_ENGINE_SLOT: Final = "plugins.slots.contextEngine"
_PLUGINS_WITH_TOOLS: Final = frozenset({"memory-core", "memory-lancedb"})
"""The plugins in the memory slot whose tools the agent has."""
_TOOL_SWITCHES: Final = ("agent.memory_search.enabled", "agent.long_term.enabled")


@cache
def openclaw_names() -> Any:
    """The names in an `openclaw.json` that are not Holdfast settings.

    `foreign` has OpenClaw's own names by level, and those of the agent, which are not settings of the engine; `twins`
    the levels with the same names as another one. On a `shared` level any other name is OpenClaw's too, except those of
    `sections`, which are always ours. `agent_only` are names in an entry of `agents.list` that do not override
    `agents.defaults`. `without_effect` says why a name cannot work here.
    """
    return load_json(Path(__file__).with_name("openclaw_names.json"))


def read_openclaw(source: Source, whole: Mapping[str, Any], *, agent_id: str | None) -> tuple[Layer, ...]:
    """Read the overrides of an agent, if it is listed, then the settings of all agents."""
    agents = whole.get("agents")
    own = _find_agent(agents, agent_id)
    if own is None or not isinstance(agents, Mapping):
        return (_read_names(source, whole),)
    not_settings = openclaw_names()["agent_only"].split()
    overrides = {name: value for name, value in own.items() if name not in not_settings}
    own_source = replace(source, name=f"{source.name}, agents.list {agent_id!r}")
    all_agents = {name: value for name, value in agents.items() if name != "list"}
    return (
        _read_names(own_source, {"agents": {"defaults": overrides}}),
        _read_names(source, {**whole, "agents": all_agents}),
    )


def _find_agent(agents: object, agent_id: str | None) -> Mapping[str, Any] | None:
    """Find the entry of an agent in `agents.list`; names are compared without case."""
    listed = agents.get("list") if isinstance(agents, Mapping) else None
    if agent_id is None or not isinstance(listed, list):
        return None
    for entry in listed:
        name = entry.get("id") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and name.strip().lower() == agent_id.strip().lower():
            return dict(entry)
    return None


def _read_names(source: Source, data: Mapping[str, Any]) -> Layer:
    tree = source.schema.openclaw
    names = source.sort_names(data, tree)
    slots: dict[str, object] = {}
    for name in (_MEMORY_SLOT, _ENGINE_SLOT):
        if name in names.unknown:
            slots[name] = names.unknown.pop(name)
    ignored: dict[str, str] = {}
    for name, value in names.unknown.items():
        if not _is_foreign(name, tree):
            raise source.make_unknown_error(name, value, tree)
        ignored[name] = source.name
        if name == "agents.defaults.models" and '"cacheControlTtl"' in json.dumps(value):
            ignored[_CACHE_TTL] = source.name
    memory_slot = _read_slots(source, slots, names)
    if memory_slot is not None:
        ignored |= _drop_other_plugins(source, names.values, slots)
        _turn_off_without_entry(names.values, data, memory_slot)
    for name, value in list(names.values.items()):
        if tree.leaves[name].secret:
            secret, missing = _resolve_secret(value, source.environ)
            names.values[name] = secret
            if missing:
                del names.values[name]
                ignored[name] = f"{source.name}: {missing}"
        elif isinstance(value, float) and value.is_integer():
            names.values[name] = int(value)  # JavaScript has one kind of number: 2e4 and 20000.0 are whole numbers
    layer = source.make_layer(names.values, names=lambda row: row.openclaw, ignored=ignored, refused=names.refused)
    return _apply_slot(source, layer, memory_slot)


def _is_foreign(path: str, tree: Tree) -> bool:
    """Return whether an unknown name belongs to OpenClaw. Otherwise it is a misspelt Holdfast setting."""
    if path in tree.branches:
        return False
    names = openclaw_names()
    level, _, name = path.rpartition(".")
    for twin, original in names["twins"].items():
        if f"{level}.".startswith(f"{twin}."):
            level = original + level.removeprefix(twin)
    if name in names["foreign"].get(level, "").split():
        return True
    return level in names["shared"] and name not in names["sections"].split() and not tree.find_similar(path)


# --- slots of plugins --------------------------------------------------------------


def _read_slots(source: Source, slots: Mapping[str, object], names: SortedNames) -> str | None:
    """Return the plugin in the memory slot; None if the file names none, or may not."""
    for name, value in slots.items():
        if not isinstance(value, str):
            raise SettingsError(f"expected text, found {value!r:.40}", source=source.name, key=name)
    if _MEMORY_SLOT in slots and source.limited:
        names.refused.append(_MEMORY_SLOT)
        return None
    slot = slots.get(_MEMORY_SLOT)
    return None if slot is None else str(slot)


def _drop_other_plugins(source: Source, values: dict[str, object], slots: Mapping[str, object]) -> dict[str, str]:
    """Drop the settings of memory plugins that are not in the slot; return them with the reason."""
    slot = slots[_MEMORY_SLOT]
    used = {slot}
    if "holdfast" in slots.values():
        used.add("memory-context")  # the section of the older plugin still counts for Holdfast's own
    dropped: dict[str, str] = {}
    for plugin in ("memory-context", "memory-lancedb"):
        if plugin in used:
            continue
        for name in list(values):
            if name.startswith(f"plugins.entries.{plugin}."):
                del values[name]
                dropped[name] = f"{source.name}: {_MEMORY_SLOT} is {slot!r}"
    return dropped


def _turn_off_without_entry(values: dict[str, object], data: Mapping[str, Any], slot: str) -> None:
    """Turn recall off if the memory-context plugin is in the slot but has no entry: OpenClaw does not start it then."""
    entries = data["plugins"].get("entries") or {}
    if slot == "memory-context" and "memory-context" not in entries:
        values["plugins.entries.memory-context.enabled"] = False


def _apply_slot(source: Source, layer: Layer, slot: str | None) -> Layer:
    """Turn off what the plugin in the memory slot does not have: with `none` recall, with others the memory tools."""
    if slot is None or slot in _PLUGINS_WITH_TOOLS:
        return layer
    known = source.schema.toml.leaves
    turned_off = [key for key in _TOOL_SWITCHES if key in known]
    if slot == "none":
        turned_off.append("recall.enabled")
    return replace(
        layer,
        values={**layer.values, **dict.fromkeys(turned_off, False)},
        origins={**layer.origins, **dict.fromkeys(turned_off, f"{source.name}: {_MEMORY_SLOT}")},
    )


def _resolve_secret(value: object, environ: Mapping[str, str]) -> tuple[object, str]:
    """Return a secret and why it is missing. One that only OpenClaw can read does not make the file invalid."""
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
