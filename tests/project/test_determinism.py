"""The examples of property tests: the same in every run, unless chance is asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn() -> list[str]:
    """The examples of one run of a property."""
    seen: list[str] = []

    @given(st.text())
    def look(text: str) -> None:
        seen.append(text)

    look()
    return seen


def test_examples_are_the_same_in_every_run() -> None:
    """A failure in CI is one that everyone has; `make fuzz` looks for others."""
    if settings.get_current_profile_name() == "fuzz":
        pytest.skip("a random profile was asked for")
    assert drawn() == drawn()
