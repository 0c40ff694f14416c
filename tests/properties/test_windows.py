"""Every window is valid for every provider and fits, for any input; between two cuts it only grows at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import providers
from holdfast.context.budget import budget
from holdfast.context.edits import (
    Edit,
    OverviewAdded,
    Pruned,
    Recalled,
    Summarised,
    Trimmed,
    apply,
    from_json,
    to_json,
    tokens,
)
from holdfast.context.validate import validate
from holdfast.engine import Engine
from holdfast.errors import InvalidWindowError, WindowTooSmallError
from holdfast.messages import Message, Thinking
from holdfast.providers import FORMATS, check
from holdfast.report import Window
from holdfast.session import Session
from holdfast.settings import Embedding, Pruning, Recall, Settings, Trim
from holdfast.tokens import count_messages
from support.conversations import answer, call, items, messages_of, reply, results, system, user
from support.earlier import write_earlier_memory
from support.strategies import WIRE, conversations, examples

slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
few = settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
NO_VECTORS = Embedding(provider="none")


# --- always valid ------------------------------------------------------------


def sendable(talk: Sequence[Message], provider: str) -> Any:
    """Return what would be sent; nothing if there is nothing to send."""
    try:
        done = validate(talk, provider)
    except InvalidWindowError as error:
        if "there is no message" in str(error):
            return None
        raise
    assert check(done.wire, provider) == []
    json.dumps(list(done.wire))
    return done


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("name", sorted(WIRE))
@slow
@given(data=st.data())
def test_whatever_comes_in_what_goes_out_is_valid(name: str, provider: str, data: st.DataObject) -> None:
    """From every format to every provider."""
    sendable(providers.read(data.draw(WIRE[name]), format=name), provider)


@pytest.mark.parametrize("provider", FORMATS)
@slow
@given(conversation=conversations())
def test_any_conversation_is_sent_in_a_valid_form(provider: str, conversation: list[Message]) -> None:
    """This includes conversations of no format; and the result is not repaired again."""
    done = sendable(conversation, provider)
    if done is not None:
        again = validate(done.messages, provider)
        assert list(again.wire) == list(done.wire)
        assert not again.violations


@slow
@given(conversation=conversations())
def test_thoughts_are_whole_or_not_there(conversation: list[Message]) -> None:
    """No thinking is edited or made up."""
    signed = {(p.text, p.signature) for m in conversation for p in m.parts if isinstance(p, Thinking)}
    done = sendable(conversation, "anthropic")
    for turn in done.wire if done else ():
        for block in turn["content"] if isinstance(turn["content"], list) else ():
            assert block["type"] != "thinking" or (block["thinking"], block["signature"]) in signed


# --- sessions ----------------------------------------------------------------


class Requests(list[list[Message]]):
    """The requests of a session, with a short representation."""

    def __repr__(self) -> str:
        return f"<{len(self)} requests>"


@st.composite
def histories(draw: st.DrawFn) -> Requests:
    """Draw the requests of a well-behaved agent: each is the one before, the reply, and new messages."""
    messages = [system()]
    requests = Requests()
    for number in range(draw(st.integers(2, 12))):
        if number == 0 or draw(st.booleans()):
            messages = [*messages, user(f"question {number} " + "word " * draw(st.integers(0, 400)))]
            requests.append(messages)
            messages = [
                *messages,
                reply(f"answer {number}", thought=f"thought {number}" if draw(st.booleans()) else None),
            ]
        else:
            messages = [*messages, user(f"do {number}")]
            requests.append(messages)
            names = [f"c{number}.{index}" for index in range(draw(st.integers(1, 3)))]
            size = draw(st.sampled_from([10, 500, 4_000]))
            messages = [
                *messages,
                reply("", *(call(name) for name in names), thought="so" if draw(st.booleans()) else None),
                results(*(answer(name, "输出 line\n" * size) for name in names)),
            ]
            requests.append(messages)
            messages = [*messages, reply(f"done {number}")]
    return requests


@st.composite
def some_settings(draw: st.DrawFn) -> Settings:
    """Draw settings that affect a window."""
    return Settings(
        pruning=Pruning(mode=draw(st.sampled_from(["off", "adaptive", "aggressive"])), min_prunable_tool_chars=0),
        recall=Recall(position=draw(st.sampled_from(["tail", "tail", "head"])), deadline_ms=600_000),
        embedding=NO_VECTORS,
    )


@contextmanager
def open_session(settings_: Settings) -> Iterator[Session]:
    """A session over a real store that is deleted afterwards."""
    with TemporaryDirectory() as folder:
        write_earlier_memory(Path(folder))
        with Engine.open(folder, settings=settings_, background=False, personal=True) as engine:
            yield engine.session("s")


def request(session: Session, talk: Sequence[Any], window: int, **options: Any) -> Window | None:
    """Assemble the window of one request; None if what must stay does not fit."""
    try:
        made = session.assemble(talk, limit=window, **options)
    except WindowTooSmallError:
        return None
    limits = budget(session.settings, window=window)
    assert sum(item.block_tokens for item in made.items) <= limits.live_recall
    assert made.report.overview_tokens <= session.settings.recall.overview_tokens
    assert tokens(made.items) == count_messages(messages_of(made.items))
    assert tokens(made.items) <= limits.ceiling
    return made


@few
@given(requests=histories(), settings_=some_settings(), window=st.sampled_from([4_000, 8_000, 24_000, 100_000]))
def test_every_window_of_a_session_is_valid_and_fits(requests: Requests, settings_: Settings, window: int) -> None:
    """This holds request by request, for every provider, with everything that validation adds."""
    with open_session(settings_) as session:
        for conversation in requests:
            made = request(session, conversation, window)
            for provider in FORMATS if made else ():
                valid = validate(messages_of(made.items if made else ()), provider)
                assert not valid.violations
                assert count_messages(valid.messages) <= budget(settings_, window=window).ceiling


@pytest.mark.parametrize("provider", ["anthropic", "openai_chat", "openai_responses", "gemini"])
@few
@given(
    requests=histories(), window=st.sampled_from([8_000, 24_000, 100_000]), mode=st.sampled_from(["off", "adaptive"])
)
def test_without_a_recorded_edit_the_last_request_is_a_prefix_of_the_next(
    provider: str, requests: Requests, window: int, mode: Any
) -> None:
    """It is one byte for byte, as the provider's cache requires."""
    before: list[str] = []
    with open_session(Settings(pruning=Pruning(mode=mode, min_prunable_tool_chars=0), embedding=NO_VECTORS)) as session:
        for conversation in requests:
            wires = [dict(wire) for wire in providers.render(conversation, provider)]
            made = request(session, wires, window, format=provider)
            now = [json.dumps(wire, ensure_ascii=False) for wire in made.render()] if made else []
            if made and before and {change.kind for change in made.report.changes} <= {"recalled", "overview"}:
                assert now[: len(before)] == before
            before = now


