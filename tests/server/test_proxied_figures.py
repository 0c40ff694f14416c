"""The proxy records usage, model, time and refusals of the requests that pass."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from holdfast import figures
from holdfast.messages import Usage
from holdfast.models.scripted import ScriptedReply
from holdfast.store.base import Scope, TurnFigures
from holdfast.testing.provider import Raw, overflow
from support.lazy import Lazy

from .conftest import OWNER, Running, Start

if TYPE_CHECKING:
    import anthropic
    from anthropic.types import ToolParam

else:
    anthropic = Lazy("anthropic")

LS: ToolParam = {"name": "ls", "description": "List a folder.", "input_schema": {"type": "object", "properties": {}}}
USAGE = Usage(input=40, output=7, cache_read=120, cache_write=3)


def ask(server: Running, text: str, *, stream: bool = False) -> None:
    """Send a request to the proxy as Claude Code does."""
    headers = {"x-claude-code-session-id": "s1", **OWNER}
    with anthropic.Anthropic(base_url=server.url, api_key="key", max_retries=0, default_headers=headers) as client:
        if not stream:
            client.messages.create(
                model="claude-x", max_tokens=100, messages=[{"role": "user", "content": text}], tools=[LS]
            )
            return
        with client.messages.stream(
            model="claude-x", max_tokens=100, messages=[{"role": "user", "content": text}], tools=[LS]
        ) as events:
            events.get_final_text()


@pytest.mark.parametrize(
    ("headers", "host"),
    [
        ({"x-claude-code-session-id": "s1"}, "Claude Code"),
        ({"x-session-id": "s1", "user-agent": "codex_cli_rs/0.77.0 (Linux; x86_64)"}, "Codex"),
        ({"x-session-id": "s1", "user-agent": "opencode/1.1.3"}, "OpenCode"),
        ({"x-session-id": "s1"}, "proxy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_session_has_the_host_that_sends_its_requests(start: Start, headers: dict[str, str], host: str) -> None:
    """By its header or its `User-Agent`; a host that is known already stays."""
    with start([ScriptedReply(text="5433"), ScriptedReply(text="5433")]) as server:
        for agent in (headers.get("user-agent", "Anthropic/Python 1.0"), "other/1.0"):
            sent = {**headers, **OWNER, "user-agent": agent}
            with anthropic.Anthropic(base_url=server.url, api_key="key", max_retries=0, default_headers=sent) as client:
                client.messages.create(
                    model="claude-x", max_tokens=100, messages=[{"role": "user", "content": "端口?"}], tools=[LS]
                )
        assert [(one.id, one.host) for one in server.engine.sessions()] == [("s1", host)]


def read(server: Running) -> list[TurnFigures]:
    """Return the figures of all turns."""
    store = server.engine._memory.store
    (scope,) = [scope for scope in store.sessions() if scope.session == "s1"] or [Scope(session="s1")]
    assert figures.update(store, [scope.tenant], seconds=60)
    return store.read_turns(scope, first=1, last=99)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_reply_has_its_usage_its_model_and_its_time(start: Start, *, stream: bool) -> None:
    """They are those that the provider reported; the time is from the window to the end of the reply."""
    with start([ScriptedReply(text="The port is 5433. 端口", usage=USAGE)]) as server:
        ask(server, "Which port? 哪个端口?", stream=stream)
        (turn,) = read(server)
        assert turn.usage == USAGE
        assert turn.model
        assert turn.replying is not None
        assert not turn.is_refused


def test_an_error_of_the_provider_is_a_refused_turn(start: Start) -> None:
    """It has no usage, and so no price."""
    error = Raw(429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}})
    with start([error]) as server:
        with pytest.raises(anthropic.APIStatusError):
            ask(server, "Which port?")
        (turn,) = read(server)
        assert turn.is_refused
        assert turn.usage is None


def test_a_window_that_was_refused_as_too_large_is_counted(start: Start) -> None:
    """Whether or not a smaller one follows."""
    with start([overflow(requested=2_000, limit=1_000), "Now it fits."]) as server:
        with suppress(anthropic.APIStatusError):
            ask(server, "words " * 900)
        assert read(server)[0].is_refused
