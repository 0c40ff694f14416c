"""One call to a model provider through its own SDK: send a body, read the event stream, build the reply.

The SDKs have time-outs between two bytes but none for a whole call, and cannot be interrupted while they wait. So the
call runs as an asyncio task on a thread of its own: cancelling the task closes the connection, wherever it waits. The
caller's thread only reads events from a queue.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC
from functools import partial
from operator import attrgetter
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Final, Protocol, TypeVar

from holdfast.calls import Deadline, hide_keys
from holdfast.errors import (
    FormatError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message
from holdfast.models.base import OnText, Prompt, Reply, check_cancelled, check_deadline
from holdfast.providers.models import context_tokens
from holdfast.providers.overflow import is_overflow, numbers
from holdfast.providers.replies import get_text
from holdfast.providers.wire import Json, kind_of
from holdfast.redaction import redact
from holdfast.text import head

T = TypeVar("T")

CANCEL_POLL_SECONDS: Final = 0.05
CLOSE_SECONDS: Final = 0.1
"""How long a finished call waits for its connection to close."""

_UNSUPPORTED_FIELD_STATUSES: Final = frozenset({400, 404, 415, 422, 501})
_WINDOW_FULL: Final = "model_context_window_exceeded"
_FAILED_EVENTS: Final = frozenset({"error", "response.failed"})


class Draft(Protocol):
    """A reply that is being assembled from events."""

    def add(self, event: Json, /) -> str:
        """Add one event and return the text that it carried."""

    def build(self) -> Reply | None:
        """Return the complete reply; None if the events ended early."""


class ProviderModel:
    """A model behind an SDK. Subclasses build the request bodies and draft the replies.

    `connect` makes a client of the SDK, `_error` names the base class of its errors. `_method` is the method of the
    client that sends a body. `_optional` are fields of a body that some endpoints do not support, with a pattern that
    matches their error.
    """

    provider: str
    _error: str
    _method: str
    _optional: Mapping[str, re.Pattern[str]]

    def __init__(
        self,
        model: str,
        *,
        name: str,
        context_tokens: int | None,
        extra: Mapping[str, Any] | None,
        sdk: Any,
        connect: Callable[..., Any],
    ) -> None:
        import httpx2  # noqa: PLC0415 - comes with the SDKs

        self.name, self._model, self._context_tokens, self._extra = name, model, context_tokens, dict(extra or {})
        self._sdk, self._connect, self._sdk_error = sdk, connect, getattr(sdk, self._error)
        self._timeout_errors = (sdk.APITimeoutError, httpx2.TimeoutException)
        self._connection_errors = (sdk.APIConnectionError, httpx2.HTTPError, httpx2.StreamError)

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        raise NotImplementedError

    def _draft(self) -> Draft:
        raise NotImplementedError

    @property
    def context_tokens(self) -> int:
        """The size of the context window in tokens."""
        return context_tokens(self._model, override=self._context_tokens)

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Send a prompt and wait for the whole reply; see `Model.ask`.

        A request that is rejected because of an optional field is sent again without it.
        """
        deadline = Deadline.after(timeout)
        body: Json = self._body(prompt) | ({"extra_body": self._extra} if self._extra else {})
        while True:
            try:
                return self._send(body, deadline=deadline, cancel=cancel, on_text=on_text)
            except ModelRefusedError as error:
                if error.status not in _UNSUPPORTED_FIELD_STATUSES:
                    raise
                patterns = self._optional.items()
                unsupported = {field for field, pattern in patterns if field in body and pattern.search(str(error))}
                if not unsupported:
                    raise
                body = {field: value for field, value in body.items() if field not in unsupported}

    def _send(self, body: Json, *, deadline: Deadline, cancel: Event | None, on_text: OnText) -> Reply:
        text = json.dumps(body, ensure_ascii=False)
        if re.search("[\ud800-\udfff]", text):  # a lone surrogate, which UTF-8 cannot encode
            body = json.loads(text.encode("utf-8", "replace"))
        draft = self._draft()
        with closing(self._read_events(body, deadline, cancel)) as events:
            for event in events:
                text = draft.add(event)
                if text and on_text is not None:
                    on_text(text)
        try:
            reply = draft.build()
        except FormatError as error:
            raise ModelBusyError(f"the reply could not be read: {error}", model=self.name) from error
        if reply is None:
            raise ModelBusyError("the reply broke off: ask again", model=self.name)
        if reply.message.stop == _WINDOW_FULL and not reply.message.parts:
            raise ModelOverflowError("the window was full before the first word of the reply", model=self.name)
        return reply

    def _read_events(self, body: Json, deadline: Deadline, cancel: Event | None) -> Generator[Json, None, None]:
        """Yield the events of a reply; errors of the SDK become Holdfast errors."""
        source = partial(self._events, body, deadline.remaining)
        try:
            yield from stream(source, model=self.name, deadline=deadline, cancel=cancel)
        except self._timeout_errors as error:
            late = f"no answer within {deadline.seconds:.3g} s{_name_address(error)}: allow more time"
            raise ModelTimeoutError(late, model=self.name) from error
        except (*self._connection_errors, ValueError) as error:  # the SDKs let the errors of their parsers through
            reason = str(error.__cause__ or error) or type(error).__name__
            message = f"the connection failed{_name_address(error)}: {reason}: check the network and the address"
            raise ModelBusyError(message, model=self.name) from error
        except self._sdk_error as error:
            if not hasattr(error, "body"):  # raised by the SDK itself, before anything was sent
                raise ModelRefusedError(str(error), model=self.name) from error
            status, response = getattr(error, "status_code", None), getattr(error, "response", None)
            headers = getattr(response, "headers", None)
            raise error_from_response(
                self.name, status=status, body=error.body, headers=headers, now=time.time()
            ) from error

    async def _events(self, body: Json, seconds: float | None) -> AsyncIterator[Json]:
        """Send a body and yield the events of the reply that are JSON objects."""
        # A new client for each call: its connection pool belongs to one event loop, and so to one call.
        client = self._connect(max_retries=0, timeout=self._sdk.DEFAULT_TIMEOUT if seconds is None else seconds)
        async with client, await attrgetter(self._method)(client)(stream=True, **body) as events:
            async for event in events:
                data = event.to_dict(warnings=False) if hasattr(event, "to_dict") else event
                if not isinstance(data, Mapping):
                    continue
                if kind_of(data) in _FAILED_EVENTS:  # it ends a response early; its own `type` is not part of the error
                    response = data.get("response")
                    whole = {key: data.get(key) for key in ("code", "message")}
                    error = response.get("error") if isinstance(response, Mapping) else whole
                    raise self._sdk.APIError("the response failed", events.response.request, body=error)
                yield data


