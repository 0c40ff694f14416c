"""Who asks through the proxy: no client reads or writes the memory of another."""

from __future__ import annotations

import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.messages import ToolCall
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.server.app import create_app
from holdfast.server.upstreams import Upstreams
from holdfast.settings import Archive, Embedding, ModelSettings, ProjectSettings, ServerSettings, Settings, load
from holdfast.store.base import Select
from holdfast.testing.provider import Cut, ScriptedProvider
from support import patient
from support.waiting import PATIENCE, UNHURRIED

from .conftest import OWNER_TOKEN, TOKEN, Running, Start, serve

PATHS = ["messages", "chat/completions", "responses"]
ANN = "sk-ann-3c5f9d1e7b2a4860"
BOB = "sk-bob-91d4e07ac35b2f68"
SECRET = "The replica of the billing database listens on port 5433."
QUESTION = "Which port does the replica of the billing database listen on?"
WORDS = Embedding(provider="none")
PLAIN = Settings(recall=UNHURRIED, embedding=WORDS)
ACROSS = Settings(recall=UNHURRIED, embedding=WORDS, archive=Archive(cross_session=True))


def credential(path: str, key: str) -> dict[str, str]:
    """Return the header in which a client of an API sends its key."""
    if not key:
        return {}
    return {"x-api-key": key} if path == "messages" else {"authorization": f"Bearer {key}"}


