"""The tables of related words."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import bench
from holdfast import Engine
from holdfast.search import related
from holdfast.search.related import find_related
from holdfast.settings import Embedding, Settings
from holdfast.text import terms
from support.cases import each
from support.embed_models import static_folder

LINES = Path(related.__file__).with_name("related.txt").read_text("ascii").splitlines()
THESAURUS = Path(related.__file__).with_name("thesaurus.txt").read_text("utf-8").splitlines()


def test_the_table_is_sorted_and_of_terms() -> None:
    """A binary search finds every line; a word is its own term and is not related to itself."""
    assert sorted(LINES) == LINES
    assert len(LINES) > 10_000
    for line in LINES:
        assert re.fullmatch(r"[a-z]+( [a-z]+ (4[5-9]|[5-9]\d|100))+", line), line
        first, *others = line.split()[0], *line.split()[1::2]
        assert first not in others, line
        assert len(others) <= 8, line


@each(
    ("word", "near"),
    [
        ("car", "vehicle"),
        ("kids", "children"),
        ("error", "failure"),
        ("auth", "login"),
        ("broker", "queue"),
        ("db", "database"),
        ("端口", "port"),
        ("port", "端口"),
        ("部署", "deploy"),
    ],
)
def test_words_of_one_meaning_are_related(word: str, near: str) -> None:
    """The words are looked up as the terms of an index."""
    asked = max(terms(word), key=len)
    expected = max(terms(near), key=len)
    assert 0.3 < find_related([asked])[asked][expected] < 0.8


def test_the_thesaurus_is_that_of_its_groups() -> None:
    """The table in the package is what the groups make: no one edits it by hand."""
    lines = CliRunner().invoke(bench, ["thesaurus"], catch_exceptions=False).output.splitlines()
    assert lines == THESAURUS
    assert lines == sorted(lines)
    rows = json.loads(CliRunner().invoke(bench, ["thesaurus", "--json"], catch_exceptions=False).output)
    assert sorted(rows) == [line.split()[0] for line in lines]
    assert all(term not in row for term, row in rows.items())


def test_a_question_in_another_language_finds_the_passage(tmp_path: Path) -> None:
    """By words alone, a Chinese question finds what was said in English, and the reverse."""
    messages = ["The service listens on port 8443.", "午饭吃了面条。", "数据库每晚两点备份。"]
    with Engine.open(tmp_path / "store", settings=Settings(embedding=Embedding(provider="none"))) as engine:
        session = engine.session("one")
        session.append([{"role": "user", "content": text} for text in messages])
        assert [hit.text for hit in session.search("用哪个端口？", limit=1)] == messages[:1]
        assert [hit.text for hit in session.search("When does the database backup run?", limit=1)] == messages[2:]


def test_a_long_question_needs_them_less() -> None:
    """What a related word counts goes down with the length of the question."""
    short, long = find_related(["car"]), find_related(["car", *(f"word{number}" for number in range(23))])
    assert long["car"]["vehicl"] == pytest.approx(short["car"]["vehicl"] / 2)
    assert find_related(["car", *(f"word{number}" for number in range(60))]) == {}


@pytest.mark.parametrize("term", ["8080", "\u9f98\u9f98", "", "zz", "a b", "#"])
def test_other_terms_have_none(term: str) -> None:
    """Names of things that no dictionary has stay what they are."""
    assert find_related([term]) == {}


@pytest.mark.parametrize(("day", "other"), [("monday", "tuesday"), ("januari", "march"), ("北京", "上海")])
def test_what_excludes_each_other_is_not_related(day: str, other: str) -> None:
    """Another day is no answer."""
    assert other not in find_related([day]).get(day, {})


def test_a_passage_in_other_words_is_found(tmp_path: Path) -> None:
    """By words alone, a passage with none of the words of a question is found by those that are related to them."""
    messages = ["The automobile is in the garage.", "Lunch was soup.", "The report is due soon."]
    with Engine.open(tmp_path / "store", settings=Settings(embedding=Embedding(provider="none"))) as engine:
        session = engine.session("one")
        session.append([{"role": "user", "content": text} for text in messages])
        assert [hit.text for hit in session.search("vehicle", limit=1)] == messages[:1]
        assert session.search("bicycle pump") == []


def test_the_table_is_made_from_a_static_model(tmp_path: Path) -> None:
    """A term is related to the nearest others of the vocabulary, and never to itself."""
    folder = static_folder(tmp_path / "model")
    lines = CliRunner().invoke(bench, ["related", f"{folder}"], catch_exceptions=False).output.splitlines()
    assert lines == sorted(lines)
    rows = CliRunner().invoke(bench, ["related", f"{folder}", "--json"], catch_exceptions=False).output
    assert sorted(json.loads(rows)) == [line.split()[0] for line in lines]
    assert "kitten" in next(line for line in lines if line.startswith("cat "))
    assert all(line.split()[0] not in line.split()[1:] for line in lines)


def test_the_excerpt_of_a_long_passage_has_the_related_words(tmp_path: Path) -> None:
    """The sentences that are quoted are chosen by related words too, not only the passage."""
    filler = [f"Paragraph {number} says that lunch in the canteen was good on day {number}." for number in range(60)]
    filler[40] = "The message queue is RabbitMQ 3.13."
    with Engine.open(tmp_path / "store", settings=Settings(embedding=Embedding(provider="none"))) as engine:
        session = engine.session("one")
        session.append([{"role": "user", "content": " ".join(filler)}])
        assert "RabbitMQ" in session.recall("Which broker do we use?", cap=300).block
