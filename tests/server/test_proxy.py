"""The proxy, as the providers' own SDKs use it."""

from __future__ import annotations

import copy
import gc
import gzip
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import httpx2 as httpx
import pytest

from holdfast import Engine, providers
from holdfast.messages import ToolCall
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.report import Window
from holdfast.settings import ModelSettings, Settings
from holdfast.store.base import Select
from holdfast.testing.provider import Cut, Raw, Step, overflow
from holdfast.tokens import count_messages
from support import patient
from support.failing_stores import FAULTS
from support.lazy import Lazy
from support.waiting import until

from .conftest import OWNER, TOKEN, Start

if TYPE_CHECKING:
    import anthropic as anthropic_sdk
    import openai as openai_sdk
    from anthropic.types import ToolParam

else:
    anthropic_sdk = Lazy("anthropic")
    openai_sdk = Lazy("openai")

MODEL = "claude-x"
SMALL = Settings(model=ModelSettings(context_tokens=20_000))
LS: ToolParam = {"name": "ls", "description": "List a folder.", "input_schema": {"type": "object", "properties": {}}}


_OPENED: list[anthropic_sdk.Anthropic] = []


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    """Close the clients that a test has opened."""
    yield
    while _OPENED:
        _OPENED.pop().close()


def anthropic(url: str, session: str = "s1") -> anthropic_sdk.Anthropic:
    """Open a client of the owner that names its session as Claude Code does."""
    headers = {"x-claude-code-session-id": session, **OWNER}
    client = anthropic_sdk.Anthropic(base_url=url, api_key="key", max_retries=0, default_headers=headers)
    _OPENED.append(client)
    return client


def openai(url: str, session: str = "s1") -> openai_sdk.OpenAI:
    """Open a client of the owner that names its session as Codex does."""
    headers = {"session-id": session, **OWNER}
    return openai_sdk.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0, default_headers=headers)


def texts(engine: Engine, session: str = "s1") -> list[str]:
    """The archived messages of a session, as text."""
    select = Select(scope=engine.session(session).scope)
    return [row.message.text for row in engine._memory.store.read_messages(select)]


