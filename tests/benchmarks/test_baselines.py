"""What Holdfast is compared with."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from benchmarks.baselines import plain_bm25, seed_formula
from benchmarks.datasets import Conversation, Question, Session, Turn
from holdfast.tokens import count_text

OLD, NEW = datetime(2023, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)


def make_conversation(*texts: str, dates: tuple[datetime | None, ...] = (None,)) -> Conversation:
    """One session for each date, with the same turns."""
    return Conversation(tuple(Session(date, tuple(Turn("user", text) for text in texts)) for date in dates), ())


def ask(text: str, date: datetime | None = None) -> Question:
    """A question without evidence."""
    return Question(text=text, evidence=frozenset(), date=date)


@pytest.mark.parametrize("system", [plain_bm25, seed_formula])
def test_the_words_decide(system: type) -> None:
    """The turn that holds the question's words comes first, quoted whole, under the cap."""
    places, quoted, block = system(make_conversation("lunch was good", "the port is 8080", "see you"))(
        ask("which port is 8080"), 400
    )
    assert places[0] == (0, 1)
    assert quoted[0, 1] == len("the port is 8080")
    assert "the port is 8080" in block
    assert count_text(block) <= 400


@pytest.mark.parametrize("system", [plain_bm25, seed_formula])
def test_later_sessions_are_out_of_sight(system: type) -> None:
    """Only the first sessions are searched where a question may see no more."""
    question = replace(ask("port 8080"), limit=1)
    found, _, _ = system(make_conversation("the port is 8080", dates=(OLD, NEW)))(question, 400)
    assert {session for session, _ in found} == {0}


def test_plain_bm25_reads_chinese_in_pairs() -> None:
    """Scripts without spaces are compared by pairs of characters."""
    found, _, _ = plain_bm25(make_conversation("今天吃面", "数据库端口是五千"))(ask("端口是多少"), 400)
    assert found == [(0, 1)]


def test_the_seed_takes_the_turns_around_a_hit_along() -> None:
    """Two turns before and after a hit come with it, the nearer the better."""
    texts = [f"filler {word}" for word in ("ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen")]
    found, _, _ = seed_formula(make_conversation(*texts[:3], "zanzibar quay", *texts[3:]))(ask("zanzibar quay"), 4000)
    assert found[:5] == [(0, 3), (0, 2), (0, 4), (0, 1), (0, 5)]


def test_the_seed_forgets_with_age() -> None:
    """Of the same turn in two sessions the newer comes first."""
    found, _, _ = seed_formula(make_conversation("the port is 8080", dates=(OLD, NEW)))(
        ask("the port is 8080", NEW), 400
    )
    assert found[0] == (1, 0)


@pytest.mark.parametrize("system", [plain_bm25, seed_formula])
def test_nothing_in_common_gives_nothing(system: type) -> None:
    """No words of the question, no block."""
    found, quoted, block = system(make_conversation("xyz"))(ask("qqq"), 400)
    assert (found, quoted, block) == ([], {}, "")
