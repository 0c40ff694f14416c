"""One model request through a session: in every wire format, streamed and not, synchronous and not."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import providers
from holdfast.engine import Engine
from holdfast.errors import CompactionError, ModelBusyError, ModelCancelledError, ModelOverflowError
from holdfast.exchange import (
    MAX_RETRIES,
    SHRINK,
    Compact,
    Completion,
    Exchange,
    Exchanges,
    ModelRequest,
    complete,
    find_refusal,
    find_refusal_in,
    make_summary_body,
    read_body,
)
from holdfast.messages import Message, Usage
from holdfast.models.base import Prompt, Tool
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from holdfast.providers.overflow import Numbers
from holdfast.providers.replies import ReplyCollector, is_stream, read_reply
from holdfast.settings import Embedding, Settings
from holdfast.testing.provider import Cut, Raw, ScriptedProvider, Step, overflow
from holdfast.tokens import count_messages
from support.conversations import answer, call, reply, results, system, tool_conversation, user
from support.waiting import PATIENCE, UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
TOOL = Tool(name="ls", description="Lists files.", parameters={"type": "object", "properties": {}})
PATHS = {
    "anthropic": "/v1/messages",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-x:generateContent",
}
SYSTEM_FIELDS = {"anthropic": "system", "gemini": "systemInstruction"}
STREAMED = ["anthropic", "openai_chat", "openai_responses"]
"""The formats whose streams are collected."""

every_format = pytest.mark.parametrize("format", sorted(PATHS))
every_way = pytest.mark.parametrize(
    ("format", "stream"),
    [*((format, False) for format in sorted(PATHS)), *((format, True) for format in STREAMED)],
    ids=[*sorted(PATHS), *(f"{format}-streamed" for format in STREAMED)],
)
every_client = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory that searches by words, without a thread and without a model."""
    with Engine.open(tmp_path / "memory", settings=SETTINGS, background=False) as engine:
        yield engine


def make_body(messages: list[Message], format: str, *, stream: bool = False) -> dict[str, Any]:
    """Make the body of a request, with a field that we know nothing about."""
    body: dict[str, Any] = {"model": "model-x", **providers.render_request(messages, format), "top_k": 4}
    if stream:
        body["stream"] = True
    return body


def archived(engine: Engine) -> list[Message]:
    """Return the archived messages of the session, without system prompts."""
    rows = engine.session("s").messages()
    return [row.message for row in rows if row.message.role != "system"]


# --- the clients: what every way in does with an exchange ----------------------------------


class Client:
    """Sends bodies to a provider through a session, as a way in does."""

    def __init__(
        self, server: ScriptedProvider, engine: Engine, *, limit: int = 14_000, is_async: bool = False
    ) -> None:
        self.exchanges = Exchanges(limit)
        self.warnings: list[str] = []
        self.session = engine.session("s")
        self._url = server.url
        self._is_async = is_async

    def post(self, body: Mapping[str, Any], format: str) -> httpx.Response:
        """Send a body, and return the reply of the provider."""
        if self._is_async:
            return asyncio.run(self._post_async(body, format))
        return self._post(body, format)

    def _post(self, body: Mapping[str, Any], format: str) -> httpx.Response:
        with httpx.Client(base_url=self._url, timeout=PATIENCE) as client:
            exchange = self.exchanges.begin_body(self.session, body, format=format, warn=self.warnings.append)
            response = client.post(PATHS[format], json=exchange.body)
            while not response.is_success:
                smaller = exchange.shrink(find_refusal(response.text, status=response.status_code))
                if smaller is None:
                    return response
                exchange = smaller
                response = client.post(PATHS[format], json=exchange.body)
            _archive(exchange, response)
            return response

    async def _post_async(self, body: Mapping[str, Any], format: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self._url, timeout=PATIENCE) as client:
            exchange = await asyncio.to_thread(
                self.exchanges.begin_body, self.session, body, format=format, warn=self.warnings.append
            )
            response = await client.post(PATHS[format], json=exchange.body)
            while not response.is_success:
                refusal = find_refusal(response.text, status=response.status_code)
                smaller = await asyncio.to_thread(exchange.shrink, refusal)
                if smaller is None:
                    return response
                exchange = smaller
                response = await client.post(PATHS[format], json=exchange.body)
            await asyncio.to_thread(_archive, exchange, response)
            return response


