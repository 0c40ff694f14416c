"""The Anthropic SDK with memory, against a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.testing.provider import Cut, Events, ScriptedProvider, ScriptedReply, Step, overflow
from support.adapter_conversations import LIMIT, SUMMARY, TOOL, TURNS, Librarian, archived, check_talk, lookup, question
from support.lazy import Lazy

if TYPE_CHECKING:
    import anthropic as sdk
    from anthropic.types import Message, MessageParam, ToolParam

    from holdfast.adapters import anthropic as adapter
else:
    sdk = Lazy("anthropic")
    adapter = Lazy("holdfast.adapters.anthropic")

TOOLS: list[ToolParam] = [{"name": "lookup", "description": "Look a shelf up.", "input_schema": TOOL["parameters"]}]


def client(server: ScriptedProvider, engine: Engine, **options: Any) -> sdk.Anthropic:
    """A client with memory."""
    limit = options.pop("limit", LIMIT)
    middleware = [adapter.HoldfastMiddleware(engine, session="s1", limit=limit)]
    return sdk.Anthropic(api_key="k", base_url=server.url, middleware=middleware, **options)


def say(anthropic: sdk.Anthropic, history: list[MessageParam], text: str, *, stream: bool = False) -> Message:
    """Send a user message, run the tools that the model calls, and return the last reply."""
    history.append({"role": "user", "content": text})
    while True:
        arguments: Any = {"model": "claude-x", "max_tokens": 500, "messages": history, "tools": TOOLS}
        if stream:
            with anthropic.messages.stream(**arguments) as events:
                reply = events.get_final_message()
        else:
            reply = anthropic.messages.create(**arguments)
        history.append({"role": "assistant", "content": reply.content})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return reply
        results: Any = [
            {"type": "tool_result", "tool_use_id": call.id, "content": lookup(int(str(call.input["shelf"])))}
            for call in calls
        ]
        history.append({"role": "user", "content": results})


@pytest.mark.untraced
def test_a_long_conversation_stays_in_its_window(model_server: ScriptedProvider, engine: Engine) -> None:
    """Many turns with tools, streamed and not: always valid, never over, nothing lost, recalled at the end."""
    librarian = Librarian("anthropic")
    history: list[MessageParam] = []
    model_server.set_script(librarian)
    anthropic = client(model_server, engine)
    for turn in range(TURNS):
        say(anthropic, history, question(turn), stream=turn % 2 == 1)
    check_talk(model_server, engine.session("s1"), librarian)


def test_a_request_without_edits_is_sent_as_it_came(model_server: ScriptedProvider, engine: Engine) -> None:
    """Without edits the provider gets what it would get without memory, fields and headers included."""
    arguments: Any = {
        "model": "claude-x",
        "max_tokens": 50,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "hello"}],
        "metadata": {"user_id": "u1"},
    }
    model_server.set_script(["hi", "hi"])
    sdk.Anthropic(api_key="k", base_url=model_server.url).messages.create(**arguments)
    client(model_server, engine).messages.create(**arguments)
    without, with_memory = model_server.requests
    assert without.body == with_memory.body
    assert [message.text for message in archived(engine.session("s1"))] == ["Be brief.", "hello", "hi"]


def test_retries_of_the_sdk_archive_once(model_server: ScriptedProvider, engine: Engine) -> None:
    """An overloaded provider is asked again by the SDK; what was said is archived once."""
    model_server.set_script([ModelBusyError("busy", retry_after=0.01), "done"])
    say(client(model_server, engine), [], "hello")
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "done"]
    assert model_server.bodies[0] == model_server.bodies[1]


def test_a_window_that_is_refused_is_sent_smaller(model_server: ScriptedProvider, engine: Engine) -> None:
    """An overflow is compacted and sent again, with a limit that stays; the caller sees only the reply."""
    history: list[MessageParam] = []
    model_server.set_script(Librarian("anthropic"))
    anthropic = client(model_server, engine, limit=100_000)
    for turn in range(3, 7):
        say(anthropic, history, question(turn))
    librarian, is_refused = Librarian("anthropic", calls=100), [True]

    def refuse_once(body: dict[str, Any]) -> Any:
        return overflow(9_000, 6_000) if is_refused and is_refused.pop() else librarian(body)

    model_server.set_script(refuse_once)
    say(anthropic, history, question(13))
    first, *_, last = [body for body in model_server.bodies if body.get("tools")]
    assert len(str(last)) < len(str(first))
    assert engine.session("s1").timeline()[-1].raw_max_tokens <= 6_000
    assert model_server.check() == []


def test_errors_are_those_of_the_sdk(model_server: ScriptedProvider, engine: Engine) -> None:
    """An overflow that cannot be helped, and a refusal, raise the SDK's own errors."""
    anthropic = client(model_server, engine, max_retries=0)
    model_server.set_script(lambda _: overflow())
    with pytest.raises(sdk.BadRequestError, match="prompt is too long"):
        say(anthropic, [], "hello")
    model_server.set_script([])
    with pytest.raises(sdk.InternalServerError, match="script of the provider is over"):
        say(anthropic, [], "hello")


