"""The places settings come from, each read into a layer of checked values."""

import re
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import SettingsError
from holdfast.files import open_regular
from holdfast.settings.table import Setting, Tree, look_alikes, settings_table, toml_tree
from holdfast.settings.values import Secret

__all__ = ["Layer", "arguments", "layer", "nodes", "read_file", "text_of", "toml_file", "unknown", "variables"]

_LARGEST: Final = 512 * 1024
"""A settings file is a few kilobytes; anything near this is another file."""

_MAX_KEY_PARTS: Final = 16
_DEEP_KEY: Final = re.compile(
    r"(?<![\w\"'.-])(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
    rf"(?:[ \t]*+\.[ \t]*+(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')){{{_MAX_KEY_PARTS}}}"
)
"""A dotted key that is too long: the parser takes memory by the square of its parts."""

_PREFIX: Final = "HOLDFAST_"
_NOT_SETTINGS: Final = frozenset({"HOLDFAST_HOME"})
_ALIKE: Final = 0.9
_LIKELY: Final = 0.45
_LINE: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one source says: values and where each was found, by setting; and the names that were passed over.

    `refused` are the settings that this source may not set.
    """

    values: Mapping[str, object]
    origins: Mapping[str, str]
    ignored: Mapping[str, str]
    refused: tuple[str, ...] = ()


def layer(
    found: Mapping[str, object],
    *,
    names: Callable[[Setting], tuple[str, ...]],
    source: str,
    environ: Mapping[str, str],
    ignored: Mapping[str, str],
    from_text: bool = False,
) -> Layer:
    """Check what was found. Of several names for one setting the first counts and the others are passed over."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    passed = dict(ignored)
    for row in settings_table():
        spelled = [name for name in names(row) if name in found]
        if spelled:
            raw = _expanded(found[spelled[0]], environ, row=row, at=(source, spelled[0]))
            values[row.key] = _checked(raw, row, at=(source, spelled[0]), strict=not from_text)
            origins[row.key] = f"{source}: {spelled[0]}"
            passed |= dict.fromkeys(spelled[1:], f"{source}: {spelled[0]} says the same")
        if row.key in values and row.rival in values:
            raise SettingsError(f"says the same as {row.rival!r}; keep one of them", source=source, key=row.key)
    return Layer(values=values, origins=origins, ignored=passed)


def arguments(overrides: Mapping[str, object], *, environ: Mapping[str, str]) -> Layer:
    """Keyword arguments: a mapping for each section."""
    return _native(overrides, source="arguments", environ=environ)


def variables(environ: Mapping[str, str]) -> Layer:
    """`HOLDFAST_<SECTION>__<FIELD>`; an empty variable counts as not set."""
    known = {name: row for row in settings_table() for name in _variables(row)}
    given = {name: text for name, text in environ.items() if name.startswith(_PREFIX) and text}
    others = sorted(given.keys() - known.keys() - _NOT_SETTINGS)
    for name in others:
        near = look_alikes(name, known, cutoff=_ALIKE)
        if near or "__" in name:
            near = near or look_alikes(name, known, cutoff=_LIKELY)
            raise SettingsError("unknown setting.", source="environment", key=_shown_name(name), nearest=near)
    found = {name: _from_text(row, given[name]) for name, row in known.items() if name in given}
    return layer(
        found,
        names=_variables,
        source="environment",
        environ=environ,
        ignored=dict.fromkeys(others, "environment"),
        from_text=True,
    )


def toml_file(data: bytes, *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None = None) -> Layer:
    """Read a `holdfast.toml`; of the settings in it only those that are allowed, where there is a list of them."""
    import tomllib  # noqa: PLC0415 - most runs read no file

    text = text_of(data, source=source)
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
    return _native(tables, source=source, environ=environ, allowed=allowed)


def read_file(path: Path) -> bytes:
    """Read a settings file.

    Raises:
        SettingsError: It cannot be read, or is too large for one.
    """
    try:
        with open_regular(path) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise SettingsError(f"cannot be read: {error.strerror}", source=str(path)) from error
    if len(data) > _LARGEST:
        raise SettingsError("too large for a settings file; is it the right one?", source=str(path))
    return data


def text_of(data: bytes, *, source: str) -> str:
    """Decode a settings file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"line {line} is not UTF-8 text", source=source) from error


def nodes(data: Mapping[str, Any], tree: Tree, *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted name that holds a value, or that the tree does not know."""
    for name, value in data.items():
        # A dot inside a name is no path: quoted, it matches nothing.
        path = f'{prefix}"{name}"' if "." in str(name) else f"{prefix}{name}"
        if isinstance(value, Mapping) and path in tree.branches:
            yield from nodes(value, tree, prefix=f"{path}.")
        else:
            yield path, value


def unknown(path: str, value: object, tree: Tree, *, source: str) -> SettingsError:
    """The error for a name that holds no value of ours."""
    if path in tree.branches:
        # The value itself is not told: a key may have been put in place of its section.
        kind = type(value).__name__
        return SettingsError(f"expected a table of settings, found a value of type {kind}", source=source, key=path)
    return SettingsError("unknown setting.", source=source, key=_shown_name(path), nearest=tree.nearest(path))


def _native(
    data: Mapping[str, object], *, source: str, environ: Mapping[str, str], allowed: Collection[str] | None = None
) -> Layer:
    tree = toml_tree()
    found: dict[str, object] = {}
    refused: list[str] = []
    for path, value in nodes(data, tree):
        if path not in tree.leaves:
            raise unknown(path, value, tree, source=source)
        if allowed is None or tree.leaves[path].key in allowed:
            found[path] = value
        else:
            refused.append(tree.leaves[path].key)
    known = layer(found, names=lambda row: (row.key, *row.aliases), source=source, environ=environ, ignored={})
    return replace(known, refused=tuple(refused))


def _variables(row: Setting) -> tuple[str, ...]:
    return (row.variable, *(f"{_PREFIX}{alias.upper()}" for alias in row.aliases))


def _from_text(row: Setting, text: str) -> object:
    """What a variable's text stands for. A list is JSON or separated by commas; the rest is told by its kind later."""
    if not row.is_list:
        return text
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SettingsError("not a valid JSON list", source="environment", key=row.variable) from error
    return [item.strip() for item in text.split(",") if item.strip()]


def _expanded(value: object, environ: Mapping[str, str], *, row: Setting, at: tuple[str, str]) -> object:
    if not row.secret or not isinstance(value, str):
        return value
    try:
        return Secret.expand(value, environ)
    except KeyError as error:
        message = f"the environment variable {error.args[0]} is not set"
        raise SettingsError(message, source=at[0], key=at[1]) from error


def _checked(value: object, row: Setting, *, at: tuple[str, str], strict: bool) -> object:
    try:
        return msgspec.convert(row.read(value) if row.read else value, row.type, strict=strict)
    except (ValueError, msgspec.ValidationError):
        # `from None`: the cause would repeat the value, and a secret must not show.
        found = "a value of another kind" if row.secret else _shown(value)
        raise SettingsError(f"expected {row.kind}, found {found}", source=at[0], key=at[1]) from None


def _shown_name(name: str) -> str:
    return name[:_LINE] if name.isprintable() else ascii(name[:_LINE])


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # Python does not print very long numbers
        return f"a very long {type(value).__name__}"
