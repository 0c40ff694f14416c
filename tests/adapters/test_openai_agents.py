"""The OpenAI Agents SDK with memory, against a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.testing.provider import Mute, ScriptedProvider, overflow
from support.adapter_conversations import LIMIT, TURNS, Librarian, archived, check_talk, lookup, question
from support.lazy import Lazy, skip_without
from support.waiting import until

skip_without("agents", install="pip install openai-agents")
pytestmark = pytest.mark.nightly  # most of the time goes into importing the framework
if TYPE_CHECKING:
    import agents
    import openai

    from holdfast.adapters import openai_agents as adapter
else:
    agents = Lazy("agents")
    openai = Lazy("openai")
    adapter = Lazy("holdfast.adapters.openai_agents")


def open_agent(client: openai.AsyncOpenAI) -> agents.Agent[Any]:
    """An agent with a tool, on the scripted server."""
    tool = agents.function_tool(lookup)
    model = agents.OpenAIResponsesModel(model="gpt-x", openai_client=client)
    return agents.Agent(name="Librarian", instructions="You look shelves up.", model=model, tools=[tool])


def config(session: adapter.HoldfastSession) -> agents.RunConfig:
    """A run config with memory and without traces."""
    return session.run_config(agents.RunConfig(tracing_disabled=True))


@pytest.mark.untraced
def test_a_long_conversation_stays_in_its_window(
    model_server: ScriptedProvider, engine: Engine, openai_client: openai.AsyncOpenAI, runner: asyncio.Runner
) -> None:
    """Many runs with tools, streamed and not: always valid, never over, nothing lost, recalled at the end."""
    librarian = Librarian("openai_responses")
    model_server.set_script(librarian)

    async def run() -> None:
        agent = open_agent(openai_client)
        session = adapter.HoldfastSession(engine, "s1", limit=LIMIT)
        for turn in range(TURNS):
            if turn % 2:
                streamed = agents.Runner.run_streamed(
                    agent, question(turn), session=session, run_config=config(session)
                )
                async for _ in streamed.stream_events():
                    pass
            else:
                await agents.Runner.run(agent, question(turn), session=session, run_config=config(session))

    runner.run(run())
    # The runner hands over all items of a run at its end. The session is compacted then, before the result is old.
    check_talk(model_server, engine.session("s1"), librarian, is_pruned=False)


def test_the_conversation_continues_in_another_process(
    model_server: ScriptedProvider, engine: Engine, openai_client: openai.AsyncOpenAI, runner: asyncio.Runner
) -> None:
    """The runner gets the archived items; nothing is edited, so the model gets them as they were."""
    model_server.set_script(["one", "two"])
    agent = open_agent(openai_client)

    async def run(text: str) -> None:
        session = adapter.HoldfastSession(engine, "s1", tenant="anna")
        await agents.Runner.run(agent, text, session=session, run_config=config(session))

    runner.run(run("hello"))
    runner.run(run("and?"))
    items = model_server.bodies[1]["input"]
    assert [item["role"] for item in items] == ["user", "assistant", "user"]
    assert items[1]["content"][0]["text"] == "one"
    assert model_server.bodies[1]["instructions"] == "You look shelves up."
    assert len(archived(engine.session("s1", tenant="anna"))) == 5  # with the instructions


def test_items_can_be_taken_back(engine: Engine, runner: asyncio.Runner) -> None:
    """`pop_item` and `clear_session` shorten the conversation; the archive keeps all; an item may come again."""

    async def run() -> None:
        session = adapter.HoldfastSession(engine, "s1")
        items: Any = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(limit=1) == items[1:]
        assert await session.pop_item() == items[1]
        assert await session.get_items() == items[:1]
        await session.add_items(items[1:])
        assert await session.get_items() == items
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None

    runner.run(run())
    assert {message.text for message in archived(engine.session("s1"))} == {"a", "b"}


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_window_that_is_refused_is_sent_smaller(
    model_server: ScriptedProvider,
    engine: Engine,
    openai_client: openai.AsyncOpenAI,
    runner: asyncio.Runner,
    is_streamed: bool,  # noqa: FBT001 - of the parametrization
) -> None:
    """An overflow is compacted and sent again; the caller sees only the reply, and the limit stays."""
    librarian, is_refused = Librarian("openai_responses"), [True]
    model_server.set_script(librarian)
    agent, session = open_agent(openai_client), adapter.HoldfastSession(engine, "s1", limit=100_000)

    async def run(text: str) -> None:
        if is_streamed:
            streamed = agents.Runner.run_streamed(agent, text, session=session, run_config=config(session))
            _ = [event async for event in streamed.stream_events()]
        else:
            await agents.Runner.run(agent, text, session=session, run_config=config(session))

    for turn in range(3, 6):
        runner.run(run(question(turn)))

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(4_000, 3_000) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    runner.run(run(question(7)))
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert engine.session("s1").timeline()[-1].raw_max_tokens <= 3_000
    assert model_server.check() == []
    words = [message.text for message in archived(engine.session("s1")) if message.role == "user"]
    assert words == [*map(question, range(3, 6)), question(7)]


@pytest.mark.parametrize("is_of_agent", [False, True])
def test_a_retry_policy_of_the_user_still_decides(
    model_server: ScriptedProvider,
    engine: Engine,
    openai_client: openai.AsyncOpenAI,
    runner: asyncio.Runner,
    is_of_agent: bool,  # noqa: FBT001 - of the parametrization
) -> None:
    """The policy of the run or of the agent is asked, as often as it allows; without one nothing is retried."""
    asked: list[tuple[int, int]] = []

    def decide(context: agents.RetryPolicyContext) -> bool:
        asked.append((context.attempt, context.max_retries))
        return True

    settings = agents.ModelSettings(
        retry=agents.ModelRetrySettings(max_retries=1, backoff={"initial_delay": 0.0}, policy=decide)
    )
    agent = open_agent(openai_client.with_options(max_retries=0))
    agent.model_settings = settings if is_of_agent else agents.ModelSettings()
    session = adapter.HoldfastSession(engine, "s1")
    run_config = agents.RunConfig(tracing_disabled=True, model_settings=None if is_of_agent else settings)
    fitted = session.run_config(run_config)
    model_server.set_script([ModelBusyError("busy"), "done", ModelBusyError("busy"), ModelBusyError("busy"), "never"])
    assert runner.run(agents.Runner.run(agent, "hello", session=session, run_config=fitted)).final_output == "done"
    with pytest.raises(openai.RateLimitError):
        runner.run(agents.Runner.run(agent, "again", session=session, run_config=fitted))
    assert asked == [(1, 1), (1, 1)]
    agent.model_settings, plain = agents.ModelSettings(), config(adapter.HoldfastSession(engine, "s2"))
    model_server.set_script([ModelBusyError("busy"), "never"])
    with pytest.raises(openai.RateLimitError):
        runner.run(agents.Runner.run(agent, "hello", run_config=plain))


def test_errors_retries_and_cancellation(
    model_server: ScriptedProvider, engine: Engine, openai_client: openai.AsyncOpenAI, runner: asyncio.Runner
) -> None:
    """A retry archives once, a refusal is the SDK's own error, and a run that is cancelled can be repeated."""
    agent = open_agent(openai_client)
    session = adapter.HoldfastSession(engine, "s1")

    async def run(text: str) -> Any:
        return await agents.Runner.run(agent, text, session=session, run_config=config(session))

    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "done"])
    assert runner.run(run("hello")).final_output == "done"
    model_server.set_script(lambda _: overflow())
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        runner.run(run("again"))
    model_server.set_script([Mute(), "late", "late"])
    asked = len(model_server.bodies)

    async def cancel() -> None:
        task = asyncio.create_task(run("slow"))
        await asyncio.to_thread(until, lambda: len(model_server.bodies) > asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await run("slow")).final_output == "late"

    runner.run(cancel())
    assert model_server.check() == []
