"""One model request through a session. The proxy, the adapters and the agent all make their requests here.

    exchange = exchanges.begin(session, read_body(body, format="anthropic"))
    response = send(exchange.body)
    while not response.is_success:
        smaller = exchange.shrink(find_refusal(response.text, status=response.status_code))
        if smaller is None:
            break
        exchange = smaller
        response = send(exchange.body)
    exchange.archive(read_reply(response.json(), "anthropic"))

Nothing here talks to a provider. The caller sends the request with any client, synchronous or not, and passes in the
refusal or the reply. An `Exchange` is a value: `shrink` returns another one. Its methods read and write the memory, so
an asynchronous caller runs them in a thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any, Final, Protocol, TypeAlias

from holdfast import providers
from holdfast.cache import LruCache
from holdfast.context.budget import LimitSource, budget
from holdfast.errors import (
    CompactionError,
    HoldfastError,
    ModelCancelledError,
    ModelError,
    ModelOverflowError,
    StorageError,
    UnavailableError,
    WindowError,
    WindowTooSmallError,
)
from holdfast.messages import Message, Text, Thinking
from holdfast.models.base import Model, OnText, Prompt, Reply, Tool
from holdfast.models.naming import FunctionModel
from holdfast.providers import Incoming
from holdfast.providers.models import find_tokens
from holdfast.providers.overflow import Numbers, believe, is_overflow, is_silent_overflow, numbers
from holdfast.providers.rules import blocks
from holdfast.providers.wire import leading_system
from holdfast.report import Window
from holdfast.session import Session
from holdfast.settings import DEFAULT_CONTEXT_TOKENS
from holdfast.store.base import FactRow, Scope

log = logging.getLogger("holdfast.exchange")

Json: TypeAlias = Mapping[str, Any]
Warn: TypeAlias = Callable[[str], object]
"""Called with a line about something that failed and did not stop the request."""
Write: TypeAlias = Callable[[list[dict[str, Any]]], str]
"""Lets the caller's model answer messages (dicts with `role` and `content`), for summaries."""

MAX_RETRIES: Final = 3
"""How many times a request that the provider refuses is sent again, smaller. Three steps of `SHRINK` halve it."""
SHRINK: Final = 0.8
"""The size of the next request as a share of the refused one. Most providers report how far a request is over their
limit, and then it is cut by that much too. This factor is for those that do not, and for differences between their
token counts and ours."""
MAX_LEARNED: Final = 1_000
"""For how many conversations the sizes of refused windows are remembered."""
REPLY_FIELDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The fields of a body that have the maximum length of the reply."""
SUMMARY_REPLY_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "anthropic": ("max_tokens",),
    "openai_chat": ("max_tokens", "max_completion_tokens"),
}
"""The ones that a request for a summary may have, by format. Some services of the Responses API refuse theirs."""
SUMMARY_FIELDS: Final = ("model", "metadata", "store", "service_tier")
"""Other fields of the client's request that a request for a summary has too."""
MAX_IDENTITY_CHARS: Final = 200
"""A first system block up to this length names the client; some keys are only for requests that have it."""


class Compact(Protocol):
    """Compacts the session of an exchange."""

    def __call__(self, *, limit: int, reserve: int | None) -> object:
        """Compact it for a window of `limit` tokens, with `reserve` for the reply; None for the value in the settings.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
        """


def ignore(_: str) -> None:
    """Ignore a warning: the report of the window has it too."""


