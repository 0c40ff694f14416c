"""The sheets of decisions with what was said later, and how a text that shows a decision is judged."""

from __future__ import annotations

from typing import get_args

import pytest

from benchmarks.decisions import SHEETS, Kind, Pair, count_pairs, judge, load_pairs, measure, measure_sentences

PAIR = Pair(decision="We decided on Redis.", later="Redis is out.", question="Which cache do we use?")


def test_no_pair_is_in_the_sheets_twice() -> None:
    """Rules were changed for some sheets, so the others may not repeat them."""
    pairs: list[tuple[str, str]] = []
    for sheet in SHEETS:
        for kind in get_args(Kind):
            pairs += [(pair.decision, pair.later) for pair in load_pairs(sheet, kind)]
    assert len(set(pairs)) == len(pairs) == count_pairs() == 290


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("- The queue is NATS.", "absent"),
        ("- We decided on Redis. (may be outdated: see the later statement)", "marked"),
        ("- We decided on Redis. (later: Redis is out.)", "marked"),
        ("- We decided on Redis.\n- Redis is out.", "both"),
        ("- We decided on Redis.", "alone"),
        ("- We decided on Redis. (later: Redis is out.)\n- We decided on Redis.", "both"),
        ("- We decided on Redis. (of 2 May; contradicts another fact)\n- We decided on Redis.", "alone"),
    ],
)
def test_a_decision_is_alone_without_a_mark_and_without_the_later_sentence(text: str, view: str) -> None:
    """A reader who is told neither takes it for what holds."""
    assert judge(PAIR, text) == view


def test_decisions_are_learned_and_what_only_sounds_like_one_is_not() -> None:
    """Two sheets of 60 decisions and 60 other messages."""
    counts = {name: row["learned"] for name, row in measure_sentences().items()}
    assert counts["decisions, sheet 1"] >= 45
    assert counts["decisions, sheet 2"] >= 37
    assert counts["others, sheet 1"] + counts["others, sheet 2"] <= 1


@pytest.mark.nightly
def test_decisions_that_were_taken_back_stand_alone_no_more_often_than_before() -> None:
    """In the overview, and next to a question; few of those that hold are marked."""
    systems = measure()["systems"]
    for sheet, overview, answer in (("1", 8, 0), ("2", 5, 0), ("3", 28, 5), ("4", 36, 8)):
        row = systems[f"taken back, sheet {sheet}"]
        assert row["overview alone"] <= overview
        assert row["answer alone"] <= answer
        assert systems[f"holding, sheet {sheet}"]["overview marked"] <= 3
