"""The decisions of all sessions, in answer to "What did we decide?", each with what has replaced it since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Engine, Settings
from holdfast.settings import Embedding
from support.conversations import reply, user
from support.waiting import UNHURRIED

QUIET = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
DECISIONS = ("We decided that barcodes stay Code 128.", "We agreed to keep the CCTV stills for 9 days.")
STATED = "Decision: the importer retries three times."
CHANGED = "The importer retries five times."


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Open the memory of one person."""
    with Engine.open(tmp_path, settings=QUIET, background=False, personal=True) as opened:
        yield opened


def say(engine: Engine, session: str, *sentences: str) -> None:
    """Say something in a session of its own."""
    messages = [message for sentence in sentences for message in (user(sentence), reply("Noted."))]
    engine.session(session).append(messages)


def ask(engine: Engine, question: str) -> str:
    """Return the list of sessions in the window of a question."""
    window = engine.session("asking").assemble([user(question)]).messages
    _, _, rest = window[-1].text.partition("<past-sessions>")
    return rest.partition("</past-sessions>")[0]


@pytest.mark.parametrize(
    "question", ["What did we decide?", "Which decisions did we make so far?", "我们做了哪些决定？"]
)
def test_sessions_without_decisions_take_no_place(engine: Engine, question: str) -> None:
    """However many there are after those with decisions, and whatever these are worded like."""
    say(engine, "first", "Please look at the scanner.", *DECISIONS)
    say(engine, "second", "Branch names start with the ticket number. Please stick to that.")  # no word that decides
    for number in range(45):
        say(engine, f"s{number}", f"Please check shelf {number}, the label looks torn.")
    listed = ask(engine, question)
    for decision in (*DECISIONS, "Branch names start with the ticket number."):
        assert decision in listed
    assert "shelf" not in listed
    assert "…" not in listed


def test_without_any_decision_the_newest_sessions_are_listed(engine: Engine) -> None:
    """The model sees what there was instead."""
    for number in range(23):
        say(engine, f"s{number}", f"Please check shelf {number}, the label looks torn.")
    listed = ask(engine, "What did we decide?")
    assert "shelf 22" in listed
    assert "shelf 2," not in listed
    assert "… and 3 sessions not read or not listed." in listed


def test_of_many_sessions_with_decisions_the_newest_are_listed(engine: Engine) -> None:
    """Those that have no place are counted."""
    for number in range(23):
        say(engine, f"s{number}", f"We decided to label shelf {number} in blue.")
    listed = ask(engine, "What did we decide?")
    assert "shelf 22" in listed
    assert "shelf 2 " not in listed
    assert "… and 3 sessions not read or not listed." in listed


def test_a_later_statement_is_found_in_old_sessions_too(engine: Engine) -> None:
    """Both are older than the newest sessions."""
    say(engine, "first", "We decided to keep logs for 45 days.")
    say(engine, "second", "Logs are kept for 60 days, not 45.")
    for number in range(30):
        say(engine, f"s{number}", f"Please check shelf {number}, the label looks torn.")
    listed = ask(engine, "What did we decide?")
    assert "We decided to keep logs for 45 days. (later: Logs are kept for 60 days, not 45.)" in listed


@pytest.mark.parametrize("is_learned", [True, False])
def test_a_decision_is_followed_by_the_fact_that_replaced_it(engine: Engine, *, is_learned: bool) -> None:
    """Whether a fact was learned from the decision or not: somebody may write the new one down first."""
    say(engine, "first", "Please look at the importer.", STATED)
    if is_learned:
        engine.session("first").learn()
        engine.work()
        assert [fact.content for fact in engine.session("first").facts()] == [STATED]
    engine.session("first").remember(CHANGED)
    assert f"{STATED} (later: {CHANGED})" in ask(engine, "What did we decide?")


def test_a_forgotten_fact_replaces_nothing(engine: Engine) -> None:
    """Its words are not shown behind the decision."""
    say(engine, "first", "Please look at the importer.", STATED)
    fact = engine.session("first").remember(CHANGED)
    engine.session("first").forget_facts([fact.id])
    listed = ask(engine, "What did we decide?")
    assert STATED in listed
    assert "five" not in listed


def test_a_decision_after_a_fact_holds(engine: Engine) -> None:
    """A fact from before it does not replace it, nor does a fact about something else."""
    engine.session("first").remember(CHANGED)
    say(engine, "first", "Please look at the importer.", STATED)
    engine.session("first").remember("The exporter retries five times.")
    listed = ask(engine, "What did we decide?")
    assert STATED in listed
    assert "later" not in listed