def _archive(exchange: Exchange, response: httpx.Response) -> None:
    format = exchange.request.format
    if not is_stream(response):
        exchange.archive(read_reply(response.json(), format))
        return
    collector = ReplyCollector(format, is_stream=True)
    collector.feed(response.content)
    exchange.archive(collector.received(), is_cut=collector.is_cut)


def refuse_above(tokens: int, *, stated: int | None = None) -> Callable[[dict[str, Any]], Step]:
    """Return a script that refuses requests above a size, and states a limit: by default the real one."""

    def script(body: dict[str, Any]) -> Step:
        size = len(json.dumps(body)) // 3
        if size > tokens:
            return overflow(requested=size, limit=stated or tokens)
        return "Fine."

    return script


# --- requests ------------------------------------------------------------------------------


class TestARequestThatFits:
    @pytest.mark.variants
    @every_client
    @every_way
    def test_is_sent_as_it_came_and_its_reply_is_archived(
        self, model_server: ScriptedProvider, engine: Engine, format: str, *, stream: bool, is_async: bool
    ) -> None:
        model_server.set_script(["Fine."])
        client = Client(model_server, engine, is_async=is_async)
        body = make_body([system(), user("Hello.")], format, stream=stream)
        client.post(body, format)
        assert model_server.bodies == [body]
        assert [message.text for message in archived(engine)] == ["Hello.", "Fine."]
        assert client.warnings == []

    @every_format
    def test_has_the_same_body_object(self, engine: Engine, format: str) -> None:
        """A caller sees that it can pass the bytes on as they came."""
        body = make_body([system(), user("Hello.")], format)
        exchange = Exchanges().begin_body(engine.session("s"), body, format=format)
        assert exchange.body is body
        assert not exchange.is_changed

    def test_has_a_window_without_a_body_for_frameworks(self, engine: Engine) -> None:
        """Frameworks hand in canonical messages, which follow the rules of pi."""
        exchange = Exchanges().begin(engine.session("s"), ModelRequest(messages=[user("Hello.")], format="pi"))
        assert exchange.window is not None
        assert [message.text for message in exchange.window.messages] == ["Hello."]
        assert exchange.body == {}
        exchange.archive([reply("Fine.")])
        assert [message.text for message in archived(engine)] == ["Hello.", "Fine."]

    @pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
    def test_is_archived_and_not_edited_if_the_provider_has_the_conversation(self, engine: Engine, field: str) -> None:
        body = {**make_body(tool_conversation(24), "openai_responses"), field: "resp_1"}
        exchange = Exchanges(8_000).begin_body(engine.session("s"), body, format="openai_responses")
        assert exchange.body is body
        assert exchange.window is None
        exchange.archive([reply("Fine.")])
        assert archived(engine)[-1].text == "Fine."
        assert exchange.shrink(Numbers()) is None


