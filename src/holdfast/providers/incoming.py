"""Messages as callers hand them in: objects of SDKs, dicts that hold such objects, and dicts of no certain format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from holdfast.errors import FormatError
from holdfast.messages import PLAIN, Message, Opaque, Part, Thinking
from holdfast.providers import wire
from holdfast.providers.anthropic import ANTHROPIC
from holdfast.providers.anthropic import USAGE as ANTHROPIC_USAGE
from holdfast.providers.format import Format
from holdfast.providers.gemini import GEMINI, USAGE
from holdfast.providers.openai_chat import OPENAI_CHAT
from holdfast.providers.openai_chat import read_usage as read_openai_usage
from holdfast.providers.openai_responses import OPENAI_RESPONSES
from holdfast.providers.wire import Json, expect_object, read_usage


class _Dumpable(Protocol):
    """An object of an SDK: Anthropic's `Message`, OpenAI's `ChatCompletionMessage`, `Response` or an item of it."""

    def model_dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the object as plain data."""


Incoming: TypeAlias = Message | Mapping[str, Any] | _Dumpable
"""A message as a caller hands it in: canonical, any provider's dict, or what an SDK returned."""

_LISTS: Final = ("content", "parts", "tool_calls")
_MARKS: Final = frozenset({"role", "type", "parts"})
_SDK_FIELDS: Final = {
    **dict.fromkeys(("parsed", "parsed_arguments", "parsed_output"), True),
    "function": {"parsed_arguments"},
}
"""Fields that SDKs add to a reply for their caller; no provider accepts them."""


def normalise(messages: Any, *, known: list[Message | Json] | None = None, first: int = 0) -> list[Message | Json]:
    """Return messages as canonical messages and dicts: objects of SDKs become what one would send back.

    If the messages from `first` on begin with the `known` ones, which were returned before, dicts of these are returned
    again, and only the others are read.
    """
    if isinstance(messages, Mapping):
        raise FormatError("expected a list of messages, found an object: pass a list with it", where="messages")
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise FormatError(f"expected a list of messages, found {type(messages).__name__}", where="messages")
    given = list(messages)
    known = list(known or ())  # without the lock of a session, it may become shorter meanwhile
    stop = first + len(known)
    if not known or given[first:stop] != known:
        return _normalise(given)
    # Canonical messages are equal if they came in another form, such as with a cache mark.
    again = [new if isinstance(new, Message) else old for old, new in zip(known, given[first:stop], strict=True)]
    return [*_normalise(given[:first]), *again, *_normalise(given[stop:], first=stop)]


def _normalise(messages: Iterable[Any], *, first: int = 0) -> list[Message | Json]:
    listed: list[Any] = []
    for item in messages:
        if isinstance(item, Message):
            listed.append(item)
        elif isinstance(item, dict) and not _MARKS.isdisjoint(item):  # its content may be that of an SDK's reply
            listed.append(_dump_lists(item, item.get) if list in map(type, item.values()) else item)
        elif isinstance(item, dict):
            listed += _from_body(item)
        elif isinstance(item, Mapping):
            listed.append(item)
        else:
            listed += _from_sdk(item)
    for index, item in enumerate(listed, start=first):
        if not _is_message(item, index):
            raise FormatError("neither a role nor a type: this is not a message", where=f"messages[{index}]")
    return listed


def _is_message(item: Any, index: int) -> bool:
    if isinstance(item, Message):
        return True
    if isinstance(item, dict):  # faster than a test for any mapping, and there are thousands
        return not _MARKS.isdisjoint(item)
    return not _MARKS.isdisjoint(expect_object(item, f"messages[{index}]"))


def _from_body(body: Json) -> list[Any]:
    """Return the messages of a reply as an HTTP client returns it; Anthropic's is a message itself."""
    match body:
        case {"choices": [{"message": Mapping() as message}, *_]}:
            return _read_reply(OPENAI_CHAT, body, [message])
        case {"object": "response", "output": list(output)}:
            return _read_reply(OPENAI_RESPONSES, body, output)
        case {"candidates": [{"content": Mapping() as content}, *_]}:
            return [_read_candidate(body, content)]
        case _:
            return [body]  # the caller reports it


def _read_reply(format_: Format, data: Json, items: list[Any]) -> list[Message]:
    """Return the messages of a reply of OpenAI; the last has its model and usage."""
    # Without ids: the same items in a history are the same messages.
    objects = [item if is_item(item) else wrap_malformed(item) for item in items if item is not None]
    messages = [replace(read_or_keep(item, "messages", format=format_), id=None) for item in objects]
    if messages:
        messages[-1] = replace(messages[-1], usage=read_openai_usage(data.get("usage")), model=data.get("model"))
    return messages


def _read_candidate(data: Json, content: Mapping[str, Any]) -> Message:
    usage = read_usage(data.get("usageMetadata") or data.get("usage_metadata"), USAGE, has_cached_input=True)
    model = data.get("modelVersion") or data.get("model_version")
    return replace(read_or_keep(content, "messages", format=GEMINI), usage=usage, model=model)


