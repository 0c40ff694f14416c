"""A window that only grew is finished only where it grew.

Between two cuts a window is the one before it with something added. What was in order then is in order now:
only what came after the last change of speakers has to be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Final, TypeAlias

from holdfast.context.edits import Item, messages_of
from holdfast.context.finish import Finished, finish
from holdfast.context.pairing import Repair
from holdfast.errors import InvalidWindowError
from holdfast.formats.wire import kept
from holdfast.messages import Message, Text

__all__ = ["Settled"]

_Make: TypeAlias = Callable[[Sequence[Message]], Finished]
"""Makes messages valid for one provider."""
_ENOUGH: Final = 24
"""Messages that are looked at again each time, before those that are in order are set apart."""
_RESPONSES: Final = "openai_responses"
_UNIQUE: Final = frozenset({"anthropic", _RESPONSES})
"""Providers that want every id once."""
_BEGUN: Final = "first-user"
"""What is noted where the user had to be made to speak first."""
_ASKED: Final = Message(role="user", parts=(Text(text="?"),))


@dataclass(slots=True)
class Settled:
    """The beginning of a session's windows, in the form in which it is sent.

    It changes nothing about a window: what comes out is what `finish` makes of all of it.
    """

    provider: str = ""
    items: list[Item] = field(default_factory=list)
    done: Finished | None = None
    ids: set[str] = field(default_factory=set)

    def finish(self, items: Sequence[Item], provider: str, *, reasoned: Mapping[str, str] | None = None) -> Finished:
        """Make a window valid for a provider, as `finish` does.

        Raises:
            InvalidWindowError: It still breaks a rule. Nothing may be sent.
        """
        if provider != self.provider or not self._begins(items):
            self.provider, self.items, self.done, self.ids = provider, [], None, set()
        make: _Make = partial(finish, provider=provider, reasoned=reasoned or {})
        rest = messages_of(items[len(self.items) :])
        whole = self._continued(rest, make) or make(messages_of(items))
        if len(rest) >= _ENOUGH:
            self._settle(items, rest, make)
        return whole

    def _begins(self, items: Sequence[Item]) -> bool:
        return len(items) > len(self.items) and all(map(is_, self.items, items))

    def _continued(self, rest: Sequence[Message], make: _Make) -> Finished | None:
        """What is settled with the rest after it; None where they cannot be told apart."""
        if self.done is None:
            return None
        found = _alone(rest, make)
        if found is None or not self.ids.isdisjoint(_ids([*rest, *found.messages], self.provider)):
            return None
        return replace(
            found,
            messages=(*self.done.messages, *found.messages),
            wire=(*self.done.wire, *found.wire),
            repairs=_moved(found.repairs, by=len(self.items)),
        )

    def _settle(self, items: Sequence[Item], rest: Sequence[Message], make: _Make) -> None:
        """Set apart all up to the last change of speakers, where nothing in it had to be mended."""
        stop = _last_change(rest)
        before = rest[:stop]
        found = _closed(before, make, alone=self.done is not None) if stop else None
        if found is None or found.repairs or found.violations:
            return
        ids = _ids([*before, *found.messages], self.provider)
        if not self.ids.isdisjoint(ids):
            return
        self.ids |= ids
        self.items = list(items[: len(self.items) + stop])
        old = self.done
        self.done = (
            found
            if old is None
            else replace(found, messages=(*old.messages, *found.messages), wire=(*old.wire, *found.wire))
        )


def _last_change(messages: Sequence[Message]) -> int:
    """Where somebody else begins to speak for the last time; 0 where nobody does."""
    for index in range(len(messages) - 1, 0, -1):
        before, after = messages[index - 1], messages[index]
        if after.role != "system" and (before.role == "assistant") != (after.role == "assistant"):
            return index
    return 0


def _alone(messages: Sequence[Message], make: _Make) -> Finished | None:
    """Messages made valid as if something of the other side stood before them; None where it would matter what."""
    if messages[0].role == "system":
        return None
    if messages[0].role != "assistant":
        found = _tried(messages, make)
        return found if found is not None and _begins(found, "user", "tool") else None
    found = _tried([_ASKED, *messages], make)
    if found is None or found.messages[0].parts != _ASKED.parts:
        return None
    rest = replace(found, messages=found.messages[1:], wire=found.wire[1:], repairs=_moved(found.repairs, by=-1))
    return rest if _begins(rest, "assistant") else None


def _begins(found: Finished, *roles: str) -> bool:
    """Tell whether one of these speaks first of their own accord, and nothing is wrong."""
    made_to = any(mended.rule == _BEGUN for mended in found.repairs)
    return bool(found.messages) and found.messages[0].role in roles and not made_to and not found.violations


def _moved(repairs: Iterable[Repair], *, by: int) -> tuple[Repair, ...]:
    """The repairs, as of a list that has so many messages more before them."""
    return tuple(mended if mended.where is None else replace(mended, where=mended.where + by) for mended in repairs)


def _closed(messages: Sequence[Message], make: _Make, *, alone: bool) -> Finished | None:
    """Messages made valid as if the other side went on after them."""
    replied = messages[-1].role == "assistant"
    going_on = [*messages, _ASKED] if replied else messages
    found = _alone(going_on, make) if alone else _tried(going_on, make)
    if found is None or not replied:
        return found
    if found.messages[-1].parts != _ASKED.parts:
        return None
    return replace(found, messages=found.messages[:-1], wire=found.wire[:-1])


def _tried(messages: Sequence[Message], make: _Make) -> Finished | None:
    """A part of a window made valid; None where nothing of it can be sent by itself."""
    try:
        return make(messages)
    except InvalidWindowError:
        return None


def _ids(messages: Iterable[Message], provider: str) -> set[str]:
    """Everything by which one part of a conversation may name another, or be taken for it.

    Where the ids of calls need not be unique, those that are answered are of no matter to what comes later.
    """
    found: set[str] = set()
    for message in messages if provider in _UNIQUE else ():
        found.update(call.id for call in message.calls)
        found.update(result.call_id for result in message.results)
        for value in (message, *message.parts):
            own = kept(value, _RESPONSES).get("id")
            if isinstance(own, str):
                found.add(own)
    return found
