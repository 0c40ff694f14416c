"""What the providers' SDKs return, as the JSON that one would send back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from holdfast.formats.anthropic import ANTHROPIC, read_usage
from holdfast.messages import Message

__all__ = ["Incoming", "without_sdk"]


class _Dumpable(Protocol):
    """An object of an SDK: Anthropic's `Message`, OpenAI's `ChatCompletionMessage`, `Response` or an item of it."""

    def model_dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The object as plain data."""


Incoming: TypeAlias = Message | Mapping[str, Any] | _Dumpable
"""A message as a caller hands it in: canonical, any provider's dict, or what an SDK returned."""

_LISTS: Final = ("content", "parts", "tool_calls")
_ADDED: Final = {
    **dict.fromkeys(("parsed", "parsed_arguments", "parsed_output"), True),
    "function": {"parsed_arguments"},
}
"""What SDKs put beside a reply for their caller; no provider takes it back."""


def without_sdk(messages: Iterable[Any]) -> list[Any]:
    """The messages without objects of an SDK; a reply of several items becomes as many messages.

    A dict may hold objects too: a reply's content is often put into one as it is.
    """
    found: list[Any] = []
    for item in messages:
        if isinstance(item, dict):
            held = {key: _blocks(item[key]) for key in _LISTS if key in item and _holds_objects(item[key])}
            found.append({**item, **held} if held else item)
        elif isinstance(item, Message | Mapping):
            found.append(item)
        else:
            found += _plain(item)
    return found


def _plain(item: Any) -> Iterator[Any]:
    if not callable(getattr(item, "model_dump", None)):
        yield item  # whoever reads it says what is wrong with it
    elif isinstance(output := getattr(item, "output", None), list) and hasattr(item, "parallel_tool_calls"):
        yield from map(_dump, output)
    elif choices := getattr(item, "choices", None):
        yield _dump(choices[0].message)
    elif candidates := getattr(item, "candidates", None):
        yield _dump(candidates[0].content)
    elif getattr(item, "type", None) == "message" and hasattr(item, "stop_reason"):
        yield _reply(item)
    else:
        yield _dump(item)


def _holds_objects(blocks: Any) -> bool:
    if isinstance(blocks, list):
        for block in blocks:
            if not isinstance(block, dict) and hasattr(block, "model_dump"):
                return True
    return False


def _dump(item: Any) -> dict[str, Any]:
    """An object as it is sent back: without what is null, and without what the SDK adds for its caller."""
    data: dict[str, Any] = item.model_dump(mode="json", exclude_none=True, by_alias=True, exclude=_ADDED)
    return {**data, **{key: _blocks(getattr(item, key)) for key in _LISTS if _holds_objects(getattr(item, key, None))}}


def _blocks(value: Iterable[Any]) -> list[Any]:
    return [_dump(block) if hasattr(block, "model_dump") else block for block in value]


def _reply(item: Any) -> Message:
    """A reply of Anthropic: what is sent back is its role and content; the rest of it is known beside that."""
    data = _dump(item)
    message = ANTHROPIC.read({"role": data.get("role"), "content": data.get("content")}, "messages")
    return replace(message, usage=read_usage(data.get("usage")), model=data.get("model"), stop=data.get("stop_reason"))