def make_body(path: str, *said: str, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """Make a request whose history is these texts, of the user and the model in turn."""
    roles = ("user", "assistant")
    history = [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]
    name = "input" if path == "responses" else "messages"
    limit = {"max_tokens": 100} if path == "messages" else {}
    return {"model": "m", name: history, "stream": stream, **limit, **fields}


def ask(
    server: Running, path: str, *said: str, key: str = ANN, stream: bool = False, body: Any = None, **headers: str
) -> httpx.Response:
    """Send a request with a key, and wait for the whole reply."""
    named = {f"x-holdfast-{name}": value for name, value in headers.items()}
    sent = make_body(path, *said, stream=stream, **(body or {}))
    reply = patient.post(f"{server.url}/v1/{path}", json=sent, headers={**credential(path, key), **named})
    assert reply.status_code == 200, reply.text
    return reply


def session_of(reply: httpx.Response) -> str:
    """Return the session that a reply names."""
    return str(reply.headers["x-holdfast-session"])


def last_request(server: Running) -> str:
    """Return what the provider got last."""
    return json.dumps(server.provider.bodies[-1])


def identity(server: Running, headers: Any, *, query: str = "") -> str:
    """Return who the server takes a request with these headers for."""
    reply = patient.post(f"{server.url}/v1/messages{query}", json=make_body("messages", "hello"), headers=headers)
    return str(reply.headers["x-holdfast-identity"])


every_format = pytest.mark.parametrize("path", PATHS)
streamed_and_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@every_format
@pytest.mark.parametrize(
    "stream", [pytest.param(True, id="stream"), pytest.param(False, id="whole", marks=pytest.mark.nightly)]
)
class TestNoCrossing:
    def test_two_keys_with_the_same_session_name_share_nothing(self, start: Start, path: str, *, stream: bool) -> None:
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            ask(server, path, SECRET, key=ANN, stream=stream, session="s1")
            ask(server, path, QUESTION, key=BOB, stream=stream, session="s1")
            assert "5433" not in last_request(server)
            ask(server, path, QUESTION, key=ANN, stream=stream, session="s1")
            assert "5433" in last_request(server)
            assert {info.id for info in server.engine.sessions()} == {"s1"}
            assert len({info.agent for info in server.engine.sessions()}) == 2

    def test_facts_and_other_sessions_of_a_key_stay_with_it(self, start: Start, path: str, *, stream: bool) -> None:
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            ask(server, path, "We decided to run the billing replica on port 5433.", stream=stream, session="a")
            server.engine.work()
            for key, is_known in ((BOB, False), (ANN, True)):
                ask(server, path, "What did we decide about the billing replica?", key=key, stream=stream, session="b")
                assert ("5433" in last_request(server)) == is_known

    def test_one_cache_key_for_two_users_is_no_session(self, start: Start, path: str, *, stream: bool) -> None:
        """OpenAI documents `prompt_cache_key` as a group for caching."""
        cache = {"prompt_cache_key": "support-bot"}
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            first = ask(server, path, SECRET, "Fine.", "Note it.", stream=stream, body=cache)
            second = ask(server, path, QUESTION, "Fine.", "Now?", stream=stream, body=cache)
            assert "5433" not in last_request(server)
            assert session_of(first) != session_of(second)

    @pytest.mark.parametrize("key", [ANN, BOB], ids=["same-key", "other-key"])
    def test_the_same_first_message_after_a_restart_joins_no_session(
        self, start: Start, path: str, key: str, *, stream: bool
    ) -> None:
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            ask(server, path, "hello", stream=stream)
            known = session_of(ask(server, path, "hello", "Hi.", SECRET, stream=stream))
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            new = ask(server, path, "hello", key=key, stream=stream)
            assert session_of(new) != known
            ask(server, path, "hello", "Hi.", QUESTION, key=key, stream=stream)
            assert "5433" not in last_request(server)

    @pytest.mark.parametrize("turns", [1, 4])
    def test_the_same_first_messages_and_replies_join_no_session(
        self, start: Start, path: str, turns: int, *, stream: bool
    ) -> None:
        """However long the same beginning is: two users of one program may click through the same questions."""
        reply = "Welcome. Tell me what you need. " * 20
        beginning = [text for turn in range(turns) for text in (f"Step {turn}. " + "I agree. " * 40, reply)]
        with start(lambda _: reply, settings=PLAIN) as server:
            for stop in range(1, len(beginning), 2):
                ask(server, path, *beginning[:stop], stream=stream)
            known = session_of(ask(server, path, *beginning, SECRET, stream=stream))
            new = ask(server, path, *beginning, QUESTION, stream=stream)
            assert "5433" not in last_request(server)
            assert session_of(new) != known

    def test_end_users_that_a_program_names_are_kept_apart(self, start: Start, path: str, *, stream: bool) -> None:
        """A program that serves many users with one key names them as its provider asks it to."""
        users: list[dict[str, Any]] = [{"user": "u-1"}, {"user": "u-2"}]
        if path == "messages":
            users = [{"metadata": {"user_id": "u-1"}}, {"metadata": {"user_id": "u-2"}}]
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            ask(server, path, SECRET, stream=stream, session="s1", body=users[0])
            ask(server, path, QUESTION, stream=stream, session="s1", body=users[1])
            assert "5433" not in last_request(server)
            ask(server, path, QUESTION, stream=stream, session="s1", body=users[0])
            assert "5433" in last_request(server)


class TestNames:
    """Names in headers and bodies select within the memory of the caller."""

    @streamed_and_not
    def test_a_response_of_another_key_is_not_continued(self, start: Start, *, stream: bool) -> None:
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            first = session_of(ask(server, "responses", SECRET, stream=stream))
            follow = {"previous_response_id": "resp_1"}
            other = session_of(ask(server, "responses", QUESTION, key=BOB, stream=stream, body=follow))
            assert other != first
            own = session_of(ask(server, "responses", "And then?", stream=stream, body=follow))
            assert own == first
            agents = {info.id: info.agent for info in server.engine.sessions()}
            assert agents[first] != agents[other]

    def test_a_conversation_of_the_provider_is_a_session_of_the_key(self, start: Start) -> None:
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            for key in (ANN, BOB):
                ask(server, "responses", SECRET, key=key, body={"conversation": "conv_1"})
            stored = [(info.id, info.messages) for info in server.engine.sessions()]
            assert stored == [("conv_1", 2), ("conv_1", 2)]

    def test_tokens_are_counted_for_the_window_of_the_caller(self, start: Start) -> None:
        """A request to count with the session of another passes as it came."""
        history = [f"{number} " + "word " * 900 for number in range(41)]
        small = Settings(recall=UNHURRIED, embedding=WORDS, model=ModelSettings(context_tokens=20_000))
        with start(lambda _: "Fine.", settings=small) as server:
            ask(server, "messages", *history, session="s1")
            asked = make_body("messages", *history, "Fine.", "More?")
            for key, is_window in ((BOB, False), (ANN, True)):
                headers = {**credential("messages", key), "x-holdfast-session": "s1"}
                patient.post(f"{server.url}/v1/messages/count_tokens", json=asked, headers=headers)
                assert (server.provider.bodies[-1] != asked) == is_window

    @pytest.mark.parametrize(
        "named",
        [
            {"agent": "main"},
            {"agent": "{other}"},
            {"agent": "MAIN"},
            {"agent": "{other}\u00a0"},
            {"agent": "../{other}"},
            {"agent": ""},
            {"project": "", "agent": "{other}"},
            {"tenant": "local", "agent": "{other}", "session": "S1"},
            {"identity": "{identity}"},
            {"token": ""},
            {"token": "Bearer"},
        ],
        ids=str,
    )
    def test_no_header_of_ours_leads_to_the_memory_of_another(self, start: Start, named: dict[str, str]) -> None:
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            server.engine.session("s1").append([{"role": "user", "content": SECRET}])  # of the owner
            identity = ask(server, "messages", SECRET, session="s1").headers["x-holdfast-identity"]
            texts = {key: text.format(other=f"main@{identity}", identity=identity) for key, text in named.items()}
            headers = {f"x-holdfast-{name}".encode(): text.encode() for name, text in texts.items()}
            raw = {b"x-holdfast-session": b"s1", **headers, b"x-api-key": BOB.encode()}
            body = make_body("messages", QUESTION)
            reply = patient.post(f"{server.url}/v1/messages", json=body, headers=raw)
            assert reply.status_code == 200
            assert "5433" not in last_request(server)

    def test_the_settings_of_a_project_are_for_its_owner(self, start: Start, tmp_path: Path) -> None:
        """A folder that another caller names is only a name."""
        (tmp_path / "holdfast.toml").write_text("[model]\ncontext_tokens = 9000\n")
        projects = ProjectSettings(load(environ={}))
        with start(lambda _: "Fine.", settings=PLAIN, projects=projects) as server:
            for token in (OWNER_TOKEN, ""):
                ask(server, "messages", QUESTION, session="s1", project=str(tmp_path), token=token)
            windows: list[int] = []
            for info in server.engine.sessions():
                windows.append(server.engine._open_session(info.scope).timeline()[0].raw_max_tokens)
            assert sorted(windows) == [9_000, 200_000]


class TestCredentials:
    def test_every_header_with_a_credential_distinguishes_callers(self, start: Start) -> None:
        names = (
            "authorization",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "x-litellm-api-key",
            "helicone-auth",
            "cookie",
            "X-AuthToken",
            "Cf-Access-Jwt-Assertion",
            "X-Client-Sig",
            "AccessToken",
            "x-accesskey",
            "x-api-key-v2",
        )
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            for name in names:
                found = [identity(server, {name: value}) for value in (ANN, BOB, ANN)]
                assert found[0] == found[2] != found[1], name
                assert found[0].startswith("k-"), name

    def test_a_credential_in_the_address_distinguishes_callers(self, start: Start) -> None:
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            for name in ("key", "api_key", "api-key", "apiKey", "access_token"):
                found = [identity(server, {}, query=f"?{name}={value}&beta=true") for value in (ANN, BOB)]
                assert found[0] != found[1], name

    def test_all_credentials_of_a_request_count(self, start: Start) -> None:
        """Only the provider knows which of two it uses."""
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            pairs = [
                {"x-api-key": ANN},
                {"x-api-key": BOB},
                {"x-api-key": ANN, "authorization": f"Bearer {BOB}"},
                {"x-api-key": ANN, "authorization": "Bearer third"},
            ]
            found = [identity(server, pair) for pair in pairs]
            assert len(set(found)) == len(pairs)
            twice = [("authorization", f"Bearer {ANN}"), ("authorization", f"Bearer {BOB}")]
            assert identity(server, twice) not in {found[0], found[1]}

    def test_the_same_key_is_the_same_caller_in_every_api(self, start: Start) -> None:
        """The word before the key, its case and spaces do not count."""
        forms = [
            {"x-api-key": ANN},
            {"authorization": f"Bearer {ANN}"},
            {"authorization": f"bearer   {ANN}"},
            {"X-API-KEY": ANN, "authorization": f"Bearer {ANN}"},
            {"x-api-key": ANN, "idempotency-key": "1", "proxy-authorization": "Basic x", "cookie": "AWSALB=7"},
        ]
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            assert len({identity(server, form) for form in forms}) == 1

    def test_a_key_that_differs_in_case_is_another(self, start: Start) -> None:
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            assert identity(server, {"x-api-key": ANN}) != identity(server, {"x-api-key": ANN.upper()})

    @pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"x-api-key": ""}], ids=str)
    def test_a_request_without_a_credential_has_no_owner(self, start: Start, headers: dict[str, str]) -> None:
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            ask(server, "messages", SECRET, session="s1")
            assert identity(server, headers) == "nobody"
            body = make_body("messages", QUESTION)
            patient.post(f"{server.url}/v1/messages", json=body, headers={**headers, "x-holdfast-session": "s1"})
            assert "5433" not in last_request(server)

    def test_no_credential_is_stored_or_logged(
        self, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither as it is nor as a digest that can be computed without the key of the store."""
        login = "sk-ant-oat01-7d1f0c9b3a5e4826"
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            for key in (ANN, login):
                ask(server, "messages", SECRET, key=key)
            name = identity(server, {"x-api-key": ANN})
        for file in (tmp_path / "memory").iterdir():
            data = file.read_bytes()
            assert ANN.encode() not in data
            assert login.encode() not in data
        assert ANN not in caplog.text
        assert login not in caplog.text
        for algorithm in ("sha256", "sha1", "md5", "blake2b"):
            for text in (ANN, json.dumps([[ANN], ""])):
                assert name.removeprefix("k-") not in hashlib.new(algorithm, text.encode()).hexdigest()

    def test_another_store_gives_the_same_key_another_name(self, tmp_path: Path) -> None:
        found: list[str] = []
        for name in ("one", "two"):
            with (
                ScriptedProvider(lambda _: "Fine.") as provider,
                Engine.open(tmp_path / name, settings=PLAIN) as engine,
                serve(create_app(engine, token=TOKEN, upstreams=Upstreams.parse([provider.url]))) as url,
            ):
                found.append(identity(Running(url, engine, provider), {"x-api-key": ANN}))
        assert found[0] != found[1]

    def test_a_caller_is_the_same_after_a_restart(self, start: Start) -> None:
        found: list[str] = []
        for _ in range(2):
            with start(lambda _: "Fine.", settings=PLAIN) as server:
                found.append(identity(server, {"x-api-key": ANN}))
        assert found[0] == found[1]


def make_jwt(**claims: Any) -> str:
    """Make a token as an issuer of logins does."""
    parts = [{"alg": "none"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "signature"])


class TestOwner:
    @every_format
    def test_the_owner_has_one_memory_whatever_the_key(self, start: Start, path: str) -> None:
        """That of the commands and the hooks, and the provider does not see the token."""
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            server.engine.session("of-a-hook").append([{"role": "user", "content": SECRET}])
            for key in (ANN, BOB, ""):
                reply = ask(server, path, QUESTION, key=key, session=f"new-{key}", token=OWNER_TOKEN)
                assert reply.headers["x-holdfast-identity"] == "owner"
                assert "x-holdfast-warning" not in reply.headers
                assert "5433" in last_request(server)
            assert {info.agent for info in server.engine.sessions()} == {"main"}
            seen = [request.headers for request in server.provider.requests]
            assert not [one for one in seen if any("holdfast" in name.lower() for name in one)]
            assert OWNER_TOKEN not in str(seen)

    @pytest.mark.parametrize("token", ["", "x", f"{OWNER_TOKEN}x", OWNER_TOKEN[:-1], OWNER_TOKEN.upper(), TOKEN])
    def test_a_wrong_token_gives_nothing_and_is_an_error(self, start: Start, token: str) -> None:
        with start(lambda _: "Fine.", settings=ACROSS) as server:
            server.engine.session("of-a-hook").append([{"role": "user", "content": SECRET}])
            reply = ask(server, "messages", QUESTION, token=token)
            assert "5433" not in last_request(server)
            assert "holdfast token" in reply.headers["x-holdfast-warning"]

    @pytest.mark.parametrize("token", [TOKEN, OWNER_TOKEN], ids=["calls", "owner"])
    @every_format
    def test_a_token_of_ours_is_never_sent_as_the_key(self, start: Start, path: str, token: str) -> None:
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            for headers in ({"x-api-key": token}, {"authorization": f"Bearer {token}"}):
                body = make_body(path, QUESTION)
                reply = patient.post(f"{server.url}/v1/{path}", json=body, headers=headers)
                assert reply.status_code == 403
                assert "x-holdfast-token" in reply.text
            assert not server.provider.requests

    def test_one_person_has_one_memory(self, start: Start) -> None:
        settings = Settings(recall=UNHURRIED, embedding=WORDS, server=ServerSettings(identity="one-person"))
        with start(lambda _: "Fine.", settings=settings) as server:
            ask(server, "messages", SECRET, key=ANN, session="s1")
            reply = ask(server, "messages", QUESTION, key=BOB, session="s1")
            assert "5433" in last_request(server)
            assert reply.headers["x-holdfast-identity"] == "owner"

    def test_keys_can_be_joined_by_name(self, start: Start) -> None:
        """Those that the settings name share the owner's memory; others do not."""
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            names = tuple(identity(server, {"x-api-key": key}) for key in (ANN, BOB))
        settings = Settings(recall=UNHURRIED, embedding=WORDS, server=ServerSettings(owner_keys=names))
        with start(lambda _: "Fine.", settings=settings) as server:
            ask(server, "messages", SECRET, key=ANN, session="s1")
            ask(server, "messages", QUESTION, key=BOB, session="s1")
            assert "5433" in last_request(server)
            ask(server, "messages", QUESTION, key="sk-third", session="s1")
            assert "5433" not in last_request(server)

    @pytest.mark.parametrize(
        ("key", "is_replaced"),
        [
            ("sk-ant-oat01-7d1f0c9b3a5e4826", True),
            (make_jwt(sub="me", exp=1_900_000_000), True),
            (make_jwt(sub="me"), False),
            ("eyJhbGciOiJub25lIn0.bm8ganNvbg.x", False),
            (ANN, False),
        ],
        ids=["login", "jwt", "jwt-without-end", "no-jwt", "key"],
    )
    def test_a_login_that_is_replaced_is_named_once(
        self, start: Start, caplog: pytest.LogCaptureFixture, key: str, *, is_replaced: bool
    ) -> None:
        """With what to do about it; every reply says it too."""
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            replies = [ask(server, "messages", "Which port?", key=key) for _ in range(3)]
            owner = ask(server, "messages", "Which port?", key=key, token=OWNER_TOKEN)
        for reply in replies:
            assert ("holdfast token" in reply.headers.get("x-holdfast-warning", "")) == is_replaced
        assert "x-holdfast-warning" not in owner.headers
        assert [("holdfast token" in line) for line in caplog.messages] == [True] * is_replaced


class TestUnnamed:
    """Conversations of clients that name no session."""

    @every_format
    def test_two_first_requests_under_way_at_once_are_two_sessions(self, start: Start, path: str) -> None:
        """The reply to one must not be archived in the conversation of the other."""
        body = make_body(path, "hello", stream=True)
        headers = credential(path, ANN)
        with (
            start([Hang(), "Hi."], settings=PLAIN) as server,
            patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=headers) as first,
        ):
            assert session_of(ask(server, path, "hello")) != session_of(first)

    @every_format
    @pytest.mark.parametrize(
        "stream", [pytest.param(True, id="stream"), pytest.param(False, id="whole", marks=pytest.mark.nightly)]
    )
    def test_a_history_that_grows_is_one_session(self, start: Start, path: str, *, stream: bool) -> None:
        """Also after a restart, and if replies come back without their spaces."""
        names: set[str] = set()
        messages = ["hello"]
        for _ in range(3):
            with start(lambda _: "Hi  there.\n", settings=PLAIN) as server:
                for _ in range(2):  # with and without a restart between
                    names.add(session_of(ask(server, path, *messages, stream=stream)))
                    messages += ["Hi there.", f"question {len(messages)}"]
        assert len(names) == 1

    def test_a_reply_with_thinking_and_calls_is_recognised(self, start: Start) -> None:
        """The client drops the thinking."""
        call = ToolCall(id="c1", name="ls", arguments={})
        message = ScriptedReply(text="Looking.", thinking="Where?", calls=(call,))
        tools = [{"name": "ls", "input_schema": {"type": "object"}}]
        with start([message, "Done."], settings=PLAIN) as server:
            first = session_of(ask(server, "messages", "List it.", body={"tools": tools}))
            asked = make_body("messages", "List it.", tools=tools)
            asked["messages"] += [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Looking."},
                        {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]},
            ]
            reply = patient.post(f"{server.url}/v1/messages", json=asked, headers=credential("messages", ANN))
            assert session_of(reply) == first

    def test_a_reply_with_reasoning_in_its_text_is_recognised(self, start: Start) -> None:
        with start(["<think>Who is it?</think>\n\nHi.", "Fine."], settings=PLAIN) as server:
            first = session_of(ask(server, "chat/completions", "hello"))
            assert session_of(ask(server, "chat/completions", "hello", "Hi.", "more")) == first

    @every_format
    @pytest.mark.parametrize(
        "failure", [ModelBusyError("busy"), Cut(ScriptedReply(text="half of it"), after=3)], ids=type
    )
    def test_a_request_that_failed_is_tried_again_in_its_session(self, start: Start, path: str, failure: Any) -> None:
        with start([failure, "Hi.", "Fine."], settings=PLAIN) as server:
            body = make_body(path, "hello", stream=True)
            with suppress(httpx.HTTPError):
                httpx.post(f"{server.url}/v1/{path}", json=body, headers=credential(path, ANN), timeout=PATIENCE)
            (scope,) = server.engine.sessions()
            assert session_of(ask(server, path, "hello", stream=True)) == scope.id

    @every_format
    def test_an_edited_message_begins_a_session_with_all_before_it(self, start: Start, path: str) -> None:
        """A stranger who began with the same words looks the same."""
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            first = session_of(ask(server, path, "hello", "Hi.", SECRET))
            edited = ask(server, path, "hello", "Hi.", QUESTION)
            assert session_of(edited) != first
            (info,) = [one for one in server.engine.sessions() if one.id == session_of(edited)]
            rows = server.engine._memory.store.read_messages(Select(scope=info.scope))
            assert [row.message.text for row in rows] == ["hello", "Hi.", QUESTION, "Hi."]

    @pytest.mark.parametrize("number", [*range(4)], ids=["edited", "dropped", "summarised", "rewritten"])
    def test_a_history_with_an_id_of_the_provider_continues(self, start: Start, number: int) -> None:
        """No one else can have the id of a tool call. Also after a restart."""
        call = ToolCall(id="call_9fK2mQ7xB4tR8vLp3ZsD6wYn", name="ls", arguments={})
        tools = {"tools": [{"type": "function", "function": {"name": "ls"}}]}
        asked, reply = {"role": "user", "content": "List it."}, ScriptedReply(text="Looking.", calls=(call,))
        function = {"name": "ls", "arguments": "{}"}
        called = {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [{"id": call.id, "type": "function", "function": function}],
        }
        result = {"role": "tool", "tool_call_id": call.id, "content": "a.txt"}
        done, more = {"role": "assistant", "content": "Done."}, {"role": "user", "content": "And then?"}
        summary = {"role": "user", "content": "A summary of what was said."}
        rewritten = {"role": "assistant", "content": "It is done."}
        histories: list[list[dict[str, Any]]] = [
            [asked, called, result, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Why?"}],
            [called, result, done, more],
            [summary, called, result, more],
            [asked, called, result, rewritten, more],
        ]

        def send(history: list[dict[str, Any]]) -> str:
            body = {"model": "m", "messages": history, **tools}
            headers = credential("chat", ANN)
            return session_of(patient.post(f"{server.url}/v1/chat/completions", json=body, headers=headers))

        with start([reply, "Done.", "Fine."], settings=PLAIN) as server:
            grown: list[list[dict[str, Any]]] = [[asked], [asked, called, result], [asked, called, result, done, more]]
            names = {send(history) for history in grown}
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            names.add(send(histories[number]))
        assert len(names) == 1

    @pytest.mark.parametrize("name", ["c1", "get_current_weather_0", "call_00000000000000000000000001"])
    def test_an_id_that_two_conversations_may_have_is_none(self, start: Start, name: str) -> None:
        call = ToolCall(id=name, name="ls", arguments={})
        function = {"name": "ls", "arguments": "{}"}
        tools = {"tools": [{"type": "function", "function": {"name": "ls"}}]}
        called = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": name, "type": "function", "function": function}],
        }
        result = {"role": "tool", "tool_call_id": name, "content": "a.txt"}
        with start([ScriptedReply(calls=(call,)), "Fine.", "Fine."], settings=PLAIN) as server:
            first = session_of(ask(server, "chat/completions", SECRET, body=tools))
            body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}, called, result], **tools}
            headers = credential("chat", ANN)
            other = patient.post(f"{server.url}/v1/chat/completions", json=body, headers=headers)
            assert session_of(other) != first

    def test_a_plain_history_without_its_beginning_is_a_new_session(self, start: Start) -> None:
        """Its end may be that of two conversations."""
        ending = [f"{number} " + f"word{number} " * 40 for number in range(7)]
        with start(lambda _: "Noted.", settings=PLAIN) as server:
            known = {session_of(ask(server, "messages", name, "Noted.", *ending)) for name in ("Ann", "Bob")}
            shorter = session_of(ask(server, "messages", *ending, "Noted.", "Who am I?"))
            assert len({*known, shorter}) == 3

    def test_a_reply_that_the_client_rewrites_is_not_recognised(self, start: Start) -> None:
        """The same request of another may have got that reply."""
        with start(lambda _: "Hi Ann.", settings=PLAIN) as server:
            first = session_of(ask(server, "messages", "hello"))
            assert session_of(ask(server, "messages", "hello", "Hi Bob.", "more")) != first

    def test_a_conversation_that_is_named_later_is_continued_by_name_alone(self, start: Start) -> None:
        """What was added by name is not in a history that shares its beginning."""
        with start(lambda _: "Hi.", settings=ACROSS) as server:
            name = session_of(ask(server, "messages", "hello"))
            ask(server, "messages", "hello", "Hi.", SECRET, session=name)
            other = ask(server, "messages", "hello", "Hi.", QUESTION)
            assert session_of(other) != name

    def test_a_response_chain_is_not_continued_by_a_history(self, start: Start) -> None:
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            first = session_of(ask(server, "responses", "hello"))
            follow = {"previous_response_id": "resp_1"}
            assert session_of(ask(server, "responses", SECRET, body=follow)) == first
            other = ask(server, "responses", "hello", "Hi.", QUESTION)
            assert session_of(other) != first
            assert "5433" not in last_request(server)

    def test_a_request_for_a_summary_does_not_split_a_conversation(self, start: Start) -> None:
        asked = "Your task is to create a detailed summary of the conversation so far."
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            first = session_of(ask(server, "messages", "hello"))
            assert session_of(ask(server, "messages", "hello", "Hi.", asked)) == first
            assert session_of(ask(server, "messages", "hello", "Hi.", "more")) == first

    def test_a_session_that_was_forgotten_is_not_continued(self, start: Start) -> None:
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            first = session_of(ask(server, "messages", "hello"))
            (info,) = server.engine.sessions()
            server.engine._open_session(info.scope).forget()
            assert session_of(ask(server, "messages", "hello", "Hi.", "more")) != first

    def test_two_servers_with_one_store_see_what_the_other_did(self, tmp_path: Path) -> None:
        """A conversation continues at either; what one has added is not missing at the other."""
        with ScriptedProvider(lambda _: "Hi.") as provider, ExitStack() as stack:
            servers: list[Running] = []
            for _ in range(2):
                engine = stack.enter_context(Engine.open(tmp_path / "memory", settings=PLAIN))
                app = create_app(engine, token=TOKEN, upstreams=Upstreams.parse([provider.url]))
                servers.append(Running(stack.enter_context(serve(app)), engine, provider))
            first = session_of(ask(servers[0], "messages", "hello"))
            assert session_of(ask(servers[1], "messages", "hello", "Hi.", SECRET)) == first
            stranger = ask(servers[0], "messages", "hello", "Hi.", QUESTION)
            assert session_of(stranger) != first
            assert "5433" not in last_request(servers[0])
            assert session_of(ask(servers[0], "messages", "hello", "Hi.", SECRET, "Hi.", "more")) == first


