"""LangChain and LangGraph with memory, against a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine, InputError
from holdfast.errors import ModelBusyError
from holdfast.testing.provider import Mute, ScriptedProvider, overflow
from support.adapter_conversations import LIMIT, TURNS, Librarian, archived, check_talk, lookup, question
from support.lazy import Lazy, skip_without
from support.waiting import until

skip_without("langchain", install="pip install langchain langchain-openai")
pytestmark = pytest.mark.nightly  # most of the time goes into importing the framework
if TYPE_CHECKING:
    import langchain_openai
    import openai
    from langchain import agents
    from langchain_core import tools
    from langgraph.checkpoint import memory as checkpoints

    from holdfast.adapters import langchain as adapter
else:
    langchain_openai = Lazy("langchain_openai")
    openai = Lazy("openai")
    agents = Lazy("langchain.agents")
    tools = Lazy("langchain_core.tools")
    checkpoints = Lazy("langgraph.checkpoint.memory")
    adapter = Lazy("holdfast.adapters.langchain")

CONFIG: Any = {"configurable": {"thread_id": "s1"}}


def open_agent(server: ScriptedProvider, *middleware: adapter.HoldfastMiddleware, **tool_options: Any) -> Any:
    """An agent with a tool and a checkpointer, on the scripted server."""
    model = langchain_openai.ChatOpenAI(model="gpt-x", api_key="k", base_url=f"{server.url}/v1")  # type: ignore[arg-type]
    lookups = [tools.tool(lookup, **tool_options)]
    return agents.create_agent(
        model,
        lookups,
        system_prompt="You look shelves up.",
        middleware=middleware,
        checkpointer=checkpoints.InMemorySaver(),
    )


def say(agent: Any, text: str, config: Any = CONFIG) -> str:
    """Run the agent, and return the last message."""
    return str(agent.invoke({"messages": [("user", text)]}, config)["messages"][-1].text)


@pytest.mark.untraced
def test_a_long_conversation_stays_in_its_window(model_server: ScriptedProvider, engine: Engine) -> None:
    """Many runs with tools, invoked and streamed: always valid, never over, nothing lost, recalled at the end."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    agent = open_agent(model_server, adapter.HoldfastMiddleware(engine, limit=LIMIT))
    for turn in range(TURNS):
        if turn % 2:
            for _ in agent.stream({"messages": [("user", question(turn))]}, CONFIG, stream_mode="messages"):
                pass
        else:
            say(agent, question(turn))
    check_talk(model_server, engine.session("s1"), librarian)
    users = [message for message in agent.get_state(CONFIG).values["messages"] if message.type == "human"]
    assert [message.content for message in users] == [question(turn) for turn in range(TURNS)]


def test_without_edits_the_model_gets_what_it_would_get(model_server: ScriptedProvider, engine: Engine) -> None:
    """Messages that need no edit are passed on as they are; the config names session and user."""
    model_server.set_script(["one", "one", "two", "two"])
    bare, agent = open_agent(model_server), open_agent(model_server, adapter.HoldfastMiddleware(engine))
    config = {"configurable": {"thread_id": "t1", "user_id": "anna"}}
    for text in ("hello", "and?"):
        say(bare, text, config)
        say(agent, text, config)
    bodies = model_server.bodies
    assert bodies[0] == bodies[1]
    assert bodies[2] == bodies[3]
    texts = [message.text for message in archived(engine.session("t1", tenant="anna"))]
    assert texts == ["You look shelves up.", "hello", "one", "and?", "two"]


def test_a_window_that_is_refused_is_sent_smaller(model_server: ScriptedProvider, engine: Engine) -> None:
    """An overflow is compacted and sent again; the caller sees only the reply."""
    librarian, is_refused = Librarian("openai_chat"), [True]
    model_server.set_script(librarian)
    agent = open_agent(model_server, adapter.HoldfastMiddleware(engine, limit=100_000))
    for turn in range(3, 7):
        say(agent, question(turn))

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(9_000, 6_000) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    say(agent, question(11))
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert model_server.check() == []


def test_async_errors_retries_and_tools_that_return_directly(model_server: ScriptedProvider, engine: Engine) -> None:
    """Async too: a retry archives once, errors are the SDK's, results without a later model call are archived."""
    agent = open_agent(model_server, adapter.HoldfastMiddleware(engine), return_direct=True)
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), Librarian("openai_chat")({"tools": []})])

    async def run(text: str) -> Any:
        return await agent.ainvoke({"messages": [("user", text)]}, CONFIG)

    with asyncio.Runner() as runner:
        runner.run(run("hello"))
        librarian = Librarian("openai_chat")
        model_server.set_script(librarian)
        runner.run(run(question(5)))
        model_server.set_script(lambda _: overflow())
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            runner.run(run("hello"))
    results = [result.text for message in archived(engine.session("s1")) for result in message.results]
    assert results == [lookup(5)]
    assert [message.text for message in archived(engine.session("s1"))].count("hello") == 2


def test_a_cancelled_run_can_be_repeated(model_server: ScriptedProvider, engine: Engine) -> None:
    """The archive has what the framework's own history has, which keeps the message of the cancelled run."""
    agent = open_agent(model_server, adapter.HoldfastMiddleware(engine))
    model_server.set_script([Mute(), "late"])

    async def cancel() -> Any:
        task = asyncio.create_task(agent.ainvoke({"messages": [("user", "slow")]}, CONFIG))
        await asyncio.to_thread(until, lambda: bool(model_server.bodies))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await agent.ainvoke({"messages": [("user", "slow")]}, CONFIG)

    with asyncio.Runner() as runner:
        history = [message.content for message in runner.run(cancel())["messages"]]
    assert history == ["slow", "slow", "late"]
    assert [message.text for message in archived(engine.session("s1")) if message.role != "system"] == history
    assert model_server.check() == []


def test_a_run_without_a_session_is_an_error_with_the_fix(model_server: ScriptedProvider, engine: Engine) -> None:
    """Without a thread id there is no conversation to archive."""
    model = langchain_openai.ChatOpenAI(model="gpt-x", api_key="k", base_url=f"{model_server.url}/v1")  # type: ignore[arg-type]
    agent: Any = agents.create_agent(model, [], middleware=[adapter.HoldfastMiddleware(engine)])
    with pytest.raises(InputError, match="thread_id"):
        agent.invoke({"messages": [("user", "hello")]})


def test_a_store_that_is_deleted_keeps_the_limit(
    model_server: ScriptedProvider, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest messages that fit are sent, and the log gives the reason."""
    model_server.set_script(["Fine."])
    agent = open_agent(model_server, adapter.HoldfastMiddleware(engine, limit=16_000))
    shutil.rmtree(engine._memory.home)
    history = [(role, f"{number} " + "word " * 300) for number in range(60) for role in ("user", "assistant")]
    agent.invoke({"messages": [*history, ("user", "And now?")]}, CONFIG)
    (body,) = model_server.bodies
    assert 4_000 < len(json.dumps(body)) // 5 < 16_000
    assert "And now?" in json.dumps(body)
    assert "You look shelves up." in json.dumps(body)
    assert "left out until memory works again" in caplog.text
