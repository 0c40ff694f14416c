"""The model of a request, asked with the key that the client sent with it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from threading import Event
from typing import Any, Final

import httpx2 as httpx

from holdfast import providers
from holdfast.calls import Deadline
from holdfast.errors import InputError, ModelBusyError, ModelError
from holdfast.exchange import make_summary_body
from holdfast.messages import Message, Text
from holdfast.models.base import OnText, Prompt, Reply, check_cancelled, check_deadline
from holdfast.models.client import error_from_response
from holdfast.providers.models import context_tokens
from holdfast.providers.replies import ReplyCollector, is_stream, load_json
from holdfast.server.bodies import BodyTooLargeError, read_reply

POLL_SECONDS: Final = 0.05
MAX_SUMMARY_BYTES: Final = 16 * 2**20
"""Bytes of a reply with a summary, with all of its events."""


class ClientModel:
    """The model that a request names, behind the upstream of the proxy. For summaries of the client's conversation.

    Args:
        body: The body of the request.
        format: Its format.
        send: Sends a body with the headers of the request.
        loop: The event loop in which `send` is called.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        *,
        format: str,
        send: Callable[[bytes], Awaitable[httpx.Response]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._body, self._send, self._loop = body, send, loop
        self.name = str(body.get("model") or "")
        self.provider = format
        self.context_tokens = context_tokens(self.name)

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Send a prompt and wait for the whole reply; see `Model.ask`. Not for the thread of the event loop."""
        deadline = Deadline.after(timeout)
        call = asyncio.run_coroutine_threadsafe(self._ask(self._make_body(prompt)), self._loop)
        try:
            while True:
                check_cancelled(cancel, self.name)
                check_deadline(deadline, self.name)
                try:
                    reply = call.result(timeout=POLL_SECONDS)
                except TimeoutError:
                    continue
                if on_text is not None:
                    on_text(reply.text)
                return reply
        finally:
            call.cancel()

    def _make_body(self, prompt: Prompt) -> bytes:
        body = make_summary_body(self._body, prompt.messages, format=self.provider, max_tokens=prompt.max_tokens)
        return json.dumps({**body, "stream": True}).encode()

    async def _ask(self, content: bytes) -> Reply:
        try:
            sent = await self._send(content)
            try:
                data = await read_reply(sent, limit=MAX_SUMMARY_BYTES)
            except (BodyTooLargeError, InputError) as error:
                raise ModelError(f"the reply was not read: {error}", model=self.name) from error
            finally:
                await sent.aclose()
        except httpx.HTTPError as error:
            raise ModelBusyError(f"the connection failed: {error}", model=self.name) from error
        if not sent.is_success:
            raise self._make_error(sent.status_code, load_json(data) or data.decode(errors="replace"), sent.headers)
        collector = ReplyCollector(self.provider, is_stream=is_stream(sent))
        collector.feed(data)
        messages = collector.messages()
        if collector.error:
            raise self._make_error(None, load_json(collector.error.encode()), {})
        texts = [message.text for message in providers.read(messages, format=self.provider)]
        if not texts:
            raise ModelBusyError("the reply broke off", model=self.name)
        return Reply(message=Message(role="assistant", parts=(Text(text="\n".join(filter(None, texts))),)))

    def _make_error(self, status: int | None, body: Any, headers: Mapping[str, str]) -> ModelError:
        return error_from_response(self.name, status=status, body=body, headers=headers, now=time.time())
