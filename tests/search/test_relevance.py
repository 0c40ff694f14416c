"""Whether a question has anything to do with the memory."""

from dataclasses import replace
from itertools import pairwise

import pytest

from holdfast.memory.query import count_words, measure_reference, weigh_terms
from holdfast.search.fuse import Signals
from holdfast.search.relevance import (
    EAGERNESS,
    GROWTH,
    MIN_COSINE,
    MIN_WINDOW_SHARE,
    NORMAL,
    SHY,
    TYPICAL_WINDOWS,
    Eagerness,
    combined_relevance,
    measure_confidence,
    scale_smallest_block,
    weigh_confidence,
    word_relevance,
)
from support.cases import each
from support.ranking_signals import Said, signals

TALK = [Said("we deploy to Frankfurt"), Said("the cat sleeps"), Said("lunch was good")]
LESS = (len(TALK) / TYPICAL_WINDOWS) ** GROWTH
"""The part of it that is enough in a memory as small as this."""


def relevance(found: Signals) -> float:
    """Return the larger of the two, as a recall reports it."""
    return max(word_relevance(found), combined_relevance(found))


def test_words_are_rated_by_what_occurs_together() -> None:
    """Without vectors the relevance is the part of the question that one window holds, of the part that is enough."""
    assert relevance(signals(TALK, "deploy to Frankfurt")) == pytest.approx(1 / MIN_WINDOW_SHARE / LESS)
    assert relevance(signals(TALK, "quantum chromodynamics")) == 0
    assert relevance(signals(TALK, "deploy quantum chromodynamics")) < 1


def test_one_word_of_several_may_be_chance() -> None:
    """A rare word alone opens no block where the question has more; a question of one word needs no second."""
    assert word_relevance(signals(TALK, "Frankfurt sausage")) < 1
    assert word_relevance(signals(TALK, "Frankfurt")) > 1


def test_in_a_small_memory_less_is_enough() -> None:
    """Where there is little to be similar by chance, a question needs less in common, by words and by vectors."""
    many = [*TALK, *(Said(f"unlike{n} other{n}") for n in range(100))]
    small, large = (
        signals(conversation, "deploy quantum", cosine=[0.3] * len(conversation)) for conversation in (TALK, many)
    )
    assert word_relevance(small) > word_relevance(large)
    assert combined_relevance(small) > combined_relevance(large)


def test_of_a_long_question_less_is_enough() -> None:
    """Of a message of many words no window holds as large a part as of a short question."""
    question = "deploy Frankfurt " + " ".join(f"word{n}" for n in range(6))
    short, long = (signals(TALK, question, length=length) for length in (8.0, 64.0))
    assert word_relevance(long) == pytest.approx(2 * word_relevance(short))


def test_vectors_count_as_far_as_words_go_with_them() -> None:
    """What is alike counts half without a word in common, and whole with all of them."""
    unknown = signals(TALK, "quantum", cosine=[0.4, 0.4, 0.4])
    assert combined_relevance(unknown) == pytest.approx(0.2 / MIN_COSINE / LESS)
    known = signals(TALK, "deploy Frankfurt", cosine=[0.4, 0.4, 0.4])
    assert combined_relevance(known) == pytest.approx(0.4 / MIN_COSINE / LESS)
    assert combined_relevance(signals(TALK, "deploy Frankfurt")) == 0


def test_one_passage_is_enough() -> None:
    """In a small memory one window that is like the question, and has its words, is not outweighed by the others."""
    alone = signals(TALK, "deploy Frankfurt", cosine=[0.5, 0.0, -0.2])
    assert combined_relevance(alone) == pytest.approx(0.5 / MIN_COSINE / LESS)
    assert relevance(signals(TALK, "quantum", cosine=[0.5, 0.0, -0.2])) < 1


@pytest.mark.parametrize("question", ["deploy Frankfurt", "deploy quantum", "cat lunch", "quantum"])
def test_vectors_take_nothing_away_from_the_words(question: str) -> None:
    """However unlike the vectors are, the relevance is at least what it is by words alone."""
    alone = relevance(signals(TALK, question))
    for cosine in ([-0.5, 0.0, 0.0], [0.9, 0.9, 0.9]):
        known = signals(TALK, question, cosine=cosine)
        assert word_relevance(known) == alone <= relevance(known)


def test_words_decide_if_vectors_do_not_cover_the_script() -> None:
    """A question in a script that the model does not know is like everything, and has a block by its words alone."""
    off = signals(TALK, "猫はどこ", cosine=[0.9, 0.9, 0.9], vector_weight=0.0)
    assert relevance(off) == 0
    on = signals([*TALK, Said("東京の天気は晴れ")], "東京の天気", cosine=[0, 0, 0, 0], vector_weight=0.0)
    assert relevance(on) > 1
    mixed = signals(TALK, "quantum", cosine=[0.4, 0.4, 0.4], vector_weight=0.5)
    assert relevance(mixed) == pytest.approx(0.1 / MIN_COSINE / LESS)


