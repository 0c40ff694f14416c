"""Load settings from all sources; stronger sources override weaker ones."""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from holdfast.errors import SettingsError
from holdfast.settings.schema import Settings
from holdfast.settings.sources import (
    WITHOUT_EFFECT,
    Layer,
    read_arguments,
    read_environment,
    read_file,
    read_openclaw,
    read_toml,
)
from holdfast.settings.table import settings_table, struct_of
from holdfast.settings.trust import PROJECT_KEYS, is_project_file, is_trusted, trust_file

__all__ = ["Loaded", "default_files", "load"]

_Section = TypeVar("_Section", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force.

    Attributes:
        settings: The values.
        origins: The source of each value, by setting.
        ignored: Names that were not used, with the place: they belong to another program, or repeat a setting.
        refused: The settings that the file of an untrusted project may not set, by file.
    """

    settings: Settings
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: Mapping[Path, tuple[str, ...]]

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each file with refused settings, with the names and the fix."""
        return tuple(
            f"{path} is not trusted, so these settings in it are ignored: {', '.join(keys)}. Read the file, then run "
            f"`holdfast trust {shlex.quote(str(path.parent))}`, or set them in {trust_file().with_name(path.name)} or "
            "in the environment."
            for path, keys in self.refused.items()
        )

    @property
    def without_effect(self) -> tuple[str, ...]:
        """One sentence for each setting of an `openclaw.json` that cannot work here, with the reason."""
        return tuple(f"{name} has no effect: {why}." for name, why in WITHOUT_EFFECT.items() if name in self.ignored)


def load(
    *,
    files: Iterable[Path | str] = (),
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    agent_id: str | None = None,
    **overrides: object,
) -> Loaded:
    """Load the settings. Every value is checked, also those that a stronger source overrides.

    The order is: keyword arguments (a mapping for each section), the environment, the files (`holdfast.toml` before
    `openclaw.json`, otherwise in the order given; `default_files` finds the usual ones), the defaults. A file in the
    project's folder or the working directory may set only `PROJECT_KEYS` unless the user has trusted it: the rest is
    refused and reported (`holdfast.settings.trust`). In an `openclaw.json` the entry of `agent_id` in `agents.list`
    overrides `agents.defaults`.

        load(files=["holdfast.toml"], recall={"position": "head"}).settings.recall.position

    Raises:
        SettingsError: A file cannot be read, or a setting is unknown, of the wrong kind or out of range.
    """
    environ = os.environ if environ is None else environ
    in_order = sorted((Path(file) for file in files), key=lambda path: path.suffix != ".toml")
    layers = [read_arguments(overrides, environ=environ), read_environment(environ)]
    by_file = {path: _load_file(path, environ=environ, project=project, agent=agent_id) for path in in_order}
    layers += (layer for of_file in by_file.values() for layer in of_file)
    values, origins = _merge(layers)
    return Loaded(
        settings=_build(Settings, values, origins),
        origins=MappingProxyType({row.key: origins.get(row.key, "default") for row in settings_table()}),
        ignored=MappingProxyType({name: place for layer in reversed(layers) for name, place in layer.ignored.items()}),
        refused=MappingProxyType({path: keys for path, of_file in by_file.items() if (keys := _list_refused(of_file))}),
    )


def _list_refused(layers: Iterable[Layer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for layer in layers for key in layer.refused))


def default_files(*, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the settings files that exist, strongest first: of the project, of the user, of OpenClaw."""
    import platformdirs  # noqa: PLC0415 - most callers name their files

    environ = os.environ if environ is None else environ
    openclaw = environ.get("OPENCLAW_CONFIG_PATH") or "~/.openclaw/openclaw.json"
    places = (
        (folder or Path()) / "holdfast.toml",
        platformdirs.user_config_path("holdfast") / "holdfast.toml",
        Path(openclaw).expanduser(),
    )
    return tuple(path for path in places if path.is_file())


def _load_file(path: Path, *, environ: Mapping[str, str], project: Path | None, agent: str | None) -> tuple[Layer, ...]:
    if path.suffix not in {".toml", ".json", ".json5", ".jsonc"}:
        raise SettingsError("expected a .toml file, or an openclaw.json", source=str(path))
    data = read_file(path)  # read once, so that the content that is checked for trust is the content in use
    is_limited = is_project_file(path, project=project) and not is_trusted(path, data)
    allowed = PROJECT_KEYS if is_limited else None
    if path.suffix == ".toml":
        return (read_toml(data, source=str(path), environ=environ, allowed=allowed),)
    return read_openclaw(data, source=str(path), environ=environ, allowed=allowed, agent=agent)


def _merge(layers: Iterable[Layer]) -> tuple[dict[str, object], dict[str, str]]:
    """Merge layers, strongest first. A setting's rival in a weaker layer is dropped."""
    rivals = {row.key: row.rival for row in settings_table() if row.rival}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        new = [key for key in layer.values if key not in values and rivals.get(key) not in values]
        values |= {key: layer.values[key] for key in new}
        origins |= {key: layer.origins[key] for key in new}
    return values, origins


def _build(
    section: type[_Section], values: Mapping[str, object], origins: Mapping[str, str], *, prefix: str = ""
) -> _Section:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(section):
        key = f"{prefix}{field.name}"
        below = struct_of(field.type)
        if below is not None:
            fields[field.name] = _build(below, values, origins, prefix=f"{key}.")
        elif key in values:
            fields[field.name] = values[key]
    try:
        return section(**fields)
    except ValueError as error:
        places = sorted({place for key, place in origins.items() if key.startswith(prefix)})
        raise SettingsError(str(error), source=", ".join(places), key=prefix.rstrip(".")) from error
