"""The proxy: model requests of any client, with the window assembled and the reply archived on the way.

A request whose window needs no edit is sent as it came, byte for byte, and so is every reply. Memory trouble never
blocks a request: it is sent with the newest messages that fit, and a header of the reply says why.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.request import getproxies

import httpx2 as httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from holdfast import providers
from holdfast.aio import AsyncEngine, AsyncSession
from holdfast.errors import CompactionError, HoldfastError, InputError, StorageError, WindowError
from holdfast.hooks.host_summary import find_lost, is_summary_request
from holdfast.messages import Message, Text, Thinking
from holdfast.providers import Incoming, read_request
from holdfast.providers.models import context_tokens
from holdfast.providers.overflow import is_overflow
from holdfast.providers.replies import ReplyCollector, is_stream
from holdfast.providers.rules import blocks
from holdfast.redaction import redact
from holdfast.requests import OVERFLOW_STATUSES, changed_fields, is_continued, reply_reserve, smaller_limit
from holdfast.server.bodies import Bodies, Decoder, Held, RefusedBodyError
from holdfast.server.client_model import ClientModel
from holdfast.server.conversations import OWN_HEADER, Conversation, Conversations, host_session
from holdfast.server.guard import OWN_HEADERS, carries_own_token, is_reserved
from holdfast.server.identity import TOKEN_HEADER, Caller, Callers
from holdfast.server.summaries import complete_body, complete_stream
from holdfast.server.transport import (
    CONNECT_SECONDS,
    IDLE_SECONDS,
    READ_SECONDS,
    Body,
    Transport,
    chain_chunks,
    read_up_to,
)
from holdfast.store.base import Scope
from holdfast.text import printable
from holdfast.window import Window

log = logging.getLogger("holdfast.server")

R = TypeVar("R")

ROUTES: Final[Mapping[str, str]] = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai_chat",
    "/v1/responses": "openai_responses",
}
"""The format of each path whose requests are assembled. Everything else passes."""
COUNT_PATH: Final = "/v1/messages/count_tokens"
"""The path whose requests count a window that is not sent."""
CLIENT_LEFT: Final = 499
"""The status for a client that has left. Nobody reads it."""
MAX_WARNED: Final = 1_000
"""Callers whose warning is in the log already."""
ERROR_TYPES: Final = {
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    503: "overloaded_error",
}
"""The types of our own errors, by status, as Anthropic names them."""
MAX_LIMITS: Final = 1_000
"""Sessions whose limit is remembered after the provider has refused a window."""
OPENING_SECONDS: Final = 0.3
"""How long the opening of a stream is held back for an error that may follow it."""
MAX_ERROR_BYTES: Final = 2**20
"""Bytes of a provider's error that are read to recognise an overflow."""
LARGE_WINDOW: Final = ("context-1m", 1_000_000)
"""The mark in `anthropic-beta` that asks for a larger window, and its tokens."""
_HOP_HEADERS: Final = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
"""The headers that are for one connection, and not for the other end of the proxy."""
_TIMEOUT: Final = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
_LIMITS: Final = httpx.Limits(keepalive_expiry=IDLE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """Where requests go."""

    anthropic: str = "https://api.anthropic.com"
    openai: str = "https://api.openai.com"

    @classmethod
    def parse(cls, values: Sequence[str]) -> Upstreams:
        """Read the values of `--upstream`: `URL` for all vendors, or `VENDOR=URL` for one.

        Raises:
            InputError: A value is neither.
        """
        given: dict[str, str] = {}
        for value in values:
            vendor, is_named, url = value.partition("=")
            if not is_named or "://" in vendor:  # a URL may contain =
                vendor, url = "", value
            if not url.startswith(("http://", "https://")) or vendor not in {"", "anthropic", "openai"}:
                raise InputError(f"--upstream {value}: give URL, anthropic=URL or openai=URL")
            given |= dict.fromkeys([vendor] if vendor else ["anthropic", "openai"], url)
        return cls(**given)

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(_address(httpx.URL(url)) for url in (self.anthropic, self.openai)))

    def url(self, request: Request) -> str:
        """Return the address for a request: that of the vendor by its path and headers."""
        base = (self.anthropic if _is_anthropic(request) else self.openai).rstrip("/")
        path, query = (request.scope[key].decode("latin-1") for key in ("raw_path", "query_string"))
        if base.endswith("/v1") and path.startswith("/v1/"):
            path = path.removeprefix("/v1")
        return f"{base}{path}" + (f"?{query}" if query else "")


