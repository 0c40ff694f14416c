"""A conversation without a name stays one session, and each of its messages is archived once, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import httpx2 as httpx
import pytest

import patient
from holdfast import Engine
from holdfast.errors import ModelBusyError
from holdfast.models.scripted import Hang, Said
from holdfast.server.app import create_app
from holdfast.server.proxy import Upstreams
from holdfast.store.base import Select
from holdfast.testing.provider import Cut, ScriptedProvider
from waiting import PATIENCE, until

from .conftest import TOKEN, Running, Start, serve
from .test_identity import ANN, BOB, PLAIN, ask, credential, every_format, make_body, session_of, streamed_and_not


def sizes(engine: Engine) -> list[int]:
    """Return the number of messages of each session."""
    return sorted(engine.sessions().values())


def texts(engine: Engine) -> list[str]:
    """Return the texts of the only session."""
    (scope,) = engine.sessions()
    return [row.message.text for row in engine.memory.store.read_messages(Select(scope=scope))]


def fail(server: Running, path: str, *said: str, body: Any = None) -> None:
    """Send a request that fails, or whose reply breaks off."""
    sent = make_body(path, *said, stream=True, **(body or {}))
    with suppress(httpx.HTTPError):
        patient.post(f"{server.url}/v1/{path}", json=sent, headers=credential(path, ANN))


@contextmanager
def streaming(server: Running, path: str, *said: str, until_text: str) -> Iterator[str]:
    """Send a request, read its reply up to a text, and yield its session while the rest has not come."""
    body = make_body(path, *said, stream=True)
    with patient.stream("POST", f"{server.url}/v1/{path}", json=body, headers=credential(path, ANN)) as reply:
        for line in reply.iter_lines():
            if until_text in line:
                break
        yield session_of(reply)


@contextmanager
def two_servers(folder: Path, script: Any) -> Iterator[list[Running]]:
    """Run two servers with one store."""
    with ScriptedProvider(script) as provider, ExitStack() as stack:
        servers: list[Running] = []
        for _ in range(2):
            engine = stack.enter_context(Engine.open(folder, settings=PLAIN))
            app = create_app(engine, token=TOKEN, upstreams=Upstreams.parse([provider.url]))
            servers.append(Running(stack.enter_context(serve(app)), engine, provider))
        yield servers


@every_format
class TestHistories:
    def test_the_next_request_comes_before_the_reply_has_ended(self, start: Start, path: str) -> None:
        is_over = Event()
        script = [Cut(Said(text="Hi there.\n"), after=6, cleanly=True, when=is_over), "Fine.", "Good."]
        with start(script, settings=PLAIN) as server:
            with streaming(server, path, "hello", until_text="there"):
                ask(server, path, "hello", "Hi there.", "more")
                is_over.set()
            ask(server, path, "hello", "Hi there.", "more", "Fine.", "last")
            until(lambda: sizes(server.engine) == [6])
            assert [text.strip() for text in texts(server.engine)].count("Hi there.") == 1

    def test_a_client_leaves_in_the_middle_and_asks_again(self, start: Start, path: str) -> None:
        is_over = Event()
        script = ["Hi.", Cut(Said(text="half of it"), after=4, when=is_over), "Fine.", "Good."]
        with start(script, settings=PLAIN) as server:
            ask(server, path, "hello")
            with streaming(server, path, "hello", "Hi.", "more", until_text="half"):
                pass
            ask(server, path, "hello", "Hi.", "more")
            is_over.set()
            ask(server, path, "hello", "Hi.", "more", "Fine.", "last")
            assert len(server.engine.sessions()) == 1

    def test_a_client_gives_up_before_the_reply_begins(self, start: Start, path: str) -> None:
        with start([Hang(), "Fine.", "Good."], settings=PLAIN) as server, ThreadPoolExecutor(1) as pool:
            body = make_body(path, "hello")
            given_up = pool.submit(
                httpx.post, f"{server.url}/v1/{path}", json=body, headers=credential(path, ANN), timeout=1.0
            )
            until(lambda: server.provider.requests)
            ask(server, path, "hello")
            with suppress(httpx.HTTPError):
                given_up.result()
            ask(server, path, "hello", "Fine.", "more")
            assert texts(server.engine) == ["hello", "Fine.", "more", "Good."]

    @streamed_and_not
    @pytest.mark.parametrize("count", [4, 8])
    def test_the_same_request_several_times_at_once(self, start: Start, path: str, count: int, *, stream: bool) -> None:
        have_come = Barrier(count, timeout=PATIENCE)

        def answer(body: dict[str, Any]) -> str:
            if "more" in str(body):
                return "Fine."
            have_come.wait()
            return "Hi."

        with start(answer, settings=PLAIN) as server, ThreadPoolExecutor(count) as pool:
            names = set(pool.map(lambda _: session_of(ask(server, path, "hello", stream=stream)), range(count)))
            names.add(session_of(ask(server, path, "hello", "Hi.", "more", stream=stream)))
            assert len(names) == 1
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    @pytest.mark.parametrize("failure", [ModelBusyError("busy"), Cut(Said(text="half of it"), after=3)], ids=type)
    def test_a_request_that_failed_is_repeated_after_a_restart(self, start: Start, path: str, failure: Any) -> None:
        with start(["Hi.", failure], settings=PLAIN) as server:
            first = session_of(ask(server, path, "hello"))
            fail(server, path, "hello", "Hi.", "more")
        with start(["Fine.", "Good."], settings=PLAIN) as server:
            assert session_of(ask(server, path, "hello", "Hi.", "more")) == first
            assert session_of(ask(server, path, "hello", "Hi.", "more", "Fine.", "last")) == first

    def test_a_request_under_way_is_known_to_another_server(self, tmp_path: Path, path: str) -> None:
        """So it is known after the process was killed."""
        body = make_body(path, "hello", stream=True)
        with two_servers(tmp_path / "memory", [Hang(), "Hi.", "Fine."]) as (one, other):
            headers = credential(path, ANN)
            with patient.stream("POST", f"{one.url}/v1/{path}", json=body, headers=headers) as waiting:
                first = session_of(waiting)
                assert session_of(ask(other, path, "hello")) == first
                assert session_of(ask(other, path, "hello", "Hi.", "more")) == first
            assert texts(other.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_a_request_is_repeated_after_its_reply(self, start: Start, path: str) -> None:
        """The conversation goes on from either reply."""
        for chosen in ("One.", "Two."):
            key = f"sk-{chosen}"
            with start(["Hi.", "One.", "Two.", "Fine."], settings=PLAIN) as server:
                names = {session_of(ask(server, path, "hello", key=key))}
                for _ in range(2):
                    names.add(session_of(ask(server, path, "hello", "Hi.", "more", key=key)))
                names.add(session_of(ask(server, path, "hello", "Hi.", "more", chosen, "last", key=key)))
                assert len(names) == 1
                (size,) = [count for scope, count in server.engine.sessions().items() if scope.session in names]
                assert size == 7

    def test_conversations_that_differ_are_kept_apart(self, start: Start, path: str) -> None:
        """Their first requests are the same, and so are the replies."""
        with start(lambda _: "Hi.", settings=PLAIN) as server:
            for _ in range(2):
                ask(server, path, "hello")
            cats = {session_of(ask(server, path, "hello", "Hi.", "about cats"))}
            dogs = {session_of(ask(server, path, "hello", "Hi.", "about dogs"))}
            cats.add(session_of(ask(server, path, "hello", "Hi.", "about cats", "Hi.", "more cats")))
            dogs.add(session_of(ask(server, path, "hello", "Hi.", "about dogs", "Hi.", "more dogs")))
            assert len(cats) == len(dogs) == 1
            assert cats != dogs
            assert sizes(server.engine) == [6, 6]

    def test_the_request_of_another_caller_is_another_conversation(self, start: Start, path: str) -> None:
        with start([ModelBusyError("busy"), "Hi."], settings=PLAIN) as server:
            fail(server, path, "hello")
            ask(server, path, "hello", key=BOB)
            assert sizes(server.engine) == [1, 2]


BUSY = ModelBusyError("busy")


class TestResponses:
    """Requests of which the provider has the earlier messages."""

    @pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
    def test_a_request_after_a_response_is_repeated(self, start: Start, *, is_restarted: bool) -> None:
        follow = {"previous_response_id": "resp_1"}
        with start(["Hi.", BUSY, BUSY, "Fine.", "Fine."], settings=PLAIN) as server:
            ask(server, "responses", "hello")
            for _ in range(2):
                fail(server, "responses", "more", body=follow)
            if not is_restarted:
                ask(server, "responses", "more", body=follow)
        with start(["Fine."], settings=PLAIN) as server:
            ask(server, "responses", "more", body=follow)
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_a_request_after_a_response_several_times_at_once(self, start: Start) -> None:
        have_come = Barrier(4, timeout=PATIENCE)

        def answer(body: dict[str, Any]) -> str:
            if "previous_response_id" not in body:
                return "Hi."
            have_come.wait()
            return "Fine."

        with start(answer, settings=PLAIN) as server, ThreadPoolExecutor(4) as pool:
            ask(server, "responses", "hello")
            follow = {"previous_response_id": "resp_1"}
            list(pool.map(lambda _: ask(server, "responses", "more", body=follow), range(4)))
            assert texts(server.engine) == ["hello", "Hi.", "more", "Fine."]

    def test_the_same_words_after_every_response(self, start: Start) -> None:
        """They are as many messages."""
        with start(lambda _: "ok", settings=PLAIN) as server:
            ask(server, "responses", "ok")
            for number in range(1, 5):
                ask(server, "responses", "ok", body={"previous_response_id": f"resp_{number}"})
            assert texts(server.engine) == ["ok"] * 10

    @pytest.mark.parametrize("failed", [0, 1, 2])
    def test_a_request_of_a_conversation_is_repeated(self, start: Start, failed: int) -> None:
        """The provider keeps the conversation; the same words after a reply are another message."""
        script: list[Any] = ["ok", "ok", "ok"]
        script.insert(failed, BUSY)
        named = {"conversation": "conv_1"}
        with start(script, settings=PLAIN) as server:
            for step in script:
                if step is BUSY:
                    fail(server, "responses", "ok", body=named)
                else:
                    ask(server, "responses", "ok", body=named)
            assert texts(server.engine) == ["ok"] * 6
