"""The output of commands in a terminal of 80 columns."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pexpect
import pytest

from holdfast.cli.output import count_columns, fit, wrap
from holdfast.engine import Engine
from holdfast.messages import Message, Text
from holdfast.settings import Embedding, Settings
from support.terminal import spawn_holdfast

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LONG_ID = "019f15de-d815-7440-a6de-8068ba05b6b5"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.parametrize("width", [20, 33, 80])
def test_a_text_is_wrapped_at_its_words(width: int) -> None:
    """Words and styles stay whole, lines fit, and nothing is lost; Chinese text breaks between any characters."""
    styled = click.style("The staging database", bold=True)
    text = f"{styled} listens on port 5433 since Tuesday.\n\n数据库的端口是 5433，预发布环境每周二晚上十点部署。"
    wrapped = wrap(text, width=width, indent=2)
    assert all(count_columns(click.unstyle(line)) <= width for line in wrapped.split("\n"))
    words = click.unstyle(text).split()
    assert click.unstyle(wrapped).split()[: len(words) - 2] == words[: len(words) - 2]
    assert re.sub(r"\s", "", wrapped) == re.sub(r"\s", "", text)


def test_a_word_that_is_too_long_stays_whole() -> None:
    """A path or an id can be copied."""
    assert wrap(f"  {LONG_ID} it is", width=20, indent=4) == f"  {LONG_ID}\n    it is"


def test_columns() -> None:
    """A wide character takes two, a combining one none; a text is shortened at either end."""
    assert [count_columns(text) for text in ("abc", "端口", "e\u0301")] == [3, 4, 1]
    assert [fit("端口 5433", 6), fit("端口 5433", 6, from_end=True), fit("端口", 6)] == ["端口…", "…5433", "端口"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with two sessions, one of them with a long id and a long project, and some facts."""
    folder = tmp_path_factory.mktemp("memory")
    with Engine.open(folder, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
        questions = {
            LONG_ID: "Which port has the staging database of the payments service after the migration of last week?",
            "短": "请告诉我预发布环境的数据库在迁移之后使用哪个端口，以及每周二晚上的部署由谁负责检查，谢谢。",
        }
        for name, question in questions.items():
            session = engine.session(name, project="/home/ana/projects/payments-service-migration")
            session.append([Message(role="user", parts=(Text(text=question),))])
        session.remember("The staging database listens on port 5433", type="config", subject="staging database")
        session.remember("Deploys happen on Tuesdays at 22:00, and the export to the object storage runs after them")
        session.remember("The archive is on PostgreSQL 16")
    return folder


def show(home: Path, *arguments: str, columns: int = 80, embedder: str = "none") -> list[str]:
    """The lines of a command in a terminal, as they are before the terminal itself breaks them."""
    environ = {
        "HOLDFAST_HOME": str(home),
        "HOME": str(home),
        "HOLDFAST_EMBEDDING__PROVIDER": embedder,
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    child = spawn_holdfast(*arguments, env=environ, cwd=home, dimensions=(40, columns))
    child.expect(pexpect.EOF)
    return [_ESCAPES.sub("", line).rstrip() for line in child.before.replace("\r", "").split("\n")]


@pytest.mark.parametrize("columns", [80, 60])
def test_sessions_have_titles_and_whole_ids(columns: int, home: Path) -> None:
    """Two lines each: when and about what; the id and the number of messages."""
    lines = show(home, "sessions", columns=columns)
    assert all(count_columns(line) <= columns for line in lines)
    assert any(line.startswith(f"  {LONG_ID}  1 message") for line in lines)
    assert any("Which port has the staging database" in line for line in lines)
    assert any("请告诉我预发布环境的数据库" in line for line in lines)


def test_facts_are_grouped_by_type_and_their_lines_fit(home: Path) -> None:
    """The id and the time of each are on one line, and further lines begin below its text.

    A project that all of them have in common is in the headings alone.
    """
    lines = show(home, "facts")
    headings = [line for line in lines if "project" in line]
    assert headings == [
        "decision · 2 · project /home/ana/projects/payments-service-migration",
        "config · 1 · project /home/ana/projects/payments-service-migration",
    ]
    assert all(count_columns(line) <= 80 for line in lines)
    (first,) = [number for number, line in enumerate(lines) if "Deploys happen" in line]
    assert re.match(r"  [0-9a-f]{8}  \d{4}-\d\d-\d\d \d\d:\d\d  Deploys", lines[first])
    assert lines[first + 1].startswith(" " * 30)


@pytest.mark.parametrize("command", [("search", "staging"), ("recall", "staging"), ("stats",), ("doctor",)])
def test_no_line_is_longer_than_the_terminal(command: tuple[str, ...], home: Path) -> None:
    """Except for a word that is longer by itself, such as a path."""
    for line in show(home, *command):
        assert count_columns(line) <= 80 or " " not in line.strip()


def test_further_lines_of_an_entry_are_indented(home: Path) -> None:
    """Below the text of what they belong to: in an overview, and of what a new fact replaces."""
    overview = show(home, "overview", columns=60)
    (first,) = [number for number, line in enumerate(overview) if "Deploys happen" in line]
    assert overview[first + 1].startswith("  ")
    about = ("--subject", "x", "--slot", "port", "--tenant", "other")
    show(home, "remember", "The port of the staging server in the data centre at Norrköping is 8080", *about)
    lines = show(home, "remember", "The port of the staging server is 8443, as it was before", *about)
    (place,) = [number for number, line in enumerate(lines) if line == "It replaces:"]
    assert re.match(r"  [0-9a-f]{8}  ", lines[place + 1])
    assert lines[place + 2].startswith(" " * 30)


def test_an_import_names_its_steps(tmp_path: Path) -> None:
    """With numbers that grow, on a line of 80 columns."""
    lines = show(tmp_path, "import", str(EXAMPLES), embedder="hash")
    shown = "\n".join(lines)
    steps = ["looking for sessions", "archiving", "embedding", r"embedding: \d+ passages"]
    places = [re.search(step, shown) for step in steps]
    starts = [place.start() for place in places if place is not None]
    assert len(starts) == len(steps)
    assert starts == sorted(starts)
