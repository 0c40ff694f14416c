"""What the official SDKs promise their users, through the proxy: replies, streams, tools, errors, retries, images."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.messages import ToolCall, Usage
from holdfast.models.scripted import ScriptedReply
from holdfast.server.app import create_app
from holdfast.server.upstreams import Upstreams
from holdfast.settings import ModelSettings, Settings
from holdfast.testing.provider import Events, Raw, ScriptedProvider
from support.lazy import Lazy
from support.waiting import PATIENCE

from .conftest import OWNER, OWNER_TOKEN, TOKEN, Running, serve

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = Lazy("anthropic")
    openai = Lazy("openai")

CALLS = (ToolCall(id="call_a", name="ls", arguments={"path": "/"}), ToolCall(id="call_b", name="ls", arguments={}))
PIXEL = base64.b64encode(bytes(range(256))).decode()
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
FUNCTION = {"name": "ls", "description": "Lists a folder.", "parameters": SCHEMA}
LS: Any = {"name": "ls", "description": "Lists a folder.", "input_schema": SCHEMA}
CHAT_LS: Any = {"type": "function", "function": FUNCTION}
RESPONSES_LS: Any = {"type": "function", "strict": False, **FUNCTION}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests; each has a session of its own."""
    settings = Settings(model=ModelSettings(context_tokens=20_000))
    folder: Path = tmp_path_factory.mktemp("memory")
    with ScriptedProvider() as provider, Engine.open(folder, settings=settings) as engine:
        upstreams = Upstreams(anthropic=provider.url, openai=provider.url)
        app = create_app(engine, token=TOKEN, owner_token=OWNER_TOKEN, upstreams=upstreams)
        with serve(app) as url:
            yield Running(url, engine, provider)


@pytest.fixture
def claude(server: Running, request: pytest.FixtureRequest) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client."""
    headers = {"x-session-id": request.node.name, **OWNER}
    with anthropic.Anthropic(base_url=server.url, api_key="key", max_retries=2, default_headers=headers) as client:
        yield client


@pytest.fixture
def gpt(server: Running, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """OpenAI's client."""
    headers = {"x-session-id": request.node.name, **OWNER}
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="key", max_retries=2, default_headers=headers) as client:
        yield client


Ask = Callable[[], Any]


@pytest.fixture(params=["messages", "chat", "responses"])
def ask(request: pytest.FixtureRequest, claude: anthropic.Anthropic, gpt: openai.OpenAI) -> Ask:
    """A small request with a tool to each of the three APIs."""
    conversation: Any = [{"role": "user", "content": "hi"}]

    def messages() -> Any:
        return claude.messages.create(model="m", max_tokens=50, messages=conversation, tools=[LS])

    def chat() -> Any:
        return gpt.chat.completions.create(model="m", messages=conversation, tools=[CHAT_LS])

    def responses() -> Any:
        return gpt.responses.create(model="m", input="hi", tools=[RESPONSES_LS])

    return {"messages": messages, "chat": chat, "responses": responses}[request.param]


def archived(server: Running, request: pytest.FixtureRequest) -> list[str]:
    """The roles of the archived messages of a test's session."""
    rows = server.engine.session(request.node.name).get(range(1, 1_000))
    return [row.message.role for row in rows if row.scope.session == request.node.name]


class TestMessages:
    def test_a_stream_with_thinking_text_and_tools(self, server: Running, claude: anthropic.Anthropic) -> None:
        """Blocks, signature, arguments, usage and stop reason are those of the provider; so is what is sent back."""
        message = ScriptedReply(
            text="Looking.", thinking="Where?", signature="sealed-1", calls=CALLS, usage=Usage(input=7, output=5)
        )
        server.provider.set_script([message, "Done."])
        history: list[Any] = [{"role": "user", "content": "List it."}]
        with claude.messages.stream(model="m", max_tokens=99, messages=history, tools=[LS]) as stream:
            kinds = {event.type for event in stream}
            reply = stream.get_final_message()
        assert {"message_start", "text", "thinking", "signature", "input_json", "message_stop"} <= kinds
        assert [block.type for block in reply.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (reply.stop_reason, reply.usage.input_tokens, reply.usage.output_tokens) == ("tool_use", 7, 5)
        assert reply.content[0].to_dict() == {"type": "thinking", "thinking": "Where?", "signature": "sealed-1"}
        sent = [block.to_dict() for block in reply.content]
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "a.txt"} for call in CALLS]
        history += [{"role": "assistant", "content": sent}, {"role": "user", "content": results}]
        assert claude.messages.create(model="m", max_tokens=99, messages=history, tools=[LS]).content[0].to_dict() == {
            "type": "text",
            "text": "Done.",
        }
        assert server.provider.bodies[1]["messages"] == history
        assert not server.provider.check()

    def test_tokens_are_counted_by_the_provider(self, server: Running, claude: anthropic.Anthropic) -> None:
        server.provider.set_script([Raw(200, {"input_tokens": 123}, {"content-type": "application/json"})])
        messages: Any = [{"role": "user", "content": "hi"}]
        assert claude.messages.count_tokens(model="m", messages=messages, tools=[LS]).input_tokens == 123
        assert server.provider.requests[0].path == "/v1/messages/count_tokens"

    def test_an_error_inside_a_stream_is_the_error_of_the_sdk(
        self, server: Running, claude: anthropic.Anthropic
    ) -> None:
        error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
        start = {
            "type": "message_start",
            "message": {"id": "m1", "type": "message", "role": "assistant", "content": []},
        }
        server.provider.set_script([Events([("message_start", start), ("error", error)])])
        messages: Any = [{"role": "user", "content": "hi"}]
        with (
            pytest.raises(anthropic.APIStatusError, match="Overloaded"),
            claude.messages.stream(model="m", max_tokens=9, messages=messages, tools=[LS]) as stream,
        ):
            stream.until_done()


