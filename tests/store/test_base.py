"""Selections that make no sense are refused when they are made."""

from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.store.base import Scope, Select


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"kind": "message", "keys": ("a",)}, "has no key"),
        ({"kind": "job", "keys": ("a",)}, "has no key"),
        ({"kind": "fact", "name": "decision"}, "has no name"),
        ({"kind": "record", "limit": -1}, "must not be negative"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(chosen: dict[str, Any], said: str) -> None:
    """What a kind of row does not have cannot be selected by; the error says what to do."""
    with pytest.raises(InputError, match=said):
        Select(scope=Scope(), **chosen)