# --- the request -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A model request of a client, as it came.

    Attributes:
        messages: The conversation, with the system prompt.
        format: The wire format whose rules its window must keep.
        model: The name of the model.
        model_tokens: The context window of the model, for callers that know more than its name; 0 if they do not.
        max_tokens: The maximum length of the reply; 0 if the request does not say.
        tools: The definitions of the tools, to be counted.
        overhead: Tokens of anything else in the request. `read_body` leaves it 0: it counts the messages, the system
            prompt and the tools of a body, and no other field, such as a schema of the reply.
        facts: Facts that the caller chose for this question.
        standing: Facts that the caller wants in an overview, if the request gets one.
        recall: Whether memory is recalled for it.
        body: Its body; empty for a request that has none.
        is_continued: Whether the provider has the earlier messages, and the request contains only new ones.
        after: The place in the conversation that a continued request follows; empty if it is not known.
    """

    messages: Sequence[Message]
    format: str
    model: str = ""
    model_tokens: int = 0
    max_tokens: int = 0
    tools: Sequence[Json] = ()
    overhead: int = 0
    facts: Sequence[FactRow] = ()
    standing: Sequence[FactRow] = ()
    recall: bool = True
    body: Json = field(default_factory=dict)
    is_continued: bool = False
    after: str = ""


def read_body(body: Json, *, format: str) -> ModelRequest:
    """Read the body of a model request.

    Raises:
        FormatError: It is not a request of this format.
    """
    return ModelRequest(
        messages=providers.read_request(body, format=format, keep_malformed=True),
        format=format,
        model=str(body.get("model") or ""),
        max_tokens=_find_max_tokens(body),
        tools=blocks(body.get("tools")),
        body=body,
        is_continued=is_continued(body),
    )


def is_continued(body: Json) -> bool:
    """Return whether the provider has the earlier messages, so that the body contains only new ones."""
    return bool(body.get("previous_response_id") or body.get("conversation"))


def _find_max_tokens(body: Json) -> int:
    config = body.get("generationConfig")
    if isinstance(config, Mapping):  # Gemini
        found = config.get("maxOutputTokens")
        if isinstance(found, int):
            return found
        return 0
    for name in REPLY_FIELDS:
        found = body.get(name)
        if isinstance(found, int):
            return found
    return 0


def change_body(body: Json, messages: Sequence[Message], window: Sequence[Message], *, format: str) -> Json:
    """Return a body with a window instead of its messages; the body itself if the window has no edit.

    Only fields that the window changes are rendered again: the messages, and the system prompt if it has edits. All
    other fields stay as they came.
    """
    if _has_same_parts(messages, window):
        return body
    fields = providers.render_request(window, format)
    # The system field is compared as a whole: a system message in the middle may have become a part of it.
    prompt = messages[: leading_system(messages, format)]
    sent_prompt = window[: leading_system(window, format)]
    if list(prompt) == list(sent_prompt):
        for key in providers.expect_format(format).system_keys:
            fields.pop(key, None)
    changed = {key: value for key, value in fields.items() if body.get(key) != value}
    if not changed:
        return body  # the same object, by which `Exchange.is_changed` recognises it
    return {**body, **changed}


def make_summary_body(body: Json, messages: Sequence[Message], *, format: str, max_tokens: int) -> dict[str, Any]:
    """Make the body of a request that lets the model of a client's request write a summary of its conversation."""
    made: dict[str, Any] = {key: body[key] for key in SUMMARY_FIELDS if key in body}
    for key in SUMMARY_REPLY_FIELDS.get(format, ()):
        if key in body or format == "anthropic":  # Anthropic requires the field
            made[key] = max_tokens
    made |= providers.render_request(messages, format)
    identity = _find_identity(body)
    if identity and "system" in made:
        made["system"] = [{"type": "text", "text": identity}, {"type": "text", "text": str(made["system"])}]
    return made


def _find_identity(body: Json) -> str:
    """Return the system block with which a client identifies itself; empty if there is none."""
    system = blocks(body.get("system"))
    if not system:
        return ""
    text = str(system[0].get("text"))
    if len(text) > MAX_IDENTITY_CHARS:
        return ""
    return text


def _has_same_parts(messages: Sequence[Message], window: Sequence[Message]) -> bool:
    """Return whether a window has the parts of the messages, even if a system message has moved or changed its role."""
    given = [message.parts for message in messages]
    sent = [message.parts for message in window]
    if given == sent:
        return True
    # Validation moves a system message in the middle, or sends it as one of the user. If that is the only change, the
    # body passes as the client wrote it.
    system = [message.parts for message in messages if message.role == "system"]
    if [parts for parts in given if parts not in system] != [parts for parts in sent if parts not in system]:
        return False
    return all(parts in sent for parts in system)


