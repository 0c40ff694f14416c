"""Call a model through a session: a request that does not fit is compacted and sent again, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any, Final

from holdfast.compact import Compaction
from holdfast.errors import CompactionError, ModelOverflowError, StorageError, WindowTooSmallError
from holdfast.models.base import Model, OnText, Prompt, Reply, Tool
from holdfast.providers import Incoming
from holdfast.providers.overflow import is_silent_overflow
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

    Attributes:
        tools: The tools that the model may call.
        limit: The context window; by default that of the settings or of the model.
        max_tokens: The maximum length of the reply.
        timeout: Seconds to wait for the reply.
        cancel: Cancels the call when set.
        on_text: Called with each piece of the reply.
        before_compact: Called before a compaction after an overflow.
        on_compact: Called with each such compaction once it is recorded.
        facts: Facts that the caller chose for this question.
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
    """The reply of a model.

    Attributes:
        window: The window that was sent.
        reply: The reply.
        compactions: The compactions that were necessary.
        overflows: How often the provider reported that the request did not fit.
    """

    window: Window
    reply: Reply
    compactions: tuple[Compaction, ...] = ()
    overflows: int = 0


def complete_with_recovery(
    session: Session, messages: Sequence[Incoming], request: ModelRequest, *, model: Model
) -> Completion:
    """Send a conversation to a model, in a window that fits.

    After an overflow the session is compacted; if there is nothing left to compact, or the provider counts more tokens
    than we do, the window is made smaller. This is done at most three times.

    Raises:
        ModelOverflowError: The request does not fit after all tries; the message says what to do.
        ModelError: The model gave no reply.
    """
    limit = request.limit or session.engine.settings.agent.context_tokens or model.context_tokens
    compactions: list[Compaction] = []
    for overflows in range(MAX_RETRIES + 1):
        try:
            window = _assemble_or_compact(session, messages, request, limit=limit, model=model, compactions=compactions)
            reply = _call_model(model, window, request)
        except WindowTooSmallError as error:
            raise ModelOverflowError(str(error), model=model.name, limit=error.limit, requested=error.needed) from error
        except ModelOverflowError as error:
            if overflows == MAX_RETRIES:
                raise ModelOverflowError(
                    f"the request does not fit after {MAX_RETRIES} tries. Start a new session (/new), use a model with "
                    f"a larger window, or set agent.context_tokens to what this one holds ({error})",
                    model=model.name,
                    status=error.status,
                    limit=error.limit,
                    requested=error.requested,
                    tries=MAX_RETRIES,
                ) from error
            done = _compact(session, request, limit)
            compactions += done
            limit = _next_limit(limit, error, window, reply=request.max_tokens, shrink=bool(overflows) or not done)
            continue
        return Completion(window=window, reply=reply, compactions=tuple(compactions), overflows=overflows)
    raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises


def definition(tool: Tool) -> dict[str, Any]:
    """Return the definition of a tool as a request contains it."""
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _assemble_or_compact(
    session: Session,
    messages: Sequence[Incoming],
    request: ModelRequest,
    *,
    limit: int,
    model: Model,
    compactions: list[Compaction],
) -> Window:
    """Assemble the window. If the newest messages alone do not fit, compact once and try again."""
    tools = [definition(tool) for tool in request.tools]
    provider, facts = model.provider, request.facts
    assemble = partial(session.assemble, messages, limit=limit, provider=provider, tools=tools, facts=facts)
    try:
        return assemble()
    except WindowTooSmallError as error:
        plan = session.compact(limit=limit, dry_run=True).plan
        can_help = plan.outcome == "ready" and plan.tokens_kept < error.limit  # else one message is too long by itself
        done = _compact(session, request, limit) if can_help else []
        if not done:
            raise
    compactions += done
    return assemble()


def _call_model(model: Model, window: Window, request: ModelRequest) -> Reply:
    prompt = Prompt(messages=window.messages, tools=request.tools, max_tokens=request.max_tokens)
    reply = model.ask(prompt, timeout=request.timeout, cancel=request.cancel, on_text=request.on_text)
    if is_silent_overflow(reply.usage, context_tokens=model.context_tokens):
        raise ModelOverflowError("the provider truncated the request without an error", model=model.name)
    return reply


def _compact(session: Session, request: ModelRequest, limit: int) -> list[Compaction]:
    """Compact; return nothing if there is nothing to compact or the summary cannot be stored."""
    if request.before_compact is not None:
        request.before_compact()
    try:
        done = session.compact(limit=limit, cancel=request.cancel)
    except (CompactionError, StorageError):
        return []
    if request.on_compact is not None:
        request.on_compact(done)
    return [done]


def _next_limit(limit: int, error: ModelOverflowError, window: Window, *, reply: int, shrink: bool) -> int:
    """Compute the limit for the next try: the provider's, and less if it counts more tokens than we do."""
    known = min(limit, error.limit) if error.limit else limit
    ours = window.report.total_tokens + reply  # some providers count the maximum reply as well
    if error.requested and error.requested > ours:
        return int(known * SAFETY_MARGIN * ours / error.requested)
    return int(known * SHRINK_FACTOR) if shrink else known
