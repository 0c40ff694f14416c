"""Hooks: listeners that are called for compactions, and a function that may write the summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.calls import start_thread
from holdfast.errors import CompactionError, ModelCancelledError

if TYPE_CHECKING:
    from holdfast.compaction.plan import CompactionPlan

_TICK: Final = 0.05
"""How often a waiting call checks whether it was cancelled, in seconds."""
_THREAD: Final = "holdfast-hook"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    session: str
    agent: str = "main"
    project: str = ""
    workspace: str = ""
    session_key: str = ""
    message_provider: str = ""
    messages: int
    summarised: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting(_Event):
    """A compaction is about to begin.

    Attributes:
        session: The session.
        agent: The agent.
        project: The project.
        workspace: The agent's folder, if there is one.
        session_key: The key of the conversation, which is the same after a new session begins: in `holdfast chat`,
            for example `agent:main:main`; otherwise the session.
        message_provider: The source of the user's messages: `terminal` in `holdfast chat`.
        messages: The messages in the window.
        summarised: How many of them will be summarised.
        tokens: The tokens of the window.
    """

    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(_Event):
    """A compaction has been done, and is recorded. It has the attributes of `Compacting`, and these.

    Attributes:
        messages: The messages in the window now, the summary included.
        tokens_before: The tokens of the window before.
        tokens_after: The tokens of the window now.
    """

    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """The argument of the summary hook.

    Attributes:
        event: The compaction that is about to begin.
        plan: What it summarises and keeps, with files, failures and the previous summary.
        instructions: What the user wants this summary to focus on.
        reserve_tokens: The tokens of the window that are kept free for the reply.
        cancel: Set when the result is no longer wanted: the user cancelled, or the deadline has passed.
    """

    event: Compacting
    plan: CompactionPlan
    instructions: str | None
    reserve_tokens: int
    cancel: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """The result of the summary hook.

    Attributes:
        text: The summary; if it is empty, the engine makes one.
        details: JSON values that are stored with it, and override those of the engine.
        cancel: Whether to cancel the compaction.
    """

    text: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    cancel: bool = False


Hook: TypeAlias = Callable[[Compacting | Compacted], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks of an engine.

    Attributes:
        listeners: Called with every event, each on its own thread; nothing waits for them. Each gets its events in
            order. A failure is reported with the next window.
        summary: Called before a compaction; may return the summary. With None, an empty text or a failure, which is
            reported, the engine makes the summary.
        workspace: The folder that events name.
        session_key: The key of the conversation that events name; by default the session.
        message_provider: The source of the user's messages that events name.
        on_failure: Called with each failure of a listener as well, on the listener's thread.
    """

    listeners: Sequence[Hook] = ()
    summary: Callable[[SummaryRequest], SummaryResult | str | None] | None = None
    workspace: str = ""
    session_key: str = ""
    message_provider: str = ""
    on_failure: Callable[[str], object] | None = None
    _running: dict[int, Future[None]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def notify(self, event: Compacting | Compacted, report: Callable[[str], object]) -> None:
        """Start every listener and return at once; `report` is called with failures."""
        for place, listener in enumerate(self.listeners):
            call = partial(self._call, listener, event, report, after=self._running.get(place))
            self._running[place] = start_thread(call, name=_THREAD)

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
        except BaseException as error:  # noqa: BLE001 - the guard around code of others: the error is reported
            failure = f"{_name(listener)}: {error!r}"
            report(failure)
            if self.on_failure is not None:
                self.on_failure(failure)

    def wait(self, seconds: float) -> None:
        """Wait for listeners that still run, for up to `seconds`."""
        wait_for(list(self._running.values()), timeout=seconds)

    def ask_summary(
        self, request: SummaryRequest, *, cancel: Event | None, seconds: float
    ) -> tuple[SummaryResult | None, list[str]]:
        """Call the summary hook; return its result, and its failures. A hook may cancel with a CompactionError."""
        hook = self.summary
        if hook is None:
            return None, []
        deadline = time.monotonic() + seconds
        call = start_thread(lambda: hook(request), name=_THREAD)
        while not wait_for([call], timeout=_TICK).done:
            if cancel is not None and cancel.is_set():
                request.cancel.set()
                raise ModelCancelledError("the compaction was cancelled")
            if time.monotonic() > deadline:
                request.cancel.set()
                return None, [f"{_name(hook)}: not done after {seconds:g} s"]
        error = call.exception()
        if error is not None:
            return None, [f"{_name(hook)}: {error!r}"]
        return _read_result(_name(hook), call.result())


def _read_result(name: str, value: object) -> tuple[SummaryResult | None, list[str]]:
    if value is None:
        return None, []
    result = SummaryResult(text=value) if isinstance(value, str) else value
    if not isinstance(result, SummaryResult) or not _is_json(result.details):
        return None, [f"{name}: return a text, a SummaryResult with JSON values as details, or None"]
    if result.cancel:
        raise CompactionError(f"{name} cancelled the compaction")
    return result, []


def _is_json(details: Mapping[str, Any]) -> bool:
    try:
        json.dumps(dict(details))
    except (TypeError, ValueError):
        return False
    return True


def _name(hook: object) -> str:
    return f"hook {getattr(hook, '__name__', type(hook).__name__)}"
