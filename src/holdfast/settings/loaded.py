"""Settings from all of their sources, the stronger over the weaker."""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from holdfast.errors import SettingsError
from holdfast.settings.openclaw import WITHOUT_EFFECT, openclaw_file
from holdfast.settings.schema import Settings
from holdfast.settings.sources import Layer, arguments, read_file, toml_file, variables
from holdfast.settings.table import settings_table, struct_of
from holdfast.settings.trust import PROJECT_KEYS, is_project_file, is_trusted, trust_file

__all__ = ["Loaded", "default_files", "load"]

_Section = TypeVar("_Section", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force.

    `origins` says for each setting where its value came from; `ignored` names what was found and passed over,
    with the place, because it belongs to another program or was said twice; `refused` names for each settings file of a
    project that is not trusted the settings that it may not set. None of them holds a value.
    """

    settings: Settings
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: Mapping[Path, tuple[str, ...]]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each file of which something was refused, with the settings and the fix."""
        return tuple(
            f"{path} is not trusted, so these settings in it are ignored: {', '.join(keys)}. Read the file, then run "
            f"`holdfast trust {shlex.quote(str(path.parent))}`, or set them in {trust_file().with_name(path.name)} or "
            "in the environment."
            for path, keys in self.refused.items()
        )

    @property
    def without_effect(self) -> tuple[str, ...]:
        """A sentence for each setting of an `openclaw.json` that cannot work here, with the reason."""
        return tuple(f"{name} has no effect: {why}." for name, why in WITHOUT_EFFECT.items() if name in self.ignored)


def load(
    *,
    files: Iterable[Path | str] = (),
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    agent_id: str | None = None,
    **overrides: object,
) -> Loaded:
    """Read the settings; everything that is said is checked, also what a stronger source overrides.

    Keyword arguments count most, a mapping for each section; then the environment; then the files, `holdfast.toml`
    before `openclaw.json` and otherwise in the order given (`default_files` finds the usual ones); then the defaults.
    A file in the folder of the project, or in the working directory, may set `PROJECT_KEYS` alone unless the user has
    trusted it: the rest is refused and reported (`holdfast.settings.trust`). What an `openclaw.json` says of the agent
    with `agent_id` in `agents.list` counts before what it says of all.

        load(files=["holdfast.toml"], recall={"position": "head"}).settings.recall.position

    Raises:
        SettingsError: A file cannot be read, or a setting is unknown, of the wrong kind or out of range.
    """
    environ = os.environ if environ is None else environ
    in_order = sorted((Path(file) for file in files), key=lambda path: path.suffix != ".toml")
    layers = [arguments(overrides, environ=environ), variables(environ)]
    read = {path: _file(path, environ=environ, project=project, agent=agent_id) for path in in_order}
    layers += (layer for found in read.values() for layer in found)
    values, origins = _merged(layers)
    return Loaded(
        settings=_built(Settings, values, origins),
        origins=MappingProxyType({row.key: origins.get(row.key, "default") for row in settings_table()}),
        ignored=MappingProxyType({name: place for layer in reversed(layers) for name, place in layer.ignored.items()}),
        refused=MappingProxyType({path: keys for path, found in read.items() if (keys := _refused(found))}),
    )


def default_files(*, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The settings files that exist: of the project, of the user, of OpenClaw; strongest first."""
    import platformdirs  # noqa: PLC0415 - most callers name their files

    environ = os.environ if environ is None else environ
    openclaw = environ.get("OPENCLAW_CONFIG_PATH") or "~/.openclaw/openclaw.json"
    places = (
        (folder or Path()) / "holdfast.toml",
        platformdirs.user_config_path("holdfast") / "holdfast.toml",
        Path(openclaw).expanduser(),
    )
    return tuple(path for path in places if path.is_file())


def _refused(layers: Iterable[Layer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for layer in layers for key in layer.refused))


def _file(path: Path, *, environ: Mapping[str, str], project: Path | None, agent: str | None) -> tuple[Layer, ...]:
    if path.suffix not in {".toml", ".json", ".json5", ".jsonc"}:
        raise SettingsError("expected a .toml file, or an openclaw.json", source=str(path))
    data = read_file(path)  # once: what is trusted is what is read
    is_limited = is_project_file(path, project=project) and not is_trusted(path, data)
    allowed = PROJECT_KEYS if is_limited else None
    if path.suffix == ".toml":
        return (toml_file(data, source=str(path), environ=environ, allowed=allowed),)
    return openclaw_file(data, source=str(path), environ=environ, allowed=allowed, agent=agent)


def _merged(layers: Iterable[Layer]) -> tuple[dict[str, object], dict[str, str]]:
    """The values of the strongest layers, strongest first. A setting's rival in a weaker layer is void."""
    rivals = {row.key: row.rival for row in settings_table() if row.rival}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        new = [key for key in layer.values if key not in values and rivals.get(key) not in values]
        values |= {key: layer.values[key] for key in new}
        origins |= {key: layer.origins[key] for key in new}
    return values, origins


def _built(
    section: type[_Section], values: Mapping[str, object], origins: Mapping[str, str], *, prefix: str = ""
) -> _Section:
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(section):
        key = f"{prefix}{field.name}"
        below = struct_of(field.type)
        if below is not None:
            fields[field.name] = _built(below, values, origins, prefix=f"{key}.")
        elif key in values:
            fields[field.name] = values[key]
    try:
        return section(**fields)
    except ValueError as error:
        places = sorted({place for key, place in origins.items() if key.startswith(prefix)})
        raise SettingsError(str(error), source=", ".join(places), key=prefix.rstrip(".")) from error
