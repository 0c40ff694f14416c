"""Settings can be written to a file and read again, and any input gives settings or a SettingsError."""

import contextlib
import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from holdfast.errors import SettingsError
from holdfast.settings import Secret, Setting, as_dict
from holdfast_agent.settings import CHAT, ChatSettings, QmdPath, load

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMES = sorted({name for row in CHAT.rows for path in (row.key, *row.openclaw) for name in path.split(".")})
TEXT = st.text(alphabet="ab1._-$(){}[]\"'\\=:,#/\n\x00\x7f\u2028é密😀", max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.sampled_from(NAMES)
JSON = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | TEXT, below, max_size=4),
    max_leaves=12,
)
PATHS = st.builds(QmdPath, path=TEXT, name=st.none() | TEXT)
DURATIONS = st.integers(min_value=0, max_value=3_660 * 86_400_000).map(lambda ms: timedelta(milliseconds=ms))


def values(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Draw any value that a setting of this type may have, except unset, which a file cannot express."""
    match info:
        case inspect.Metadata():
            return values(info.type)
        case inspect.UnionType():
            return st.one_of(*(values(part) for part in info.types if not isinstance(part, inspect.NoneType)))
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.VarTupleType():
            return st.lists(values(info.item_type), max_size=3).map(tuple)
        case inspect.StrType(pattern=str() as pattern):
            return st.from_regex(pattern, fullmatch=True)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(min_value=int(info.ge or 0), max_value=int(info.le or 0))
        case inspect.FloatType():
            return st.floats(min_value=info.ge, max_value=info.le)
        case _:
            return {"TimeDeltaType": DURATIONS, "StructType": PATHS, "CustomType": TEXT.map(Secret)}.get(
                type(info).__name__, TEXT
            )


VALUES = {row.key: values(inspect.type_info(row.type)) for row in CHAT.rows}


@st.composite
def overrides(draw: st.DrawFn) -> dict[str, Any]:
    """Draw valid values for some settings, as keyword arguments."""
    chosen: list[Setting] = draw(st.lists(st.sampled_from(CHAT.rows), max_size=12, unique_by=lambda row: row.key))
    taken: set[str] = set()
    root: dict[str, Any] = {}
    for row in chosen:
        if row.rival in taken or row.key.endswith(("weight", "overlap", "chunking.tokens")):
            continue  # these do not go together with every other value
        taken.add(row.key)
        *sections, name = row.key.split(".")
        table = root
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = draw(VALUES[row.key])
    return root


def toml(table: dict[str, Any]) -> str:
    """Write a TOML document. JSON text is TOML text, except for tables."""
    return "\n".join(f"{json.dumps(name)} = {_inline(value)}" for name, value in table.items())


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_inline(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def loaded_from(text: str, *, name: str) -> ChatSettings:
    """Return the settings in a file with this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return load(files=[path], environ={}).settings


@unhurried
@given(overrides())
def test_settings_survive_a_file(chosen: dict[str, Any]) -> None:
    """Any settings, written as TOML and read again, are the same."""
    before = load(environ={}, **_spelled(chosen)).settings
    plain = as_dict(before, schema=CHAT, reveal=True)
    assert loaded_from(toml(plain), name="holdfast.toml") == before
    assert load(environ={}, **plain).settings == before


def _spelled(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return secrets as a caller passes them, and paths as tables."""
    return {name: _spelled(value) if isinstance(value, dict) else _plain(value) for name, value in chosen.items()}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, QmdPath):
        return {"path": value.path} | ({"name": value.name} if value.name is not None else {})
    return value


@unhurried
@given(st.dictionaries(st.sampled_from(NAMES) | TEXT, JSON, max_size=4))
def test_hostile_arguments(data: dict[str, Any]) -> None:
    """Any value that is passed as settings gives settings or a SettingsError."""
    with contextlib.suppress(SettingsError):
        load(environ={}, **{name: value for name, value in data.items() if name not in {"files", "environ"}})


@unhurried
@given(JSON)
def test_hostile_openclaw_file(data: object) -> None:
    """Any JSON in an openclaw.json gives settings or a SettingsError."""
    with contextlib.suppress(SettingsError):
        loaded_from(json.dumps(data), name="openclaw.json")


@unhurried
@given(TEXT)
def test_hostile_text(text: str) -> None:
    """Any text in a file gives settings or a SettingsError."""
    for name in ("holdfast.toml", "openclaw.json"):
        with contextlib.suppress(SettingsError):
            loaded_from(text, name=name)


@unhurried
@given(st.dictionaries(st.sampled_from([row.variable for row in CHAT.rows]), TEXT, max_size=3))
def test_hostile_environment(environ: dict[str, str]) -> None:
    """Any text in a variable gives settings or a SettingsError."""
    with contextlib.suppress(SettingsError):
        load(environ=environ)


@unhurried
@given(st.sampled_from([row for row in CHAT.rows if row.secret]), TEXT)
def test_secrets_never_show(row: Setting, text: str) -> None:
    """A key that was set is in no representation of the loaded settings."""
    canary = f"canary{text}"
    loaded = load(environ={row.variable: canary.replace("$", "")})
    assert "canary" not in repr(loaded)
    assert "canary" not in repr(as_dict(loaded.settings, schema=CHAT))
