"""What all embedders share: clean text, unit vectors, batches, and the cache of questions."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from holdfast.embed import CachedEmbedder, HashEmbedder, Purpose, Space
from holdfast.embed.base import Floats, batches, clean, make_digest, unit


class Counting:
    """An embedder that remembers what it was asked."""

    def __init__(self) -> None:
        self.space = Space(name="counting", dimension=384, digest="0")
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        self.asked += texts
        return HashEmbedder().embed(texts, kind=kind)


def ask(cache: CachedEmbedder, *texts: str) -> Floats:
    """Embed questions."""
    return cache.embed(texts, kind="query")


class TestCache:
    """The cache of questions."""

    def test_a_repeated_question_is_embedded_once(self) -> None:
        """The second time, the vector comes from the cache."""
        counting = Counting()
        cache = CachedEmbedder(counting)
        first, second = ask(cache, "where is it"), ask(cache, "where is it")
        assert counting.asked == ["where is it"]
        assert np.array_equal(first, second)

    def test_different_questions_have_different_vectors(self) -> None:
        """The cache never answers one question with another's vector."""
        cache = CachedEmbedder(Counting())
        assert not np.array_equal(ask(cache, "where"), ask(cache, "when"))

    def test_blanks_at_the_ends_do_not_matter(self) -> None:
        """Questions are distinguished by their trimmed text."""
        counting = Counting()
        cache = CachedEmbedder(counting)
        ask(cache, "  where ")
        ask(cache, "where\n")
        assert counting.asked == ["where"]

    def test_the_oldest_question_goes_first(self) -> None:
        """Beyond its size the cache forgets what was asked longest ago."""
        counting = Counting()
        cache = CachedEmbedder(counting, size=2)
        for text in ("one", "two", "three", "one"):
            ask(cache, text)
        assert counting.asked == ["one", "two", "three", "one"]

    def test_asking_again_keeps_a_question(self) -> None:
        """A question that was asked again is no longer the oldest."""
        counting = Counting()
        cache = CachedEmbedder(counting, size=2)
        for text in ("one", "two", "one", "three", "one"):
            ask(cache, text)
        assert counting.asked == ["one", "two", "three"]

    def test_a_row_of_zeros_is_not_kept(self) -> None:
        """A question that gave no vector is asked for again."""
        counting = Counting()
        cache = CachedEmbedder(counting)
        ask(cache, "!!!")
        ask(cache, "!!!")
        assert counting.asked == ["!!!", "!!!"]

    def test_the_space_is_that_of_the_embedder_behind(self) -> None:
        """A cache has no identity of its own."""
        counting = Counting()
        assert CachedEmbedder(counting).space is counting.space

    def test_nothing_is_asked_before_the_first_question(self) -> None:
        """Making a cache, and asking for no texts, leaves the embedder alone."""
        counting = Counting()
        assert ask(CachedEmbedder(counting)).shape == (0, 384)
        assert counting.asked == []

    def test_a_passage_is_embedded_once(self) -> None:
        """Logs and tool results repeat. A question with the same words has its own vector."""
        counting = Counting()
        cache = CachedEmbedder(counting)
        for _ in range(2):
            cache.embed(["a passage", "a passage"], kind="passage")
        assert counting.asked == ["a passage"]
        ask(cache, "a passage")
        assert counting.asked == ["a passage", "a passage"]

    def test_passages_do_not_push_out_questions(self) -> None:
        """An import leaves the cache of questions as it is."""
        counting = Counting()
        cache = CachedEmbedder(counting, size=2)
        ask(cache, "where")
        cache.embed([f"passage {number}" for number in range(9)], kind="passage")
        ask(cache, "where")
        assert counting.asked.count("where") == 1

    def test_a_size_of_zero_switches_it_off(self) -> None:
        """Without room every question is embedded."""
        counting = Counting()
        cache = CachedEmbedder(counting, size=0)
        ask(cache, "one")
        ask(cache, "one")
        assert counting.asked == ["one", "one"]

    def test_known_and_new_questions_keep_their_order(self) -> None:
        """Rows stand in the order of the texts, repeated ones included, and only new texts are embedded."""
        counting = Counting()
        cache = CachedEmbedder(counting)
        ask(cache, "two")
        rows = ask(cache, "one", "two", "one")
        assert np.array_equal(rows, HashEmbedder().embed(["one", "two", "one"], kind="query"))
        assert counting.asked == ["two", "one"]

    def test_what_is_handed_out_can_be_changed(self) -> None:
        """Writing into a row does not reach the cache."""
        cache = CachedEmbedder(Counting())
        ask(cache, "one")[:] = 0
        assert ask(cache, "one").any()

    def test_threads_may_share_it(self) -> None:
        """Many threads at once get the right vectors from a cache that is too small for them."""
        cache = CachedEmbedder(HashEmbedder(), size=3)
        texts = [f"question {number % 7}" for number in range(400)]
        with ThreadPoolExecutor(8) as pool:
            rows = list(pool.map(lambda text: ask(cache, text)[0], texts))
        assert np.array_equal(np.stack(rows), HashEmbedder().embed(texts, kind="query"))

    def test_it_shows_what_it_holds(self) -> None:
        """A cache says which embedder it stands before."""
        assert repr(CachedEmbedder(HashEmbedder())) == "CachedEmbedder(HashEmbedder(dimension=384), size=128)"


class TestText:
    """Text that is fit to be embedded."""

    def test_half_surrogates_are_replaced_and_pairs_joined(self) -> None:
        """What JSON can carry and UTF-8 cannot becomes what UTF-8 can."""
        assert clean(" \ud83d\ude00 \ud800 ") == "😀 \ufffd"

    def test_plain_text_stays_as_it_is(self) -> None:
        """Only blanks at the ends go."""
        assert clean("\n你好 world\t") == "你好 world"


class TestUnit:
    """Rows of length 1."""

    def test_rows_have_the_length_one(self) -> None:
        """Every row that has a direction keeps it."""
        assert np.allclose(unit(np.array([[3.0, 4.0], [0.0, -2.0]])), np.array([[0.6, 0.8], [0, -1]]))

    @pytest.mark.filterwarnings("ignore:overflow")
    def test_what_has_no_direction_is_zero(self) -> None:
        """Rows of zeros, and rows that are not made of numbers, are similar to nothing."""
        rows = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e300, 1e300]])
        assert not unit(rows).any()


class TestBatches:
    """Texts in groups."""

    def test_groups_are_bounded_in_number(self) -> None:
        """No group holds more texts than asked for, and their order stays."""
        assert [list(group) for group in batches(list("abcde"), size=2)] == [["a", "b"], ["c", "d"], ["e"]]

    def test_groups_are_bounded_in_tokens(self) -> None:
        """Texts that are long together go in different groups; one that is too long goes alone."""
        texts = ["a few plain words in a row", "a few other words in a row", "many words " * 300, "d"]
        assert [len(group) for group in batches(texts, size=9, tokens=25)] == [2, 1, 1]

    def test_no_texts_make_no_group(self) -> None:
        """Nothing is asked for nothing."""
        assert list(batches([], size=3)) == []


def test_a_digest_keeps_its_parts_apart() -> None:
    """Moving a character from one part to the next is another identity."""
    assert make_digest("ab", "c") != make_digest("a", "bc")
