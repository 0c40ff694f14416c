"""A person writes notes into one session after another, and asks about few of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Engine, Settings
from holdfast.messages import Message
from support.conversations import reply, system, user
from support.waiting import UNHURRIED

NOTES = [
    "The uploader has an HTTP timeout of 30 s.",
    "Uploader: the timeout is now 45 s, not 30. The station was too far away.",
    "Jonas lives in the yellow house at the harbour.",
    "The workshop has a new landlord: Frau Behrens.",
    "Sunny again, 14 degrees, calm sea.",
    "Read a paper on kelp, quite long.",
    "The float smells of rubber.",
    "Coffee machine is broken, bought tea.",
    "Wrote two unit tests for the parser.",
    "The gull is back on the pier.",
    "Vacuumed the workshop.",
    "CI takes four minutes now.",
    "Ate too much cake.",
    "The kittens sleep in the box.",
]


def open_engine(folder: Path) -> Engine:
    """Open the memory of one person."""
    return Engine.open(folder, settings=Settings(recall=UNHURRIED), background=False, personal=True)


@pytest.fixture(scope="module")
def diary_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a memory with the notes, each repeated with other words around it."""
    folder = tmp_path_factory.mktemp("diary")
    with open_engine(folder) as opened:
        diary = opened.session("diary", project="station")
        for day in range(6):
            for number, note in enumerate(NOTES):
                text = (
                    note if day == 0 else f"Day {day}, note {number}: buoy {day}{number} looks fine, tide {number} cm."
                )
                diary.append([user(text), reply("Noted.")])
        opened.work()
    return folder


@pytest.fixture
def engine(diary_folder: Path, tmp_path: Path) -> Iterator[Engine]:
    """Return an engine over a copy of that memory."""
    with open_engine(shutil.copytree(diary_folder, tmp_path / "memory")) as opened:
        yield opened


def test_a_corrected_value_is_marked_though_it_was_said_in_one_word_more(engine: Engine) -> None:
    """Both statements are short and have numbers."""
    found = engine.session("new", project="station").recall("What timeout does the uploader use?")
    lines = found.block.splitlines()
    old = next(line for line in lines if "timeout of 30 s" in line)
    new = next(line for line in lines if "now 45 s" in line)
    assert "outdated" in old
    assert "outdated" not in new
    assert lines.index(old) < lines.index(new)


def test_the_same_question_asked_before_is_not_quoted(engine: Engine) -> None:
    """It would take the room of the answer."""
    question = "Who is the landlord of the workshop?"
    for number in range(3):
        engine.session(f"earlier-{number}", project="station").append([user(question), reply("I do not know.")])
    engine.work()
    found = engine.session("new", project="station").recall(question)
    assert "Frau Behrens" in found.block
    assert question not in found.block


def test_notes_seldom_cost_the_prefix_and_a_question_may(engine: Engine) -> None:
    """A weak match is not worth making the provider read the whole window again."""
    session = engine.session("next", project="station")
    history: list[Message] = []
    cuts = 0
    for number in range(20):
        walk = f"Walked along the pier for {number} minutes and painted door {number} of the workshop."
        history.append(user(f"{walk} The sea was calm."))
        window = session.assemble(history, limit=9_000)
        cuts += window.report.prefix_kept is not None and window.report.prefix_kept < 1
        history.append(reply("Noted."))
        session.append(history[-1:])
    assert cuts <= 1
    history.append(user("Who is the landlord of the workshop?"))
    assert "Frau Behrens" in str(session.assemble(history, limit=9_000).render())


@pytest.mark.nightly
def test_notes_that_match_well_do_not_cost_the_prefix_either(engine: Engine) -> None:
    """A repeated note matches well, and asks nothing."""
    session = engine.session("next", project="station")
    history: list[Message] = []
    removed = 0
    for number in range(30):
        history.append(user(f"Buoy {number % 6}{number % 12} looks fine today too, the tide is {number} cm."))
        changes = session.assemble(history, limit=9_000).report.changes
        removed += any("made room" in change.reason for change in changes)
        history.append(reply("Noted."))
    assert removed == 0


def test_a_note_gets_a_smaller_block_than_a_question(engine: Engine) -> None:
    """It refers to something known, and asks nothing."""
    session = engine.session("new", project="station")
    stated = session.recall("The launch of the boat went well, and the sea was calm in the bay.")
    asked = session.recall("Did the launch of the boat go well, and was the sea calm in the bay?")
    assert stated.size < asked.size


def test_a_value_in_the_instructions_that_was_corrected_is_recalled_with_its_correction(engine: Engine) -> None:
    """The correction has no word of the question."""
    session = engine.session("new", project="station")
    session.append([user("Forget Loki, what the programs print goes to ClickHouse."), reply("Noted.")])
    engine.work()
    other = engine.session("other", project="station")
    instructions = system("You keep a diary. Log lines are shipped to Loki.")
    window = other.assemble([instructions, user("Where are log lines shipped?")], limit=9_000)
    assert "ClickHouse" in str(window.render())
