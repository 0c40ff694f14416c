"""What the vendors' SDKs have in common: a body goes out, events come in, and a reply is drafted from them."""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Any, Final, Protocol

from holdfast.errors import (
    FormatError,
    ModelBusyError,
    ModelError,
    ModelOverflowError,
    ModelRefusedError,
    ModelTimeoutError,
)
from holdfast.messages import Message
from holdfast.models.base import Prompt, Reply
from holdfast.models.call import stream
from holdfast.models.deadline import Deadline
from holdfast.models.failures import failure
from holdfast.providers.models import context_tokens
from holdfast.providers.wire import Json

__all__ = ["Draft", "Vendor", "VendorModel", "ask", "plain", "replied", "tls"]

_REFUSALS: Final = frozenset({400, 404, 415, 422, 501})
_FULL: Final = "model_context_window_exceeded"


class Draft(Protocol):
    """A reply in the making."""

    def add(self, event: Json, /) -> str:
        """Take in one event; the text that it brought, for whoever reads along."""

    def reply(self) -> Reply | None:
        """The whole reply; None where the events broke off before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """What differs from one SDK to the next.

    Attributes:
        model: Whom errors name.
        events: Sends a body and yields the events of the answer, given the seconds that are left.
        draft: A new draft.
        timeouts: What the SDK raises where nothing came in time.
        broken: What it raises where the connection failed or the answer could not be read.
        refusals: What it raises otherwise: the provider answered, but not with a reply.
        optional: Fields of a body that some endpoints do not know, and how their complaint about each is recognised.
    """

    model: str
    events: Callable[[Json, float | None], AsyncIterator[Any]]
    draft: Callable[[], Draft]
    timeouts: tuple[type[Exception], ...]
    broken: tuple[type[Exception], ...]
    refusals: tuple[type[Exception], ...]
    optional: Mapping[str, re.Pattern[str]]


class VendorModel:
    """A model behind an SDK: what all of them say of themselves. Those that follow differ in the bodies they send."""

    _name: str
    _provider: str
    _model: str
    _context_tokens: int | None
    _vendor: Vendor
    _extra: dict[str, Any]

    @property
    def name(self) -> str:
        """What a user calls it by."""
        return self._name

    @property
    def provider(self) -> str:
        """Whose rules its windows keep."""
        return self._provider

    @property
    def context_tokens(self) -> int:
        """How many tokens its window holds."""
        return context_tokens(self._model, override=self._context_tokens)

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask, and wait for the whole answer; see `Model.ask`."""
        body = self._body(prompt)
        if self._extra:
            body["extra_body"] = self._extra
        return ask(self._vendor, body, timeout=timeout, cancel=cancel, on_text=on_text)

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        raise NotImplementedError


def ask(
    vendor: Vendor,
    body: Json,
    *,
    timeout: float | None,
    cancel: Event | None,
    on_text: Callable[[str], None] | None,
) -> Reply:
    """Send a body and draft the reply; once more without an optional field that the endpoint complains about."""
    deadline = Deadline.after(timeout)
    while True:
        try:
            return _asked(vendor, _sendable(body), deadline=deadline, cancel=cancel, on_text=on_text)
        except ModelRefusedError as error:
            fewer = _without(vendor, body, error)
            if fewer is None:
                raise
            body = fewer


def _without(vendor: Vendor, body: Json, error: ModelRefusedError) -> Json | None:
    """The body without the fields that the endpoint complained about; None where it has none of them."""
    if error.status not in _REFUSALS:
        return None
    unwanted = {field for field, words in vendor.optional.items() if field in body and words.search(str(error))}
    return {field: value for field, value in body.items() if field not in unwanted} if unwanted else None


def _asked(
    vendor: Vendor, body: Json, *, deadline: Deadline, cancel: Event | None, on_text: Callable[[str], None] | None
) -> Reply:
    draft = vendor.draft()
    with closing(_events(vendor, body, deadline=deadline, cancel=cancel)) as events:
        for event in events:
            text = draft.add(event)
            if text and on_text is not None:
                on_text(text)
    try:
        reply = draft.reply()
    except FormatError as error:
        raise ModelBusyError(f"the answer could not be read: {error}", model=vendor.model) from error
    if reply is None:
        raise ModelBusyError("the answer broke off: ask again", model=vendor.model)
    if reply.message.stop == _FULL and not reply.message.parts:
        raise ModelOverflowError("the window was full before the first word", model=vendor.model)
    return reply


def _events(vendor: Vendor, body: Json, *, deadline: Deadline, cancel: Event | None) -> Generator[Json, None, None]:
    """The events that are objects; what the SDK raises comes out as one of our errors."""
    # ValueError: the SDKs parse what they are sent, and let the parser's errors through
    caught: tuple[type[Exception], ...] = (*vendor.timeouts, *vendor.broken, *vendor.refusals, ValueError)
    try:
        for event in stream(
            lambda: vendor.events(body, deadline.left), model=vendor.model, deadline=deadline, cancel=cancel
        ):
            if isinstance(event, Mapping):
                yield event
    except caught as error:
        raise _translated(vendor, error, deadline) from error


def _translated(vendor: Vendor, error: Exception, deadline: Deadline) -> ModelError:
    if isinstance(error, vendor.timeouts):
        return ModelTimeoutError(f"no answer within {deadline.seconds:.3g} s: allow more time", model=vendor.model)
    if isinstance(error, vendor.broken) or not isinstance(error, vendor.refusals):
        reason = str(error.__cause__ or error) or type(error).__name__
        return ModelBusyError(f"the connection failed: {reason}: check the network and the address", model=vendor.model)
    if not hasattr(error, "body"):  # the SDK itself has refused, before anything was sent
        return ModelRefusedError(str(error), model=vendor.model)
    response: Any = getattr(error, "response", None)
    return failure(
        vendor.model,
        status=getattr(error, "status_code", None),
        body=error.body,
        headers=getattr(response, "headers", None),
        now=time.time(),
    )


def _sendable(body: Json) -> Json:
    """The body itself, or without halves of characters, which cannot be sent."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        mended: Json = json.loads(text.encode("utf-8", "replace"))
        return mended
    return body


def replied(message: Message, stops: Mapping[str, str]) -> Reply:
    """A reply that says why it ended in our words: calls are never the end, whatever the provider says."""
    stop = stops.get(message.stop or "", message.stop or "end")
    return Reply(message=message, usage=message.usage, stop="tools" if message.calls and stop == "end" else stop)


def plain(event: Any) -> Any:
    """An event of an SDK as the JSON that it was made from."""
    return event.to_dict(warnings=False) if hasattr(event, "to_dict") else event


@cache
def tls() -> ssl.SSLContext:
    """The certificates that are trusted, as both SDKs have them; reading them takes longer than all the rest."""
    import httpx2  # noqa: PLC0415 - comes with either SDK

    return httpx2.create_ssl_context()