class TestAnthropic:
    def test_a_streamed_reply_is_passed_on_and_archived(self, start: Start) -> None:
        with start(["The port is 5433."]) as server:
            with anthropic(server.url).messages.stream(
                model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Which port?"}], tools=[LS]
            ) as stream:
                assert stream.get_final_text() == "The port is 5433."
            assert texts(server.engine) == ["Which port?", "The port is 5433."]

    def test_a_request_without_edits_is_sent_byte_for_byte(self, start: Start) -> None:
        body = b'{"model":"claude-x", "max_tokens":9,"x_new":{"a":[1]},"messages":[{"role":"user","content":"hi"}]}'
        with start(["Hello."]) as server:
            reply = patient.post(f"{server.url}/v1/messages", content=body, headers={"x-api-key": "key"})
            assert reply.json()["content"][0]["text"] == "Hello."
            assert server.provider.bodies == [json.loads(body)]
            assert server.provider.requests[0].headers["x-api-key"] == "key"

    def test_what_is_not_edited_stays_as_it_came(self, start: Start) -> None:
        """System prompts with cache marks, system messages in the middle, unknown blocks and fields."""
        mark = {"type": "ephemeral"}
        body = {
            "model": MODEL,
            "max_tokens": 50,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}, {"type": "text", "text": "Now."}],
            "tools": [LS],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "text", "text": "Hello."},
                    ],
                },
                {"role": "system", "content": "The mode is now: plan."},
                {"role": "user", "content": [{"type": "novel", "x": 1}, {"type": "text", "text": "go"}], "y": 2},
            ],
        }
        with start(["Fine."]) as server:
            reply = patient.post(f"{server.url}/v1/messages", json=body, headers={"session-id": "s1"})
            assert reply.headers["x-holdfast-edits"] == ""
            assert server.provider.bodies == [body]

    def test_a_cache_mark_that_moves_is_only_where_the_client_has_put_it(self, start: Start) -> None:
        """Clients mark the end of each request. The provider takes four marks and refuses a request with more."""
        history: list[dict[str, Any]] = []
        with start(["An answer."] * 12) as server:
            server.engine.session("s0").remember("The staging database has the port 5433.")
            for turn in range(6):
                text = f"{turn}: which port has the staging database?"
                history.append({"role": "user", "content": [{"type": "text", "text": text}]})
                marked = copy.deepcopy(history)
                marked[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
                body = {"model": MODEL, "max_tokens": 50, "messages": marked}
                for path in ("messages/count_tokens", "messages"):
                    patient.post(f"{server.url}/v1/{path}", json=body, headers={"session-id": "s1", **OWNER})
                history.append({"role": "assistant", "content": [{"type": "text", "text": "An answer."}]})
            assert [json.dumps(sent).count("cache_control") for sent in server.provider.bodies] == [1] * 12
            assert "recalled-context" in json.dumps(server.provider.bodies[-1])

    def test_a_long_tool_loop_keeps_its_window_and_loses_nothing(self, start: Start) -> None:
        """Every request is valid and under the limit, and the archive has everything."""
        numbers = itertools.count(1)

        def answer(_: dict[str, Any]) -> ScriptedReply:
            number = next(numbers)
            return ScriptedReply(text=f"step {number}", calls=(ToolCall(id=f"call_{number}", name="ls", arguments={}),))

        with start(answer, settings=SMALL) as server, anthropic(server.url) as client:
            history: list[Any] = [{"role": "user", "content": "The magic number is 7421. List everything."}]
            for turn in range(20):
                reply = client.messages.create(model=MODEL, max_tokens=500, messages=history, tools=[LS])
                history.append({"role": "assistant", "content": reply.content})
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": f"{turn} " + "file name " * 2_000}
                    for block in reply.content
                    if block.type == "tool_use"
                ]
                history.append({"role": "user", "content": results})
            for body in server.provider.bodies:
                assert not providers.check(body["messages"], "anthropic")
            sizes = [len(json.dumps(body)) for body in server.provider.bodies]
            assert max(sizes) < 100_000
            assert len(json.dumps(history, default=str)) > 390_000
            archived = "".join(texts(server.engine))
            assert "7421" in archived
            assert "step 20" in archived

    def test_an_overflow_is_compacted_and_sent_again(self, start: Start) -> None:
        asked: list[dict[str, Any]] = []

        def answer(body: dict[str, Any]) -> Any:
            if len(body["messages"]) < 3:
                return "## Goal\nCount words.\n" * 5  # the summary
            asked.append(body)
            return overflow(requested=9_000, limit=8_000) if len(asked) == 1 else "Done."

        history: list[Any] = [
            {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} " + "word " * 300}
            for number in range(31)
        ]
        with start(answer) as server, anthropic(server.url) as client:
            reply = client.messages.create(model=MODEL, max_tokens=500, messages=history, tools=[LS])
            assert [block.text for block in reply.content if block.type == "text"] == ["Done."]
            first, second = asked
            assert len(json.dumps(second)) < 0.8 * len(json.dumps(first))

    def test_a_window_that_was_refused_is_followed_by_smaller_ones(self, start: Start) -> None:
        """Where the provider states a limit that is far too large, and in the next requests too."""
        history: list[Any] = []

        def answer(body: dict[str, Any]) -> str | Raw:
            error = {"type": "invalid_request_error", "message": "prompt is too long: 250000 tokens > 200000 maximum"}
            is_long = len(json.dumps(body["messages"])) > 9_000
            return Raw(400, {"type": "error", "error": error}) if is_long else "Fine."

        with start(answer) as server, anthropic(server.url) as client:
            for turn in range(20):
                history.append({"role": "user", "content": f"Turn {turn}: " + f"word{turn} " * 70})
                reply = client.messages.create(model=MODEL, max_tokens=100, messages=history, tools=[LS])
                history.append({"role": "assistant", "content": reply.content})
            refused = len(server.provider.bodies) - 20
            assert 1 <= refused <= 5

    def test_a_window_is_made_smaller_until_the_provider_takes_it(self, start: Start) -> None:
        """A provider that does not say how much is too much is asked up to three times more."""
        history: list[Any] = []
        for turn in range(60):
            history.append({"role": "user", "content": f"Turn {turn}: " + f"word{turn} " * 300})
            history.append({"role": "assistant", "content": f"Turn {turn} is done."})
        history.append({"role": "user", "content": "And now?"})
        error = {"type": "invalid_request_error", "message": "prompt is too long"}
        refusals = iter([Raw(400, {"type": "error", "error": error})] * 2)

        def answer(body: dict[str, Any]) -> str | Raw:
            return next(refusals, "Fine.") if body.get("tools") else "We counted words."

        with start(answer) as server, anthropic(server.url) as client:
            reply = client.messages.create(model=MODEL, max_tokens=100, messages=history, tools=[LS])
            assert [block.text for block in reply.content if block.type == "text"] == ["Fine."]
            sizes = [len(json.dumps(body)) for body in server.provider.bodies if body.get("tools")]
        assert len(sizes) == 3
        assert sizes[0] > sizes[1] > sizes[2]

    def test_a_window_that_one_model_refused_does_not_limit_another(self, start: Start) -> None:
        """Hosts use a small model next to a large one in the same conversation."""
        history: list[Any] = []
        for turn in range(10):
            history.append({"role": "user", "content": f"Turn {turn}: " + f"word{turn} " * 100})
            history.append({"role": "assistant", "content": f"Turn {turn} is done."})
        history.append({"role": "user", "content": "And now?"})
        error = {"type": "invalid_request_error", "message": "prompt is too long"}

        def answer(body: dict[str, Any]) -> str | Raw:
            is_refused = body["model"] == "small" and len(json.dumps(body)) > 5_000
            return Raw(400, {"type": "error", "error": error}) if is_refused else "Fine."

        with start(answer) as server, anthropic(server.url) as client:
            rooms: list[int] = []
            for model in ("small", "small", "large"):
                client.messages.create(model=model, max_tokens=100, messages=history, tools=[LS])
                report = server.engine.session("s1").timeline()[-1]
                rooms.append(report.raw_max_tokens - report.reserved_tokens)
        assert rooms[0] < 5_000
        assert rooms[1] < 5_000
        assert rooms[2] > 100_000

    def test_errors_of_the_provider_pass(self, start: Start) -> None:
        with start(
            [Raw(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}})]
        ) as server:
            with pytest.raises(anthropic_sdk.APIStatusError) as caught:
                anthropic(server.url).messages.create(
                    model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "hi"}], tools=[LS]
                )
            assert caught.value.status_code == 429

    def test_an_overflow_with_nothing_to_compact_passes(self, start: Start) -> None:
        """The same request is not sent twice."""
        history: list[Any] = [{"role": role, "content": "hi"} for role in ("user", "assistant", "user")]
        refusal = overflow(requested=8_001, limit=8_000)
        with start(lambda _: refusal, settings=SMALL) as server, anthropic(server.url) as client:
            with pytest.raises(anthropic_sdk.APIStatusError, match="too long"):
                client.messages.create(model=MODEL, max_tokens=10_000, messages=history, tools=[LS])
            assert len(server.provider.bodies) == 1

    def test_an_overflow_whose_numbers_do_not_fit_is_answered_with_a_smaller_window(self, start: Start) -> None:
        """The limit of something else is not taken for that of the window."""
        history: list[Any] = []
        for turn in range(40):
            history.append({"role": "user", "content": f"Step {turn}: " + "look at the importer again. " * 60})
            history.append({"role": "assistant", "content": f"Step {turn} is done."})
        history.append({"role": "user", "content": "Which port?"})
        words = "prompt is too long: exceeds the limit of 5 documents"
        refusal = Raw(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})
        refusals = iter([refusal])

        def answer(body: dict[str, Any]) -> Step:
            return next(refusals, "5433.") if body.get("tools") else "We looked at the importer."

        with start(answer, settings=SMALL) as server, anthropic(server.url) as client:
            reply = client.messages.create(model=MODEL, max_tokens=100, messages=history, tools=[LS])
            refused, sent = [body for body in server.provider.bodies if body.get("tools")]
        assert reply.content[0].type == "text"
        assert len(json.dumps(refused)) / 3 < len(json.dumps(sent)) < len(json.dumps(refused))

    @pytest.mark.parametrize("cleanly", [True, False])
    def test_what_has_come_of_a_reply_that_breaks_off_is_archived(
        self, start: Start, caplog: pytest.LogCaptureFixture, *, cleanly: bool
    ) -> None:
        """Marked so, not recalled, and with a line in the log; also where it ends without its last event."""
        call = ToolCall(id="c1", name="write", arguments={"path": "a"})
        received = threading.Event()
        cut = Cut(ScriptedReply(text="half of it", calls=(call,)), after=9, cleanly=cleanly, when=received)
        with start([cut]) as server, anthropic(server.url) as client:
            asked = client.messages.stream(
                model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Go."}], tools=[LS]
            )
            with suppress(httpx.HTTPError, anthropic_sdk.AnthropicError), asked as stream:
                for event in stream:
                    if event.type == "input_json":  # the last one
                        received.set()
            until(lambda: server.engine.session("s1").exclusions().messages == {2})
            message = server.engine.session("s1").get([2])[0].message
            assert (message.text.strip(), message.is_broken) == ("half of it", True)
            assert [(one.name, one.arguments) for one in message.calls] == [("write", '{"path')]
            until(lambda: caplog.messages)
            (line,) = caplog.messages
            reason = "no last event" if cleanly else "the connection was closed"
            assert line == f"session s1: the reply of {server.provider.url}/v1/messages broke off: {reason}"

    @pytest.mark.parametrize("path", ["messages", "chat/completions", "responses"])
    def test_nothing_is_archived_of_a_reply_that_breaks_off_before_its_text(
        self, start: Start, caplog: pytest.LogCaptureFixture, path: str
    ) -> None:
        asked = [{"role": "user", "content": "Go."}]
        body = {"model": "m", "max_tokens": 9, "messages": asked, "input": asked, "stream": True}
        with start([Cut(ScriptedReply(text="half"), after=3 if path == "messages" else 1, cleanly=True)]) as server:
            patient.post(f"{server.url}/v1/{path}", json=body, headers={"x-holdfast-session": "s1", **OWNER})
            until(lambda: "broke off" in caplog.text)
            assert texts(server.engine) == ["Go."]
            assert len(caplog.messages) == 1

    def test_recall_reaches_the_request(self, start: Start) -> None:
        with start(["Noted.", "5433."]) as server, anthropic(server.url) as client:
            server.engine.session("s1").append(
                [{"role": "user", "content": "The replica of the billing database listens on port 5433."}]
            )
            client.messages.create(
                model=MODEL,
                max_tokens=100,
                messages=[{"role": "user", "content": "Which port does the billing replica listen on?"}],
                tools=[LS],
            )
            assert "5433" in json.dumps(server.provider.bodies[0]["messages"])


