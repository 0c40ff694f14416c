"""What was asked before, without an answer, does not take the place of what answers the next question."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.other_words import load_sheet, make_talk
from holdfast import Engine
from holdfast.settings import Recall, Settings

LIMIT = 16_000
FACTS = load_sheet("choose").facts[:20]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who takes care that the cartography subscription does not lapse?", "Jonas Brekke"),
        ("For what period may a new customer use it without paying?", "17 days"),
    ],
)
def test_earlier_questions_leave_the_room_to_the_answer(tmp_path: Path, question: str, answer: str) -> None:
    """Short questions match well, because they have few other words: blocks for weak matches were full of them."""
    settings = Settings(recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False, personal=True) as engine:
        stated = engine.session("stated")
        stated.assemble(make_talk([text for text, _ in FACTS], turns=60), limit=LIMIT, recall=False)
        for number, (_, asked) in enumerate(FACTS):
            session = engine.session(f"asked {number}")
            session.assemble([{"role": "user", "content": asked.own}], limit=LIMIT)
            session.append([{"role": "assistant", "content": "I looked at it and took that into account."}])
        engine.work()
        window = engine.session("new").assemble([{"role": "user", "content": question}], limit=LIMIT)
    assert answer in window.messages[-1].text


def test_the_same_question_about_another_thing_keeps_its_own_reply(tmp_path: Path) -> None:
    """It has all words of the question but the name, and each reply is a number alone."""
    counts = {"basalt importer": "9883594", "obsidian ledger": "7959677", "osprey gateway": "9794891"}
    counts |= {"ember scheduler": "4823226", "thistle mailer": "9573789", "gannet notifier": "6269513"}
    settings = Settings(recall=Recall(deadline_ms=600_000))
    with Engine.open(tmp_path, settings=settings, background=False, personal=True) as engine:
        talk: list[dict[str, str]] = []
        for name, count in counts.items():
            talk.append({"role": "user", "content": f"How many rows are in the events table of the {name}?"})
            talk.append({"role": "assistant", "content": count})
        engine.session("counted").assemble(talk, limit=LIMIT, recall=False)
        engine.work()
        for name, count in counts.items():
            question = f"How many rows were in the events table of the {name}?"
            assert count in engine.session("new").recall(question, cap=200).block
