"""A test of many cases names those that fail."""

import pytest

from support.cases import each


def test_every_case_is_checked_and_those_that_fail_are_named() -> None:
    """Also those after the first that fails."""
    seen: list[int] = []

    @each("number, square", [(1, 1), (2, 5), (3, 9), (4, 17)])
    def check(number: int, square: int) -> None:
        seen.append(number)
        assert number**2 == square

    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as found:
        check()
    assert seen == [1, 2, 3, 4]
    notes = [error.__notes__ for error in found.value.exceptions]
    assert notes == [["case: {'number': 2, 'square': 5}"], ["case: {'number': 4, 'square': 17}"]]
