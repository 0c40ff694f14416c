"""Load settings from arguments, the environment, `holdfast.toml`, `openclaw.json` and the settings of pi."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast.errors import SettingsError
from holdfast.settings.openclaw import openclaw_names, read_openclaw
from holdfast.settings.schema import Settings
from holdfast.settings.sources import Layer, Source, read_file
from holdfast.settings.table import ENGINE, AnySettings, Schema, struct_of
from holdfast.settings.trust import is_project_file, is_trusted, trust_file

_Section = TypeVar("_Section", bound=msgspec.Struct)

PROJECT_FILE: Final = "holdfast.toml"
"""The settings file in the folder of a project."""
PI_FILE: Final = "settings.json"
"""The settings file of pi, in its folder."""
_WEIGHTED_ONLY: Final = ("recall.min_score", "search.vector_weight", "search.bm25_weight", "search.time_decay")
"""Settings of the formula of `search.fusion = "weighted"`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The layers of a settings file, strongest first; or why the file is left out."""

    path: Path
    is_limited: bool
    layers: tuple[Layer, ...] = ()
    problem: str = ""

    def leave_out(self, error: SettingsError) -> "_File":
        """Return the file without its layers, as a problem with the reason and the fix."""
        trust = f"holdfast trust {shlex.quote(str(self.path.parent))}"
        problem = (
            f"{self.path} is not trusted and has an error, so the whole file is ignored. Delete it, or correct it and "
            f"run `{trust}` to use all of its settings. {error}"
        )
        return replace(self, layers=(), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[AnySettings]):
    """The settings in force, and the source of each value.

    `ignored` are names that were not used, with the place: they belong to another program, or repeat a setting.
    `refused` are the settings that the file of an untrusted project may not set, by file. `left_out` are the
    files that were left out because they are wrong, and `problems` say what is wrong with them.
    """

    settings: AnySettings
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: Mapping[Path, tuple[str, ...]]
    left_out: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each file or setting that is left out or has no effect, with the names and the fix."""
        sentences = list(self.problems)
        for path, keys in self.refused.items():
            sentences.append(
                f"{path} is not trusted, so these settings in it are ignored: {', '.join(keys)}. Read the file, then "
                f"run `holdfast trust {shlex.quote(str(path.parent))}`, or set them in "
                f"{trust_file().with_name(path.name)} or in the environment."
            )
        sentences += self._list_unused_weights()
        return tuple(sentences)

    def _list_unused_weights(self) -> Iterator[str]:
        """Warn of settings that have no effect because they belong to another order of passages than the one in use."""
        fusion = self.settings.search.fusion
        if fusion == "weighted":
            return
        defaults = Settings()
        for key in _WEIGHTED_ONLY:
            section, _, name = key.partition(".")
            value = getattr(getattr(self.settings, section), name)
            if value != getattr(getattr(defaults, section), name):
                shown = self.origins[key].rpartition(": ")[2]
                yield (
                    f'{shown} = {value} has no effect: search.fusion is "{fusion}", which ranks and tests passages '
                    'by other rules. Set search.fusion = "weighted" to use it.'
                )

    def set_by(self, folder: Path) -> list[str]:
        """Return the settings whose value comes from the file in a project's folder."""
        source = f"{folder / PROJECT_FILE}: "
        return [key for key, origin in self.origins.items() if origin.startswith(source)]

    @property
    def without_effect(self) -> tuple[str, ...]:
        """One sentence for each setting of an `openclaw.json` that cannot work here, with the reason."""
        reasons = openclaw_names()["without_effect"]
        return tuple(f"{name} has no effect: {why}." for name, why in reasons.items() if name in self.ignored)