class TestOpenAI:
    @pytest.mark.parametrize("stream", [True, False])
    def test_chat_completions(self, start: Start, *, stream: bool) -> None:
        call = ToolCall(id="c1", name="ls", arguments={"path": "/srv"})
        with start([ScriptedReply(text="Looking.", calls=(call,))]) as server, openai(server.url) as client:
            reply: Any = client.chat.completions.create(
                model="gpt-5",
                messages=[{"role": "user", "content": "What is in /srv?"}],
                tools=[{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}],
                stream=stream,
            )
            if stream:
                assert "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices) == "Looking."
            rows = server.engine.session("s1").get([1, 2])
            assert [row.message.role for row in rows] == ["user", "assistant"]
            assert [call.name for call in rows[1].message.calls] == ["ls"]
            assert rows[1].message.calls[0].arguments == {"path": "/srv"}

    @pytest.mark.parametrize("stream", [True, False])
    def test_responses(self, start: Start, *, stream: bool) -> None:
        with start(["It is sunny."]) as server, openai(server.url) as client:
            reply: Any = client.responses.create(
                model="gpt-5", input="Weather?", instructions="Be brief.", stream=stream, tools=[{"type": "web_search"}]
            )
            if stream:
                kinds = [event.type for event in reply]
                assert kinds[-1] == "response.completed"
            assert texts(server.engine)[-2:] == ["Weather?", "It is sunny."]

    def test_a_request_that_continues_a_stored_response_is_not_edited(self, start: Start) -> None:
        """The provider has the call to which the result belongs."""
        body = {
            "model": "gpt-5",
            "previous_response_id": "resp_1",
            "input": [{"type": "function_call_output", "call_id": "c1", "output": "port 5433"}],
        }
        with start(["It is 5433."]) as server:
            reply = patient.post(f"{server.url}/v1/responses", json=body, headers={"session-id": "s1", **OWNER})
            assert reply.headers["x-holdfast-session"] == "s1"
            assert server.provider.bodies == [body]
            rows = server.engine.session("s1").get([1, 2])
            assert [row.message.role for row in rows][-1] == "assistant"

    @pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
    def test_a_conversation_of_the_provider_is_a_session(self, start: Start, conversation: Any) -> None:
        with start(lambda _: "Fine.") as server:
            body = {"model": "m", "input": "Which port?", "conversation": conversation}
            assert patient.post(f"{server.url}/v1/responses", json=body).headers["x-holdfast-session"] == "conv_1"

    @pytest.mark.parametrize("stream", [True, False])
    def test_requests_that_continue_each_other_are_one_session(self, start: Start, *, stream: bool) -> None:
        """Where the client names none: the request names the response that it continues from."""
        with start(lambda _: "Fine.") as server:
            names: set[str] = set()
            previous: dict[str, str] = {}
            for number in range(3):
                body = {"model": "m", "input": f"Question {number}?", "stream": stream, **previous}
                reply = patient.post(f"{server.url}/v1/responses", json=body, headers=OWNER)
                names.add(reply.headers["x-holdfast-session"])
                previous = {"previous_response_id": f"resp_{number + 1}"}
            (name,) = names
            assert texts(server.engine, name)[::2] == ["Question 0?", "Question 1?", "Question 2?"]

    @pytest.mark.parametrize("path", ["chat/completions", "responses"])
    def test_what_has_come_of_a_reply_that_breaks_off_is_archived(self, start: Start, path: str) -> None:
        asked = [{"role": "user", "content": "Go."}]
        body = {"model": "gpt-5", "messages": asked, "input": asked, "stream": True}
        pieces = ScriptedReply(pieces=("half ", "of ", "it"))
        received = threading.Event()
        headers = {"x-holdfast-session": "s1", **OWNER}
        with start([Cut(pieces, after=5 if path == "responses" else 3, when=received)]) as server:
            with (
                suppress(httpx.HTTPError),
                patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=headers) as reply,
            ):
                for line in reply.iter_lines():
                    if '"of "' in line:
                        received.set()
            until(lambda: texts(server.engine) == ["Go.", "half of "])
            assert server.engine.session("s1").get([2])[0].message.is_broken


