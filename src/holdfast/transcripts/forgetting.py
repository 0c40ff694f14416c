"""Forgetting in a session file: the words of entries go, the entries stay where they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.transcripts.entry import Entry
from holdfast.transcripts.lines import Line
from holdfast.transcripts.records import encode

__all__ = ["FORGOTTEN", "emptied", "is_forgotten"]

FORGOTTEN: Final = "[Forgotten.]"
"""What stands where something was said."""
_MARK: Final = "forgotten"
_STAYS: Final = frozenset(
    {"api", "isError", "model", "provider", "role", "stopReason", "timestamp", "toolCallId", "toolName", "usage"}
)
_SUMMARIES: Final = frozenset({"branch_summary", "compaction"})


def is_forgotten(entry: Entry) -> bool:
    """Tell whether the words of an entry were forgotten: what stands in their place was said by nobody."""
    return entry.data.get(_MARK) is True


def emptied(lines: Iterable[Line], entries: Collection[str]) -> Iterator[bytes]:
    """The lines of a file without the words of these entries, and without what later summaries may tell of them."""
    gone = False
    for line in lines:
        record = line.data or {}
        if record.get("id") in entries and isinstance(message := record.get("message"), Mapping):
            gone = True
            yield encode({**record, _MARK: True, "message": _wordless(message)}, strict=False)
        elif gone and record.get("type") in _SUMMARIES:
            kept = {key: value for key, value in record.items() if key != "details"}
            yield encode({**kept, "summary": FORGOTTEN}, strict=False)
        else:
            yield line.raw if line.raw.endswith(b"\n") else line.raw + b"\n"


def _wordless(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message that says that it was forgotten; its calls stay as far as results name them."""
    content = message.get("content")
    blocks: list[Any] = content if isinstance(content, list) else []
    calls: list[dict[str, Any]] = [
        {"type": "toolCall", "id": block.get("id"), "name": block.get("name"), "arguments": {}}
        for block in blocks
        if isinstance(block, Mapping) and block.get("type") == "toolCall"
    ]
    known = {key: value for key, value in message.items() if key in _STAYS}
    return {**known, "content": [{"type": "text", "text": FORGOTTEN}, *calls]}
