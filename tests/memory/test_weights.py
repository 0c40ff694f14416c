"""The terms of a question, and how much each weighs."""

from holdfast.memory.query import measure_reference, weigh_terms
from holdfast.text import terms


def test_the_newest_text_weighs_most() -> None:
    """What was said before counts half, and half again; what is said twice in one text counts twice."""
    assert weigh_terms(("cat dog", "dog", "port port")) == {"port": 2, "dog": 0.5, "cat": 0.25}
    assert weigh_terms(()) == {}


def test_words_that_a_question_is_put_with_count_half() -> None:
    """Neither "how long" nor "take" is what is asked for."""
    assert weigh_terms(("How long did the rebuild take?",)) == {"long": 0.5, "rebuild": 1, "take": 0.5}


def test_silent_signs_do_not_ask() -> None:
    """In Chinese the signs of "what" and "which" fall away, in Japanese particles count little."""
    assert weigh_terms(("端口是什么",)) == {"端": 1, "口": 1, "端口": 1, "口是": 1}
    japanese = weigh_terms(("猫はどこ",))
    assert japanese["猫"] == 1
    assert 0 < japanese["どこ"] == japanese["は"] < 0.5


def test_a_question_of_silent_signs_is_taken_at_its_word() -> None:
    """Where nothing else is left, everything counts."""
    assert weigh_terms(("什么",)) == dict.fromkeys(terms("什么"), 1.0)


def test_function_words_of_a_german_question_do_not_ask() -> None:
    """In English, some of them are words with content."""
    assert set(weigh_terms(("Wann endet die Wartung der Zentrifugen?",))) == set(terms("endet Wartung Zentrifugen"))
    assert "war" in weigh_terms(("Did von der Leyen talk about the war?",))
    assert set(weigh_terms(("Did the actor die in the war?",))) == set(terms("actor die war"))


def test_the_german_question_word_is_no_past() -> None:
    """In English, "was" refers to something that both know."""
    assert measure_reference("Was kostet ein Ei?") == 0
    assert measure_reference("Wie koche ich ein Ei?") == 0
    assert measure_reference("Was wurde gestern entschieden?") > 0
    assert measure_reference("Was it red?") > 0
    assert measure_reference("Wann ist der Standup?") == measure_reference("When is the standup?")
    assert measure_reference("Can a cat die of a cold?") == 0
