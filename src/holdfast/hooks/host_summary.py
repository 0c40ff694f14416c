"""Summaries that the host of an agent has its own model write: recognise the request, and find what a summary lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.compaction.audit import audit, find_fault, find_requirements
from holdfast.compaction.digest import make_digest
from holdfast.compaction.plan import CompactionPlan, find_request
from holdfast.compaction.tool_calls import find_activity
from holdfast.context.edits import Item
from holdfast.messages import Message, Text
from holdfast.models.base import Reply
from holdfast.patterns import load
from holdfast.settings import Compaction

LOST: Final = "The summary of the conversation left these details out. They are quoted from the archive:"
MAX_DIGEST_TOKENS: Final = 1_500
"""The maximum tokens that are added to a summary with almost no content."""
_MIN_SUMMARY_CHARS: Final = 300
"""A shorter summary of a longer conversation counts as empty."""
_MIN_HISTORY_CHARS: Final = 10 * _MIN_SUMMARY_CHARS
_HEAD_CHARS: Final = 1_500
_TAIL_CHARS: Final = 4_000
_SYSTEM_CHARS: Final = 1_000


def is_summary_request(messages: Sequence[Message]) -> bool:
    """Return whether a host asks for a summary of its conversation, by the words that the known hosts use."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or last.results:
        return False
    tables = load("compactions")
    texts = [part.text for part in last.parts if isinstance(part, Text)]
    asked = "".join(f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}\n" for text in texts[-2:])
    prompts = [message.text[:_SYSTEM_CHARS] for message in messages if message.role == "system"]
    return _contains(asked, tables["instructions"]) or any(_contains(text, tables["system"]) for text in prompts)


def _contains(text: str, table: dict[str, list[str]]) -> bool:
    return any(words in text for known in table.values() for words in known)


def find_lost(history: Sequence[Message], summary: str, *, settings: Compaction) -> str:
    """Return what a summary of a history lacks, as text to add to it; empty if it lacks nothing.

    A summary with almost no content, or a text that is not a summary, gets a digest of the history that is made by
    rule.
    """
    items = [Item(message=message, id=0, tokens=0) for message in history if message.role != "system"]
    activity, request = find_activity([item.message for item in items]), find_request(items)
    reply = Reply(message=Message(role="assistant", parts=(Text(text=summary),)))
    is_short = len(summary.strip()) < _MIN_SUMMARY_CHARS
    if (is_short or find_fault(reply)) and sum(len(item.message.text) for item in items) > _MIN_HISTORY_CHARS:
        messages = [item.message for item in items]
        digest = make_digest(messages, limit=MAX_DIGEST_TOKENS, activity=activity, request=request)
        return f"{LOST}\n\n{digest}"
    plan = CompactionPlan(outcome="ready", reason="", history=tuple(items), request=request, activity=activity)
    lost = audit(summary, find_requirements(plan, settings=settings))
    lines = [line for line in str(lost).splitlines() if not line.startswith(("- the heading", "- it must be"))]
    return "\n".join([LOST, *lines]) if lines else ""