def load(
    *,
    files: Iterable[Path | str] = (),
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    trusted: bool = False,
    agent_id: str | None = None,
    **overrides: object,
) -> Loaded[Settings]:
    """Load the settings of the engine. Every value is checked, also those that a stronger source overrides.

    The order is: keyword arguments (a mapping for each section), the environment, the files (`holdfast.toml` before
    the others, otherwise in the order given; `default_files` finds the usual ones), the defaults. A `settings.json` is
    pi's: only its compaction counts, and a wrong one is left out and reported, since it is not ours. A file in the
    project's folder or the working directory may set only what is harmless (`Setting.project`) unless the user has
    trusted it or `trusted` is set: the rest is refused and reported, and a file with an error is left out and reported.
    In an `openclaw.json` the entry of `agent_id` in `agents.list` overrides `agents.defaults`. The settings of the
    agent in these files are not read.

        load(files=["holdfast.toml"], recall={"position": "head"}).settings.recall.position

    Raises:
        SettingsError: A file cannot be read, or a setting is unknown, of the wrong kind or out of range; not for a file
            that is left out.
    """
    return load_schema(
        ENGINE,
        files=files,
        environ=environ,
        project=project,
        trusted=trusted,
        agent_id=agent_id,
        overrides=overrides,
    )


def check_settings(settings: Settings) -> None:
    """Check every value of settings that a program made itself: the constructors do not.

    Raises:
        SettingsError: A value is of the wrong kind or out of range.
    """
    source = Source(name="Settings", schema=ENGINE, environ={})
    for row in ENGINE.rows:
        value: object = settings
        path = ""
        for name in row.key.split("."):
            if not isinstance(value, msgspec.Struct):
                found = type(value).__name__
                raise SettingsError(f"expected a section, found a {found}", source=source.name, key=path)
            value = getattr(value, name)
            path = f"{path}.{name}".lstrip(".")
        if value is row.default:
            continue
        if row.secret and isinstance(value, str):
            raise SettingsError("expected Secret(...), found text", source=source.name, key=row.key)
        source.check(value, row, row.key, strict=True)


def load_schema(
    schema: Schema[AnySettings],
    *,
    files: Iterable[Path | str],
    environ: Mapping[str, str] | None,
    project: Path | None,
    trusted: bool,
    agent_id: str | None,
    overrides: Mapping[str, object],
) -> Loaded[AnySettings]:
    """Load the settings of a schema; see `load`."""
    if environ is None:
        environ = os.environ
    arguments = Source(name="arguments", schema=schema, environ=environ)
    environment = Source(name="environment", schema=schema, environ=environ)
    above = (arguments.read_tables(overrides), environment.read_environment())
    read: list[_File] = []
    for path in sorted(map(Path, files), key=lambda path: path.suffix != ".toml"):
        is_limited = not trusted and is_project_file(path, project=project)
        source = Source(name=str(path), schema=schema, environ=environ, limited=is_limited)
        read.append(_load_file(path, source=source, agent_id=agent_id))
    try:
        return _combine(schema, above, read)
    except SettingsError as error:
        # Values can contradict each other although each is valid. An untrusted file must not break those of the user.
        if not any(file.is_limited for file in read):
            raise
        return _combine(schema, above, [file.leave_out(error) if file.is_limited else file for file in read])


def _combine(schema: Schema[AnySettings], above: Iterable[Layer], files: Sequence[_File]) -> Loaded[AnySettings]:
    """Combine the layers above all files with those of the files, strongest first."""
    layers = [*above]
    refused: dict[Path, tuple[str, ...]] = {}
    problems: list[str] = []
    for file in files:
        layers += file.layers
        # An openclaw.json has two layers, which may name the same setting.
        keys = dict.fromkeys(key for layer in file.layers for key in layer.refused)
        if keys:
            refused[file.path] = tuple(keys)
        if file.problem:
            problems.append(file.problem)
    values, origins = _merge(schema, layers)
    ignored: dict[str, str] = {}
    for layer in reversed(layers):
        ignored |= layer.ignored
    return Loaded(
        settings=_build(schema.struct, values, origins),
        origins=MappingProxyType({row.key: origins.get(row.key, "default") for row in schema.rows}),
        ignored=MappingProxyType(ignored),
        refused=MappingProxyType(refused),
        left_out=tuple(file.path for file in files if file.problem),
        problems=tuple(problems),
    )


