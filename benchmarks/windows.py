"""How well windows of several sizes are used, and what their input costs with the provider's prompt cache.

The same conversations, request by request, in three ways: by Holdfast as installed, by a client that only appends and
fails once its history is full, and by one that drops the oldest messages. The cache is simulated as in
`benchmarks.cache`, whose prices are those of Anthropic.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from benchmarks.cache import Cost
from holdfast.cli.replay import find_requests, make_settings, without_usage
from holdfast.context.budget import MIN_REPLY
from holdfast.context.validate import validate
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, WindowError
from holdfast.messages import Message, Text, ToolCall, ToolResult, units
from holdfast.providers import check, render_request
from holdfast.tokens import count_message

__all__ = ["LIMITS", "PRICES", "WAYS", "Figures", "Prices", "Sent", "make_loop", "measure"]

LIMITS: Final = (16_000, 32_000, 200_000)
_MARGIN: Final = 1.05
"""A client that counts as we do keeps this margin for the provider's own count, as `tokens.margin` does for us."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of an input token that is read from the cache, and of one that is not, in plain input tokens."""

    read: float
    write: float


PRICES: Final[Mapping[str, Prices]] = {"anthropic": Prices(0.1, 1.25), "openai_chat": Prices(0.1, 1.0)}
"""By provider, as in the table of models: OpenAI charges nothing for writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request that was sent.

    Attributes:
        request: Its system prompt and messages.
        tokens: Its tokens, estimated.
        is_valid: Whether it keeps the rules of its provider.
        pruned: How many tool results were shortened or cleared for it.
        removed: How many messages left the window for it.
    """

    request: Mapping[str, Any]
    tokens: int
    is_valid: bool
    pruned: int = 0
    removed: int = 0


Way = Callable[..., Iterator[Sent | None]]
"""Yields what is sent for each request of a conversation; None for one that does not fit."""


@dataclass(slots=True)
class Figures:
    """The windows of one way to keep them.

    Attributes:
        limit: The size of the window.
        requests: The requests that were sent.
        failed: Those that did not fit.
        invalid: Those that break a rule of the provider.
        over: Those that are larger than the window.
        short: Those that left less room than their reply has tokens.
        breaks: Those that do not begin with all of the request before.
        kept_none: Those that do not even begin with its first message; the system prompt does not count.
        pruned: Tool results that were shortened or cleared.
        removed: Messages that left a window.
        used: The share of the window that each request took whose whole conversation does not fit into it.
        cost: What the cache had of them.
    """

    limit: int
    failed: int = 0
    invalid: int = 0
    over: int = 0
    short: int = 0
    kept_none: int = 0
    pruned: int = 0
    removed: int = 0
    used: list[float] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)

    def add(self, sent: Sent | None, *, whole: int, reply: int) -> None:
        """Add a request: `whole` are the tokens of the conversation, `reply` those of the reply that followed."""
        if sent is None:
            self.failed += 1
            return
        before = self.cost.first
        self.cost.add(sent.request)
        self.kept_none += before is not None and before != self.cost.first
        self.invalid += not sent.is_valid
        self.over += sent.tokens > self.limit
        self.short += sent.tokens + reply > self.limit
        self.pruned += sent.pruned
        self.removed += sent.removed
        if whole > self.limit:
            self.used.append(sent.tokens / self.limit)

    def to_json(self) -> dict[str, Any]:
        """Return the figures with shares and prices."""
        cost = self.cost
        row: dict[str, Any] = {
            "requests": cost.requests,
            "failed": self.failed,
            "used_p50": None,
            "used_max": None,
            "breaks": cost.breaks,
            "kept_none": self.kept_none,
            "read_share": round(cost.read / max(1, cost.tokens), 3),
            "pruned": self.pruned,
            "removed": self.removed,
            "short": self.short,
            "invalid": self.invalid,
            "over": self.over,
        }
        if self.used:
            row["used_p50"] = round(float(np.median(self.used)), 3)
            row["used_max"] = round(max(self.used), 3)
        for name, prices in PRICES.items():
            price = prices.read * cost.read + prices.write * cost.written
            row[f"price_{name}"] = round(price / max(1, cost.requests))
        return row


def measure(
    conversations: Sequence[Sequence[Message]],
    *,
    limit: int,
    provider: str,
    ways: Mapping[str, Way] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Figures]:
    """Send every request of some conversations in every way."""
    found: dict[str, Figures] = {}
    for name, way in (WAYS if ways is None else ways).items():
        figures = found[name] = Figures(limit)
        for messages in conversations:
            figures.cost.restart()
            talk = without_usage(messages)
            sizes = list(map(count_message, talk))
            for stop, sent in zip(find_requests(talk), way(talk, limit=limit, provider=provider), strict=True):
                figures.add(sent, whole=sum(sizes[:stop]), reply=sum(sizes[stop : stop + 1]))
                progress(1)
    return found


