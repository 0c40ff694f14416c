"""Memory for the LiteLLM proxy: a callback of its `config.yaml`.

# holdfast_hook.py, next to config.yaml
from holdfast import Engine
from holdfast.adapters.litellm import HoldfastHook

hook = HoldfastHook(Engine.open("~/agent-memory"))

# config.yaml
litellm_settings:
callbacks: [holdfast_hook.hook]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast

from holdfast.adapters._history import log, on_loop, require_extra, sync_engine

with require_extra("litellm"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger

from holdfast.aio import AsyncEngine
from holdfast.cache import LruCache
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, archive_reply, find_refusal
from holdfast.providers.replies import ReplyCollector, read_reply
from holdfast.session import Session

FORMATS: Final = {
    "completion": "openai_chat",
    "acompletion": "openai_chat",
    "anthropic_messages": "anthropic",
    "responses": "openai_responses",
    "aresponses": "openai_responses",
}
"""The format of each type of call that is assembled."""
SESSION_HEADER: Final = "x-holdfast-session"
WINDOW_FIELDS: Final = ("messages", "system", "input", "instructions")
"""The fields of a request that a window is in."""
MAX_REQUESTS: Final = 256
"""Requests that are known until they are answered, so that a smaller window can be made."""


class HoldfastHook(CustomLogger):
    """Assembles the requests that pass the proxy, and archives the replies. Other requests pass unchanged.

    The session is `litellm_session_id` or `metadata.session_id` of the request, or its header `x-holdfast-session`; a
    request that names none passes unchanged. The user is the end user of the request, else the user of the key. Both
    are names that any client can send: they select among the conversations of the same user of the proxy,
    or with the same key if it has none.

    Args:
        engine: The memory. If it has no model, the model of the request writes summaries.
        project: The project that the sessions belong to.
        agent: The agent that they belong to.
        limit: The context window of the models; by default that of the settings or of each model.
    """

    def __init__(
        self, engine: Engine | AsyncEngine, *, project: str = "", agent: str = "main", limit: int | None = None
    ) -> None:
        super().__init__()
        self._engine = sync_engine(engine)
        self._project = project
        self._agent = agent
        self._exchanges = Exchanges(limit)
        self._sent: LruCache[str, Exchange] = LruCache(MAX_REQUESTS)
        self._smaller: LruCache[str, Exchange] = LruCache(MAX_REQUESTS)

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Make the window of a request."""
        del cache
        session = self._session(data, user_api_key_dict)
        format = FORMATS.get(call_type)
        if session is None or format is None:
            return data
        model = str(data.get("model"))
        name = self._engine._memory.new_id()
        data.setdefault("metadata", {}).update(holdfast_format=format, holdfast_request=name)
        # If a window is too long, the proxy falls back to the same model; the hooks of that attempt make it smaller.
        # Without another field the proxy would skip it, as an attempt that it has made.
        data.setdefault("context_window_fallbacks", [{model: [{"model": model, "max_fallbacks": 1}]}])
        exchange = await asyncio.to_thread(
            self._exchanges.begin_body, session, data, format=format, write=on_loop(_writer(model)), warn=log.warning
        )
        data["metadata"]["holdfast_place"] = exchange.place
        self._sent[name] = exchange
        return cast("dict[str, Any]", exchange.body)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """Make a smaller window for a request that was refused, once."""
        del call_type, fallback_depth
        if not isinstance(exception, litellm.ContextWindowExceededError):
            return
        name = _request(request_data)
        exchange = self._sent.pop(name)
        if exchange is None:
            return
        smaller = await asyncio.to_thread(exchange.shrink, find_refusal(str(exception), status=400))
        if smaller is not None:
            self._smaller[name] = smaller

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Send the smaller window after a refusal."""
        del call_type
        exchange = self._smaller.pop(_request(kwargs))
        if exchange is None:
            return None
        return {**kwargs, **{name: exchange.body[name] for name in WINDOW_FIELDS if name in exchange.body}}

    async def async_post_call_success_hook(self, data: dict[str, Any], user_api_key_dict: Any, response: Any) -> Any:
        """Archive a whole reply."""
        session = self._session(data, user_api_key_dict)
        format = _format(data)
        if session is not None and format:
            reply = read_reply(_dump(response), format)
            await asyncio.to_thread(archive_reply, session, reply, format=format, after=_place(data))
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Archive a reply that is streamed."""
        session = self._session(request_data, user_api_key_dict)
        format = _format(request_data)
        collector = ReplyCollector(format or "anthropic", is_stream=True)
        chunks: list[Any] = []
        async for chunk in response:
            if isinstance(chunk, bytes):
                collector.feed(chunk)
            else:
                chunks.append(chunk)
            yield chunk
        if session is None or not format:
            return
        reply = read_reply(_join(chunks, format), format) if chunks else collector.received()
        is_cut = not chunks and collector.is_cut
        await asyncio.to_thread(archive_reply, session, reply, format=format, after=_place(request_data), is_cut=is_cut)

    def _session(self, data: Mapping[str, Any], key: Any) -> Session | None:
        """Return the session that a request names; None if it names none."""
        metadata = data.get("metadata") or data.get("litellm_metadata") or {}
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        names = (data.get("litellm_session_id"), metadata.get("session_id"), headers.get(SESSION_HEADER))
        users = (data.get("user"), getattr(key, "end_user_id", None), getattr(key, "user_id", None))
        name, tenant = next(filter(None, names), None), next(filter(None, users), "local")
        if not name:
            return None
        # Who the proxy has authenticated. Its digest of a key is not secret; without keys all users are the same.
        caller = getattr(key, "user_id", None) or getattr(key, "token", None)
        agent = f"{self._agent}@{caller}" if caller else self._agent
        return self._engine.session(str(name), tenant=str(tenant), project=self._project, agent=agent)


