"""Request bodies of SDKs, assembled on their way to the provider. Internal: the adapters share it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from holdfast import providers
from holdfast.adapters._history import guard, log, log_trouble
from holdfast.errors import CompactionError, StorageError
from holdfast.messages import Message
from holdfast.models.naming import FunctionModel
from holdfast.providers import Incoming
from holdfast.providers.models import context_tokens
from holdfast.providers.overflow import is_overflow
from holdfast.providers.replies import read_reply
from holdfast.requests import OVERFLOW_STATUSES, changed_fields, is_continued, reply_reserve, smaller_limit
from holdfast.session import Session
from holdfast.window import Window

Json: TypeAlias = Mapping[str, Any]
Send: TypeAlias = Callable[[dict[str, Any]], Json]
"""Sends a body to the provider of a request, and returns the body of the reply."""

SUMMARY_TOKENS: Final = 4_096
"""The length of the replies that write summaries."""


@dataclass(slots=True, eq=False)
class RequestMemory:
    """Memory for request bodies.

    Attributes:
        limit: The context window of the model; None for the one of the settings or of the model that a body names.
        limits: The limit of each session whose window the provider has refused.
    """

    limit: int | None = None
    limits: WeakKeyDictionary[Session, int] = field(default_factory=WeakKeyDictionary)

    def begin(self, session: Session, body: Json, *, format: str, send: Send | None = None) -> Exchange:
        """Assemble the window of a request; where that fails, it is sent as it came.

        Args:
            session: The session that the request belongs to.
            body: The body of the request.
            format: Its format, such as `anthropic`.
            send: Writes the summaries of the session where the engine has no model.
        """
        exchange = Exchange(memory=self, session=session, format=format, given=body, body=body)
        known = self.limit or session.settings.model.context_tokens or context_tokens(str(body.get("model")))
        exchange.limit = min(known, self.limits.get(session, known))
        if send is not None:
            session.model = FunctionModel(_writer(send, body, format), context_tokens=exchange.limit)
        with guard("the request passed unchanged"):
            exchange.messages = providers.read_request(body, format=format, keep_malformed=True)
            if is_continued(body):
                exchange.place = session.append(exchange.messages, format=format).place
            else:
                exchange.assemble()
        return exchange


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request on its way.

    Attributes:
        given: The body as it came.
        body: The body to send; the same object where nothing was edited.
        window: The window in it; None where the request passes as it came.
        place: The place of its reply in the conversation; empty where memory failed.
    """

    memory: RequestMemory
    session: Session
    format: str
    given: Json
    body: Json
    messages: list[Message] = field(default_factory=list)
    window: Window | None = None
    place: str = ""
    limit: int = 0

    def assemble(self) -> None:
        """Assemble the window; the body changes only where the window does."""
        self.window = self.session.assemble(
            self.messages,
            limit=self.limit,
            reserve=reply_reserve(self.given, limit=self.limit),
            model=str(self.given.get("model") or ""),
            provider=self.format,
            tools=[tool for tool in self.given.get("tools") or () if isinstance(tool, dict)],
        )
        log_trouble(self.window)
        self.place = self.window.place
        changed = changed_fields(self.given, self.messages, self.window.messages, format=self.format)
        self.body = {**self.given, **changed} if changed else self.given

    def shrink(self, status: int, error: str) -> bool:
        """Compact after a refusal and assemble a smaller window; whether there is one to send."""
        if self.window is None or status not in OVERFLOW_STATUSES or not is_overflow(error, status=status):
            return False
        self.limit = self.memory.limits[self.session] = smaller_limit(self.limit, self.window, error)
        self.window = None
        with guard("a request that does not fit was not made smaller"):
            try:
                self.session.compact(self.messages, limit=self.limit)
            except CompactionError as failure:
                log.info("compaction: %s", failure)
            except StorageError as failure:  # a smaller window needs no memory
                log.warning("compaction: %s", failure)
            self.assemble()
        return self.window is not None

    def archive(self, reply: Json) -> None:
        """Archive the body of a reply."""
        with guard("a reply was not archived"):
            self.archive_messages(read_reply(reply, self.format))

    def archive_messages(self, messages: Sequence[Incoming]) -> None:
        """Archive the messages of a reply, after those of the request."""
        if messages:
            self.session.append(messages, format=self.format, after=self.place)


def _writer(send: Send, body: Json, format: str) -> Callable[[list[dict[str, Any]]], str]:
    """Return a function that lets the model of a request write a summary."""
    length = {"anthropic": "max_tokens", "openai_responses": "max_output_tokens"}.get(format)

    def write_summary(messages: list[dict[str, Any]]) -> str:
        prompt = providers.render_request(providers.read(messages, format="openai_chat"), format)
        reply = send({"model": body.get("model"), **prompt, **({length: SUMMARY_TOKENS} if length else {})})
        return "\n".join(message.text for message in providers.read(read_reply(reply, format), format=format))

    return write_summary


def load(content: bytes) -> dict[str, Any]:
    """Read a body; empty where it is no JSON object."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
