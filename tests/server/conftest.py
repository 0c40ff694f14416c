"""A server on this machine, in front of a scripted provider."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.proxy import Upstreams
from holdfast.settings import Settings
from holdfast.testing.provider import Script, ScriptedProvider

TOKEN = "the-token"


@dataclass(frozen=True)
class Running:
    """A running server with its memory and its provider."""

    url: str
    engine: Engine
    provider: ScriptedProvider


Start = Callable[..., AbstractContextManager[Running]]


@contextmanager
def serve(app: Any) -> Iterator[str]:
    """Run an ASGI application on a free port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start a server in front of a provider that follows a script."""

    @contextmanager
    def run(script: Script, *, settings: Settings | None = None, **options: Any) -> Iterator[Running]:
        with (
            ScriptedProvider(script) as provider,
            Engine.open(tmp_path / "memory", settings=settings or Settings()) as engine,
        ):
            upstreams = Upstreams(anthropic=provider.url, openai=provider.url)
            with serve(create_app(engine, token=TOKEN, upstreams=upstreams, **options)) as url:
                yield Running(url, engine, provider)

    return run
