"""Several requests of one session under way at once: each message is archived once, whichever reply comes first."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

from holdfast import Engine, Settings
from holdfast.models.scripted import ScriptedReply
from holdfast.server.rpc import Rpc
from support import patient

from .conftest import OWNER, TOKEN, Start

Talk = list[dict[str, Any]]

HEADERS = {"session-id": "s1", **OWNER}

TALK: Talk = [{"role": "user", "content": "Look at the importer."}, {"role": "assistant", "content": "It is fine."}]
ASKED = [{"role": "user", "content": f"Question {name}."} for name in "AB"]
REPLIES = [{"role": "assistant", "content": f"Reply {name}."} for name in "AB"]


def archived(engine: Engine) -> Counter[str]:
    """Count the archived messages of the session by their text."""
    return Counter(row.message.text for row in engine.session("s1").messages())


def texts(*talks: Talk) -> Counter[str]:
    """Count messages by their text."""
    return Counter(message["content"] for conversation in talks for message in conversation)


class TestProxy:
    def test_the_reply_to_the_first_request_comes_last(self, start: Start) -> None:
        """A client asks twice at once, and sends both replies back in its next requests."""
        has_both, has_second = Barrier(2, timeout=60), Event()

        def answer(body: dict[str, Any]) -> ScriptedReply | str:
            asked = body["messages"][-1]["content"]
            if asked.startswith("Question"):
                has_both.wait()
            if asked == "Question A.":
                assert has_second.wait(60)
            return "Fine." if asked == "Go on." else asked.replace("Question", "Reply")

        def ask(url: str, *messages: dict[str, Any]) -> None:
            body = {"model": "m", "messages": [*TALK, *messages]}
            patient.post(f"{url}/v1/chat/completions", json=body, headers=HEADERS).raise_for_status()

        more = {"role": "user", "content": "Go on."}
        with start(answer) as server, ThreadPoolExecutor(1) as pool:
            first = pool.submit(ask, server.url, ASKED[0])
            ask(server.url, ASKED[1])
            has_second.set()
            first.result()
            for asked, reply in zip(ASKED, REPLIES, strict=True):
                ask(server.url, asked, reply, more)
            found = archived(server.engine)
        assert found == texts(TALK, ASKED, REPLIES) + Counter({"Go on.": 2, "Fine.": 2})

    def test_a_client_repeats_its_request(self, start: Start) -> None:
        """Both attempts are answered, and the conversation has gone on before the first reply comes."""
        is_first, has_gone_on = Event(), Event()

        def answer(body: dict[str, Any]) -> str:
            if body["messages"][-1] == ASKED[0] and not is_first.is_set():
                is_first.set()
                assert has_gone_on.wait(60)
            return "Reply A." if body["messages"][-1] == ASKED[0] else "Fine."

        def ask(url: str, *messages: dict[str, Any]) -> None:
            body = {"model": "m", "messages": [*TALK, *messages]}
            patient.post(f"{url}/v1/chat/completions", json=body, headers=HEADERS).raise_for_status()

        with start(answer) as server, ThreadPoolExecutor(1) as pool:
            first = pool.submit(ask, server.url, ASKED[0])
            assert is_first.wait(60)
            ask(server.url, ASKED[0])
            ask(server.url, ASKED[0], REPLIES[0], ASKED[1])
            has_gone_on.set()
            first.result()
            assert archived(server.engine) == texts(TALK, ASKED, REPLIES[:1]) + Counter(["Fine."])


class TestRpc:
    def test_two_clients_go_through_one_conversation(self, start: Start) -> None:
        """The second client is always a step behind, and neither says which request a reply answers."""
        conversation = [
            {"role": role, "content": f"{name} {number}."}
            for number in range(6)
            for role, name in (("user", "Step"), ("assistant", "Done with"))
        ]

        def call(url: str, method: str, **params: Any) -> Any:
            body = {"id": 1, "method": method, "params": {"session": "s1", **params}}
            headers = {"authorization": f"Bearer {TOKEN}"}
            return patient.post(f"{url}/holdfast/rpc", json=body, headers=headers).json()["result"]

        with start([]) as server:
            for stop in range(1, len(conversation), 2):
                call(server.url, "assemble", messages=conversation[:stop])
                call(server.url, "assemble", messages=conversation[:stop])
                call(server.url, "append", messages=conversation[stop : stop + 1])
                call(server.url, "assemble", messages=conversation[: stop + 2])
                call(server.url, "append", messages=conversation[stop : stop + 1])
            assert archived(server.engine) == texts(conversation)

    def test_a_call_names_the_request_that_a_reply_answers(self, tmp_path: Path) -> None:
        """Also one that was made before the server was started again. The replies have the same words."""
        reply = {"role": "assistant", "content": "Done."}

        def call(engine: Engine, method: str, **params: Any) -> Any:
            line = json.dumps({"id": 1, "method": method, "params": {"session": "s1", **params}})
            return json.loads(Rpc(engine).answer(line))["result"]

        with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
            places = [call(engine, "assemble", messages=[*TALK, asked])["place"] for asked in ASKED]
        with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
            for place in (*places, *places):
                call(engine, "append", messages=[reply], after=place)
            for asked in ASKED:
                call(engine, "assemble", messages=[*TALK, asked, reply])
            assert archived(engine) == texts(TALK, ASKED, [reply, reply])
