"""Replies of the SDKs are accepted as they are, and a reply is archived once in any form that comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Engine
from holdfast.messages import Usage
from holdfast.providers import Incoming
from holdfast.settings import Embedding, Settings
from support.lazy import Lazy

if TYPE_CHECKING:
    from anthropic import types as anthropic_types
    from openai.types import chat, responses
else:
    anthropic_types = Lazy("anthropic.types")
    chat = Lazy("openai.types.chat")
    responses = Lazy("openai.types.responses")

CONTENT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Which file?", "signature": "Sig="},
    {"type": "text", "text": "Reading 文件.", "citations": None},
    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py", "limit": None}},
]
SENT_CONTENT: list[dict[str, Any]] = [CONTENT[0], {"type": "text", "text": "Reading 文件."}, CONTENT[2]]
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Reading 文件.", "annotations": []}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}", "status": "completed"},
]


def message() -> anthropic_types.Message:
    """Return a reply of Anthropic's SDK."""
    usage = {"input_tokens": 12, "output_tokens": 7}
    made = {"id": "msg_01", "type": "message", "model": "m", "stop_reason": "tool_use", "stop_sequence": None}
    return anthropic_types.Message.model_validate({**made, "role": "assistant", "content": CONTENT, "usage": usage})


def completion() -> chat.ChatCompletion:
    """Return a reply of OpenAI's SDK for Chat Completions."""
    reply_message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL], "annotations": None}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": reply_message}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
    return chat.ChatCompletion.model_validate({**made, "choices": [choice], "usage": usage})


def response() -> responses.Response:
    """Return a reply of OpenAI's SDK for Responses."""
    made = {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "status": "completed", "tools": []}
    made |= {"output": ITEMS, "parallel_tool_calls": True, "tool_choice": "auto"}
    details = {
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    usage = {"input_tokens": 17, "output_tokens": 7, "total_tokens": 24, **details}
    return responses.Response.model_validate({**made, "usage": usage})


RESULT: dict[str, dict[str, Any]] = {
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    "openai_chat": {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    "openai_responses": {"type": "function_call_output", "call_id": "c1", "output": "ok"},
}


def replies() -> dict[str, tuple[str, list[Any], list[dict[str, Any]], list[list[Any]]]]:
    """Return by name the format, the reply, what is sent back of it, and other ways in which a client may send it."""
    return {
        "Message": (
            "anthropic",
            [message()],
            [{"role": "assistant", "content": SENT_CONTENT}],
            [
                [{"role": "assistant", "content": message().content}],
                [{"role": "assistant", "content": CONTENT}],
                [message().to_dict()],
            ],
        ),
        "ChatCompletion": (
            "openai_chat",
            [completion()],
            [{"role": "assistant", "tool_calls": [CALL]}],
            [
                [completion().choices[0].message],
                [{"role": "assistant", "content": None, "tool_calls": completion().choices[0].message.tool_calls}],
                [completion().choices[0].message.model_dump()],
                [completion().model_dump(mode="json")],  # as an HTTP client returns it
            ],
        ),
        "Response": (
            "openai_responses",
            [response()],
            ITEMS,
            [
                list(response().output),
                ITEMS,
                [{key: item[key] for key in item if key != "status"} for item in ITEMS],
                [response().model_dump(mode="json")],
            ],
        ),
    }


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Open an engine over a new memory, by words alone."""
    settings = Settings(embedding=Embedding(provider="none"))
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        yield engine


@pytest.mark.parametrize("name", ["Message", "ChatCompletion", "Response"])
def test_a_reply_is_archived_once_however_it_is_sent_back(name: str, engine: Engine) -> None:
    """As an object, as its parts in a dict, or as plain dicts, the request is valid, and nothing is stored twice."""
    format_, reply, sent, others = replies()[name]
    asked = {"role": "user", "content": "Read a.py"}
    engine.session("s").assemble([asked])
    engine.session("s").append(reply)
    ways: Sequence[list[Incoming]] = [reply, *others]
    for way in ways:
        window = engine.session("s").assemble([asked, *way, RESULT[format_]])
        assert window.provider == format_
        assert window.report.warnings == ()
        assert len(engine.session("s").get(range(1, 99))) == 1 + len(sent) + 1
        if way is reply:
            assert window.render() == [asked, *sent, RESULT[format_]]
            assert window.report.repairs == ()


@pytest.mark.parametrize("of_sdk", [True, False], ids=["Response", "dict"])
def test_a_text_that_ends_a_response_is_archived_once(engine: Engine, *, of_sdk: bool) -> None:
    """The reply and its items in the history both have the provider's id, and no call shows that they are the same."""
    returned: Callable[[Any], Any] = responses.Response.model_validate if of_sdk else dict
    session, history, body = engine.session("s"), list[Any](), response().model_dump(mode="json")
    for turn in range(3):
        history.append({"role": "user", "content": f"Read it, round {turn}."})
        session.assemble(history)
        body["output"] = [{**item, "id": f"{item['id']}{turn}"} for item in ITEMS[:2]]
        session.append([returned(body)])
        history += body["output"]
    session.assemble(history)
    assert [row.message.role for row in session.messages()] == ["user", "assistant", "assistant"] * 3


@pytest.mark.parametrize(("came", "sent"), [("", None), (None, "")])
def test_a_call_is_archived_once_with_an_empty_text_and_without(
    engine: Engine, came: str | None, sent: str | None
) -> None:
    """Servers stream an empty text before a call, and clients send none back, or the other way round."""
    session, history = engine.session("s"), list[dict[str, Any]]()
    for turn in range(3):
        history.append({"role": "user", "content": f"Read it, round {turn}."})
        session.assemble(history)
        reply = {"role": "assistant", "tool_calls": [{**CALL, "id": f"c{turn}"}]}
        session.append([{**reply, "content": came}])
        history.append({**reply, "content": sent})
        history.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "x = 1"})
    session.assemble(history)
    assert [row.message.role for row in session.get(range(1, 20))] == ["user", "assistant", "tool"] * 3