class TestARequestThatIsTooLong:
    @every_format
    def test_changes_only_the_fields_of_its_window(self, engine: Engine, format: str) -> None:
        body = make_body([*tool_conversation(24), user("Which port?")], format)
        exchange = Exchanges(8_000).begin_body(engine.session("s"), body, format=format)
        list_field = providers.expect_format(format).list_key
        assert exchange.is_changed
        assert len(exchange.body[list_field]) < len(body[list_field])
        assert {**exchange.body, list_field: None} == {**body, list_field: None}
        assert providers.check(exchange.body[list_field], format) == []

    @pytest.mark.parametrize(
        ("format", "prompt"),
        [
            ("anthropic", [{"type": "text", "text": "Be careful.", "cache_control": {"type": "ephemeral"}}]),
            ("gemini", {"role": "system", "parts": [{"text": "Be careful."}]}),
        ],
    )
    def test_keeps_the_form_of_its_system_prompt(self, engine: Engine, format: str, prompt: Any) -> None:
        """The marks of the provider's cache among others."""
        field = SYSTEM_FIELDS[format]
        body = {**make_body([*tool_conversation(24), user("Which port?")], format), field: prompt}
        exchange = Exchanges(8_000).begin_body(engine.session("s"), body, format=format)
        assert exchange.is_changed
        assert exchange.body[field] == prompt

    @every_format
    def test_keeps_as_many_tokens_for_the_reply_as_it_asks_for(self, engine: Engine, format: str) -> None:
        name = {"openai_chat": "max_completion_tokens", "openai_responses": "max_output_tokens"}.get(format)
        body = make_body([user("Hello.")], format)
        body |= {"generationConfig": {"maxOutputTokens": 700}} if format == "gemini" else {name or "max_tokens": 700}
        exchange = Exchanges(16_000).begin_body(engine.session("s"), body, format=format)
        assert exchange.window is not None
        assert exchange.window.report.reserved_tokens == 700

    def test_keeps_the_reserve_of_the_settings_if_it_asks_for_more_than_half(self, engine: Engine) -> None:
        body = {**make_body([user("Hello.")], "anthropic"), "max_tokens": 9_000}
        exchange = Exchanges(16_000).begin_body(engine.session("s"), body, format="anthropic")
        assert exchange.window is not None
        assert exchange.window.report.reserved_tokens == 4_000

    def test_gets_the_limit_of_the_model_that_it_names(self, engine: Engine) -> None:
        request = read_body({**make_body([user("Hi.")], "anthropic"), "model": "claude-3-haiku"}, format="anthropic")
        assert Exchanges().begin(engine.session("s"), request).limit == 200_000


# --- refusals ------------------------------------------------------------------------------


class TestARefusedWindow:
    @pytest.mark.variants
    @every_client
    @every_way
    def test_is_compacted_and_sent_again(
        self, model_server: ScriptedProvider, engine: Engine, format: str, *, stream: bool, is_async: bool
    ) -> None:
        """The client sees only the reply, which is archived; the next request of the conversation fits at once."""
        model_server.set_script(refuse_above(5_000))
        client = Client(model_server, engine, is_async=is_async)
        history = [*tool_conversation(24), user("And now?")]
        assert client.post(make_body(history, format, stream=stream), format).is_success
        first, *_, last = model_server.bodies
        assert len(json.dumps(last)) < len(json.dumps(first))
        assert model_server.check() == []
        assert archived(engine)[-1].text == "Fine."
        assert any(edit.kind == "compacted" for edit in engine.session("s").edits())
        refused = len(model_server.bodies)
        client.post(make_body([*history, reply("Fine."), user("Again?")], format, stream=stream), format)
        assert len(model_server.bodies) == refused + 1

    def test_is_made_smaller_at_most_three_times(self, model_server: ScriptedProvider, engine: Engine) -> None:
        model_server.set_script(lambda _: Raw(400, {"error": {"message": "prompt is too long"}}))
        client = Client(model_server, engine)
        assert client.post(make_body([*tool_conversation(24), user("And now?")], "anthropic"), "anthropic").is_error
        sizes = [len(json.dumps(body)) for body in model_server.bodies]
        assert len(sizes) == 1 + MAX_RETRIES
        assert sizes == sorted(sizes, reverse=True)

    def test_is_not_sent_twice(self, model_server: ScriptedProvider, engine: Engine) -> None:
        """If nothing smaller can be sent, the client gets the provider's error."""
        model_server.set_script(lambda _: overflow())
        client = Client(model_server, engine)
        assert client.post(make_body([user("Hello.")], "openai_chat"), "openai_chat").status_code == 400
        assert len(model_server.bodies) == 1
        later = client.exchanges.begin_body(
            client.session, make_body([user("Hello.")], "openai_chat"), format="openai_chat"
        )
        assert later.max_prompt is None, "a refusal that changes nothing is not remembered"

    @pytest.mark.parametrize(
        "error",
        [
            Raw(429, {"error": {"message": "Rate limit reached: too many tokens per minute"}}),
            Raw(500, {"error": {"message": "Internal error"}}),
            Raw(400, {"error": {"message": "messages: at least one message is required"}}),
        ],
    )
    def test_is_not_confused_with_another_error(
        self, model_server: ScriptedProvider, engine: Engine, error: Raw
    ) -> None:
        model_server.set_script([error])
        client = Client(model_server, engine)
        response = client.post(make_body([*tool_conversation(24), user("And now?")], "anthropic"), "anthropic")
        assert response.status_code == error.status
        assert all(edit.kind != "compacted" for edit in engine.session("s").edits())

    def test_counts_only_for_the_model_that_refused_it(self, model_server: ScriptedProvider, engine: Engine) -> None:
        model_server.set_script(refuse_above(5_000))
        client = Client(model_server, engine)
        body = make_body([*tool_conversation(24), user("And now?")], "anthropic")
        client.post(body, "anthropic")
        session = engine.session("s")
        same = client.exchanges.begin_body(session, body, format="anthropic")
        other = client.exchanges.begin_body(session, {**body, "model": "model-y"}, format="anthropic")
        assert same.max_prompt is not None
        assert other.max_prompt is None

    def test_is_recognised_in_an_exception_of_a_framework(self) -> None:
        class StatusError(Exception):
            def __init__(self, message: str, status_code: Any = None) -> None:
                super().__init__(message)
                self.status_code = status_code

        words = "prompt is too long: 9000 tokens > 8000 maximum"
        assert find_refusal_in(ValueError(words)) == Numbers(limit=8_000, requested=9_000)
        assert find_refusal_in(StatusError(words, 400)) == Numbers(limit=8_000, requested=9_000)
        assert find_refusal_in(StatusError(words, "unknown")) == Numbers(limit=8_000, requested=9_000)
        assert find_refusal_in(StatusError(words, 429)) is None


