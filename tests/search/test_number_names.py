"""A number in the subject of a statement is a name, not a value."""

from __future__ import annotations

import pytest

from holdfast.search.contradictions import contradict, read_claim, replaces


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Gate 3 is green.", "Gate 4 is red."),
        ("The gateway of port area 1 has gate 1", "The gateway of port area 2 has gate 2"),
        ("harbour owner7x", "harbour owner12x"),
    ],
)
def test_statements_about_numbered_things_do_not_contradict(earlier: str, later: str) -> None:
    """They are about different things."""
    first = read_claim(earlier)
    second = read_claim(later)
    assert first is not None
    assert second is not None
    assert not contradict(first, second)


@pytest.mark.parametrize(
    ("earlier", "later", "is_over"),
    [
        ("The port is 8443.", "The port is 9443.", True),
        ("cat number 3 likes fish", "cat number 4 likes fish", False),
    ],
)
def test_only_the_value_of_a_plain_statement_is_replaced(earlier: str, later: str, *, is_over: bool) -> None:
    """In other sentences a number may be a name."""
    first = read_claim(earlier)
    second = read_claim(later)
    assert first is not None
    assert second is not None
    assert replaces(second, first) == is_over
