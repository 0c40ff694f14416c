"""What the formats share: careful reading of foreign JSON, and rebuilding an edited message around what was kept."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar, cast

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Part, RedactedThinking, Thinking, same

__all__ = [
    "ABSENT",
    "Format",
    "Json",
    "blocks",
    "bounded",
    "child",
    "decode_arguments",
    "encode_arguments",
    "expect",
    "image_from_url",
    "image_url",
    "kept",
    "kind_of",
    "merge_turns",
    "number",
    "object_arguments",
    "overlay",
    "rebuild",
    "sealed_elsewhere",
    "text_arguments",
]

Json: TypeAlias = Mapping[str, Any]
"""A JSON object as it came."""

T = TypeVar("T")
V = TypeVar("V", bound=Message | Part)


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


# --- reading -----------------------------------------------------------------

_NAMES: Final[dict[type, str]] = {str: "a string", dict: "an object", list: "a list", bool: "true or false"}
_DEEPEST: Final = 200


def expect(data: Json, key: str, kind: type[T], where: str, *, default: T | None = None) -> T:
    """The field `key` of the given type, `default` where it is missing or null, else an error that says where."""
    value = data.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind):
        found = "missing" if key not in data else type(value).__name__
        raise FormatError(f"expected {_NAMES.get(kind, kind.__name__)}, found {found}", where=f"{where}.{key}")
    return value


def child(value: Any, where: str) -> Json:
    """`value` as a JSON object, or an error that says where."""
    if not isinstance(value, Mapping):
        raise FormatError(f"expected an object, found {type(value).__name__}", where=where)
    return value


def bounded(value: T, where: str) -> T:
    """`value`, or an error where it is nested so deeply that it might not be written out again."""
    level: list[Any] = [value] if isinstance(value, Mapping | list) else []
    for _ in range(_DEEPEST):
        if not level:
            return value
        inside = (box.values() if isinstance(box, Mapping) else box for box in level)
        level = [item for items in inside for item in items if isinstance(item, Mapping | list)]
    raise FormatError(f"nested more than {_DEEPEST} levels deep", where=where)


def number(value: Any) -> int | None:
    """`value` as a whole number, or None where it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def blocks(data: Json) -> Iterator[Json]:
    """The objects in a message's content, whatever else may stand there."""
    content = data.get("content")
    return (block for block in content if isinstance(block, Mapping)) if isinstance(content, list) else iter(())


def kind_of(data: Json) -> str:
    """The type that a wire object gives itself, or nothing."""
    kind = data.get("type")
    return kind if isinstance(kind, str) else ""


def decode_arguments(text: str) -> Mapping[str, Any] | str:
    """Arguments that were sent as JSON text: the object, or the text itself where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def image_from_url(url: str) -> Image:
    """An image given by URL; a base64 data URL becomes inline data."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Image(media_type=head[len("data:") : -len(";base64")] or None, data=data)
    return Image(url=url)


# --- rendering ---------------------------------------------------------------


ABSENT: Final = object()
"""The value of a field that the rebuilt object shall not have."""


def overlay(data: Json, fields: Mapping[str, object]) -> dict[str, Any]:
    """`data` with `fields` laid over it: every other key stays, in its place; ABSENT ones go."""
    merged = {key: fields.get(key, value) for key, value in data.items()}
    merged.update((key, value) for key, value in fields.items() if key not in data)
    return {key: value for key, value in merged.items() if value is not ABSENT}


def kept(value: Message | Part, format_name: str) -> Json:
    """The wire form that a value was read from, where it is of this format, edited or not."""
    origin = value.origin
    return origin.data if origin is not None and origin.is_of(format_name) else {}


def rebuild(value: V, make: Callable[[V, Json], Json | None], *, format: str) -> Json | None:
    """The wire form of a message or part: its own while nobody edited it, else one that `make` makes.

    `make` gets the value and its old wire form, for the spelling, and says None where the format has no
    place for it. Of an edited value it is asked for both, as it was read and as it is: only what differs
    is laid over the old form, so that an edit leaves alone whatever it does not touch.
    """
    wire = value.wire(format)
    if wire is not None:
        return wire
    old = kept(value, format)
    now = make(value, old)
    if now is None or not old:
        return now
    return _revised(old, make(cast("V", value.as_read()), old) or {}, now)


def _revised(old: Json, then: Json, now: Json) -> dict[str, Any]:
    """`old` with what changed between two renderings laid over it, in nested objects as well."""
    changed: dict[str, object] = dict.fromkeys(then.keys() - now.keys(), ABSENT)
    for key, value in now.items():
        if key not in then:
            changed[key] = value
        elif not same(then[key], value):
            nested = all(isinstance(side.get(key), Mapping) for side in (old, then, now))
            changed[key] = _revised(old[key], then[key], value) if nested else value
    return overlay(old, changed)


def encode_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Arguments as the JSON text that OpenAI's formats carry."""
    return text_arguments(arguments) or "{}"


def text_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Arguments as the text that a custom tool takes."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def object_arguments(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Arguments as the object that Anthropic's and pi's formats carry; stray text is kept under one key."""
    if isinstance(arguments, str):
        return {"_raw": arguments} if arguments else {}
    return arguments


def image_url(image: Image) -> str:
    """An image as one URL."""
    return image.url if image.url is not None else f"data:{image.media_type or 'image/png'};base64,{image.data or ''}"


_SIGNED: Final = frozenset({"anthropic", "pi"})


def sealed_elsewhere(part: Thinking | RedactedThinking) -> bool:
    """Tell whether another provider than Anthropic sealed this thinking: its seal means nothing there."""
    return part.origin is not None and part.origin.format not in _SIGNED


def merge_turns(rendered: Iterable[tuple[Json, bool]], *, join: Callable[[Sequence[Json]], Json]) -> list[Json]:
    """Join neighbours of one role that were made by us (True); what came from outside is left as it is."""
    turns: list[Json] = []
    for (made, _), run in groupby(rendered, key=lambda pair: (pair[1], pair[0]["role"])):
        wires = [wire for wire, _ in run]
        turns += [join(wires)] if made and len(wires) > 1 else wires
    return turns
