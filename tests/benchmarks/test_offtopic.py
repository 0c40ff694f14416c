"""The off-topic benchmark."""

from pathlib import Path

import pytest

from benchmarks.datasets import Conversation, Question, Session, Turn, load
from benchmarks.recall import measure_offtopic, shorten
from holdfast.errors import InputError

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"


def test_questions_are_asked_at_home_and_abroad() -> None:
    """Every question gets a block from its own conversation and none from the other."""
    ticks: list[int] = []
    unrelated = [Question(text="How do volcanoes form?", evidence=frozenset())]
    locomo = load("locomo", FILES / "locomo.json")
    found = measure_offtopic(locomo, embedder=None, unrelated=unrelated, progress=ticks.append)
    assert (found.pop("injected_offtopic"), found.pop("injected_offtopic_tokens")) == (0.0, 0.0)
    assert found.pop("kept_tokens") > 0
    assert found == {"questions": 3, "kept": 1.0, "injected_near": 0.0, "injected_near_tokens": 0.0}
    assert len(ticks) == 3


def test_the_halves_of_one_are_two() -> None:
    """Of a set of passages one half is asked what the other answers."""
    texts = ("the port is 8080", "the cat is called Miro", "lunch is at noon", "we deploy to Frankfurt")
    sessions = tuple(Session(None, (Turn("assistant", text),)) for text in texts)
    questions = tuple(Question(text=text, evidence=frozenset({(place, 0)})) for place, text in enumerate(texts))
    found = measure_offtopic([Conversation(sessions, questions)], embedder=None)
    assert found.pop("kept_tokens") > 0
    assert found == {"questions": 4, "kept": 1.0, "injected_near": 0.0, "injected_near_tokens": 0.0}


def test_an_archive_can_be_of_a_few_turns() -> None:
    """Each question has an archive of its own, with what answers it."""
    sessions = tuple(Session(None, (Turn("user", f"word{n}"), Turn("user", f"other{n}"))) for n in range(9))
    questions = tuple(Question(text=f"word{n}", evidence=frozenset({(n, 0)})) for n in range(9))
    short = shorten([Conversation(sessions, questions)], turns=4)
    assert [sum(len(one.turns) for one in conversation.sessions) for conversation in short] == [4] * 9
    assert measure_offtopic(short, embedder=None)["kept"] == 1


def test_it_takes_two() -> None:
    """One conversation has no other to be asked of."""
    with pytest.raises(InputError, match="at least two"):
        measure_offtopic(load("beam", FILES / "beam"), embedder=None)
