"""Run many streams at once through the proxy, then as many replies as it can pass on, and kill the server.

An upstream of this process answers every request with a stream of events whose bytes depend on the request alone, so a
client can tell whether a byte was changed. The same load goes to the upstream directly first: the difference of the
times to the first token is what the proxy adds. Streams last as long as real replies, and clients begin one after the
other. Then replies are short, so that the processor is the limit: that is the throughput. In the middle of it the
server is killed, and every reply that a client has read to its end must be in the archive.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count, cycle, pairwise, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2 as httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from holdfast.engine import Engine
from holdfast.programs import own_command
from holdfast.settings import Settings

EVENTS_PER_SECOND: Final = 10
TOOL: Final = {"name": "ls", "input_schema": {"type": "object"}}
"""Requests of agents have tools; those without are taken for a title or a probe, and pass."""
MEMORY_TIMES: Final = 6
"""How many sizes of the server are reported: the mean of each sixth of the run of the long streams."""
TURNS: Final = 6
"""The turns of a conversation; then the client begins another one."""
SHORT_SECONDS: Final = 0.4
"""How long a reply streams in the part that measures the throughput."""


def make_words(name: str) -> list[str]:
    """Make the words of the reply to a request, of 4,096. Its name ends in the number of its events."""
    count = int(name.rpartition("e")[2])
    return [name, *(hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:3] for number in range(count))]


def make_events(name: str) -> list[bytes]:
    """Make the events of the reply to a request."""
    deltas: list[dict[str, Any]] = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"{word} "}}
        for word in make_words(name)
    ]
    start: dict[str, Any] = {
        "type": "message_start",
        "message": {"type": "message", "role": "assistant", "content": []},
    }
    block: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    stops: list[dict[str, Any]] = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    events = [start, block, *deltas, *stops]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def create_upstream() -> Starlette:
    """Make a provider that streams the reply that belongs to the last message of a request."""

    async def answer(request: Request) -> StreamingResponse:
        body = await request.json()

        async def stream() -> AsyncIterator[bytes]:
            for event in make_events(body["messages"][-1]["content"].split()[0]):
                yield event
                if b"delta" in event:
                    await asyncio.sleep(1 / EVENTS_PER_SECOND)

        return StreamingResponse(stream(), media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/messages", answer, methods=["POST"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """So many clients ask until a moment, and each reply streams for so long.

    Attributes:
        conversations: How many conversations a client holds before it sends the first one again; 0 for no end.
    """

    streams: int
    stream_seconds: float
    until: float
    conversations: int = 0


@dataclass
class Load:
    """What the clients of one run saw.

    Attributes:
        first: The seconds to the first token.
        assembling: For each of them, the seconds in which the server assembled the window, with the way to the thread
            that does it and back.
    """

    first: list[float] = field(default_factory=list)
    assembling: list[float] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    changed: int = 0
    failed: int = 0


async def run_client(client: httpx.AsyncClient, url: str, number: int, load: Load, plan: Plan) -> None:
    """Hold conversations until a moment: each request has the whole history."""
    history: list[dict[str, str]] = []
    await asyncio.sleep(plan.stream_seconds * number / plan.streams)
    turns = cycle(range(plan.conversations * TURNS)) if plan.conversations else count()
    for turn in takewhile(lambda _: time.monotonic() < plan.until, turns):
        name = f"c{number}t{turn}e{round(plan.stream_seconds * EVENTS_PER_SECOND)}"
        asked = {"role": "user", "content": f"{name} asks about port {5000 + turn} of {number}."}
        history = [*(history if turn % TURNS else ()), asked]
        body = {"model": "claude-x", "max_tokens": 500, "stream": True, "messages": history, "tools": [TOOL]}
        start, digest, is_first = time.perf_counter(), hashlib.sha256(), True
        try:
            headers = {"x-holdfast-session": f"client-{number}-{plan.stream_seconds}-{turn // TURNS}"}
            async with client.stream("POST", f"{url}/v1/messages", json=body, headers=headers) as reply:
                async for chunk in reply.aiter_raw():
                    if is_first and b"text_delta" in chunk:
                        load.first.append(time.perf_counter() - start)
                        load.assembling.append(float(reply.headers.get("x-holdfast-milliseconds", 0)) / 1000)
                        is_first = False
                    digest.update(chunk)
        except httpx.HTTPError:
            load.failed += 1
            return
        if reply.status_code != httpx.codes.OK:
            load.failed += 1
            continue
        expected = b"".join(make_events(name))
        load.changed += digest.digest() != hashlib.sha256(expected).digest()
        load.whole.append(name)
        history.append({"role": "assistant", "content": "".join(f"{word} " for word in make_words(name))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the server: its own memory, files that it has mapped, and the files of its archive."""

    memory: int
    mapped: int
    archive: int

    @classmethod
    def sample(cls, pid: int, home: Path) -> Sizes:
        """Measure a server."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found = dict(line.split(":") for line in lines if line.startswith(("RssAnon", "RssFile")))
        memory, mapped = (int(found[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
        return cls(memory=memory, mapped=mapped, archive=sum(file.stat().st_size for file in home.glob("holdfast.db*")))


async def run_load(url: str, plan: Plan, *, load: Load, sample: Callable[[], object] = lambda: None) -> None:
    """Run clients at once, and sample the server twice a second until the last request begins."""
    limits = httpx.Limits(max_connections=plan.streams)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        clients = [asyncio.ensure_future(run_client(client, url, n, load, plan)) for n in range(plan.streams)]
        while not all(one.done() for one in clients):
            if time.monotonic() < plan.until:
                sample()
            await asyncio.wait(clients, timeout=0.5)
        await asyncio.gather(*clients)


def _mean_mb(values: list[int]) -> list[float]:
    """Return the mean of each part of a run, in MB."""
    stops = [len(values) * part // MEMORY_TIMES for part in range(MEMORY_TIMES + 1)]
    parts = [values[start:stop] for start, stop in pairwise(stops)]
    return [round(statistics.mean(part) / 2**20, 1) for part in parts if part]


def _median_ms(values: list[float]) -> float:
    return round(1000 * statistics.median(values), 1) if values else 0.0


async def _measure(
    home: Path, *, streams: int, seconds: float, stream_seconds: float, conversations: int
) -> dict[str, Any]:
    def plan(*, lasting: float, stream_seconds: float = stream_seconds) -> Plan:
        until = time.monotonic() + lasting
        return Plan(streams=streams, stream_seconds=stream_seconds, until=until, conversations=conversations)

    server = uvicorn.Server(uvicorn.Config(create_upstream(), port=0, log_level="warning", lifespan="off"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.wait({task}, timeout=0.01)
    upstream = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    direct, proxied, short = Load(), Load(), Load()
    await run_load(upstream, plan(lasting=max(stream_seconds, seconds / 6)), load=direct)
    sizes: list[Sizes] = []
    process, url = await asyncio.to_thread(start_server, home, upstream)
    short_seconds = max(2.0, seconds / 6)
    try:
        await run_load(
            url, plan(lasting=seconds), load=proxied, sample=lambda: sizes.append(Sizes.sample(process.pid, home))
        )
        busy = plan(lasting=2 * short_seconds, stream_seconds=SHORT_SECONDS)
        killing = asyncio.ensure_future(run_load(url, busy, load=short))
        await asyncio.sleep(short_seconds)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
    await killing
    server.should_exit = True
    await task
    memory = _mean_mb([size.memory for size in sizes])
    lost = await asyncio.to_thread(count_lost, home, [*proxied.whole, *short.whole])
    beyond = [first - assembling for first, assembling in zip(proxied.first, proxied.assembling, strict=True)]
    return {
        "streams": streams,
        "seconds": seconds,
        "stream_seconds": stream_seconds,
        "conversations": conversations,
        "replies": len(proxied.whole),
        "changed": proxied.changed + short.changed,
        "failed": proxied.failed,
        "first_token_direct_ms": _median_ms(direct.first),
        "first_token_proxy_ms": _median_ms(proxied.first),
        "added_ms": round(_median_ms(proxied.first) - _median_ms(direct.first), 1),
        "assemble_ms": _median_ms(proxied.assembling),
        "added_beyond_assemble_ms": round(_median_ms(beyond) - _median_ms(direct.first), 1),
        "memory_mb": memory,
        "memory_growth_second_half": round(memory[-1] / memory[(len(memory) - 1) // 2] - 1, 4) if memory else None,
        "mapped_mb": _mean_mb([size.mapped for size in sizes]),
        "archive_mb": _mean_mb([size.archive for size in sizes]),
        "short_replies_per_second": round(len(short.whole) / short_seconds, 1),
        "short_first_token_ms": _median_ms(short.first),
        "acknowledged": len(proxied.whole) + len(short.whole),
        "broken_by_kill": short.failed,
        "lost": lost,
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def start_server(home: Path, upstream: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start `holdfast serve` in front of an upstream."""
    command = own_command("serve", "--home", str(home), "--port", "0", "--json", "--upstream", upstream)
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE)  # noqa: S603 - our command
    assert process.stdout is not None
    with process.stdout:  # it prints one line
        return process, json.loads(process.stdout.readline())["url"]


def count_lost(home: Path, names: list[str]) -> int:
    """Count the replies that are not in the archive."""
    with Engine.open(home, settings=Settings(), background=False) as engine:
        archived: set[str] = set()
        for scope in engine.sessions():
            session = engine.session(scope.id, project=scope.project, agent=scope.agent)
            archived.update(row.message.text.strip() for row in session.messages())
        return sum(" ".join(make_words(name)) not in archived for name in names)


def measure(*, streams: int, seconds: float, stream_seconds: float, conversations: int) -> dict[str, Any]:
    """Measure the proxy with so many concurrent streams for so many seconds; each reply streams for a while.

    With a number of conversations, clients send these again and again: the archive stays as it is, and so must memory.
    """
    with TemporaryDirectory() as folder:
        run = _measure(
            Path(folder), streams=streams, seconds=seconds, stream_seconds=stream_seconds, conversations=conversations
        )
        return asyncio.run(run)
