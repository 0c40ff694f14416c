"""Random conversations with the damage that real ones have, cut to random sizes: every window must be valid and fit.

The windows are those that a client gets from `Session.assemble`, in an empty session that grows request by request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from multiprocessing import get_context
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from holdfast import providers
from holdfast.context.budget import budget
from holdfast.context.edits import Item
from holdfast.context.validate import ValidWindow, validate
from holdfast.engine import Engine
from holdfast.errors import CompactionError, FormatError, InvalidWindowError, WindowTooSmallError
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import FORMATS, Incoming, check
from holdfast.session import Session
from holdfast.settings import Embedding, Pruning, Recall, Settings, SoftTrim, Trim
from holdfast.tokens import count_messages

__all__ = ["Conversation", "Fuzzed", "measure"]

_Wire: TypeAlias = dict[str, Any]
_START: Final = 1_750_000_000_000
_BATCH: Final = 64
"""How many conversations are given to the processes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """The counts of a run.

    Attributes:
        windows: Windows that were checked: every assembled one for its own provider and for the others.
        assembled: Windows that `Session.assemble` returned.
        invalid: Windows that their provider would refuse, or that hold changed or invented thinking.
        over_limit: Windows above their limit.
        refused: Windows that were not made, because what must stay did not fit.
        blunt: Windows that only the second repair, which drops all unknown blocks, made valid.
        unmanaged: Requests that the engine passed on without archiving them, because of an error.
    """

    windows: int = 0
    assembled: int = 0
    invalid: int = 0
    over_limit: int = 0
    refused: int = 0
    blunt: int = 0
    unmanaged: int = 0

    def __add__(self, other: Fuzzed) -> Fuzzed:
        return Fuzzed(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def measure(
    *, windows: int = 20_000, seed: int = 0, processes: int = 1, progress: Callable[[int], object] = lambda _: None
) -> Fuzzed:
    """Assemble at least so many windows; the same seed gives the same windows, in any number of processes."""
    total, start = Fuzzed(), 0
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        run: Any = map if processes == 1 else pool.map
        while total.windows < windows:
            for found in run(partial(_run_numbered, seed), range(start, start + _BATCH)):
                total += found
                progress(found.windows)
                if total.windows >= windows:
                    break
            start += _BATCH
    return total


def _run_numbered(seed: int, number: int) -> Fuzzed:
    return _run_session(Random(f"{seed}:{number}"))  # noqa: S311 - not for security


def _validate(messages: Sequence[Message], provider: str, limit: int) -> Fuzzed:
    try:
        return _check(validate(messages, provider), messages, limit)
    except InvalidWindowError as error:
        return _refuse(error)


def _refuse(error: InvalidWindowError) -> Fuzzed:
    """Only a window without any message may be refused."""
    empty = [violation[0] for violation in error.violations if isinstance(violation, tuple)] == ["empty-window"]
    return Fuzzed(refused=1) if empty else Fuzzed(windows=1, invalid=1)


def _check(valid: ValidWindow, messages: Sequence[Message], limit: int) -> Fuzzed:
    return Fuzzed(
        windows=1,
        invalid=bool(check(valid.wire, valid.provider)) or not _has_true_thinking(messages, valid),
        over_limit=count_messages(valid.messages) > limit,
        blunt=bool(valid.violations),
    )


def _has_true_thinking(messages: Sequence[Message], valid: ValidWindow) -> bool:
    """Whether all thinking that is sent was in the conversation: none cut, none edited, none invented."""
    parts = [part for message in messages for part in message.parts if isinstance(part, Thinking | RedactedThinking)]
    if valid.provider == "anthropic":
        signed = {(part.text, part.signature) for part in parts if isinstance(part, Thinking)}
        contents = [turn["content"] for turn in valid.wire if isinstance(turn["content"], list)]
        blocks = [block for content in contents for block in content if block["type"] == "thinking"]
        return all((block["thinking"], block["signature"]) in signed for block in blocks)
    known = {id(part.origin.data) for part in parts if part.origin}
    return all(id(item) in known for item in valid.wire if item.get("type") == "reasoning")


# --- one session -------------------------------------------------------------


def _run_session(random: Random) -> Fuzzed:
    """Send a conversation that grows by a few messages at a time; sometimes append, pin or compact between requests."""
    given, format_name = Conversation(random).write()
    if _chance(random, 0.5) and _is_readable(given, None):
        format_name = None  # each message is read by its own marks
    size, overhead = random.choice(_WINDOWS), random.choice([0, 0, 300])
    total, stop, minutes = Fuzzed(), 0, count(step=random.choice([0, 1, 90]))
    with (
        TemporaryDirectory() as folder,
        Engine.open(
            folder, settings=_settings(random), background=False, clock=lambda: _START + next(minutes) * 60_000
        ) as engine,
    ):
        session = engine.session("s")
        while stop < len(given):
            sent, stop = stop, stop + random.choice([1, 1, 2, 3, 6])
            if sent and _chance(random, 0.1):
                session.append(given[sent:stop], format=format_name)
            if sent and _chance(random, 0.05):
                with suppress(CompactionError):
                    session.compact(limit=size)
            result, items = _assemble(session, given[:stop], format=format_name, limit=size, overhead=overhead)
            total += result
            if items and _chance(random, 0.05):
                session.pin([item.id for item in random.sample(items, 1) if item.id])
    return total


def _assemble(
    session: Session, given: Sequence[Incoming], *, format: str | None, limit: int, overhead: int
) -> tuple[Fuzzed, Sequence[Item]]:
    """Assemble the window of one request for the provider of its format, and check it for all providers."""
    limits = budget(session.settings, window=limit, overhead=overhead)
    try:
        window = session.assemble(given, format=format, limit=limit, overhead=overhead)
    except WindowTooSmallError:
        return Fuzzed(refused=1), ()
    except InvalidWindowError as error:
        return _refuse(error), ()
    messages = [item.sent for item in window.items]
    others = (_validate(messages, provider, limits.ceiling) for provider in FORMATS if provider != window.provider)
    own = _check(window.valid, messages, limits.ceiling)
    is_unmanaged = not any(item.id for item in window.items)
    return sum(others, own + Fuzzed(assembled=1, unmanaged=is_unmanaged)), window.items


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


# --- conversations ------------------------------------------------------------

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
        return bool(providers.read(given, format=format_name))
    except FormatError:
        return False


def _chance(random: Random, share: float) -> bool:
    return random.random() < share


def _words(random: Random, longest: int) -> str:
    source = random.choice([_LATIN, _LATIN, _CHINESE, _LOG])
    start = random.randrange(200)
    return source[start : start + random.randint(1, longest)]


@dataclass(slots=True)
class Conversation:
    """Makes conversations with everything that real ones have."""

    random: Random
    number: int = 0
    style: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        self.style = self.random.choice(_ID_STYLES)

    def read(self) -> list[Message]:
        """Return a conversation in canonical form; most were damaged in a format before they were read."""
        given, format_name = self.write()
        return providers.read(given, format=format_name)

    def write(self) -> tuple[Sequence[Incoming], str | None]:
        """Return a conversation in canonical form, or in a format and damaged there, and the name of that format."""
        rounds = range(self.random.randint(1, 10))
        said = [*self._system(), self._message("user", Text(text="Hello")), *chain(*(self._round() for _ in rounds))]
        format_name = self.random.choice([*providers.FORMATS, None])
        if format_name is None:
            return said, None
        wires = [dict(wire) for wire in providers.render(said, format_name)]
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
