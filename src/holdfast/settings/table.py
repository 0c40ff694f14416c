"""The schema as a flat table, with one row for each setting and all of its names; and the reference page."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect, structs

from holdfast.errors import SettingsError
from holdfast.settings.schema import Kind, Secret, Settings, spell_duration

_MAX_COMPARED_CHARS: Final = 80
"""Longer names are accidents, and comparing takes quadratic time."""
_CLOSE: Final = 0.8
_LIKELY: Final = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its dotted name, type, default and description.

    `openclaw` are its places in an `openclaw.json`, the preferred one first; `aliases` other names in a
    `holdfast.toml`; `rival` is the setting for the same thing in another unit: the one from the stronger source is
    used. The file of an untrusted `project` may set only sizes, thresholds and the order of a window: not commands,
    models, addresses, paths, prompts, masking or permissions.
    """

    key: str
    type: Any
    default: object
    description: str
    openclaw: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    rival: str = ""
    project: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HOLDFAST_{self.key.replace('.', '__').upper()}"

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return get_origin(_strip_annotation(self.type)) is tuple

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        bare = _strip_annotation(self.type)
        return Secret in (bare, *get_args(bare))

    @property
    def kind(self) -> str:
        """What it takes, in words."""
        kind = _find_kind(self.type)
        return (kind.words if kind else "") or _describe_type(inspect.type_info(self.type))

    def read(self, value: object) -> object:
        """Parse a value as far as its kind needs it."""
        kind = _find_kind(self.type)
        return kind.read(value) if kind else value

    def parse_text(self, text: str) -> object:
        """Parse text from the environment: a list is JSON or separated by commas, anything else is left as it is."""
        if not self.is_list:
            return text
        if text.lstrip().startswith("["):
            try:
                return msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise SettingsError("not a valid JSON list", source="environment", key=self.variable) from error
        return [item.strip() for item in text.split(",") if item.strip()]


@dataclass(frozen=True, slots=True)
class Tree:
    """The names in one kind of file: `leaves` hold a value, `branches` hold other names."""

    leaves: Mapping[str, Setting]
    branches: frozenset[str]

    def find_similar(self, path: str, *, cutoff: float = _CLOSE) -> list[str]:
        """Return at most two similar names on the same level."""
        parent, _, name = path.rpartition(".")
        siblings = {each.rpartition(".")[2]: each for each in self._list_names() if each.rpartition(".")[0] == parent}
        return [siblings[match] for match in find_similar_names(name, siblings, cutoff=cutoff)]

    def nearest(self, path: str) -> list[str]:
        """Return at most two valid names for an unknown one: a similar one on its level, or the same one elsewhere."""
        name = _normalise(path.rpartition(".")[2])
        namesakes = [each for each in self._list_names() if _normalise(each.rpartition(".")[2]) == name]
        return self.find_similar(path) or namesakes[:2] or self.find_similar(path, cutoff=_LIKELY)

    def _list_names(self) -> list[str]:
        return sorted(self.branches.union(self.leaves))


@cache
def settings_table() -> tuple[Setting, ...]:
    """Every setting, in the order of the schema."""
    rows = load_data("settings.json")  # an entry for each setting, or this fails
    return tuple(
        Setting(key=key, type=field.type, default=field.default, **rows[key]) for key, field in _list_fields(Settings)
    )


def load_data(name: str) -> Any:
    """Load a data file of this package."""

    def freeze(table: dict[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}

    return json.loads(Path(__file__).with_name(name).read_bytes(), object_hook=freeze)


@cache
def toml_tree() -> Tree:
    """The names in `holdfast.toml` and in keyword arguments."""
    return _make_tree((name, row) for row in settings_table() for name in (row.key, *row.aliases))


@cache
def openclaw_tree() -> Tree:
    """The names in `openclaw.json`."""
    return _make_tree((path, row) for row in settings_table() for path in row.openclaw)


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the section that a field holds, else None."""
    bare = _strip_annotation(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


def find_similar_names(name: str, valid: Iterable[str], *, cutoff: float) -> list[str]:
    """Return at most two similar valid names, best first; case, `_` and `-` are ignored."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    plain = {_normalise(each): each for each in valid}
    wanted = _normalise(name[:_MAX_COMPARED_CHARS])
    return [plain[match] for match in get_close_matches(wanted, plain, n=2, cutoff=cutoff)]


def as_dict(settings: Settings, *, reveal: bool = False) -> dict[str, Any]:
    """Return the settings as `holdfast.toml` would hold them, without secrets unless `reveal` is set."""
    root: dict[str, Any] = {}
    for row in settings_table():
        *sections, name = row.key.split(".")
        value: Any = settings
        table = root
        for section in sections:
            value = getattr(value, section)
            table = table.setdefault(section, {})
        value = getattr(value, name)
        # Of two rivals only the one that was set may be written.
        is_set = value != row.default if row.rival else value is not None
        if is_set and (reveal or not row.secret):
            table[name] = _encode(value)
    return root


def _encode(value: object) -> object:
    match value:
        case timedelta():
            return spell_duration(value)
        case Secret():
            return value.spell()
        case tuple():
            return [_encode(item) for item in value]
        case msgspec.Struct():
            return {name: item for name, item in structs.asdict(value).items() if item is not None}
        case _:
            return value


def _list_fields(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, structs.FieldInfo]]:
    for field in structs.fields(struct):
        section = struct_of(field.type)
        if section is not None:
            yield from _list_fields(section, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def _make_tree(names: Iterable[tuple[str, Setting]]) -> Tree:
    leaves = dict(names)
    branches = {path[: dot.start()] for path in leaves for dot in re.finditer(r"\.", path)}
    return Tree(leaves, frozenset(branches))


def _strip_annotation(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _find_kind(annotation: Any) -> Kind | None:
    bare, *metas = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    kinds = (meta.extra["kind"] for meta in metas if meta.extra)
    return next(kinds, None) or next((kind for part in get_args(bare) if (kind := _find_kind(part))), None)


def _describe_type(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            return _describe_type(info.type)
        case inspect.UnionType():
            return _describe_type(min(info.types, key=lambda part: isinstance(part, inspect.NoneType)))
        case inspect.LiteralType():
            *first, last = (f'"{value}"' for value in info.values)
            return f"{', '.join(first)} or {last}"
        case inspect.VarTupleType():
            return f"list of {_describe_type(info.item_type)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"whole number, {info.ge:,} to {info.le:,}"
        case inspect.FloatType():
            return f"number, {info.ge:g} to {info.le:g}"
        case _:
            return "text"


def _normalise(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def reference() -> str:
    """Return the reference of all settings in Markdown."""
    titles = {field.name: struct_of(field.type) for field in structs.fields(Settings)}
    page = [Path(__file__).with_name("reference.md").read_text("utf-8")]
    for section, rows in groupby(settings_table(), key=lambda row: row.key.partition(".")[0]):
        struct = titles[section]
        lines = ["| setting | kind | default | what it does, and its other names |", "| --- | --- | --- | --- |"]
        for row in rows:
            default = spell_duration(row.default) if isinstance(row.default, timedelta) else row.default
            shown = "unset" if default is None else f"`{json.dumps(default)}`"
            names = " · ".join(f"`{name}`" for name in (row.variable, *row.openclaw))
            lines.append(f"| `{row.key}` | {row.kind} | {shown} | {row.description}<br>{names} |")
        page.append(f"## `{section}`\n\n{struct.__doc__ if struct else ''}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(page)
