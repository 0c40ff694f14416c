"""The benchmark of learning: it counts what is stored, lost and stored twice."""

from __future__ import annotations

import json
from collections import Counter

from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.learning import compare, measure_outage, measure_questions, state


def test_facts_are_counted() -> None:
    """One that is missing is lost, and one that is there again is stored twice."""
    stored = Counter([state(0), state(0), state(2)])
    assert compare(stored, 3) == {"stated": 3, "stored": 2, "lost": 1, "twice": 1}


def test_questions_in_other_words_find_most_facts() -> None:
    """With the questions that each fact answers, and without facts for what is unrelated."""
    found = measure_questions()
    assert found["with"]["answered"] >= 36
    assert found["with"]["by_fact"] >= 36
    assert found["without"]["by_fact"] <= 4
    assert found["with"]["facts_for_unrelated"] == 0


def test_an_outage_loses_nothing() -> None:
    """The model is asked a few times meanwhile."""
    found = measure_outage(hours=2, turns=20)
    assert (found["stored_while_down"], found["lost"], found["twice"], found["stored"]) == (0, 0, 0, 20)
    assert found["calls_while_down"] <= 10


def test_everything_is_printed() -> None:
    """A short chat and one kill, as JSON and as tables."""
    arguments = ["learning", "--turns", "4", "--kills", "1", "--hours", "1"]
    done = CliRunner().invoke(bench, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["chat"]["stored"], found["chat"]["lost"], found["chat"]["twice"]) == (4, 0, 0)
    assert (found["kills"]["lost"], found["kills"]["twice"]) == (0, 0)
