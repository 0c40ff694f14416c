"""The off-topic benchmark."""

from pathlib import Path

import pytest

from benchmarks.datasets import Conversation, Question, Session, Turn, load
from benchmarks.recall import measure_offtopic
from holdfast.errors import InputError

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"


def test_questions_are_asked_at_home_and_abroad() -> None:
    """Every question gets a block from its own conversation and none from the other."""
    ticks: list[int] = []
    found = measure_offtopic(load("locomo", FILES / "locomo.json"), embedder=None, progress=ticks.append)
    assert found.pop("tokens") > 0
    assert found == {"questions": 3, "kept": 1.0, "injected_offtopic": 0.0, "offtopic_tokens": 0.0}
    assert len(ticks) == 3


def test_the_halves_of_one_are_two() -> None:
    """Of a set of passages one half is asked what the other answers."""
    texts = ("the port is 8080", "the cat is called Miro", "lunch is at noon", "we deploy to Frankfurt")
    sessions = tuple(Session(None, (Turn("assistant", text),)) for text in texts)
    questions = tuple(Question(text=text, evidence=frozenset({(place, 0)})) for place, text in enumerate(texts))
    found = measure_offtopic([Conversation(sessions, questions)], embedder=None)
    assert found.pop("tokens") > 0
    assert found == {"questions": 4, "kept": 1.0, "injected_offtopic": 0.0, "offtopic_tokens": 0.0}


def test_it_takes_two() -> None:
    """One conversation has no other to be asked of."""
    with pytest.raises(InputError, match="at least two"):
        measure_offtopic(load("beam", FILES / "beam"), embedder=None)