# --- the refusal -------------------------------------------------------------------------


def find_refusal(error: str, *, status: int | None = None) -> Numbers | None:
    """Return the token counts in a provider's error about a window that does not fit; None for other errors."""
    if not is_overflow(error, status=status):
        return None
    return numbers(error)


def find_refusal_in(error: Exception) -> Numbers | None:
    """Return the token counts in the exception of an SDK or a framework, as `find_refusal` does."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        status = 400  # a framework has turned the provider's error into one of its own
    return find_refusal(str(error), status=status)


# --- the exchange ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """The size of a window that a provider takes, after it has refused a larger one; see `Exchange`."""

    limit: int
    max_prompt: int


class Exchanges:
    """Begins the exchanges of one way in, and remembers the windows that were refused.

    A conversation whose window was refused gets smaller ones from then on, as long as it uses the same model.

    Args:
        limit: The context window of the model; None for that of the settings or of the model.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._learned: LruCache[tuple[Scope, str], _Learned] = LruCache(MAX_LEARNED)
        self._lock = Lock()

    def begin(
        self,
        session: Session,
        request: ModelRequest,
        *,
        write: Write | None = None,
        compact: Compact | None = None,
        warn: Warn = ignore,
    ) -> Exchange:
        """Archive the new messages of a request, and assemble its window.

        Memory never stops a request. If it fails, the window has the newest messages that fit; if there is no such
        window, the request is sent unchanged, and `error` of the exchange has the reason.

        Args:
            session: The session that the request belongs to.
            request: The request.
            write: Writes the summaries of the session if the engine has no model.
            compact: Compacts the session if the window is refused; by default `Session.compact`.
            warn: Called with a line about each failure.

        Raises:
            ModelCancelledError: `compact` was cancelled.
        """
        exchange = self._make(session, request, compact=compact, warn=warn)
        if write is not None:
            session.model = FunctionModel(write, context_tokens=exchange.limit)
        try:
            if request.is_continued:
                # With a known place, a message that is sent again is recognised as the same message.
                appended = session.append(request.messages, format=request.format, after=request.after or None)
                return replace(exchange, place=appended.place)
            return _assemble(exchange)
        except ModelCancelledError:  # the caller cancelled a compaction, and does not wait for a request
            raise
        except HoldfastError as error:
            return _assemble_after(exchange, error, reason=str(error))
        except Exception as error:  # a bug in Holdfast must not stop the agent
            log.exception("a request goes on without memory")
            return _assemble_after(exchange, error, reason=type(error).__name__)

    def begin_body(
        self, session: Session, body: Json, *, format: str, write: Write | None = None, warn: Warn = ignore
    ) -> Exchange:
        """Read the body of a request and begin its exchange; one that cannot be read is sent as it came."""
        try:
            request = read_body(body, format=format)
        except (HoldfastError, ValueError, RecursionError) as error:
            unread = ModelRequest(messages=(), format=format, body=body)
            return _pass_unchanged(self._make(session, unread, warn=warn), error, reason=str(error))
        return self.begin(session, request, write=write, warn=warn)

    def begin_without_memory(
        self, session: Session, request: ModelRequest, *, error: Exception, reason: str, warn: Warn = ignore
    ) -> Exchange:
        """Begin an exchange whose session could not be found because of an error."""
        return _assemble_after(self._make(session, request, warn=warn), error, reason=reason)

    def _make(self, session: Session, request: ModelRequest, *, compact: Compact | None = None, warn: Warn) -> Exchange:
        """Make an exchange within the limits that are known."""
        limit, source = self._find_limit(session, request)
        max_prompt = None
        with self._lock:  # the requests of a proxy run in several threads
            learned = self._learned.get((session.scope, request.model))
        if learned is not None:
            if learned.limit < limit:
                limit = learned.limit
                source = "refusal"
            max_prompt = learned.max_prompt
        return Exchange(
            exchanges=self,
            session=session,
            request=request,
            body=request.body,
            place=request.after,
            limit=limit,
            source=source,
            max_prompt=max_prompt,
            compact=compact,
            warn=warn,
        )

    def _find_limit(self, session: Session, request: ModelRequest) -> tuple[int, LimitSource]:
        """Return the context window of a request, and its source."""
        if self.limit:
            return self.limit, "argument"
        if session.settings.model.context_tokens:
            return session.settings.model.context_tokens, "settings"
        known = request.model_tokens or find_tokens(request.model)
        if known:
            return known, "model"
        return DEFAULT_CONTEXT_TOKENS, "default"

    def learn(self, exchange: Exchange, *, limit: int, max_prompt: int) -> None:
        """Remember how large a window of a conversation may be, after the provider has refused a larger one."""
        key = (exchange.session.scope, exchange.request.model)
        with self._lock:
            self._learned[key] = _Learned(limit=limit, max_prompt=max_prompt)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exchange:
    """A model request and the window that is sent for it.

    Attributes:
        exchanges: The `Exchanges` that began it.
        session: The session that it belongs to.
        request: The request as it came.
        body: The body to send; that of the request itself if nothing was edited.
        window: The window in it; None if the request is sent as it came.
        place: The place of the reply in the conversation; empty if memory failed.
        limit: The context window, in tokens of the provider.
        source: The source of the limit.
        max_prompt: The maximum tokens of everything before the reply, because more was refused; None if nothing was.
            They are our estimate, because the known ratio to the provider's tokens may change.
        retries: How many larger windows were refused before.
        failure: Why the window was made without memory; empty if it was made with it.
        error: Why the request is sent as it came; None if it has a window, or needs none.
        compact: Compacts the session; by default `Session.compact`.
        warn: Called with a line about each failure.
    """

    exchanges: Exchanges
    session: Session
    request: ModelRequest
    body: Json
    limit: int
    source: LimitSource
    max_prompt: int | None = None
    window: Window | None = None
    place: str = ""
    retries: int = 0
    failure: str = ""
    error: Exception | None = None
    compact: Compact | None = None
    warn: Warn = ignore

    @property
    def is_changed(self) -> bool:
        """Whether the body differs from that of the request."""
        return self.body is not self.request.body

    @property
    def reserve(self) -> int | None:
        """Tokens of the window that are kept for the reply; None for the value in the settings."""
        own = None
        if 0 < self.request.max_tokens <= self.limit // 2:  # more would leave too little for the conversation
            own = self.request.max_tokens
        if self.max_prompt is None:
            return own
        usual = own or budget(self.session.settings, window=self.limit).reserve
        return max(usual, self.limit - int(self.max_prompt * self.session._known_token_scale))

    def shrink(self, refusal: Numbers | None) -> Exchange | None:
        """Compact the session and assemble a smaller window, after the provider has refused this one.

        Args:
            refusal: The sizes in the provider's error; None if it is another error.

        Returns:
            The exchange to send instead; None if nothing smaller can be sent.

        Raises:
            ModelCancelledError: `compact` was cancelled.
        """
        if refusal is None or self.window is None or self.retries == MAX_RETRIES:
            return None
        self.session._record_refusal("the provider refused the window as too large", place=self.place)
        report = self.window.report
        sent = int(report.total_tokens * report.token_scale)
        # Some providers count the room for the reply as requested too.
        stated = believe(refusal, sent=sent + report.reserved_tokens)
        limit = self.limit
        source = self.source
        if stated.limit and stated.limit < limit:
            limit = stated.limit
            source = "refusal"
        share = SHRINK
        if stated.limit and stated.requested:
            share *= stated.limit / stated.requested
        max_prompt = max(1, int(share * report.total_tokens))
        smaller = replace(self, limit=limit, source=source, max_prompt=max_prompt, retries=self.retries + 1)
        try:
            _compact(smaller)
            smaller = _assemble(smaller)
        except ModelCancelledError:  # the caller cancelled the compaction, and does not wait for a request
            raise
        except HoldfastError as error:
            self.warn(f"a request that does not fit was not made smaller: {error}")
            return None
        except Exception:  # the client gets the provider's own error
            log.exception("a request that does not fit was not made smaller")
            return None
        # Without progress, sending it again would only cost another refusal.
        if smaller.window is None or smaller.window.report.total_tokens >= report.total_tokens:
            return None
        self.exchanges.learn(self, limit=limit, max_prompt=max_prompt)
        return smaller

    def archive(self, reply: Sequence[Incoming], *, is_cut: bool = False) -> ArchivedReply:
        """Archive a reply after the request that it answers; see `archive_reply`."""
        return archive_reply(self.session, reply, format=self.request.format, after=self.place, is_cut=is_cut)