@dataclass(slots=True, kw_only=True)
class _Exchange:
    """One request on its way: what is sent, and what is known about it."""

    format: str
    body: dict[str, Any]
    content: bytes
    caller: Caller | None = None
    session: AsyncSession | None = None
    conversation: Conversation | None = None
    messages: list[Message] = field(default_factory=list)
    window: Window | None = None
    place: str = ""
    milliseconds: float = 0
    limit: int = 0
    is_changed: bool = False
    is_shadow: bool = False
    is_summary: bool = False
    failure: str = ""  # why its window is made without memory
    model: ClientModel | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def session_id(self) -> str:
        """The name of its session; empty where it has none."""
        return "" if self.session is None else self.session.id

    def end_conversation(self) -> None:
        """Note that no reply comes that is archived."""
        if self.conversation is not None:
            self.conversation.finish()

    def is_stream(self, sent: httpx.Response) -> bool:
        """Whether its reply is streamed; some servers do not say so."""
        is_json = "json" in sent.headers.get("content-type", "")
        return sent.is_success and (is_stream(sent) or (self.body.get("stream") is True and not is_json))

    def headers(self) -> dict[str, str]:
        """The headers about it that are added to the reply."""
        found: dict[str, str] = {}
        if self.caller is not None:
            found["x-holdfast-identity"] = self.caller.name or "owner"
        if self.session is not None:
            found["x-holdfast-session"] = _header(self.session_id)
        if self.window is not None:
            name = "x-holdfast-shadow" if self.is_shadow else "x-holdfast"
            found[f"{name}-tokens"] = str(self.window.report.total_tokens)
            found["x-holdfast-milliseconds"] = f"{self.milliseconds:.1f}"
            found[f"{name}-edits"] = ",".join(change.kind for change in self.window.report.changes)
            self.warnings += self.window.failures
        if self.warnings:
            found["x-holdfast-warning"] = _header("; ".join(self.warnings))
        return found


@dataclass(slots=True, kw_only=True)
class _Reply:
    """A reply that is collected for the archive while it passes. `trouble` says why it is not archived."""

    collector: ReplyCollector
    decoder: Decoder
    held: Held
    trouble: str = ""

    def feed(self, chunk: bytes) -> None:
        """Add bytes of it as they came."""
        try:
            for piece in self.decoder.feed(chunk):
                self.held.add(len(piece))
                self.collector.feed(piece)
            if self.collector.is_too_large:
                self.trouble = "it is larger than the setting server.max_reply_bytes allows"
        except (InputError, RefusedBodyError) as error:
            self.collector.give_up()
            self.trouble = str(error)


