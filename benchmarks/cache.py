"""What input tokens cost under each way to keep a window, with the provider's prompt cache in mind.

The cache is simulated: what a request has in common with the beginning of the one before, message by message and
byte by byte, is read from it, everything after that is written. Prices are shares of the price of a plain input token.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast.cli.replay import find_requests, replay_requests, without_usage
from holdfast.context.budget import budget
from holdfast.context.edits import apply
from holdfast.context.plan import place, plan_edits, recall_room
from holdfast.context.validate import validate
from holdfast.engine import Engine
from holdfast.errors import WindowTooSmallError
from holdfast.history import History
from holdfast.memory.archive import unwrap
from holdfast.memory.memory import Memory
from holdfast.memory.query import Shown
from holdfast.messages import Message
from holdfast.providers import render_request
from holdfast.settings import Settings, load
from holdfast.store.base import Scope
from holdfast.tokens import count_text

__all__ = ["BASELINE", "POLICIES", "Cost", "Policy", "beginning", "measure"]

READ: Final = 0.1
WRITE: Final = 1.25
_PROVIDER: Final = "anthropic"
_SCOPE: Final = Scope(session="replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to keep a window.

    Attributes:
        recall: Where recalled blocks go; None for no memory at all: what does not fit is dropped, oldest first.
        sticky: Whether edits are recorded and replayed, or decided anew for each request.
    """

    recall: str | None
    sticky: bool

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"{self.recall or 'none'}{'+sticky' if self.sticky else ''}"

    def settings(self, reserve: int | None = None) -> Settings:
        """The settings that make the engine behave so. Without memory messages may fill what recall would take."""
        recall = {"position": self.recall, "deadline_ms": 60_000}  # a busy machine recalls what any other does
        tables: dict[str, Any] = {"embedding": {"provider": "none"}, "recall": recall}
        compaction: dict[str, Any] = {}
        if self.recall is None:
            tables["recall"] = {"enabled": False}
            compaction["enabled"] = False  # the oldest messages go instead
        if reserve is not None:
            compaction |= {"reserve_tokens": reserve, "reserve_tokens_floor": 0}
        tables["compaction"] = compaction
        return load(files=(), environ={}, **tables).settings


POLICIES: Final = tuple(
    Policy(recall=recall, sticky=sticky) for recall in (None, "head", "tail") for sticky in (False, True)
)
BASELINE: Final = Policy(recall=None, sticky=True).name
"""The plain append-only conversation: nothing is recalled; when its window is full, the oldest messages go at once."""


@dataclass(slots=True)
class Cost:
    """What the requests of a policy cost.

    Attributes:
        requests: How many there were.
        tokens: Input tokens in all; without a cache this is the price.
        read: Those that were read from the cache.
        written: Those that were written to it.
        breaks: Requests that do not begin with all of the one before.
        ideal: The price of requests of these sizes, each of which begins with all of the one before.
    """

    requests: int = 0
    tokens: int = 0
    read: int = 0
    written: int = 0
    breaks: int = 0
    ideal: float = 0.0
    _before: list[str] = field(default_factory=list)
    _first: str | None = None
    _known: dict[str, int] = field(default_factory=dict)

    @property
    def price(self) -> float:
        """In plain input tokens."""
        return READ * self.read + WRITE * self.written

    def add(self, request: Mapping[str, Any]) -> None:
        """One more request: what it shares with the one before is read, the rest is written."""
        parts = [json.dumps(part, ensure_ascii=False) for part in _parts(request)]
        sizes = [self._size(part) for part in parts]
        shared = _shared(self._before, parts)
        whole, before = sum(sizes), sum(map(self._size, self._before))
        self.requests += 1
        self.tokens += whole
        self.read += sum(sizes[:shared])
        self.written += whole - sum(sizes[:shared])
        self.breaks += shared < len(self._before)
        self.ideal += READ * min(before, whole) + WRITE * max(0, whole - before)
        self._before = parts
        self._first = _find_first(request["messages"])

    @property
    def first(self) -> str | None:
        """The first message of the last request that is no system prompt; None if a conversation begins."""
        return self._first

    def restart(self) -> None:
        """The next request is the first of another conversation."""
        self._before = []
        self._first = None

    def _size(self, part: str) -> int:
        if part not in self._known:
            self._known[part] = count_text(part)
        return self._known[part]