def test_what_a_reply_cost_is_known_and_not_sent_back(engine: Engine) -> None:
    """The envelope of a reply has the model, the usage and the stop reason."""
    engine.session("s").append([message()])
    (row,) = engine.session("s").get([1])
    assert (row.message.model, row.message.stop, row.message.id) == ("m", "tool_use", None)
    assert row.message.usage is not None
    assert row.message.usage.input == 12


@pytest.mark.parametrize("is_dumped", [False, True], ids=["sdk", "dict"])
@pytest.mark.parametrize("make", [completion, response])
def test_the_usage_of_openai_is_known_and_not_sent_back(
    make: Callable[[], Any], engine: Engine, *, is_dumped: bool
) -> None:
    """It is outside the messages of a reply, from an SDK or an HTTP client."""
    reply: Incoming = make().model_dump() if is_dumped else make()
    session = engine.session("s")
    session.append([{"role": "user", "content": "Read a.py."}, reply])
    last = session.get(range(1, 9))[-1].message
    assert (last.model, last.usage and last.usage.input, last.usage and last.usage.output) == ("m", 12, 7)
    assert "usage" not in str(session.assemble([{"role": "user", "content": "Read a.py."}, reply]).request())


def test_anything_that_can_be_dumped_is_taken(engine: Engine) -> None:
    """Objects of any SDK are accepted, such as Gemini's, whose names are spelled as in its REST API."""

    class Content:
        parts = None

        def model_dump(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"role": "model", "parts": [{"text": "Hello"}]}

    class Candidate:
        content = Content()

    class Reply(Content):
        candidates = (Candidate(),)

    asked = {"role": "user", "parts": [{"text": "Hi"}]}
    plain = {"role": "model", "parts": [{"text": "Hello"}]}
    ways: list[Incoming] = [Reply(), Content(), plain, {"candidates": [{"content": plain}]}]
    for way in ways:
        window = engine.session("s").assemble([asked, way, asked])
        assert window.request("gemini")["contents"][1] == {"role": "model", "parts": [{"text": "Hello"}]}
        assert [row.message.text for row in engine.session("s").get(range(1, 9))] == ["Hi", "Hello", "Hi"]


def test_a_reply_of_gemini_keeps_its_usage_and_model(engine: Engine) -> None:
    """Cached tokens are counted separately from the prompt, and thoughts with the reply."""

    class Content:
        def model_dump(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"role": "model", "parts": [{"text": "Hello"}]}

    class Candidate:
        content = Content()

    class Reply:
        candidates = (Candidate(),)

        def model_dump(self, *_: Any, **__: Any) -> dict[str, Any]:
            usage = {"promptTokenCount": 90, "cachedContentTokenCount": 40, "candidatesTokenCount": 5}
            return {"modelVersion": "gemini-3", "usageMetadata": {**usage, "thoughtsTokenCount": 2}}

    session = engine.session("s")
    session.assemble([{"role": "user", "parts": [{"text": "Hi"}]}])
    session.append([Reply()])
    reply = session.get([2])[0].message
    assert (reply.text, reply.model) == ("Hello", "gemini-3")
    assert reply.usage == Usage(input=50, output=7, cache_read=40)