def _send_with_holdfast(messages: Sequence[Message], *, limit: int, provider: str) -> Iterator[Sent | None]:
    with tempfile.TemporaryDirectory() as home, Engine.open(home, settings=make_settings(), background=False) as engine:
        session = engine.session("replay")
        for stop in find_requests(messages):
            try:
                window = session.assemble(messages[:stop], limit=limit, provider=provider)
            except WindowError:
                yield None
                continue
            changes = window.report.changes
            yield Sent(
                request=window.request(provider),
                tokens=window.report.total_tokens,
                is_valid=not check(window.render(), window.provider),
                pruned=sum(1 for change in changes if change.kind == "pruned"),
                removed=sum(len(change.ids) for change in changes if change.kind in {"trimmed", "compacted"}),
            )


def _append_only(messages: Sequence[Message], *, limit: int, provider: str) -> Iterator[Sent | None]:
    """Send the whole history, and fail once it does not fit next to a short reply."""
    room = _find_room(limit)
    sizes = list(map(count_message, messages))
    for stop in find_requests(messages):
        if sum(sizes[:stop]) > room:
            yield None
        else:
            yield _send(messages[:stop], provider)


def _drop_oldest(messages: Sequence[Message], *, limit: int, provider: str) -> Iterator[Sent | None]:
    """Send the system prompt and the newest messages that fit; calls are dropped with their results."""
    system = [message for message in messages if message.role == "system"]
    room = _find_room(limit) - sum(map(count_message, system))
    sizes = [count_message(message) if message.role != "system" else 0 for message in messages]
    before = 0
    for stop in find_requests(messages):
        left = room
        start = stop
        for unit in reversed(units(messages[:stop])):
            left -= sum(sizes[unit.start : unit.stop])
            if left < 0:
                break
            start = unit.start
        if start == stop:
            yield None
            continue
        kept = [message for message in messages[start:stop] if message.role != "system"]
        yield _send([*system, *kept], provider, removed=max(0, start - before))
        before = start


def _find_room(limit: int) -> int:
    return int((limit - min(MIN_REPLY, limit // 8)) / _MARGIN)


def _send(messages: Sequence[Message], provider: str, *, removed: int = 0) -> Sent | None:
    try:
        valid = validate(messages, provider)
    except HoldfastError:
        return None
    return Sent(
        request=render_request(valid.messages, provider),
        tokens=sum(map(count_message, messages)),
        is_valid=not valid.repairs,  # what we repair, such as a conversation that begins with a reply, it would send
        removed=removed,
    )


WAYS: Final[Mapping[str, Way]] = {
    "holdfast": _send_with_holdfast,
    "append only": _append_only,
    "drop the oldest": _drop_oldest,
}


# --- a conversation for those who have none ------------------------------------------------

_FILES: Final = ("hooks.py", "billing.py", "queue.py", "retry.py", "models.py", "views.py", "キャッシュ.py", "配置.py")
_REQUESTS: Final = (
    "The webhook in {file} answers twice. Find out why, and fix it.",
    "Now add a limit of {number} requests per minute to {file}.",
    "Why does the test of {file} fail with status {number}?",
    "请检查 {file}，端口 {number} 上的超时应该是多少？",
    "{file} のタイムアウトを {number} 秒に変更してください。",
    "Which port did we choose for staging, and what is still open in {file}?",
)
_LINE: Final = "{number}: def handle_{number}(request):  # of {file}, called by step {step}\n"


def make_loop(*, requests: int, seed: int = 1) -> list[Message]:
    """Make the conversation of a coding agent: a system prompt, requests of the user, and about eight calls for each.

    Most results are short, and some are long, as in real ones: their lengths are distributed log-normally.
    """
    rng = random.Random(seed)  # noqa: S311 - a reproducible conversation
    messages = [_say("system", "You are a careful coding agent. Follow the rules of the project. " * 40)]
    step = 0
    while step < requests:
        file = rng.choice(_FILES)
        request = rng.choice(_REQUESTS).format(file=file, number=rng.randrange(100, 999))
        messages.append(_say("user", request))
        for _ in range(min(rng.randrange(2, 15), requests - step - 1)):
            step += 1
            lines = min(400, max(1, int(rng.lognormvariate(2.2, 1.3))))
            text = "".join(_LINE.format(number=rng.randrange(10_000), file=file, step=step) for _ in range(lines))
            call = ToolCall(id=f"call_{step}", name="read", arguments={"path": f"src/{file}", "lines": lines})
            words = f"I read {file} for step {step}. " * rng.randrange(1, 8)
            messages.append(Message(role="assistant", parts=(Text(text=words), call)))
            result = ToolResult(call_id=call.id, name=call.name, content=(Text(text=text),))
            messages.append(Message(role="tool", parts=(result,)))
        step += 1
        messages.append(_say("assistant", f"Step {step}: {file} is done, the tests pass. " * rng.randrange(2, 12)))
    return messages


def _say(role: Any, text: str) -> Message:
    return Message(role=role, parts=(Text(text=text),))
