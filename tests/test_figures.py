"""Tokens, costs, cuts, recalls and times are recorded with each turn and added up by session and day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from operator import attrgetter
from pathlib import Path

import pytest

from holdfast import Engine, figures
from holdfast.errors import ModelBusyError
from holdfast.exchange import Exchanges, ModelRequest, complete
from holdfast.messages import Message, Text, ToolCall, ToolResult, Usage
from holdfast.models.scripted import Scripted, ScriptedReply
from holdfast.session import Session
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.timeline import read_replies
from support.waiting import UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
MODEL = "claude-sonnet-4-5"
USAGE = Usage(input=1_000, output=200, cache_read=3_000, cache_write=0)
START = int(datetime(2026, 11, 16, 12).astimezone().timestamp() * 1000)


@dataclass
class Clock:
    """A clock that a test sets."""

    now: int = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the engine."""
    return Clock()


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Iterator[Engine]:
    """An engine whose clock a test sets."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False, clock=clock) as opened:
        yield opened


def ask(text: str) -> Message:
    """Make a message of the user."""
    return Message(role="user", parts=(Text(text=text),))


def answer(text: str, *, usage: Usage | None = USAGE, model: str = MODEL) -> Message:
    """Make a reply with reported usage."""
    return Message(role="assistant", parts=(Text(text=text),), usage=usage, model=model)


def read_turn(session: Session, turn: int) -> figures.TurnCost:
    """Return the figures of a turn."""
    store = session._memory.store
    assert figures.update(store, [session.scope.tenant], seconds=60)
    found = figures.read_turn(store, session.scope, turn)
    assert found is not None
    return found


def test_an_appended_reply_has_its_usage_its_price_and_its_time(engine: Engine, clock: Clock) -> None:
    """The time is from the window to the reply."""
    session = engine.session("s")
    session.assemble([ask("Which port? 哪个端口?")], limit=50_000, model=MODEL)
    clock.now += 1_234
    session.append([answer("5433")])
    turn = read_turn(session, 1)
    assert turn.figures.replying == 1_234
    assert turn.figures.model == MODEL
    assert turn.figures.usage == USAGE
    assert turn.cached_share == 0.75
    assert turn.cost == pytest.approx((1_000 * 3 + 200 * 15 + 3_000 * 0.3) / 1e6)


def test_a_reply_that_comes_with_the_next_request_has_usage_but_no_time(engine: Engine, clock: Clock) -> None:
    """Nobody knows when it came."""
    session = engine.session("s")
    history = [ask("Which port?")]
    session.assemble(history, limit=50_000)
    clock.now += 60_000
    session.assemble([*history, answer("5433"), ask("And the host?")], limit=50_000)
    turn = read_turn(session, 1)
    assert turn.figures.usage == USAGE
    assert turn.figures.replying is None
    assert read_turn(session, 2).figures.usage is None


def test_the_time_of_tools_is_not_that_of_the_reply(engine: Engine, clock: Clock) -> None:
    """A host may hand in a whole tool loop at once."""
    session = engine.session("s")
    session.assemble([ask("Which files?")], limit=50_000)
    clock.now += 90_000
    call = replace(answer("", model=MODEL), parts=(ToolCall(id="c1", name="ls", arguments={}),))
    result = Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="a.txt"),)),))
    session.append([call, result])
    turn = read_turn(session, 1)
    assert turn.figures.usage == USAGE
    assert turn.figures.replying is None


def test_a_measured_reply_has_its_time_though_it_comes_with_the_next_request(engine: Engine) -> None:
    """As in a tool loop of `holdfast chat`."""
    session = engine.session("s")
    history = [ask("Which files?")]
    model = Scripted([ScriptedReply(text="None.", usage=USAGE)])
    request = ModelRequest(messages=history, format="anthropic", model=MODEL)
    completion = complete(Exchanges().begin(session, request), model)
    session.assemble([*history, completion.reply.message, ask("And now?")], limit=50_000)
    turn = read_turn(session, 1).figures
    assert turn.replying is not None
    assert turn.usage == USAGE


def test_a_model_that_fails_is_a_refused_turn(engine: Engine) -> None:
    """The error is raised as before."""
    session = engine.session("s")
    request = ModelRequest(messages=[ask("Which files?")], format="anthropic", model=MODEL)
    model = Scripted([ModelBusyError("overloaded")])
    with pytest.raises(ModelBusyError):
        complete(Exchanges().begin(session, request), model)
    assert read_turn(session, 1).figures.is_refused


def test_replies_of_overlapping_requests_belong_to_their_turns(engine: Engine, clock: Clock) -> None:
    """Each names the place of its request."""
    session = engine.session("s")
    first = session.assemble([ask("one")], limit=50_000)
    clock.now += 10
    second = session.assemble([ask("two")], limit=50_000)
    clock.now += 100
    session.append([answer("to one")], after=first.place)
    clock.now += 1_000
    session.append([answer("to two")], after=second.place)
    assert read_turn(session, 1).figures.replying == 110
    assert read_turn(session, 2).figures.replying == 1_100


def test_tokens_that_were_not_sent_are_saved(engine: Engine) -> None:
    """In comparison with the whole conversation."""
    session = engine.session("s")
    history: list[Message] = []
    for number in range(60):
        history += [ask(f"Part {number} of the ledger 账本. " + "words " * 100), answer(f"Noted {number}.", usage=None)]
    window = session.assemble([*history, ask("What is in part 3?")], limit=4_000)
    report = window.report
    assert report.whole_tokens > report.total_tokens
    assert report.saved_tokens == report.whole_tokens - report.total_tokens
    turn = read_turn(session, 1).figures
    assert turn.saved == report.saved_tokens
    assert turn.is_cut
    assert turn.assembling == pytest.approx(sum(report.milliseconds.values()), abs=1)


def test_a_recall_is_followed_if_the_model_calls_a_tool_of_memory_for_the_same_question(engine: Engine) -> None:
    """Hosts may put a prefix before the name of the tool."""
    session = engine.session("s")
    session.append([ask("The harbour office opens at seven."), answer("Noted.")])
    other = engine.session("t")
    history = [ask("When does the harbour office open?")]
    other.remember("The harbour office opens at seven.")
    assert any(change.kind == "recalled" for change in other.assemble(history, limit=50_000).report.changes)
    assert not read_turn(other, 1).figures.is_followed
    call = ToolCall(id="c1", name="mcp__holdfast__archive_get", arguments={"numbers": [1]})
    result = ToolResult(call_id="c1", content=(Text(text="at seven"),))
    history += [replace(answer(""), parts=(call,)), Message(role="tool", parts=(result,))]
    assert other.assemble(history, limit=50_000).report.lookups == 1
    assert read_turn(other, 1).figures.is_followed
    history += [answer("At seven."), ask("Thanks.")]
    assert other.assemble(history, limit=50_000).report.lookups == 0


def test_a_refused_request_is_counted(engine: Engine) -> None:
    """Its record has the reason."""
    session = engine.session("s")
    window = session.assemble([ask("Which port?")], limit=50_000)
    session._record_refusal("status 429", place=window.place)
    assert read_turn(session, 1).figures.is_refused
    records = session._memory.store.read_records(Select(scope=session.scope), kind="reply")
    (reply,) = read_replies(session._memory.store, session.scope, [records[0].key]).values()
    assert reply.error == "status 429"


def test_days_add_up_what_happened_on_them(engine: Engine, clock: Clock) -> None:
    """A day is one of the local calendar; sessions of imports have usage without turns."""
    store = engine._memory.store
    for number in range(3):
        clock.now = START + number * 86_400_000
        session = engine.session(f"s{number}", agent="claude-code" if number else "codex")
        session.assemble([ask("Which port?")], limit=50_000)
        session.append([answer("5433")])
    engine.session("unpriced").append([ask("?"), answer("!", model="一个模型")])
    assert figures.update(store, ["local"], seconds=60)
    first = date(2026, 11, 15)
    days = figures.sum_days(store, ["local"], first=first, last=first + timedelta(days=4)).by_day()
    assert [day.turns.turns for day in days.values()] == [0, 1, 1, 1, 0]
    assert [day.replies for day in days.values()] == [0, 1, 1, 2, 0]
    price = days[date(2026, 11, 16)].cost
    assert price > 0
    assert days[date(2026, 11, 18)].cost == pytest.approx(price)
    assert days[date(2026, 11, 18)].unpriced == ("一个模型",)
    sums = figures.sum_days(store, ["local"], first=first, last=date(2026, 11, 18), prices=["一个模型 1 2"])
    assert all(day.unpriced == () for day in sums.by_day().values())
    late = sums.by_session(since=date(2026, 11, 17))
    assert {scope.session for scope in late} == {"s1", "s2", "unpriced"}
    assert {model: totals.replies for model, totals in sums.by_model(since=first).items()} == {
        MODEL: 3,
        "一个模型": 1,
    }
    sessions = figures.sum_sessions(store, ["local"], prices=["一个模型 1 2"])
    assert set(sessions) == {
        Scope(agent="codex", session="s0"),
        Scope(agent="claude-code", session="s1"),
        Scope(agent="claude-code", session="s2"),
        Scope(session="unpriced"),
    }
    hosts = figures.group(sessions, attrgetter("agent"))
    assert {name: count for name, (count, _) in hosts.items()} == {"claude-code": 2, "codex": 1, "main": 1}
    total = figures.add_all(sessions.values())
    assert total.replies == 4
    assert total.cost == pytest.approx(3 * price + (1_000 * 1 + 200 * 2 + 3_000 * 1) / 1e6)


def test_a_store_without_figures_gets_them_when_they_are_asked_for(engine: Engine) -> None:
    """As in a store of an earlier version, or in a copy."""
    session = engine.session("s")
    session.assemble([ask("Which port?")], limit=50_000)
    session.append([answer("5433")])
    store = engine._memory.store
    assert figures.sum_session(store, session.scope) == figures.Totals()
    assert figures.update(store, ["local"], seconds=60)
    assert figures.sum_session(store, session.scope).turns.turns == 1
    assert figures.update(store, ["local"], seconds=60)
    assert figures.sum_session(store, session.scope).turns.turns == 1


def test_a_host_that_appends_its_whole_history_has_the_usage_of_each_reply(engine: Engine, clock: Clock) -> None:
    """A turn does not show the usage of the first reply again, and a reply with text alone keeps model and cache."""
    session = engine.session("s")
    history: list[dict[str, object]] = [{"role": "system", "content": "You fix bugs."}]
    for number in (1, 2):
        call = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"number": number}}
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"log 日志 {number}"}
        history.append({"role": "user", "content": f"Run the tests. 运行测试 {number}"})
        session.assemble(history, limit=16_000, model=MODEL, provider="anthropic")
        history.append(make_reply(call, tokens=100 * number))
        history.append({"role": "user", "content": [result]})
        session.assemble(history, limit=16_000, model=MODEL, provider="anthropic")
        history.append(make_reply({"type": "text", "text": f"Changed {number}."}, tokens=1_000 * number))
        clock.now += 700
        session.append(history)
    turns = [read_turn(session, number).figures for number in (1, 2, 3, 4)]
    assert [turn.usage for turn in turns] == [
        Usage(input=tokens, cache_read=4 * tokens, output=60) for tokens in (100, 1_000, 200, 2_000)
    ]
    assert {turn.model for turn in turns} == {MODEL}
    assert [turn.replying for turn in turns] == [None, 700, None, 700]


def test_a_reply_without_usage_does_not_borrow_that_of_another_turn(engine: Engine) -> None:
    """Though the whole history is appended, in which an earlier reply has usage."""
    session = engine.session("s")
    history = [ask("Which port?")]
    session.assemble(history, limit=50_000)
    history.append(answer("5433"))
    session.append(history)
    history.append(ask("And the host?"))
    session.assemble(history, limit=50_000)
    history.append(answer("db.example", usage=None))
    session.append(history)
    assert read_turn(session, 1).figures.usage == USAGE
    assert read_turn(session, 2).figures.usage is None


def make_reply(block: Mapping[str, object], *, tokens: int) -> dict[str, object]:
    """Make a reply of Anthropic without its envelope, as hosts keep it in a history."""
    usage = {"input_tokens": tokens, "cache_read_input_tokens": 4 * tokens, "output_tokens": 60}
    return {"role": "assistant", "content": [block], "model": MODEL, "usage": usage}
