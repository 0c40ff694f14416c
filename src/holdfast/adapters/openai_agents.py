"""Memory for the OpenAI Agents SDK.

    session = HoldfastSession(engine, "s1")
    result = await Runner.run(agent, text, session=session, run_config=session.run_config())

The session is the conversation that the runner reads and adds to; the run config makes the window of each model call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, cast

from holdfast import providers
from holdfast.adapters._history import log, on_loop, require_extra, sync_engine

with require_extra("openai-agents"):
    from agents import (
        Agent,
        FunctionTool,
        ItemHelpers,
        ModelSettings,
        ModelTracing,
        RetryDecision,
        RetryPolicyContext,
        RunConfig,
        SessionSettings,
        TResponseInputItem,
    )
    from agents.models.interface import Model
    from agents.retry import ModelRetrySettings
    from agents.run_config import CallModelData, ModelInputData

from holdfast.aio import AsyncEngine, in_thread
from holdfast.engine import Engine
from holdfast.exchange import Exchange, Exchanges, Write, find_refusal
from holdfast.session import Session
from holdfast.store.base import MessageRow, Record, Select

FORMAT = "openai_responses"
MAX_RETRIES = 100
"""More than any policy of a user has: how often it retries is decided by the policy itself."""
POPPED = "agents.popped"
"""The kind of the records that name messages which the runner took back. The archive keeps them."""


class HoldfastSession:
    """A session of the Agents SDK whose items are those of the archive.

    Args:
        engine: The memory. If it has no model, the model of the agent writes summaries.
        session_id: The id of the conversation.
        tenant: The tenant that the memory belongs to, if several users share one store.
        project: The project that the session belongs to.
        agent: The agent that it belongs to.
        limit: The context window of the model; by default that of the settings or of the model.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        session_id: str,
        *,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
        limit: int | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self._exchanges = Exchanges(limit)
        self.session: Session = sync_engine(engine).session(session_id, tenant=tenant, project=project, agent=agent)
        self._assembled: list[TResponseInputItem] = []
        self._sent: tuple[Exchange, ModelInputData] | None = None

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items of the conversation, or the latest `limit` of them."""
        rows = await in_thread(self._rows)
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        messages = [row.message for row in rows]
        items = cast("list[TResponseInputItem]", providers.render(messages, FORMAT))
        return items if limit is None else items[len(items) - min(limit, len(items)) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Archive new items. A question that its window has archived already is not archived again."""
        if items and items == self._assembled[-len(items) :]:
            self._assembled = []
            return
        self._assembled = []
        await in_thread(self._add, items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out of the conversation and return it. The archive keeps it."""
        rows = await in_thread(self._rows)
        if not rows:
            return None
        await in_thread(self._pop, rows[-1:])
        (item,) = providers.render([rows[-1].message], FORMAT)
        return cast("TResponseInputItem", item)

    async def clear_session(self) -> None:
        """Take all items out of the conversation. The archive keeps them; `session.forget()` erases them."""
        await in_thread(lambda: self._pop(self._rows()))

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """Return a run config with which every model call gets the window of this conversation.

        Args:
            config: The run config to start from. A filter that it has runs after ours, and so does a retry policy.
        """
        config = config or RunConfig()
        given = config.model_settings or ModelSettings()
        calls = _Calls(self._assemble, self._shrink, config, [given.retry])
        settings = given.resolve(ModelSettings(retry=ModelRetrySettings(max_retries=MAX_RETRIES, policy=calls.retry)))
        return replace(config, call_model_input_filter=calls.fit, model_settings=settings)

    def _rows(self) -> list[MessageRow]:
        store, select = self.session._memory.store, Select(scope=self.session.scope)
        popped = {int(record.key) for record in store.read_records(select, kind=POPPED)}
        rows = [row for row in store.read_messages(select) if row.id not in popped]
        # The instructions are archived too, but they are not items.
        return [row for row in rows if row.message.role != "system" or row.message.origin is not None]

    def _add(self, items: Sequence[TResponseInputItem]) -> None:
        if items:
            numbers = self.session.append(cast("list[dict[str, Any]]", items), format=FORMAT)
            keys = [str(number) for number in numbers]
            self.session._memory.store.remove_records(Select(scope=self.session.scope), kind=POPPED, keys=keys)

    def _pop(self, rows: Sequence[MessageRow]) -> None:
        memory, scope = self.session._memory, self.session.scope
        time = memory.clock()
        memory.store.add_records(
            [Record(scope=scope, kind=POPPED, key=str(row.id), data={}, time=time) for row in rows]
        )

    def _assemble(
        self, data: ModelInputData, *, model: str, tools: Sequence[FunctionTool], write: Write
    ) -> ModelInputData:
        """Make the window of a model call; the data itself if nothing is edited."""
        definitions = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.params_json_schema,
            }
            for tool in tools
        ]
        body = {"model": model, "instructions": data.instructions, "input": data.input, "tools": definitions}
        exchange = self._exchanges.begin_body(self.session, body, format=FORMAT, write=write, warn=log.warning)
        self._assembled = data.input if exchange.window is not None else []
        if exchange.is_changed:
            data = _changed(exchange)
        self._sent = (exchange, data)
        return data

    def _shrink(self, error: Exception) -> bool:
        """Put a smaller window into the data of a model call that was refused; whether there is one."""
        if self._sent is None:
            return False
        exchange, data = self._sent
        self._sent = None
        status = getattr(error, "status_code", None)
        if status is None:
            return False
        smaller = exchange.shrink(find_refusal(str(error), status=status))
        if smaller is None:
            return False
        made = _changed(smaller)
        data.input = made.input  # the runner reads both for each attempt
        data.instructions = made.instructions
        self._sent = (smaller, data)
        return True


def _changed(exchange: Exchange) -> ModelInputData:
    body = cast("dict[str, Any]", exchange.body)
    return ModelInputData(input=body["input"], instructions=body["instructions"])


@dataclass(frozen=True, slots=True)
class _Calls:
    """Hooks that run before every model call, and after one that failed."""

    assemble: Callable[..., ModelInputData]
    shrink: Callable[[Exception], bool]
    config: RunConfig
    policies: list[ModelRetrySettings | None]  # that of the run, then that of the agent that runs

    async def fit(self, data: CallModelData[Any]) -> ModelInputData:
        model = _model(self.config, data.agent)
        write = on_loop(lambda messages: _write(model, messages))
        self.policies[1:] = [data.agent.model_settings.retry]
        name = str(getattr(model, "model", ""))
        tools = [tool for tool in data.agent.tools if isinstance(tool, FunctionTool)]
        made = await in_thread(self.assemble, data.model_data, model=name, tools=tools, write=write)
        if self.config.call_model_input_filter is None:
            return made
        filtered = self.config.call_model_input_filter(replace(data, model_data=made))
        return await filtered if isawaitable(filtered) else filtered

    async def retry(self, context: RetryPolicyContext) -> bool | RetryDecision:
        if await in_thread(self.shrink, context.error):
            return RetryDecision(retry=True, delay=0.0)
        theirs = next((one for one in self.policies if one is not None and one.policy is not None), None)
        if theirs is None or theirs.policy is None or context.attempt > (theirs.max_retries or 0):
            return False
        decision = theirs.policy(replace(context, max_retries=theirs.max_retries or 0))
        return cast("bool | RetryDecision", await decision if isawaitable(decision) else decision)


def _model(config: RunConfig, agent: Agent[Any]) -> Model:
    """Return the model that a run of an agent uses."""
    model = config.model or agent.model
    return model if isinstance(model, Model) else config.model_provider.get_model(model)


async def _write(model: Model, messages: list[dict[str, Any]]) -> str:
    """Let the model of the agent answer messages."""
    system = "\n".join(message["content"] for message in messages if message["role"] == "system")
    reply = await model.get_response(
        system_instructions=system or None,
        input=[message for message in messages if message["role"] != "system"],
        model_settings=ModelSettings(),
        tools=[],
        output_schema=None,
        handoffs=[],
        tracing=ModelTracing.DISABLED,
        previous_response_id=None,
        conversation_id=None,
        prompt=None,
    )
    return "\n".join(filter(None, (ItemHelpers.extract_text(item) for item in reply.output)))
