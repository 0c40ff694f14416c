"""The hash embedding gives, number for number, the vectors of the folders it was made for."""

import numpy as np
import pytest

from holdfast.embed import HashEmbedder

# Made with the original's rule under Node.js; places and signs, all of the same size.
GOLDEN = {
    "Hello World": [-21, 50, 89, 133, -147, -150, 164, -270, -314, -342, 360],
    "ab": [251],
    "你好世界": [22, -243, 333, -363],
    "𝒳𝒴z": [173, 183, -217, -257, 293],
    "a@b.co": [52, -73, 84, -117, 266, -296],
}


def places(text: str) -> list[int]:
    """Where the features of a text lie, with their signs."""
    row = HashEmbedder().embed([text], kind="query")[0]
    return [int(place) if row[place] > 0 else -int(place) for place in np.flatnonzero(row)]


@pytest.mark.parametrize("text", GOLDEN)
def test_golden_places_and_signs(text: str) -> None:
    """Each feature lands where the original puts it; half of a letter beyond the first plane counts as U+FFFD."""
    assert places(text) == GOLDEN[text]


def test_golden_values() -> None:
    """Eleven features of the same size, at length 1."""
    row = HashEmbedder().embed(["Hello World"], kind="passage")[0]
    assert row.dtype == np.float32
    assert sorted({round(abs(float(value)), 6) for value in row}) == [0.0, 0.301511]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("HELLO   world", "hello world"),
        ("hello\u00a0\ufeff\u3000world", "hello world"),
        ("hello_world", "hello world"),
        ("  hello world!! ", "hello world"),
        ("hi 😀", "hi"),
    ],
)
def test_spelling_that_does_not_count(text: str, same: str) -> None:
    """Case, kinds of blanks, signs and emoji are one and the same."""
    assert places(text) == places(same)


def test_signs_are_not_collapsed_again() -> None:
    """Blanks are collapsed before signs become blanks, so two signs make two."""
    assert places("hello!!world") != places("hello world")


@pytest.mark.parametrize("text", ["", "   ", "!?…", "\ud800", "😀"])
def test_text_without_letters_is_zero(text: str) -> None:
    """What has no letter or digit is similar to nothing."""
    assert places(text) == []


def test_only_the_beginning_counts() -> None:
    """The first 2,000 UTF-16 units are embedded."""
    assert places("a1b2" * 500 + "tail") == places("a1b2" * 500)
    assert places("𝒳" * 1000 + "tail") == places("𝒳" * 1000)
    assert places("a1b2" * 499 + "tail") != places("a1b2" * 499)


def test_it_has_any_dimension() -> None:
    """A shorter vector holds the same features at fewer places, in a space of its own."""
    small = HashEmbedder(dimension=16)
    assert small.embed(["hello"], kind="query").shape == (1, 16)
    assert small.space != HashEmbedder().space == HashEmbedder().space
    assert small.space.dimension == 16
    assert repr(small) == "HashEmbedder(dimension=16)"
