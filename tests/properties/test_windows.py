"""Every window is valid for every provider and fits, whatever came in; between two cuts it only grows at its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import formats
from holdfast.context.budget import budget
from holdfast.context.edits import (
    Compacted,
    Edit,
    Pruned,
    Recalled,
    Trimmed,
    apply,
    from_json,
    messages_of,
    to_json,
    tokens,
)
from holdfast.context.finish import finish
from holdfast.context.place import allowance, place
from holdfast.context.plan import plan
from holdfast.context.verify import PROVIDERS, check
from holdfast.errors import InvalidWindowError, WindowTooSmallError
from holdfast.messages import Message, Thinking
from holdfast.settings import Pruning, Recall, Settings
from holdfast.tokens import count_messages
from strategies import WIRE, conversations
from talk import answer, call, items, reply, results, system, user

slow = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


# --- always valid ------------------------------------------------------------


def sendable(talk: Sequence[Message], provider: str) -> Any:
    """What would be sent; nothing where there is nothing to send."""
    try:
        done = finish(talk, provider)
    except InvalidWindowError as error:
        if "there is no message" in str(error):
            return None
        raise
    assert check(done.wire, provider) == []
    json.dumps(list(done.wire))
    return done


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", sorted(WIRE))
@slow
@given(data=st.data())
def test_whatever_comes_in_what_goes_out_is_valid(name: str, provider: str, data: st.DataObject) -> None:
    """From every format to every provider."""
    sendable(formats.read(data.draw(WIRE[name]), format=name), provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@slow
@given(talk=conversations())
def test_whatever_was_said_what_goes_out_is_valid(provider: str, talk: list[Message]) -> None:
    """Also what no format made; and what goes out is not mended twice."""
    done = sendable(talk, provider)
    if done is not None:
        again = finish(done.messages, provider)
        assert list(again.wire) == list(done.wire)
        assert not again.violations


@slow
@given(talk=conversations())
def test_thoughts_are_whole_or_not_there(talk: list[Message]) -> None:
    """None is edited, and none is made up."""
    signed = {(p.text, p.signature) for m in talk for p in m.parts if isinstance(p, Thinking)}
    done = sendable(talk, "anthropic")
    for turn in done.wire if done else ():
        for block in turn["content"] if isinstance(turn["content"], list) else ():
            assert block["type"] != "thinking" or (block["thinking"], block["signature"]) in signed


# --- sessions ----------------------------------------------------------------


class Session(list[list[Message]]):
    """The requests of a session, too long to be shown."""

    def __repr__(self) -> str:
        return f"<{len(self)} requests>"


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """The requests of a well-behaved agent: each is the one before, the reply, and what is new."""
    said = [system()]
    requests = Session()
    for number in range(draw(st.integers(2, 12))):
        if number == 0 or draw(st.booleans()):
            said = [*said, user(f"question {number} " + "word " * draw(st.integers(0, 400)))]
            requests.append(said)
            said = [*said, reply(f"answer {number}", thought=f"thought {number}" if draw(st.booleans()) else None)]
        else:
            said = [*said, user(f"do {number}")]
            requests.append(said)
            names = [f"c{number}.{index}" for index in range(draw(st.integers(1, 3)))]
            size = draw(st.sampled_from([10, 500, 4_000]))
            said = [
                *said,
                reply("", *(call(name) for name in names), thought="so" if draw(st.booleans()) else None),
                results(*(answer(name, "输出 line\n" * size) for name in names)),
            ]
            requests.append(said)
            said = [*said, reply(f"done {number}")]
    return requests


@st.composite
def some_settings(draw: st.DrawFn) -> Settings:
    """Settings that matter to a window."""
    return Settings(
        pruning=Pruning(mode=draw(st.sampled_from(["off", "adaptive", "aggressive"])), min_prunable_tool_chars=0),
        recall=Recall(position=draw(st.sampled_from(["tail", "tail", "head"]))),
    )


def request(talk: Sequence[Message], edits: list[Edit], settings_: Settings, window: int) -> list[Message] | None:
    """The window of one request, with a block where there is room; its edits are recorded."""
    limits = budget(settings_, window=window)
    try:
        planned = plan(items(talk), edits, budget=limits, settings=settings_)
    except WindowTooSmallError:
        return None
    edits += planned.edits
    room = allowance(planned.items, limits, position=settings_.recall.position)
    text = "r" * (3 * min(room, 90))
    block = place(planned.items, text, position=settings_.recall.position)
    placed = apply(planned.items, [block] if block else [])
    edits += [block] if block else []
    assert sum(item.block.tokens for item in placed if item.block) <= limits.live_recall
    assert tokens(placed) == count_messages(messages_of(placed))
    assert tokens(placed) <= limits.ceiling
    return messages_of(placed)


@slow
@given(requests=sessions(), settings_=some_settings(), window=st.sampled_from([4_000, 8_000, 24_000, 100_000]))
def test_every_window_of_a_session_is_valid_and_fits(requests: Session, settings_: Settings, window: int) -> None:
    """Request by request, for every provider, after what finishing adds too."""
    edits: list[Edit] = []
    for talk in requests:
        said = request(talk, edits, settings_, window)
        for provider in PROVIDERS if said else ():
            done = finish(said or [], provider)
            assert not done.violations
            assert count_messages(done.messages) <= budget(settings_, window=window).ceiling


@pytest.mark.parametrize("provider", ["anthropic", "openai_chat", "openai_responses"])
@slow
@given(requests=sessions(), window=st.sampled_from([8_000, 24_000, 100_000]), mode=st.sampled_from(["off", "adaptive"]))
def test_without_a_recorded_edit_the_last_request_is_a_prefix_of_the_next(
    provider: str, requests: Session, window: int, mode: Any
) -> None:
    """Byte for byte, as the provider's cache wants it."""
    settings_ = Settings(pruning=Pruning(mode=mode, min_prunable_tool_chars=0))
    edits: list[Edit] = []
    before: list[str] = []
    for talk in requests:
        read = formats.read([dict(wire) for wire in formats.render(talk, provider)], format=provider)
        known = len(edits)
        said = request(read, edits, settings_, window)
        now = [json.dumps(wire, ensure_ascii=False) for wire in finish(said, provider).wire] if said else []
        if said and before and all(isinstance(edit.change, Recalled) for edit in edits[known:]):
            assert now[: len(before)] == before
        before = now