class TestChat:
    def test_a_stream_with_tools(self, server: Running, gpt: openai.OpenAI) -> None:
        """The pieces of the calls, the usage at the end, and what is sent back."""
        server.provider.set_script(
            [ScriptedReply(text="Looking.", calls=CALLS, usage=Usage(input=7, output=5)), "Done."]
        )
        history: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "List it."}]
        with gpt.chat.completions.stream(
            model="m", messages=history, tools=[CHAT_LS], stream_options={"include_usage": True}
        ) as stream:
            reply = stream.get_final_completion()
        message = reply.choices[0].message
        assert reply.choices[0].finish_reason == "tool_calls"
        assert reply.usage is not None
        assert (message.content, reply.usage.prompt_tokens, reply.usage.completion_tokens) == ("Looking.", 7, 5)
        assert [(call.id, call.function.arguments) for call in message.tool_calls or ()] == [
            ("call_a", '{"path":"/"}'),
            ("call_b", "{}"),
        ]
        calls = [
            {"id": call.id, "type": "function", "function": {"name": "ls", "arguments": call.function.arguments}}
            for call in message.tool_calls or ()
        ]
        history.append({"role": "assistant", "content": "Looking.", "tool_calls": calls})
        history += [{"role": "tool", "tool_call_id": call.id, "content": "a.txt"} for call in CALLS]
        done = gpt.chat.completions.create(model="m", messages=history, tools=[CHAT_LS])
        assert done.choices[0].message.content == "Done."
        assert server.provider.bodies[1]["messages"] == history
        assert not server.provider.check()


class TestResponses:
    def test_a_stream_with_reasoning_and_tools(self, server: Running, gpt: openai.OpenAI) -> None:
        """Sealed reasoning comes as it is, and goes back as it is."""
        server.provider.set_script(
            [ScriptedReply(text="Looking.", thinking="Where?", signature="sealed-2", calls=CALLS), "Done."]
        )
        items: list[Any] = [{"role": "user", "content": "List it."}]
        stream = gpt.responses.create(model="m", input=items, tools=[RESPONSES_LS], stream=True)
        events = list(stream)
        reply = events[-1].to_dict()["response"]
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Looking."
        output: list[Any] = reply["output"]
        assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
        assert output[0]["encrypted_content"] == "sealed-2"
        items += output
        items += [{"type": "function_call_output", "call_id": call.id, "output": "a.txt"} for call in CALLS]
        assert gpt.responses.create(model="m", input=items, tools=[RESPONSES_LS]).output_text == "Done."
        assert server.provider.bodies[1]["input"] == items
        assert not server.provider.check()


STATUSES: list[tuple[int, str]] = [
    (400, "BadRequestError"),
    (401, "AuthenticationError"),
    (403, "PermissionDeniedError"),
    (404, "NotFoundError"),
    (422, "UnprocessableEntityError"),
    (429, "RateLimitError"),
    (500, "InternalServerError"),
    (503, "InternalServerError"),
]


