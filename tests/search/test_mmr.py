"""Maximal marginal relevance."""

from holdfast.search.mmr import Item, mmr

PORT = Item(score=1.0, text="the service listens on port 8080")
COPY = Item(score=0.9, text="the service listens on port 8080!")
OTHER = Item(score=0.5, text="lunch is at noon")


def test_nothing_stays_nothing() -> None:
    """No items, no order."""
    assert mmr([]) == []


def test_all_items_come_where_they_are_few() -> None:
    """None is left out, and they are the same objects."""
    found = mmr([PORT, COPY, OTHER])
    assert {id(item) for item in found} == {id(PORT), id(COPY), id(OTHER)}


def test_repeated_passages_are_ranked_lower() -> None:
    """A near copy stands behind something else of a lower score."""
    assert mmr([PORT, COPY, OTHER], relevance_weight=0.5) == [PORT, OTHER, COPY]


def test_relevance_alone_is_the_order_of_scores() -> None:
    """With a weight of 1 likeness does not matter."""
    assert mmr([OTHER, COPY, PORT], relevance_weight=1.0) == [PORT, COPY, OTHER]


def test_variety_alone_takes_the_most_unlike() -> None:
    """With a weight of 0 scores do not matter."""
    assert mmr([PORT, COPY, OTHER], relevance_weight=0.0)[1] is OTHER


def test_items_without_words_are_like_nothing() -> None:
    """Items of which nothing is known keep the order of their scores."""
    items = [Item(score=score) for score in (0.2, 0.9, 0.5)]
    assert [item.score for item in mmr(items, relevance_weight=0.5)] == [0.9, 0.5, 0.2]


def test_equal_scores_are_no_trouble() -> None:
    """Where all scores are the same, likeness decides, and the first stays first."""
    items = [Item(score=0.5, text=item.text) for item in (PORT, COPY, OTHER)]
    assert mmr(items, relevance_weight=0.7) == [items[0], items[2], items[1]]
