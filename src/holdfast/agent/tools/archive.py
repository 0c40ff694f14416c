"""`archive_get`: what left the window, whole, by its number."""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import Annotated, Final

from msgspec import Meta

from holdfast.agent.tools.offer import Answer, Arguments, Offer, offer
from holdfast.agent.tools.toolbox import Keep
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.moments import minute
from holdfast.store.base import MessageRow
from holdfast.store.codec import words

__all__ = ["archive_tool", "keeper"]

MOST: Final = 20_000


class Get(Arguments, frozen=True):
    """The arguments of `archive_get`."""

    id: Annotated[int, Meta(description="The number that stands where something was cut or cleared.")]
    offset: Annotated[int, Meta(ge=0, description="The first character to show, from 0.")] = 0
    limit: Annotated[int, Meta(ge=1, description=f"How many characters; {MOST:,} at most.")] = MOST


def archive_tool(engine: Engine, *, session: str, agent: str = "main") -> Offer:
    """Offer what the archive holds of this agent's conversations."""
    return offer(
        "archive_get",
        "Show a message or tool result that was cut, cleared or summarised, whole, by its archive number. A long one "
        "comes in parts: go on with `offset`.",
        Get,
        partial(_get, engine, session, agent),
        together=True,
    )


def keeper(engine: Engine, *, session: str, agent: str = "main") -> Keep:
    """Archives the whole text of a result that the model is shown a part of."""

    def keep(call: ToolCall, text: str) -> int:
        whole = ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))
        message = Message(role="tool", parts=(whole,), id=f"{call.id}:whole")
        return engine.session(session, agent=agent).append([message])[0]

    return keep


def _get(engine: Engine, session: str, agent: str, asked: Get, _cancel: Event) -> Answer:
    rows = engine.session(session, agent=agent).get([asked.id])
    if not rows:
        raise InputError(f"the archive holds no message {asked.id}: use a number that stands in this conversation")
    text = words(rows[0].message)
    stop = min(len(text), asked.offset + min(asked.limit, MOST))
    more = f"\n\n[{len(text) - stop:,} characters follow: offset={stop} goes on]" if stop < len(text) else ""
    return Answer(text=f"{_header(rows[0])}\n{text[asked.offset : stop]}{more}")


def _header(row: MessageRow) -> str:
    message = row.message
    names = ", ".join(result.name or "a tool" for result in message.results)
    who = f"result of {names}" if names else f"said by {message.name or message.role}"
    when = minute(message.timestamp)
    return f"[archived message {row.id}, {who}{f', {when}' if when else ''}]"
