"""The demonstration."""

from __future__ import annotations

import json
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast.cli import demo as module
from holdfast.cli import holdfast
from holdfast.cli.replay import find_requests
from holdfast.errors import InputError
from holdfast.text import is_unsegmented
from holdfast.tokens import count_message
from holdfast.transcripts import read


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demonstration of the first days alone, with their two questions."""
    whole = module.session_lines()
    monkeypatch.setattr(module, "session_lines", lambda: whole[:120])
    monkeypatch.setattr(module, "QUESTIONS", module.QUESTIONS[:2])


@pytest.mark.usefixtures("short")
def test_every_answer_has_left_the_window_and_is_in_the_block() -> None:
    """The answers are shown, the windows are valid, and the exit code is 0."""
    done = CliRunner().invoke(holdfast, ["demo", "--limit", "16000", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["invalid"], found["over_limit"]) == (0, 0)
    assert all(answer["found"] and not answer["in_window"] for answer in found["answers"])
    assert all(answer["answer"] in answer["passage"] for answer in found["answers"])


@pytest.mark.nightly
@pytest.mark.usefixtures("short")
def test_a_missing_answer_is_reported_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """With plain output where there is no terminal."""
    asked = (module.QUESTIONS[1], module.Question("Which colour has the moon of Neptune?", "mauve"))
    monkeypatch.setattr(module, "QUESTIONS", asked)
    done = CliRunner().invoke(holdfast, ["demo", "--limit", "16000"])
    assert done.exit_code == 1
    assert "not in the block: mauve" in done.output
    assert "Marta Lindqvist" in done.output
    assert "1 of 2 answered" in done.output
    assert "\x1b" not in done.output


def test_a_long_passage_is_shown_around_its_answer() -> None:
    """With the moment and the speaker it stands under, whatever line of it that is."""
    block = "<detail>\n[2026-03-02 09:05 user] first line\n" + "a" * 200 + " the answer " + "b" * 200 + "\n</detail>"
    shown = module._excerpt(block, "the answer")
    assert shown.startswith("[2026-03-02 09:05 user] … a")
    assert shown.endswith("b …")
    assert "the answer" in shown
    assert module._excerpt(block, "another") == ""


def test_an_answer_that_had_not_left_the_window_is_reported_as_shown() -> None:
    """Nothing is claimed that is not so."""
    out = StringIO()
    answer = module._Answer(
        question="?", answer="a", in_window=True, found=True, passage="a", block_tokens=3, milliseconds=1.0
    )
    answer.print(Console(file=out))
    assert "still in the window" in out.getvalue()


def test_the_session_is_saved(tmp_path: Path) -> None:
    """With --save the session is a file that the other commands read; another file of that name is kept.

    At least 150,000 tokens in less than a megabyte, read without a problem, every call with its result, in order.
    """
    file = tmp_path / "session.jsonl"
    assert CliRunner().invoke(holdfast, ["demo", "--save", str(file)]).exit_code == 0
    assert file.stat().st_size < 1_000_000
    session = read(file)
    assert (session.format, session.problems) == ("pi", ())
    assert sum(map(count_message, session.messages)) >= 150_000
    assert sum(1 for _ in find_requests(session.messages)) > 300
    calls = [call.id for message in session.messages for call in message.calls]
    results = [result.call_id for message in session.messages for result in message.results]
    assert calls == results
    moments = [message.timestamp or 0 for message in session.messages]
    assert all(before < after for before, after in pairwise(moments))
    content = file.read_bytes()
    assert CliRunner().invoke(holdfast, ["demo", "--save", str(file)]).exit_code == 0  # it is there already
    assert file.read_bytes() == content
    file.write_text("mine")
    again = CliRunner().invoke(holdfast, ["demo", "--save", str(file)])
    assert isinstance(again.exception, InputError)
    assert file.read_text() == "mine"


def test_every_answer_is_stated_long_before_the_end() -> None:
    """Each answer stands in the first two thirds of the session only; one question is Chinese."""
    written = module.session_lines()
    for asked in module.QUESTIONS:
        places = [place for place, line in enumerate(written) if asked.answer in line]
        assert places
        assert max(places) < len(written) * 2 / 3, asked.question
    assert any(is_unsegmented(asked.question[0]) for asked in module.QUESTIONS)
