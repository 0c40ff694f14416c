"""Random conversations, broken in every way that happens, cut to random sizes: every window must be valid and fit.

`measure` plans windows without a store, which is fast; `measure_engine` makes them as a client gets them, by
`Engine.assemble`, from an empty session that grows request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, count
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from holdfast import formats
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Item, apply, messages_of
from holdfast.context.finish import Finished, finish
from holdfast.context.place import Position, allowance, place
from holdfast.context.plan import plan
from holdfast.context.verify import PROVIDERS, check
from holdfast.engine import Engine
from holdfast.errors import CompactionError, FormatError, InvalidWindowError, WindowTooSmallError
from holdfast.formats import Incoming
from holdfast.memory.block import UNKEPT, Detail, render
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.settings import Embedding, Pruning, Recall, Settings, SoftTrim, Trim
from holdfast.tokens import count_message, count_messages, count_text

__all__ = ["Fuzzed", "measure", "measure_engine"]

_Wire: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """What came of it.

    Attributes:
        windows: Windows that were made and checked.
        invalid: Those that their provider would refuse, or that hold a thought nobody had.
        over_limit: Those above their limit.
        refused: Windows that were not made, because what must stay did not fit.
        blunt: Windows that only the second, blunter repair made valid.
        unmanaged: Requests that an engine passed on without archiving them, because of an error.
    """

    windows: int = 0
    invalid: int = 0
    over_limit: int = 0
    refused: int = 0
    blunt: int = 0
    unmanaged: int = 0

    def __add__(self, other: Fuzzed) -> Fuzzed:
        return Fuzzed(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def measure(*, windows: int = 20_000, seed: int = 0) -> Fuzzed:
    """Plan at least so many windows, the same for the same seed."""
    return _measure(_conversation, windows=windows, seed=seed)


def measure_engine(*, windows: int = 5_000, seed: int = 0) -> Fuzzed:
    """Make at least so many windows by an engine, the same for the same seed."""
    return _measure(_session, windows=windows, seed=seed)


def _measure(make: Callable[[Random], Fuzzed], *, windows: int, seed: int) -> Fuzzed:
    total = Fuzzed()
    for number in count():
        if total.windows >= windows:
            break
        total += make(Random(f"{seed}:{number}"))  # noqa: S311 - chance is all it is for
    return total


# --- one conversation, request by request ------------------------------------


def _conversation(random: Random) -> Fuzzed:
    items = [
        Item(message=message, id=number, tokens=count_message(message), pinned=_chance(random, 0.02))
        for number, message in enumerate(_Talk(random).conversation(), 1)
    ]
    settings, size = _settings(random), random.choice(_WINDOWS)
    limits = budget(settings, window=size, overhead=random.choice([0, 0, 300]))
    edits: list[Edit] = []
    total = Fuzzed()
    for stop in sorted({random.randint(1, len(items)), random.randint(1, len(items)), len(items)}):
        total += _request(items[:stop], edits, limits, settings, random)
    return total


def _request(items: Sequence[Item], edits: list[Edit], limits: Budget, settings: Settings, random: Random) -> Fuzzed:
    """One request of a session; its edits are added to those before."""
    scores = {item.id: random.random() for item in items if _chance(random, 0.3)}
    idle = timedelta(minutes=random.choice([0, 1, 90]))
    query = random.choice(["why did the deploy fail", "部署为什么失败", "ok", ""])
    try:
        planned = plan(items, edits, budget=limits, settings=settings, query=query, scores=lambda: scores, idle=idle)
    except WindowTooSmallError:
        return Fuzzed(refused=len(PROVIDERS))
    edits += planned.edits
    block = _recalled(planned.items, limits, settings.recall.position, random)
    edits += block
    said = messages_of(apply(planned.items, block))
    return sum((_window(said, provider, limits.ceiling) for provider in PROVIDERS), Fuzzed())


def _recalled(items: Sequence[Item], limits: Budget, position: Position, random: Random) -> list[Edit]:
    room = allowance(items, limits, position=position)
    details = [Detail(role="user", time=0, text=_words(random, 900)) for _ in range(random.randint(0, 3))]
    while details and count_text(render([], details, UNKEPT)) > room:
        details.pop()
    edit = place(items, render([], details, UNKEPT), position=position)
    return [edit] if edit else []


def _window(said: Sequence[Message], provider: str, limit: int) -> Fuzzed:
    try:
        return _check(finish(said, provider), said, limit)
    except InvalidWindowError as error:
        return _refuse(error)


def _refuse(error: InvalidWindowError) -> Fuzzed:
    """Only a window without any message may be refused."""
    empty = [violation[0] for violation in error.violations if isinstance(violation, tuple)] == ["empty-window"]
    return Fuzzed(refused=1) if empty else Fuzzed(windows=1, invalid=1)


def _check(finished: Finished, said: Sequence[Message], limit: int) -> Fuzzed:
    return Fuzzed(
        windows=1,
        invalid=bool(check(finished.wire, finished.provider)) or not _thinks_true(said, finished),
        over_limit=count_messages(finished.messages) > limit,
        blunt=bool(finished.violations),
    )


def _thinks_true(said: Sequence[Message], finished: Finished) -> bool:
    """Tell whether every thought that is sent was thought just so: none half, none edited, none made up."""
    thoughts = [part for message in said for part in message.parts if isinstance(part, Thinking | RedactedThinking)]
    if finished.provider == "anthropic":
        signed = {(part.text, part.signature) for part in thoughts if isinstance(part, Thinking)}
        return all((block["thinking"], block["signature"]) in signed for block in _thinking(finished.wire))
    known = {id(part.origin.data) for part in thoughts if part.origin}
    return all(id(item) in known for item in finished.wire if item.get("type") == "reasoning")


def _thinking(wire: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for turn in wire:
        if isinstance(turn["content"], list):
            yield from (block for block in turn["content"] if block["type"] == "thinking")


# --- one session of an engine ------------------------------------------------


def _session(random: Random) -> Fuzzed:
    """Send a conversation that grows by a few messages at a time; ingest some of them before, and compact at times."""
    given, format_name = _Talk(random).written()
    if _chance(random, 0.5) and _is_readable(given, None):
        format_name = None  # each message is read by its own marks
    size, total, stop = random.choice(_WINDOWS), Fuzzed(), 0
    with TemporaryDirectory() as folder, Engine.open(folder, settings=_settings(random), background=False) as engine:
        while stop < len(given):
            sent, stop = stop, stop + random.choice([1, 1, 2, 3, 6])
            if sent and _chance(random, 0.1):
                engine.session("s").append(given[sent:stop], format=format_name)
            if sent and _chance(random, 0.05):
                with suppress(CompactionError):
                    engine.session("s").compact(limit=size)
            total += _assemble(engine, given[:stop], format_name, size)
    return total


def _assemble(engine: Engine, given: Sequence[Incoming], format_name: str | None, size: int) -> Fuzzed:
    """Make the window of one request, for the provider whose format it is, and check it for all of them."""
    limits = budget(engine.settings, window=size)
    try:
        window = engine.session("s").assemble(given, format=format_name, limit=size)
    except WindowTooSmallError:
        return Fuzzed(refused=1)
    except InvalidWindowError as error:
        return _refuse(error)
    said = messages_of(window.items)
    others = (_window(said, provider, limits.ceiling) for provider in PROVIDERS if provider != window.provider)
    own = _check(window.valid, said, limits.ceiling)
    return sum(others, own + Fuzzed(unmanaged=not any(item.id for item in window.items)))


def _settings(random: Random) -> Settings:
    soft = random.choice([SoftTrim(), SoftTrim(max_chars=300, head_chars=100, tail_chars=100)])
    return Settings(
        pruning=Pruning(
            mode=random.choice(["off", "cache-ttl", "adaptive", "aggressive"]),
            keep_last_assistants=random.choice([0, 1, 3]),
            min_prunable_tool_chars=random.choice([0, 2_000, 50_000]),
            soft_trim=soft,
        ),
        trim=Trim(
            enabled=_chance(random, 0.9),
            protected_recent=random.choice([0, 2, 6]),
            hysteresis=random.choice([0.0, 0.15, 0.3]),
        ),
        recall=Recall(position=random.choice(["tail", "tail", "head"])),
        embedding=Embedding(provider="none"),
    )


# --- what is said ------------------------------------------------------------

_LATIN: Final = (
    "The deploy of the payment service waits for the certificate, which nobody has renewed since May. " * 500
)
_CHINESE: Final = "支付服务的部署失败了，因为证书已经过期，没有人在五月以后续签。请检查日志中的错误。" * 60
_LOG: Final = "".join(
    f"[{number:05}] {'ERROR: connection refused' if number % 97 == 0 else 'compiled module in 12 ms'}\n"
    for number in range(1_500)
)
_SIZES: Final = (20, 20, 120, 120, 600, 600, 1_500)
_LONG: Final = (*_SIZES, 3_000, 12_000, 40_000)
_WINDOWS: Final = (4_000, 8_000, 8_000, 16_000, 32_000)
_PIXEL: Final = "iVBORw0KGgo="
_ID_STYLES: Final[Sequence[Callable[[int], str]]] = (
    lambda number: f"toolu_{number:024}",
    lambda number: f"call_{number}",
    lambda number: f"functions.Bash:{number}",
    lambda number: f"call_{number}|fc_{number:080}",
    lambda number: f"call_{number % 2}",
    lambda number: "" if number % 5 == 0 else f"call_{number}",
)


def _is_readable(given: Sequence[Incoming], format_name: str | None) -> bool:
    try:
        return bool(formats.read(given, format=format_name))
    except FormatError:
        return False


def _chance(random: Random, share: float) -> bool:
    return random.random() < share


def _words(random: Random, longest: int) -> str:
    source = random.choice([_LATIN, _LATIN, _CHINESE, _LOG])
    start = random.randrange(200)
    return source[start : start + random.randint(1, longest)]


@dataclass(slots=True)
class _Talk:
    """A conversation with everything in it that conversations have."""

    random: Random
    number: int = 0
    style: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        self.style = self.random.choice(_ID_STYLES)

    def conversation(self) -> list[Message]:
        """A conversation in the canonical form, or read from a format after it was damaged there."""
        given, format_name = self.written()
        return formats.read(given, format=format_name)

    def written(self) -> tuple[Sequence[Incoming], str | None]:
        """A conversation in the canonical form, or damaged in a format, and the name of that format."""
        rounds = range(self.random.randint(1, 10))
        said = [*self._system(), self._message("user", Text(text="Hello")), *chain(*(self._round() for _ in rounds))]
        format_name = self.random.choice([*formats.FORMATS, None])
        if format_name is None:
            return said, None
        wires = [dict(wire) for wire in formats.render(said, format_name)]
        wires = list(_dressed(wires, format_name, self.random))
        if _chance(self.random, 0.6):
            _damage(wires, self.random)
        return (wires, format_name) if _is_readable(wires, format_name) else (said, None)

    def _system(self) -> list[Message]:
        return [self._message("system", Text(text="You are careful."))] if _chance(self.random, 0.5) else []

    def _message(self, role: Any, *parts: Part) -> Message:
        broken = role == "assistant" and _chance(self.random, 0.04)
        return Message(role=role, parts=parts, stop="aborted" if broken else None)

    def _round(self) -> Iterator[Message]:
        """What the user says and the assistant does about it."""
        if _chance(self.random, 0.9):
            yield self._message("user", *self._spoken())
        if _chance(self.random, 0.03):
            yield self._message("system", Text(text="Mind the budget."))
        for _ in range(self.random.choice([0, 1, 1, 2, 4])):
            calls = self._calls()
            yield self._message("assistant", *self._thoughts(), *self._maybe(self._spoken()), *calls)
            yield from self._results(calls)
        if _chance(self.random, 0.8):
            yield self._message("assistant", *self._thoughts(), Text(text=self._text()))

    def _text(self, sizes: Sequence[int] = _SIZES) -> str:
        if _chance(self.random, 0.04):
            return self.random.choice(["", " ", "\n\n", "done \n"])
        return _words(self.random, self.random.choice(sizes))

    def _spoken(self) -> list[Part]:
        parts: list[Part] = [Text(text=self._text())]
        if _chance(self.random, 0.06):
            parts.append(Image(media_type="image/png", data=_PIXEL))
        if _chance(self.random, 0.03):
            parts.append(Opaque(kind="document", data={"type": "document", "title": "plan"}))
        return parts

    def _maybe(self, parts: list[Part]) -> list[Part]:
        return parts if _chance(self.random, 0.5) else []

    def _thoughts(self) -> list[Part]:
        if _chance(self.random, 0.6):
            return []
        self.number += 1
        seal = f"sig{self.number}"
        kinds: list[Part] = [
            Thinking(text=_words(self.random, 300), signature=seal),
            Thinking(text=_words(self.random, 300), signature=seal),
            Thinking(text=_words(self.random, 300)),
            Thinking(text="", signature=seal),
            RedactedThinking(data=seal),
        ]
        return [self.random.choice(kinds)]

    def _calls(self) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 3])):
            self.number += 1
            name = self.random.choice(["bash", "bash", "read", "mcp__files__list", "", "bad name!" * 20])
            arguments: Any = self.random.choice([{"path": "/srv"}, {}, "{broken", {"command": self._text()}])
            calls.append(ToolCall(id=self.style(self.number), name=name, arguments=arguments))
        return calls

    def _results(self, calls: Sequence[ToolCall]) -> Iterator[Message]:
        results: list[Part] = [self._result(call.id) for call in calls if not _chance(self.random, 0.04)]
        if results and _chance(self.random, 0.05):
            results.append(self.random.choice(results))
        if _chance(self.random, 0.03):
            results.append(self._result("nobody"))
        self.random.shuffle(results)
        if results and _chance(self.random, 0.4):
            extra = [Text(text=self._text())] if _chance(self.random, 0.2) else []
            yield self._message("tool", *results, *extra)
            return
        for result in results:
            if _chance(self.random, 0.03):
                yield self._message("user", Text(text=self._text()))
            yield self._message("tool", result)

    def _result(self, call_id: str) -> ToolResult:
        content: list[Text | Image | Opaque] = [Text(text=self._text(_LONG))] if _chance(self.random, 0.95) else []
        if _chance(self.random, 0.06):
            content.append(Image(media_type="image/png", data=_PIXEL))
        if _chance(self.random, 0.03):
            content.append(Opaque(kind="tool_reference", data={"type": "tool_reference", "tool_name": "grep"}))
        return ToolResult(call_id=call_id, content=tuple(content), is_error=_chance(self.random, 0.1))


# --- damage ------------------------------------------------------------------

_EMPTY: Final[dict[str, list[Any]]] = {"content": ["", " ", []], "parts": [[], [{"text": ""}], [{"text": " "}]]}


def _dressed(wires: Sequence[_Wire], format_name: str, random: Random) -> Iterator[_Wire]:
    """The messages with what only their own format has: reasoning items, envelopes, old spellings."""
    for number, wire in enumerate(wires):
        spoken = wire.get("role") == "assistant"
        if format_name == "openai_responses" and _chance(random, 0.3):
            yield _reasoning(number, random)
        elif format_name == "anthropic" and spoken and _chance(random, 0.05):
            wire |= {"id": f"msg_{number}", "type": "message", "usage": {"input_tokens": 9}}
        elif format_name == "openai_chat" and spoken:
            _age(wire, random)
        yield wire


def _reasoning(number: int, random: Random) -> _Wire:
    summary = [{"type": "summary_text", "text": "I think."}] if _chance(random, 0.5) else []
    name = f"rs_{number if _chance(random, 0.97) else 0}"
    return {"type": "reasoning", "id": name, "summary": summary, "encrypted_content": f"seal{number}"}


def _age(wire: _Wire, random: Random) -> None:
    """Let a reply think aloud, or spell its call as it was spelled before there were tools."""
    if _chance(random, 0.2):
        wire["reasoning_content"] = _words(random, 100)
    if len(calls := wire.get("tool_calls") or []) == 1 and _chance(random, 0.03):
        wire["function_call"] = calls[0]["function"]
        del wire["tool_calls"]


def _damage(wires: list[_Wire], random: Random) -> None:
    """What happens to histories: lines lost, doubled, out of order, emptied, without a field."""
    for _ in range(random.randint(1, 4)):
        if len(wires) < 2:
            return
        place, other = random.randrange(len(wires)), random.randrange(len(wires))
        match random.randrange(6):
            case 0:
                del wires[place]
            case 1:
                wires.insert(other, dict(wires[place]))
            case 2:
                wires[place], wires[other] = wires[other], wires[place]
            case 3:
                for key in _EMPTY.keys() & wires[place].keys():
                    wires[place][key] = random.choice(_EMPTY[key])
            case 4:
                wires[place] |= {"stopReason": "aborted", "stop_reason": "aborted"}
            case _:
                _strip(wires[place], random)


def _strip(wire: _Wire, random: Random) -> None:
    """Take a field from a message or from an object in it, or name another tool there."""
    wire.update(deepcopy(wire))
    inside = random.choice(list(_objects(wire)))
    # Without these most formats refuse to read it; a content of Gemini may lack its role.
    lost = sorted(inside.keys() - ({"type", "text"} if "parts" in inside else {"type", "text", "role"}))
    if "name" in inside and _chance(random, 0.3):
        inside["name"] = random.choice(["bash", "read", ""])
    elif lost:
        del inside[random.choice(lost)]


def _objects(value: Any) -> Iterator[_Wire]:
    """Every JSON object in a value, itself included."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _objects(inside)
