"""The deadlines of a recall. Each one leaves something out, so that a large memory still gives a block in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.calls import Deadline

FACTS_SHARE: Final = 0.2
"""The share of the deadline of the settings in which facts are embedded. The search for passages gets the rest: without
time it would leave out all vectors."""
FEW_AFTER: Final = 2
"""After this many times the deadline of the settings, only the best candidates are kept."""
MAX_OVERTIME: Final = 4
"""After this many times the deadline of the settings, nothing is recalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """When to leave out the vectors of further facts, all vectors, and all but the best candidates, and when to end."""

    facts: Deadline
    words_alone: Deadline
    few: Deadline
    end: Deadline

    @classmethod
    def start(cls, seconds: float | None, *, timer: Callable[[], float]) -> Deadlines:
        """Start a recall that may take `seconds`; None for any time. `timer` returns the seconds of work."""

        def after(times: float) -> Deadline:
            if seconds is None:
                return Deadline.after(None, clock=timer)
            return Deadline.after(times * seconds, clock=timer)

        return cls(facts=after(FACTS_SHARE), words_alone=after(1), few=after(FEW_AFTER), end=after(MAX_OVERTIME))
