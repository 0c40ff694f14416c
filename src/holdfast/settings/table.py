"""The schema as a flat table, with one row for each setting and all of its names; and the reference page."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import inspect

from holdfast.settings.schema import Settings
from holdfast.settings.values import Kind, Notes, Secret, spell_duration

__all__ = [
    "Setting",
    "Tree",
    "as_dict",
    "find_similar_names",
    "openclaw_tree",
    "reference",
    "settings_table",
    "struct_of",
    "toml_tree",
]

_MAX_COMPARED_CHARS: Final = 80
"""Longer names are accidents, and comparing takes quadratic time."""
_CLOSE: Final = 0.8
_LIKELY: Final = 0.45


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its dotted name, type, default, and all other names."""

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
        return get_origin(_strip_annotation(self.type)) is tuple


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
    return tuple(_list_settings(Settings, key="", paths=()))


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
    plain = {_normalise(each): each for each in valid}
    return [
        plain[match]
        for match in difflib.get_close_matches(_normalise(name[:_MAX_COMPARED_CHARS]), plain, n=2, cutoff=cutoff)
    ]


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
            return {name: item for name, item in msgspec.structs.asdict(value).items() if item is not None}
        case _:
            return value


def _list_settings(struct: type[msgspec.Struct], *, key: str, paths: tuple[str, ...]) -> Iterator[Setting]:
    for field in msgspec.structs.fields(struct):
        notes = _get_extra(field.type, "notes") or Notes()
        name = f"{key}.{field.name}" if key else field.name
        below = tuple(f"{path}.{notes.spelled or _to_camel_case(field.name)}" for path in paths)
        places = () if notes.openclaw is None else notes.openclaw or below
        section = struct_of(field.type)
        if section is not None:
            yield from _list_settings(section, key=name, paths=places)
        else:
            yield _make_setting(field, name=name, places=places, notes=notes, parents=(key, paths))


def _make_setting(
    field: msgspec.structs.FieldInfo,
    *,
    name: str,
    places: tuple[str, ...],
    notes: Notes,
    parents: tuple[str, tuple[str, ...]],
) -> Setting:
    kind = _get_extra(field.type, "kind")
    words = _describe_type(inspect.type_info(field.type))
    return Setting(
        key=name,
        type=field.type,
        kind=kind.words or words if isinstance(kind, Kind) else words,
        default=field.default,
        description=next((meta.description for meta in _list_metas(field.type) if meta.description), ""),
        aliases=(parents[0],) if notes.shorthand else (),
        openclaw=places + parents[1] if notes.shorthand else places,
        rival=notes.rival,
        read=kind.read if isinstance(kind, Kind) else None,
        secret=Secret in (_strip_annotation(field.type), *get_args(_strip_annotation(field.type))),
    )


def _make_tree(names: Iterable[tuple[str, Setting]]) -> Tree:
    leaves = dict(names)
    branches = {path[: dot.start()] for path in leaves for dot in re.finditer(r"\.", path)}
    return Tree(leaves, frozenset(branches))


def _strip_annotation(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _list_metas(annotation: Any) -> list[msgspec.Meta]:
    """List the annotations of a type, and of the parts of a union."""
    if get_origin(annotation) is not Annotated:
        return []
    bare, *metas = get_args(annotation)
    return [*metas, *(meta for part in get_args(bare) for meta in _list_metas(part))]


def _get_extra(annotation: Any, name: str) -> Any:
    return next((meta.extra[name] for meta in _list_metas(annotation) if meta.extra and name in meta.extra), None)


def _describe_type(info: inspect.Type) -> str:
    """Describe a type for the reference and for errors."""
    match info:
        case inspect.Metadata():
            return _describe_type(info.type)
        case inspect.UnionType():
            return _describe_type(min(info.types, key=lambda part: isinstance(part, inspect.NoneType)))
        case inspect.LiteralType():
            return _join_choices([f'"{value}"' for value in info.values])
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


def _join_choices(choices: list[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _normalise(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _to_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# --- the reference page ----------------------------------------------------------


_INTRODUCTION = """\
# Settings

<!-- Written by `python -m holdfast.settings`. Change the schema, then run `make docs`. -->

Every setting has a default. A value may come from several places; the first one that has it is used:

1. **Keyword arguments**, a mapping for each section: `load(recall={"position": "head"})`.
2. **The environment**: `HOLDFAST_<SECTION>__<FIELD>`, two underscores for each dot. Lists are JSON or separated by
   commas. An empty variable counts as not set.
3. **`holdfast.toml`**, first of the project, then of the user (in the platform's folder for configuration).
4. **`openclaw.json`** (JSON5), at `$OPENCLAW_CONFIG_PATH` or `~/.openclaw/openclaw.json`.
5. **The defaults** below.

```toml
[recall]
hard_cap_tokens = 3000

[compaction.memory_flush]
soft_threshold = 0.7

[pruning]
mode = "cache-ttl"
ttl = "1h30m"
```

* **Strict.** An unknown name, a value of the wrong kind or out of range is an error that names the file, the setting
  and what was expected, or the nearest name. Everything is checked, also what a stronger source overrides.
* **Two names.** `pruning = "adaptive"` is short for its `mode`, in `openclaw.json` as well. `soft_threshold` (a
  share of the window in use) and `soft_threshold_tokens` (tokens before the threshold) set the same thing: the one from
  the stronger source is used, and one source may hold only one of them.
* **Durations** are `90s`, `5m`, `1h30m`, `2d`; a bare number is minutes. **Sizes** are bytes, or `512kb`, `2mb`.
* **Secrets** may be written as `${NAME}` for an environment variable; `$${NAME}` is the literal text `${NAME}`. They
  never appear in errors, reports or representations. No other setting is expanded.
* **The rest of `openclaw.json`** (gateway, channels, other plugins) is ignored and listed in
  `Loaded.ignored`, as is a secret that only OpenClaw can read. A name that looks like a misspelt setting of ours is an
  error. Where one setting has two places in the file, the one listed first is used. With `--agent NAME` the entry of
  that id in `agents.list` overrides `agents.defaults`. `Loaded.without_effect` lists what cannot work here, and why.
* **Files of a project**, in the working directory, may set only harmless settings until you run `holdfast trust`
  ([security.md](security.md#settings-of-a-project)). Refused settings are listed in `Loaded.refused` and on stderr.
* `HOLDFAST_HOME` is the folder of the data, not a setting.
"""


def reference() -> str:
    """Return the reference of all settings in Markdown."""
    titles = {field.name: struct_of(field.type) for field in msgspec.structs.fields(Settings)}
    page = [_INTRODUCTION]
    for section, rows in groupby(settings_table(), key=lambda row: row.key.partition(".")[0]):
        struct = titles[section]
        summary = struct.__doc__ if struct else ""
        page.append(f"## `{section}`\n\n{summary}\n\n" + "\n".join(_format_rows(rows)) + "\n")
    return "\n".join(page)


def _format_rows(rows: Iterator[Setting]) -> Iterator[str]:
    yield "| setting | kind | default | what it does, and its other names |"
    yield "| --- | --- | --- | --- |"
    for row in rows:
        names = [row.variable, *row.openclaw]
        description = f"{row.description}<br>{' · '.join(f'`{name}`' for name in names)}"
        yield f"| `{row.key}` | {row.kind} | {_format_default(row.default)} | {description} |"


def _format_default(value: object) -> str:
    match value:
        case None:
            return "unset"
        case timedelta():
            return f'`"{spell_duration(value)}"`'
        case _:
            return f"`{json.dumps(value)}`"
