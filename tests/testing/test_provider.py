"""The scripted model server that users start in their own tests."""

from __future__ import annotations

import json
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import providers
from holdfast.errors import ModelBusyError
from holdfast.messages import ToolCall
from holdfast.providers.overflow import is_overflow
from holdfast.testing.provider import Cut, Raw, ScriptedProvider, ScriptedReply, overflow
from support import patient

CALL = ToolCall(id="c1", name="lookup", arguments={"key": "税"})
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai_chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "openai_responses": ("/v1/responses", {"input": "hi"}),
    "gemini": ("/v1beta/models/g1:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
}


def post(server: ScriptedProvider, format: str, **more: Any) -> httpx.Response:
    """Send a request of a format; with `stream=True` one that asks for a stream."""
    path, body = REQUESTS[format]
    if more and format == "gemini":
        path, more = path.replace(":generate", ":streamGenerate") + "?alt=sse", {}
    return patient.post(server.url + path, json={"model": "m1", **body, **more})


def read_reply(format: str, body: dict[str, Any]) -> providers.Incoming:
    """Return the message of a reply."""
    if format == "gemini":
        return dict(body["candidates"][0]["content"])
    if format == "openai_chat":
        return dict(body["choices"][0]["message"])
    return body if format == "anthropic" else dict(body["output"][-1])


@pytest.mark.parametrize("format", REQUESTS)
def test_every_format_answers_whole_and_streamed(model_server: ScriptedProvider, format: str) -> None:
    """Four wire formats, whole and streamed, with calls and thinking."""
    model_server.set_script([ScriptedReply(calls=(CALL,)), ScriptedReply(text="two words", thinking="hm")])
    whole = post(model_server, format).json()
    (message,) = providers.read([read_reply(format, whole)], format=format)
    assert [(call.name, call.arguments) for call in message.calls] == [("lookup", {"key": "税"})]
    streamed = post(model_server, format, stream=True)
    assert streamed.headers["content-type"] == "text/event-stream"
    data = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert "two" in "".join(data)
    assert all(json.loads(one) for one in data if one != "[DONE]")
    assert model_server.check() == []


@pytest.mark.parametrize("format", REQUESTS)
def test_errors_have_the_shape_of_the_provider(model_server: ScriptedProvider, format: str) -> None:
    """An overflow and a rate limit look as the provider sends them."""
    model_server.set_script([overflow(), ModelBusyError("busy", retry_after=3)])
    refused, busy = post(model_server, format), post(model_server, format)
    assert (refused.status_code, busy.status_code, busy.headers["retry-after"]) == (400, 429, "3")
    assert is_overflow(refused.text, status=400)
    assert busy.json()["error"]


def test_faults_and_the_end_of_the_script(model_server: ScriptedProvider) -> None:
    """Cut connections, raw answers, an empty script and an unknown path."""
    model_server.set_script([Cut(ScriptedReply(text="a b c"), after=1), Raw(502, b"<html>")])
    with pytest.raises(httpx.RemoteProtocolError):
        post(model_server, "openai_chat", stream=True)
    assert post(model_server, "openai_chat").status_code == 502
    assert "script of the provider is over" in post(model_server, "openai_chat").text
    assert patient.post(model_server.url + "/v1/unknown", json={}).status_code == 404


def test_rules_that_a_request_breaks_are_listed(model_server: ScriptedProvider) -> None:
    """`check` reports what a provider would refuse."""
    model_server.set_script(["x"])
    orphan = {"role": "tool", "tool_call_id": "c9", "content": "42"}
    patient.post(model_server.url + "/v1/chat/completions", json={"model": "m", "messages": [orphan]})
    assert [violation.rule for violation in model_server.check()] == ["orphan-result"]


def test_a_word_of_a_response_comes_with_its_delta(model_server: ScriptedProvider) -> None:
    """An item that begins is empty, as the provider sends it: a client that reads it has not read the reply."""
    model_server.set_script([ScriptedReply(text="the port is 5433", calls=(CALL,))])
    events = post(model_server, "openai_responses", stream=True).text.split("\n\n")
    before_deltas = "".join(events[:3])
    assert "response.content_part.added" in before_deltas
    assert "5433" not in before_deltas
    (begun,) = [event for event in events if "output_item.added" in event and "function_call" in event]
    assert "税" not in begun.encode().decode("unicode_escape")
