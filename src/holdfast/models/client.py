"""One call to a model provider through its own SDK: send a body, read the event stream, build the reply.

The SDKs have time-outs between two bytes but none for a whole call, and cannot be interrupted while they wait. So the
call runs as an asyncio task on a thread of its own: cancelling the task closes the connection, wherever it waits. The
caller's thread only reads events from a queue.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Final, Protocol, TypeVar

from holdfast.calls import Deadline
from holdfast.errors import (
    FormatError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message
from holdfast.models.base import Prompt, Reply, check_cancelled, check_deadline
from holdfast.models.failures import error_from_response
from holdfast.providers.models import context_tokens
from holdfast.providers.wire import Json

__all__ = ["Draft", "ProviderModel", "Sdk", "event_json", "make_reply", "stream"]

T = TypeVar("T")

CANCEL_POLL_SECONDS: Final = 0.05
CLOSE_SECONDS: Final = 0.1
"""How long a finished call waits for its connection to close."""

_UNSUPPORTED_FIELD_STATUSES: Final = frozenset({400, 404, 415, 422, 501})
_WINDOW_FULL: Final = "model_context_window_exceeded"


class Draft(Protocol):
    """A reply that is being assembled from events."""

    def add(self, event: Json, /) -> str:
        """Add one event and return the text that it carried."""

    def build(self) -> Reply | None:
        """Return the complete reply; None if the events ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """What differs from one SDK to the next.

    Attributes:
        events: Sends a body and yields the events of the reply, given the seconds left.
        draft: Creates an empty draft.
        timeout_errors: Raised by the SDK when nothing arrived in time.
        connection_errors: Raised when the connection failed or the reply could not be read.
        api_errors: Raised when the provider answered with an error.
        optional_fields: Fields of a body that some endpoints do not support, with a pattern that matches their error.
    """

    events: Callable[[Json, float | None], AsyncIterator[Any]]
    draft: Callable[[], Draft]
    timeout_errors: tuple[type[Exception], ...]
    connection_errors: tuple[type[Exception], ...]
    api_errors: tuple[type[Exception], ...]
    optional_fields: Mapping[str, re.Pattern[str]]


class ProviderModel:
    """A model behind an SDK. Subclasses build the request bodies."""

    def __init__(
        self,
        model: str,
        *,
        name: str,
        provider: str,
        context_tokens: int | None,
        extra: Mapping[str, Any] | None,
        sdk: Sdk,
    ) -> None:
        self._model = model
        self.name = name
        self.provider = provider
        self._context_tokens = context_tokens
        self._extra = dict(extra or {})
        self._sdk = sdk

    @property
    def context_tokens(self) -> int:
        """The size of the context window in tokens."""
        return context_tokens(self._model, override=self._context_tokens)

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Send a prompt and wait for the whole reply; see `Model.ask`.

        A request that is rejected because of an optional field is sent once more without it.
        """
        deadline = Deadline.after(timeout)
        body: Json = self._body(prompt) | ({"extra_body": self._extra} if self._extra else {})
        while True:
            try:
                return self._send(_encodable(body), deadline=deadline, cancel=cancel, on_text=on_text)
            except ModelRefusedError as error:
                unsupported = self._unsupported_fields(body, error)
                if not unsupported:
                    raise
                body = {field: value for field, value in body.items() if field not in unsupported}

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        raise NotImplementedError

    def _send(
        self, body: Json, *, deadline: Deadline, cancel: Event | None, on_text: Callable[[str], None] | None
    ) -> Reply:
        draft = self._sdk.draft()
        with closing(self._events(body, deadline=deadline, cancel=cancel)) as events:
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

    def _events(self, body: Json, *, deadline: Deadline, cancel: Event | None) -> Generator[Json, None, None]:
        """Yield the events that are JSON objects; errors of the SDK become errors of ours."""
        sdk = self._sdk
        # ValueError: the SDKs parse what they receive, and let the parser's errors through.
        errors: tuple[type[Exception], ...] = (
            *(*sdk.timeout_errors, *sdk.connection_errors, *sdk.api_errors),
            ValueError,
        )
        try:
            for event in stream(
                lambda: sdk.events(body, deadline.remaining), model=self.name, deadline=deadline, cancel=cancel
            ):
                if isinstance(event, Mapping):
                    yield event
        except errors as error:
            raise self._translate(error, deadline) from error

    def _translate(self, error: Exception, deadline: Deadline) -> ModelError:
        sdk = self._sdk
        if isinstance(error, sdk.timeout_errors):
            return ModelTimeoutError(f"no answer within {deadline.seconds:.3g} s: allow more time", model=self.name)
        if isinstance(error, sdk.connection_errors) or not isinstance(error, sdk.api_errors):
            reason = str(error.__cause__ or error) or type(error).__name__
            message = f"the connection failed: {reason}: check the network and the address"
            return ModelBusyError(message, model=self.name)
        if not hasattr(error, "body"):  # raised by the SDK itself, before anything was sent
            return ModelRefusedError(str(error), model=self.name)
        return error_from_response(
            self.name,
            status=getattr(error, "status_code", None),
            body=error.body,
            headers=getattr(getattr(error, "response", None), "headers", None),
            now=time.time(),
        )

    def _unsupported_fields(self, body: Json, error: ModelRefusedError) -> set[str]:
        if error.status not in _UNSUPPORTED_FIELD_STATUSES:
            return set()
        patterns = self._sdk.optional_fields
        return {field for field, pattern in patterns.items() if field in body and pattern.search(str(error))}


def make_reply(message: Message, stops: Mapping[str, str]) -> Reply:
    """Return a reply with the provider's stop reason translated; a message with calls stops for `tools`."""
    stop = stops.get(message.stop or "", message.stop or "end")
    return Reply(message=message, usage=message.usage, stop="tools" if message.calls and stop == "end" else stop)


