"""The table of settings: every setting of a schema with its type, default, description and names."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar, get_args, get_origin

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
    """One setting of a schema.

    Attributes:
        key: Its dotted name in a `holdfast.toml`.
        type: The annotation of its field.
        default: Its default.
        description: One sentence on what it does.
        when: One sentence on when to change it.
        openclaw: Its places in an `openclaw.json`, the preferred one first.
        aliases: Other names in a `holdfast.toml`.
        rival: The setting for the same thing in another unit; the one from the stronger source is used.
        project: Whether the file of an untrusted project may set it. That is limited to sizes, thresholds and the
            order of a window: no commands, models, addresses, paths, prompts, masking or permissions.
    """

    key: str
    type: Any
    default: object
    description: str
    when: str
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
        """The accepted values, in words."""
        kind = find_kind(self.type)
        if kind is not None and kind.words:
            return kind.words
        return _describe_type(inspect.type_info(self.type))

    @property
    def is_hidden(self) -> bool:
        """Whether a value that is refused must not be shown."""
        kind = find_kind(self.type)
        return self.secret or (kind is not None and kind.is_hidden)

    def read(self, value: object) -> object:
        """Parse a value as far as its kind needs it."""
        kind = find_kind(self.type)
        if kind is None:
            return value
        return kind.read(value)

    def parse_text(self, text: str) -> object:
        """Parse text from the environment: a list is JSON or separated by commas, anything else is left unchanged."""
        if not self.is_list:
            return text
        if text.lstrip().startswith("["):
            try:
                return msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise SettingsError("not a valid JSON list", source="environment", key=self.variable) from error
        items = (item.strip() for item in text.split(","))
        return [item for item in items if item]


@dataclass(frozen=True, slots=True)
class Tree:
    """The names in one kind of file: `leaves` hold a value, `branches` hold other names."""

    leaves: Mapping[str, Setting]
    branches: frozenset[str]

    def find_similar(self, path: str, *, cutoff: float = _CLOSE) -> list[str]:
        """Return at most two similar names on the same level."""
        level, _, name = path.rpartition(".")
        siblings: dict[str, str] = {}
        for known in self._list_names():
            parent, _, last = known.rpartition(".")
            if parent == level:
                siblings[last] = known
        return [siblings[match] for match in find_similar_names(name, siblings, cutoff=cutoff)]

    def nearest(self, path: str) -> list[str]:
        """Return at most two valid names for an unknown one: a similar one on its level, or the same one elsewhere."""
        similar = self.find_similar(path)
        if similar:
            return similar
        name = _normalise(path.rpartition(".")[2])
        namesakes = [known for known in self._list_names() if _normalise(known.rpartition(".")[2]) == name]
        if namesakes:
            return namesakes[:2]
        return self.find_similar(path, cutoff=_LIKELY)

    def _list_names(self) -> list[str]:
        return sorted(self.branches.union(self.leaves))


AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True, kw_only=True)  # without slots: the tables are cached in the instance
class Schema(Generic[AnySettings]):
    """The settings of a program.

    Attributes:
        struct: The struct that holds them.
        files: The JSON files that describe them: an object with the fields of `Setting` by key.
    """

    struct: type[AnySettings]
    files: tuple[Path, ...]

    @cached_property
    def rows(self) -> tuple[Setting, ...]:
        """Every setting, in the order of the struct. One without a description is a `KeyError`."""
        descriptions: dict[str, Any] = {}
        for file in self.files:
            descriptions |= load_json(file)
        rows = []
        for key, field in _list_fields(self.struct):
            rows.append(Setting(key=key, type=field.type, default=field.default, **descriptions[key]))
        return tuple(rows)

    @cached_property
    def toml(self) -> Tree:
        """The names in a `holdfast.toml` and in keyword arguments."""
        leaves: dict[str, Setting] = {}
        for row in self.rows:
            for name in (row.key, *row.aliases):
                leaves[name] = row
        return _make_tree(leaves)

    @cached_property
    def openclaw(self) -> Tree:
        """The names in an `openclaw.json`."""
        leaves: dict[str, Setting] = {}
        for row in self.rows:
            for path in row.openclaw:
                leaves[path] = row
        # The slots of plugins are not Holdfast settings, but they select some of them.
        return _make_tree(leaves, branches=("plugins.slots",))


ENGINE: Final = Schema(struct=Settings, files=(Path(__file__).with_name("settings.json"),))
"""The settings of the engine: all that the library, the server and most commands read."""


def load_json(file: Path) -> Any:
    """Load a data file; its lists become tuples."""

    def freeze(table: dict[str, Any]) -> dict[str, Any]:
        return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}

    return json.loads(file.read_bytes(), object_hook=freeze)


def struct_of(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the section that a field holds, else None."""
    bare = _strip_annotation(annotation)
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return bare
    return None


def find_similar_names(name: str, valid: Iterable[str], *, cutoff: float) -> list[str]:
    """Return at most two similar valid names, best first; case, `_` and `-` are ignored."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for an error

    plain = {_normalise(each): each for each in valid}
    wanted = _normalise(name[:_MAX_COMPARED_CHARS])
    return [plain[match] for match in get_close_matches(wanted, plain, n=2, cutoff=cutoff)]


def as_dict(settings: Settings, *, schema: Schema[Any] = ENGINE, reveal: bool = False) -> dict[str, Any]:
    """Return the settings as `holdfast.toml` would hold them, without secrets unless `reveal` is set."""
    root: dict[str, Any] = {}
    for row in schema.rows:
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
            table[name] = encode_value(value)
    return root


def encode_value(value: object) -> object:
    """Return a value as `holdfast.toml` would hold it."""
    match value:
        case timedelta():
            return spell_duration(value)
        case Secret():
            return value.spell()
        case tuple():
            return [encode_value(item) for item in value]
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


def _make_tree(leaves: Mapping[str, Setting], *, branches: Iterable[str] = ()) -> Tree:
    found = set(branches)
    for path in leaves:
        for dot in re.finditer(r"\.", path):
            found.add(path[: dot.start()])
    return Tree(leaves, frozenset(found))


def _strip_annotation(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    return annotation


def find_kind(annotation: Any) -> Kind | None:
    """Find the kind of an annotation, or of a part of it, such as that of `Duration | None`."""
    bare = annotation
    if get_origin(annotation) is Annotated:
        bare, *metas = get_args(annotation)
        for meta in metas:
            if meta.extra:
                kind: Kind = meta.extra["kind"]
                return kind
    for part in get_args(bare):
        found = find_kind(part)
        if found is not None:
            return found
    return None


def _describe_type(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            return _describe_type(info.type)
        case inspect.UnionType():
            without_none = [part for part in info.types if not isinstance(part, inspect.NoneType)]
            return _describe_type(without_none[0])
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