@pytest.mark.parametrize(("status", "name"), STATUSES)
def test_errors_are_those_of_the_sdk(
    server: Running, claude: anthropic.Anthropic, gpt: openai.OpenAI, status: int, name: str
) -> None:
    """With the provider's status, body and request id."""
    messages: Any = [{"role": "user", "content": "hi"}]
    body = {"type": "error", "error": {"type": "some_error", "message": "the reason", "code": "some_code"}}
    ids = {"request-id": "req_1", "x-request-id": "req_1"}
    server.provider.set_script(lambda _: Raw(status, body, ids))
    with pytest.raises(getattr(anthropic, name), match="the reason") as first:
        claude.with_options(max_retries=0).messages.create(model="m", max_tokens=9, messages=messages, tools=[LS])
    once = gpt.with_options(max_retries=0)
    with pytest.raises(getattr(openai, name), match="the reason") as second:
        once.chat.completions.create(model="m", messages=messages, tools=[CHAT_LS])
    with pytest.raises(getattr(openai, name), match="the reason") as third:
        once.responses.create(model="m", input="hi", tools=[RESPONSES_LS])
    assert {found.value.status_code for found in (first, second, third)} == {status}
    assert {found.value.request_id for found in (first, second, third)} == {"req_1"}
    assert first.value.body == body


@pytest.mark.variants
@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_retry_is_archived_once(server: Running, ask: Ask, request: pytest.FixtureRequest, status: int) -> None:
    """The SDK tries again, as the provider's headers say."""
    busy = Raw(status, {"error": {"type": "busy", "message": "busy"}}, {"retry-after-ms": "1", "retry-after": "0"})
    server.provider.set_script([busy, busy, "Fine."])
    assert "Fine." in ask().to_json()
    assert len(server.provider.requests) == 3
    assert archived(server, request) == ["user", "assistant"]


IMAGES: list[tuple[str, list[Any]]] = [
    (
        "messages",
        [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "text", "text": "What is it?"},
        ],
    ),
    (
        "chat",
        [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "text", "text": "What is it?"},
        ],
    ),
    (
        "responses",
        [
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"},
            {"type": "input_image", "detail": "low", "image_url": "https://example.com/a.png"},
            {"type": "input_text", "text": "What is it?"},
        ],
    ),
]


@pytest.mark.parametrize(("api", "parts"), IMAGES)
def test_images_reach_the_provider_as_they_came(
    server: Running, claude: anthropic.Anthropic, gpt: openai.OpenAI, api: str, parts: list[Any]
) -> None:
    """Also in a request of which older messages were cut."""
    old: list[Any] = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} " + "word " * 1_500}
        for number in range(20)
    ]
    for history in ([], old):
        server.provider.set_script(["A cat."])
        messages: Any = [*history, {"role": "user", "content": parts}]
        if api == "messages":
            claude.messages.create(model="m", max_tokens=50, messages=messages, tools=[LS])
        elif api == "chat":
            gpt.chat.completions.create(model="m", messages=messages, tools=[CHAT_LS])
        else:
            gpt.responses.create(model="m", input=messages, tools=[RESPONSES_LS])
        sent = server.provider.bodies[0]["input" if api == "responses" else "messages"]
        assert [part for part in sent[-1]["content"] if part in parts] == parts
        assert not history or len(sent) < len(history)


@pytest.mark.variants
@pytest.mark.parametrize("api", ["messages", "chat", "responses"])
@pytest.mark.parametrize("before", ["user", "assistant"])
@pytest.mark.parametrize("turn", [2, 18])
def test_a_system_message_in_the_middle_keeps_its_role(
    server: Running, request: pytest.FixtureRequest, api: str, before: str, turn: int
) -> None:
    """Where older messages were cut, and where it comes before the user, which Anthropic does not allow."""
    history: list[dict[str, str]] = []
    for number in range(20):
        for role in ("user", "assistant"):
            history.append({"role": role, "content": f"{number} " + "word " * 900})
            if (number, role) == (turn, before):
                history.append({"role": "system", "content": "The mode is now: plan."})
    history.append({"role": "user", "content": "Which port?"})
    key, path = {"messages": ("messages", "messages"), "chat": ("messages", "chat/completions")}.get(
        api, ("input", "responses")
    )
    server.provider.set_script(["Fine."])
    headers = {"x-session-id": request.node.name, **OWNER}
    body = {"model": "m", "max_tokens": 50, key: history, "tools": [CHAT_LS if api == "chat" else LS]}
    assert httpx.post(f"{server.url}/v1/{path}", json=body, headers=headers, timeout=PATIENCE).is_success
    (sent,) = server.provider.bodies
    assert len(sent[key]) < len(history)
    roles = [one["role"] for one in sent[key] if one["content"] == "The mode is now: plan."]
    roles += ["system"] * ("The mode is now: plan." in str(sent.get("system") or sent.get("instructions")))
    assert roles == ["system"]
    assert not server.provider.check()
