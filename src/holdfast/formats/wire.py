"""What the formats share: careful reading of foreign JSON, and rebuilding an edited message around what was kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Part, ResultContent

__all__ = ["ABSENT", "Format", "Json", "child", "decode_arguments", "encode_arguments", "expect", "image_from_url"]

Json: TypeAlias = Mapping[str, Any]
"""A JSON object as it came."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One provider's way to write messages.

    Attributes:
        name: The name that callers use.
        read: One wire object to one message. `where` is its path, for errors.
        render: Messages to wire objects; what was read from this format and not edited is handed back itself.
        marks: What in a wire object only this format has, as a short description, or None.
    """

    name: str
    read: Callable[[Json, str], Message]
    render: Callable[[Sequence[Message]], list[Json]]
    marks: Callable[[Json], str | None]


class _Absent:
    """A field that the rebuilt object shall not have."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


def overlay(data: Json, fields: Mapping[str, object]) -> dict[str, Any]:
    """`data` with `fields` laid over it: every other key stays, in its place; ABSENT ones go."""
    merged = {key: fields.get(key, value) for key, value in data.items()}
    merged.update((key, value) for key, value in fields.items() if key not in data)
    return {key: value for key, value in merged.items() if value is not ABSENT}


def kept(value: Message | Part, format_name: str) -> Json:
    """The unknown fields an edited value still carries: its old wire form, where it is of this format."""
    origin = value.origin
    return origin.data if origin is not None and origin.format == format_name else {}


def expect(data: Json, key: str, kind: type[T], where: str, *, default: T | None = None) -> T:
    """The field `key` of the given type, `default` where it is missing or null, else an error that says where."""
    value = data.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind):
        found = "missing" if key not in data else type(value).__name__
        raise FormatError(f"expected {_NAMES.get(kind, kind.__name__)}, found {found}", where=f"{where}.{key}")
    return value


_NAMES: Final[dict[type, str]] = {str: "a string", dict: "an object", list: "a list", bool: "true or false"}


def child(value: Any, where: str) -> Json:
    """`value` as a JSON object, or an error that says where."""
    if not isinstance(value, Mapping):
        raise FormatError(f"expected an object, found {type(value).__name__}", where=where)
    return value


def decode_arguments(text: str) -> Mapping[str, Any] | str:
    """Arguments that were sent as JSON text: the object, or the text itself where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def encode_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Arguments as the JSON text that OpenAI's formats carry."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def object_arguments(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Arguments as the object that Anthropic's and pi's formats carry; stray text is kept under one key."""
    if isinstance(arguments, str):
        return {"_raw": arguments} if arguments else {}
    return arguments


def image_from_url(url: str) -> Image:
    """An image given by URL; a base64 data URL becomes inline data."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Image(media_type=head[len("data:") : -len(";base64")] or None, data=data)
    return Image(url=url)


def image_url(image: Image) -> str:
    """An image as one URL."""
    return image.url if image.url is not None else f"data:{image.media_type or 'image/png'};base64,{image.data or ''}"


def merge_turns(
    rendered: Sequence[tuple[dict[str, Any], bool]], *, join: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
) -> list[Json]:
    """Join neighbours of one role where both were made by us; what came from outside is left as it is."""
    turns: list[Json] = []
    ours = False
    for wire, made in rendered:
        if made and ours and turns and turns[-1]["role"] == wire["role"]:
            turns[-1] = join(dict(turns[-1]), wire)
        else:
            turns.append(wire)
        ours = made
    return turns


def only_content(parts: Sequence[Part], kinds: tuple[type, ...]) -> tuple[ResultContent, ...]:
    """The parts that may stand inside a tool result."""
    return tuple(part for part in parts if isinstance(part, kinds))  # type: ignore[misc]
