"""Whether a question has anything to do with the memory."""

import pytest

from holdfast.search import gate
from signals import Said, signals

TALK = [Said("we deploy to Frankfurt"), Said("the cat sleeps"), Said("lunch was good")]


def test_words_alone_are_judged_by_their_share() -> None:
    """Without vectors the relevance is the share of the question that the best passage holds."""
    assert gate.relevance(signals(TALK, "deploy to Frankfurt")) == pytest.approx(1)
    assert gate.relevance(signals(TALK, "quantum chromodynamics")) == 0
    assert gate.least(signals(TALK, "x")) == gate.LEAST_BY_WORDS


def test_vectors_count_as_far_as_words_go_with_them() -> None:
    """What is alike counts half without a word in common, and whole with all of them."""
    assert gate.relevance(signals(TALK, "quantum", cosine=[0.4, 0.4, 0.4])) == pytest.approx(0.2)
    assert gate.relevance(signals(TALK, "deploy Frankfurt", cosine=[0.4, 0.4, 0.4])) == pytest.approx(0.4)
    assert gate.least(signals(TALK, "x", cosine=[0, 0, 0])) == gate.LEAST


def test_one_passage_is_enough() -> None:
    """In a small memory one window that is like the question, and has its words, is not outweighed by the others."""
    alone = signals(TALK, "deploy Frankfurt", cosine=[0.5, 0.0, -0.2])
    assert gate.relevance(alone) == pytest.approx(0.5)
    assert gate.relevance(signals(TALK, "quantum", cosine=[0.5, 0.0, -0.2])) < gate.LEAST


def test_vectors_take_nothing_away_that_words_prove() -> None:
    """Half of the question in one passage is enough for a block, however unlike the vectors are."""
    known = signals(TALK, "deploy Frankfurt", cosine=[-0.5, 0.0, 0.0])
    assert gate.relevance(known) == gate.least(known) == gate.LEAST
    assert gate.proven(known, limit=3).tolist() == [0]
    less = signals(TALK, "deploy quantum chromodynamics", cosine=[-0.5, 0.0, 0.0])
    assert gate.relevance(less) < gate.least(less)
    assert gate.proven(less, limit=3).tolist() == []
    hidden = signals(TALK, "deploy Frankfurt", hidden=[0], cosine=[0, 0, 0])
    assert (gate.relevance(hidden), gate.proven(hidden, limit=3).tolist()) == (0, [])


def test_where_vectors_know_nothing_words_decide() -> None:
    """A question in a script that the model does not know is like everything, and has a block by its words alone."""
    off = signals(TALK, "猫はどこ", cosine=[0.9, 0.9, 0.9], trust=0.0)
    assert (gate.relevance(off), gate.least(off)) == (0, gate.LEAST_BY_SIGNS)
    on = signals([*TALK, Said("東京の天気は晴れ")], "東京の天気", cosine=[0, 0, 0, 0], trust=0.0)
    assert gate.relevance(on) > gate.LEAST_BY_SIGNS
    mixed = signals(TALK, "deploy Frankfurt", cosine=[0.4, 0.4, 0.4], trust=0.5)
    assert gate.relevance(mixed) == pytest.approx(0.7)
    assert gate.LEAST < gate.least(mixed) < gate.LEAST_BY_SIGNS


def test_what_may_not_be_seen_says_nothing() -> None:
    """Hidden passages do not make a question relevant."""
    known = signals(TALK, "deploy to Frankfurt", hidden=[0], cosine=[0.9, 0, 0])
    assert gate.relevance(known) == 0


def test_an_empty_memory_is_not_relevant() -> None:
    """Where there is nothing, nothing is relevant."""
    assert gate.relevance(signals([], "anything", cosine=[])) == 0
