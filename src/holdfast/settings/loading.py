"""Load settings from arguments, the environment, `holdfast.toml`, `openclaw.json` and the settings of pi."""

import json
import os
import re
import reprlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import SettingsError
from holdfast.files import open_regular
from holdfast.settings.schema import Secret, Settings
from holdfast.settings.table import (
    Setting,
    Tree,
    find_similar_names,
    load_data,
    openclaw_tree,
    settings_table,
    struct_of,
    toml_tree,
)
from holdfast.settings.trust import is_project_file, is_trusted, trust_file

_Section = TypeVar("_Section", bound=msgspec.Struct)

_MAX_FILE_BYTES: Final = 512 * 1024
"""A settings file has a few kilobytes; anything near this is another kind of file."""

_MAX_KEY_PARTS: Final = 16
_DEEP_KEY: Final = (
    r"(?<![\w\"'.-])(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
    rf"(?:[ \t]*+\.[ \t]*+(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')){{{_MAX_KEY_PARTS}}}"
)
"""Matches a dotted key that is too long: the parser needs memory quadratic in its parts."""

PROJECT_FILE: Final = "holdfast.toml"
"""The settings file in the folder of a project."""
PI_FILE: Final = "settings.json"
"""The settings file of pi, in its folder."""
_PI_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "compaction.enabled": ("compaction.enabled",),
    "compaction.reserve_tokens": ("compaction.reserveTokens",),
    "compaction.keep_recent_tokens": ("compaction.keepRecentTokens",),
}
"""The settings of ours that pi has too, and its names for them."""
_NONE: Final[Mapping[str, str]] = {}
_PREFIX: Final = "HOLDFAST_"
_NOT_SETTINGS: Final = frozenset({"HOLDFAST_HOME", "HOLDFAST_TOKEN"})
"""Variables that are no settings: the folder of the memory, and the owner's token for hosts that read it from one."""
_WEIGHTED_ONLY: Final = ("recall.min_score", "search.vector_weight", "search.bm25_weight", "search.time_decay")
"""Settings of the formula of `search.fusion = "weighted"`."""
_SIMILAR: Final = 0.9
_LIKELY: Final = 0.45
_MAX_NAME_CHARS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """The settings of one source: values and their places, names that were not used, settings that it may not set."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The layers of a settings file, strongest first; or why the file is left out."""

    path: Path
    is_limited: bool
    layers: tuple[_Layer, ...] = ()
    problem: str = ""

    def leave_out(self, error: SettingsError) -> "_File":
        """Return the file without its layers, as a problem that says why and what to do."""
        trust = f"holdfast trust {shlex.quote(str(self.path.parent))}"
        problem = (
            f"{self.path} is not trusted and has an error, so the whole file is ignored. Delete it, or correct it and "
            f"run `{trust}` to use all of its settings. {error}"
        )
        return replace(self, layers=(), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force, and the source of each value.

    `ignored` are names that were not used, with the place: they belong to another program, or repeat a setting.
    `refused` are the settings that the file of an untrusted project may not set, by file. `problems` say which files
    were left out because they are wrong.
    """

    settings: Settings
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: Mapping[Path, tuple[str, ...]]
    problems: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each file or setting that is left out or has no effect, with the names and the fix."""
        refusals = (
            f"{path} is not trusted, so these settings in it are ignored: {', '.join(keys)}. Read the file, then run "
            f"`holdfast trust {shlex.quote(str(path.parent))}`, or set them in {trust_file().with_name(path.name)} or "
            "in the environment."
            for path, keys in self.refused.items()
        )
        return (*self.problems, *refusals, *self._without_weights())

    def _without_weights(self) -> Iterator[str]:
        """Say which settings have no effect because they belong to another order of passages than the one in use."""
        fusion = self.settings.search.fusion
        if fusion == "weighted":
            return
        usual = Settings()
        for key in _WEIGHTED_ONLY:
            section, _, name = key.partition(".")
            value = getattr(getattr(self.settings, section), name)
            if value != getattr(getattr(usual, section), name):
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
        reasons = _openclaw_names()["without_effect"]
        return tuple(f"{name} has no effect: {why}." for name, why in reasons.items() if name in self.ignored)


def load(
    *,
    files: Iterable[Path | str] = (),
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    trusted: bool = False,
    agent_id: str | None = None,
    **overrides: object,
) -> Loaded:
    """Load the settings. Every value is checked, also those that a stronger source overrides.

    The order is: keyword arguments (a mapping for each section), the environment, the files (`holdfast.toml` before
    the others, otherwise in the order given; `default_files` finds the usual ones), the defaults. A `settings.json` is
    pi's: only its compaction counts, and a wrong one is left out and reported, since it is not ours. A file in the
    project's folder or the working directory may set only what is harmless (`Setting.project`) unless the user has
    trusted it or `trusted` is set: the rest is refused and reported, and a file with an error is left out and reported.
    In an `openclaw.json` the entry of `agent_id` in `agents.list` overrides `agents.defaults`.

        load(files=["holdfast.toml"], recall={"position": "head"}).settings.recall.position

    Raises:
        SettingsError: A file cannot be read, or a setting is unknown, of the wrong kind or out of range; not for a file
            that is left out.
    """
    environ = os.environ if environ is None else environ
    in_order = sorted((Path(file) for file in files), key=lambda path: path.suffix != ".toml")
    above = (
        _Source(name="arguments", environ=environ).read_tables(overrides),
        _Source(name="environment", environ=environ).read_environment(),
    )
    read = [_load_file(path, environ=environ, project=project, trusted=trusted, agent=agent_id) for path in in_order]
    try:
        return _combine(above, read)
    except SettingsError as error:
        # Values can contradict each other although each is valid. An untrusted file must not break those of the user.
        if not any(file.is_limited for file in read):
            raise
        return _combine(above, [file.leave_out(error) if file.is_limited else file for file in read])


def _combine(above: Iterable[_Layer], files: Iterable[_File]) -> Loaded:
    """Combine the layers above all files with those of the files, strongest first."""
    layers = [*above]
    refused: dict[Path, tuple[str, ...]] = {}
    problems: list[str] = []
    for file in files:
        layers += file.layers
        if keys := dict.fromkeys(key for layer in file.layers for key in layer.refused):
            refused[file.path] = tuple(keys)
        if file.problem:
            problems.append(file.problem)
    values, origins = _merge(layers)
    return Loaded(
        settings=_build(Settings, values, origins),
        origins=MappingProxyType({row.key: origins.get(row.key, "default") for row in settings_table()}),
        ignored=MappingProxyType({name: place for layer in reversed(layers) for name, place in layer.ignored.items()}),
        refused=MappingProxyType(refused),
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


def user_files(*, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the settings files that exist and belong to no project: of the user, of OpenClaw, of pi."""
    import platformdirs  # noqa: PLC0415 - most callers name their files

    environ = os.environ if environ is None else environ
    openclaw = environ.get("OPENCLAW_CONFIG_PATH") or "~/.openclaw/openclaw.json"
    pi = environ.get("PI_CODING_AGENT_DIR") or "~/.pi/agent"
    places = (
        platformdirs.user_config_path("holdfast") / "holdfast.toml",
        Path(openclaw).expanduser(),
        Path(pi).expanduser() / PI_FILE,
    )
    return tuple(path for path in places if path.is_file())


def _load_file(
    path: Path, *, environ: Mapping[str, str], project: Path | None, trusted: bool, agent: str | None
) -> _File:
    """Read a settings file. If it has an error and the user did not write it (an untrusted one, pi's), leave it out."""
    if path.suffix not in {".toml", ".json", ".json5", ".jsonc"}:
        raise SettingsError("expected a .toml file, or an openclaw.json", source=str(path))
    file = _File(path=path, is_limited=not trusted and is_project_file(path, project=project))
    try:
        data = read_file(path)  # read once, so that the content that is checked for trust is the content in use
        if file.is_limited and is_trusted(path, data):
            file = replace(file, is_limited=False)
        source = _Source(name=str(path), environ=environ, limited=file.is_limited)
        return replace(file, layers=source.read_file(path, data, agent))
    except SettingsError as error:
        if file.is_limited:
            return file.leave_out(error)
        if path.name == PI_FILE:
            return replace(file, problem=f"{error}. Its settings are left out.")
        raise


def _merge(layers: Iterable[_Layer]) -> tuple[dict[str, object], dict[str, str]]:
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


def read_file(path: Path) -> bytes:
    """Read a settings file; one that cannot be read, or is too large, is a SettingsError."""
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", source=str(path)) from error
    if len(data) > _MAX_FILE_BYTES:
        raise SettingsError("too large for a settings file; is it the right one?", source=str(path))
    return data


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
    if path in tree.branches:
        # The value is not shown: it may be an API key in place of its section.
        kind = type(value).__name__
        return SettingsError(f"expected a table of settings, found a value of type {kind}", source=source, key=path)
    return SettingsError("unknown setting.", source=source, key=_show_name(path), nearest=tree.nearest(path))


def _show_name(name: str) -> str:
    return name[:_MAX_NAME_CHARS] if name.isprintable() else ascii(name[:_MAX_NAME_CHARS])


_CACHE_TTL: Final = "agents.defaults.models.*.params.cacheControlTtl"


@cache
def _openclaw_names() -> Any:
    # `foreign` has OpenClaw's own names by level, `twins` the levels with the same names as another one. On a `shared`
    # level any other name is OpenClaw's too, except those of `sections`, which are always ours. `agent_only` are names
    # in an entry of `agents.list` that do not override `agents.defaults`.
    return load_data("openclaw_names.json")


def _is_foreign(path: str, tree: Tree) -> bool:
    if path in tree.branches:
        return False
    names = _openclaw_names()
    level, _, name = path.rpartition(".")
    for twin, original in names["twins"].items():
        if f"{level}.".startswith(f"{twin}."):
            level = original + level.removeprefix(twin)
    if name in names["foreign"].get(level, "").split():
        return True
    return level in names["shared"] and name not in names["sections"].split() and not tree.find_similar(path)


# --- sources ----------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """Where settings come from. One that is `limited` may set only what is harmless."""

    name: str
    environ: Mapping[str, str]
    limited: bool = False

    def make_layer(
        self,
        raw_values: Mapping[str, object],
        *,
        names: Callable[[Setting], tuple[str, ...]],
        ignored: Mapping[str, str] = _NONE,
        refused: tuple[str, ...] = (),
        from_text: bool = False,
    ) -> _Layer:
        """Check the values. Of several names for one setting the first is used and the others are ignored."""
        values: dict[str, object] = {}
        origins: dict[str, str] = {}
        unused = dict(ignored)
        for row in settings_table() if raw_values else ():
            given = [name for name in names(row) if name in raw_values]
            if given:
                values[row.key] = self.check(raw_values[given[0]], row, given[0], strict=not from_text)
                origins[row.key] = f"{self.name}: {given[0]}"
                unused |= dict.fromkeys(given[1:], f"{self.name}: {given[0]} says the same")
            if row.key in values and row.rival in values:
                raise SettingsError(f"says the same as {row.rival!r}; keep one of them", source=self.name, key=row.key)
        return _Layer(values=values, origins=origins, ignored=unused, refused=refused)

    def check(self, value: object, row: Setting, name: str, *, strict: bool) -> object:
        try:
            if row.secret and isinstance(value, str):
                return Secret.expand(value, self.environ)
            return msgspec.convert(row.read(value), row.type, strict=strict)
        except KeyError as error:
            message = f"the environment variable {error.args[0]} is not set"
            raise SettingsError(message, source=self.name, key=name) from error
        except (ValueError, msgspec.ValidationError):
            # `from None`: the cause would repeat the value, which may be a secret.
            try:
                shown = "a value of another kind" if row.secret else reprlib.repr(value)
            except ValueError:  # Python does not print very long numbers
                shown = f"a very long {type(value).__name__}"
            raise SettingsError(f"expected {row.kind}, found {shown}", source=self.name, key=name) from None

    def sort_names(
        self, data: Mapping[str, Any], tree: Tree
    ) -> tuple[dict[str, object], dict[str, object], tuple[str, ...]]:
        """Return the values of settings, those of unknown names, and the settings that this source may not set."""
        values, others, refused = {}, {}, []
        for name, value in _walk_names(data, tree):
            row = tree.leaves.get(name)
            if row is None:
                others[name] = value
            elif self.limited and not row.project:
                refused.append(row.key)
            else:
                values[name] = value
        return values, others, tuple(refused)

    def read_file(self, path: Path, data: bytes, agent: str | None) -> tuple[_Layer, ...]:
        """Read the content of a settings file of any kind."""
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise SettingsError(f"line {line} is not UTF-8 text", source=self.name) from error
        if path.suffix == ".toml":
            return (self.read_tables(self.parse_toml(text)),)
        if path.name == PI_FILE:
            return (self.read_pi(self.parse_json(text)),)
        return self.read_openclaw(self.parse_json(text), agent)

    def read_environment(self) -> _Layer:
        """Read the variables `HOLDFAST_<SECTION>__<FIELD>`; an empty variable counts as not set."""

        def names(row: Setting) -> tuple[str, ...]:
            return (row.variable, *(f"{_PREFIX}{alias.upper()}" for alias in row.aliases))

        known = {name: row for row in settings_table() for name in names(row)}
        given = {name: text for name, text in self.environ.items() if name.startswith(_PREFIX) and text}
        others = sorted(given.keys() - known.keys() - _NOT_SETTINGS)
        for name in others:
            self.refuse_misspelt(name, known)
        raw_values = {name: row.parse_text(given[name]) for name, row in known.items() if name in given}
        return self.make_layer(raw_values, names=names, ignored=dict.fromkeys(others, self.name), from_text=True)

    def read_tables(self, data: Mapping[str, object]) -> _Layer:
        tree = toml_tree()
        raw_values, others, refused = self.sort_names(data, tree)
        if others:
            raise _make_unknown_error(*next(iter(others.items())), tree, source=self.name)
        return self.make_layer(raw_values, names=lambda row: (row.key, *row.aliases), refused=refused)

    def read_pi(self, whole: Mapping[str, Any]) -> _Layer:
        """Read what the settings of pi say of compaction; the rest is pi's own."""
        section = whole.get("compaction", {})
        if not isinstance(section, Mapping):
            raise SettingsError("expected an object", source=self.name, key="compaction")
        given = {f"compaction.{name}": value for name, value in section.items()}
        return self.make_layer(given, names=lambda row: _PI_NAMES.get(row.key, ()))

    def read_openclaw(self, whole: Mapping[str, Any], agent: str | None) -> tuple[_Layer, ...]:
        """Read an `openclaw.json`: the overrides of `agent`, if it is listed, then the settings of all agents."""
        agents = whole.get("agents")
        listed = agents.get("list") if isinstance(agents, Mapping) else None
        own = (
            next((entry for entry in listed if self.is_agent(entry, agent)), None) if isinstance(listed, list) else None
        )
        if own is None or not isinstance(agents, Mapping):
            return (self.read_openclaw_names(whole),)
        overrides = {name: value for name, value in own.items() if name not in _openclaw_names()["agent_only"].split()}
        own_source = replace(self, name=f"{self.name}, agents.list {agent!r}")
        defaults = {**whole, "agents": {name: value for name, value in agents.items() if name != "list"}}
        return own_source.read_openclaw_names({"agents": {"defaults": overrides}}), self.read_openclaw_names(defaults)

    def read_openclaw_names(self, data: Mapping[str, Any]) -> _Layer:
        tree = openclaw_tree()
        ignored: dict[str, str] = {}
        raw_values, others, refused = self.sort_names(data, tree)
        for name, value in others.items():
            if not _is_foreign(name, tree):
                raise _make_unknown_error(name, value, tree, source=self.name)
            ignored[name] = self.name
            if name == "agents.defaults.models" and '"cacheControlTtl"' in json.dumps(value):
                ignored[_CACHE_TTL] = self.name
        self.apply_slot(raw_values, data, ignored)
        for name, value in list(raw_values.items()):
            if tree.leaves[name].secret:
                raw_values[name], missing = self.resolve_secret(value)
                if missing:
                    del raw_values[name]
                    ignored[name] = f"{self.name}: {missing}"
            elif isinstance(value, float) and value.is_integer():
                raw_values[name] = int(value)  # JavaScript has one kind of number: 2e4 and 20000.0 are whole numbers
        return self.make_layer(raw_values, names=lambda row: row.openclaw, ignored=ignored, refused=refused)

    def apply_slot(self, raw_values: dict[str, object], data: Mapping[str, Any], ignored: dict[str, str]) -> None:
        """Ignore the entries of memory plugins that are not in the slot; one in the slot without an entry is off."""
        slot = raw_values.get("plugins.slots.memory")
        if slot is None:
            return
        is_ours = "holdfast" in (slot, raw_values.get("plugins.slots.contextEngine"))  # an older section still holds
        used = {slot, "memory-context"} if is_ours else {slot}
        for plugin in {"memory-context", "memory-lancedb"} - used:
            place = f"plugins.entries.{plugin}."
            for name in [name for name in raw_values if name.startswith(place)]:
                del raw_values[name]
                ignored[name] = f"{self.name}: plugins.slots.memory is {slot!r}"
        if slot == "memory-context" and "memory-context" not in (data["plugins"].get("entries") or {}):
            raw_values["plugins.entries.memory-context.enabled"] = False

    def resolve_secret(self, value: object) -> tuple[object, str]:
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
            return Secret.expand(text, self.environ), ""
        except KeyError as error:
            return value, f"the environment variable {error.args[0]} is not set"

    def parse_toml(self, text: str) -> Mapping[str, Any]:
        import tomllib  # noqa: PLC0415 - most runs read no file

        deep = re.search(_DEEP_KEY, text)
        if deep:
            place = text.count("\n", 0, deep.start()) + 1
            raise SettingsError(f"line {place} has a key of more than {_MAX_KEY_PARTS} parts", source=self.name)
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            number = line[1] if line else text.count("\n") + 1
            raise SettingsError(f"line {number} is not valid TOML: {error}", source=self.name) from error
        except (RecursionError, ValueError) as error:
            raise SettingsError("not valid TOML: nested too deeply, or a number too long", source=self.name) from error

    def parse_json(self, text: str) -> Mapping[str, Any]:
        try:
            data = json.loads(text)  # much faster than JSON5, and enough for files that programs write
        except (ValueError, RecursionError):
            import json5  # noqa: PLC0415 - only for files that people write

            try:
                data = json5.loads(text)
            except ValueError as error:
                reason = str(error).removeprefix("<string>:")
                line, _, rest = reason.partition(" ")
                what = f"line {line} is not valid JSON5: {rest}" if line.isdigit() else f"is not valid JSON5: {reason}"
                raise SettingsError(what, source=self.name) from error
            except RecursionError as error:
                raise SettingsError("not valid JSON5: nested too deeply", source=self.name) from error
        if not isinstance(data, dict):
            raise SettingsError("expected an object with settings", source=self.name)
        return data

    def refuse_misspelt(self, name: str, known: Collection[str]) -> None:
        """Raise for a variable that looks like a misspelt setting; others may belong to another program."""
        near = find_similar_names(name, known, cutoff=_SIMILAR)
        if near or "__" in name:
            near = near or find_similar_names(name, known, cutoff=_LIKELY)
            raise SettingsError("unknown setting.", source=self.name, key=_show_name(name), nearest=near)

    @staticmethod
    def is_agent(entry: object, agent: str | None) -> bool:
        name = entry.get("id") if isinstance(entry, Mapping) else None
        return agent is not None and isinstance(name, str) and name.strip().lower() == agent.strip().lower()