class TestTheSizeOfTheNextWindow:
    """How far a window shrinks, by what the provider's error says."""

    def test_the_report_names_the_source_of_the_limit(self, engine: Engine) -> None:
        """It is an argument only if the caller gave one."""
        session = engine.session("s")
        request = ModelRequest(messages=[*tool_conversation(24), user("And now?")], format="anthropic", model="gpt-4o")

        def source(exchange: Exchange | None) -> str:
            assert exchange is not None
            assert exchange.window is not None
            return exchange.window.report.limit_source

        exchanges = Exchanges()
        assert source(Exchanges(16_000).begin(session, request)) == "argument"
        assert source(exchanges.begin(session, replace(request, model="house/secret"))) == "default"
        first = exchanges.begin(session, request)
        assert source(first) == "model"
        assert source(first.shrink(Numbers(limit=8_000, requested=16_000))) == "refusal"
        assert source(exchanges.begin(session, request)) == "refusal"

    def shrink(self, engine: Engine, refusal: Numbers, *, limit: int = 16_000) -> tuple[int, Exchange]:
        """Refuse a window; return its tokens and the next exchange."""
        request = ModelRequest(messages=[*tool_conversation(24), user("And now?")], format="anthropic")
        exchange = Exchanges(limit).begin(engine.session("s"), request)
        assert exchange.window is not None
        smaller = exchange.shrink(refusal)
        assert smaller is not None
        return exchange.window.report.total_tokens, smaller

    @pytest.mark.variants
    @pytest.mark.parametrize(
        "refusal",
        [
            Numbers(),
            Numbers(limit=16, requested=9_000),  # no model has such a window
            Numbers(limit=1),
            Numbers(limit=200_000, requested=100),  # would fit
            Numbers(requested=99_999_999),  # not tokens
        ],
        ids=str,
    )
    def test_is_a_fixed_share_if_the_error_has_no_plausible_numbers(self, engine: Engine, refusal: Numbers) -> None:
        sent, smaller = self.shrink(engine, refusal)
        assert smaller.max_prompt == int(SHRINK * sent)
        assert smaller.limit == 16_000
        assert smaller.window is not None
        assert sent / 4 < smaller.window.report.total_tokens < SHRINK * sent

    def test_follows_from_the_limit_that_the_provider_states(self, engine: Engine) -> None:
        """What it may hold in front of the reply shrinks as far as the provider says that the request is over."""
        sent, smaller = self.shrink(engine, Numbers(limit=8_000, requested=16_000))
        assert smaller.limit == 8_000
        assert smaller.max_prompt == int(SHRINK * 8_000 / 16_000 * sent)

    def test_is_in_proportion_if_the_provider_counts_more_than_we_do(self, engine: Engine) -> None:
        sent, smaller = self.shrink(engine, Numbers(limit=16_000, requested=37_000))
        assert smaller.limit == 16_000
        assert smaller.max_prompt == int(SHRINK * 16_000 / 37_000 * sent)

    def test_is_remembered_whatever_the_provider_reports_later(self, engine: Engine) -> None:
        """A provider that counts more reports its usage with the reply. That must not make the window smaller again."""
        _, smaller = self.shrink(engine, Numbers(), limit=32_000)
        assert smaller.window is not None
        usage = Usage(input=2 * smaller.window.report.total_tokens, output=5)
        smaller.archive([Message(role="assistant", parts=reply("Fine.").parts, usage=usage)])
        later = smaller.exchanges.begin(engine.session("s"), smaller.request)
        assert later.window is not None
        report = later.window.report
        assert report.token_scale == pytest.approx(2, abs=0.1)
        assert (report.raw_max_tokens - report.reserved_tokens) / report.token_scale == pytest.approx(
            smaller.max_prompt, rel=0.01
        )