class TestSessions:
    def test_a_client_without_a_session_is_recognised_by_its_history(self, start: Start) -> None:
        with (
            start(["One.", "Two.", "Three."]) as server,
            openai_sdk.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0) as client,
        ):
            history: list[Any] = [{"role": "user", "content": "hello"}]
            first = client.chat.completions.with_raw_response.create(model="m", messages=history)
            history += [{"role": "assistant", "content": "One."}, {"role": "user", "content": "more"}]
            second = client.chat.completions.with_raw_response.create(model="m", messages=history)
            other = client.chat.completions.with_raw_response.create(model="m", messages=history[:1])
            names = [reply.headers["x-holdfast-session"] for reply in (first, second, other)]
            assert names[0] == names[1] != names[2]

    def test_conversations_that_begin_alike_stay_apart_after_a_restart(self, start: Start) -> None:
        """Each continues in its own session, and a new one gets a session of its own."""

        def ask(url: str, history: list[dict[str, str]]) -> str:
            reply = patient.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": history})
            return str(reply.headers["x-holdfast-session"])

        def history(*texts: str) -> list[dict[str, str]]:
            roles = itertools.cycle(["user", "assistant"])
            return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]

        first, second = history("hello", "Hi.", "the first"), history("hello", "Hi!", "the second")
        with start(lambda _: "Fine.") as server:
            names = [ask(server.url, first), ask(server.url, second)]
            assert len(set(names)) == 2
        with start(lambda _: "Fine.") as server:
            more = history("Fine.", "go on")
            assert ask(server.url, [*second, {"role": "assistant", "content": "Fine."}, more[0]]) == names[1]
            assert ask(server.url, [*first, {"role": "assistant", "content": "Fine."}, more[0]]) == names[0]
        with start(lambda _: "Fine.") as server:
            new = ask(server.url, history("hello"))
            assert new not in names
            assert ask(server.url, history("hello")) not in {*names, new}  # the first reply has come

    def test_a_subagent_has_a_session_of_its_own(self, start: Start) -> None:
        with start(lambda _: "Fine.") as server:
            for headers in ({}, {"x-claude-code-agent-id": "a1"}):
                anthropic(server.url).messages.create(
                    model=MODEL,
                    max_tokens=10,
                    messages=[{"role": "user", "content": f"hi {headers}"}],
                    tools=[LS],
                    extra_headers=headers,
                )
            assert {info.id for info in server.engine.sessions()} == {"s1", "s1/a1"}

    def test_a_session_name_cannot_break_the_headers_of_the_reply(self, start: Start) -> None:
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "ls"}}],
            "metadata": {"user_id": json.dumps({"session_id": "a\x00b\r\nset-cookie: x=1\x7fü"})},
        }
        with start(["Fine."]) as server:
            reply = patient.post(f"{server.url}/v1/chat/completions", json=body)
            assert reply.status_code == 200
            assert "set-cookie: x=1" in reply.headers["x-holdfast-session"]
            assert "set-cookie" not in reply.headers

    def test_every_api_has_the_same_rule_for_one_message_without_tools(self, start: Start) -> None:
        """With the session of a host it is a request for a title; a client that names none asks its first question."""
        messages = [{"role": "user", "content": "Which port?"}]
        bodies = [
            ("messages", {"messages": messages, "max_tokens": 9}),
            ("chat/completions", {"messages": messages}),
            ("responses", {"input": messages}),
            ("responses", {"input": "Which port?"}),
        ]
        with start(lambda _: "Fine.") as server:
            for path, body in bodies:
                managed = [
                    "x-holdfast-session" in patient.post(f"{server.url}/v1/{path}", json=body, headers=headers).headers
                    for headers in ({}, {"session-id": "s1"}, {"x-holdfast-session": "mine"})
                ]
                assert managed == [True, False, True]

    def test_a_request_is_not_held_while_its_reply_streams(self, start: Start) -> None:
        """Many streams of long conversations are open at once."""

        def windows() -> list[int]:
            return [id(one) for one in gc.get_objects() if issubclass(type(one), Window)]

        before = [one for one in gc.get_objects() if issubclass(type(one), Window)]  # of other tests
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Which port?"}]}
        with (
            start([Hang()]) as server,
            patient.stream("POST", f"{server.url}/v1/chat/completions", json=body) as reply,
        ):
            chunks = reply.iter_raw()
            assert next(chunks)
            until(lambda: not set(windows()) - set(map(id, before)))

    def test_a_title_request_of_a_host_passes_unmanaged(self, start: Start) -> None:
        with start(["A title"]) as server, anthropic(server.url) as client:
            client.messages.create(
                model=MODEL, max_tokens=10, messages=[{"role": "user", "content": "Write a title for: hello"}]
            )
            assert not server.engine.sessions()

    def test_the_first_request_of_a_session_that_the_user_names_is_archived(self, start: Start) -> None:
        """It looks like a request for a title, but its header is not that of a host."""
        body = {"model": "m", "messages": [{"role": "user", "content": "The replica listens on port 5433."}]}
        with start(["Fine."]) as server:
            headers = {"x-holdfast-session": "mine"}
            reply = patient.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
            assert reply.headers["x-holdfast-session"] == "mine"
            assert [info.id for info in server.engine.sessions()] == ["mine"]


