"""Memory for LangChain and LangGraph: `create_agent(..., middleware=[HoldfastMiddleware(engine)])`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from holdfast.adapters._history import Placed, archive, log, place, read_history, require_extra, sync_engine

with require_extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config
    from langgraph.runtime import Runtime

from holdfast.aio import AsyncEngine, in_thread
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.exchange import Exchange, Exchanges, Write, find_refusal_in
from holdfast.messages import Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.session import Session

Handler: TypeAlias = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]

_ROLES: dict[str, Role] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


class HoldfastMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Gives an agent memory: model calls and tool calls, sync and async. State and checkpoints stay whole.

    Args:
        engine: The memory. If it has no model, the model of the agent writes summaries.
        session: The id of the conversation; by default the `thread_id` of the run's config.
        tenant: The tenant that the memory belongs to; by default the `user_id` of the run's config, else `local`.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        *,
        session: str | None = None,
        tenant: str | None = None,
        project: str = "",
        agent: str = "main",
        limit: int | None = None,
    ) -> None:
        super().__init__()
        self._engine = sync_engine(engine)
        self._session_id = session
        self._tenant = tenant
        self._owner = {"project": project, "agent": agent}
        self._exchanges = Exchanges(limit)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        """Make the window of a model call, and archive the reply."""
        exchange = self._begin(self._session(), request)
        while True:
            try:
                response = handler(_fit(request, exchange))
            except Exception as error:
                smaller = exchange.shrink(find_refusal_in(error))
                if smaller is None:
                    raise
                exchange = smaller
            else:
                break
        exchange.archive(_read(response.result))
        return response

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> ModelResponse[Any]:
        """Make the window of a model call, and archive the reply."""
        exchange = await in_thread(self._begin, self._session(), request)
        while True:
            try:
                response = await handler(_fit(request, exchange))
            except Exception as error:
                smaller = await in_thread(exchange.shrink, find_refusal_in(error))
                if smaller is None:
                    raise
                exchange = smaller
            else:
                break
        await in_thread(exchange.archive, _read(response.result))
        return response

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Archive results that no model call followed: those of tools that return directly."""
        del runtime
        results: list[BaseMessage] = []
        for message in reversed(state["messages"]):
            if not isinstance(message, ToolMessage):
                break
            results.insert(0, message)
        archive(self._session(), _read(results))
        return None

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Archive results that no model call followed."""
        return self.after_agent(state, runtime)

    def _session(self) -> Session:
        configurable = get_config().get("configurable", {})
        session = self._session_id or configurable.get("thread_id")
        tenant = self._tenant or configurable.get("user_id")
        if not session:
            raise InputError("no session: run with config={'configurable': {'thread_id': ...}}, or name a session")
        return self._engine.session(str(session), tenant=str(tenant or "local"), **self._owner)

    def _begin(self, session: Session, request: ModelRequest[Any]) -> Exchange:
        asked = read_history(
            _read(_list_messages(request)),
            model=_name(request.model),
            tools=[tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools],
        )
        return self._exchanges.begin(session, asked, write=_writer(request.model), warn=log.warning)


def _list_messages(request: ModelRequest[Any]) -> list[BaseMessage]:
    """Return the messages of a request, with the system prompt first."""
    if request.system_message is None:
        return list(request.messages)
    return [request.system_message, *request.messages]


def _fit(request: ModelRequest[Any], exchange: Exchange) -> ModelRequest[Any]:
    """Return the request with its window; the request itself if nothing was edited."""
    placed = place(exchange)
    if placed is None:
        return request
    given = _list_messages(request)
    made: list[BaseMessage] = []
    for one in placed:
        made += [message for message in _render(one, given) if message is not request.system_message]
    return request.override(messages=cast("list[AnyMessage]", made))


def _name(model: BaseChatModel) -> str:
    return str(getattr(model, "model_name", None) or getattr(model, "model", ""))


def _writer(model: BaseChatModel) -> Write:
    return lambda messages: model.invoke([(one["role"], one["content"]) for one in messages]).text


# --- messages ----------------------------------------------------------------


def _read(messages: Sequence[BaseMessage]) -> list[Message]:
    """Read messages, each as one canonical message."""
    return [_read_message(message) for message in messages]


def _read_message(message: BaseMessage) -> Message:
    blocks = [message.content] if isinstance(message.content, str) else message.content
    parts = tuple(part for part in map(_read_block, blocks) if part is not None)
    if isinstance(message, ToolMessage):
        content = tuple(part for part in parts if isinstance(part, Text | Opaque))
        is_error = message.status == "error"
        result = ToolResult(call_id=message.tool_call_id, content=content, is_error=is_error, name=message.name)
        return Message(role="tool", parts=(result,))
    if isinstance(message, AIMessage):
        return _read_reply(message, parts)
    return Message(role=_ROLES.get(message.type, "user"), parts=parts)


def _read_reply(message: AIMessage, parts: Sequence[Part]) -> Message:
    given: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    calls: list[ToolCall] = []
    for one in given:
        calls.append(ToolCall(id=one["id"] or "", name=one["name"] or "unknown", arguments=one["args"] or {}))
    usage = None
    counts = message.usage_metadata
    if counts:
        usage = Usage(input=counts["input_tokens"], output=counts["output_tokens"])
    return Message(role="assistant", parts=(*parts, *calls), usage=usage)


def _read_block(block: str | dict[Any, Any]) -> Part | None:
    if isinstance(block, str):
        return Text(text=block) if block else None
    match block.get("type"):
        case "text":
            return Text(text=block.get("text", ""))
        case "thinking":
            return Thinking(text=block.get("thinking", ""), signature=block.get("signature"))
        case "tool_use" | "tool_call" | "function_call" | "input_json_delta":
            return None  # they are among the calls of the message
        case kind:
            return Opaque(kind=str(kind), data=block)


def _render(placed: Placed, given: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages for one of a window: the given one itself if it was not edited."""
    message = placed.message
    old = None if placed.source is None else given[placed.source]
    if message.results and placed.is_edited:
        beside: list[BaseMessage] = [HumanMessage(message.text)] if message.text else []
        return [*(_render_result(result, old) for result in message.results), *beside]
    if old is None:
        return [AIMessage(message.text) if message.role == "assistant" else HumanMessage(message.text)]
    return [_edit(old, message) if placed.is_edited else old]


def _edit(old: BaseMessage, message: Message) -> BaseMessage:
    blocks = [{"type": "text", "text": old.content}] if isinstance(old.content, str) else list(old.content)
    if message.role != "assistant":
        blocks = _add_texts(blocks, message)
    elif not any(isinstance(part, Thinking) for part in message.parts):  # an edit removed it
        blocks = [block for block in blocks if not isinstance(block, dict) or block.get("type") != "thinking"]
    return old.model_copy(update={"content": blocks})


def _add_texts(blocks: Sequence[Any], message: Message) -> list[Any]:
    """Return the blocks of a message with the texts that an edit added after them."""
    known = sum(isinstance(_read_block(block), Text) for block in blocks)
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    return [*blocks, *({"type": "text", "text": text} for text in texts[known:])]


def _render_result(result: ToolResult, old: BaseMessage | None) -> BaseMessage:
    if not isinstance(old, ToolMessage):
        return ToolMessage(result.text, tool_call_id=result.call_id, name=result.name)
    is_same = _read_message(old).results == (result,)
    return old if is_same else old.model_copy(update={"content": result.text})