# --- failures ------------------------------------------------------------------------------


class TestAMemoryThatFails:
    @every_format
    def test_leaves_a_window_of_the_newest_messages(
        self, model_server: ScriptedProvider, engine: Engine, format: str
    ) -> None:
        """Also after a refusal."""
        model_server.set_script(refuse_above(5_000))
        client = Client(model_server, engine)
        shutil.rmtree(engine._memory.home)
        assert client.post(make_body([*tool_conversation(24), user("And now?")], format), format).is_success
        assert "And now?" in json.dumps(model_server.bodies[-1])
        assert model_server.check() == []
        assert any("left out until memory works again" in warning for warning in client.warnings)

    def test_passes_a_request_as_it_came_whose_conversation_the_provider_has(self, engine: Engine) -> None:
        """There is nothing to cut from it."""
        body = {**make_body([user("And now?")], "openai_responses"), "previous_response_id": "resp_1"}
        session = engine.session("s")
        shutil.rmtree(engine._memory.home)
        exchange = Exchanges().begin_body(session, body, format="openai_responses")
        assert exchange.body is body
        assert exchange.window is None
        assert exchange.error is not None

    def test_before_the_session_is_known_leaves_one_too(self, engine: Engine) -> None:
        request = read_body(make_body([*tool_conversation(24), user("And now?")], "anthropic"), format="anthropic")
        warnings: list[str] = []
        exchange = Exchanges(14_000).begin_without_memory(
            engine._make_unnamed_session(), request, error=OSError("disk"), reason="disk", warn=warnings.append
        )
        assert exchange.window is not None
        assert not exchange.window.has_memory
        assert "memory failed: disk" in warnings[0]
        smaller = exchange.shrink(Numbers(limit=8_000))
        assert smaller is not None
        assert smaller.window is not None
        assert smaller.window.report.total_tokens < exchange.window.report.total_tokens

    def test_that_is_closed_passes_the_request_as_it_came(self, engine: Engine) -> None:
        session = engine.session("s")
        engine.close()
        warnings: list[str] = []
        body = make_body([user("Hello.")], "anthropic")
        exchange = Exchanges().begin_body(session, body, format="anthropic", warn=warnings.append)
        assert exchange.body is body
        assert exchange.error is not None
        assert warnings[0].startswith("the request passed unchanged: ")
        archived_reply = exchange.archive([reply("Fine.")])
        assert [message.text for message in archived_reply.messages] == ["Fine."]
        assert archived_reply.place is None

    def test_does_not_lose_the_reply(self, engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
        exchange = Exchanges().begin_body(
            engine.session("s"), make_body([user("Hello.")], "anthropic"), format="anthropic"
        )
        shutil.rmtree(engine._memory.home)
        exchange.archive([reply("Fine.")])
        assert "a reply was not archived" in caplog.text

    @every_format
    @pytest.mark.parametrize("messages", ["none", [{"role": 7}], [[]], None])
    def test_a_body_that_cannot_be_read_passes_as_it_came(self, engine: Engine, format: str, messages: Any) -> None:
        body = {providers.expect_format(format).list_key: messages if messages != "none" else 5}
        warnings: list[str] = []
        exchange = Exchanges().begin_body(engine.session("s"), body, format=format, warn=warnings.append)
        assert exchange.body is body
        assert exchange.shrink(Numbers()) is None
        assert len(warnings) == 1

    def test_a_message_that_can_never_fit_passes_as_it_came(self, engine: Engine) -> None:
        """The provider may have a larger window than we know of."""
        body = make_body([user("word " * 50_000)], "anthropic")
        warnings: list[str] = []
        exchange = Exchanges(8_000).begin_body(engine.session("s"), body, format="anthropic", warn=warnings.append)
        assert exchange.body is body
        assert "what must stay in the window" in warnings[0]


# --- summaries -----------------------------------------------------------------------------


class TestTheRequestForASummary:
    @every_format
    def test_keeps_the_fields_about_storage_and_price_of_the_request(self, format: str) -> None:
        body = {**make_body([user("Hello.")], format), "store": False, "service_tier": "flex", "temperature": 1}
        made = make_summary_body(body, [system("Summarise."), user("Hello.")], format=format, max_tokens=700)
        assert {key: made[key] for key in ("model", "store", "service_tier")} == {
            "model": "model-x",
            "store": False,
            "service_tier": "flex",
        }
        assert "temperature" not in made
        assert [message.text for message in providers.read_request(made, format=format)] == ["Summarise.", "Hello."]

    def test_has_the_first_system_block_of_a_client_that_needs_it(self) -> None:
        body = {"model": "m", "system": [{"type": "text", "text": "You are a client."}, {"type": "text", "text": "x"}]}
        made = make_summary_body(body, [system("Summarise."), user("Hello.")], format="anthropic", max_tokens=700)
        assert [block["text"] for block in made["system"]] == ["You are a client.", "Summarise."]
        assert made["max_tokens"] == 700

    def test_does_not_have_a_long_system_prompt_of_the_client(self) -> None:
        body = {"model": "m", "system": [{"type": "text", "text": "word " * 100}]}
        made = make_summary_body(body, [system("Summarise."), user("Hello.")], format="anthropic", max_tokens=700)
        assert made["system"] == "Summarise."


# --- replies -------------------------------------------------------------------------------


class TestAReplyThatBreaksOff:
    @pytest.mark.parametrize("format", STREAMED)
    def test_is_archived_and_not_recalled(self, model_server: ScriptedProvider, engine: Engine, format: str) -> None:
        """The client asks again: half an answer must not come back as a memory."""
        model_server.set_script([Cut(ScriptedReply(text="half of the answer"), after=5, cleanly=True)])
        Client(model_server, engine).post(make_body([user("Hello.")], format, stream=True), format)
        newest = archived(engine)[-1]
        assert newest.role == "assistant"
        assert newest.is_broken
        assert engine.session("s").exclusions().messages == {2}

    @pytest.mark.parametrize("format", STREAMED)
    def test_before_its_text_is_not_archived(self, model_server: ScriptedProvider, engine: Engine, format: str) -> None:
        model_server.set_script([Cut(ScriptedReply(text="half"), after=1, cleanly=True)])
        Client(model_server, engine).post(make_body([user("Hello.")], format, stream=True), format)
        assert [message.text for message in archived(engine)] == ["Hello."]


def test_replies_of_overlapping_requests_follow_their_own_request(engine: Engine) -> None:
    """They may come in any order; a history that repeats one of them adds nothing."""
    exchanges = Exchanges()
    session = engine.session("s")
    histories = {name: [user(f"What is {name}?")] for name in ("one", "two")}
    begun = {
        name: exchanges.begin(session, ModelRequest(messages=history, format="pi"))
        for name, history in histories.items()
    }
    for name, exchange in begun.items():
        exchange.archive([reply("A number.")])
        histories[name] += [reply("A number."), user(f"And after {name}?")]
    for history in histories.values():
        exchanges.begin(session, ModelRequest(messages=history, format="pi"))
    texts = [message.text for message in archived(engine)]
    assert texts.count("A number.") == 2
    assert len(texts) == 6


@every_format
def test_the_usage_of_a_reply_calibrates_the_counter(engine: Engine, format: str) -> None:
    """The next window has the size that the provider counts."""
    session = engine.session("s")
    body = make_body(tool_conversation(20)[:-1], format)
    exchange = Exchanges().begin_body(session, body, format=format)
    assert exchange.window is not None
    usage = Usage(input=2 * exchange.window.report.total_tokens, output=5)
    exchange.archive([Message(role="assistant", parts=reply("Fine.").parts, usage=usage)])
    assert session.token_scale() == pytest.approx(2, abs=0.1)


# --- models of ours ------------------------------------------------------------------------


class TestComplete:
    """The loop of the terminal agent, whose models raise errors."""

    def ask(
        self,
        engine: Engine,
        messages: list[Message],
        model: Scripted,
        *,
        limit: int = 60_000,
        compact: Compact | None = None,
    ) -> Completion:
        """Send a conversation to a model."""
        request = ModelRequest(messages=messages, format=model.provider, model=model.name, tools=[TOOL.to_json()])
        exchange = Exchanges(limit).begin(engine.session("s"), request, compact=compact)
        return complete(exchange, model, tools=[TOOL])

    def test_asks_once_if_the_window_fits(self, engine: Engine) -> None:
        """The window that the model saw is returned with its reply; its tools are counted."""
        model = Scripted(["Hello!"])
        found = self.ask(engine, [user("Hi.")], model)
        assert (found.reply.text, found.overflows) == ("Hello!", 0)
        assert model.prompts[0].messages == found.window.messages
        assert found.window.report.total_tokens > found.window.tokens

    def test_compacts_and_asks_again_after_an_overflow(self, engine: Engine) -> None:
        model = Scripted(lambda _: "Fine.", context_tokens=6_000)
        compacted: list[object] = []
        session = engine.session("s")

        def compact(*, limit: int, reserve: int | None) -> None:
            compacted.append(session.compact(limit=limit, reserve=reserve))

        found = self.ask(engine, tool_conversation(30), model, limit=20_000, compact=compact)
        assert found.overflows == len(compacted) >= 1
        assert count_messages(found.window.messages) <= 6_000

    def test_fits_a_provider_that_counts_three_times_as_much(self, engine: Engine) -> None:
        def count_more(prompt: Prompt) -> Answer:
            counted = 3 * count_messages(prompt.messages)
            if counted > 15_000:
                raise ModelOverflowError("too long", model="m", limit=15_000, requested=counted)
            return "Fine."

        found = self.ask(engine, tool_conversation(30), Scripted(count_more), limit=15_000)
        assert found.overflows == 1
        assert 3 * count_messages(found.window.messages) <= 15_000

    def test_shortens_one_giant_result(self, engine: Engine) -> None:
        """If there is nothing to compact, the largest tool results shrink until they fit."""
        messages = [user("Read it."), reply("", call("c1")), results(answer("c1", "a line of the log\n" * 9_000))]
        found = self.ask(engine, messages, Scripted(lambda _: "Read.", context_tokens=20_000), limit=120_000)
        assert found.reply.text == "Read."
        assert all(edit.kind != "compacted" for edit in engine.session("s").edits())

    def test_gives_up_after_three_smaller_windows_with_the_fix(self, engine: Engine) -> None:
        def refuse(_: Prompt) -> Answer:
            raise ModelOverflowError("too long", model="m", status=400)

        def fail(**_: Any) -> None:
            """Leave the window to trimming, which could continue for longer."""
            raise CompactionError("nothing shorter could be made")

        model = Scripted(refuse)
        with pytest.raises(ModelOverflowError, match=r"4 windows were refused.*/new") as caught:
            self.ask(engine, tool_conversation(60), model, compact=fail)
        assert len(model.prompts) == 1 + MAX_RETRIES
        assert (caught.value.status, caught.value.tries) == (400, MAX_RETRIES)

    def test_does_not_send_what_can_never_fit(self, engine: Engine) -> None:
        model = Scripted(["never"])
        with pytest.raises(ModelOverflowError, match="what must stay in the window"):
            self.ask(engine, [user("word " * 50_000)], model, limit=8_000)
        assert model.prompts == []

    def test_compacts_a_summary_that_is_too_long_for_a_smaller_window(self, engine: Engine) -> None:
        """No trimming may remove it: it was written for a model with more room."""
        decisions = "\n".join(
            f"- item {number} was decided on day {number}, and must be known" for number in range(700)
        )

        def reply_or_summarise(prompt: Prompt) -> Answer:
            return "Fine." if prompt.messages[-1].text.startswith("And now?") else f"## Goal\n{decisions}"

        messages: list[Message] = []
        for turn in range(60):
            messages += [user(f"{turn}: " + "word " * 300), reply("Yes.")]
        messages.append(user("And now?"))
        model = Scripted(reply_or_summarise)
        engine.session("s").compact(messages, limit=60_000, model=model)
        found = self.ask(engine, messages, model, limit=4_000)
        assert found.reply.text == "Fine."
        assert found.window.tokens < 4_000
        assert sum(edit.kind == "compacted" for edit in engine.session("s").edits()) == 2

    def test_trims_a_large_message_before_the_question_without_a_compaction(self, engine: Engine) -> None:
        messages = [user("Here is a text."), reply("Yes?"), user("word " * 40_000), user("What was the first word?")]
        found = self.ask(engine, messages, Scripted(["word"]), limit=16_000)
        assert found.window.tokens < 16_000
        assert all(edit.kind != "compacted" for edit in engine.session("s").edits())

    def test_treats_a_request_that_was_truncated_in_silence_as_an_overflow(self, engine: Engine) -> None:
        """A provider that took more than its window holds has not read all of it."""
        truncated = ScriptedReply(text="Hm.", usage=Usage(input=999_999, output=1))
        found = self.ask(engine, tool_conversation(20), Scripted([truncated, "Fine."]), limit=20_000)
        assert (found.reply.text, found.overflows) == ("Fine.", 1)

    def test_raises_other_errors_as_they_are(self, engine: Engine) -> None:
        def fail(_: Prompt) -> Answer:
            raise ModelBusyError("busy", model="m")

        with pytest.raises(ModelBusyError):
            self.ask(engine, tool_conversation(10), Scripted(fail))
        assert engine.session("s").edits() == ()

    def test_raises_an_overflow_of_what_cannot_be_smaller_as_it_is(self, engine: Engine) -> None:
        error = ModelOverflowError("too long", model="m", status=400)
        with pytest.raises(ModelOverflowError, match=r"^m: too long$") as caught:
            self.ask(engine, [user("Hi.")], Scripted([error]))
        assert caught.value.tries == 0

    def test_stops_if_the_compaction_is_cancelled(self, engine: Engine) -> None:
        def cancel(**_: Any) -> None:
            raise ModelCancelledError("the request was cancelled", model="m")

        with pytest.raises(ModelCancelledError):
            self.ask(engine, tool_conversation(30), Scripted(["Fine."], context_tokens=8_000), compact=cancel)

    def test_continues_with_a_smaller_window_if_the_compaction_fails(self, engine: Engine) -> None:
        def fail(**_: Any) -> None:
            raise CompactionError("nothing shorter could be made")

        found = self.ask(engine, tool_conversation(30), Scripted(["Fine."] * 4, context_tokens=10_000), compact=fail)
        assert found.reply.text == "Fine."