def test_invisible_passages_do_not_count() -> None:
    """Hidden passages do not make a question relevant."""
    known = signals(TALK, "deploy to Frankfurt", hidden=[0], cosine=[0.9, 0, 0])
    assert relevance(known) == 0


def test_an_empty_memory_is_not_relevant() -> None:
    """Where there is nothing, nothing is relevant."""
    assert relevance(signals([], "anything", cosine=[])) == 0


# --- the size of a block ------------------------------------------------------------------


def test_a_short_question_is_matched_by_chance() -> None:
    """The same share of a longer question is more than chance."""
    conversation = [Said("the cat sleeps on the mat beside the old stove"), *TALK]
    short = signals(conversation, "cat sleeps", words=2)
    long = signals(conversation, "cat sleeps mat beside old stove", words=6)
    assert word_relevance(short) == pytest.approx(word_relevance(long))
    assert measure_confidence(short) < measure_confidence(long)


def test_chinese_words_are_counted_too() -> None:
    """Two characters are about one word."""
    assert count_words(weigh_terms(["数据库迁移计划"])) == pytest.approx(3)
    assert count_words(weigh_terms(["migrate the database now"])) == pytest.approx(3, abs=1)


@each(
    ("text", "expected"),
    [
        ("Why do cats purr?", 0.0),
        ("Which planets have rings?", 0.0),
        ("When does the backup start?", 0.2),
        ("Which region do we deploy to?", 0.4),
        ("What did we decide?", 0.6),
        ("What did we decide about the old service?", 0.6),
        ("我们之前用哪个端口？", 0.6),
        ("前回のポートは？", 0.3),
        ("우리 데이터베이스는?", 0.4),
        ("猫为什么打呼噜？", 0.0),
        ("How long is my commute?", 0.2),
        ("Which degree do I have?", 0.2),
        ("What did I name my kitten?", 0.5),
        ("How do I boil an egg?", 0.0),
        ("What should I plant next to tomatoes?", 0.0),
        ("Wie heißt meine Zahnärztin?", 0.2),
        ("Wann soll ich Tomaten pflanzen?", 0.0),
        ("Comment s'appelle mon dentiste ?", 0.2),
        ("我的牙医叫什么名字？", 0.2),
        ("我该怎么煮鸡蛋？", 0.0),
        ("私の歯医者の名前は？", 0.2),
        ("제 치과 의사 이름은?", 0.2),
    ],
)
def test_a_question_may_refer_to_what_both_sides_know(text: str, expected: float) -> None:
    """Who says "we", "my", "the" or "did" asks about something that was said; a general question has none of them."""
    assert measure_reference(text) == pytest.approx(expected)


def test_a_reference_adds_to_confidence_and_to_the_smallest_block() -> None:
    """The same match is worth more if the question refers to something known."""
    plain = signals(TALK, "deploy quantum", words=2)
    refers = replace(plain, reference=0.4)
    assert measure_confidence(refers) == pytest.approx(measure_confidence(plain) + 0.4)
    assert scale_smallest_block(refers) > scale_smallest_block(plain)


def test_a_weak_match_gets_more_in_the_session_of_an_agent() -> None:
    """Passages there are longer than in a chat: a few lines take more tokens."""
    agent = [replace(each, human=False) for each in TALK]
    assert scale_smallest_block(signals(agent, "deploy")) > scale_smallest_block(signals(TALK, "deploy"))
    assert SHY.choose_size(0.0, cap=4_000, scale=scale_smallest_block(signals(agent, "deploy"))) == 0


def test_a_confidence_counts_more_in_the_session_of_an_agent() -> None:
    """Unrelated questions match code and logs less than talk."""
    agent = [replace(each, human=False) for each in TALK]
    assert weigh_confidence(0.5, signals(TALK, "deploy")) == 0.5
    assert NORMAL.choose_size(weigh_confidence(0.5, signals(agent, "deploy")), cap=4_000) > NORMAL.min_tokens


@pytest.mark.parametrize("eagerness", EAGERNESS.values())
def test_the_size_grows_with_confidence(eagerness: Eagerness) -> None:
    """From a few lines to the cap, without a jump, and never over the cap."""
    sizes = [eagerness.choose_size(hundredths / 100, cap=4_000) for hundredths in range(200)]
    assert sizes[0] == eagerness.min_tokens
    assert sizes[-1] == 4_000
    steps = [after - before for before, after in pairwise(sizes)]
    assert min(steps) >= 0
    assert max(steps) < 4_000 / 20
    assert eagerness.choose_size(2.0, cap=100) == 100
    assert eagerness.choose_size(0.0, cap=100) <= 100
