"""Loaders of the public benchmark files, on small files of the same form."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.datasets import ANY_TURN, DATASETS, Conversation, load
from holdfast.errors import InputError
from support.cases import each
from support.external_data import require_data

FILES = Path(__file__).resolve().parents[1] / "fixtures" / "benchmarks"
PATHS = {
    "locomo": FILES / "locomo.json",
    "longmemeval-s": FILES / "longmemeval_oracle.json",
    "longmemeval-pool": FILES / "longmemeval_oracle.json",
    "beam": FILES / "beam",
    "realmem": FILES / "realmem",
    "squad": FILES / "squad.json",
    "miracl": FILES / "miracl",
    "cosqa": FILES / "cosqa",
}


def evidence_texts(conversation: Conversation) -> list[set[str]]:
    """What the evidence of each question says."""
    return [
        {conversation.sessions[session].turns[turn].text for session, turn in question.evidence if turn != ANY_TURN}
        for question in conversation.questions
    ]


def test_locomo_evidence_points_at_turns() -> None:
    """Ids in one string or several become places; dates and captions are read; no evidence, no question."""
    first, second = load("locomo", PATHS["locomo"])
    assert first.sessions[0].date == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert evidence_texts(first) == [
        {"I adopted a kitten called Miro."},
        {"I moved to Lisbon last week.", "Lovely! [shares a photo: a grey kitten]"},
    ]
    assert second.questions[0].answer == "Friday"
    assert first.sessions[0].turns[0].speaker == "Ana"


def test_longmemeval_is_mixed_or_pooled() -> None:
    """The oracle file becomes a haystack of its own for each question, or one for all; abstentions are left out."""
    apart = load("longmemeval-s", PATHS["longmemeval-s"])
    (pool,) = load("longmemeval-pool", PATHS["longmemeval-pool"])
    assert [len(conversation.sessions) for conversation in apart] == [2, 2]
    assert [evidence_texts(conversation) for conversation in apart] == [
        [{"My bike is a red Peugeot."}],
        [{"Noted: the 7:40 train."}],
    ]
    assert len(pool.sessions) == 2
    assert len(pool.questions) == 2
    assert load("longmemeval-s", PATHS["longmemeval-s"]) == apart


def test_beam_reads_messages_and_their_marks() -> None:
    """Artefacts are cut off, evidence in lists or tables is flattened, questions without evidence are left out."""
    (chat,) = load("beam", PATHS["beam"])
    assert chat.sessions[0].turns[0].text == "The budget is 4,000 euros"
    assert [session.date for session in chat.sessions] == [
        datetime(2024, 3, 15, tzinfo=UTC),
        datetime(2024, 4, 2, tzinfo=UTC),
    ]
    assert evidence_texts(chat) == [{"The budget is 4,000 euros", "Now the budget is 5,000 euros."}]


def test_realmem_sees_only_earlier_sessions() -> None:
    """A question may search what came before its session, and a session counts as a whole."""
    (conversation,) = load("realmem", PATHS["realmem"])
    (question,) = conversation.questions
    assert question.limit == 1
    assert question.evidence == {(0, ANY_TURN)}


def test_passages_are_sessions_of_one_turn() -> None:
    """Paragraphs, documents and functions are each found by their own question."""
    for name in ("squad", "miracl", "cosqa"):
        (corpus,) = load(name, PATHS[name])
        assert all(len(session.turns) == 1 for session in corpus.sessions)
        assert corpus.questions[0].evidence == {(0, 0)}


@each("name", DATASETS)
def test_no_id_or_label_reaches_the_archive(name: str) -> None:
    """A conversation holds words, roles, names and dates; ids and labels stay in the questions."""
    for conversation in load(name, PATHS[name]):
        held = repr(conversation.sessions)
        assert not any(mark in held for mark in ("D1:1", "has_answer", "q1", "1#0", "u1", "c-1", "source_chat_ids"))


def test_missing_or_wrong_paths_are_reported(tmp_path: Path) -> None:
    """An unknown name, a missing file, another file: an error that says so."""
    with pytest.raises(InputError, match="is not one of"):
        load("unknown", tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load("locomo", tmp_path / "none.json")
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(InputError, match="does not look like"):
        load("locomo", tmp_path / "other.json")
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(InputError, match="no questions"):
        load("locomo", tmp_path / "empty.json")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "path", "questions"),
    [
        ("locomo", "locomo/locomo_dev.json", 997),
        ("longmemeval-pool", "longmemeval/oracle_dev.json", 238),
        ("beam", "beam/100K", 179),
        ("cosqa", "cosqa_code", 500),
        ("miracl", "miracl_ko", 213),
    ],
)
def test_the_public_files_are_read(name: str, path: str, questions: int) -> None:
    """The development parts of the public sets give as many questions as they are known to have."""
    assert sum(len(conversation.questions) for conversation in load(name, require_data(path))) == questions
