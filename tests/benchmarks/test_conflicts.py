"""The sheet of facts that contradict each other, and how a block is judged."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from benchmarks.conflicts import Pair, judge, load_pairs, load_similar, measure


def test_the_sheet_has_pairs_in_own_words_in_other_words_and_in_chinese() -> None:
    """Each fact has its value, and no question has one."""
    pairs = load_pairs()
    assert Counter(pair.words for pair in pairs) == {"own": 14, "other": 13, "chinese": 13}
    for pair in pairs:
        assert re.search(pair.old, pair.first)
        assert re.search(pair.new, pair.second)
        assert not re.search(f"{pair.old}|{pair.new}", pair.question)
    assert len(load_similar()) == 20


def test_a_block_with_both_values_needs_a_mark() -> None:
    """The newest value alone needs none."""
    pair = Pair(words="own", first="1a", second="2b", question="?", old="1a", new="2b", subject="", slot="")
    assert judge(pair, "It is 1a.\nIt is 2b.").is_unmarked
    assert not judge(pair, "It is 1a. (contradicts another fact)\nIt is 2b.").is_unmarked
    assert not judge(pair, "It is 2b.").is_unmarked
    assert not judge(pair, "It is 1a.").has_new


@pytest.mark.nightly
def test_no_block_shows_two_values_without_a_mark() -> None:
    """With words alone, and with subject and slot; facts about different things are neither marked nor replaced."""
    found = measure()
    systems = found["systems"]
    assert systems["words alone: all"]["unmarked"] == 0
    assert systems["subject and slot: all"]["unmarked"] == 0
    assert systems["words alone: all"]["newest shown"] >= 38
    assert systems["subject and slot: all"]["newest shown"] >= 39
    assert found["similar"]["replaced"] == 0
