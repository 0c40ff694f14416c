"""The benchmark of learning: it counts what is stored, lost and stored twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.learning import compare, measure_outage, state


@pytest.fixture(scope="module")
def printed() -> Any:
    """The figures of a short chat, one kill and all questions, as JSON."""
    done = CliRunner().invoke(bench, ["learning", "--turns", "4", "--kills", "1", "--hours", "1", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_facts_are_counted() -> None:
    """One that is missing is lost, and one that is there again is stored twice."""
    stored = Counter([state(0), state(0), state(2)])
    assert compare(stored, 3) == {"stated": 3, "stored": 2, "lost": 1, "twice": 1}


@pytest.mark.nightly
def test_questions_in_other_words_find_most_facts(printed: Any) -> None:
    """With the questions that each fact answers more than without, and few facts for 100 unrelated questions."""
    found = printed["questions"]
    assert found["with"]["answered"] >= 36
    assert found["with"]["by_fact"] >= 36
    assert found["without"]["by_fact"] <= 20
    assert found["with"]["facts_for_unrelated"] <= 60


def test_an_outage_loses_nothing() -> None:
    """The model is asked a few times meanwhile."""
    found = measure_outage(hours=2, turns=20)
    assert (found["stored_while_down"], found["lost"], found["twice"], found["stored"]) == (0, 0, 0, 20)
    assert found["calls_while_down"] <= 10


@pytest.mark.nightly
def test_everything_is_printed(printed: Any) -> None:
    """The facts of the chat, and those after a kill."""
    assert (printed["chat"]["stored"], printed["chat"]["lost"], printed["chat"]["twice"]) == (4, 0, 0)
    assert (printed["kills"]["lost"], printed["kills"]["twice"]) == (0, 0)
