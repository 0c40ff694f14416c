"""`holdfast stats` prints tokens, costs and sessions by host."""

from __future__ import annotations

import json
import time
from io import StringIO
from pathlib import Path

import click
import pytest
from rich.cells import cell_len

from holdfast import Engine
from holdfast.cli.spending import Spending, print_spending
from holdfast.figures import Totals
from holdfast.messages import Message, Text, Usage
from holdfast.settings import Embedding, Settings
from support.command import run_command

QUIET = Settings(embedding=Embedding(provider="none"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A memory with a session of each of three hosts, one of them without usage."""
    folder = tmp_path / "memory"
    now = int(time.time() * 1000)
    with Engine.open(folder, settings=QUIET, background=False, clock=lambda: now) as engine:
        fill(engine, "s1", agent="claude-code", model="claude-sonnet-4-5")
        fill(engine, "s2", agent="codex", model="一个\x1b[31m模型")
        engine.session("s3", agent="pi").append([{"role": "user", "content": "only words"}])
    return folder


def fill(engine: Engine, name: str, *, agent: str, model: str) -> None:
    """Let a session make a request, and get a reply that reports usage."""
    session = engine.session(name, agent=agent)
    window = session.assemble([{"role": "user", "content": "Which port?"}], limit=50_000)
    usage = Usage(input=100_000, output=2_000, cache_read=300_000)
    reply = Message(role="assistant", parts=(Text(text="5433"),), model=model, usage=usage)
    session.append([reply], after=window.place)


def run_stats(home: Path, *arguments: str, **environ: str) -> str:
    """Run the command, and return what it prints."""
    variables = {"HOME": str(home.parent), "HOLDFAST_EMBEDDING__PROVIDER": "none", **environ}
    done = run_command("stats", "--home", str(home), *arguments, folder=home.parent, environ=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tables_have_cost_tokens_and_hosts(home: Path) -> None:
    """In 80 columns, and without the terminal codes of a model's name."""
    printed = run_stats(home, COLUMNS="80")
    lines = [line.split() for line in printed.splitlines()]
    assert ["today", "$0.42+", "800k", "75%", "4k", "2"] in [line[:6] for line in lines]
    hosts = {line[0]: line[1:6] for line in lines if line and line[0] in {"claude-code", "codex", "pi"}}
    assert hosts == {
        "claude-code": ["1", "$0.42", "400k", "75%", "2k"],
        "codex": ["1", "unknown", "400k", "75%", "2k"],
        "pi": ["1", "-", "-", "-", "-"],
    }
    assert "A + after a cost: models whose price is unknown are not in it." in " ".join(printed.split())
    assert "No price is known for: 一个" in printed
    assert "\x1b" not in printed
    tables = printed[printed.index("tokens ") : printed.index("No price")]
    assert max(map(len, tables.splitlines())) <= 80


def test_a_price_of_ones_own_is_used(home: Path) -> None:
    """It comes before those of the list."""
    found = json.loads(run_stats(home, "--json", HOLDFAST_MODEL__PRICES='["claude-sonnet-4-5 1 2"]'))
    costs = {row["host"]: row["cost"] for row in found["hosts"]}
    assert costs == {"claude-code": pytest.approx(0.404), "codex": None, "pi": None}
    assert found["spending"]["all"]["unpriced_models"] == ["一个\x1b[31m模型"]
    assert found["spending"]["last_7_days"]["windows"] == 2
    assert found["figures_complete"]
    assert {row["model"] for row in found["models"]} == {"claude-sonnet-4-5", "一个\x1b[31m模型"}


def test_an_empty_memory_has_no_tables(tmp_path: Path) -> None:
    """Only the counts."""
    assert "host" not in run_stats(tmp_path / "nothing")


def test_a_session_that_no_host_named_is_counted_as_such(tmp_path: Path) -> None:
    """The default agent is no host. A reply that names no model is said to have no price."""
    folder = tmp_path / "memory"
    with Engine.open(folder, settings=QUIET, background=False) as engine:
        fill(engine, "s1", agent="main", model="")
    printed = run_stats(folder)
    lines = [line.split() for line in printed.splitlines()]
    assert ["not", "named", "1", "unknown"] in [line[:4] for line in lines]
    assert "Replies that name no model have no price." in printed
    assert "No price is known" not in printed
    assert "main" not in [line[0] for line in lines if line]
    assert json.loads(run_stats(folder, "--json"))["hosts"][0]["host"] == ""


@pytest.mark.parametrize("columns", [40, 60, 70])
def test_a_narrow_terminal_gets_every_figure_whole(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that do not fit are in another table below."""
    screen = StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    totals = Totals(replies=1, usage=Usage(input=2_100, output=999_000), unpriced=("m",))
    hosts = {"": (1_000, totals), "编辑器": (2, Totals())}
    print_spending(Spending(periods={"last_30_days": totals, "all": totals}, hosts=hosts, models={}, is_complete=True))
    lines = click.unstyle(screen.getvalue()).splitlines()
    tables = lines[: next(number for number, line in enumerate(lines) if line.startswith("No price"))]
    assert max(map(cell_len, tables)) <= columns
    cells = [cell for line in tables for cell in line.split()]
    for title in ("cost", "read", "cached", "written", "windows", "sent", "saved"):
        assert cells.count(title) == 2
    assert cells.count("2.1k") == 3
    assert cells.count("999k") == 3
    assert cells.count("1,000") == 1
    assert "编辑器" in cells
