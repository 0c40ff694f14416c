"""A decision that a later session takes back is not given to a new session as one that holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.messages import Message, Text

NOW = 1_790_000_000_000
HOUR = 3_600_000

REPLACED = {
    "instead of": (
        "We decided to use NATS for the event bus.",
        "We changed our mind: the event bus will be RabbitMQ instead of NATS.",
        "Which event bus do we use?",
    ),
    "moved": ("We agreed that deploys happen on Thursdays.", "Deploys moved to Tuesdays.", "When do we deploy?"),
    "no longer": (
        "We decided to use Postgres for the payout queue.",
        "The payout queue no longer lives in Postgres; it is in SQS.",
        "Where is the payout queue?",
    ),
}
"""A decision, what takes it back with words that say so for certain, and a question about it."""
CORRECTED = {
    "forget": (
        "From now on, use pnpm and not npm.",
        "Forget what I said about pnpm, npm is fine again.",
        "Which package manager do we use?",
    ),
    "scratch": (
        "We decided to keep logs for 30 days.",
        "Scratch the 30 days for logs: the auditors want 90.",
        "How long do we keep logs?",
    ),
    "zh": ("我们决定用Redis做缓存。", "我们改主意了：缓存改用Valkey，不用Redis。", "我们用什么做缓存？"),
}
"""The same with words that only probably do."""
UNRELATED = {
    "a request": "Configure NATS on the event bus host, no longer on localhost.",
    "a question": "Is the event bus no longer NATS?",
    "another thing": "The build cache moved to the second disk.",
    "a plain statement": "NATS has a client for Go.",
}
"""What takes no decision back."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A memory of one person."""
    with Engine.open(tmp_path, personal=True, background=False) as opened:
        yield opened


def state(engine: Engine, name: str, text: str, *, time: int) -> None:
    """State something in a session of its own, from which the facts are read."""
    session = engine.session(name)
    session.assemble([Message(role="user", parts=(Text(text=text),), timestamp=time)], limit=8_000)
    session.learn()
    engine.work()


def take_back(engine: Engine, decision: str, correction: str) -> None:
    """State a decision, and an hour later in another session what takes it back."""
    state(engine, "first", decision, time=NOW)
    state(engine, "second", correction, time=NOW + HOUR)


def begin(engine: Engine, name: str, text: str) -> str:
    """Return what the first request of a new session says."""
    window = engine.session(name).assemble([{"role": "user", "content": text}], limit=8_000)
    return "\n".join(message.text for message in window.messages)


@pytest.mark.parametrize(("decision", "correction", "question"), REPLACED.values(), ids=REPLACED)
def test_a_decision_that_was_taken_back_is_not_listed(
    engine: Engine, decision: str, correction: str, question: str
) -> None:
    """The correction is a fact, and takes its place; no session is named after what no longer holds."""
    take_back(engine, decision, correction)
    assert [fact.content for fact in engine.session("new").facts()] == [correction]
    for name, text in (("work", "Write the client."), ("question", question)):
        sent = begin(engine, name, text)
        assert correction in sent
        assert sent.count(decision) == sent.count(f"{decision} (may be outdated: see the later statement)")


@pytest.mark.parametrize(("decision", "correction", "question"), CORRECTED.values(), ids=CORRECTED)
def test_a_decision_that_was_probably_taken_back_is_marked(
    engine: Engine, decision: str, correction: str, question: str
) -> None:
    """Both are facts, and a reader sees which of them is the older one."""
    take_back(engine, decision, correction)
    for name, text in (("work", "Write the client."), ("question", question)):
        sent = begin(engine, name, text)
        assert correction in sent
        assert sent.count(decision) == sent.count(f"{decision} (may be outdated: see the later statement)") > 0


@pytest.mark.parametrize("text", UNRELATED.values(), ids=UNRELATED)
def test_a_decision_that_nobody_took_back_is_listed(engine: Engine, text: str) -> None:
    """It stays a fact, and is not marked."""
    decision = "We decided to use NATS for the event bus."
    take_back(engine, decision, text)
    assert decision in [fact.content for fact in engine.session("new").facts()]
    assert "outdated" not in begin(engine, "work", "Write the client.")


def test_the_order_of_reading_does_not_matter(engine: Engine) -> None:
    """If the session with the correction is imported first, its words take nothing back that came after them."""
    decision, correction, _ = REPLACED["instead of"]
    state(engine, "second", correction, time=NOW)
    state(engine, "first", decision, time=NOW + HOUR)
    assert [fact.content for fact in engine.session("new").facts()] == [decision]
