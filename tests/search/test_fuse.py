"""The order of passages: the measured recipe, the original plugin's weights, reciprocal ranks."""

import numpy as np
import pytest

from holdfast.index.vectors import Centering
from holdfast.search.fuse import Fusion, Order, Recipe, Weighted, rank
from support.ranking_signals import DAY, Said, signals

PLAIN = Order(recipe=Recipe(human=1, near=0, far=0, session=0, date=0))
TALK = [Said("we deploy to Frankfurt"), Said("the cat sleeps"), Said("lunch was good"), Said("a second cat came")]


def test_the_passage_with_the_words_comes_first() -> None:
    """What holds the question's words stands before what does not, and what has nothing of it is left out."""
    found = rank(signals(TALK, "where do we deploy?"), order=PLAIN)
    assert found.order.tolist() == [0]


def test_vectors_find_what_words_do_not() -> None:
    """A passage that is like the question is found without a word of it."""
    found = rank(signals(TALK, "feline", cosine=[0, 0.8, 0, 0.6]), order=PLAIN)
    assert found.order.tolist() == [1, 3]


@pytest.mark.parametrize("fusion", ["recipe", "weighted", "rrf"])
def test_what_may_not_be_seen_is_in_no_ranking(fusion: Fusion) -> None:
    """A hidden passage is neither ranked nor changes the order of the others."""
    order = Order(fusion=fusion, weighted=Weighted(least=0))
    shown = rank(signals(TALK, "cat", hidden=[3], cosine=[0.1, 0.5, 0.2, 0.9]), order=order)
    assert 3 not in shown.order
    assert shown.order[0] == 1
    alone = rank(signals(TALK[:3], "cat", cosine=[0.1, 0.5, 0.2]), order=order)
    assert shown.order.tolist() == alone.order.tolist()


def test_a_persons_words_weigh_more() -> None:
    """Of two equal passages the one a person said comes first."""
    messages = [Said("the port is 8080", session=0, human=False), Said("the port is 8080", session=1)]
    assert rank(signals(messages, "which port")).order.tolist() == [1, 0]


def test_a_question_takes_over_from_its_answer() -> None:
    """A person's message next to one that matches comes along; a reply does not."""
    messages = [Said("what was it again?"), Said("the port is 8080", human=False), Said("I see", human=False)]
    assert rank(signals(messages, "port 8080")).order.tolist() == [1, 0]


def test_a_long_message_takes_over_less() -> None:
    """The longer a message, the less of its neighbours' score it gets."""
    messages = [Said("hm " * 300), Said("the port is 8080"), Said("hm " * 3)]
    found = rank(signals(messages, "port"))
    long, short = found.parts([0, 2])
    assert long.neighbours < short.neighbours


def test_sessions_do_not_touch() -> None:
    """Nothing is taken over across the border of a session."""
    messages = [Said("nothing here", session=0), Said("the port is 8080", session=1)]
    assert rank(signals(messages, "port")).order.tolist() == [1]


def test_a_session_lifts_its_passages() -> None:
    """Of two equal passages the one in the session that says more about the question comes first."""
    messages = [
        Said("the port moved", session=0),
        Said("lunch " * 12, session=0),
        Said("the port moved", session=1),
        Said("filler " * 12, session=1),
        Said("port port port", session=1),
    ]
    order = rank(signals(messages, "port"), order=Order(recipe=Recipe(near=0, far=0))).order.tolist()
    assert order.index(2) < order.index(0)


def test_a_named_day_lifts_and_hides_nothing() -> None:
    """What was said on the days that a question points at comes first; the rest stays."""
    messages = [Said("we met", session=0, time=DAY), Said("we met", session=1, time=50 * DAY)]
    found = rank(signals(messages, "met", dates=[(40 * DAY, 60 * DAY)]))
    assert found.order.tolist() == [1, 0]
    other, named = found.parts([0, 1])
    assert named.date > 0 == other.date


def test_equal_passages_are_in_the_order_of_their_messages() -> None:
    """Ranking has no chance in it."""
    messages = [Said("same words", session=number) for number in range(5)]
    assert rank(signals(messages, "same words")).order.tolist() == [0, 1, 2, 3, 4]


def test_vectors_that_cannot_be_trusted_do_not_count() -> None:
    """With no trust in the vectors the words alone decide."""
    known = signals(TALK, "cat", cosine=[0.9, 0, 0, 0], vector_weight=0.0)
    assert 0 not in rank(known, order=PLAIN).order


