"""The proxy: model requests of any client, with the window assembled and the reply archived on the way.

    read the body -> identify the caller -> find the session -> begin the exchange -> send, and shrink what is refused
                                                         -> pass the reply on -> archive it before its last bytes

A request whose window needs no edit is sent as it came, byte for byte, and so is every reply. Memory trouble never
blocks a request: it is sent with the newest messages that fit, and a header of the reply says why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import Final

import httpx2 as httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.aio import AsyncEngine, AsyncSession, in_thread
from holdfast.cache import LruCache
from holdfast.calls import hide_keys
from holdfast.errors import HoldfastError, InputError
from holdfast.exchange import (
    ArchivedReply,
    Exchange,
    Exchanges,
    Json,
    ModelRequest,
    archive_reply,
    change_body,
    find_refusal,
    read_body,
)
from holdfast.hooks.host_summary import find_lost, is_summary_request
from holdfast.hooks.hosts import name_product
from holdfast.messages import Message
from holdfast.providers import Incoming
from holdfast.providers.models import context_tokens
from holdfast.providers.overflow import Numbers
from holdfast.providers.replies import ReplyCollector, is_stream
from holdfast.server.bodies import Bodies, Decoder, Held, RefusedBodyError
from holdfast.server.client_model import ClientModel
from holdfast.server.conversations import (
    CLAUDE_CODE_HEADER,
    OWN_HEADER,
    Conversation,
    Conversations,
    host_session,
)
from holdfast.server.forwarding import (
    ROUTES,
    Forwarder,
    make_header,
    make_reply,
    refuse,
    relay,
    warn,
    while_connected,
)
from holdfast.server.guard import carries_own_token, is_reserved
from holdfast.server.identity import TOKEN_HEADER, Caller, Callers
from holdfast.server.readings import Readings
from holdfast.server.summaries import complete_body, complete_stream
from holdfast.server.transport import Body, chain_chunks, read_up_to
from holdfast.server.upstreams import Upstreams
from holdfast.session import Session
from holdfast.store.base import Scope
from holdfast.telemetry import observe

log = logging.getLogger("holdfast.server")

COUNT_PATH: Final = "/v1/messages/count_tokens"
"""The path whose requests count a window that is not sent."""
CLIENT_LEFT: Final = 499
"""The status for a client that has left. Nobody reads it."""
MAX_WARNED: Final = 1_000
"""Callers whose warning is in the log already."""
OVERFLOW_STATUSES: Final = frozenset({400, 413, 422, 500})
"""Statuses of replies that may mean that the window does not fit. The bodies of these replies are read."""
OPENING_SECONDS: Final = 0.3
"""How long the opening of a stream is held back for an error that may follow it."""
MAX_ERROR_BYTES: Final = 2**20
"""Bytes of a provider's error that are read to recognise an overflow."""
LARGE_WINDOW_MARK: Final = "context-1m"
"""The mark in the header `anthropic-beta` that asks for a larger window."""
LARGE_WINDOW_TOKENS: Final = 1_000_000


