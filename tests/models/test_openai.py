"""Chat Completions, over a provider on this machine that is as sloppy as real servers are."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

from holdfast.errors import MissingExtraError, ModelBusyError, ModelError, ModelOverflowError, ModelRefusedError
from holdfast.messages import Message, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.models.base import Prompt, Reply, Tool
from holdfast.models.openai import OpenAIModel, chat_body
from holdfast.models.scripted import ScriptedReply
from holdfast.providers import check
from holdfast.testing.provider import Cut, Events, Raw, ScriptedProvider, Step
from support.cases import each
from support.waiting import PATIENCE

HELLO = Prompt(messages=[Message(role="user", parts=(Text(text="hello"),))])
LS = Tool(name="ls", description="List.", parameters={"type": "object", "properties": {}})


def asked(step: Step) -> Reply:
    """The reply to one request."""
    numbers = itertools.count(1)
    with ScriptedProvider([step]) as provider:
        model = OpenAIModel("qwen3:8b", base_url=f"{provider.url}/v1", new_id=lambda: f"made_{next(numbers)}")
        return model.ask(HELLO, timeout=PATIENCE)


def chunks(*deltas: dict[str, Any], finish: str | None = "stop", **more: Any) -> Events:
    """A reply of these deltas, without usage, ids and [DONE]."""
    made = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    ending = [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **more}] if finish else []
    return Events([(None, chunk) for chunk in (*made, *ending)])


def call(index: int | None, *, name: str | None = None, arguments: Any = None, id_: str = "") -> dict[str, Any]:
    """A fragment of a tool call."""
    fragment: dict[str, Any] = {} if index is None else {"index": index}
    if id_:
        fragment["id"] = id_
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{**fragment, "function": function}]}


def test_a_request_has_what_openai_wants() -> None:
    """Messages, tools and schema stand where they belong, and usage is asked for."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    system = Message(role="system", parts=(Text(text="Be brief."),))
    prompt = Prompt(messages=[system, *HELLO.messages], tools=[LS], max_tokens=99, schema=schema)
    with ScriptedProvider(["ok"]) as provider:
        model = OpenAIModel("gpt-6-sol", api_key="key", base_url=f"{provider.url}/v1", extra={"temperature": 0})
        model.ask(prompt)
    (request,) = provider.requests
    body = request.body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert body["tools"] == [
        {"type": "function", "function": {"name": "ls", "description": "List.", "parameters": LS.parameters}}
    ]
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}
    assert (body["max_tokens"], body["stream"], body["stream_options"]) == (99, True, {"include_usage": True})
    assert body["temperature"] == 0
    assert "Bearer key" in request.headers.values()
    assert check(body["messages"], "openai_chat") == []


def test_openai_itself_has_a_newer_name_for_the_longest_answer() -> None:
    """OpenAI's own endpoint gets `max_completion_tokens`, all others what they know."""
    assert "max_completion_tokens" in chat_body(HELLO, model="gpt-5")
    assert "max_tokens" in chat_body(HELLO, model="qwen3", is_openai=False)


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False, "required": ["a"]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {}}}]}, False),
        ({"type": "array", "items": {"type": "string"}}, True),
    ],
)
def test_a_promise_is_only_asked_for_where_it_can_be_given(schema: dict[str, Any], strict: bool) -> None:  # noqa: FBT001 - a table
    """A schema with open or optional fields is a hint; only a closed one is a promise."""
    body = chat_body(Prompt(messages=[], schema=schema), model="m")
    assert body["response_format"]["json_schema"]["strict"] is strict


def test_a_bare_reply_is_enough() -> None:
    """A server that sends neither usage nor ids nor [DONE] is understood."""
    reply = asked(chunks({"content": "Hel"}, {"content": "lo"}))
    assert (reply.text, reply.usage, reply.stop) == ("Hello", None, "end")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thoughts_have_two_names(key: str) -> None:
    """Thinking is read under either name that servers use, and goes back under the same."""
    said = chunks({key: "Hm, "}, {key: "so."}, {"content": "Yes."})
    reply = asked(said)
    assert reply.message.parts == (Thinking(text="Hm, so."), Text(text="Yes."))
    sent = chat_body(Prompt(messages=[*HELLO.messages, reply.message]), model="m")["messages"][-1]
    assert sent == {"role": "assistant", "content": "Yes.", key: "Hm, so."}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                call(0, name="ls", id_="a"),
                call(1, name="cat", id_="b"),
                call(0, arguments='{"x"'),
                call(0, arguments=": 1}"),
            ],
            [("a", "ls", {"x": 1}), ("b", "cat", "")],
            id="interleaved",
        ),
        pytest.param(
            [call(0, name="ls", arguments="{}", id_="a"), call(0, name="cat", arguments="{}", id_="b")],
            [("a", "ls", {}), ("b", "cat", {})],
            id="one index for all",
        ),
        pytest.param(
            [
                call(None, name="ls", arguments="{"),
                call(None, arguments="}"),
                call(None, name="cat", arguments={"y": 2}),
            ],
            [("made_1", "ls", {}), ("made_2", "cat", {"y": 2})],
            id="neither index nor id",
        ),
        pytest.param([call(0, name="ls", arguments="[1]")], [("made_1", "ls", "[1]")], id="no object"),
        pytest.param([{"tool_calls": [{"index": 0, "id": "a"}]}], [("a", "", "")], id="no function"),
        pytest.param([{"tool_calls": "x"}, {"tool_calls": [5, None]}], [], id="nonsense"),
    ],
)
def test_calls_are_put_together(deltas: list[dict[str, Any]], expected: list[tuple[str, str, Any]]) -> None:
    """Fragments of calls find each other by index, by id or by order, and calls without an id get one."""
    reply = asked(chunks(*deltas))
    assert [(made.id, made.name, made.arguments) for made in reply.message.calls] == expected
    assert reply.stop == ("tools" if expected else "end")