def test_what_all_windows_have_in_common_does_not_count() -> None:
    """Seen from the centre, a passage that is like everything falls behind one that is like the question alone."""
    centre = Centering(0.6, 0.5, np.arange(4), np.array([0.95, 0.2, 0.2, 0.2], np.float32))
    cosine = [0.62, 0.60, 0.1, 0.1]
    raw = rank(signals(TALK, "zzz", cosine=cosine), order=PLAIN)
    moved = rank(signals(TALK, "zzz", cosine=cosine, centre=centre), order=PLAIN)
    assert raw.order[0] == 0
    assert moved.order[0] == 1


def test_weighted_scores_lose_with_age() -> None:
    """The plugin's formula prefers what is newer, and says how much was lost."""
    messages = [Said("the port is 8080", time=DAY), Said("the port is 9090", session=1, time=101 * DAY)]
    found = rank(signals(messages, "port", now=101 * DAY), order=Order(fusion="weighted", weighted=Weighted(least=0)))
    assert found.order.tolist() == [1, 0]
    assert found.parts([0])[0].decay == pytest.approx(0.995**100, rel=1e-4)


def test_weighted_scores_have_a_least_by_the_channels_that_found_them() -> None:
    """A hit of words alone is judged by the weight of words alone."""
    messages = [Said("the port is 8080"), Said("unlike", session=1)]
    found = rank(signals(messages, "port", cosine=[0, 0.6]), order=Order(fusion="weighted"))
    assert found.order.tolist() == [0]


def test_reciprocal_ranks_join_both_lists() -> None:
    """A passage in both lists stands before one that leads a single list."""
    found = rank(signals(TALK, "cat sleeps", cosine=[0.9, 0.5, 0, 0]), order=Order(fusion="rrf"))
    assert found.order[0] == 1


def test_every_hit_has_its_score() -> None:
    """All parts of a score are kept."""
    found = rank(signals(TALK, "cat", cosine=[0, 0.5, 0, 0.4]))
    (parts,) = found.parts([1])
    assert parts.keyword == pytest.approx(1)
    assert parts.vector == pytest.approx(1)
    assert parts.cosine == pytest.approx(0.5)
    assert 0 < parts.share <= 1


def test_in_a_large_archive_only_what_may_be_best_is_weighed() -> None:
    """The best passages, and those next to them, are the same in the same order as if all were weighed."""
    conversation = [Said(f"filler {n}", session=n % 7, human=n % 2 == 0) for n in range(2000)]
    for n in range(0, 2000, 50):
        conversation[n] = Said("cat " * (1 + n % 4) + "word " * (n % 11), session=n % 7, human=n % 3 == 0)
    cosine = [((n * 7919) % 1000) / 2000 for n in range(2000)]
    centre = Centering(0.3, 0.1, np.arange(0, 2000, 3), np.full(667, 0.2, np.float32))
    known, few = (
        signals(conversation, "the cat", cosine=cosine, centre=centre, dates=[(0, 1)], limit=limit)
        for limit in (2000, 300)
    )
    whole, short = rank(known), rank(few)
    assert len(few.candidates) < len(known.candidates) == 2000
    best = few.candidates.passages[short.order[:100]].tolist()
    assert best == whole.order[:100].tolist()
    assert short.scores[short.order[:100]].tolist() == pytest.approx(whole.scores[whole.order[:100]].tolist())
    assert short.parts(short.order[:20].tolist()) == whole.parts(best[:20])


def test_short_quotes_come_first_if_room_is_scarce() -> None:
    """Past the best passages a short one is worth more than a long one of nearly the same score."""
    messages = [Said("port 1"), Said("port port " + "word " * 80, session=1), Said("port two", session=2)]
    known = signals(messages, "port", cosine=[0.9, 0.50, 0.49])
    found = rank(known, order=PLAIN)
    order, worth = found.for_quoting(known.candidates.sizes, Recipe(brevity=0.5, best=1))
    assert order.tolist() == [0, 2, 1]
    assert worth[0] > worth[1] > worth[2]


def test_an_empty_archive_has_no_order() -> None:
    """Nothing is found in nothing, by any way of ordering."""
    for fusion in ("recipe", "weighted", "rrf"):
        assert not len(rank(signals([], "anything", cosine=[]), order=Order(fusion=fusion)).order)
