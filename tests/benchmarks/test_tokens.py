"""The estimate against real tokenizers, and the figures of docs/tokens.md."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.token_texts import PROSE, texts
from benchmarks.tokens import O200K, compare, installed
from support.paths import ROOT

pytestmark = pytest.mark.skipif(not find_spec("bpe_openai"), reason="bpe-openai is not installed")


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.nightly)])
def rows(request: pytest.FixtureRequest) -> dict[str, dict[str, float]]:
    """The table of docs/tokens.md for a seed."""
    return make_rows(request.param)


@cache
def make_rows(seed: int) -> dict[str, dict[str, float]]:
    """Count texts with all tokenizers."""
    return compare(installed(), seed=seed)


def test_the_estimate_for_any_model_is_never_far_below_a_real_tokenizer(rows: dict[str, dict[str, float]]) -> None:
    """At most 5 % below, for every kind of text and every tokenizer."""
    assert {kind: row for kind, row in rows.items() if row["any / largest"] < 0.95} == {}


def test_the_estimate_for_gpt_is_near_its_tokenizer(rows: dict[str, dict[str, float]]) -> None:
    """At most 5 % below for every kind of text, at most 25 % above for prose."""
    assert {kind: row for kind, row in rows.items() if row["gpt / o200k"] < 0.95} == {}
    assert {kind: rows[kind]["gpt / o200k"] for kind in PROSE if rows[kind]["gpt / o200k"] > 1.25} == {}


def test_english_prose_is_near_every_tokenizer(rows: dict[str, dict[str, float]]) -> None:
    """At most 25 % above each, also where the model is not known."""
    assert max(rows["English"].values()) <= 1.25


def test_the_texts_are_the_same_for_the_same_seed() -> None:
    """A table can be made again."""
    assert texts(size=500, seed=3) == texts(size=500, seed=3)
    assert texts(size=500, seed=3) != texts(size=500, seed=4)


@pytest.mark.nightly
def test_the_command_prints_a_row_for_each_kind_of_text() -> None:
    """As a table and as JSON."""
    shown = CliRunner().invoke(bench, ["tokens"], catch_exceptions=False)
    made = CliRunner().invoke(bench, ["tokens", "--json"], catch_exceptions=False)
    assert "base64" in shown.output
    assert set(json.loads(made.output)["kinds"]) == set(texts(size=10))


def test_the_documentation_gives_the_figures_that_the_command_makes() -> None:
    """Every row of the table in docs/tokens.md."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "tokens.md").read_text("utf-8")
    for kind, row in make_rows(1).items():
        figures = (row[name] for name in (O200K, "cl100k_base", "qwen3.6", "deepseek-v4", "gpt / o200k"))
        assert f"| {kind} | {' | '.join(f'{figure:.2f}' for figure in figures)} |" in page


def test_a_tokenizer_that_is_missing_is_an_error_of_one_line(tmp_path: Path) -> None:
    """Whoever runs a benchmark sees what to do, and no traceback."""
    command = [sys.executable, "-m", "benchmarks", "tokens", "--tokenizer", f"tokenizers:{tmp_path / 'none.json'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("benchmarks: ")
    assert "Traceback" not in done.stderr