def test_memory_that_fails_does_not_stop_the_agent(
    model_server: ScriptedProvider, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """What memory cannot hold in a window passes unchanged, and the log gives the reason."""
    model_server.set_script(["ok"])
    reply = say(client(model_server, engine, limit=1_000), [], "x " * 5_000)
    assert reply.content[0].type == "text"
    assert "the request passed unchanged" in caplog.text


def test_a_stream_that_is_cut_or_left_is_not_archived(model_server: ScriptedProvider, engine: Engine) -> None:
    """Half a reply is no message; the conversation continues."""
    anthropic = client(model_server, engine)
    history: list[MessageParam] = []
    model_server.set_script([Cut(ScriptedReply(text="one two three"), after=4), "whole"])
    with pytest.raises(Exception, match="peer closed"):
        say(anthropic, history, "hello", stream=True)
    assert [message.text for message in archived(engine.session("s1"))] == ["hello"]
    history.clear()
    say(anthropic, history, "hello", stream=True)
    assert [message.text for message in archived(engine.session("s1"))] == ["hello", "whole"]


def test_the_asynchronous_client(model_server: ScriptedProvider, engine: Engine) -> None:
    """Async: streamed and not, compacted with the same model, users apart, a cancelled call leaves no damage."""
    librarian = Librarian("anthropic")
    model_server.set_script(librarian)

    async def run() -> None:
        middleware = [adapter.HoldfastMiddleware(engine, session="s1", tenant="anna", limit=LIMIT)]
        async with sdk.AsyncAnthropic(api_key="k", base_url=model_server.url, middleware=middleware) as anthropic:
            history: list[Any] = []
            for turn in range(16):
                history.append({"role": "user", "content": question(turn)})
                while True:
                    arguments: Any = {"model": "claude-x", "max_tokens": 500, "messages": history, "tools": TOOLS}
                    if turn % 2:
                        async with anthropic.messages.stream(**arguments) as events:
                            reply = await events.get_final_message()
                    else:
                        reply = await anthropic.messages.create(**arguments)
                    history.append({"role": "assistant", "content": reply.content})
                    calls = [block for block in reply.content if block.type == "tool_use"]
                    if not calls:
                        break
                    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": lookup(turn)}
                    history.append({"role": "user", "content": [result]})
            task = asyncio.create_task(anthropic.messages.create(**arguments))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert librarian.summaries
    assert model_server.check() == []
    rows = archived(engine.session("s1", tenant="anna"))
    assert [message.text for message in rows if message.role == "user"] == [question(turn) for turn in range(16)]
    assert archived(engine.session("s1")) == []


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_window_that_is_refused_inside_a_stream_is_sent_smaller(
    model_server: ScriptedProvider, engine: Engine, *, is_async: bool
) -> None:
    """The caller sees only the reply to the smaller window."""
    history: list[Any] = []
    for number in range(40):
        history += [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": "word " * 100}]
    history.append({"role": "user", "content": "And now?"})
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    error = {"type": "invalid_request_error", "message": "prompt is too long"}
    is_refused = [True]

    def answer(body: dict[str, Any]) -> Step:
        if not body.get("stream"):
            return ScriptedReply(text=SUMMARY)
        if is_refused and is_refused.pop():
            opening = {"type": "message_start", "message": message}
            return Events([("message_start", opening), ("error", {"type": "error", "error": error})])
        return "Fine."

    model_server.set_script(answer)
    arguments: Any = {"model": "claude-x", "max_tokens": 100, "messages": history}
    if is_async:

        async def run() -> Message:
            middleware = [adapter.HoldfastMiddleware(engine, session="s1", limit=16_000)]
            async with (
                sdk.AsyncAnthropic(api_key="k", base_url=model_server.url, middleware=middleware) as anthropic,
                anthropic.messages.stream(**arguments) as events,
            ):
                return await events.get_final_message()

        reply = asyncio.run(run())
    else:
        with client(model_server, engine, limit=16_000).messages.stream(**arguments) as events:
            reply = events.get_final_message()
    assert [block.text for block in reply.content if block.type == "text"] == ["Fine."]
    first, *_, last = [body for body in model_server.bodies if body.get("stream")]
    assert len(str(last)) < len(str(first))
    assert [message.text for message in archived(engine.session("s1"))][-2:] == ["And now?", "Fine."]
