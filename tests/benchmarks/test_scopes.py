"""Canaries in every scope, read in every way."""

from benchmarks.scopes import Scopes, measure


def test_no_reader_sees_a_row_of_another() -> None:
    """Of reads of every kind, in scopes drawn by chance, none crosses."""
    assert measure(reads=300, seed=2) == Scopes(scopes=16, reads=300, crossings=0)
