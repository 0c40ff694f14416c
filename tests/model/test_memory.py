"""Summaries and facts by a real model. What is checked holds whatever the model writes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from holdfast.compaction.audit import find_fault
from holdfast.compaction.summarise import MAX_CALLS
from holdfast.engine import Engine
from holdfast.memory.extract import is_quoted, plain
from holdfast.memory.learning import MAX_TRIES
from holdfast.memory.learning_state import FAILED, WAITS
from holdfast.messages import Message
from holdfast.models import Reply
from holdfast.session import Session
from holdfast.settings import Compaction, Embedding, Knowledge, ModelSettings, Settings
from holdfast.store.base import FactRow
from support.conversations import reply, user
from support.real_model import CONTEXT_TOKENS, RecordingModel
from support.waiting import UNHURRIED

SETTINGS = Settings(
    model=ModelSettings(context_tokens=CONTEXT_TOKENS),
    embedding=Embedding(provider="none"),
    recall=UNHURRIED,
    # Short summaries: a weak model goes on until it is stopped.
    compaction=Compaction(reserve_tokens=512, reserve_tokens_floor=0, keep_recent_tokens=300),
    knowledge=Knowledge(idle=timedelta(0)),
)
HOUR = 3_600_000
ENGLISH = [
    user("Remember that the staging database listens on port 6543."),
    reply("Noted: the staging database listens on port 6543."),
    user("We moved the nightly backup to 04:15, because the old time collided with the reports."),
    reply("The backup of all shops now starts at 04:15."),
]
CHINESE = [
    user("请记住：测试环境的数据库端口是 7321。"),
    reply("好的，测试环境的数据库端口是 7321。"),
    user("我们决定缓存改用 Redis，不再用 Memcached。"),
    reply("明白，缓存使用 Redis。"),
]


def with_work(messages: list[Message], *, turns: int) -> list[Message]:
    """Add turns that have to leave the window."""
    work: list[Message] = []
    for number in range(turns):
        work.append(user(f"Step {number}: is module {number} tested? " + "It is long. " * 15))
        work.append(reply(f"Module {number} is tested. " + "I read all of it. " * 15))
    return [*messages, *work]


def check_facts(session: Session, facts: list[FactRow]) -> None:
    """Check that each fact has a quote that is in a message of the archive, and is no failure."""
    for fact in facts:
        texts = [row.message.text for row in session.get(fact.evidence)]
        assert any(is_quoted(fact.quote, plain(text)) for text in texts), fact
        assert FAILED not in fact.content
        assert "not JSON" not in fact.content


def check_archive(session: Session, messages: list[Message]) -> None:
    """Check that every message is in the archive, word for word and in order."""
    assert [row.message.text for row in session.messages()][: len(messages)] == [each.text for each in messages]


def test_a_long_conversation_is_summarised_and_goes_on(model: RecordingModel, tmp_path: Path) -> None:
    """The summary is shorter, no failure text, and made in few calls; what left the window is recalled."""
    conversation = with_work(ENGLISH, turns=5)
    with Engine.open(tmp_path, settings=SETTINGS, model=model, background=False) as engine:
        session = engine.session("s")
        done = session.compact(conversation, limit=CONTEXT_TOKENS)
        summary = done.summary
        assert summary is not None
        assert done.tokens_after < done.tokens_before
        assert 0 < summary.calls <= MAX_CALLS
        assert find_fault(Reply(message=reply(summary.text))) is None
        asked = [*conversation, user("Which port does the staging database use?")]
        window = session.assemble(asked, limit=CONTEXT_TOKENS)
        check_archive(session, conversation)
    print(f"summary: {summary.rung}, {summary.calls} calls, {done.tokens_before} -> {done.tokens_after} tokens")
    print(model.describe())
    model.check_requests()
    assert window.tokens <= CONTEXT_TOKENS
    assert "6543" in str(window.render())


def test_only_facts_that_are_quoted_are_learned(model: RecordingModel, tmp_path: Path) -> None:
    """English and Chinese; if the model cannot read a part, the rules do, and the next report says so."""
    now = [1_790_000_000_000]
    with Engine.open(tmp_path, settings=SETTINGS, model=model, background=False, clock=lambda: now[0]) as engine:
        for name, conversation in (("english", ENGLISH), ("chinese", CHINESE)):
            session = engine.session(name)
            session.append(conversation)
            session.learn()
            for _ in range(MAX_TRIES):
                engine.work()
                now[0] += HOUR  # a model that failed is not asked again for up to an hour
            check_facts(session, session.facts())
            check_archive(session, conversation)
        state = engine.stats().learning
        window = engine.session("later").assemble([user("Which port does the staging database use?")], limit=4_096)
        stored = engine.session("later").facts()
    print(model.describe(), f"stored: {[fact.content for fact in stored]}", *window.report.warnings, sep="\n")
    model.check_requests()
    assert model.count_extractions() == state.calls
    assert "6543" in str(window.render())
    assert len(stored) >= 2  # what the user asked to remember is learned, whatever the model writes


def test_a_budget_limits_the_calls(model: RecordingModel, tmp_path: Path) -> None:
    """What does not fit waits, nothing of it is lost, and the next report says so."""
    settings = replace(SETTINGS, knowledge=replace(SETTINGS.knowledge, max_calls_per_hour=1))
    with Engine.open(tmp_path, settings=settings, model=model, background=False) as engine:
        session = engine.session("s")
        conversation = with_work(ENGLISH, turns=5)
        session.append(conversation)
        session.learn()
        engine.work()
        engine.work()
        window = session.assemble([*conversation, user("Go on.")], limit=CONTEXT_TOKENS)
        check_facts(session, session.facts())
        check_archive(session, conversation)
        problems = engine.stats().learning.problems
    print(model.describe())
    assert model.count_extractions() == 1
    assert any(WAITS in problem for problem in problems)
    assert any(warning.startswith(WAITS) for warning in window.report.warnings)