def default_files(*, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the settings files that exist, strongest first: of the project, of the user, of OpenClaw, of pi."""
    own = project_file(folder or Path())
    files = user_files(environ=environ)
    return files if own is None else (own, *files)


def project_file(folder: Path) -> Path | None:
    """Return the settings file in the folder of a project; None if there is none."""
    file = folder / PROJECT_FILE
    # Unlike `Path.is_file`, this does not raise for a link to a place that the user may not enter.
    return file if os.path.isfile(file) else None  # noqa: PTH113


def user_settings_file() -> Path:
    """Return the place of the user's own settings file."""
    import platformdirs  # noqa: PLC0415 - most callers name their files

    return platformdirs.user_config_path("holdfast") / PROJECT_FILE


def user_files(*, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the settings files that exist and belong to no project: of the user, of OpenClaw, of pi."""
    return tuple(path for path in user_file_places(environ=environ) if path.is_file())


def user_file_places(*, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the places of the settings files that belong to no project, whether they exist or not."""
    environ = os.environ if environ is None else environ
    openclaw = environ.get("OPENCLAW_CONFIG_PATH") or "~/.openclaw/openclaw.json"
    pi = environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent"
    return (user_settings_file(), Path(openclaw).expanduser(), Path(pi).expanduser() / PI_FILE)


def _load_file(path: Path, *, source: Source, agent_id: str | None) -> _File:
    """Read a settings file. If it has an error and the user did not write it (an untrusted one, pi's), leave it out."""
    if path.suffix not in {".toml", ".json", ".json5", ".jsonc"}:
        raise SettingsError("expected a .toml file, or an openclaw.json", source=str(path))
    file = _File(path=path, is_limited=source.limited)
    try:
        data = read_file(path)  # read once, so that the content that is checked for trust is the content in use
        if file.is_limited and is_trusted(path, data):
            file = replace(file, is_limited=False)
            source = replace(source, limited=False)
        return replace(file, layers=_read_layers(path, data, source=source, agent_id=agent_id))
    except SettingsError as error:
        if file.is_limited:
            return file.leave_out(error)
        if path.name == PI_FILE:
            return replace(file, problem=f"{error}. Its settings are left out.")
        raise


def _read_layers(path: Path, data: bytes, *, source: Source, agent_id: str | None) -> tuple[Layer, ...]:
    """Read the content of a settings file of any kind."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"line {line} is not UTF-8 text", source=source.name) from error
    if path.suffix == ".toml":
        return (source.read_toml(text),)
    if path.name == PI_FILE:
        return (source.read_pi(text),)
    return read_openclaw(source, source.parse_json(text), agent_id=agent_id)


def _merge(schema: Schema[Any], layers: Iterable[Layer]) -> tuple[dict[str, object], dict[str, str]]:
    """Merge layers, strongest first. A setting's rival in a weaker layer is dropped."""
    rivals = {row.key: row.rival for row in schema.rows if row.rival}
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        new = [key for key in layer.values if key not in values and rivals.get(key) not in values]
        for key in new:
            values[key] = layer.values[key]
            origins[key] = layer.origins[key]
    return values, origins


@cache  # msgspec evaluates every annotation again, which took half of the time in which an engine is opened
def _list_fields(section: type[msgspec.Struct]) -> tuple[tuple[str, type[msgspec.Struct] | None], ...]:
    """Return the fields of a section, and the section that each of them holds, if any."""
    return tuple((field.name, struct_of(field.type)) for field in msgspec.structs.fields(section))


def _build(
    section: type[_Section], values: Mapping[str, object], origins: Mapping[str, str], *, prefix: str = ""
) -> _Section:
    fields: dict[str, Any] = {}
    for name, below in _list_fields(section):
        key = f"{prefix}{name}"
        if below is not None:
            fields[name] = _build(below, values, origins, prefix=f"{key}.")
        elif key in values:
            fields[name] = values[key]
    try:
        return section(**fields)
    except ValueError as error:
        places = sorted({place for key, place in origins.items() if key.startswith(prefix)})
        raise SettingsError(str(error), source=", ".join(places), key=prefix.rstrip(".")) from error
