"""Helpers of all formats: reading foreign JSON with clear errors, and rendering edited messages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from holdfast.errors import FormatError
from holdfast.messages import PLAIN, Image, Message, Opaque, Part, RedactedThinking, Role, Text, Thinking, Usage, same

Json: TypeAlias = Mapping[str, Any]
"""A JSON object."""

T = TypeVar("T")
P = TypeVar("P", bound=Part)
V = TypeVar("V", bound=Message | Part)


# --- reading -----------------------------------------------------------------

ROLES: Final[dict[str, Role]] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""The canonical roles of those that most formats have."""
_TYPE_NAMES: Final[dict[type, str]] = {str: "a string", dict: "an object", list: "a list", bool: "true or false"}
MAX_DEPTH: Final = 200


def expect(data: Json, key: str, kind: type[T], where: str, *, default: T | None = None) -> T:
    """Return the field `key` of the given type, or `default` if it is missing or null; else raise a FormatError."""
    value = data.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind):
        found = "missing" if key not in data else type(value).__name__
        raise FormatError(f"expected {_TYPE_NAMES.get(kind, kind.__name__)}, found {found}", where=f"{where}.{key}")
    return value


def expect_object(value: Any, where: str) -> Json:
    """Return `value` if it is a JSON object; else raise a FormatError."""
    if not isinstance(value, Mapping):
        raise FormatError(f"expected an object, found {type(value).__name__}", where=where)
    return value


def expect_role(data: Json, roles: Mapping[str, Role], where: str, *, format: str, default: str | None = None) -> Role:
    """Return the canonical role of a wire object; raise a FormatError if the format has no such role."""
    name = expect(data, "role", str, where, default=default)
    if name not in roles:
        raise FormatError(f"role {name[:40]!r} is not one of {', '.join(roles)}", where=f"{where}.role", format=format)
    return roles[name]


Kinds: TypeAlias = Mapping[str, Callable[[Json, str], P]]
"""The functions that read blocks, by the type of the block."""


def read_content(
    content: Any, kinds: Kinds[P], where: str, *, format: str, is_required: bool = False
) -> tuple[P | Text, ...]:
    """Read the content of a message: one text, a list of blocks, or nothing unless it is required."""
    if isinstance(content, str):
        return (Text(text=content),)
    if isinstance(content, list):
        return tuple(
            read_block(block, f"{where}[{index}]", kinds=kinds, format=format) for index, block in enumerate(content)
        )
    if content is None and not is_required:
        return ()
    found = "missing" if content is None else type(content).__name__
    raise FormatError(f"expected text or a list of blocks, found {found}", where=where, format=format)


def read_block(value: Any, where: str, *, kinds: Kinds[P], format: str) -> P:
    """Read a block with the function of its type; a block of another type is kept unchanged."""
    data = expect_object(value, where)
    kind = expect(data, "type", str, where)
    read: Callable[[Json, str], Any] = kinds.get(kind, carry)
    part: P = read(data, where).read_from(data, format=format)
    return part


def carry(data: Json, where: str) -> Opaque:
    """Keep a block unchanged."""
    return Opaque(kind=kind_of(data), data=limit_depth(data, where))


def read_text(data: Json, where: str) -> Text:
    """Read a block whose `text` is the text."""
    return Text(text=expect(data, "text", str, where))


