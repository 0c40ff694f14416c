"""PydanticAI with memory, against a real server."""

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

skip_without("pydantic_ai", install="pip install 'pydantic-ai-slim[openai]'")
if TYPE_CHECKING:
    import pydantic_ai as sdk
    from openai import AsyncOpenAI
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers import openai as providers

    from holdfast.adapters import pydantic_ai as adapter
else:
    sdk = Lazy("pydantic_ai")
    models = Lazy("pydantic_ai.models.openai")
    providers = Lazy("pydantic_ai.providers.openai")
    adapter = Lazy("holdfast.adapters.pydantic_ai")


def open_agent(client: AsyncOpenAI, *capabilities: adapter.HoldfastMemory) -> sdk.Agent[Any, str]:
    """An agent with a tool, on the scripted server."""
    model = models.OpenAIChatModel("gpt-x", provider=providers.OpenAIProvider(openai_client=client))
    return sdk.Agent(model, system_prompt="You look shelves up.", tools=[lookup], capabilities=list(capabilities))


@pytest.mark.untraced
def test_a_long_conversation_stays_in_its_window(
    model_server: ScriptedProvider, engine: Engine, openai_client: AsyncOpenAI, runner: asyncio.Runner
) -> None:
    """Many runs with tools, streamed and not: always valid, never over, nothing lost, recalled at the end."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    agent = open_agent(openai_client, adapter.HoldfastMemory(engine, session="s1", limit=LIMIT))

    async def run() -> None:
        history: list[sdk.ModelMessage] = []
        for turn in range(TURNS):
            if turn % 2:
                async with agent.run_stream(question(turn), message_history=history) as streamed:
                    await streamed.get_output()
                history = streamed.all_messages()
            else:
                history = (await agent.run(question(turn), message_history=history)).all_messages()

    runner.run(run())
    check_talk(model_server, engine.session("s1"), librarian)


def test_without_edits_the_model_gets_what_it_would_get(
    model_server: ScriptedProvider, engine: Engine, openai_client: AsyncOpenAI
) -> None:
    """Messages that need no edit are passed on as they are; the conversation id of the run names the session."""
    model_server.set_script(["one", "one", "two", "two"])
    bare, agent = (
        open_agent(openai_client),
        open_agent(openai_client, adapter.HoldfastMemory(engine, tenant=lambda _: "anna")),
    )
    before = bare.run_sync("hello")
    first = agent.run_sync("hello", conversation_id="c1")
    bare.run_sync("and?", message_history=before.all_messages())
    agent.run_sync("and?", message_history=first.all_messages())
    bodies = model_server.bodies
    assert bodies[0] == bodies[1]
    assert bodies[2] == bodies[3]
    texts = [message.text for message in archived(engine.session("c1", tenant="anna"))]
    assert texts == ["You look shelves up.", "hello", "one", "and?", "two"]


def test_a_window_that_is_refused_is_sent_smaller(
    model_server: ScriptedProvider, engine: Engine, openai_client: AsyncOpenAI
) -> None:
    """An overflow is compacted and sent again; the caller sees only the reply."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    agent = open_agent(openai_client, adapter.HoldfastMemory(engine, session="s1", limit=100_000))
    history: list[sdk.ModelMessage] = []
    for turn in range(3, 7):
        history = agent.run_sync(question(turn), message_history=history).all_messages()
    is_refused = [True]

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(9_000, 6_000) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    agent.run_sync(question(11), message_history=history)
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert model_server.check() == []


def test_errors_retries_and_cancellation(
    model_server: ScriptedProvider, engine: Engine, openai_client: AsyncOpenAI, runner: asyncio.Runner
) -> None:
    """A retry archives once, a refusal is the framework's own error, and a cancelled run can be repeated."""
    agent = open_agent(openai_client, adapter.HoldfastMemory(engine, session="s1"))
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "done"])
    assert agent.run_sync("hello").output == "done"
    model_server.set_script(lambda _: overflow())
    with pytest.raises(sdk.ModelHTTPError, match="maximum context length"):
        agent.run_sync("hello")
    model_server.set_script([Mute(), "late", "late"])
    asked = len(model_server.bodies)

    async def cancel() -> None:
        task = asyncio.create_task(agent.run("slow"))
        await asyncio.to_thread(until, lambda: len(model_server.bodies) > asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await agent.run("slow")).output == "late"

    runner.run(cancel())


def test_a_reply_that_is_asked_again_is_archived(
    model_server: ScriptedProvider, engine: Engine, openai_client: AsyncOpenAI
) -> None:
    """Retry prompts are archived with the replies that they answer."""
    librarian = Librarian("openai_chat")
    model_server.set_script(librarian)
    agent = open_agent(openai_client, adapter.HoldfastMemory(engine, session="s1"))
    tries = [True]

    @agent.output_validator
    def check(output: str) -> str:
        if tries and tries.pop():
            raise sdk.ModelRetry("say it again")
        return output

    agent.run_sync("hello")
    texts = [message.text for message in archived(engine.session("s1"))]
    assert any("say it again" in text for text in texts)
    assert model_server.check() == []