def event_json(event: Any) -> Any:
    """Return the JSON that an SDK's event object was parsed from."""
    return event.to_dict(warnings=False) if hasattr(event, "to_dict") else event


def _encodable(body: Json) -> Json:
    """Return the body with unpaired surrogates replaced, which UTF-8 cannot encode."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        replaced: Json = json.loads(text.encode("utf-8", "replace"))
        return replaced
    return body


# --- the stream --------------------------------------------------------------


class _End:
    """The last item in the queue."""


def stream(
    source: Callable[[], AsyncIterator[T]], *, model: str, deadline: Deadline, cancel: Event | None = None
) -> Iterator[T]:
    """Yield what an asynchronous source yields. The source is closed however this ends.

    Args:
        source: Opens the connection, and closes it when it is cancelled.
        model: The name in errors.
        deadline: The end of the whole call.
        cancel: Setting this event ends the call soon after.

    Raises:
        ModelTimeoutError: The deadline has passed.
        ModelCancelledError: The call was cancelled.
    """
    check_cancelled(cancel, model)
    check_deadline(deadline, model)
    items: SimpleQueue[T | _End] = SimpleQueue()

    async def pump() -> None:
        async for item in source():
            items.put(item)

    loop = asyncio.new_event_loop()
    task = loop.create_task(pump())
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-model")
    done = worker.submit(_run, loop, task)
    done.add_done_callback(lambda _: items.put(_End()))
    worker.shutdown(wait=False)
    try:
        while not isinstance(item := _next(items, model, deadline, cancel), _End):
            yield item
        done.result()
    finally:
        with suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(task.cancel)
        wait([done], timeout=CLOSE_SECONDS)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    try:
        loop.run_until_complete(task)
    finally:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def _next(items: SimpleQueue[T | _End], model: str, deadline: Deadline, cancel: Event | None) -> T | _End:
    while True:
        check_cancelled(cancel, model)
        left = deadline.remaining
        pause = left if cancel is None else min(CANCEL_POLL_SECONDS, CANCEL_POLL_SECONDS if left is None else left)
        with suppress(Empty):
            return items.get(timeout=pause)
        check_deadline(deadline, model)