def _name_address(error: Exception) -> str:
    """Return the address of a request that failed, for a message; an empty text if the error does not have it."""
    try:
        url = str(error.request.url)  # type: ignore[attr-defined]  # of the SDKs and of httpx
    except (AttributeError, RuntimeError):  # httpx raises the latter if there is none
        return ""
    return f" ({hide_keys(url)})"


def make_reply(message: Message, envelope: Json, stops: Mapping[str, str]) -> Reply:
    """Return a reply with the id and the model of its envelope, and the provider's stop reason translated."""
    message = replace(message, id=get_text(envelope, "id") or None, model=get_text(envelope, "model") or None)
    stop = stops.get(message.stop or "", message.stop or "end")
    return Reply(message=message, usage=message.usage, stop="tools" if message.calls and stop == "end" else stop)


# --- the stream --------------------------------------------------------------


def stream(
    source: Callable[[], AsyncIterator[T]], *, model: str, deadline: Deadline, cancel: Event | None = None
) -> Iterator[T]:
    """Yield what an asynchronous source yields, up to a None. The source is closed however this ends.

    The error is a ModelTimeoutError if the deadline has passed, and a ModelCancelledError after a cancellation.
    """
    import asyncio  # noqa: PLC0415 - takes long to import, and few programs call a model
    from concurrent.futures import ThreadPoolExecutor, wait  # noqa: PLC0415 - see above

    check_cancelled(cancel, model)
    check_deadline(deadline, model)
    items: SimpleQueue[T | None] = SimpleQueue()

    async def pump() -> None:
        async for item in source():
            items.put(item)

    loop = asyncio.new_event_loop()
    task = loop.create_task(pump())

    def run() -> None:
        try:
            loop.run_until_complete(task)
        finally:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-model")
    done = worker.submit(run)
    done.add_done_callback(lambda _: items.put(None))
    worker.shutdown(wait=False)
    try:
        while True:
            check_cancelled(cancel, model)
            left = deadline.remaining
            pause = left if cancel is None else min(CANCEL_POLL_SECONDS, CANCEL_POLL_SECONDS if left is None else left)
            try:
                item = items.get(timeout=pause)
            except Empty:
                check_deadline(deadline, model)
                continue
            if item is None:
                break
            yield item
        done.result()
    finally:
        with suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(task.cancel)
        wait([done], timeout=CLOSE_SECONDS)


