"""Read the settings of one source: keyword arguments, the environment, a `holdfast.toml`, the settings of pi.

`openclaw.py` reads an `openclaw.json`. Each source becomes a `Layer`; `loading.py` merges them.
"""

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
from holdfast.settings.schema import Secret
from holdfast.settings.table import Schema, Setting, Tree, find_similar_names

AGENT_TABLE: Final = "agent"
"""The settings of `holdfast chat`: a table in a `holdfast.toml`. A program that has none of them leaves it alone."""

_MAX_FILE_BYTES: Final = 512 * 1024
"""A settings file has a few kilobytes; anything near this is another kind of file."""

_MAX_KEY_PARTS: Final = 16
_DEEP_KEY: Final = (
    r"(?<![\w\"'.-])(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
    rf"(?:[ \t]*+\.[ \t]*+(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')){{{_MAX_KEY_PARTS}}}"
)
"""Matches a dotted key that is too long: the parser needs memory quadratic in its parts."""

_PI_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "compaction.enabled": ("compaction.enabled",),
    "compaction.reserve_tokens": ("compaction.reserveTokens",),
    "compaction.keep_recent_tokens": ("compaction.keepRecentTokens",),
}
"""The settings that pi has too, with the names in its file."""

_PREFIX: Final = "HOLDFAST_"
_AGENT_PREFIX: Final = f"{_PREFIX}{AGENT_TABLE.upper()}__"
_NOT_SETTINGS: Final = frozenset({"HOLDFAST_HOME", "HOLDFAST_TOKEN"})
"""Variables that are not settings: the folder of the memory, and the owner's token for hosts that read it there."""
_SIMILAR: Final = 0.9
"""A variable this similar to a setting is a misspelt setting, not the variable of another program."""
_LIKELY: Final = 0.45
_MAX_NAME_CHARS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The settings of one source: values and their places, names that were not used, settings that it may not set."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedNames:
    """The names of a file: the values of settings, those of unknown names, and the settings that it may not set."""

    values: dict[str, object]
    unknown: dict[str, object]
    refused: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where settings come from. One that is `limited` may set only what is harmless (`Setting.project`)."""

    name: str
    schema: Schema[Any]
    environ: Mapping[str, str]
    limited: bool = False

    @property
    def has_agent(self) -> bool:
        """Whether the schema includes the settings of the agent."""
        return AGENT_TABLE in self.schema.toml.branches

    def make_layer(
        self,
        raw_values: Mapping[str, object],
        *,
        names: Callable[[Setting], tuple[str, ...]],
        ignored: Mapping[str, str] | None = None,
        refused: Collection[str] = (),
        from_text: bool = False,
    ) -> Layer:
        """Check the values. Of several names for one setting the first is used and the others are ignored."""
        values: dict[str, object] = {}
        origins: dict[str, str] = {}
        unused = dict(ignored or {})
        for row in self.schema.rows:
            given = [name for name in names(row) if name in raw_values]
            if not given:
                continue
            first, *others = given
            values[row.key] = self.check(raw_values[first], row, first, strict=not from_text)
            origins[row.key] = f"{self.name}: {first}"
            for name in others:
                unused[name] = f"{self.name}: {first} is the same setting"
            if row.rival in values:
                raise SettingsError(
                    f"is the same setting as {row.rival!r}; keep one of them", source=self.name, key=row.key
                )
        return Layer(values=values, origins=origins, ignored=unused, refused=tuple(refused))

    def check(self, value: object, row: Setting, name: str, *, strict: bool) -> object:
        """Return a value as the setting holds it; one of the wrong kind or out of range is a SettingsError."""
        try:
            if row.secret and isinstance(value, str):
                return Secret.expand(value, self.environ)
            return msgspec.convert(row.read(value), row.type, strict=strict)
        except KeyError as error:
            message = f"the environment variable {error.args[0]} is not set"
            raise SettingsError(message, source=self.name, key=name) from error
        except (ValueError, msgspec.ValidationError):
            # `from None`: the cause would repeat the value, which may be a secret.
            raise SettingsError(
                f"expected {row.kind}, found {_show_value(value, row)}", source=self.name, key=name
            ) from None

    def sort_names(self, data: Mapping[str, Any], tree: Tree) -> SortedNames:
        """Sort the names of a file: settings, settings that this source may not set, and unknown names."""
        names = SortedNames(values={}, unknown={}, refused=[])
        for name, value in _walk_names(data, tree):
            row = tree.leaves.get(name)
            if row is None:
                names.unknown[name] = value
            elif self.limited and not row.project:
                names.refused.append(row.key)
            else:
                names.values[name] = value
        return names

    def read_tables(self, data: Mapping[str, object]) -> Layer:
        """Read nested tables: those of a `holdfast.toml`, or keyword arguments."""
        names = self.sort_names(data, self.schema.toml)
        for name, value in names.unknown.items():
            raise self.make_unknown_error(name, value, self.schema.toml)
        return self.make_layer(names.values, names=lambda row: (row.key, *row.aliases), refused=names.refused)

    def read_toml(self, text: str) -> Layer:
        """Read a `holdfast.toml`. The table of the agent is left to the agent, which checks it."""
        tables = dict(self._parse_toml(text))
        if self.has_agent or AGENT_TABLE not in tables:
            return self.read_tables(tables)
        del tables[AGENT_TABLE]
        layer = self.read_tables(tables)
        return replace(layer, ignored={**layer.ignored, AGENT_TABLE: self.name})

    def read_environment(self) -> Layer:
        """Read the variables `HOLDFAST_<SECTION>__<FIELD>`; an empty variable counts as not set."""

        def names(row: Setting) -> tuple[str, ...]:
            return (row.variable, *(f"{_PREFIX}{alias.upper()}" for alias in row.aliases))

        raw_values: dict[str, object] = {}
        ignored: dict[str, str] = {}
        variables = {name: text for name, text in self.environ.items() if name.startswith(_PREFIX) and text}
        known: dict[str, Setting] = {}
        if variables:
            for row in self.schema.rows:
                for name in names(row):
                    known[name] = row
        for name, text in sorted(variables.items()):
            if name in _NOT_SETTINGS:
                continue
            if name in known:
                raw_values[name] = known[name].parse_text(text)
                continue
            if self.has_agent or not name.startswith(_AGENT_PREFIX):
                self._refuse_misspelt(name, known)
            ignored[name] = self.name
        return self.make_layer(raw_values, names=names, ignored=ignored, from_text=True)

    def read_pi(self, text: str) -> Layer:
        """Read the compaction settings of pi; its other settings are ignored."""
        section = self.parse_json(text).get("compaction", {})
        if not isinstance(section, Mapping):
            raise SettingsError("expected an object", source=self.name, key="compaction")
        given = {f"compaction.{name}": value for name, value in section.items()}
        return self.make_layer(given, names=lambda row: _PI_NAMES.get(row.key, ()))

    def parse_json(self, text: str) -> Mapping[str, Any]:
        """Parse JSON or JSON5 that must be an object."""
        try:
            data = json.loads(text)  # much faster than JSON5, and enough for files that programs write
        except (ValueError, RecursionError):
            data = self._parse_json5(text)
        if not isinstance(data, dict):
            raise SettingsError("expected an object with settings", source=self.name)
        return data

    def _parse_json5(self, text: str) -> Any:
        import json5  # noqa: PLC0415 - only for files that people write

        try:
            return json5.loads(text)
        except ValueError as error:
            reason = str(error).removeprefix("<string>:")
            line, _, rest = reason.partition(" ")
            what = f"line {line} is not valid JSON5: {rest}" if line.isdigit() else f"is not valid JSON5: {reason}"
            raise SettingsError(what, source=self.name) from error
        except RecursionError as error:
            raise SettingsError("not valid JSON5: nested too deeply", source=self.name) from error

    def _parse_toml(self, text: str) -> Mapping[str, Any]:
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

    def _refuse_misspelt(self, name: str, known: Collection[str]) -> None:
        """Raise for a variable that looks like a misspelt setting; others may belong to another program."""
        near = find_similar_names(name, known, cutoff=_SIMILAR)
        if not near and "__" not in name:
            return
        if not near:
            near = find_similar_names(name, known, cutoff=_LIKELY)
        raise SettingsError("unknown setting.", source=self.name, key=_show_name(name), nearest=near)

    def make_unknown_error(self, path: str, value: object, tree: Tree) -> SettingsError:
        """Make the error for an unknown name, or for a value in place of a section."""
        if path in tree.branches:
            # The value is not shown: it may be an API key in place of its section.
            kind = type(value).__name__
            what = f"expected a table of settings, found a value of type {kind}"
            return SettingsError(what, source=self.name, key=path)
        return SettingsError("unknown setting.", source=self.name, key=_show_name(path), nearest=tree.nearest(path))


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
    """Yield every dotted name that has a value, or that is not in the tree."""
    for name, value in data.items():
        # A name with a dot in it is not a path: in quotes it matches nothing.
        path = f'{prefix}"{name}"' if "." in str(name) else f"{prefix}{name}"
        if isinstance(value, Mapping) and path in tree.branches:
            yield from _walk_names(value, tree, prefix=f"{path}.")
        else:
            yield path, value


def _show_value(value: object, row: Setting) -> str:
    if row.is_hidden:
        return "a value of another kind"
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not print very long numbers
        return f"a very long {type(value).__name__}"


def _show_name(name: str) -> str:
    short = name[:_MAX_NAME_CHARS]
    return short if name.isprintable() else ascii(short)
