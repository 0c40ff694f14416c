"""A server on this machine, in front of a scripted provider."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Engine
from holdfast.memory.memory import Memory
from holdfast.server.app import METHODS, create_app
from holdfast.server.connections import Limits, make_config
from holdfast.server.upstreams import Upstreams
from holdfast.settings import ProjectSettings, Settings
from holdfast.testing.provider import Script, ScriptedProvider
from support.waiting import PATIENCE, UNHURRIED

# Fixed, because names of tests contain them and every worker of pytest-xdist must collect the same names.
TOKEN = "holdfast_pXyL0w3m9cQd7Rk2Vt5Zb8Ns1Hf4Jg6Ua-Ee_Io3Ty7"
OWNER_TOKEN = "holdfast_q2Wv8Xc5Nb1Mz7Lk4Jh0Gf3Ds6Aa9Po-Iu_Yt2Re5Kd"
OWNER = {"x-holdfast-token": OWNER_TOKEN}
"""The header of a client of the owner."""


@dataclass(frozen=True)
class Running:
    """A running server with its memory and its provider."""

    url: str
    engine: Engine
    provider: ScriptedProvider


Start = Callable[..., AbstractContextManager[Running]]


class QuickServer(uvicorn.Server):
    """A server that stops as soon as it should. Uvicorn itself looks ten times a second."""

    async def main_loop(self) -> None:
        """Serve until the server should stop."""
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)


@contextmanager
def serve(app: Any, *, limits: Limits | None = None) -> Iterator[str]:
    """Run an ASGI application on a free port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    server = QuickServer(make_config(app, limits=limits, lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


@pytest.fixture
def words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let started processes search by words: loading a model takes longer than all else that most of them do."""
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a server in front of a provider that follows a script."""

    @contextmanager
    def run(
        script: Script,
        *,
        settings: Settings | None = None,
        projects: ProjectSettings | None = None,
        warnings: tuple[str, ...] = (),
        **options: Any,
    ) -> Iterator[Running]:
        folder = tmp_path / "memory"
        settings = settings or Settings(recall=UNHURRIED)
        if warnings:
            opened = Engine(Memory.open(folder, settings=settings), background=True, warnings=warnings)
        else:
            opened = Engine.open(folder, settings=settings, projects=projects)
        with ScriptedProvider(script) as provider, opened as engine:
            upstreams = Upstreams(anthropic=provider.url, openai=provider.url)
            app = create_app(engine, token=TOKEN, owner_token=OWNER_TOKEN, upstreams=upstreams, **options)
            with serve(app) as url:
                yield Running(url, engine, provider)

    return run


@dataclass
class Seen:
    """A request as the upstream saw it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Upstream:
    """A provider that answers with a function."""

    answer: Callable[[Seen], Response] = lambda _: Response(b"{}")
    seen: list[Seen] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)

    def app(self) -> Starlette:
        """Make the provider as an ASGI application."""

        async def handle(request: Request) -> Response:
            target = request.scope["raw_path"].decode() + "?" + request.scope["query_string"].decode()
            seen = Seen(request.method, target, request.headers.items(), await request.body())
            self.seen.append(seen)
            if "/mute" not in target and "mute" not in request.headers:
                return self.answer(seen)
            await asyncio.wait_for(request.receive(), timeout=PATIENCE)  # until it is left
            self.left.set()
            return Response()

        return Starlette(routes=[Route("/{path:path}", handle, methods=METHODS)])


@dataclass(frozen=True)
class Pair:
    """A server in front of an upstream."""

    url: str
    upstream: Upstream
    engine: Engine


@contextmanager
def run_pair(folder: Path, settings: Settings) -> Iterator[Pair]:
    """Run a server and its upstream."""
    upstream = Upstream()
    with serve(upstream.app()) as address, Engine.open(folder, settings=settings) as engine:
        upstreams = Upstreams(anthropic=address, openai=address)
        app = create_app(engine, token=TOKEN, owner_token=OWNER_TOKEN, upstreams=upstreams)
        with serve(app) as url:
            yield Pair(url, upstream, engine)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Start a server and its upstream."""
    with run_pair(tmp_path / "memory", Settings(recall=UNHURRIED)) as running:
        yield running


@pytest.fixture(scope="module")
def module_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Start a server and its upstream for the tests of a module."""
    with run_pair(tmp_path_factory.mktemp("shared") / "memory", Settings(recall=UNHURRIED)) as running:
        yield running


@pytest.fixture
def shared_pair(module_pair: Pair) -> Pair:
    """A server and its upstream, for tests whose requests leave nothing in its memory that another test would see."""
    module_pair.upstream.seen.clear()
    return module_pair
