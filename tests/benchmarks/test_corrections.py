"""The sheet of corrections, and how a window is judged."""

from __future__ import annotations

import re

from benchmarks.corrections import Correction, judge, load_corrections


def test_the_sheet_has_corrections_in_own_and_in_other_words() -> None:
    """Each statement has its value, and no question has one."""
    corrections = load_corrections()
    assert len(corrections) == 30
    assert sum(one.words == "own" for one in corrections) == 15
    for one in corrections:
        assert re.search(one.old, one.first)
        assert re.search(one.new, one.correction)
        for question in (one.own, one.other):
            assert not re.search(f"{one.old}|{one.new}", question)


def test_a_window_is_judged_by_its_values() -> None:
    """The old value alone is stale, and a block must mark it."""
    one = Correction(words="own", first="It is 1a.", correction="It is 2b.", own="?", other="?", old="1a", new="2b")
    stale = judge(one, '<recalled-context mark="x">\nIt is 1a.\n</recalled-context>', block_tokens=9)
    assert (stale.has_old, stale.has_new, stale.is_unmarked) == (True, False, True)
    marked = judge(
        one, "<recalled-context>\nIt is 1a. (may be outdated)\nIt is 2b.\n</recalled-context>", block_tokens=9
    )
    assert (marked.has_old, marked.has_new, marked.is_unmarked) == (True, True, False)