def _assemble(exchange: Exchange) -> Exchange:
    """Return an exchange with its window.

    A summary may be too long for a smaller model, and nothing but another compaction shortens it. So if what must stay
    does not fit, the session is compacted once.
    """
    try:
        return _assemble_once(exchange)
    except WindowTooSmallError as error:
        if not _can_compact_below(exchange, error.room) or not _compact(exchange):
            raise
    return _assemble_once(exchange)


def _assemble_once(exchange: Exchange) -> Exchange:
    request = exchange.request
    if exchange.failure:
        window = exchange.session._fit_without_memory(
            request.messages,
            reason=exchange.failure,
            limit=exchange.limit,
            reserve=exchange.reserve,
            model=request.model,
            provider=request.format,
            tools=request.tools,
            overhead=request.overhead,
            source=exchange.source,
        )
    else:
        session_request = exchange.session._make_request(
            exchange.limit,
            exchange.reserve,
            model=request.model,
            provider=request.format,
            tools=request.tools,
            overhead=request.overhead,
            source=exchange.source,
        )
        session_request = replace(
            session_request,
            facts=request.facts,
            standing=request.standing,
            is_recalling=request.recall,
        )
        window = exchange.session._assemble_request(request.messages, session_request)
    for failure in window.failures:
        exchange.warn(failure)
    body = request.body
    if body:
        body = change_body(body, request.messages, window.messages, format=request.format)
    return replace(exchange, window=window, place=window.place, body=body)


