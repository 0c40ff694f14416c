"""The long session of our own."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from holdfast import transcripts
from holdfast.cli.replay import find_requests
from holdfast.cli.story import QUESTIONS, lines
from holdfast.text import is_unsegmented
from holdfast.tokens import count_message

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "make_long_session.py"


def test_the_script_writes_a_long_valid_session(tmp_path: Path) -> None:
    """At least 150,000 tokens in less than a megabyte, read without a problem, every call with its result."""
    file = tmp_path / "long.jsonl"
    subprocess.run([sys.executable, str(SCRIPT), str(file)], check=True)
    assert file.stat().st_size < 1_000_000
    session = transcripts.read(file)
    assert (session.format, session.problems) == ("pi", ())
    assert sum(map(count_message, session.messages)) >= 150_000
    assert sum(1 for _ in find_requests(session.messages)) > 300
    calls = [call.id for message in session.messages for call in message.calls]
    results = [result.call_id for message in session.messages for result in message.results]
    assert calls == results
    assert {call.name for message in session.messages for call in message.calls} == {"read", "bash", "edit", "grep"}


def test_a_call_without_a_file_name_is_told(tmp_path: Path) -> None:
    """The script says how it is called."""
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_the_same_seed_makes_the_same_session() -> None:
    """Byte for byte; another seed makes other output for the same story."""
    assert lines() == lines()
    other = lines(seed=2)
    assert other != lines()
    assert len(other) == len(lines())


def test_time_goes_forward(tmp_path: Path) -> None:
    """No message is older than the one before it."""
    file = tmp_path / "long.jsonl"
    file.write_text("\n".join(lines()), "utf-8")
    moments = [message.timestamp or 0 for message in transcripts.read(file).messages]
    assert all(before < after for before, after in pairwise(moments))


def test_every_answer_is_said_long_before_the_end() -> None:
    """Each answer stands in the first two thirds of the session only; one question is Chinese."""
    written = lines()
    for asked in QUESTIONS:
        places = [place for place, line in enumerate(written) if asked.answer in line]
        assert places
        assert max(places) < len(written) * 2 / 3, asked.question
    assert any(is_unsegmented(asked.question[0]) for asked in QUESTIONS)
