"""BM25 over posting lists: against a plain reckoning, and against whom it must not see."""

import math
from collections import Counter

import numpy as np
import pytest

from holdfast.index import bm25
from holdfast.index.bm25 import K1, B, Corpus, Keywords, Term, score, select_cheapest, select_rarest
from holdfast.index.columns import Columns
from holdfast.search.arrays import Bools
from support.memory_index import BLOCK_PASSAGES, MemoryIndex
from support.passage_rows import PassageRow

TEXTS = ["red apple pie", "green apple", "red red wine", "blue cheese and apple wine", "nothing"]


def index_of(texts: list[str], *, scopes: list[int] | None = None) -> MemoryIndex:
    """An index of texts, each a passage of one window."""
    index = MemoryIndex()
    for number, text in enumerate(texts):
        words = text.split()
        scope = scopes[number] if scopes else 0
        row = PassageRow(
            message=number, scope=scope, time=0, previous=-1, human=True, size=len(text), window_lengths=(len(words),)
        )
        index.insert(row, words)
    return index


def ask(
    index: MemoryIndex, *words: str, visible: Bools | None = None, related: dict[str, dict[str, float]] | None = None
) -> Keywords:
    """What these words find, and the words related to them."""
    seen = index.columns["alive"] if visible is None else visible
    asked = [
        Term(postings, weight, index.postings((related or {}).get(word, {})))
        for word, (postings, weight) in zip(words, index.postings(dict.fromkeys(words, 1.0)), strict=True)
    ]
    return score(asked, Corpus.of(index.columns, seen))


def plainly(texts: list[str], *words: str) -> list[float]:
    """BM25 as the textbook has it."""
    counts = [Counter(text.split()) for text in texts]
    average = sum(len(text.split()) for text in texts) / len(texts)
    rarity: dict[str, float] = {}
    for word in words:
        frequency = sum(word in count for count in counts)
        rarity[word] = math.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
    scores = []
    for count in counts:
        length, total = count.total(), 0.0
        for word in words:
            total += rarity[word] * count[word] * (K1 + 1) / (count[word] + K1 * (1 - B + B * length / average))
        scores.append(total)
    return scores


@pytest.mark.parametrize("words", [("apple",), ("red", "wine"), ("apple", "missing"), ("nothing", "cheese", "red")])
def test_scores_are_those_of_the_textbook(words: tuple[str, ...]) -> None:
    """Scores agree with BM25 reckoned plainly, a missing word adding nothing."""
    assert ask(index_of(TEXTS), *words).passages.tolist() == pytest.approx(plainly(TEXTS, *words), rel=1e-5)


def test_a_related_word_counts_where_the_word_itself_is_missing() -> None:
    """Of several related words the best one counts, at most as much as the word; what has the word scores as before."""
    index, related = index_of(TEXTS), {"red": {"blue": 0.5, "cheese": 0.25, "apple": 0.1, "missing": 1.0}}
    plain, found = ask(index, "red", "pie"), ask(index, "red", "pie", related=related)
    whole = plainly(TEXTS, "red")
    assert found.passages[[0, 2]].tolist() == plain.passages[[0, 2]].tolist()
    assert found.passages[4] == 0
    assert found.passages[3] == pytest.approx(0.5 * min(plainly(TEXTS, "blue")[3], whole[3] or math.inf), rel=0.4)
    assert 0 < found.passages[1] < found.passages[3] < found.passages[2]
    for name in ("share", "together", "sessions"):
        assert getattr(found, name).tolist() == getattr(plain, name).tolist()


def test_a_related_word_of_others_is_not_seen() -> None:
    """Where a related word is rare in what a reader sees, it does not matter how often others use it."""
    index = index_of([*TEXTS, *["blue sea"] * 5], scopes=[0] * 5 + [1] * 5)
    alone, related = index_of(TEXTS), {"red": {"blue": 0.5}}
    seen = index.columns["scope"] == 0
    found = ask(index, "red", visible=seen, related=related).passages
    assert found.tolist() == pytest.approx([*ask(alone, "red", related=related).passages.tolist(), *[0.0] * 5])


def test_words_that_occur_together_are_found_by_window() -> None:
    """A passage whose words stand in two windows holds them all, but not together; one word of two counts half."""
    index = index_of(TEXTS)
    row = PassageRow(message=9, scope=0, time=0, previous=-1, human=True, size=9, window_lengths=(1, 1))
    index.insert(row, ["green", "wine"])
    found = ask(index, "green", "wine")
    assert found.share[-1] == pytest.approx(1)
    assert 0.2 < found.together[-1] < 0.3
    whole = found.share[:-1] > 0.99
    assert found.together[:-1].tolist() == pytest.approx(np.where(whole, 1, found.share[:-1] / 2).tolist())