def _assemble_after(exchange: Exchange, error: Exception, *, reason: str) -> Exchange:
    """Return an exchange with a window that needs no memory; the request as it came if there is none."""
    # A continued request has only new messages, and a window error would be the same without memory.
    if exchange.request.is_continued or isinstance(error, WindowError):
        return _pass_unchanged(exchange, error, reason=reason)
    try:
        return _assemble(replace(exchange, failure=f"memory failed: {reason}"))
    except HoldfastError:  # the first error says why
        return _pass_unchanged(exchange, error, reason=reason)
    except Exception:  # the provider may still take the request as it is
        log.exception("a request passed unchanged")
        return _pass_unchanged(exchange, error, reason=reason)


def _pass_unchanged(exchange: Exchange, error: Exception, *, reason: str) -> Exchange:
    exchange.warn(f"the request passed unchanged: {reason}")
    # Without its frames, which refer to the request and would keep it in memory.
    return replace(exchange, error=error.with_traceback(None))


def _can_compact_below(exchange: Exchange, limit: int) -> bool:
    """Return whether a compaction would leave fewer tokens. A message that is too long by itself would stay."""
    if exchange.failure:
        return False
    try:
        plan = exchange.session.compact(
            exchange.request.messages, limit=exchange.limit, reserve=exchange.reserve, dry_run=True
        ).plan
    except (CompactionError, StorageError):
        return False
    return plan.outcome == "ready" and plan.tokens_kept < limit


def _compact(exchange: Exchange) -> bool:
    """Compact the session, and return whether there was something to compact."""
    if exchange.failure:  # memory does not work: the window only has the newest messages that fit
        return False
    try:
        if exchange.compact is not None:
            exchange.compact(limit=exchange.limit, reserve=exchange.reserve)
        else:
            exchange.session.compact(exchange.request.messages, limit=exchange.limit, reserve=exchange.reserve)
    except (CompactionError, StorageError) as error:
        exchange.warn(f"compaction: {error}")
        return False
    return True


# --- the reply ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedReply:
    """The result of `archive_reply`.

    Attributes:
        messages: The messages of the reply; none if it broke off or cannot be read.
        place: The place in the conversation after it; None if it was not archived.
    """

    messages: Sequence[Message] = ()
    place: str | None = None