def _from_sdk(item: Any) -> Iterator[Any]:
    """Return the messages of an object; a reply of several items becomes as many messages."""
    if not callable(getattr(item, "model_dump", None)):
        yield item  # the caller reports it
    elif isinstance(output := getattr(item, "output", None), list) and hasattr(item, "parallel_tool_calls"):
        yield from _read_reply(OPENAI_RESPONSES, _dump(item), [_dump(one) for one in output])
    elif choices := getattr(item, "choices", None):
        yield from _read_reply(OPENAI_CHAT, _dump(item), [_dump(choices[0].message)])
    elif candidates := getattr(item, "candidates", None):
        yield _read_candidate(_dump(item), _dump(candidates[0].content))
    elif getattr(item, "type", None) == "message" and hasattr(item, "stop_reason"):
        data = _dump(item)  # Anthropic takes back role and content alone
        sent_back = {"role": data.get("role"), "content": data.get("content")}
        message = read_or_keep(sent_back, "messages", format=ANTHROPIC)
        usage = read_usage(data.get("usage"), ANTHROPIC_USAGE)
        yield replace(message, usage=usage, model=data.get("model"), stop=data.get("stop_reason"))
    else:
        yield _dump(item)


def _dump(item: Any) -> dict[str, Any]:
    """Return an object as it is sent back: without null fields and without what the SDK adds for its caller."""
    data: dict[str, Any] = item.model_dump(mode="json", exclude_none=True, by_alias=True, exclude=_SDK_FIELDS)
    return _dump_lists(data, lambda key: getattr(item, key, None))


def _dump_lists(data: dict[str, Any], get: Callable[[str], Any]) -> dict[str, Any]:
    """Return data with the objects in its lists as plain data; the data itself if there are none."""
    for key in _LISTS:
        blocks = get(key)
        if isinstance(blocks, list) and any(not isinstance(b, dict) and hasattr(b, "model_dump") for b in blocks):
            data = {**data, key: [_dump(block) if hasattr(block, "model_dump") else block for block in blocks]}
    return data


# --- malformed replies ---------------------------------------------------------------

MALFORMED: Final = "malformed"
"""The kind of an opaque part that stands for what a provider sent and no rule of its format allows."""
MAX_MALFORMED: Final = 50
"""Malformed blocks and fields of a message that are kept apart from the rest of it."""
_PLACE: Final = re.compile(r"\.(\w+)(?:\[(\d+)\])?")


REPLY_ROLES: Final = (None, "assistant", "model")
"""The roles of what providers return; many items of Responses have none."""


def is_item(value: Any) -> bool:
    """Return whether a value may be a message or an item of a reply."""
    return isinstance(value, Mapping) and not _MARKS.isdisjoint(value) and value.get("role") in REPLY_ROLES


def wrap_malformed(value: Any) -> dict[str, Any]:
    """Return an item for a value in a reply that is none."""
    return {"type": MALFORMED, "value": value}


def read_or_keep(data: Json, where: str, *, format: Format) -> Message:
    """Read a message that a provider made.

    Malformed parts are kept as opaque parts, after all others. A message that cannot be read even without them becomes
    one opaque part.
    """
    left = dict(data)
    malformed: list[Opaque] = []
    message: Message | None = None
    while message is None and len(malformed) < MAX_MALFORMED:
        try:
            message = format.read(left, where)
        except FormatError as error:
            place = _PLACE.match(error.where.removeprefix(where)) if error.where.startswith(where) else None
            if place is None or place[1] not in left:
                break
            malformed.append(_take_out(left, place[1], place[2]))
    if message is None:
        role = wire.ROLES.get(str(data.get("role")), "assistant")
        message = Message(role=role, parts=(_keep(data),))
    elif not malformed:
        return message
    else:
        message = replace(message, parts=(*message.parts, *malformed))
    return message.read_from(data, format=format.name) if _is_shallow(data) else replace(message, origin=None)


def _take_out(data: dict[str, Any], key: str, index: str | None) -> Opaque:
    """Remove a field, or one element of a list in it, and return it as an opaque part."""
    value = data[key]
    if index is None or not isinstance(value, list):
        del data[key]
        return _keep({key: value})
    data[key] = [block for place, block in enumerate(value) if place != int(index)]
    return _keep(value[int(index)])


def _keep(value: Any) -> Opaque:
    kept = value if isinstance(value, Mapping) else wrap_malformed(value)
    return Opaque(kind=MALFORMED, data=kept if _is_shallow(kept) else "nested too deep to be kept")


def _is_shallow(value: Any) -> bool:
    """Return whether a value can be written again."""
    try:
        wire.limit_depth(value, "")
    except FormatError:
        return False
    return True


# --- messages of no certain format -----------------------------------------------------

MIN_MILLISECONDS: Final = 10**11
"""A smaller number is no Unix time in milliseconds of this century."""


def read_plain(data: Json, where: str) -> Message:
    """Read a message without marks of a provider. Blocks other than text and thinking are kept unchanged.

    It is sent unchanged in every format in which it is valid.
    """
    time = wire.number(data.get("timestamp")) or 0
    message = Message(
        role=wire.expect_role(data, {**wire.ROLES, "tool": "tool"}, where, format=PLAIN),
        parts=wire.read_content(data.get("content"), _BLOCKS, f"{where}.content", format=PLAIN),
        timestamp=time if time > MIN_MILLISECONDS else None,
    )
    return message.read_from(data, format=PLAIN)


def _read_thinking(data: Json, where: str) -> Thinking | Opaque:
    return Thinking(text=data["thinking"]) if isinstance(data.get("thinking"), str) else wire.carry(data, where)


_BLOCKS: Final[dict[str, Callable[[Json, str], Part]]] = {"text": wire.read_text, "thinking": _read_thinking}
