"""Searches that are kept and replayed, and the sheet of questions over sessions of coding agents."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.coding import load_sheet, measure
from benchmarks.datasets import Question, load
from benchmarks.replay import Replay, load_cases, record, save_cases
from holdfast.errors import InputError
from holdfast.memory.recall import recall

pytestmark = pytest.mark.nightly

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"


def test_a_replayed_search_gives_the_block_of_its_question(tmp_path: Path) -> None:
    """What was recorded is enough for recall, after it was written to a file and read again."""
    far = Question(text="How do volcanoes form?", evidence=frozenset())
    cases = list(record(load("locomo", FILES / "locomo.json"), embedder=None, others={"far": lambda _: [far]}))
    save_cases(cases, tmp_path / "cases")
    for case in load_cases(tmp_path / "cases"):
        found = recall(Replay(case).store, replace(case.query, fill="full"))
        output = {case.places[hit.message] for hit in found.hits}
        assert case.question.evidence <= output if case.kind == "own" else not found.block


def test_a_question_about_past_sessions_is_replayed_too() -> None:
    """A recording has no list of sessions."""
    [case, *_] = record(load("locomo", FILES / "locomo.json"), embedder=None)
    for text in ("What did we do yesterday?", "What did we do in the session about painting?"):
        assert not recall(Replay(case).store, replace(case.query, texts=(text,), across=True)).sessions


def test_the_command_records_and_measures(tmp_path: Path) -> None:
    """A recording is made once and measured again without the data."""
    file = tmp_path / "locomo.cases"
    source = ["--record", "locomo", f"{FILES / 'locomo.json'}"]
    made, again = (
        CliRunner().invoke(bench, ["replay", f"{file}", "--json", *options], catch_exceptions=False)
        for options in (source, [])
    )
    assert json.loads(made.output) == json.loads(again.output)
    found = json.loads(again.output)["files"]["locomo"]
    assert found["R_4000"] == 1.0
    assert found["own"] > 0 == found["far"]
    assert found["tokens"] <= 4000
    each = CliRunner().invoke(bench, ["replay", f"{file}", "--json", "--ingredients"], catch_exceptions=False)
    rows = json.loads(each.output)["ingredients"]
    assert rows["locomo all"] == {name: found[name] for name in ("tokens", "R", "R_4000")}
    assert rows["locomo without near"].keys() == rows["locomo all"].keys()
    assert len(rows) == 11


def test_the_sheet_is_for_certain_files(tmp_path: Path) -> None:
    """There are 40 questions of each kind, and 43 on the second sheet; other sessions cannot be asked them."""
    sheet, second = load_sheet(), load_sheet("coding-2")
    assert (len(sheet.questions), len(sheet.off_topic), len(second.questions)) == (40, 40, 43)
    assert not set(sheet.questions) & set(second.questions)
    with pytest.raises(InputError, match="not the file"):
        measure(tmp_path, embedder=None)