def test_a_reply_is_sent_back_as_it_came() -> None:
    """Text and calls go back as they were, and the window is valid."""
    made = ToolCall(id="call_1", name="ls", arguments={"path": "ü"})
    with ScriptedProvider([ScriptedReply(text="I look.", calls=(made,)), "done"]) as provider:
        model = OpenAIModel("gpt-5", api_key="key", base_url=f"{provider.url}/v1")
        reply = model.ask(HELLO)
        result = ToolResult(call_id="call_1", content=(Text(text="a.py"),))
        model.ask(Prompt(messages=[*HELLO.messages, reply.message, Message(role="tool", parts=(result,))]))
    sent = provider.bodies[1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "ls", "arguments": '{"path":"ü"}'}
    assert check(sent, "openai_chat") == []
    assert (reply.message.id, reply.message.model, reply.message.stop) == ("chatcmpl-1", "gpt-5", "tool_calls")


@pytest.mark.parametrize(
    ("said", "text", "stop"),
    [
        (chunks({"refusal": "I will "}, {"refusal": "not."}), "I will not.", "refusal"),
        (chunks({"content": "x"}, finish="content_filter"), "x", "refusal"),
        (chunks({"content": "x"}, finish="length"), "x", "length"),
        (chunks({"content": "x"}, finish="eos"), "x", "eos"),
        (chunks({"content": [{"type": "text", "text": "a"}, {"type": "x"}]}), "a", "end"),
        (chunks({}), "", "end"),
        (Events([(None, {"choices": []}), (None, {"choices": None}), *chunks({"content": "x"}).events]), "x", "end"),
    ],
)
def test_strange_replies_are_understood(said: Step, text: str, stop: str) -> None:
    """Refusals, filters, foreign reasons, content in parts and empty chunks are taken for what they are."""
    reply = asked(said)
    assert (reply.text, reply.stop) == (text, stop)


def test_usage_includes_the_cache() -> None:
    """Cached tokens are counted apart from the others."""
    usage = Usage(input=10, output=5, cache_read=90)
    assert asked(ScriptedReply(text="ok", usage=usage)).usage == usage


def in_stream(message: str, code: str | None = None) -> Events:
    """An error in the middle of a reply."""
    return Events([(None, {"error": {"message": message, "type": "x", "code": code}})])


@each(
    ("step", "kind"),
    [
        (in_stream("The server had an error"), ModelBusyError),
        (in_stream("shorten it", "context_length_exceeded"), ModelOverflowError),
        (chunks(finish="model_context_window_exceeded"), ModelOverflowError),
        (chunks({"content": "and then"}, finish=None), ModelBusyError),
        (Cut(ScriptedReply(text="and then came nothing"), after=3), ModelBusyError),
        (Cut(ScriptedReply(text="and then came nothing"), after=3, cleanly=True), ModelBusyError),
        (Raw(200, b"data: {half\n\n"), ModelBusyError),
        (Raw(200, b"data: [1, 2]\n\n"), ModelBusyError),
        (Raw(200, b"<html>Please log in</html>"), ModelBusyError),
        (Raw(500, b"Internal Server Error"), ModelBusyError),
        (Raw(404, {"error": {"message": "model 'x' not found"}}), ModelRefusedError),
        (Raw(400, b""), ModelOverflowError),
        (Raw(413, b"<h1>413 Request Entity Too Large</h1>"), ModelOverflowError),
    ],
)
def test_every_kind_of_trouble_has_its_error(step: Step, kind: type[ModelError]) -> None:
    """Errors before and within a reply, cut connections and nonsense each become the error that they stand for."""
    with ScriptedProvider([step, "never"]) as provider, pytest.raises(kind):
        OpenAIModel("gpt-5", api_key="key", base_url=f"{provider.url}/v1").ask(HELLO, timeout=PATIENCE)
    assert len(provider.requests) == 1, "the SDK has tried again by itself"


def test_an_address_without_a_server_is_busy() -> None:
    """A server that is not there may come back: it counts as busy."""
    with ScriptedProvider([]) as provider:
        url = provider.url
    with pytest.raises(ModelBusyError, match="check the network and the address") as caught:
        OpenAIModel("gpt-5", base_url=f"{url.replace('//', '//me:canary@')}/v1").ask(HELLO)
    assert f"({url}/v1/chat/completions)" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_fields_that_a_server_rejects_are_dropped() -> None:
    """Each complaint about an optional field costs one more try without it, and no more."""
    prompt = Prompt(messages=HELLO.messages, schema={"type": "object"})
    complaints: list[Step] = [
        Raw(400, {"error": {"message": "response_format: json_schema is not supported"}}),
        Raw(422, {"detail": [{"message": "unknown field stream_options"}]}),
        "{}",
    ]
    with ScriptedProvider(complaints) as provider:
        assert OpenAIModel("m", base_url=f"{provider.url}/v1").ask(prompt).text == "{}"
    sent = [(("response_format" in body), ("stream_options" in body)) for body in provider.bodies]
    assert sent == [(True, True), (False, True), (False, False)]


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the SDK the error is the line that installs it."""
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'holdfast-memory\[openai\]'"):
        OpenAIModel("gpt-5", api_key="key")


def test_a_model_has_its_window() -> None:
    """The window is that of the model, unless another one is said."""
    model = OpenAIModel("qwen3:8b", name="ollama/qwen3:8b", context_tokens=8_192)
    assert (model.name, model.provider, model.context_tokens) == ("ollama/qwen3:8b", "openai_chat", 8_192)
    assert OpenAIModel("gpt-6-sol").context_tokens == 1_050_000
