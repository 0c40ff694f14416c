"""Measure the processor time that `holdfast serve` takes for one turn of a conversation that fits its window.

An upstream of this process streams a short reply to every request. Conversations go through the server one after the
other: new ones of a few turns, and one that begins with a long history. Nothing can be recalled for them: callers who
are not the owner have no other conversations. Those of the owner are searched for every message. The same requests to a
path that the server only passes on are the floor: HTTP on both sides. Then many clients begin a conversation at the
same moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2 as httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from benchmarks.assemble import Writer
from benchmarks.proxy import TOOL, start_server
from holdfast.server.conversations import OWN_HEADER
from holdfast.server.forwarding import ROUTES
from holdfast.server.guard import OWNER_TOKEN_FILE, load_token
from holdfast.server.identity import TOKEN_HEADER

PATHS: Final = {fmt: path for path, fmt in ROUTES.items()}
"""The path of the model requests of each format."""
PASSED_PATH: Final = "/v1/passed"
"""A path whose requests are passed on as they come."""
EVENTS: Final = 10
EVENT_SECONDS: Final = 0.002
"""The pause between two events of a reply, so that each is passed on by itself."""
MESSAGE_TOKENS: Final = 100
FIRST_BYTES: Final = 5
"""The bytes of a reply by which its first token is recognised."""
SHORT_TURNS: Final = 6
"""The turns of a short conversation."""
SETTLE_SECONDS: Final = 1.0
"""How long background work may take after the last turn. It is counted too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Milliseconds of the server for one turn.

    Attributes:
        processor: Its processor time, until the next request begins; the mean of all turns, with background work.
        median: The median of the same.
        first_token: The time to the first token by the clock, at the median.
        edited: The share of requests whose window had an edit.
    """

    processor: float
    median: float
    first_token: float
    edited: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """A turn as the client saw it, and the processor time of the server until its end, in seconds."""

    first_token: float
    processor: float
    is_edited: bool


def create_upstream(format: str) -> Starlette:
    """Make a provider that streams a reply which is in the request."""

    async def answer(request: Request) -> StreamingResponse:
        body = await request.json()
        words = body["metadata"]["reply"].split(" ")

        async def stream() -> AsyncIterator[bytes]:
            for event in make_events(words, format):
                name = f"event: {event['type']}\n" if "type" in event else ""
                yield f"{name}data: {json.dumps(event)}\n\n".encode()
                await asyncio.sleep(EVENT_SECONDS)
            if format == "openai_chat":
                yield b"data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    return Starlette(routes=[Route(path, answer, methods=["POST"]) for path in (PATHS[format], PASSED_PATH)])


def make_events(words: list[str], format: str) -> list[dict[str, Any]]:
    """Make the events of a reply. Its text comes in `EVENTS` pieces."""
    size = -(-len(words) // EVENTS)
    pieces: list[str] = []
    for start in range(0, len(words), size):
        pieces.append("".join(f"{word} " for word in words[start : start + size]))
    if format == "openai_chat":
        return _make_chat_events(pieces)
    if format == "openai_responses":
        return _make_responses_events(pieces)
    return _make_anthropic_events(pieces)


def _make_anthropic_events(pieces: list[str]) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    for piece in pieces:
        deltas.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    return [
        {"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]


def _make_chat_events(pieces: list[str]) -> list[dict[str, Any]]:
    def chunk(delta: dict[str, str], stop: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-x", "choices": [choice]}

    usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "total_tokens": 1_100}
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": piece}) for piece in pieces),
        chunk({}, "stop"),
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-x", "choices": [], "usage": usage},
    ]


def _make_responses_events(pieces: list[str]) -> list[dict[str, Any]]:
    begun = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
    item = {**begun, "content": [{"type": "output_text", "text": "".join(pieces)}]}
    deltas: list[dict[str, Any]] = []
    for piece in pieces:
        deltas.append({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "delta": piece})
    usage = {"input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100}
    return [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
    ]


def make_body(history: list[dict[str, Any]], format: str) -> dict[str, Any]:
    """Make the body of a request without its reply."""
    system = "You are a careful engineer."
    body: dict[str, Any] = {"model": "claude-x", "stream": True, "tools": [TOOL]}
    if format == "anthropic":
        return {**body, "max_tokens": 500, "system": system, "messages": history}
    if format == "openai_chat":
        tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
        messages = [{"role": "system", "content": system}, *history]
        return {**body, "model": "gpt-x", "max_tokens": 500, "tools": tools, "messages": messages}
    tools = [{"type": "function", "name": "ls", "parameters": {"type": "object"}}]
    items = [{"type": "message", **message} for message in history]
    return {**body, "model": "gpt-x", "max_output_tokens": 500, "tools": tools, "instructions": system, "input": items}


class Client:
    """A client that sends its whole history with each request.

    Args:
        http: The connections.
        url: The address of the server, with the path.
        pid: The process of the server.
        headers: The headers that it sends.
        format: The wire format of its requests.
        history: The messages before its first request.
        writer: Writes its messages and the replies.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        *,
        pid: int,
        headers: Mapping[str, str],
        format: str,
        history: list[dict[str, str]],
        writer: Writer,
    ) -> None:
        self._http = http
        self._url = url
        self._pid = pid
        self._headers = headers
        self._format = format
        self._history = history
        self._writer = writer

    async def ask(self) -> _Turn:
        """Make one turn."""
        reply, question = (message["content"] for message in self._writer.exchange())
        self._history.append({"role": "user", "content": question})
        body = {**make_body(self._history, self._format), "metadata": {"reply": reply}}
        first_words = reply.encode()[:FIRST_BYTES]
        first_token = 0.0
        start = time.perf_counter()
        async with self._http.stream("POST", self._url, json=body, headers=self._headers) as response:
            response.raise_for_status()
            async for chunk in response.aiter_raw():
                if not first_token and first_words in chunk:
                    first_token = time.perf_counter() - start
        self._history.append({"role": "assistant", "content": reply + " "})
        is_edited = bool(response.headers.get("x-holdfast-edits"))
        return _Turn(first_token=first_token, processor=measure_processor(self._pid), is_edited=is_edited)