@every_format
class TestRepeated:
    """The same request again: nothing tells a client that repeats it from another with the same key."""

    def test_in_a_session_with_a_name_it_is_archived_once(self, start: Start, path: str) -> None:
        """At once, after an error, after a reply that broke off, after a reply, and after a restart."""
        have_come = Barrier(8, timeout=PATIENCE)

        def answer(_: dict[str, Any]) -> str:
            have_come.wait()
            return "Hi."

        with start(answer, settings=PLAIN) as server, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: ask(server, path, "hello", session="s1"), range(8)))
        script = [ModelBusyError("busy"), Cut(ScriptedReply(text="Hi."), after=1), "Hi.", "Hi."]
        with start(script, settings=PLAIN) as server:
            body = make_body(path, "hello", stream=True)
            headers = {**credential(path, ANN), "x-holdfast-session": "s1"}
            for _ in script:
                with suppress(httpx.HTTPError):
                    patient.post(f"{server.url}/v1/{path}", json=body, headers=headers)
            assert [(info.id, info.messages) for info in server.engine.sessions()] == [("s1", 2)]

    def test_without_a_name_it_is_in_a_separate_session(self, start: Start, path: str) -> None:
        """Each has everything that was sent, and none has what another one adds."""
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            names = [session_of(ask(server, path, "hello")) for _ in range(2)]
            names.append(session_of(ask(server, path, "hello", "Hi.", SECRET)))
            names.append(session_of(ask(server, path, "hello", "Hi.", QUESTION)))
            assert len(set(names)) == 2
            assert names[2] != names[3]
            assert [info.messages for info in server.engine.sessions()] == [4, 4]


def test_sessions_of_the_last_version_stay_with_the_owner(start: Start) -> None:
    """It stored the proxy's sessions under `main`: the owner reads and continues them, others do not."""
    with start(lambda _: "Fine.", settings=PLAIN) as server:
        server.engine.session("s1").append([{"role": "user", "content": SECRET}])
        ask(server, "messages", QUESTION, session="s1")
        assert "5433" not in last_request(server)
        ask(server, "messages", QUESTION, session="s1", token=OWNER_TOKEN)
        assert "5433" in last_request(server)