class Proxy:
    """Passes requests on to the providers; model requests are assembled on their way.

    Args:
        engine: The memory.
        upstreams: Where requests go.
        callers: Recognises who sends a request.
        shadow: Whether requests are sent as they came; reports then say what would have been done.
    """

    def __init__(self, engine: AsyncEngine, *, upstreams: Upstreams, callers: Callers, shadow: bool = False) -> None:
        self._engine = engine
        self._callers = callers
        self._upstreams = upstreams
        self._shadow = shadow
        has_proxy = not {"http", "https", "all"}.isdisjoint(getproxies())
        way = None if has_proxy else Transport()  # httpx itself sends through a proxy of the user
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, limits=_LIMITS, transport=way)
        self._bodies = Bodies(engine.settings.server)
        self._conversations = Conversations(engine.sync, key=lambda: callers.key)
        self._limits: dict[Scope, int] = {}
        self._warned: dict[str, None] = {}

    async def close(self) -> None:
        """Close the connections."""
        self._bodies.close()
        await self._client.aclose()

    async def handle(self, request: Request) -> Response:
        """Answer a request."""
        if is_reserved(request.scope["raw_path"]):
            path = request.url.path
            return _refuse(request, f"{path} is a path of Holdfast, and not one that it answers", status=404)
        if carries_own_token(request):
            reason = (
                "the request has a token of Holdfast, which no provider may see: send the key of the provider, and the"
                f" owner's token as {TOKEN_HEADER}"
            )
            return _refuse(request, reason, status=403)
        with self._bodies.hold() as held:
            return await self._handle(request, held)

    async def _handle(self, request: Request, held: Held) -> Response:
        format = ROUTES.get(request.url.path)
        exchange = _Exchange(format="", body={}, content=b"")
        try:
            if request.method == "POST" and format:
                exchange = await self._prepare(request, format, held)
                try:
                    return await _while_connected(request, self._answer(request, exchange))
                except BaseException:
                    exchange.end_conversation()
                    raise
            if request.method == "POST" and request.url.path == COUNT_PATH:
                content = await self._bodies.read(request, held=held)
                counted = await self._preview(request, content, held)
                sending = self._send(request, counted, is_changed=counted is not content)
                return _relay(await _while_connected(request, sending))
            if not {"content-length", "transfer-encoding"}.intersection(request.headers):
                return _relay(await _while_connected(request, self._send(request, None)))
            received = asyncio.Event()
            sending = self._send(request, _upload(request, received))
            return _relay(await _while_connected(request, sending, received=received))
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        except RefusedBodyError as error:
            _warn(f"a request to {request.url.path} was refused: {error}", session=host_session(request.headers, {}))
            return _refuse(request, f"the request was refused: {error}", status=error.status)
        except httpx.HTTPError as error:
            message = f"{_address(httpx.URL(self._upstreams.url(request)))} did not answer: {_reason(error)}"
            _warn(message, session=exchange.session_id)
            return _refuse(request, message, status=502)

    # --- requests --------------------------------------------------------------------

    async def _prepare(self, request: Request, format: str, held: Held) -> _Exchange:
        """Read a model request and assemble its window.

        If memory fails, the window has the newest messages that fit; if that fails too, the request passes as it came.

        Raises:
            RefusedBodyError: It is too large.
        """
        content = await self._bodies.read(request, held=held)
        exchange = _Exchange(format=format, body={}, content=content, is_shadow=self._shadow)

        def read(body: Any) -> None:
            exchange.messages = read_request(body, format=format, keep_malformed=True)
            exchange.body = body
            exchange.is_summary = is_summary_request(exchange.messages)

        try:
            await self._bodies.parse(content, _encoding(request), read, held=held)
            body = exchange.body
            exchange.caller = await self._identify(request, body)
            if exchange.caller.warning:
                exchange.warnings.append(exchange.caller.warning)
            exchange.model = ClientModel(
                body, format=format, send=partial(self._send, request, is_changed=True), loop=asyncio.get_running_loop()
            )
            exchange.session = await self._find_session(request, exchange)
            if exchange.session is not None:
                await self._apply_memory(exchange, request.headers)
        except RefusedBodyError:
            raise
        except (HoldfastError, OSError, ValueError, RecursionError) as error:
            await self._go_without_memory(request, exchange, error, reason=str(error))
        except Exception as error:  # a fault of ours must not stop the agent
            log.exception("a request goes on without memory")
            await self._go_without_memory(request, exchange, error, reason=type(error).__name__)
        return exchange

    async def _go_without_memory(self, request: Request, exchange: _Exchange, error: Exception, *, reason: str) -> None:
        """Make the window of a request whose memory failed; where there is none, the request passes as it came."""
        is_readable = bool(exchange.body) and not isinstance(error, WindowError)
        if is_readable and not is_continued(exchange.body):
            exchange.failure = f"memory failed: {reason}"
            try:
                exchange.limit = exchange.limit or self._find_limit(exchange, request.headers)
                await self._assemble(exchange)
            except Exception:  # the provider may still take it as it is
                log.exception("a request passed unchanged")
            else:
                return
        exchange.warnings.append(f"the request passed unchanged: {reason}")
        _warn_unchanged(request, error, session=exchange.session_id)

    async def _preview(self, request: Request, content: bytes, held: Held) -> bytes:
        """Return the body of a request that counts tokens, with the window that would be sent instead of the history.

        It stays as it came where it is not about the conversation of a known session, or memory fails.
        """
        try:
            exchange = _Exchange(format="anthropic", body={}, content=content)

            def read(body: Any) -> None:
                exchange.messages = read_request(body, format=exchange.format, keep_malformed=True)
                exchange.body = body

            await self._bodies.parse(content, _encoding(request), read, held=held)
            body = exchange.body
            name = host_session(request.headers, body)
            if not name or self._shadow:
                return content
            caller = await self._identify(request, body)
            session = await self._open_session(name, owner=caller.scope(request.headers))
            window = await session.preview(exchange.messages, provider=exchange.format)
            changed = changed_fields(body, exchange.messages, window, format=exchange.format) if window else {}
            return json.dumps({**body, **changed}, separators=(",", ":")).encode() if changed else content
        except RefusedBodyError:
            raise
        except (HoldfastError, OSError, ValueError, RecursionError) as error:
            _warn_unchanged(request, error)
            return content
        except Exception:  # a fault of ours must not stop the agent
            log.exception("a request to count tokens passed unchanged")
            return content

    async def _find_session(self, request: Request, exchange: _Exchange) -> AsyncSession | None:
        """Return the session of a request; None for a request that a host makes beside its conversation."""
        name = host_session(request.headers, exchange.body)
        has_one_message = sum(message.role != "system" for message in exchange.messages) == 1
        signs = (not name, OWN_HEADER in request.headers, exchange.body.get("tools"), is_continued(exchange.body))
        if has_one_message and not any(signs):
            return None  # a title, a topic, a probe
        if exchange.is_summary and has_one_message:
            return None  # it quotes a conversation that is known from its own requests
        assert exchange.caller is not None
        owner = exchange.caller.scope(request.headers)
        previous = await asyncio.to_thread(self._conversations.find_previous, exchange.body, owner=owner)
        name = name or previous.session
        if name:
            scope = replace(owner, session=name)
            await asyncio.to_thread(self._conversations.name, scope)
            if previous.session == name:
                exchange.place = previous.place
            elif exchange.body.get("conversation"):
                exchange.place = await asyncio.to_thread(self._conversations.find_newest, scope)
            return await self._open_session(name, owner=owner)
        exchange.conversation = await asyncio.to_thread(
            self._conversations.begin, exchange.messages, owner=owner, is_aside=exchange.is_summary
        )
        if exchange.conversation is None:
            return None
        return await self._open_session(exchange.conversation.session, owner=owner)

    async def _open_session(self, name: str, *, owner: Scope) -> AsyncSession:
        # In a thread: the settings of the project are files.
        return await asyncio.to_thread(
            self._engine.session, name, tenant=owner.tenant, project=owner.project, agent=owner.agent
        )

    async def _identify(self, request: Request, body: Mapping[str, Any]) -> Caller:
        """Return who sends a request. The log has one line for each caller whose next request may be of another."""
        caller = await asyncio.to_thread(self._callers.identify, request, body)
        if caller.warning and caller.name not in self._warned:
            self._warned[caller.name] = None
            while len(self._warned) > MAX_WARNED:
                del self._warned[next(iter(self._warned))]
            _warn(caller.warning, session=host_session(request.headers, body))
        return caller

    async def _apply_memory(self, exchange: _Exchange, headers: Mapping[str, str]) -> None:
        """Assemble the window. A request with only the newest messages is archived, and sent as it came."""
        assert exchange.session is not None
        if is_continued(exchange.body):
            # After the response that it goes on from, the same message again is the same message.
            after = exchange.place or None
            appended = await exchange.session.append(exchange.messages, format=exchange.format, after=after)
            exchange.place = appended.place
            return
        exchange.limit = self._find_limit(exchange, headers)
        await self._assemble(exchange)

    def _find_limit(self, exchange: _Exchange, headers: Mapping[str, str]) -> int:
        """Return the window of the model, or the smaller one that it has refused for the session."""
        settings = self._engine.settings if exchange.session is None else exchange.session.sync.settings
        known = settings.model.context_tokens
        if known is None:
            mark, tokens = LARGE_WINDOW
            window = context_tokens(str(exchange.body.get("model") or ""))
            known = max(window, tokens) if mark in headers.get("anthropic-beta", "") else window
        if exchange.session is None:
            return known
        return min(known, self._limits.get(exchange.session.sync.scope, known))

    async def _assemble(self, exchange: _Exchange) -> None:
        """Assemble the window; the content changes only where the window does."""
        body, start = exchange.body, time.perf_counter()
        request: dict[str, Any] = {
            "limit": exchange.limit,
            "reserve": reply_reserve(body, limit=exchange.limit),
            "model": str(body.get("model") or ""),
            "provider": exchange.format,
            "tools": blocks(body.get("tools")),
        }
        if exchange.failure:
            session = exchange.session.sync if exchange.session else self._engine.sync._make_unnamed_session()
            exchange.window = await asyncio.to_thread(
                session._fit_without_memory, exchange.messages, reason=exchange.failure, **request
            )
        else:
            assert exchange.session is not None
            exchange.window = await exchange.session.assemble(
                exchange.messages, recall=not exchange.is_summary, **request
            )
        exchange.place = exchange.window.place
        exchange.milliseconds += 1000 * (time.perf_counter() - start)
        window = exchange.window.messages

        def render() -> None:
            changed = changed_fields(body, exchange.messages, window, format=exchange.format)
            if changed and not self._shadow:
                content = json.dumps({**body, **changed}, separators=(",", ":"))  # escaped, for lone surrogates
                exchange.content = content.encode()
                exchange.is_changed = True

        await self._bodies.work(render, size=len(exchange.content))

    # --- replies ---------------------------------------------------------------------

    async def _answer(self, request: Request, exchange: _Exchange) -> Response:
        """Send a model request, once more after a compaction where it does not fit, and archive the reply."""
        body = await self._send_until_it_fits(request, exchange)
        sent, passing = body.sent, body.pass_on()
        if not sent.is_success:
            exchange.end_conversation()
            return _reply(sent, passing, exchange)
        if exchange.is_summary and not self._shadow and "content-encoding" not in sent.headers:
            exchange.end_conversation()
            return await self._complete_summary(sent, passing, exchange)
        if exchange.session is None:
            return _reply(sent, passing, exchange)
        settings = self._engine.settings.server
        try:
            encoding = sent.headers.get("content-encoding", "")
            decoder = Decoder(encoding, limit=settings.max_reply_bytes, setting="max_reply_bytes")
        except InputError as error:
            _warn(f"a reply was not archived: {error}", session=exchange.session_id)
            exchange.end_conversation()
            return _reply(sent, passing, exchange)
        is_stream = exchange.is_stream(sent)
        collector = ReplyCollector(exchange.format, is_stream=is_stream, max_bytes=settings.max_reply_bytes)
        reply = _Reply(collector=collector, decoder=decoder, held=Held(self._bodies))
        archived = self._archive_on_the_way(
            sent, passing, exchange.session, exchange.conversation, reply, after=exchange.place
        )
        if is_stream:
            return _reply(sent, archived, exchange)
        content, is_whole = await read_up_to(archived, limit=settings.max_reply_bytes)
        if reply.trouble:
            exchange.warnings.append(f"the reply was not archived: {reply.trouble}")
        return _reply(sent, content if is_whole else chain_chunks(content, archived), exchange)

    async def _send_until_it_fits(self, request: Request, exchange: _Exchange) -> Body:
        """Send a model request; where the provider refuses its size, compact and send it once more."""
        body = Body(await self._send(request, exchange.content, is_changed=exchange.is_changed))
        if exchange.window is None or self._shadow:
            return body
        error, content = await _read_refusal(body, exchange), exchange.content
        if not error or not await self._compact(exchange, error) or exchange.content == content:
            return body
        await body.sent.aclose()
        return Body(await self._send(request, exchange.content, is_changed=exchange.is_changed))

    async def _complete_summary(
        self, sent: httpx.Response, passing: AsyncIterator[bytes], exchange: _Exchange
    ) -> Response:
        """Pass a summary on that the host asked for, with the details that it lost."""
        owner = self._engine.sync if exchange.session is None else exchange.session.sync
        settings = owner.settings.compaction
        last = exchange.messages[-1]
        history = exchange.messages[:-1] if exchange.session is not None else [last]

        async def find(summary: str) -> str:
            try:
                return await asyncio.to_thread(find_lost, history, summary, settings=settings)
            except Exception:  # the host gets the summary in any case
                log.exception("a summary was not completed")
                return ""

        if exchange.is_stream(sent):
            return _reply(sent, complete_stream(passing, exchange.format, find), exchange)
        content, is_whole = await read_up_to(passing, limit=self._engine.settings.server.max_reply_bytes)
        if not is_whole:
            return _reply(sent, chain_chunks(content, passing), exchange)
        return _reply(sent, await complete_body(content, exchange.format, find), exchange)

    async def _archive_on_the_way(
        self,
        sent: httpx.Response,
        chunks: AsyncIterator[bytes],
        session: AsyncSession,
        conversation: Conversation | None,
        reply: _Reply,
        *,
        after: str,
    ) -> AsyncIterator[bytes]:
        """Pass the bytes of a reply on. The last ones wait until the reply is durable."""
        collector = reply.collector
        name, is_archived = f"the reply of {_address(sent.url)}", False
        warning = f"the client left in the middle of {name}"
        try:
            async for chunk in chunks:
                if not reply.trouble and not is_archived:
                    size = len(chunk) if reply.decoder.is_identity else sys.maxsize
                    await self._bodies.work(partial(reply.feed, chunk), size=size)
                if collector.is_complete and not is_archived:
                    is_archived = True
                    await self._archive(session, conversation, collector, after=after)
                yield chunk
            warning = f"{name} broke off: {collector.error[:200] or 'no last event'}"
        except httpx.HTTPError:
            warning = ""  # what passes it on says so
            raise
        finally:  # also of a reply that broke off, or whose client has left
            try:
                if not is_archived:
                    await self._archive(session, conversation, collector, after=after)
            finally:  # the client may leave while it is archived
                reply.held.release()
                if reply.trouble:
                    _warn(f"a reply was not archived: {reply.trouble}", session=session.id)
                elif collector.is_cut and warning:
                    _warn(warning, session=session.id)

    async def _compact(self, exchange: _Exchange, error: str) -> bool:
        """Compact the session and assemble a smaller window, which needs no memory; whether there is one."""
        exchange.limit = smaller_limit(exchange.limit, exchange.window, error)
        if exchange.session is not None:
            self._limits[exchange.session.sync.scope] = exchange.limit
        while len(self._limits) > MAX_LIMITS:
            del self._limits[next(iter(self._limits))]
        try:
            try:
                if exchange.session is not None and not exchange.failure:
                    await exchange.session.compact(exchange.messages, limit=exchange.limit, model=exchange.model)
            except (CompactionError, StorageError) as failure:
                exchange.warnings.append(f"compaction: {failure}")
            await self._assemble(exchange)
        except HoldfastError as failure:
            exchange.warnings.append(f"compaction: {failure}")
            return False
        except Exception:  # the client gets the provider's own error
            log.exception("a request that does not fit was not made smaller")
            return False
        return True

    async def _archive(
        self, session: AsyncSession, conversation: Conversation | None, collector: ReplyCollector, *, after: str
    ) -> None:
        """Archive a reply, or what has come of it, after the request that it answers."""
        format = collector.format
        reply: Sequence[Message] = ()
        try:
            messages: Sequence[Incoming] = await self._bodies.work(collector.received, size=collector.size)
            read = providers.read(messages, format=format, keep_malformed=True)
            if collector.is_cut:
                broken = [message for message in read if _has_content(message)]
                appended = await session._append_broken(broken, after=after)
            else:
                reply = read
                appended = await session.append(read, format=format, after=after)
            if format == "openai_responses":
                await asyncio.to_thread(
                    self._conversations.add_response,
                    collector.id,
                    session=session.sync.scope,
                    place=appended.place,
                    is_whole=not collector.is_cut,
                )
        except Exception:  # the reply has come: the agent gets it in any case
            log.exception("a reply was not archived")
        finally:
            if conversation is not None:
                await asyncio.to_thread(conversation.finish, reply)

    async def _send(
        self, request: Request, content: bytes | AsyncIterator[bytes] | None, *, is_changed: bool = False
    ) -> httpx.Response:
        dropped = {b"host"}
        if isinstance(content, bytes):  # its length is known here, and the reply is read on its way
            dropped |= {b"content-length", b"accept-encoding"} | ({b"content-encoding"} if is_changed else set())
        headers = [
            (name, value)
            for name, value in _drop_hops(request.headers.raw)
            if name.lower() not in dropped and not name.lower().startswith(OWN_HEADERS)
        ]
        if isinstance(content, bytes):
            headers.append((b"accept-encoding", b"identity"))
        built = httpx.Request(  # without the cookies and the headers of the client object
            request.method,
            self._upstreams.url(request),
            headers=headers,
            content=content,
            extensions={"timeout": _TIMEOUT.as_dict()},
        )
        sent = await self._client.send(built, stream=True)
        sent.request = httpx.Request(built.method, built.url)  # without the body
        return sent


