"""The schema as a flat table: one row for each setting, with all of its names."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect

from holdfast.settings.schema import Settings
from holdfast.settings.values import Kind, Notes, Secret, spell_duration

__all__ = ["Setting", "Tree", "as_dict", "look_alikes", "openclaw_tree", "settings_table", "struct_of", "toml_tree"]

_COMPARED: Final = 80
"""How much of a name is compared: longer ones are accidents, and comparing takes quadratic time."""
_CLOSE: Final = 0.8
_LIKELY: Final = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its dotted name, its type and default, and every other way to spell it."""

    key: str
    type: Any
    kind: str
    default: object
    description: str
    aliases: tuple[str, ...] = ()
    openclaw: tuple[str, ...] = ()
    rival: str = ""
    read: Callable[[object], object] | None = None
    secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HOLDFAST_{self.key.replace('.', '__').upper()}"

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return get_origin(_bare(self.type)) is tuple


@dataclass(frozen=True, slots=True)
class Tree:
    """The names of one kind of file: those that hold a value, and those that hold other names."""

    leaves: Mapping[str, Setting]
    branches: frozenset[str]

    def resembling(self, path: str, *, cutoff: float = _CLOSE) -> list[str]:
        """At most two names beside this one that look like it."""
        parent, _, name = path.rpartition(".")
        beside = {each.rpartition(".")[2]: each for each in self._all() if each.rpartition(".")[0] == parent}
        return [beside[match] for match in look_alikes(name, beside, cutoff=cutoff)]

    def nearest(self, path: str) -> list[str]:
        """At most two valid names for an unknown one: a look-alike beside it, or its namesake elsewhere."""
        name = _plain(path.rpartition(".")[2])
        namesakes = [each for each in self._all() if _plain(each.rpartition(".")[2]) == name]
        return self.resembling(path) or namesakes[:2] or self.resembling(path, cutoff=_LIKELY)

    def _all(self) -> list[str]:
        return sorted(self.branches.union(self.leaves))


@cache
def settings_table() -> tuple[Setting, ...]:
    """Every setting, in the order of the schema."""
    return tuple(_rows(Settings, key="", paths=()))


@cache
def toml_tree() -> Tree:
    """The names in `holdfast.toml` and in keyword arguments."""
    return _tree((name, row) for row in settings_table() for name in (row.key, *row.aliases))


@cache
def openclaw_tree() -> Tree:
    """The names in `openclaw.json`."""
    return _tree((path, row) for row in settings_table() for path in row.openclaw)


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:
    """The section that a field holds, if it holds one."""
    bare = _bare(annotation)
    return bare if isinstance(bare, type) and issubclass(bare, msgspec.Struct) else None


def look_alikes(name: str, valid: Iterable[str], *, cutoff: float) -> list[str]:
    """At most two of the valid names that look like this one, best first; case and joints do not count."""
    plain = {_plain(each): each for each in valid}
    return [plain[match] for match in difflib.get_close_matches(_plain(name[:_COMPARED]), plain, n=2, cutoff=cutoff)]


def as_dict(settings: Settings, *, reveal: bool = False) -> dict[str, Any]:
    """The settings as `holdfast.toml` would hold them. Secrets are left out unless they are to be revealed."""
    root: dict[str, Any] = {}
    for row in settings_table():
        *sections, name = row.key.split(".")
        value: Any = settings
        table = root
        for section in sections:
            value = getattr(value, section)
            table = table.setdefault(section, {})
        value = getattr(value, name)
        # Of two rivals only the one that was set may be said.
        said = value != row.default if row.rival else value is not None
        if said and (reveal or not row.secret):
            table[name] = _spelled(value)
    return root


def _spelled(value: object) -> object:
    match value:
        case timedelta():
            return spell_duration(value)
        case Secret():
            return value.spell()
        case tuple():
            return [_spelled(item) for item in value]
        case msgspec.Struct():
            return {name: item for name, item in msgspec.structs.asdict(value).items() if item is not None}
        case _:
            return value


def _rows(struct: type[msgspec.Struct], *, key: str, paths: tuple[str, ...]) -> Iterator[Setting]:
    for field in msgspec.structs.fields(struct):
        notes = _extra(field.type, "notes") or Notes()
        name = f"{key}.{field.name}" if key else field.name
        below = tuple(f"{path}.{notes.spelled or _camel(field.name)}" for path in paths)
        places = () if notes.openclaw is None else notes.openclaw or below
        section = struct_of(field.type)
        if section is not None:
            yield from _rows(section, key=name, paths=places)
        else:
            yield _row(field, name=name, places=places, notes=notes, parents=(key, paths))


def _row(
    field: msgspec.structs.FieldInfo,
    *,
    name: str,
    places: tuple[str, ...],
    notes: Notes,
    parents: tuple[str, tuple[str, ...]],
) -> Setting:
    kind = _extra(field.type, "kind")
    words = _words(inspect.type_info(field.type))
    return Setting(
        key=name,
        type=field.type,
        kind=kind.words or words if isinstance(kind, Kind) else words,
        default=field.default,
        description=next((meta.description for meta in _metas(field.type) if meta.description), ""),
        aliases=(parents[0],) if notes.shorthand else (),
        openclaw=places + parents[1] if notes.shorthand else places,
        rival=notes.rival,
        read=kind.read if isinstance(kind, Kind) else None,
        secret=Secret in (_bare(field.type), *get_args(_bare(field.type))),
    )


def _tree(names: Iterable[tuple[str, Setting]]) -> Tree:
    leaves = dict(names)
    branches = {path[: dot.start()] for path in leaves for dot in re.finditer(r"\.", path)}
    return Tree(leaves, frozenset(branches))


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """What is said about a type, and about the parts of a union."""
    if get_origin(annotation) is not Annotated:
        return []
    bare, *metas = get_args(annotation)
    return [*metas, *(meta for part in get_args(bare) for meta in _metas(part))]


def _extra(annotation: Any, name: str) -> Any:
    return next((meta.extra[name] for meta in _metas(annotation) if meta.extra and name in meta.extra), None)


def _words(info: inspect.Type) -> str:
    """The words for a type, for the reference and for errors."""
    match info:
        case inspect.Metadata():
            return _words(info.type)
        case inspect.UnionType():
            return _words(next(part for part in info.types if not isinstance(part, inspect.NoneType)))
        case inspect.LiteralType():
            return _either(info.values)
        case inspect.VarTupleType():
            return f"list of {_words(info.item_type)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"whole number, {info.ge:,} to {info.le:,}"
        case inspect.FloatType():
            return f"number, {info.ge:g} to {info.le:g}"
        case _:
            return "text"


def _either(values: Iterable[object]) -> str:
    *most, last = (f'"{value}"' for value in values)
    return f"{', '.join(most)} or {last}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
