"""One call: a deadline for all of it, cancellation wherever it hangs, and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from threading import Event

import pytest

from holdfast.calls import Clock, Deadline
from holdfast.errors import ModelCancelledError, ModelTimeoutError
from holdfast.messages import Message, Text
from holdfast.models.anthropic import AnthropicModel
from holdfast.models.base import Model, Prompt
from holdfast.models.client import stream
from holdfast.models.openai import OpenAIModel
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.testing.provider import Mute, ScriptedProvider, Step
from support.waiting import PATIENCE

HELLO = Prompt(messages=[Message(role="user", parts=(Text(text="hello"),))])


def started(
    source: Callable[[], AsyncIterator[int]],
    *,
    seconds: float | None = 60,
    cancel: Event | None = None,
    clock: Clock = time.monotonic,
) -> Iterator[int]:
    """A call of a source of numbers."""
    return stream(source, model="m", deadline=Deadline.after(seconds, clock=clock), cancel=cancel)


async def three() -> AsyncIterator[int]:
    """Three numbers, with a pause between them."""
    for number in range(3):
        await asyncio.sleep(0)
        yield number


def test_pieces_come_in_order() -> None:
    """Everything that the source yields arrives, with and without a limit."""
    assert list(started(three)) == [0, 1, 2]
    assert list(started(three, seconds=None, cancel=Event())) == [0, 1, 2]


def test_an_error_of_the_source_comes_through() -> None:
    """What the source raises is raised where its pieces are read, after the pieces before it."""

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise LookupError("gone")

    pieces = started(failing)
    assert next(pieces) == 1
    with pytest.raises(LookupError, match="gone"):
        next(pieces)


def test_the_source_is_closed_when_the_reader_leaves() -> None:
    """A reader that leaves early, fails or runs out of time leaves no open source behind."""
    begun, closed = Event(), Event()

    async def endless() -> AsyncIterator[int]:
        try:
            begun.set()
            while True:
                yield 1
                await asyncio.sleep(300)
        finally:
            closed.set()

    with closing(started(endless)) as pieces:  # type: ignore[type-var]
        next(pieces)
    assert closed.wait(PATIENCE)
    begun.clear()
    closed.clear()
    with pytest.raises(ModelTimeoutError):
        list(started(endless, seconds=0.05, clock=begun.is_set))  # its time is over once it has begun
    assert closed.wait(PATIENCE)


def test_a_slow_trickle_does_not_outlast_the_deadline() -> None:
    """The deadline is for the whole, however often something arrives."""

    async def trickle() -> AsyncIterator[int]:
        while True:
            yield 1
            await asyncio.sleep(0.01)

    for cancel in (None, Event()):
        with pytest.raises(ModelTimeoutError):
            list(started(trickle, seconds=0.1, cancel=cancel))


def test_nothing_begins_that_is_over() -> None:
    """Where the time is over, or it was called off before, no one is asked."""
    asked = Event()

    async def never() -> AsyncIterator[int]:
        asked.set()
        yield 1

    with pytest.raises(ModelTimeoutError):
        list(started(never, seconds=0))
    cancel = Event()
    cancel.set()
    with pytest.raises(ModelCancelledError):
        list(started(never, cancel=cancel))
    assert not asked.is_set()


def open_anthropic(url: str) -> Model:
    """Anthropic's SDK."""
    return AnthropicModel("claude-opus-5-5", api_key="key", base_url=url)


def open_openai(url: str) -> Model:
    """OpenAI's SDK."""
    return OpenAIModel("gpt-5", api_key="key", base_url=f"{url}/v1")


@pytest.mark.parametrize("open_model", [open_anthropic, open_openai])
@pytest.mark.parametrize("step", [Mute(), Hang()], ids=["before the headers", "after the headers"])
def test_a_hanging_server_is_left(step: Step, open_model: Callable[[str], Model]) -> None:
    """Deadline and cancellation end the wait, wherever the server hangs, and leave no thread behind."""
    with ScriptedProvider([step, step]) as provider:
        model = open_model(provider.url)
        with pytest.raises(ModelTimeoutError, match=r"no answer within 0\.2 s"):
            model.ask(HELLO, timeout=0.2)
        cancel = Event()
        timer = threading.Timer(0.1, cancel.set)
        timer.start()
        with pytest.raises(ModelCancelledError):
            model.ask(HELLO, cancel=cancel)
        timer.join()
    left = [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-model")]
    for thread in left:
        thread.join(60)
    assert not any(thread.is_alive() for thread in left)


def test_a_model_can_be_asked_from_within_an_event_loop() -> None:
    """Whoever has an event loop of their own is not disturbed."""
    with ScriptedProvider([ScriptedReply(text="hello there")]) as provider:
        model = open_anthropic(provider.url)

        async def ask() -> str:
            return model.ask(HELLO).text

        assert asyncio.run(ask()) == "hello there"
