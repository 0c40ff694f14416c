"""The figures of the README are what their commands print. Their data is not in the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from support.external_data import require_data
from support.paths import ROOT

LOCOMO: Final = "python -m benchmarks recall locomo FILE"
POOL: Final = "python -m benchmarks recall longmemeval-pool FILE"
OTHER_WORDS: Final = "python -m benchmarks other-words TRANSCRIPTS --half check"
RECOVER: Final = "python -m benchmarks recover FILES"
DATA: Final = {
    LOCOMO: "locomo/locomo_dev.json",
    POOL: "longmemeval/oracle_dev.json",
    OTHER_WORDS: "transcripts",
    RECOVER: "transcripts",
}
"""What stands for the name in capitals."""
NOT_COMPARED: Final = {
    "python -m benchmarks peers": "it installs ten other systems",
    "python -m benchmarks fuzz --windows 1000000 --seed 8": "`make fuzz` runs it with fewer windows",
    "python -m benchmarks crash --kills 500": "tests/e2e kills processes too",
    "python -m benchmarks assemble": "a time depends on the machine",
}


@dataclass(frozen=True)
class Row:
    """A row of the README's table of figures."""

    what: str
    figure: str
    command: str


def read_rows() -> list[Row]:
    """Read the table under "Numbers"."""
    numbers = (ROOT / "README.md").read_text("utf-8").split("## Numbers")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!what|---)(.+?) \| (.+?) \| `(.+?)` \|$", numbers, re.MULTILINE)
    return [Row(*row) for row in rows]


def share(value: float) -> str:
    """Write a share as the README does: .902."""
    return f"{value:.3f}".removeprefix("0")


def recall_figures(found: Mapping[str, Any]) -> str:
    """Write the evidence found and the tokens of its block."""
    ours = found["systems"]["holdfast"]
    return f"{share(ours['r_cap'])} in {ours['tokens']:,.0f} tokens"


def unrelated_figures(found: Mapping[str, Any]) -> str:
    """Write the tokens recalled for an unrelated question."""
    return f"{found['unrelated_tokens']:.0f}"


def other_words_figures(found: Mapping[str, Any]) -> str:
    """Write how many questions are answered, in the original words and in others."""
    total = found["systems"]["all"]
    return f"{total['own words']}, {total['other words']} of {total['questions']}"


def recover_figures(found: Mapping[str, Any]) -> str:
    """Write what is recovered after ten compactions, and what the newest tokens contain."""
    row = found["by_compactions"]["10"]
    return f"{share(row['holdfast'])} (most recent tokens only: {share(row['last_n'])})"


FIGURES: Final[dict[tuple[str, str], Callable[[Mapping[str, Any]], str]]] = {
    (LOCOMO, "evidence"): recall_figures,
    (LOCOMO, "tokens"): unrelated_figures,
    (POOL, "the"): recall_figures,
    (OTHER_WORDS, "answers"): other_words_figures,
    (RECOVER, "details"): recover_figures,
}
"""How a figure is written, by its command and the first word of its row."""


def test_every_figure_is_compared_or_says_why_not() -> None:
    """A new row needs a line here."""
    rows = read_rows()
    assert len(rows) >= 8
    for row in rows:
        is_compared = (row.command, row.what.split()[0]) in FIGURES
        assert is_compared or row.command in NOT_COMPARED, row


@pytest.mark.nightly
@pytest.mark.parametrize("command", DATA)
def test_a_command_prints_the_figures_of_the_readme(command: str) -> None:
    """To the last digit: a change of the figures belongs to the change of the code."""
    path = require_data(DATA[command])
    arguments = [str(path) if word.isupper() else word for word in command.split()[1:]]
    done = subprocess.run([sys.executable, *arguments, "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    for row in read_rows():
        if row.command == command:
            assert row.figure == FIGURES[command, row.what.split()[0]](found)
