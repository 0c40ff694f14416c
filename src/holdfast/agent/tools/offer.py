"""A tool on offer: what the model is told of it, and what runs when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.errors import InputError
from holdfast.models.base import Tool

__all__ = ["Action", "Answer", "Arguments", "Confirm", "Offer", "offer", "schema"]

A = TypeVar("A", bound="Arguments")

_NULL: Final = {"type": "null"}


class Arguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The arguments of a tool. Field types and descriptions are its schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool says.

    Attributes:
        text: All of it.
        is_error: Whether it failed; the text then says what to do.
        head: How much of the beginning the model is shown of a long text; 0 for all of it.
        tail: How much of the end.
    """

    text: str
    is_error: bool = False
    head: int = 0
    tail: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a tool is about to do, for the user to allow.

    Attributes:
        kind: Whether a command runs or a file is written.
        text: What is done, in lines that can be shown.
        guarded: Why it is asked for even where the user allowed this kind; empty where it is not.
    """

    kind: Literal["run", "write"]
    text: str
    guarded: str = ""


Confirm: TypeAlias = Callable[[Action], bool]
"""Asks the user whether something may be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool, and what it does.

    Attributes:
        tool: What the model is told.
        run: Does it. The arguments are as the model sent them; the event says that the user called it off.
        together: Whether calls of it may run beside others: it changes nothing.
    """

    tool: Tool
    run: Callable[[Mapping[str, Any] | str, Event], Answer]
    together: bool = False


def offer(
    name: str, description: str, kind: type[A], do: Callable[[A, Event], Answer], *, together: bool = False
) -> Offer:
    """Offer a function as a tool: arguments that do not fit its schema never reach it."""
    tool = Tool(name=name, description=description, parameters=schema(kind))
    return Offer(tool=tool, run=lambda given, cancel: do(_read(given, kind, name), cancel), together=together)


def schema(kind: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of arguments, in the plain form that every provider takes."""
    _, parts = msgspec.json.schema_components([kind], ref_template="{name}")
    whole: dict[str, Any] = parts[kind.__name__]
    fields = {name: _plain(field) for name, field in whole["properties"].items()}
    return {"type": "object", "properties": fields, "required": whole["required"]}


def _plain(field: Mapping[str, Any]) -> dict[str, Any]:
    """A field without the null that stands for "not given"."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind != _NULL]
    known = {key: value for key, value in field.items() if key != "anyOf" and (key, value) != ("default", None)}
    return {**kinds[0], **known} if len(kinds) == 1 else dict(field)


def _read(given: Mapping[str, Any] | str, kind: type[A], name: str) -> A:
    if isinstance(given, str):
        raise InputError(f"the arguments of {name} are not a JSON object: send one with {_needs(kind)}")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name}: {error}; it takes {_needs(kind)}") from error


def _needs(kind: type[Arguments]) -> str:
    known = schema(kind)
    return ", ".join(f"`{field}`" if field in known["required"] else f"`{field}`?" for field in known["properties"])