# --- errors of providers -----------------------------------------------------

_MAX_MESSAGE_CHARS: Final = 300
_OK: Final = 200
_SERVER_ERROR: Final = 500
_BUSY: Final = frozenset({408, 409, 425, 429})
_NOT_RETRYABLE: Final = frozenset({501, 505})
_BUSY_WORDS: Final = re.compile(
    r"overloaded|rate.?limit|too many requests|throttl|tokens per min|timeout_error|\bapi_error|server_error"
    r"|internal.?error|unavailable|try again|temporar",
    re.IGNORECASE,
)
_NO_CREDIT: Final = re.compile(
    r"insufficient_quota|billing_(?:error|hard)|credit balance|payment required", re.IGNORECASE
)
_HINTS: Final = {
    401: "the key was refused: check it",
    402: "the account has no credit",
    403: "the key may not do this",
    404: "no such model or address: check the model's name and the base URL",
}


def error_from_response(
    model: str, *, status: int | None, body: object = None, headers: Mapping[str, str] | None = None, now: float = 0.0
) -> ModelError:
    """Return the error that a provider's response means.

    The status is None, or 200, if the error came in the middle of a reply; `now` is for a `Retry-After` with a date.
    """
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    text = ": ".join(dict.fromkeys(_strings(body, depth=0)))
    code = f"HTTP {status}" if status is not None and status != _OK else ""
    line = head(" ".join(redact(head(text, 10 * _MAX_MESSAGE_CHARS)).split()), _MAX_MESSAGE_CHARS) or "no message"
    message = ": ".join(filter(None, (code, _HINTS.get(status or 0, ""), line)))
    if is_overflow(text, status=status):
        figures = numbers(text)
        return ModelOverflowError(message, model=model, status=status, limit=figures.limit, requested=figures.requested)
    if _is_busy(text, status):
        wait = retry_after(headers or {}, text, now=now)
        return ModelBusyError(message, model=model, status=status, retry_after=wait)
    return ModelRefusedError(message, model=model, status=status)


def _is_busy(text: str, status: int | None) -> bool:
    if _NO_CREDIT.search(text):
        return False
    if status is None or status == _OK:
        return "invalid_request" not in text
    if status in _BUSY or status >= _SERVER_ERROR:
        return status not in _NOT_RETRYABLE
    return status == 413 and _BUSY_WORDS.search(text) is not None  # noqa: PLR2004 - a rate limit of tokens in disguise


_TEXT_KEYS: Final = ("code", "type", "status", "message", "detail", "error")
_NUMBER_KEYS: Final = ("n_prompt_tokens", "n_ctx")
_NO_TEXT: Final = ("", "error")
_MAX_DEPTH: Final = 4


def _strings(value: Any, *, depth: int) -> Iterator[str]:
    """Yield the code and the message in an error body, in any of the usual shapes."""
    if isinstance(value, str):
        if value.strip() not in _NO_TEXT:
            yield value.strip()
    elif isinstance(value, list):
        for item in value[:3]:
            yield from _strings(item, depth=depth + 1)
    elif isinstance(value, Mapping) and depth < _MAX_DEPTH:
        for key in _TEXT_KEYS:
            yield from _strings(value.get(key), depth=depth + 1)
        yield from (f"{key}={value[key]}" for key in _NUMBER_KEYS if key in value)


_RETRY_TEXT: Final = re.compile(
    r"(?:try again in|retry in|retrydelay\W{1,5}) ?(?:(\d+)m)?(\d+(?:\.\d+)?)(ms|s)", re.IGNORECASE
)
_MAX_WAIT: Final = 86_400.0


def retry_after(headers: Mapping[str, str], text: str = "", *, now: float = 0.0) -> float | None:
    """Return the seconds that the provider asks to wait, from its headers or else from its text."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - rarely needed

    lowered = {name.lower(): value for name, value in headers.items()}
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            wait = float(lowered.get(name, "")) * scale
            if wait >= 0:
                return min(wait, _MAX_WAIT)
    with suppress(ValueError):
        moment = parsedate_to_datetime(lowered.get("retry-after", ""))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return min(max(0.0, moment.timestamp() - now), _MAX_WAIT)
    if (match := _RETRY_TEXT.search(text)) is None:
        return None
    minutes, amount, unit = match.groups()
    return 60.0 * int(minutes or 0) + float(amount) * (0.001 if unit.lower() == "ms" else 1.0)
