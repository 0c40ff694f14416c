"""Call a model through a session: a request that does not fit is compacted and sent again, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import Any, Final

from holdfast.compaction.run import Compaction
from holdfast.errors import CompactionError, ModelOverflowError, StorageError, WindowTooSmallError
from holdfast.models.base import Model, OnText, Prompt, Reply, Tool
from holdfast.providers import Incoming
from holdfast.providers.overflow import Numbers, believe, is_silent_overflow
from holdfast.session import Session
from holdfast.store.base import FactRow
from holdfast.window import Window

MAX_RETRIES: Final = 3
"""How often an overflow is answered by a smaller request."""
SHRINK_FACTOR: Final = 0.75
SAFETY_MARGIN: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model.

    The limit is by default that of the settings or of the model; `before_compact` and `on_compact` are called around a
    compaction after an overflow, the latter once it is recorded; `facts` are those that the caller chose for this
    question.
    """

    tools: Sequence[Tool] = ()
    limit: int | None = None
    max_tokens: int = 4_096
    timeout: float | None = None
    cancel: Event | None = None
    on_text: OnText = None
    before_compact: Callable[[], object] | None = None
    on_compact: Callable[[Compaction], object] | None = None
    facts: Sequence[FactRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The reply of a model, the window that was sent, and the compactions and overflows before it."""

    window: Window
    reply: Reply
    compactions: tuple[Compaction, ...] = ()
    overflows: int = 0


def complete_with_recovery(
    session: Session, messages: Sequence[Incoming], request: ModelRequest, *, model: Model
) -> Completion:
    """Send a conversation to a model, in a window that fits.

    After an overflow the session is compacted; if there is nothing left to compact, or the provider counts more tokens
    than we do, the window is made smaller. This is done at most three times; then a ModelOverflowError says what to do.
    """
    limit = request.limit or session.settings.model.context_tokens or model.context_tokens
    attempt = _Attempt(session, messages, request, model, limit)
    for overflows in range(MAX_RETRIES + 1):
        try:
            window = attempt.assemble()
            reply = attempt.call_model(window)
        except WindowTooSmallError as error:
            raise ModelOverflowError(str(error), model=model.name, limit=error.limit, requested=error.needed) from error
        except ModelOverflowError as error:
            if overflows == MAX_RETRIES:
                raise ModelOverflowError(
                    f"the request does not fit after {MAX_RETRIES} tries. Start a new session (/new), use a model with "
                    f"a larger window, or set model.context_tokens to what this one holds ({error})",
                    model=model.name,
                    status=error.status,
                    limit=error.limit,
                    requested=error.requested,
                    tries=MAX_RETRIES,
                ) from error
            attempt.set_limit(error, window, shrink=not attempt.compact() or bool(overflows))
            continue
        return Completion(window=window, reply=reply, compactions=tuple(attempt.compactions), overflows=overflows)
    raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises


def definition(tool: Tool) -> dict[str, Any]:
    """Return the definition of a tool as a request contains it."""
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


@dataclass(slots=True)
class _Attempt:
    """A request that is made smaller until it fits: its limit now, and the compactions so far."""

    session: Session
    messages: Sequence[Incoming]
    request: ModelRequest
    model: Model
    limit: int
    compactions: list[Compaction] = field(default_factory=list)

    def assemble(self) -> Window:
        """Assemble the window. If the newest messages alone do not fit, compact once and try again."""
        tools = [definition(tool) for tool in self.request.tools]
        assemble = partial(
            self.session.assemble,
            self.messages,
            limit=self.limit,
            model=self.model.name,
            provider=self.model.provider,
            tools=tools,
            facts=self.request.facts,
        )
        try:
            return assemble()
        except WindowTooSmallError as error:
            try:
                plan = self.session.compact(limit=self.limit, dry_run=True).plan
            except StorageError:  # the report of a request would say so; the larger trouble is that it does not fit
                raise error from None
            # A message that is too long by itself is no reason to compact.
            if plan.outcome != "ready" or plan.tokens_kept >= error.limit or not self.compact():
                raise
        return assemble()

    def call_model(self, window: Window) -> Reply:
        request, model = self.request, self.model
        prompt = Prompt(messages=window.messages, tools=request.tools, max_tokens=request.max_tokens)
        reply = model.ask(prompt, timeout=request.timeout, cancel=request.cancel, on_text=request.on_text)
        if is_silent_overflow(reply.usage, context_tokens=model.context_tokens):
            raise ModelOverflowError("the provider truncated the request without an error", model=model.name)
        return reply

    def compact(self) -> bool:
        """Compact; return whether there was something to compact and the summary could be stored."""
        if self.request.before_compact is not None:
            self.request.before_compact()
        try:
            done = self.session.compact(limit=self.limit, cancel=self.request.cancel)
        except (CompactionError, StorageError):
            return False
        if self.request.on_compact is not None:
            self.request.on_compact(done)
        self.compactions.append(done)
        return True

    def set_limit(self, error: ModelOverflowError, window: Window, *, shrink: bool) -> None:
        """Set the limit for the next try: the provider's, and less if it counts more tokens than we do."""
        ours = window.report.total_tokens + self.request.max_tokens  # some providers count the maximum reply as well
        limit, requested = believe(Numbers(limit=error.limit, requested=error.requested), sent=ours)
        known = min(self.limit, limit) if limit else self.limit
        if requested and requested > ours:
            self.limit = int(known * SAFETY_MARGIN * ours / requested)
        else:
            self.limit = int(known * SHRINK_FACTOR) if shrink else known
