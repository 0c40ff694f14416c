"""A memory and a model server for the tests of adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import Engine
from holdfast.testing.provider import ScriptedProvider
from support.adapter_conversations import SETTINGS
from support.lazy import Lazy

if TYPE_CHECKING:
    import openai
else:
    openai = Lazy("openai")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory that searches by words, without a thread and without a model."""
    with Engine.open(tmp_path / "memory", settings=SETTINGS, background=False) as engine:
        yield engine


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """One loop for a whole test, also for the functions of frameworks that look for one."""
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        yield runner
    asyncio.set_event_loop(None)


@pytest.fixture
def openai_client(model_server: ScriptedProvider, runner: asyncio.Runner) -> Iterator[openai.AsyncOpenAI]:
    """A client of the server that is closed in the loop of the test."""
    client = openai.AsyncOpenAI(api_key="k", base_url=f"{model_server.url}/v1")
    yield client
    runner.run(client.close())
