"""Selections that make no sense are refused when they are made."""

import pytest

from holdfast.errors import InputError
from holdfast.store.base import Scope, Select


def test_a_selection_that_makes_no_sense_is_refused() -> None:
    """The error says what is wrong."""
    with pytest.raises(InputError, match="must not be negative"):
        Select(scope=Scope(), limit=-1)