async def _while_connected(
    request: Request, work: Coroutine[Any, Any, R], *, received: asyncio.Event | None = None
) -> R:
    """Await something for a client, and cancel it when the client leaves.

    Args:
        request: The request of the client.
        work: What to await.
        received: Set when the body of the request has been read; None where it has been.

    Raises:
        ClientDisconnect: The client left.
    """

    async def wait_until_left() -> None:
        if received is not None:
            await received.wait()
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, left = asyncio.ensure_future(work), asyncio.ensure_future(wait_until_left())
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return await task
    finally:
        for one in (task, left):
            one.cancel()
        await asyncio.wait({task, left})
        del task, left, one  # an error refers to this frame: with its task in it, the request stays in memory


async def _upload(request: Request, received: asyncio.Event) -> AsyncIterator[bytes]:
    """Pass the body of a request on as it comes."""
    async for chunk in request.stream():
        yield chunk
    received.set()


def _drop_hops(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers without those of one connection: the usual ones, and those that `Connection` names."""
    dropped = set(_HOP_HEADERS)
    for name, value in headers:
        if name.lower() == b"connection":
            dropped.update(named.strip().lower() for named in value.split(b","))
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def _is_anthropic(request: Request) -> bool:
    return request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers


def _refuse(request: Request, reason: str, *, status: int) -> Response:
    """Answer with an error of ours, in the shape of the API that was asked."""
    error = {"type": ERROR_TYPES[status], "message": f"holdfast: {reason}"}
    format = ROUTES.get(request.url.path)
    if format == "anthropic" or (format is None and _is_anthropic(request)):
        return JSONResponse({"type": "error", "error": error}, status_code=status)
    return JSONResponse({"error": {**error, "param": None, "code": None}}, status_code=status)


async def _read_refusal(body: Body, exchange: _Exchange) -> str:
    """Return the provider's error that a window does not fit; empty for any other reply.

    An error is read whole; of a stream only the opening, for a moment, after which an error may come.
    """
    sent = body.sent
    try:
        decoder = Decoder(sent.headers.get("content-encoding", ""), limit=MAX_ERROR_BYTES)
    except InputError:
        return ""
    if sent.status_code in OVERFLOW_STATUSES:
        data = bytearray()
        while body.held_bytes < MAX_ERROR_BYTES and (chunk := await body.peek()):
            data += _decode_start(decoder, chunk)
        text = data[:MAX_ERROR_BYTES].decode(errors="replace")
        return text if is_overflow(text, status=sent.status_code) else ""
    if not exchange.is_stream(sent):
        return ""
    collector = ReplyCollector(exchange.format, is_stream=True, max_bytes=MAX_ERROR_BYTES)
    chunk = await body.peek()
    while chunk:
        collector.feed(_decode_start(decoder, chunk))
        if collector.has_begun or collector.is_too_large or body.held_bytes > MAX_ERROR_BYTES:
            break
        chunk = await body.peek(seconds=OPENING_SECONDS)
    return collector.error if is_overflow(collector.error) else ""


def _decode_start(decoder: Decoder, chunk: bytes) -> bytes:
    """Decompress a part of the beginning of a reply, as far as that can be read."""
    decoded = b""
    with suppress(InputError, RefusedBodyError):
        for piece in decoder.feed(chunk):
            decoded += piece
    return decoded


def _encoding(request: Request) -> str:
    """Return how a request is compressed; there may be several headers."""
    return ",".join(request.headers.getlist("content-encoding"))


class _PassedOn(StreamingResponse):
    """A reply that is passed on as it comes. A client that leaves cancels it.

    Where the upstream breaks off, nothing more is sent: the server then closes the connection, and the client sees that
    the reply is not whole.
    """

    def __init__(self, content: AsyncIterator[bytes], *, url: httpx.URL, session: str) -> None:
        super().__init__(content)
        self._url, self._session = url, session

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await _while_connected(Request(scope, receive), self.stream_response(send))
        except ClientDisconnect:
            pass
        except httpx.HTTPError as error:
            _warn(f"the reply of {_address(self._url)} broke off: {_reason(error)}", session=self._session)


def _reason(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _address(url: httpx.URL) -> str:
    """Return an address without the keys that may be in it."""
    return str(url.copy_with(userinfo=b"", query=None))


def _warn_unchanged(request: Request, error: Exception, *, session: str = "") -> None:
    session = session or host_session(request.headers, {})
    _warn(f"a request to {request.url.path} passed unchanged: {error}", session=session)


def _warn(text: str, *, session: str) -> None:
    """Write a line to the log."""
    log.warning("%s", printable(redact(f"session {session}: {text}" if session else text), one_line=True))


def _has_content(message: Message) -> bool:
    return any(not isinstance(part, Text | Thinking) or part.text for part in message.parts)


def _relay(sent: httpx.Response) -> Response:
    """Pass a reply on as it comes."""
    return _reply(sent, Body(sent).pass_on())


def _reply(sent: httpx.Response, content: bytes | AsyncIterator[bytes], exchange: _Exchange | None = None) -> Response:
    """Make the reply to the client, with the provider's status and headers, and those of ours."""
    session = exchange.session_id if exchange else ""
    made = Response(content) if isinstance(content, bytes) else _PassedOn(content, url=sent.url, session=session)
    made.status_code = sent.status_code
    made.raw_headers = [(name.lower(), value) for name, value in _drop_hops(sent.headers.raw)]
    if isinstance(content, bytes) and "content-length" in sent.headers:
        made.headers["content-length"] = str(len(content))
    for name, value in ({} if exchange is None else exchange.headers()).items():
        made.headers[name] = value
    return made


def _header(text: str) -> str:
    """Make text safe for a header."""
    return "".join(char if " " <= char <= "~" else " " if char.isspace() else "?" for char in text)[:500].strip()