@dataclass(slots=True, kw_only=True)
class _Call:
    """A model request of a client on its way through the proxy, and what is known of it so far.

    Attributes:
        format: The wire format of its path.
        given: Its body as it came.
        content: The body to send.
        asked: The request in the body; None if it cannot be read.
        is_summary: Whether the host asks for a summary of its conversation.
        caller: Who sends it.
        session: The session that it belongs to; None for a request that a host makes next to its conversation.
        conversation: The conversation that was recognised by its history, if the client names no session.
        exchange: The exchange, with the window; None if it is sent as it came.
        milliseconds: How long assembling took.
        warnings: What failed, for the client.
        cancel: Set when the client has left.
    """

    format: str
    given: bytes
    content: bytes
    asked: ModelRequest | None = None
    is_summary: bool = False
    caller: Caller | None = None
    session: AsyncSession | None = None
    conversation: Conversation | None = None
    exchange: Exchange | None = None
    milliseconds: float = 0
    warnings: list[str] = field(default_factory=list)
    cancel: Event = field(default_factory=Event)

    @property
    def session_id(self) -> str:
        """The name of the session; empty if there is none."""
        return "" if self.session is None else self.session.id

    def end_conversation(self) -> None:
        """Note that no reply comes that is archived."""
        if self.conversation is not None:
            self.conversation.finish()

    def is_streamed(self, sent: httpx.Response) -> bool:
        """Return whether a reply is streamed. Some servers do not declare it."""
        if not sent.is_success:
            return False
        if is_stream(sent):
            return True
        wants_stream = self.asked is not None and self.asked.body.get("stream") is True
        return wants_stream and "json" not in sent.headers.get("content-type", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where a reply is archived. It has nothing of the request, which is not kept while the reply streams.

    `host` is the name of the program that the session is from.
    """

    session: Session
    conversation: Conversation | None
    format: str
    place: str
    host: str

    @classmethod
    def of(cls, call: _Call, session: Session, *, host: str) -> _Target:
        """Return the place where the reply to a call is archived."""
        place = "" if call.exchange is None else call.exchange.place
        return cls(session=session, conversation=call.conversation, format=call.format, place=place, host=host)


class _Reply:
    """A reply that is collected for the archive while it passes.

    Attributes:
        collector: The part that has been received.
        failure: Why it is not archived; empty if it is.
    """

    def __init__(self, collector: ReplyCollector, decoder: Decoder, held: Held) -> None:
        self.collector = collector
        self.failure = ""
        self._decoder = decoder
        self._held = held

    @property
    def is_compressed(self) -> bool:
        """Whether reading it takes more work than its size suggests."""
        return not self._decoder.is_identity

    def feed(self, chunk: bytes) -> None:
        """Add bytes of it as they came."""
        try:
            for piece in self._decoder.feed(chunk):
                self._held.add(len(piece))
                self.collector.feed(piece)
            if self.collector.is_too_large:
                self.failure = "it is larger than the setting server.max_reply_bytes allows"
        except (InputError, RefusedBodyError) as error:
            self.collector.give_up()
            self.failure = str(error)

    def release(self) -> None:
        """Count its bytes no longer."""
        self._held.release()


class Proxy:
    """Passes requests on to the providers; model requests are assembled on their way.

    Args:
        engine: The memory.
        upstreams: The addresses of the providers.
        callers: Identifies the senders of requests.
        shadow: Whether requests are sent unchanged; reports then contain what would have been done.
    """

    def __init__(self, engine: AsyncEngine, *, upstreams: Upstreams, callers: Callers, shadow: bool = False) -> None:
        self._engine = engine
        self._callers = callers
        self._shadow = shadow
        self._forwarder = Forwarder(upstreams)
        self._bodies = Bodies(engine.settings.server)
        self._conversations = Conversations(engine.sync, key=lambda: callers.key)
        self._exchanges = Exchanges()
        self._readings = Readings()
        self._warned: LruCache[str, bool] = LruCache(MAX_WARNED)
        self._lock = Lock()  # of `_warned`

    async def close(self) -> None:
        """Close the connections."""
        self._bodies.close()
        await self._forwarder.close()

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        path = request.url.path
        if is_reserved(request.scope["raw_path"]):
            return refuse(request, f"{path} is a path of Holdfast, and not one that it answers", status=404)
        if carries_own_token(request):
            reason = (
                "the request has a token of Holdfast, which no provider may see: send the key of the provider, and the"
                f" owner's token as {TOKEN_HEADER}"
            )
            return refuse(request, reason, status=403)
        try:
            with self._bodies.hold() as held:
                if request.method == "POST" and path in ROUTES:
                    return await self._handle_model_request(request, held)
                if request.method == "POST" and path == COUNT_PATH:
                    return await self._handle_count(request, held)
                return await self._forwarder.pass_through(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except RefusedBodyError as error:
            warn(f"a request to {path} was refused: {error}", session=host_session(request.headers, {}))
            return refuse(request, f"the request was refused: {error}", status=error.status)
        except httpx.HTTPError as error:
            return self._forwarder.refuse_unreachable(request, error)

    async def _handle_model_request(self, request: Request, held: Held) -> Response:
        """Assemble the window of a model request, send it, and archive the reply."""
        content = await self._bodies.read(request, held=held)
        call = _Call(format=ROUTES[request.url.path], given=content, content=content)
        provider = "anthropic" if call.format == "anthropic" else "openai"
        with observe("chat", format=call.format, provider=provider) as operation:
            response = await self._exchange(request, call, held)
            model = "" if call.asked is None else call.asked.model
            operation.set(session=call.session_id, model=model, status=response.status_code)
            return response

    async def _exchange(self, request: Request, call: _Call, held: Held) -> Response:
        """Do what `_handle_model_request` does, after the body was read."""
        await self._begin(request, call, held)
        try:
            return await while_connected(request, self._answer(request, call))
        except httpx.HTTPError as error:
            call.end_conversation()
            await _record_refusal(call, type(error).__name__)
            return self._forwarder.refuse_unreachable(request, error, session=call.session_id)
        except BaseException:
            call.end_conversation()
            raise

    # --- the request -----------------------------------------------------------------

    async def _begin(self, request: Request, call: _Call, held: Held) -> None:
        """Read a model request, find its session, and assemble its window.

        If memory fails, the window has the newest messages that fit; if that fails too, the request passes as it came.

        Raises:
            RefusedBodyError: It is too large.
        """
        loop = asyncio.get_running_loop()
        try:
            await self._read(request, call, held)
            start = time.perf_counter()
            # One thread does all of it: each way to another one and back costs more than most of what is done here.
            exchange = await in_thread(self._begin_exchange, request, call, loop)
            call.milliseconds += 1000 * (time.perf_counter() - start)
            if exchange is not None:
                await self._set_exchange(call, exchange)
        except RefusedBodyError:
            raise
        except (HoldfastError, OSError, ValueError, RecursionError) as error:
            await self._begin_without_memory(request, call, error, reason=str(error))
        except Exception as error:  # a fault of ours must not stop the agent
            log.exception("a request goes on without memory")
            await self._begin_without_memory(request, call, error, reason=type(error).__name__)
        if call.exchange is not None and call.exchange.error is not None:
            _warn_unchanged(request, call.exchange.error, session=call.session_id)

    async def _read(self, request: Request, call: _Call, held: Held) -> None:
        """Read the body of a model request; a large one in a thread."""

        def read(body: Json) -> None:
            asked = self._readings.read(body, format=call.format, size=len(call.given))
            call.is_summary = is_summary_request(asked.messages)
            call.asked = replace(
                asked, recall=not call.is_summary, model_tokens=_find_model_tokens(asked.model, request.headers)
            )

        await self._bodies.parse(call.given, _find_encoding(request), read, held=held)

    def _begin_exchange(self, request: Request, call: _Call, loop: asyncio.AbstractEventLoop) -> Exchange | None:
        """Find the session of a request, and assemble its window; None if it has no session. Not for the event loop.

        The model of the client writes the summary if the window is refused.
        """
        self._find_session(request, call)
        if call.session is None:
            return None
        assert call.asked is not None
        session = call.session.sync
        model = ClientModel(
            call.asked.body,
            format=call.format,
            send=partial(self._forwarder.send, request, is_changed=True),
            loop=loop,
        )
        messages = call.asked.messages
        cancel = call.cancel

        def compact(*, limit: int, reserve: int | None) -> None:
            session.compact(messages, limit=limit, reserve=reserve, model=model, cancel=cancel)

        return self._exchanges.begin(session, call.asked, compact=compact, warn=call.warnings.append)

    def _find_session(self, request: Request, call: _Call) -> None:
        """Find out who sends a request, and the session that it belongs to. Not for the event loop.

        A request that a host makes next to its conversation has none.
        """
        assert call.asked is not None
        body = call.asked.body
        call.caller = self._identify(request, body)
        if call.caller.warning:
            call.warnings.append(call.caller.warning)
        name = host_session(request.headers, body)
        spoken = [message for message in call.asked.messages if message.role != "system"]
        if len(spoken) == 1:
            is_named_by_user = OWN_HEADER in request.headers
            if name and not is_named_by_user and not body.get("tools") and not call.asked.is_continued:
                return  # a title, a topic, a probe
            if call.is_summary:
                return  # it quotes a conversation that is known from its own requests
        owner = call.caller.scope(request.headers)
        previous = self._conversations.find_previous(body, owner=owner)
        name = name or previous.session
        if name:
            scope = replace(owner, session=name)
            self._conversations.name(scope)
            if previous.session == name:
                call.asked = replace(call.asked, after=previous.place)
            elif body.get("conversation"):
                call.asked = replace(call.asked, after=self._conversations.find_newest(scope))
            call.session = self._open_session(name, owner=owner)
            return
        call.conversation = self._conversations.begin(call.asked.messages, owner=owner, is_aside=call.is_summary)
        if call.conversation is not None:
            call.session = self._open_session(call.conversation.session, owner=owner)

    def _identify(self, request: Request, body: Json) -> Caller:
        """Return who sends a request. The log has one line for each caller whose next request may be of another."""
        caller = self._callers.identify(request, body)
        if not caller.warning:
            return caller
        with self._lock:
            is_new = caller.name not in self._warned
            self._warned[caller.name] = True
        if is_new:
            warn(caller.warning, session=host_session(request.headers, body))
        return caller

    def _open_session(self, name: str, *, owner: Scope) -> AsyncSession:
        return self._engine.session(name, tenant=owner.tenant, project=owner.project, agent=owner.agent)

    async def _begin_without_memory(self, request: Request, call: _Call, error: Exception, *, reason: str) -> None:
        """Make the window of a request after an error; one that cannot be read passes as it came."""
        if call.asked is None:
            call.warnings.append(f"the request passed unchanged: {reason}")
            _warn_unchanged(request, error)
            return
        session = self._engine.sync._make_unnamed_session() if call.session is None else call.session.sync
        exchange = await in_thread(
            self._exchanges.begin_without_memory,
            session,
            call.asked,
            error=error,
            reason=reason,
            warn=call.warnings.append,
        )
        await self._set_exchange(call, exchange)

    async def _set_exchange(self, call: _Call, exchange: Exchange) -> None:
        """Send the body of an exchange; the bytes that came if it is that of the request."""
        call.exchange = exchange
        call.content = call.given
        if exchange.is_changed and not self._shadow:
            call.content = await self._bodies.work(partial(_encode, exchange.body), size=len(call.given))

    # --- sending and the reply -------------------------------------------------------

    async def _answer(self, request: Request, call: _Call) -> Response:
        """Send a model request, pass the reply on, and archive it on the way."""
        body = await self._send_until_it_fits(request, call)
        sent = body.sent
        chunks = body.pass_on()
        if not sent.is_success:
            call.end_conversation()
            await _record_refusal(call, f"status {sent.status_code}")
            return self._make_reply(call, sent, chunks)
        if call.is_summary and not self._shadow and "content-encoding" not in sent.headers:
            call.end_conversation()
            return await self._complete_summary(call, sent, chunks)
        if call.session is None:
            return self._make_reply(call, sent, chunks)
        max_bytes = self._engine.settings.server.max_reply_bytes
        try:
            decoder = Decoder(sent.headers.get("content-encoding", ""), limit=max_bytes, setting="max_reply_bytes")
        except InputError as error:
            warn(f"a reply was not archived: {error}", session=call.session_id)
            call.end_conversation()
            return self._make_reply(call, sent, chunks)
        is_streamed = call.is_streamed(sent)
        collector = ReplyCollector(call.format, is_stream=is_streamed, max_bytes=max_bytes)
        reply = _Reply(collector, decoder, Held(self._bodies))
        target = _Target.of(call, call.session.sync, host=_name_host(request.headers))
        archived = self._archive_on_the_way(sent, chunks, reply, target)
        if is_streamed:
            return self._make_reply(call, sent, archived)
        content, is_whole = await read_up_to(archived, limit=max_bytes)
        if reply.failure:
            call.warnings.append(f"the reply was not archived: {reply.failure}")
        if not is_whole:
            return self._make_reply(call, sent, chain_chunks(content, archived))
        return self._make_reply(call, sent, content)

    async def _send_until_it_fits(self, request: Request, call: _Call) -> Body:
        """Send a model request, and a smaller one as long as the provider refuses it and there is one."""
        while True:
            is_changed = call.content is not call.given
            body = Body(await self._forwarder.send(request, call.content, is_changed=is_changed))
            exchange = call.exchange
            if exchange is None or exchange.window is None or self._shadow:
                return body
            refusal = await _read_refusal(body, call)
            if refusal is None:
                return body
            try:
                smaller = await in_thread(exchange.shrink, refusal)
            except asyncio.CancelledError:
                call.cancel.set()  # the client has left: its compaction stops at the next step
                raise
            if smaller is None:
                return body
            await body.sent.aclose()
            await self._set_exchange(call, smaller)

    async def _archive_on_the_way(
        self, sent: httpx.Response, chunks: AsyncIterator[bytes], reply: _Reply, target: _Target
    ) -> AsyncIterator[bytes]:
        """Pass the bytes of a reply on. The last ones wait until the reply is durable."""
        collector = reply.collector
        name = f"the reply of {hide_keys(str(sent.url))}"
        warning = f"the client left in the middle of {name}"
        is_archived = False
        try:
            async for chunk in chunks:
                if not reply.failure and not is_archived:
                    size = sys.maxsize if reply.is_compressed else len(chunk)
                    await self._bodies.work(partial(reply.feed, chunk), size=size)
                if collector.is_complete and not is_archived:
                    is_archived = True
                    await self._archive(collector, target)
                yield chunk
            warning = f"{name} broke off: {collector.error[:200] or 'no last event'}"
        except httpx.HTTPError:
            warning = ""  # the caller reports it
            raise
        finally:  # also of a reply that broke off, or whose client has left
            try:
                if not is_archived:
                    await self._archive(collector, target)
            finally:  # the client may leave while it is archived
                reply.release()
                if reply.failure:
                    warn(f"a reply was not archived: {reply.failure}", session=target.session.id)
                elif collector.is_cut and warning:
                    warn(warning, session=target.session.id)

    async def _archive(self, collector: ReplyCollector, target: _Target) -> None:
        """Archive a reply, or what has come of it, after the request that it answers."""
        try:
            received = await self._bodies.work(collector.received, size=collector.size)
        except Exception:  # as below
            log.exception("a reply was not archived")
            received = []
        # It is archived in any case, also if the client leaves meanwhile.
        await asyncio.shield(in_thread(self._archive_received, received, collector, target))

    def _archive_received(self, received: Sequence[Incoming], collector: ReplyCollector, target: _Target) -> None:
        """Archive the messages of a reply, and note where the conversation is. Not for the event loop."""
        reply = ArchivedReply()
        try:
            reply = archive_reply(
                target.session, received, format=target.format, after=target.place, is_cut=collector.is_cut
            )
            if target.format == "openai_responses" and reply.place is not None:
                self._conversations.add_response(
                    collector.id, session=target.session.scope, place=reply.place, is_whole=not collector.is_cut
                )
            target.session._record_host(target.host)  # not before the request is sent, which would wait for it
        except Exception:  # the reply has come: the agent gets it in any case
            log.exception("a reply was not archived")
        finally:
            if target.conversation is not None:
                target.conversation.finish(reply.messages)

    async def _complete_summary(self, call: _Call, sent: httpx.Response, chunks: AsyncIterator[bytes]) -> Response:
        """Pass a summary on that the host asked for, with the details that it lost."""
        assert call.asked is not None
        if call.session is None:  # the request quotes the conversation
            settings = self._engine.settings.compaction
            history = call.asked.messages[-1:]
        else:
            settings = call.session.sync.settings.compaction
            history = call.asked.messages[:-1]

        async def find(summary: str) -> str:
            try:
                return await asyncio.to_thread(find_lost, history, summary, settings=settings)
            except Exception:  # the host gets the summary in any case
                log.exception("a summary was not completed")
                return ""

        if call.is_streamed(sent):
            return self._make_reply(call, sent, complete_stream(chunks, call.format, find))
        content, is_whole = await read_up_to(chunks, limit=self._engine.settings.server.max_reply_bytes)
        if not is_whole:
            return self._make_reply(call, sent, chain_chunks(content, chunks))
        return self._make_reply(call, sent, await complete_body(content, call.format, find))

    def _make_reply(self, call: _Call, sent: httpx.Response, content: bytes | AsyncIterator[bytes]) -> Response:
        """Make the reply to the client, with headers about what was done."""
        headers: dict[str, str] = {}
        if call.caller is not None:
            headers["x-holdfast-identity"] = call.caller.name or "owner"
        if call.session is not None:
            headers["x-holdfast-session"] = make_header(call.session_id)
        if call.exchange is not None and call.exchange.window is not None:
            report = call.exchange.window.report
            name = "x-holdfast-shadow" if self._shadow else "x-holdfast"
            headers[f"{name}-tokens"] = str(report.total_tokens)
            headers[f"{name}-edits"] = ",".join(change.kind for change in report.changes)
            headers["x-holdfast-milliseconds"] = f"{call.milliseconds:.1f}"
        if call.warnings:
            headers["x-holdfast-warning"] = make_header("; ".join(dict.fromkeys(call.warnings)))
        return make_reply(sent, content, headers=headers, session=call.session_id)

    # --- requests that count tokens --------------------------------------------------

    async def _handle_count(self, request: Request, held: Held) -> Response:
        """Let the provider count the window that would be sent, and not the history of the client."""
        content = await self._bodies.read(request, held=held)
        try:
            counted = await self._preview(request, content, held)
        except RefusedBodyError:
            raise
        except (HoldfastError, OSError, ValueError, RecursionError) as error:
            _warn_unchanged(request, error)
            counted = content
        except Exception:  # a fault of ours must not stop the agent
            log.exception("a request to count tokens passed unchanged")
            counted = content
        sending = self._forwarder.send(request, counted, is_changed=counted is not content)
        return relay(await while_connected(request, sending))

    async def _preview(self, request: Request, content: bytes, held: Held) -> bytes:
        """Return a body with the window that would be sent; as it came if its session is not known."""
        read = partial(read_body, format="anthropic")
        asked = await self._bodies.parse(content, _find_encoding(request), read, held=held)
        if self._shadow:
            return content
        window = await in_thread(self._find_preview, request, asked)
        if window is None:
            return content
        body = change_body(asked.body, asked.messages, window, format=asked.format)
        if body is asked.body:
            return content
        return _encode(body)

    def _find_preview(self, request: Request, asked: ModelRequest) -> list[Message] | None:
        """Return the messages that a request would send; None if its session is not known. Not for the event loop."""
        owner = self._identify(request, asked.body).scope(request.headers)
        name = host_session(request.headers, asked.body)
        if not name:
            name = self._conversations.find(asked.messages, owner=owner)
        if not name:
            return None
        session = self._open_session(name, owner=owner)
        return session.sync.preview(asked.messages, provider=asked.format)


async def _record_refusal(call: _Call, error: str) -> None:
    """Record that a request got no reply, if its window was recorded."""
    if call.exchange is not None and call.exchange.place:
        await asyncio.to_thread(call.exchange.session._record_refusal, error, place=call.exchange.place)


def _name_host(headers: Mapping[str, str]) -> str:
    """Return the name of the host that sends a request."""
    if CLAUDE_CODE_HEADER in headers:  # its SDK may name itself as the agent
        return "Claude Code"
    return name_product(headers.get("user-agent", "")) or "proxy"


def _warn_unchanged(request: Request, error: Exception, *, session: str = "") -> None:
    session = session or host_session(request.headers, {})
    warn(f"a request to {request.url.path} passed unchanged: {error}", session=session)


def _encode(body: Json) -> bytes:
    """Encode a body as clients do. Other characters than those of ASCII are escaped: there may be lone surrogates."""
    return json.dumps(body, separators=(",", ":")).encode()


def _find_model_tokens(model: str, headers: Mapping[str, str]) -> int:
    """Return the context window of a model, or the larger one that a request asks for."""
    tokens = context_tokens(model)
    if LARGE_WINDOW_MARK in headers.get("anthropic-beta", ""):
        return max(tokens, LARGE_WINDOW_TOKENS)
    return tokens


def _find_encoding(request: Request) -> str:
    """Return how a request is compressed; there may be several headers."""
    return ",".join(request.headers.getlist("content-encoding"))


async def _read_refusal(body: Body, call: _Call) -> Numbers | None:
    """Read the provider's error that a window does not fit; None for any other reply.

    An error is read whole; of a stream only the opening, for a moment, after which an error may come.
    """
    sent = body.sent
    try:
        decoder = Decoder(sent.headers.get("content-encoding", ""), limit=MAX_ERROR_BYTES)
    except InputError:
        return None
    if sent.status_code in OVERFLOW_STATUSES:
        data = bytearray()
        while body.held_bytes < MAX_ERROR_BYTES and (chunk := await body.peek()):
            data += _decode_start(decoder, chunk)
        text = data[:MAX_ERROR_BYTES].decode(errors="replace")
        return find_refusal(text, status=sent.status_code)
    if not call.is_streamed(sent):
        return None
    collector = ReplyCollector(call.format, is_stream=True, max_bytes=MAX_ERROR_BYTES)
    opening = await body.peek()
    while opening:
        collector.feed(_decode_start(decoder, opening))
        if collector.has_begun or collector.is_too_large or body.held_bytes > MAX_ERROR_BYTES:
            break
        opening = await body.peek(seconds=OPENING_SECONDS)
    return find_refusal(collector.error)


def _decode_start(decoder: Decoder, chunk: bytes) -> bytes:
    """Decompress a part of the beginning of a reply, as far as that can be read."""
    decoded = b""
    with suppress(InputError, RefusedBodyError):
        for piece in decoder.feed(chunk):
            decoded += piece
    return decoded
