"""OpenAI's Responses, over a provider on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ModelBusyError, ModelError, ModelOverflowError, ModelRefusedError
from holdfast.messages import Message, RedactedThinking, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.models.base import Prompt, Reply, Tool
from holdfast.models.openai import ResponsesModel
from holdfast.models.scripted import ScriptedReply
from holdfast.providers import check
from holdfast.testing.provider import Cut, Events, Raw, ScriptedProvider, Step
from support.waiting import PATIENCE

HELLO = Prompt(messages=[Message(role="user", parts=(Text(text="hello"),))])
LS = Tool(name="ls", description="List.", parameters={"type": "object", "properties": {}})


def asked(step: Step) -> Reply:
    """The reply to one request."""
    with ScriptedProvider([step]) as provider:
        return ResponsesModel("gpt-6-sol", api_key="key", base_url=f"{provider.url}/v1").ask(HELLO, timeout=PATIENCE)


def events(*found: dict[str, Any]) -> Events:
    """Events under their own names."""
    return Events([(event["type"], event) for event in found])


def done(**fields: Any) -> dict[str, Any]:
    """The end of a response."""
    return {"type": "response.completed", "response": {"id": "r", "model": "m", "status": "completed", **fields}}


def test_a_request_has_what_the_provider_wants() -> None:
    """Instructions, input, tools and schema stand where they belong, and nothing is to be stored."""
    system = Message(role="system", parts=(Text(text="Be brief."),))
    prompt = Prompt(messages=[system, *HELLO.messages], tools=[LS], max_tokens=99, schema={"type": "object"})
    with ScriptedProvider(["ok"]) as provider:
        url = f"{provider.url}/v1"
        ResponsesModel("gpt-6-sol", api_key="k", base_url=url, extra={"reasoning": {"effort": "low"}}).ask(prompt)
    (body,) = provider.bodies
    assert (body["instructions"], body["input"]) == ("Be brief.", [{"role": "user", "content": "hello"}])
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert (body["max_output_tokens"], body["reasoning"]) == (99, {"effort": "low"})
    assert body["tools"][0]["name"] == "ls"
    assert body["text"]["format"] == {
        "type": "json_schema",
        "name": "answer",
        "schema": {"type": "object"},
        "strict": True,
    }


def test_a_reply_is_sent_back_as_it_came() -> None:
    """Sealed reasoning, words and calls go back as items, and the window is valid."""
    call = ToolCall(id="call_1", name="ls", arguments={"path": "ü"})
    message = ScriptedReply(thinking="Let me see.", signature="SEAL", text="I look.", calls=(call,))
    with ScriptedProvider([message, "done"]) as provider:
        model = ResponsesModel("gpt-6-sol", api_key="key", base_url=f"{provider.url}/v1")
        reply = model.ask(HELLO)
        result = ToolResult(call_id="call_1", content=(Text(text="a.py"),))
        model.ask(Prompt(messages=[*HELLO.messages, reply.message, Message(role="tool", parts=(result,))]))
    assert reply.message.parts == (Thinking(text="Let me see.", signature="SEAL"), Text(text="I look."), call)
    sent = provider.bodies[1]["input"]
    assert [item.get("type", "message") for item in sent] == [
        "message",
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert sent[1]["encrypted_content"] == "SEAL"
    assert check(sent, "openai_responses") == []


def test_usage_has_the_cache_in_it() -> None:
    """Tokens read from and written to the cache are counted apart."""
    usage = Usage(input=4, output=9, cache_read=100, cache_write=30)
    assert asked(ScriptedReply(text="ok", usage=usage)).usage == usage


def test_strange_replies_are_understood() -> None:
    """Empty parts are left out, missing usage is none, and what has no reason to end is complete."""
    sealed: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "X", "status": None}
    bare = {"type": "reasoning", "id": "rs", "summary": []}
    empty = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}
    items = [{"type": "response.output_item.done", "item": item} for item in (sealed, bare, empty)]
    reply = asked(events(*items, {"type": "response.something.new"}, done(status=None)))
    assert reply.message.parts == (RedactedThinking(data="X"),)
    assert (reply.usage, reply.stop) == (None, "end")


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (events({"type": "error", "code": "server_error", "message": "oops"}), ModelBusyError),
        (
            events(
                {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "x"}}}
            ),
            ModelOverflowError,
        ),
        (Cut(ScriptedReply(text="and then"), after=3, cleanly=True), ModelBusyError),
        (Raw(404, {"error": {"message": "no such model"}}), ModelRefusedError),
    ],
)
def test_every_kind_of_trouble_has_its_error(step: Step, kind: type[ModelError]) -> None:
    """Errors before and within a response become the error that they stand for."""
    with pytest.raises(kind):
        asked(step)


def test_a_model_has_its_window() -> None:
    """The window is that of the model, unless another one is said."""
    model = ResponsesModel("gpt-5", api_key="k")
    assert (model.name, model.provider, model.context_tokens) == ("openai-responses/gpt-5", "openai_responses", 400_000)
