"""What an engine tells whoever wants to know, and where they may have a say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import Final, TypeAlias, TypeVar

from holdfast.compaction.cut import CompactionPlan

__all__ = ["Compacted", "Compacting", "Hook", "Hooks", "supplied", "tell"]

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting:
    """A compaction is about to begin.

    Attributes:
        session: Whose.
        messages: How many messages the window holds.
        summarised: How many of them will leave it.
        tokens: What the window takes.
    """

    session: str
    messages: int
    summarised: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction has been done, and is recorded.

    Attributes:
        session: Whose.
        summarised: How many messages left the window.
        tokens_before: What it took.
        tokens_after: What it takes now.
    """

    session: str
    summarised: int
    tokens_before: int
    tokens_after: int


Event: TypeAlias = Compacting | Compacted
Hook: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called when something happens.

    Attributes:
        listeners: Called with every event, side by side. What they return does not matter; one that fails or
            hangs harms nobody, and is reported.
        summary: Asked before a compaction: what it returns is the summary, None leaves that to the engine. One
            that fails does as well, and is reported.
    """

    listeners: Sequence[Hook] = ()
    summary: Callable[[CompactionPlan], str | None] | None = None


def tell(listeners: Sequence[Hook], event: Event, *, patience: float = _PATIENCE) -> list[str]:
    """Tell every listener, all at once; what went wrong with any of them is returned."""
    if not listeners:
        return []
    asked = {_called(listener, event): listener for listener in listeners}
    done, late = wait(asked, timeout=patience)
    failed = [f"{_name(asked[call])}: {error!r}" for call in done if (error := call.exception()) is not None]
    return [*failed, *(f"{_name(asked[call])}: not done after {patience:g} s" for call in late)]


def supplied(hooks: Hooks, plan: CompactionPlan) -> tuple[str | None, list[str]]:
    """The summary that a hook wants to tell, if any, and what went wrong with it."""
    if hooks.summary is None:
        return None, []
    call = _called(hooks.summary, plan)
    error = call.exception()
    return (call.result(), []) if error is None else (None, [f"{_name(hooks.summary)}: {error!r}"])


def _called(hook: Callable[[T], R], about: T) -> Future[R]:
    """Call a hook on a thread of its own, for which nobody waits when the program ends."""
    call: Future[R] = Future()

    def run() -> None:
        try:
            call.set_result(hook(about))
        except BaseException as error:  # noqa: BLE001 - the guard around what others wrote: it is reported
            call.set_exception(error)

    Thread(target=run, name="holdfast-hook", daemon=True).start()
    return call


def _name(hook: object) -> str:
    return f"hook {getattr(hook, '__name__', type(hook).__name__)}"