@few
@given(requests=histories(), settings_=some_settings(), window=st.sampled_from([8_000, 24_000]))
def test_a_request_that_is_sent_again_gets_the_same_window(
    requests: Requests, settings_: Settings, window: int
) -> None:
    """Nothing new is recorded, apart from the block at the head, which each request has again."""
    with open_session(settings_) as session:
        for conversation in requests:
            made = request(session, conversation, window)
            known = len(session.edits())
            again = request(session, conversation, window)
            assert (again and again.messages) == (made and made.messages)
            new = [edit.change for edit in session.edits()[known:]]
            assert all(isinstance(change, Recalled) and change.into is None for change in new)


class Talk(list[Message]):
    """A history, with a short representation."""

    def __repr__(self) -> str:
        return f"<{[(message.role, count_messages([message])) for message in self]}>"


@st.composite
def oversized_histories(draw: st.DrawFn) -> Talk:
    """Draw a history that ends where an agent waits for a reply, in which any message may be larger than the window."""
    sizes = st.sampled_from([1, 40, 600, 8_000])
    conversation = [system()]
    for number in range(draw(st.integers(1, 5))):
        conversation.append(user(f"request {number} " + "word " * draw(sizes)))
        for step in range(draw(st.integers(0, 2))):
            name = f"c{number}.{step}"
            conversation.append(reply("", call(name, text="输入 " * draw(sizes))))
            conversation.append(results(answer(name, "output line\n" * draw(sizes))))
        conversation.append(reply(f"answer {number} " + "mot " * draw(sizes)))
    return Talk(conversation[: max(2, len(conversation) - draw(st.integers(1, 2)))])


@pytest.mark.parametrize("provider", sorted(FORMATS))
@few
@given(conversation=oversized_histories(), recent=st.integers(0, 8), question=st.booleans())
def test_a_short_turn_succeeds_after_any_history(
    provider: str,
    conversation: Talk,
    recent: int,
    question: bool,  # noqa: FBT001 - drawn
) -> None:
    """What no longer has to stay yields: at most the turn of an oversized message itself is an error."""
    window = 4_000
    with open_session(Settings(embedding=NO_VECTORS, trim=Trim(protected_recent=recent))) as session:
        asked: dict[str, Any] = {"question": "And now?"} if question else {}
        request(session, conversation, window, provider=provider)
        for turn in range(2):
            if not question:
                conversation = Talk([*conversation, user(f"And now? {turn}")])
            made = session.assemble(conversation, limit=window, provider=provider, **asked)
            is_question_alone = question and not made.render()
            assert is_question_alone or check(made.render(), provider) == []
            assert count_messages(made.messages) <= window
            assert question or f"And now? {turn}" in str(made.render()[-1])
            conversation = Talk([*conversation, reply("Done.")])


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
    st.builds(Trimmed, limit=st.integers(0, 9), keeps_overview=st.booleans()),
    st.builds(OverviewAdded, text=st.text(min_size=1, max_size=5), into=st.none() | st.integers(1, 7)),
    st.builds(Summarised, summary=st.text(min_size=1, max_size=5), thinking_removed=st.just(()) | st.just(((3, 5),))),
    st.builds(Recalled, text=st.text(min_size=1, max_size=5), into=st.none() | st.integers(1, 7)),
)
edit_lists = st.lists(
    st.builds(
        Edit, change=changes, ids=numbers, reason=st.just("r"), tokens_before=st.just(9), tokens_after=st.integers(1, 9)
    ),
    max_size=5,
)


@settings(max_examples=examples(200), deadline=None)
@given(first=edit_lists, second=edit_lists)
def test_applying_edits_in_two_steps_or_in_one_is_the_same(first: list[Edit], second: list[Edit]) -> None:
    """So a window can be built turn by turn, or from its records."""
    assert apply(apply(items(TALK), first), second) == apply(items(TALK), [*first, *second])


@settings(max_examples=examples(300), deadline=None)
@given(edits=edit_lists)
def test_edits_survive_being_written_down(edits: list[Edit]) -> None:
    """Edits of every kind can be written as JSON and read again."""
    assert [from_json(json.loads(json.dumps(to_json(edit)))) for edit in edits] == edits