def _find_first(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the first message that is no system prompt."""
    for message in messages:
        if message.get("role") not in {"system", "developer"}:
            return json.dumps(message, ensure_ascii=False)
    return ""


def _parts(request: Mapping[str, Any]) -> Iterator[Any]:
    if request.get("system"):
        yield request["system"]
    yield from request["messages"]


def _shared(before: Sequence[str], now: Sequence[str]) -> int:
    pairs = zip(before, now, strict=False)
    return next((index for index, (old, new) in enumerate(pairs) if old != new), min(len(before), len(now)))


def beginning(messages: Sequence[Message], most: int | None) -> Sequence[Message]:
    """The messages of the first so many requests."""
    stops = list(find_requests(messages))
    return messages if most is None or most >= len(stops) else messages[: stops[most - 1]]


def measure(
    conversations: Sequence[Sequence[Message]],
    *,
    limit: int,
    reserve: int | None = None,
    policies: Sequence[Policy] = POLICIES,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, dict[str, float]]:
    """The cost of every policy over conversations, and how it stands to an append-only one's."""
    costs = {policy.name: Cost() for policy in policies}
    for policy in policies:
        for messages in conversations:
            costs[policy.name].restart()
            for request in _windows(messages, policy, limit=limit, reserve=reserve):
                progress(1)
                if request is not None:
                    costs[policy.name].add(request)
    return {name: _row(cost, costs.get(BASELINE)) for name, cost in costs.items()}


def _row(cost: Cost, plain: Cost | None) -> dict[str, float]:
    figures = {name: value for name, value in asdict(cost).items() if not name.startswith("_") and name != "ideal"}
    against = {"of_append_only": round(cost.price / plain.price, 3)} if plain and plain.price else {}
    return {
        **figures,
        "price": round(cost.price),
        "read_share": round(cost.read / cost.tokens, 3) if cost.tokens else 0.0,
        **against,
        "of_ideal": round(cost.price / cost.ideal, 3) if cost.ideal else 0.0,
    }


def _windows(
    messages: Sequence[Message], policy: Policy, *, limit: int, reserve: int | None
) -> Iterator[Mapping[str, Any] | None]:
    settings = policy.settings(reserve)
    with tempfile.TemporaryDirectory() as home:
        if policy.sticky:
            with Engine.open(home, settings=settings, background=False) as engine:
                for _, window in replay_requests(engine, without_usage(messages), limit=limit):
                    yield window.request() if window is not None else None
        else:
            with Memory.open(home, settings=settings) as memory:
                yield from _anew(messages, memory, limit=limit)


# --- without recorded edits ----------------------------------------------------


def _anew(messages: Sequence[Message], memory: Memory, *, limit: int) -> Iterator[Mapping[str, Any] | None]:
    """Every window decided from nothing, as by a program that keeps no record of what it did."""
    talk = History(_SCOPE, memory, count_text)
    for stop in find_requests(messages):
        talk.update(messages[:stop])
        try:
            yield _decided(talk, memory, limit=limit)
        except WindowTooSmallError:
            yield None


def _decided(talk: History, memory: Memory, *, limit: int) -> Mapping[str, Any]:
    limits = budget(memory.settings, window=limit)
    query = _asked(talk)
    items = plan_edits(
        tuple(talk.items),
        (),
        budget=limits,
        settings=memory.settings,
        query=query,
        scores=lambda: memory.scores([query], scope=_SCOPE),
    ).items
    position = memory.settings.recall.position
    room = recall_room(items, limits, position=position)
    if query and room > 0 and memory.settings.recall.enabled:
        seen = {item.id for item in items}
        found = memory.recall((query,), scope=_SCOPE, cap=room, shown=Shown(messages=seen))
        edit = place(items, found.block, position=position)
        items = apply(items, [edit]) if edit else items
    return render_request(validate([item.sent for item in items], _PROVIDER).messages, _PROVIDER)


def _asked(talk: History) -> str:
    spoken = (unwrap(item.message.text) for item in reversed(talk.items) if item.message.role == "user")
    return next(filter(None, spoken), "")
