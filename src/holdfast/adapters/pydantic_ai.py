"""Memory for PydanticAI: `Agent(..., capabilities=[HoldfastMemory(engine)])`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Any, cast

from holdfast.adapters._history import Placed, archive, log, on_loop, place, read_history, require_extra, sync_engine

with require_extra("pydantic-ai"):
    from pydantic_ai import ModelRequest, ModelResponse, RetryModelRequest, RunContext
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelMessage,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_core import to_jsonable_python

from holdfast.aio import AsyncEngine, in_thread
from holdfast.cache import LruCache
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, find_refusal_in
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.session import Session

Name = str | Callable[[RunContext[Any]], str]
"""A name, or a function that finds it in the context of a run, such as in its dependencies."""
MAX_RUNS = 256
"""Runs whose last request is known until it is answered, so that a smaller window can be made."""


@dataclass
class HoldfastMemory(AbstractCapability[Any]):
    """Gives an agent memory: runs, streams, and the tool calls in them.

    Attributes:
        engine: The memory. If it has no model, the model of the agent writes summaries.
        session: The id of the conversation; by default the `conversation_id` of the run.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """

    engine: Engine | AsyncEngine
    session: Name | None = None
    tenant: Name = "local"
    project: str = ""
    agent: str = "main"
    limit: int | None = None
    _exchanges: Exchanges = field(init=False, repr=False)
    _sent: LruCache[str | None, Exchange] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._exchanges = Exchanges(self.limit)
        self._sent = LruCache(MAX_RUNS)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Make the window of a request."""
        model, parameters = request_context.model, request_context.model_request_parameters

        async def write(messages: list[dict[str, Any]]) -> str:
            system = "\n".join(message["content"] for message in messages if message["role"] == "system")
            prompt = [UserPromptPart(message["content"]) for message in messages if message["role"] != "system"]
            reply = await model_request(model, [ModelRequest([SystemPromptPart(system), *prompt])])
            return reply.text or ""

        pieces = list(_read(request_context.messages))
        tools = [
            {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
            for tool in parameters.function_tools
        ]
        instructions = sum(len(part.content) for part in parameters.instruction_parts or ())
        asked = read_history(
            [message for _, _, message in pieces], model=model.model_name, tools=tools, overhead=instructions // 3
        )
        # After a refusal the framework comes back here with the same messages, and the smaller window is made already.
        exchange = self._sent.pop(ctx.run_id)
        if exchange is None or exchange.request.messages != asked.messages:
            session = self._session(ctx)
            exchange = await in_thread(self._exchanges.begin, session, asked, write=on_loop(write), warn=log.warning)
        self._sent[ctx.run_id] = exchange
        placed = place(exchange)
        if placed is None:
            return request_context
        return replace(request_context, messages=_render(placed, pieces, request_context.messages))

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Archive a reply."""
        del request_context
        replies = [message for _, _, message in _read([response])]
        exchange = self._sent.pop(ctx.run_id)
        if exchange is not None:
            await in_thread(exchange.archive, replies)
        else:
            await in_thread(archive, self._session(ctx), replies)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Send a smaller window after one that was refused."""
        del request_context
        exchange = self._sent.pop(ctx.run_id)
        if exchange is None:
            raise error
        smaller = await in_thread(exchange.shrink, find_refusal_in(error))
        if smaller is None:
            raise error
        self._sent[ctx.run_id] = smaller
        raise RetryModelRequest from error

    def _session(self, ctx: RunContext[Any]) -> Session:
        session = self.session(ctx) if callable(self.session) else self.session or ctx.conversation_id or "main"
        tenant = self.tenant(ctx) if callable(self.tenant) else self.tenant
        return sync_engine(self.engine).session(session, tenant=tenant, project=self.project, agent=self.agent)


# --- messages ----------------------------------------------------------------

_Piece = tuple[int, Sequence[Any], Message]
"""The index of a message, some of its parts, and these as a canonical message."""


def _read(messages: Sequence[ModelMessage]) -> Iterator[_Piece]:
    """Read messages. A request becomes a canonical message for each run of parts of one role."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            parts = tuple(_read_reply_part(part) for part in message.parts)
            usage = Usage(input=message.usage.input_tokens, output=message.usage.output_tokens)
            reported = usage if usage.input else None
            yield index, message.parts, Message(role="assistant", parts=parts, usage=reported, model=message.model_name)
            continue
        for role, group in groupby(message.parts, key=_role):
            given = list(group)
            yield index, given, Message(role=role, parts=tuple(part for one in given for part in _read_part(one)))


def _role(part: Any) -> Role:
    if isinstance(part, SystemPromptPart):
        return "system"
    is_result = isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None)
    return "tool" if is_result else "user"


def _read_part(part: Any) -> Iterator[Part]:
    if isinstance(part, SystemPromptPart | UserPromptPart):
        yield from map(_read_content, [part.content] if isinstance(part.content, str) else part.content)
    elif isinstance(part, ToolReturnPart):
        content, is_error = (Text(text=part.model_response_str()),), part.outcome != "success"
        yield ToolResult(call_id=part.tool_call_id, content=content, is_error=is_error, name=part.tool_name)
    elif isinstance(part, RetryPromptPart) and part.tool_name is not None:
        content = (Text(text=part.model_response()),)
        yield ToolResult(call_id=part.tool_call_id, content=content, is_error=True, name=part.tool_name)
    elif callable(respond := getattr(part, "model_response", None)):
        yield Text(text=respond())
    else:
        yield Opaque(kind=part.part_kind, data=to_jsonable_python(part))


def _read_content(item: Any) -> Part:
    match item:
        case str():
            return Text(text=item)
        case ImageUrl():
            return Image(url=item.url)
        case BinaryContent() if item.is_image:
            return Image(media_type=item.media_type, data=item.base64)
        case _:
            return Opaque(kind=str(getattr(item, "kind", "content")), data=to_jsonable_python(item))


def _read_reply_part(part: Any) -> Part:
    match part:
        case TextPart():
            return Text(text=part.content)
        case ThinkingPart():
            return Thinking(text=part.content, signature=part.signature)
        case ToolCallPart():
            return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args_as_dict())
        case _:
            return Opaque(kind=part.part_kind, data=to_jsonable_python(part))


def _render(placed: Sequence[Placed], pieces: Sequence[_Piece], given: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages of a window: a given one itself if nothing of it was edited, removed or moved."""
    made: list[ModelMessage] = []
    counts = Counter(index for index, _, _ in pieces)
    for index, group in groupby(placed, key=lambda one: None if one.source is None else pieces[one.source][0]):
        ones = list(group)
        if index is None:
            made += map(_make, ones)
        elif len(ones) == counts[index] and not any(one.is_edited for one in ones):
            made.append(given[index])
        else:
            edited = chain.from_iterable(_edit(one.message, pieces[one.source or 0]) for one in ones)
            made.append(replace(cast("Any", given[index]), parts=[*edited]))
    return made


def _edit(message: Message, piece: _Piece) -> list[Any]:
    """Return the parts of a message: given ones if they are the same, and what was added."""
    _, parts, read = piece
    if message.role == "assistant":
        has_thinking = any(isinstance(part, Thinking) for part in message.parts)
        return [part for part in parts if has_thinking or not isinstance(part, ThinkingPart)]
    old, results = ({result.call_id: result.text for result in one.results} for one in (read, message))
    pruned = {call_id: text for call_id, text in results.items() if text != old.get(call_id)}
    made = [
        replace(part, content=pruned[part.tool_call_id]) if getattr(part, "tool_call_id", None) in pruned else part
        for part in parts
    ]
    return _add_texts(made, _texts(message)[len(_texts(read)) :])


def _add_texts(parts: list[Any], texts: Sequence[str]) -> list[Any]:
    """Return parts with what an edit added: inside the question, or after the results of tools."""
    if not texts or not isinstance(parts[-1], UserPromptPart):
        return [*parts, *map(UserPromptPart, texts)]
    content = parts[-1].content
    whole = [*([content] if isinstance(content, str) else content), *texts]
    return [*parts[:-1], replace(parts[-1], content=whole)]


def _texts(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, Text)]


def _make(placed: Placed) -> ModelMessage:
    """Make a message that has none of the framework: a summary, or what a repair inserted."""
    message = placed.message
    if message.role == "assistant":
        return ModelResponse([TextPart(message.text)])
    results = [ToolReturnPart(one.name or "unknown", one.text, tool_call_id=one.call_id) for one in message.results]
    return ModelRequest([*results, *([UserPromptPart(message.text)] if message.text else [])])
