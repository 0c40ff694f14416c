"""Messages as Gemini takes them: turns that alternate strictly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.context.pairing import is_blank
from holdfast.context.shape.parts import (
    Log,
    bare,
    begun,
    edited,
    is_thought,
    join,
    placed,
    prompted,
    runs,
    without_empty,
)
from holdfast.formats import leading_system
from holdfast.formats.wire import kept
from holdfast.messages import Message, Part, Text, ToolResult

__all__ = ["shape"]

NAME: Final = "gemini"


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already, as turns that alternate; the user begins."""
    messages = prompted(messages, log)
    lead = leading_system(messages, NAME)
    said = placed(messages[lead:], _said, log, "content")
    said = without_empty(placed(said, _Names().change, log, "name"), log)
    return [*messages[:lead], *(_one(run, log) for run in runs(begun(said, log)))]


def _one(run: Sequence[Message], log: Log) -> Message:
    if len(run) > 1 and any(kept(message, NAME) for message in run):
        log.note("joined", None, f"put {len(run)} contents of one side together, responses first")
    return run[0] if len(run) == 1 else join(run)


def _said(message: Message) -> Message:
    """The message in a role that a turn can have, with what Gemini has a place for."""
    if message.role == "system":
        message = replace(message, role="user", origin=None)
    elif (old := kept(message, NAME)) and old.get("role") is None:  # only a request of one content can do without it
        message = replace(message, origin=None)
    return edited(message, _part)


def _part(part: Part) -> Part | None:
    """What Gemini has a place for. Thinking of others means nothing to it."""
    own = bool(kept(part, NAME))
    if isinstance(part, Text):
        return part if part.text and (own or not is_blank(part)) else None
    return None if bare(part, NAME) or (is_thought(part) and not own) else part


class _Names(dict[str, str]):
    """The name of each call so far, by its id: its response has the same."""

    def change(self, message: Message) -> Message:
        """The message with responses that are named as their calls are."""
        self.update((call.id, call.name) for call in message.calls)
        return edited(message, self._named)

    def _named(self, part: Part) -> Part:
        if not isinstance(part, ToolResult) or self.get(part.call_id, part.name) == part.name:
            return part
        return replace(part, name=self[part.call_id], origin=None)