def archive_reply(
    session: Session, reply: Sequence[Incoming], *, format: str, after: str | None, is_cut: bool = False
) -> ArchivedReply:
    """Archive a reply, and calibrate the token counter by the usage in it. A failure is only logged.

    Args:
        session: The session of the request.
        reply: The messages of the reply.
        format: Their format.
        after: The place of the reply, as `Exchange.place` has it; None for the last request of this thread or task.
        is_cut: Whether the reply broke off. Then it is marked as broken and not recalled: the client may ask again.
    """
    messages: list[Message] = []
    place: str | None = None
    try:
        messages = providers.read(reply, format=format, keep_malformed=True)
        if is_cut:
            received = [message for message in messages if _has_content(message)]
            messages = []
            place = session._append_broken(received, after=after).place
        else:
            place = session.append(messages, format=format, after=after).place
    except HoldfastError as error:
        # The store logs an outage of its server, once. The next request of the client has the reply too.
        level = logging.WARNING
        if isinstance(error, UnavailableError) and error.can_retry:
            level = logging.INFO
        log.log(level, "a reply was not archived: %s", error)
    except Exception:  # the reply has come: the client gets it in any case
        log.exception("a reply was not archived")
    return ArchivedReply(messages=messages, place=place)


def _has_content(message: Message) -> bool:
    """Return whether anything of a message has arrived: a stream may break off before the first word."""
    for part in message.parts:
        if not isinstance(part, Text | Thinking) or part.text:
            return True
    return False


# --- requests to a model client ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The reply of a model, the window that was sent, and how many larger ones were refused before it."""

    window: Window
    reply: Reply
    overflows: int = 0


def complete(
    exchange: Exchange,
    model: Model,
    *,
    tools: Sequence[Tool] = (),
    max_tokens: int = 4_096,
    timeout: float | None = None,
    cancel: Event | None = None,
    on_text: OnText = None,
) -> Completion:
    """Send an exchange to a model until its window fits.

    Raises:
        ModelOverflowError: No window fits; the message includes the fix.
    """
    while True:
        window = _expect_window(exchange, model)
        prompt = Prompt(messages=window.messages, tools=tools, max_tokens=max_tokens)
        start = time.perf_counter()
        try:
            reply = model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
            _check_usage(reply, model)
        except ModelOverflowError as error:
            smaller = exchange.shrink(Numbers(limit=error.limit, requested=error.requested))
            if smaller is None:
                if exchange.retries == 0:  # no smaller window was tried, so the provider's error says it all
                    raise
                raise _explain_overflow(error, tries=exchange.retries) from error
            exchange = smaller
        except ModelCancelledError:
            raise
        except ModelError as error:
            exchange.session._record_refusal(str(error), place=exchange.place)
            raise
        else:
            milliseconds = round(1000 * (time.perf_counter() - start))
            exchange.session._note_reply_time(milliseconds, place=exchange.place)
            return Completion(window=window, reply=reply, overflows=exchange.retries)


def _check_usage(reply: Reply, model: Model) -> None:
    """Raise an error if a provider has truncated the request without reporting it."""
    if is_silent_overflow(reply.usage, context_tokens=model.context_tokens):
        raise ModelOverflowError("the provider truncated the request without an error", model=model.name)


def _expect_window(exchange: Exchange, model: Model) -> Window:
    error = exchange.error
    if isinstance(error, WindowTooSmallError):
        raise ModelOverflowError(str(error), model=model.name, limit=error.limit, requested=error.needed) from error
    if error is not None:
        raise error
    assert exchange.window is not None
    return exchange.window


def _explain_overflow(error: ModelOverflowError, *, tries: int) -> ModelOverflowError:
    return ModelOverflowError(
        f"the request does not fit: {tries + 1} windows were refused, each smaller than the one before. Start a new "
        "session (/new), use a model with a larger window, or set model.context_tokens to what this one holds "
        f"({error})",
        model=error.model,
        status=error.status,
        limit=error.limit,
        requested=error.requested,
        tries=tries,
    )