def measure_processor(pid: int) -> float:
    """Return the seconds of processor time that a process has used, with all of its threads."""
    return time.clock_gettime((~pid << 3) | 2)  # the clock of another process, as clock_getcpuclockid(3) makes it


async def _run(clients: list[Client], *, turns: int, pid: int) -> Cost:
    """Let clients make turns, one client after the other."""
    begun = measure_processor(pid)
    made: list[_Turn] = []
    for client in clients:
        for _ in range(turns):
            made.append(await client.ask())
    await asyncio.sleep(SETTLE_SECONDS)
    total = measure_processor(pid) - begun
    ends = [begun, *(turn.processor for turn in made)]
    each = [end - start for start, end in pairwise(ends)]
    return Cost(
        processor=_round_ms(total / len(made)),
        median=_round_ms(statistics.median(each)),
        first_token=_round_ms(statistics.median(turn.first_token for turn in made)),
        edited=round(sum(turn.is_edited for turn in made) / len(made), 2),
    )


async def _run_at_once(clients: list[Client], *, pid: int) -> Cost:
    """Let all clients make one turn at the same moment."""
    begun = measure_processor(pid)
    made = await asyncio.gather(*(client.ask() for client in clients))
    await asyncio.sleep(SETTLE_SECONDS)
    each = _round_ms((measure_processor(pid) - begun) / len(made))
    return Cost(
        processor=each,
        median=each,
        first_token=_round_ms(statistics.median(turn.first_token for turn in made)),
        edited=round(sum(turn.is_edited for turn in made) / len(made), 2),
    )


def _round_ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


async def _measure(home: Path, *, format: str, turns: int, messages: int, clients: int) -> dict[str, Any]:
    server = uvicorn.Server(uvicorn.Config(create_upstream(format), port=0, log_level="warning", lifespan="off"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.wait({task}, timeout=0.01)
    upstream = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    process, url = await asyncio.to_thread(start_server, home, upstream)
    pid = process.pid
    writer = Writer(MESSAGE_TOKENS)
    numbers = iter(range(10_000))

    def make_client(
        http: httpx.AsyncClient, *, path: str = PATHS[format], length: int = 0, named: bool = True, owner: bool = False
    ) -> Client:
        headers = {"x-api-key": "sk-ant-api03-of-the-benchmark"}
        if named:
            headers[OWN_HEADER] = f"conversation-{next(numbers)}"
        if owner:
            headers[TOKEN_HEADER] = load_token(home / OWNER_TOKEN_FILE)
        history = [message for _ in range(length // 2) for message in reversed(writer.exchange())]
        return Client(http, url + path, pid=pid, headers=headers, format=format, history=history, writer=writer)

    costs: dict[str, Cost] = {}
    try:
        async with httpx.AsyncClient(timeout=120) as http:
            short = max(1, turns // SHORT_TURNS)
            for _ in range(3):  # what is loaded with the first requests
                await make_client(http).ask()
            for length, label in ((0, "short"), (messages, f"{messages} messages")):
                passing = make_client(http, path=PASSED_PATH, length=length)
                costs[f"{label}, passed on"] = await _run([passing], turns=turns, pid=pid)
            for named, label in ((True, "short, named"), (False, "short, not named")):
                some = [make_client(http, named=named) for _ in range(short)]
                costs[label] = await _run(some, turns=SHORT_TURNS, pid=pid)
            for named, label in ((True, f"{messages} messages, named"), (False, f"{messages} messages, not named")):
                long = make_client(http, length=messages, named=named)
                await long.ask()
                await asyncio.sleep(SETTLE_SECONDS)
                costs[label] = await _run([long], turns=turns, pid=pid)
            owners = [make_client(http, owner=True) for _ in range(2 * short)]
            await _run(owners[:short], turns=SHORT_TURNS, pid=pid)  # the conversations that are searched
            costs["short, of the owner"] = await _run(owners[short:], turns=SHORT_TURNS, pid=pid)
        limits = httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(timeout=120, limits=limits) as http:
            passing_at_once = [make_client(http, path=PASSED_PATH) for _ in range(clients)]
            costs[f"{clients} at once, passed on"] = await _run_at_once(passing_at_once, pid=pid)
            at_once = [make_client(http) for _ in range(clients)]
            costs[f"{clients} at once, first turn"] = await _run_at_once(at_once, pid=pid)
            costs[f"{clients} at once, second turn"] = await _run_at_once(at_once, pid=pid)
        begun = measure_processor(pid)
        await asyncio.sleep(SETTLE_SECONDS)
        idle = _round_ms(measure_processor(pid) - begun)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
    server.should_exit = True
    await task
    return {
        "format": format,
        "turns": turns,
        "costs": {label: asdict(cost) for label, cost in costs.items()},
        "idle_ms_per_second": idle,
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def measure(*, format: str, turns: int, messages: int, clients: int) -> dict[str, Any]:
    """Measure what a turn costs in short conversations, after so many messages, and with so many clients at once."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), format=format, turns=turns, messages=messages, clients=clients))