def test_many_passages_score_as_few_do() -> None:
    """Passages whose lists were sealed score like those whose were not."""
    texts = [f"word{n % 7} word{n % 11} filler" for n in range(BLOCK_PASSAGES * 2 + 30)]
    assert ask(index_of(texts), "word3", "word5").passages.tolist() == pytest.approx(
        plainly(texts, "word3", "word5"), rel=1e-4
    )


def test_the_share_is_how_much_of_a_question_is_there() -> None:
    """A passage with every word has share 1, with none 0; a word that stands nowhere weighs most."""
    index = index_of(TEXTS)
    assert ask(index, "red", "wine").share.tolist() == pytest.approx([0.5, 0, 1, 0.5, 0], abs=0.01)
    assert 0 < ask(index, "red", "missing").share[0] < 0.5
    assert not ask(index).share.any()


def test_invisible_passages_do_not_affect_scores() -> None:
    """Scores are those of a store in which the invisible is not there; the invisible itself has none."""
    scopes = [0, 1, 0, 1, 0]
    index = index_of(TEXTS, scopes=scopes)
    visible = index.columns["scope"] == 0
    mine = [text for text, scope in zip(TEXTS, scopes, strict=True) if scope == 0]
    found = ask(index, "red", "apple", visible=visible)
    assert found.passages[visible].tolist() == pytest.approx(plainly(mine, "red", "apple"), rel=1e-5)
    assert not found.passages[~visible].any()
    assert not found.share[~visible].any()
    assert found.sessions.tolist()[1] == 0


def test_nothing_visible_finds_nothing() -> None:
    """A reader who may see nothing gets no score, also where there is only one passage."""
    index = index_of(["the only one"])
    assert not ask(index, "only", visible=np.zeros(1, np.bool_)).passages.any()
    assert not ask(MemoryIndex(), "only").passages.any()


def test_sessions_score_as_a_whole() -> None:
    """The session whose passages hold the words together scores above one that holds them once."""
    index = index_of(["red wine", "red wine", "red", "blue"], scopes=[0, 0, 1, 2])
    sessions = ask(index, "red", "wine").sessions
    assert sessions[0] > sessions[1] > sessions[2] == 0


def test_windows_are_scored_on_request() -> None:
    """Some windows are scored by themselves, to choose what of a passage to show."""
    index = MemoryIndex()
    row = PassageRow(message=1, scope=0, time=0, previous=-1, human=True, size=9, window_lengths=(2, 1, 3))
    index.insert(row, ["red", "apple", "pie", "green", "red", "red"])
    windows = ask(index, "red").windows(np.arange(3), index.columns)
    assert windows[2] > windows[0] > windows[1] == 0
    assert ask(index, "red").windows(np.zeros(0, np.int64), index.columns).tolist() == []


class TestTelling:
    def test_the_rarest_are_taken(self) -> None:
        """Of more terms than can be asked, the rarest are."""
        sizes = list(range(200, 0, -1))
        chosen = select_rarest(sizes)
        assert sorted(sizes[number] for number in chosen) == list(range(1, bm25.MAX_TERMS + 1))

    def test_terms_that_occur_nowhere_push_none_out(self) -> None:
        """However many words are unknown, the known ones are asked."""
        sizes = [0] * 100 + [5, 7]
        assert {100, 101} <= set(select_rarest(sizes))


def test_the_rarest_terms_are_afforded_first() -> None:
    """In a large store, common terms are left out once enough windows are examined; the rarest is always asked."""
    most = bm25.MAX_POSTINGS
    assert select_cheapest([most, 5, 10, 0]) == [3, 1, 2]
    assert sorted(select_cheapest([most // 2, 3, most // 2 - 3])) == [0, 1, 2]
    assert select_cheapest([2 * most, 3 * most]) == [0]
    assert select_cheapest([]) == []


def test_columns_with_several_windows_score_by_passage() -> None:
    """A word in two windows of a passage counts twice in the passage."""
    index = MemoryIndex()
    for number, lengths in enumerate([(2, 2), (4,)]):
        row = PassageRow(message=number, scope=0, time=0, previous=-1, human=True, size=9, window_lengths=lengths)
        index.insert(row, ["red", "x", "red", "y"])
    scores = ask(index, "red").passages
    assert scores[0] == pytest.approx(scores[1])
    assert isinstance(index.columns, Columns)
