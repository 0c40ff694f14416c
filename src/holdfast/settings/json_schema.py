"""Make the JSON Schema of a `holdfast.toml`, by which editors complete and check names and values."""

from typing import Any, Final

from msgspec import inspect

from holdfast.settings.table import Schema, Setting, encode_value, find_kind

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The newest one that the editors' extensions for TOML know."""


def make_json_schema(schema: Schema[Any]) -> dict[str, Any]:
    """Return the JSON Schema of the settings file of a program."""
    root = _make_table("Settings of Holdfast")
    for row in schema.rows:
        table = root
        *sections, name = row.key.split(".")
        for section in sections:
            table = table["properties"].setdefault(section, _make_table())
        table["properties"][name] = _describe(row)
    for row in schema.rows:
        for alias in row.aliases:  # `pruning = "adaptive"` is short for its mode
            root["properties"][alias] = {"anyOf": [_describe(row), root["properties"][alias]]}
    return {"$schema": _DIALECT, **root}


def _make_table(title: str = "") -> dict[str, Any]:
    table: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
    return {"title": title, **table} if title else table


def _describe(row: Setting) -> dict[str, Any]:
    described = {"description": f"{row.description} {row.when}", **_describe_type(row)}
    if row.default is not None:
        described["default"] = encode_value(row.default)
    return described


def _describe_type(row: Setting) -> dict[str, Any]:
    kind = find_kind(row.type)
    if kind is not None and kind.schema is not None:
        return dict(kind.schema)
    return _convert(inspect.type_info(row.type))


def _convert(info: inspect.Type) -> dict[str, Any]:
    match info:
        case inspect.Metadata():
            return _convert(info.type)
        case inspect.UnionType():  # of a value and None, which TOML does not have
            (part,) = (part for part in info.types if not isinstance(part, inspect.NoneType))
            return _convert(part)
        case inspect.LiteralType():
            return {"enum": list(info.values)}
        case inspect.VarTupleType():
            return {"type": "array", "items": _convert(info.item_type)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", "minimum": info.ge, "maximum": info.le}
        case inspect.FloatType():
            return {"type": "number", "minimum": info.ge, "maximum": info.le}
        case inspect.StrType() if info.pattern:
            return {"type": "string", "pattern": info.pattern.replace(r"\Z", "$")}  # JavaScript has no \Z
        case _:
            return {"type": "string"}
