"""The functions that make up a wire format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.messages import Message, Part
from holdfast.providers.rules import Violation
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """The wire form of one provider.

    The second argument of `read` is the path of the object, for errors. `render` returns a message that was read from
    this format and not edited as it came. `is_own` returns whether an object has something that only this format has.
    `shape` changes messages whose calls and results are paired so that the provider accepts them; `check` shares no
    function with it and with `render`, so that it finds their mistakes. The first of `system_keys` is the one that we
    write.
    """

    name: str
    read: Callable[[Json, str], Message]
    render: Callable[[Sequence[Message]], list[Json]]
    is_own: Callable[[Json], bool]
    shape: Callable[[Sequence[Message], Log], list[Message]]
    check: Callable[[Sequence[Json]], list[Violation]]
    list_key: str = "messages"
    system_keys: tuple[str, ...] = ()
    read_system: Callable[[Any, str], tuple[Part, ...]] | None = None
    render_system: Callable[[Sequence[Message]], Any] | None = None