def _request(data: Mapping[str, Any]) -> str:
    """Return the name of the request that was assembled; empty if it was not."""
    found = ((data.get(field) or {}).get("holdfast_request") for field in ("metadata", "litellm_metadata"))
    return str(next(filter(None, found), ""))


def _format(data: Mapping[str, Any]) -> str:
    """Return the format that the request was assembled in; empty if it was not."""
    return str((data.get("metadata") or {}).get("holdfast_format") or "")


def _place(data: Mapping[str, Any]) -> str:
    """Return the place of the reply to a request that was assembled; empty if it is not known."""
    return str((data.get("metadata") or {}).get("holdfast_place") or "")


def _writer(model: str) -> Any:
    async def write(messages: list[dict[str, Any]]) -> str:
        from litellm.proxy.proxy_server import llm_router  # noqa: PLC0415 - set when the proxy has started

        ask = llm_router.acompletion if llm_router is not None else litellm.acompletion
        reply: Any = await ask(model=model, messages=cast("Any", messages))
        return str(reply.choices[0].message.content or "")

    return write


def _join(chunks: list[Any], format: str) -> dict[str, Any]:
    """Return the reply that chunks make up; empty if there is none."""
    if format == "openai_responses":
        ends = [one for one in chunks if str(getattr(one, "type", "")).endswith(("completed", "incomplete"))]
        response = getattr(ends[-1], "response", None) if ends else None
        return _dump(response) if response is not None else {}
    reply = _dump(litellm.stream_chunk_builder(chunks)) if chunks else {}
    for choice in reply.get("choices", ()):
        if not choice["message"].get("content"):
            choice["message"].pop("content", None)  # clients send a reply without text back without content
    return reply


def _dump(response: Any) -> dict[str, Any]:
    """Return a reply as plain data."""
    if isinstance(response, dict):
        return response
    return cast("dict[str, Any]", response.model_dump(mode="json", exclude_none=True))