def limit_depth(value: T, where: str) -> T:
    """Return `value` if it can be written again; raise a FormatError if it is nested more than 200 levels deep."""
    level: list[Any] = [value] if isinstance(value, Mapping | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        containers = (item.values() if isinstance(item, Mapping) else item for item in level)
        # Most leaves are texts, for which a check for Mapping takes long.
        values = (item for items in containers for item in items if type(item) is not str)
        level = [item for item in values if isinstance(item, Mapping | list)]
    raise FormatError(f"nested more than {MAX_DEPTH} levels deep", where=where)


def number(value: Any) -> int | None:
    """Return `value` as a whole number; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def find(data: object, path: str) -> Any:
    """Return the value at a path of keys, as in `message.usage` or `folders.0`; None if there is none."""
    for key in path.split(".") if "." in path else (path,):
        if isinstance(data, dict):  # decoded JSON: a check for Mapping takes longer
            data = data.get(key)
        else:
            data = data[0] if key == "0" and isinstance(data, list) and data else None
    return data


def read_usage(
    data: object, fields: Mapping[str, str], *, has_cached_input: bool = False, is_partial: bool = False
) -> Usage | None:
    """Read token counts. `fields` has the paths of each: the first number counts. `thinking` is added to the output.

    With `has_cached_input` the input includes cached tokens. Without a count of the input, unless `is_partial`, and
    if all counts are zero, the usage is None.
    """
    if not isinstance(data, Mapping):
        return None
    counts: dict[str, int] = {}
    for name, paths in fields.items():
        for path in paths.split():
            if name not in counts and (count := number(find(data, path))) is not None:
                counts[name] = count
    if "input" not in counts and not is_partial:
        return None
    counts["output"] = counts.get("output", 0) + counts.pop("thinking", 0)
    usage = Usage(**counts)
    if has_cached_input:
        cached = min(usage.cache_read, usage.input)
        usage = replace(usage, input=max(0, usage.input - cached - usage.cache_write), cache_read=cached)
    return usage if usage.context else None


def blocks_of(data: Json) -> Iterator[Json]:
    """Iterate over the objects in the content of a message."""
    content = data.get("content")
    return (block for block in content if isinstance(block, Mapping)) if isinstance(content, list) else iter(())


def kind_of(data: Json) -> str:
    """Return the `type` of a wire object; empty if it has none."""
    kind = data.get("type")
    return kind if isinstance(kind, str) else ""


def spelling(data: Json, names: Sequence[str]) -> str:
    """Return which of several names of a field an object uses; the first if it uses none."""
    for name in names:
        if data.get(name) is not None:
            return name
    return names[0]


def decode_arguments(text: str) -> Mapping[str, Any] | str:
    """Decode arguments that were sent as JSON text; text that is not a JSON object is returned unchanged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def image_from_url(url: str) -> Image:
    """Read an image given by URL; a base64 data URL becomes inline data."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return Image(media_type=head[len("data:") : -len(";base64")] or None, data=data)
    return Image(url=url)


# --- rendering ---------------------------------------------------------------

_ABSENT: Final = object()


def wire_of(value: Message | Part, format: str) -> Json:
    """Return the wire form that a value was read from, edited or not; empty if it came from another format."""
    origin = value.origin
    return origin.data if origin is not None and origin.is_of(format) else {}


def rebuild(value: V, make: Callable[[V, Json], Json | None], *, format: str) -> Json | None:
    """Return the wire form of a message or part: the original if nothing was edited, else a new one.

    `make` gets the value and its old wire form, for the spelling, and returns None if the format cannot express the
    value. An edited value is rendered twice, as it was read and as it is now: only the difference is laid over the old
    form, so that an edit changes nothing else.
    """
    wire = value.wire(format)
    if wire is not None:
        return wire
    old = wire_of(value, format)
    now = make(value, old)
    if now is None or not old:
        return now
    return _apply_difference(old, make(cast("V", value.as_read()), old) or {}, now)


def rebuild_always(value: V, make: Callable[[V, Json], Json], *, format: str) -> Json:
    """Return the wire form of a value that the format can always express."""
    wire = rebuild(value, make, format=format)
    assert wire is not None
    return wire


def render_content(
    parts: Sequence[Part], old: object, make: Callable[[Any, Json], Json | None], *, format: str
) -> str | list[Json]:
    """Render content as one string if `old` was one, or if it is one plain text, else as a list of blocks."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    is_single = len(parts) == 1 and not isinstance(old, list) and not wire_of(parts[0], format)
    if len(texts) == len(parts) and (is_single or isinstance(old, str)):
        return "\n".join(texts)
    return [block for part in parts if (block := rebuild(part, make, format=format)) is not None]


def _apply_difference(old: Json, then: Json, now: Json) -> dict[str, Any]:
    """Return `old` with what changed between two renderings, in nested objects as well; other keys keep their place."""
    changed: dict[str, object] = dict.fromkeys(then.keys() - now.keys(), _ABSENT)
    for key, value in now.items():
        if key not in then:
            changed[key] = value
        elif not same(then[key], value):
            is_nested = all(isinstance(side.get(key), Mapping) for side in (old, then, now))
            changed[key] = _apply_difference(old[key], then[key], value) if is_nested else value
    merged = {key: changed.get(key, value) for key, value in old.items()}
    merged.update((key, value) for key, value in changed.items() if key not in old)
    return {key: value for key, value in merged.items() if value is not _ABSENT}


def encode_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Encode arguments as the JSON text that OpenAI's formats carry."""
    return text_arguments(arguments) or "{}"


def text_arguments(arguments: Mapping[str, Any] | str) -> str:
    """Return arguments as the text that a custom tool takes."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def object_arguments(arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return arguments as the object that Anthropic, Gemini and pi carry; plain text goes under the key `_raw`."""
    if isinstance(arguments, str):
        return {"_raw": arguments} if arguments else {}
    return arguments


def image_url(image: Image) -> str:
    """Return an image as one URL."""
    return image.url if image.url is not None else f"data:{image.media_type or 'image/png'};base64,{image.data or ''}"


def is_sealed_elsewhere(part: Thinking | RedactedThinking) -> bool:
    """Return whether the signature of thinking is another provider's than Anthropic's, which Anthropic would refuse."""
    return part.origin is not None and part.origin.format not in {"anthropic", "pi"}


_SYSTEM_BESIDE: Final = frozenset({"anthropic", "openai_responses", "gemini"})
"""Formats whose requests have a field of their own for the system prompt."""


def leading_system(messages: Sequence[Message], format: str) -> int:
    """Count the messages at the front that go into the system field of a request, not into its list."""
    if format not in _SYSTEM_BESIDE:
        return 0
    for index, message in enumerate(messages):
        is_plain = message.origin is not None and message.origin.format == PLAIN
        # A list of this format may begin with a system message that was read from one; Anthropic's plain ones may not.
        is_listed = bool(wire_of(message, format)) and not (is_plain and format == "anthropic")
        if message.role != "system" or is_listed:
            return index
    return len(messages)