@slow
@given(requests=sessions(), settings_=some_settings(), window=st.sampled_from([8_000, 24_000]))
def test_a_request_that_is_sent_again_is_answered_the_same(requests: Session, settings_: Settings, window: int) -> None:
    """With nothing new recorded, apart from the block at the head, which each request has anew."""
    edits: list[Edit] = []
    for talk in requests:
        said = request(talk, edits, settings_, window)
        known = len(edits)
        assert request(talk, edits, settings_, window) == said
        assert all(isinstance(edit.change, Recalled) and edit.change.into is None for edit in edits[known:])


# --- edits -------------------------------------------------------------------

TALK = [
    system(),
    user("x"),
    reply("", call("a"), thought="t"),
    results(answer("a", "0123456789" * 9)),
    reply("y"),
    user("z"),
]
numbers = st.lists(st.integers(0, 7), max_size=3, unique=True).map(tuple)
spans = st.lists(st.tuples(st.integers(0, 40), st.integers(40, 90)), max_size=2).map(tuple)
changes = st.one_of(
    st.builds(Pruned, part=st.integers(0, 2), keep=spans, note=st.text(max_size=5)),
    st.builds(Trimmed, limit=st.integers(0, 9)),
    st.builds(Compacted, summary=st.text(min_size=1, max_size=5), unthought=st.just(()) | st.just(((3, 5),))),
    st.builds(Recalled, text=st.text(min_size=1, max_size=5), into=st.none() | st.integers(1, 7)),
)
edit_lists = st.lists(
    st.builds(
        Edit, change=changes, ids=numbers, reason=st.just("r"), tokens_before=st.just(9), tokens_after=st.integers(1, 9)
    ),
    max_size=5,
)


@settings(max_examples=200, deadline=None)
@given(first=edit_lists, second=edit_lists)
def test_applying_edits_in_two_steps_or_in_one_is_the_same(first: list[Edit], second: list[Edit]) -> None:
    """So that a window can be built up turn by turn, or from the record."""
    assert apply(apply(items(TALK), first), second) == apply(items(TALK), [*first, *second])


@settings(max_examples=300, deadline=None)
@given(edits=edit_lists)
def test_edits_survive_being_written_down(edits: list[Edit]) -> None:
    """Every kind, through JSON."""
    assert [from_json(json.loads(json.dumps(to_json(edit)))) for edit in edits] == edits
