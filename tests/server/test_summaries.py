"""Compactions through the proxy: those that hosts ask for, and those after an overflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from holdfast.models.scripted import ScriptedReply
from holdfast.server.summaries import complete_body, complete_stream
from holdfast.testing.provider import Events, Raw, Wire, wire_of_path
from support import patient
from support.lazy import Lazy
from support.waiting import PATIENCE
from support.wrong_values import change_each_value

from .conftest import OWNER, Running, Start
from .test_proxy import LS, MODEL, SMALL, anthropic, texts

if TYPE_CHECKING:
    import openai
else:
    openai = Lazy("openai")

ASKED = {
    "claude": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\n"
    "Your task is to create a detailed summary of the conversation so far.",
    "codex": "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another LLM.",
    "opencode": "Provide a detailed prompt for continuing our conversation above.",
}
WIRES = [wire for path in ("messages", "chat/completions", "responses") if (wire := wire_of_path(f"/v1/{path}"))]
USELESS = "We worked on several things."
HISTORY = [
    {"role": "user", "content": "Deploy commit 4f9c2ab7e1 to /srv/billing/app.toml and tell me the port."},
    {"role": "assistant", "content": "Deployed 4f9c2ab7e1; it listens on port 5433. " + "More words about it. " * 200},
]


def ask_summary(server: Running, path: str, instruction: str, *, stream: bool, **headers: str) -> httpx.Response:
    """Send a request for a summary as a host does."""
    key = "input" if path == "responses" else "messages"
    body: dict[str, Any] = {"model": MODEL, key: [*HISTORY, {"role": "user", "content": instruction}], "stream": stream}
    body |= {"max_tokens": 500, "tools": [LS]} if path == "messages" else {}
    return httpx.post(
        f"{server.url}/v1/{path}", json=body, headers={"session-id": "s1", **OWNER, **headers}, timeout=PATIENCE
    )


class TestHosts:
    @pytest.mark.parametrize(("host", "path"), [("claude", "messages"), ("opencode", "chat/completions")])
    @pytest.mark.parametrize("stream", [True, False])
    def test_a_useless_summary_is_completed(self, start: Start, host: str, path: str, *, stream: bool) -> None:
        with start([USELESS]) as server:
            reply = ask_summary(server, path, ASKED[host], stream=stream)
            assert "4f9c2ab7e1" in reply.text
            assert server.provider.bodies[0]["messages"][:2] == HISTORY  # without a block of ours
            assert USELESS not in texts(server.engine)
            found = server.engine.session("s1").search("detailed summary prompt conversation checkpoint")
            assert not [hit for hit in found if ASKED[host][-40:] in hit.text]

    def test_the_sdk_of_codex_reads_a_completed_summary(self, start: Start) -> None:
        """In the deltas, in the finished item, and in the whole response."""
        with start([USELESS, USELESS]) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="k") as client:
            asked: Any = [*HISTORY, {"role": "user", "content": ASKED["codex"]}]
            events: list[Any] = list(
                client.responses.create(model="gpt-5", input=asked, stream=True, extra_headers={"session-id": "s1"})
            )
            deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
            items = [event.item for event in events if event.type == "response.output_item.done"]
            final = events[-1].response
            for text in (deltas, items[-1].content[0].text, final.output_text):
                assert text.startswith(USELESS)
                assert "4f9c2ab7e1" in text
            whole = client.responses.create(model="gpt-5", input=asked, extra_headers={"session-id": "s1"})
            assert "4f9c2ab7e1" in whole.output_text

    def test_the_sdk_of_anthropic_reads_a_completed_summary(self, start: Start) -> None:
        with start([USELESS]) as server, anthropic(server.url) as client:
            asked: Any = [*HISTORY, {"role": "user", "content": ASKED["claude"]}]
            with client.messages.stream(model=MODEL, max_tokens=500, messages=asked, tools=[LS]) as stream:
                assert "4f9c2ab7e1" in stream.get_final_text()

    def test_a_good_summary_passes_byte_for_byte(self, start: Start) -> None:
        good = "Deploy commit 4f9c2ab7e1 to /srv/billing/app.toml and tell the port: it listens on port 5433. " * 5
        with start([good, good]) as server:
            direct = patient.post(
                f"{server.provider.url}/v1/messages", json={"model": MODEL, "messages": [], "stream": True}
            )
            passed = ask_summary(server, "messages", ASKED["claude"], stream=True).content
            assert passed.replace(b"msg_2", b"msg_1") == direct.content

    def test_a_conversation_inside_one_message_is_read(self, start: Start) -> None:
        """As pi sends it, without tools and next to its session."""
        conversation = "".join(f"[{one['role']}]: {one['content']}\n" for one in HISTORY)
        text = f"<conversation>\n{conversation}</conversation>\n\nThe messages above are a conversation to summarize."
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        with start([USELESS]) as server:
            reply = patient.post(f"{server.url}/v1/chat/completions", json=body, headers={"session-id": "s1"})
            assert "4f9c2ab7e1" in reply.json()["choices"][0]["message"]["content"]
            assert not server.engine.sessions()

    @pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.format)
    def test_no_value_of_the_wrong_kind_ends_a_summary(self, wire: Wire) -> None:
        """It is passed on, also where it cannot be read."""

        async def find(_: str) -> str:
            return "lost"

        async def complete(events: list[Any]) -> bytes:
            async def chunks() -> AsyncIterator[bytes]:
                for event in events:
                    yield f"data: {json.dumps(event)}\n\n".encode()

            return b"".join([chunk async for chunk in complete_stream(chunks(), wire.format, find)])

        async def complete_all() -> None:
            reply = ScriptedReply(text="a summary")
            for events in change_each_value([data for _, data in wire.stream(reply, model="m", number=1)]):
                assert (await complete(events)).count(b"data: ") >= len(events)
            for body in change_each_value(wire.whole(reply, model="m", number=1)):
                assert await complete_body(json.dumps(body).encode(), wire.format, find)

        asyncio.run(complete_all())


class TestOverflow:
    def history(self) -> list[Any]:
        """A history of 31 messages."""
        return [
            {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} " + "word " * 300}
            for number in range(31)
        ]

    def test_the_summary_is_written_by_the_model_of_the_request(self, start: Start) -> None:
        """With its key, and without a model in the settings."""
        written: list[dict[str, Any]] = []

        def answer(body: dict[str, Any]) -> str | Raw:
            if "checkpoint" in json.dumps(body).lower() or "<conversation>" in json.dumps(body):
                written.append(body)
                return "## Goal\nThe zanzibar plan is to count words.\n" * 3
            error = {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8000 maximum"}
            is_long = len(body["messages"]) > 30
            return Raw(400, {"type": "error", "error": error}) if is_long else "Done."

        with start(answer) as server, anthropic(server.url) as client:
            headers = {"authorization": "Bearer key", "x-key": "mine"}
            reply = client.messages.create(
                model=MODEL, max_tokens=500, messages=self.history(), tools=[LS], extra_headers=headers
            )
            assert [block.text for block in reply.content if block.type == "text"] == ["Done."]
            assert written
            assert {body["model"] for body in written} == {MODEL}
            keys = {
                (request.headers["authorization"], request.headers["x-key"]) for request in server.provider.requests
            }
            assert keys == {("Bearer key", "mine")}
            assert "zanzibar" in json.dumps(server.provider.bodies[-1])

    def test_an_overflow_inside_a_stream_is_tried_once_more(self, start: Start) -> None:
        """Where nothing was passed on yet: also after the event that opens the stream."""
        opening = ("message_start", {"type": "message_start", "message": {"role": "assistant", "content": []}})
        text = "prompt is too long: 9000 tokens > 8000 maximum"
        error = ("error", {"type": "error", "error": {"type": "invalid_request_error", "message": text}})
        asked = 0

        def answer(body: dict[str, Any]) -> str | Events:
            nonlocal asked
            if len(body["messages"]) < 3:
                return "## Goal\nCount words.\n" * 5
            asked += 1
            return Events([opening, error]) if asked == 1 else "Done."

        with start(answer) as server, anthropic(server.url) as client:
            with client.messages.stream(model=MODEL, max_tokens=500, messages=self.history(), tools=[LS]) as stream:
                assert stream.get_final_text() == "Done."
            assert asked == 2


class TestCounting:
    @pytest.mark.parametrize("name", [{"x-claude-code-session-id": "s1"}, {}], ids=["named", "unnamed"])
    def test_the_window_is_counted_and_not_the_history(self, start: Start, name: dict[str, str]) -> None:
        """And a text that is no conversation of the session is counted as it came."""
        headers = {**name, **OWNER}
        with start(lambda _: "Fine.", settings=SMALL) as server:
            history: list[Any] = [
                {"role": "user" if number % 2 == 0 else "assistant", "content": f"{number} " + "word " * 900}
                for number in range(41)
            ]
            asked = {"model": MODEL, "max_tokens": 500, "messages": history, "tools": [LS]}
            reply = patient.post(f"{server.url}/v1/messages", json=asked, headers=headers)
            session = reply.headers["x-holdfast-session"]
            sent = server.provider.bodies[-1]["messages"]
            assert len(sent) < len(history)
            history += [{"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And now?"}]
            count = {"model": MODEL, "messages": history, "tools": [LS]}
            archived = len(texts(server.engine, session))
            patient.post(f"{server.url}/v1/messages/count_tokens", json=count, headers=headers)
            counted = server.provider.bodies[-1]["messages"]
            assert counted[-2:] == history[-2:]
            assert len(counted) < len(history)
            other = {"model": MODEL, "messages": [{"role": "user", "content": "foo"}]}
            patient.post(f"{server.url}/v1/messages/count_tokens", json=other, headers=headers)
            assert server.provider.bodies[-1] == other
            assert len(texts(server.engine, session)) == archived
