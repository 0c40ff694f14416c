"""The sheet of statements that are corrected, and how a digest is judged."""

from __future__ import annotations

from collections import Counter

from benchmarks.digest import Pair, judge, load_pairs


def test_every_statement_and_every_correction_has_its_value() -> None:
    """None has that of the other, which would count for both."""
    pairs = load_pairs()
    assert Counter(pair.half for pair in pairs) == {"choose": 21, "check": 36}
    for pair in pairs:
        assert pair.old in pair.first
        assert pair.new in pair.correction
        assert pair.old not in pair.correction
        assert pair.new not in pair.first


def test_a_digest_is_judged_by_its_values() -> None:
    """The old value alone is stale."""
    pair = Pair(half="check", first="It is 1a.", correction="It is 2b.", old="1a", new="2b")
    digests = ("It was 1a, now 2b.", "It is 1a.", "It is 2b.", "Done.")
    assert [judge(pair, digest) for digest in digests] == ["old and new", "old alone", "new alone", "neither"]
