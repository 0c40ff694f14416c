"""The OpenAI SDK with memory, Chat Completions and Responses, against a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.testing.provider import Events, ScriptedProvider, ScriptedReply, Step, overflow
from support.adapter_conversations import LIMIT, SUMMARY, TOOL, TURNS, Librarian, archived, check_talk, lookup, question
from support.lazy import Lazy

if TYPE_CHECKING:
    import openai as sdk

    from holdfast.adapters import openai as adapter
else:
    sdk = Lazy("openai")
    adapter = Lazy("holdfast.adapters.openai")


def client(server: ScriptedProvider, engine: Engine, *, limit: int = LIMIT, **options: Any) -> sdk.OpenAI:
    """A client with memory."""
    http_client = adapter.HoldfastClient(engine, session="s1", limit=limit)
    return sdk.OpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http_client, **options)


def say_chat(openai: sdk.OpenAI, history: list[Any], text: str, *, stream: bool = False) -> None:
    """Send a user message by Chat Completions, and run the tools that the model calls."""
    history.append({"role": "user", "content": text})
    while True:
        arguments: Any = {"model": "gpt-x", "messages": history, "tools": [{"type": "function", "function": TOOL}]}
        if stream:
            with openai.chat.completions.stream(**arguments) as events:
                reply = events.get_final_completion().choices[0].message
        else:
            reply = openai.chat.completions.create(**arguments).choices[0].message
        history.append(reply)
        for call in reply.tool_calls or ():
            shelf = int(call.function.arguments.rpartition(":")[2].strip(" }"))
            history.append({"role": "tool", "tool_call_id": call.id, "content": lookup(shelf)})
        if not reply.tool_calls:
            return


def say_responses(openai: sdk.OpenAI, history: list[Any], text: str, *, stream: bool = False) -> None:
    """Send a user message by Responses, and run the tools that the model calls."""
    history.append({"role": "user", "content": text})
    while True:
        arguments: Any = {"model": "gpt-x", "input": history, "tools": [{"type": "function", **TOOL}], "store": False}
        if stream:
            with openai.responses.stream(**arguments) as events:
                reply = events.get_final_response()
        else:
            reply = openai.responses.create(**arguments)
        history += reply.output
        calls = [item for item in reply.output if item.type == "function_call"]
        for call in calls:
            shelf = int(call.arguments.rpartition(":")[2].strip(" }"))
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": lookup(shelf)})
        if not calls:
            return


@pytest.mark.untraced
@pytest.mark.parametrize(("format", "say"), [("openai_chat", say_chat), ("openai_responses", say_responses)])
def test_a_long_conversation_stays_in_its_window(
    model_server: ScriptedProvider, engine: Engine, format: str, say: Any
) -> None:
    """Many turns with tools, streamed and not: always valid, never over, nothing lost, recalled at the end."""
    librarian, history = Librarian(format), list[Any]()
    model_server.set_script(librarian)
    openai = client(model_server, engine)
    for turn in range(TURNS):
        say(openai, history, question(turn), stream=turn % 2 == 1)
    check_talk(model_server, engine.session("s1"), librarian)


def test_a_request_without_edits_is_sent_as_it_came(model_server: ScriptedProvider, engine: Engine) -> None:
    """Without edits the provider gets what it would get without memory; other requests are not touched."""
    arguments: Any = {"model": "gpt-x", "messages": [{"role": "user", "content": "hello", "name": "ann"}], "seed": 4}
    model_server.set_script(["hi", "hi", "unused"])
    bare = sdk.OpenAI(api_key="k", base_url=f"{model_server.url}/v1", default_headers={"x-mine": "1"})
    bare.chat.completions.create(**arguments)
    openai = bare.with_options(http_client=adapter.HoldfastClient(engine, session="s1"))
    openai.chat.completions.create(**arguments)
    without, with_memory = model_server.requests
    assert without.body == with_memory.body
    assert with_memory.headers["x-mine"] == "1"
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "hi"]
    with pytest.raises(Exception, match="no provider has the path"):
        openai.embeddings.create(model="e", input="x", encoding_format="float")


def test_errors_and_retries_are_those_of_the_sdk(model_server: ScriptedProvider, engine: Engine) -> None:
    """The SDK retries a busy provider; an overflow that cannot be helped is its own error."""
    openai = client(model_server, engine)
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "done"])
    say_chat(openai, [], "hello")
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "done"]
    model_server.set_script(lambda _: overflow())
    with pytest.raises(sdk.BadRequestError, match="maximum context length"):
        say_chat(openai, [], "hello")


def test_a_response_that_the_provider_stored_is_continued(model_server: ScriptedProvider, engine: Engine) -> None:
    """With `previous_response_id` only what is new is sent, and archived."""
    openai = client(model_server, engine)
    model_server.set_script(["one", "two"])
    first = openai.responses.create(model="gpt-x", input="hello")
    openai.responses.create(model="gpt-x", input="and then?", previous_response_id=first.id)
    assert model_server.bodies[1]["input"] == "and then?"
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "one", "and then?", "two"]


def test_the_asynchronous_client(model_server: ScriptedProvider, engine: Engine) -> None:
    """Async: streamed and not, compacted with the same model, a refused window is sent smaller, a call is cancelled."""
    librarian, steps = Librarian("openai_chat"), ["refuse"]

    def answer(body: dict[str, Any]) -> Any:
        is_long = len(str(body)) > 5_000 and body.get("tools")
        return overflow(9_000, 6_000) if is_long and steps and steps.pop() else librarian(body)

    model_server.set_script(answer)

    async def run() -> None:
        http_client = adapter.HoldfastAsyncClient(engine, session="s1", tenant="anna", limit=LIMIT)
        async with sdk.AsyncOpenAI(api_key="k", base_url=f"{model_server.url}/v1", http_client=http_client) as openai:
            history: list[Any] = []
            for turn in range(9):
                history.append({"role": "user", "content": question(turn)})
                tools = [{"type": "function", "function": TOOL}]
                arguments: Any = {"model": "gpt-x", "messages": history, "tools": tools}
                while True:
                    if turn % 2:
                        async with openai.chat.completions.stream(**arguments) as events:
                            reply = (await events.get_final_completion()).choices[0].message
                    else:
                        reply = (await openai.chat.completions.create(**arguments)).choices[0].message
                    history.append(reply)
                    if not reply.tool_calls:
                        break
                    history.append({"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": lookup(turn)})
            task = asyncio.create_task(openai.chat.completions.create(**arguments))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert librarian.summaries
    assert steps == []
    assert model_server.check() == []
    rows = archived(engine.session("s1", tenant="anna"))
    assert [message.text for message in rows if message.role == "user"] == [question(turn) for turn in range(9)]


@pytest.mark.parametrize("path", ["chat", "responses"])
def test_a_store_that_is_deleted_keeps_the_limit(
    model_server: ScriptedProvider, engine: Engine, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """The newest messages that fit are sent, also after a refusal, and the log gives the reason."""
    history: list[Any] = []
    for number in range(60):
        history += [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": "word " * 300}]
    history.append({"role": "user", "content": "And now?"})
    model_server.set_script([overflow(requested=9_000, limit=8_000), "Fine."])
    openai = client(model_server, engine, limit=16_000, max_retries=0)
    shutil.rmtree(engine._memory.home)
    if path == "chat":
        openai.chat.completions.create(model="gpt-x", messages=history)
    else:
        openai.responses.create(model="gpt-x", input=history, store=False)
    sizes = [len(json.dumps(body)) // 5 for body in model_server.bodies]
    assert 2_000 < sizes[1] < 6_400 < sizes[0] < 16_000
    assert "And now?" in json.dumps(model_server.bodies[1])
    assert "left out until memory works again" in caplog.text


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_window_that_is_refused_inside_a_stream_is_sent_smaller(
    model_server: ScriptedProvider, engine: Engine, *, is_async: bool
) -> None:
    """Responses begin a stream before the provider says that the window is too long; the caller sees only the reply."""
    history: list[Any] = []
    for number in range(40):
        history += [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": "word " * 100}]
    history.append({"role": "user", "content": "And now?"})
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    opening = {"type": "response.created", "response": {"id": "r1", "object": "response", "output": []}}
    failure = {"type": "error", **error, "param": None, "sequence_number": 1}
    is_refused = [True]

    def answer(body: dict[str, Any]) -> Step:
        if not body.get("stream"):
            return ScriptedReply(text=SUMMARY)
        if is_refused and is_refused.pop():
            return Events([("response.created", opening), ("error", failure)])
        return "Fine."

    model_server.set_script(answer)
    arguments: Any = {"model": "gpt-x", "input": history, "store": False, "stream": True}
    if is_async:

        async def run() -> list[Any]:
            http_client = adapter.HoldfastAsyncClient(engine, session="s1", limit=16_000)
            url = f"{model_server.url}/v1"
            async with sdk.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, http_client=http_client) as openai:
                return [event async for event in await openai.responses.create(**arguments)]

        events = asyncio.run(run())
    else:
        events = list(client(model_server, engine, limit=16_000, max_retries=0).responses.create(**arguments))
    assert events[-1].response.output_text == "Fine."
    summaries = [body for body in model_server.bodies if not body.get("stream")]
    assert [body.get("store") for body in summaries] == [False] * len(summaries), "what must not be stored is not"
    first, *_, last = [body for body in model_server.bodies if body.get("stream")]
    assert len(json.dumps(last)) < len(json.dumps(first))
    assert [message.text for message in archived(engine.session("s1"))][-2:] == ["And now?", "Fine."]
