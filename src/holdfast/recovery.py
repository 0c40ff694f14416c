"""Asking a model with an engine behind it: what does not fit is compacted and asked again, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from holdfast.compact import Compaction
from holdfast.engine import Engine
from holdfast.errors import CompactionError, ModelOverflowError, StorageError, WindowTooSmallError
from holdfast.formats import Incoming
from holdfast.models.base import Model, Prompt, Reply, Tool
from holdfast.models.overflow import is_silent_overflow
from holdfast.store.base import FactRow
from holdfast.window import Window

__all__ = ["Answer", "Ask", "ask", "definition"]

_MOST: Final = 3
"""How often an overflow is answered by a smaller request."""
_SMALLER: Final = 0.75
_MARGIN: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to a model.

    Attributes:
        session: Whose window it is.
        tools: What may be called.
        limit: What the model can hold; its own window unless given.
        max_tokens: The longest answer.
        timeout: Seconds until it is given up.
        cancel: When set, it is called off.
        on_text: Called with each piece of the answer.
        before_compact: Called before a compaction that an overflow makes necessary.
        on_compact: Called with each such compaction once it is recorded.
        facts: Facts that the caller has chosen for this question.
        project: Which project the session belongs to.
        agent: Which agent.
    """

    session: str
    tools: Sequence[Tool] = ()
    limit: int | None = None
    max_tokens: int = 4_096
    timeout: float | None = None
    cancel: Event | None = None
    on_text: Callable[[str], None] | None = None
    before_compact: Callable[[], object] | None = None
    on_compact: Callable[[Compaction], object] | None = None
    facts: Sequence[FactRow] = ()
    project: str = ""
    agent: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Attributes:
        window: What the model saw.
        reply: What it said.
        compactions: What had to be compacted for it.
        overflows: How often the provider said that the request did not fit.
    """

    window: Window
    reply: Reply
    compactions: tuple[Compaction, ...] = ()
    overflows: int = 0


def ask(engine: Engine, messages: Sequence[Incoming], request: Ask, *, model: Model) -> Answer:
    """Ask a model about a conversation, in a window that it can hold.

    An overflow is followed by a compaction, and by a smaller window when there is nothing left to compact or the
    provider counts otherwise than we do: at most three times. Tool results shrink last of all.

    Raises:
        ModelOverflowError: It does not fit whatever is done; the message says what would help.
        ModelError: The model gave no answer.
    """
    limit = request.limit or engine.settings.agent.context_tokens or model.context_tokens
    compactions: list[Compaction] = []
    for overflows in range(_MOST + 1):
        window = _fitting(engine, messages, request, limit=limit, model=model, compactions=compactions)
        try:
            reply = _asked(model, window, request)
        except ModelOverflowError as error:
            if overflows == _MOST:
                raise _given_up(error, model) from error
            compacted = _compacted(engine, request, limit)
            compactions += compacted
            limit = _smaller(limit, error, window, reply=request.max_tokens, again=bool(overflows) or not compacted)
            continue
        return Answer(window=window, reply=reply, compactions=tuple(compactions), overflows=overflows)
    raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises


def _fitting(
    engine: Engine,
    messages: Sequence[Incoming],
    request: Ask,
    *,
    limit: int,
    model: Model,
    compactions: list[Compaction],
) -> Window:
    """The window. Where the newest messages alone are too much for it, most of them may become a summary."""
    try:
        return _assembled(engine, messages, request, limit=limit, model=model)
    except WindowTooSmallError as error:
        compacted = _compacted(engine, request, limit) if _would_help(engine, request, limit, error) else []
        if not compacted:
            raise _too_small(error, model) from error
    compactions += compacted
    try:
        return _assembled(engine, messages, request, limit=limit, model=model)
    except WindowTooSmallError as error:
        raise _too_small(error, model) from error


def _assembled(engine: Engine, messages: Sequence[Incoming], request: Ask, *, limit: int, model: Model) -> Window:
    return engine.session(request.session, project=request.project, agent=request.agent).assemble(
        messages,
        limit=limit,
        provider=model.provider,
        tools=[definition(tool) for tool in request.tools],
        facts=request.facts,
    )


def _would_help(engine: Engine, request: Ask, limit: int, error: WindowTooSmallError) -> bool:
    """Whether what a compaction keeps fits: one message that is too long by itself never does."""
    planned = engine.session(request.session, project=request.project, agent=request.agent).compact(
        limit=limit, dry_run=True
    )
    return planned.plan.outcome == "ready" and planned.plan.tokens_kept < error.limit


def _too_small(error: WindowTooSmallError, model: Model) -> ModelOverflowError:
    return ModelOverflowError(str(error), model=model.name, limit=error.limit, requested=error.needed)


def definition(tool: Tool) -> dict[str, Any]:
    """A tool as a request has it."""
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _asked(model: Model, window: Window, request: Ask) -> Reply:
    prompt = Prompt(messages=window.messages, tools=request.tools, max_tokens=request.max_tokens)
    reply = model.ask(prompt, timeout=request.timeout, cancel=request.cancel, on_text=request.on_text)
    if is_silent_overflow(reply.usage, context_tokens=model.context_tokens):
        raise ModelOverflowError("the provider cut the request without a word", model=model.name)
    return reply


def _compacted(engine: Engine, request: Ask, limit: int) -> list[Compaction]:
    """The compaction, if there is anything to compact and memory can hold the summary."""
    if request.before_compact is not None:
        request.before_compact()
    try:
        done = engine.session(request.session, project=request.project, agent=request.agent).compact(
            limit=limit, cancel=request.cancel
        )
    except (CompactionError, StorageError):
        return []
    if request.on_compact is not None:
        request.on_compact(done)
    return [done]


def _smaller(limit: int, error: ModelOverflowError, window: Window, *, reply: int, again: bool) -> int:
    """The limit for the next try: what the provider says it is, and less where it counts more than we do.

    Some providers count the longest reply as well.
    """
    known = min(limit, error.limit) if error.limit else limit
    ours = window.report.total_tokens + reply
    if error.requested and error.requested > ours:
        return int(known * _MARGIN * ours / error.requested)
    return int(known * _SMALLER) if again else known


def _given_up(error: ModelOverflowError, model: Model) -> ModelOverflowError:
    return ModelOverflowError(
        f"the request does not fit after {_MOST} tries. Start a new session (/new), use a model with a larger window, "
        f"or set agent.context_tokens to what this one holds ({error})",
        model=model.name,
        status=error.status,
        limit=error.limit,
        requested=error.requested,
        tries=_MOST,
    )
