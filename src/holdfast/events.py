"""Hooks: listeners that hear of compactions, and the extension point that may write the summary itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.compaction.cut import CompactionPlan
from holdfast.errors import CompactionError, ModelCancelledError

__all__ = ["Compacted", "Compacting", "Hook", "Hooks", "SummaryRequest", "SummaryResult"]

R = TypeVar("R")

_TICK: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting:
    """A compaction is about to begin.

    Attributes:
        session: Which session.
        agent: Which agent.
        project: Which project.
        workspace: The agent's folder, where there is one.
        messages: How many messages the window holds.
        summarised: How many of them will leave it.
        tokens: What the window takes.
    """

    session: str
    agent: str = "main"
    project: str = ""
    workspace: str = ""
    messages: int
    summarised: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A compaction has been done, and is recorded.

    Attributes:
        session: Which session.
        agent: Which agent.
        project: Which project.
        workspace: The agent's folder, where there is one.
        messages: How many messages the window holds now, the summary included.
        summarised: How many messages left it.
        tokens_before: What it took.
        tokens_after: What it takes now.
    """

    session: str
    agent: str = "main"
    project: str = ""
    workspace: str = ""
    messages: int
    summarised: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What the extension point is asked.

    Attributes:
        event: The compaction that is about to begin.
        plan: What it summarises and keeps, with files, failures and the summary before it.
        instructions: What the user asked this summary to look out for.
        cancel: Set when the answer is no longer wanted: the user cancelled, or the deadline has passed.
    """

    event: Compacting
    plan: CompactionPlan
    instructions: str | None
    cancel: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """What the extension point may answer.

    Attributes:
        text: The summary; empty leaves it to the engine.
        details: JSON values that are stored with it, over those that the engine finds by rule.
        cancel: Do not compact.
    """

    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    cancel: bool = False


Hook: TypeAlias = Callable[[Compacting | Compacted], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called when a session is compacted.

    Attributes:
        listeners: Called with every event on threads of their own; nothing waits for them. Each gets its events in
            order. A failure is reported with the next window.
        summary: Asked before a compaction for the summary. None, or an empty text, leaves it to the engine; so does
            a failure, which is reported.
        workspace: The folder that events name.
        on_failure: Called with each failure of a listener as well, on the listener's thread.
    """

    listeners: Sequence[Hook] = ()
    summary: Callable[[SummaryRequest], SummaryResult | str | None] | None = None
    workspace: str = ""
    on_failure: Callable[[str], object] | None = None
    _running: dict[int, Future[None]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def tell(self, event: Compacting | Compacted, report: Callable[[str], object]) -> None:
        """Start every listener and return at once; `report` is called with what fails later."""
        for place, listener in enumerate(self.listeners):
            call = partial(self._call, listener, event, report, after=self._running.get(place))
            self._running[place] = _start(call)

    def _call(
        self,
        listener: Hook,
        event: Compacting | Compacted,
        report: Callable[[str], object],
        *,
        after: Future[None] | None,
    ) -> None:
        if after is not None:
            wait_for([after])
        try:
            listener(event)
        except BaseException as error:  # noqa: BLE001 - the guard around code of others: it is reported
            failure = f"{_name(listener)}: {error!r}"
            report(failure)
            if self.on_failure is not None:
                self.on_failure(failure)

    def wait(self, seconds: float) -> None:
        """Wait for listeners that still run, at most so long."""
        wait_for(list(self._running.values()), timeout=seconds)

    def supply(
        self, request: SummaryRequest, *, cancel: Event | None, seconds: float
    ) -> tuple[SummaryResult | None, list[str]]:
        """Ask the extension point for the summary; return it, and what went wrong with it.

        Raises:
            CompactionError: The hook cancelled the compaction.
            ModelCancelledError: The user did.
        """
        if (hook := self.summary) is None:
            return None, []
        call, deadline = _start(lambda: hook(request)), time.monotonic() + seconds
        while not wait_for([call], timeout=_TICK).done:
            if cancel is not None and cancel.is_set():
                request.cancel.set()
                raise ModelCancelledError("the compaction was cancelled")
            if time.monotonic() > deadline:
                request.cancel.set()
                return None, [f"{_name(hook)}: not done after {seconds:g} s"]
        if (error := call.exception()) is not None:
            return None, [f"{_name(hook)}: {error!r}"]
        given: object = call.result()
        if given is None:
            return None, []
        found = SummaryResult(text=given) if isinstance(given, str) else given
        if not isinstance(found, SummaryResult) or not _is_json(found.details):
            return None, [f"{_name(hook)}: return a text, a SummaryResult with JSON values as details, or None"]
        if found.cancel:
            raise CompactionError(f"{_name(hook)} cancelled it")
        return found, []


def _is_json(details: object) -> bool:
    try:
        return isinstance(details, Mapping) and bool(json.dumps(dict(details)))
    except (TypeError, ValueError):
        return False


def _start(hook: Callable[[], R]) -> Future[R]:
    """Call a hook on a thread of its own, which does not keep the program from ending."""
    call: Future[R] = Future()

    def run() -> None:
        try:
            call.set_result(hook())
        except BaseException as error:  # noqa: BLE001 - the guard around code of others: it is reported
            call.set_exception(error)

    Thread(target=run, name="holdfast-hook", daemon=True).start()
    return call


def _name(hook: object) -> str:
    return f"hook {getattr(hook, '__name__', type(hook).__name__)}"
