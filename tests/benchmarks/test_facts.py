"""The benchmark of facts: what it prints, and that it judges rightly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.facts import load, matches, measure
from holdfast.errors import InputError
from support.external_data import DATA, needs_data


def realmem(folder: Path, *turns: tuple[str, str], gold: tuple[object, ...]) -> Path:
    """A small file of the public form."""
    session = {
        "dialogue_turns": [{"speaker": speaker, "content": content} for speaker, content in turns],
        "extracted_memory": [{"content": content} for content in gold],
    }
    (folder / "A_dialogues.json").write_text(json.dumps({"dialogues": [session, {**session, "extracted_memory": []}]}))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One session, one fact of which the rules find one, and one that they do not."""
    return realmem(
        tmp_path,
        ("User", "Hello there, how are you? I've decided on the Classic Loop for my New Zealand trip."),
        ("Assistant", "Great. The weather is mild there."),
        ("User", "Thanks for that, and the whole family is very happy about it."),
        gold=("User chose the Classic Loop for the New Zealand trip.", {"weather": "mild in the north island"}),
    )


def test_precision_and_recall_are_measured_with_a_baseline(data: Path) -> None:
    """The rules find one fact, which is right; every sentence finds the same, and is mostly wrong."""
    found = measure(load(data))
    assert (found["precision"], found["recall"], found["facts"]) == (1.0, 0.5, 1)
    assert found["baseline"]["recall"] == 0.5
    assert found["baseline"]["precision"] < 0.5
    assert (found["sessions"], found["gold"]) == (1, 2)


def test_facts_match_by_their_words() -> None:
    """Enough common words, or nearly all of the shorter one, and never only one or two."""
    assert matches("I've decided on the Classic Loop route.", "The user decided to take the Classic Loop route")
    assert not matches("The port is 8080.", "The port is 9090 in the staging cluster")
    assert not matches("Berlin", "The user lives in Berlin")


def test_other_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    """What is not RealMem is said to be none."""
    (tmp_path / "a.json").write_text('{"dialogues": [7]}')
    with pytest.raises(InputError, match="does not look like"):
        load(tmp_path)
    with pytest.raises(InputError, match="no session"):
        load(realmem(tmp_path, gold=()) / "A_dialogues.json")


def test_the_command_prints_what_was_measured(data: Path) -> None:
    """`python -m benchmarks facts PATH --json` has the figures; without it there is a table."""
    done = CliRunner().invoke(bench, ["facts", str(data), "--json"])
    assert done.exit_code == 0, done.output
    assert {"precision", "recall", "facts", "baseline"} <= json.loads(done.stdout).keys()


@pytest.mark.nightly
@needs_data("realmem")
def test_rules_are_more_precise_than_every_sentence() -> None:
    """On the public sessions the rules are right at least twice as often as the baseline."""
    found = measure(load(DATA / "realmem" / "Sophie_Dubois_dialogues_256k.json")[:60])
    assert found["precision"] > 2 * found["baseline"]["precision"]
    assert found["facts"] > 0