class TestAMemoryThatFails:
    """The request is cut to what fits, whether memory fails before or after its session is known."""

    PATHS: ClassVar = {"messages": "anthropic", "chat/completions": "openai_chat", "responses": "openai_responses"}

    def body(self, path: str) -> dict[str, Any]:
        """A request of about 60,000 tokens."""
        history: list[Any] = []
        for number in range(60):
            history += [{"role": "user", "content": f"{number} and then?"}]
            history += [{"role": "assistant", "content": f"{number} " + "text " * 700}]
        history.append({"role": "user", "content": "Which port was it?"})
        field = "input" if path == "responses" else "messages"
        return {"model": MODEL, "max_tokens": 500, field: history}

    def size(self, body: dict[str, Any], path: str) -> int:
        """Count the tokens of a request."""
        return count_messages(providers.read_request(body, format=self.PATHS[path]))

    @pytest.mark.variants
    @pytest.mark.parametrize("path", sorted(PATHS))
    @pytest.mark.parametrize("fault", ["deleted", "newer"])
    @pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
    def test_the_request_keeps_the_limit(
        self,
        start: Start,
        tmp_path: Path,
        path: str,
        fault: str,
        named: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        headers = {**OWNER, "session-id": "s1"} if named else OWNER
        with start(lambda _: "Fine.", settings=SMALL) as server:
            with FAULTS[fault](tmp_path / "memory"):
                reply = patient.post(f"{server.url}/v1/{path}", json=self.body(path), headers=headers)
            (sent,) = server.provider.bodies
            assert reply.status_code == 200
            assert 10_000 < self.size(sent, path) <= 20_000
            assert "Which port was it?" in json.dumps(sent)
            assert "left out until memory works again" in reply.headers["x-holdfast-warning"]
            # Once memory works, the client sends the history again.
            patient.post(f"{server.url}/v1/{path}", json=self.body(path), headers={**OWNER, "session-id": "s1"})
            assert len(texts(server.engine)) == 122

    @pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
    def test_a_window_that_is_refused_is_made_smaller(
        self,
        start: Start,
        tmp_path: Path,
        named: bool,  # noqa: FBT001 - as above
    ) -> None:
        """By the same steps as with memory, without the compaction."""

        def answer(body: dict[str, Any]) -> Any:
            is_large = self.size(body, "messages") > 12_000
            return overflow(requested=25_000, limit=20_000) if is_large else "Fine."

        headers = {"session-id": "s1"} if named else {}
        with start(answer, settings=SMALL) as server, FAULTS["newer"](tmp_path / "memory"):
            reply = patient.post(f"{server.url}/v1/messages", json=self.body("messages"), headers=headers)
            first, second = server.provider.bodies
        assert reply.status_code == 200
        assert self.size(second, "messages") <= 12_000 < self.size(first, "messages")

    def test_a_request_that_fits_stays_as_it_came(self, start: Start, tmp_path: Path) -> None:
        body = {"model": MODEL, "x_new": 1, "messages": [{"role": "user", "content": "hi"}] * 3}
        with start(["Fine."], settings=SMALL) as server, FAULTS["newer"](tmp_path / "memory"):
            reply = patient.post(f"{server.url}/v1/messages", json=body)
            assert server.provider.bodies == [body]
            assert "newer Holdfast" in reply.headers["x-holdfast-warning"]


class TestSafety:
    def test_a_compressed_request_is_read_and_passed_on_as_it_came(self, start: Start) -> None:
        body = gzip.compress(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode())
        with start(lambda _: "Hello.") as server:
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            reply = patient.post(f"{server.url}/v1/chat/completions", content=body, headers=headers)
            assert "x-holdfast-warning" not in reply.headers
            assert server.provider.requests[0].headers["content-encoding"] == "gzip"

    def test_a_web_page_is_refused(self, start: Start) -> None:
        with start([]) as server:
            reply = patient.post(f"{server.url}/v1/messages", json={}, headers={"origin": "https://example.com"})
            assert reply.status_code == 403
            assert patient.get(f"{server.url}/v1/models", headers={"host": "evil.example"}).status_code == 403

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("localhost", 200),
            ("LOCALHOST:1234", 200),
            ("127.0.0.1", 200),
            ("[::1]", 200),
            ("[::1]:80", 200),
            ("", 403),
            ("localhost.evil.example", 403),
            ("evil.example:127.0.0.1", 403),
            ("127.0.0.1.evil.example:80", 403),
            ("\u00fc", 403),
        ],
    )
    def test_only_names_of_this_machine_are_answered(self, start: Start, host: str, status: int) -> None:
        with start([]) as server:
            headers = {b"host": host.encode("latin-1"), b"authorization": f"Bearer {TOKEN}".encode()}
            reply = patient.post(f"{server.url}/holdfast/rpc", json={"id": 1, "method": "ping"}, headers=headers)
            assert reply.status_code == status

    def test_calls_need_the_token(self, start: Start) -> None:
        with start([]) as server:
            call = {"id": 1, "method": "ping"}
            assert patient.post(f"{server.url}/holdfast/rpc", json=call).status_code == 401
            reply = patient.post(f"{server.url}/holdfast/rpc", json=call, headers={"authorization": f"Bearer {TOKEN}"})
            assert reply.json()["result"]["version"]

    @pytest.mark.parametrize("path", ["messages", "messages/count_tokens"])
    @pytest.mark.parametrize("body", [{"messages": 5}, {"model": "m", "messages": "hi"}])
    def test_what_cannot_be_read_passes_unchanged(
        self, start: Start, caplog: pytest.LogCaptureFixture, body: dict[str, Any], path: str
    ) -> None:
        """With a line in the log."""
        with start([Raw(400, {"error": {"message": "bad"}})]) as server:
            headers = {"x-claude-code-session-id": "s1"}
            reply = patient.post(f"{server.url}/v1/{path}", json=body, headers=headers)
            assert reply.status_code == 400
            assert path != "messages" or "passed unchanged" in reply.headers["x-holdfast-warning"]
            assert server.provider.bodies == [body]
        (line,) = caplog.messages
        assert line.startswith(f"session s1: a request to /v1/{path} passed unchanged: body: ")

    @pytest.mark.parametrize("body", [[1, 2], None, "x"])
    def test_a_body_that_is_no_object_passes_unchanged(self, start: Start, body: object) -> None:
        """The header says what is wrong with it."""
        with start([Raw(400, {"error": {"message": "bad"}})]) as server:
            reply = patient.post(f"{server.url}/v1/messages", content=json.dumps(body))
            assert "the body is no JSON object" in reply.headers["x-holdfast-warning"]
            assert server.provider.bodies == [body]

    def test_the_header_names_only_trouble_of_its_request(self, start: Start) -> None:
        """What the whole memory lacks is in the report."""
        body = {"model": "m", "messages": [{"role": "user", "content": "Which port?"}]}
        with start(lambda _: "Fine.", warnings=("recall.cap is not a setting",)) as server:
            session = server.engine.session("mine")
            reply = patient.post(
                f"{server.url}/v1/messages", json=body, headers={"x-holdfast-session": "mine", **OWNER}
            )
            assert "x-holdfast-warning" not in reply.headers
            assert server.engine.warnings[0] in session.timeline()[0].warnings
            session._warnings.append("compaction: the model did not answer")
            reply = patient.post(
                f"{server.url}/v1/messages", json=body, headers={"x-holdfast-session": "mine", **OWNER}
            )
            assert reply.headers["x-holdfast-warning"] == "compaction: the model did not answer"

    def test_shadow_changes_nothing_and_records_what_it_would_do(self, start: Start) -> None:
        history: list[Any] = [{"role": "user", "content": "The replica listens on port 5433. " + "word " * 100}]
        for number in range(60):
            history += [{"role": "assistant", "content": f"{number} " + "text " * 2_000}]
            history += [{"role": "user", "content": f"{number} and then?"}]
        with start(["Fine."], shadow=True, settings=SMALL) as server:
            body = {"model": MODEL, "max_tokens": 500, "messages": history, "tools": [LS]}
            reply = patient.post(f"{server.url}/v1/messages", json=body, headers={"session-id": "s1", **OWNER})
            assert server.provider.bodies == [body]
            assert server.engine.session("s1").timeline()[0].changes
            assert "x-holdfast-edits" not in reply.headers
            assert "trimmed" in reply.headers["x-holdfast-shadow-edits"]
