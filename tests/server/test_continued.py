"""Requests of which the provider has the earlier messages: however often one is sent, it is archived once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.models.scripted import ScriptedReply
from holdfast.server.app import create_app
from holdfast.server.conversations import RESPONSE
from holdfast.server.upstreams import Upstreams
from holdfast.store.base import Select
from holdfast.testing.provider import Cut, ScriptedProvider
from support import patient
from support.waiting import PATIENCE, until

from .conftest import TOKEN, Running, Start, serve
from .test_identity import ANN, BOB, PLAIN, ask, credential, make_body, session_of, streamed_and_not

PATH = "responses"
BUSY = ModelBusyError("busy")
FOLLOW = {"previous_response_id": "resp_1"}
NAMED = {"conversation": "conv_1"}


def texts(engine: Engine) -> list[str]:
    """Return the texts of the only session."""
    (info,) = engine.sessions()
    return [row.message.text.strip() for row in engine._memory.store.read_messages(Select(scope=info.scope))]


def count_responses(engine: Engine) -> int:
    """Count the stored places of responses of the only session."""
    (info,) = engine.sessions()
    return len(engine._memory.store.read_records(Select(scope=info.scope), kind=RESPONSE))


def fail(server: Running, *said: str, body: dict[str, Any]) -> None:
    """Send a request that fails, or whose reply breaks off."""
    sent = make_body(PATH, *said, stream=True, **body)
    with suppress(httpx.HTTPError):
        patient.post(f"{server.url}/v1/{PATH}", json=sent, headers=credential(PATH, ANN))


class TestAfterAResponse:
    @pytest.mark.variants
    @streamed_and_not
    @pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
    def test_a_request_is_repeated(self, start: Start, *, is_restarted: bool, stream: bool) -> None:
        with start(["Hi.", BUSY, BUSY, "Fine.", "Fine."], settings=PLAIN) as server:
            ask(server, PATH, "hello", stream=stream)
            for _ in range(2):
                fail(server, "more", body=FOLLOW)
            if not is_restarted:
                ask(server, PATH, "more", body=FOLLOW, stream=stream)
        with start(["Fine."], settings=PLAIN) as server:
            ask(server, PATH, "more", body=FOLLOW, stream=stream)
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_a_request_is_sent_several_times_at_once(self, start: Start) -> None:
        have_come = Barrier(4, timeout=PATIENCE)

        def answer(body: dict[str, Any]) -> str:
            if "previous_response_id" not in body:
                return "Hi."
            have_come.wait()
            return "Fine."

        with start(answer, settings=PLAIN) as server, ThreadPoolExecutor(4) as pool:
            ask(server, PATH, "hello")
            list(pool.map(lambda _: ask(server, PATH, "more", body=FOLLOW), range(4)))
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_the_same_words_after_every_response_are_as_many_messages(self, start: Start) -> None:
        with start(lambda _: "ok", settings=PLAIN) as server:
            ask(server, PATH, "ok")
            for number in range(1, 5):
                ask(server, PATH, "ok", body={"previous_response_id": f"resp_{number}"})
            assert texts(server.engine) == ["ok"] * 10

    def test_two_requests_after_one_response_are_two_messages(self, start: Start) -> None:
        """A client may continue from an earlier response."""
        with start(lambda _: "Fine.", settings=PLAIN) as server:
            ask(server, PATH, "hello")
            for text in ("cats", "dogs"):
                ask(server, PATH, text, body=FOLLOW)
            assert texts(server.engine) == ["hello", "Fine.", "cats", "Fine.", "dogs", "Fine."]

    def test_a_response_whose_stream_the_client_left_is_continued(self, start: Start) -> None:
        """Its id is in the first event."""
        is_over = Event()
        with start([Cut(ScriptedReply(text="Hi."), after=5, when=is_over), "Fine."], settings=PLAIN) as server:
            body = make_body(PATH, "hello", stream=True)
            headers = credential(PATH, ANN)
            with patient.stream("POST", f"{server.url}/v1/{PATH}", json=body, headers=headers) as reply:
                for line in reply.iter_lines():
                    if "output_item.done" in line:
                        break
                first = session_of(reply)
            until(lambda: texts(server.engine) == ["hello", "Hi."])
            until(lambda: count_responses(server.engine) > 0)  # stored after the reply
            is_over.set()
            assert session_of(ask(server, PATH, "more", body=FOLLOW)) == first
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_another_server_with_the_same_store_finds_the_response(self, tmp_path: Path) -> None:
        with ScriptedProvider(lambda _: "Fine.") as provider, ExitStack() as stack:
            servers: list[Running] = []
            for _ in range(2):
                engine = stack.enter_context(Engine.open(tmp_path / "memory", settings=PLAIN))
                app = create_app(engine, token=TOKEN, upstreams=Upstreams.parse([provider.url]))
                servers.append(Running(stack.enter_context(serve(app)), engine, provider))
            first = session_of(ask(servers[0], PATH, "hello"))
            assert session_of(ask(servers[1], PATH, "more", body=FOLLOW)) == first

    def test_a_response_of_another_key_is_unknown_after_a_restart(self, start: Start) -> None:
        with start(["Hi."], settings=PLAIN) as server:
            first = session_of(ask(server, PATH, "hello"))
        with start(["Fine."], settings=PLAIN) as server:
            assert session_of(ask(server, PATH, "more", key=BOB, body=FOLLOW)) != first

    def test_a_response_of_a_session_that_was_forgotten_is_unknown(self, start: Start) -> None:
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            first = session_of(ask(server, PATH, "hello"))
            (info,) = server.engine.sessions()
            server.engine._open_session(info.scope).forget()
            assert session_of(ask(server, PATH, "more", body=FOLLOW)) != first

    def test_no_id_of_a_response_is_stored(self, start: Start, tmp_path: Path) -> None:
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            ask(server, PATH, "hello")
        for file in (tmp_path / "memory").iterdir():
            assert b"resp_1" not in file.read_bytes()


class TestInAConversation:
    """The provider keeps the messages of a conversation."""

    @pytest.mark.parametrize("failed", [0, 1, 2])
    def test_a_request_is_repeated(self, start: Start, failed: int) -> None:
        """The same words after a reply are another message."""
        script: list[Any] = ["ok", "ok", "ok"]
        script.insert(failed, BUSY)
        with start(script, settings=PLAIN) as server:
            for step in script:
                if step is BUSY:
                    fail(server, "ok", body=NAMED)
                else:
                    ask(server, PATH, "ok", body=NAMED)
            assert texts(server.engine) == ["ok"] * 6

    @pytest.mark.parametrize("failures", [1, 3])
    def test_a_request_is_repeated_after_a_restart(self, start: Start, failures: int) -> None:
        with start(["Hi.", *[BUSY] * failures], settings=PLAIN) as server:
            ask(server, PATH, "hello", body=NAMED)
            for _ in range(failures):
                fail(server, "more", body=NAMED)
        with start(["Fine."], settings=PLAIN) as server:
            ask(server, PATH, "more", body=NAMED)
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_a_reply_breaks_off_and_the_request_is_repeated(self, start: Start) -> None:
        script = ["Hi.", Cut(ScriptedReply(text="half of it"), after=3), "Fine."]
        with start(script, settings=PLAIN) as server:
            ask(server, PATH, "hello", body=NAMED)
            fail(server, "more", body=NAMED)
            ask(server, PATH, "more", body=NAMED)
            assert texts(server.engine).count("more") == 1
