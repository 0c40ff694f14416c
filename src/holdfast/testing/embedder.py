"""Checks that every embedder must pass. The docstring of each describes the requirement.

    check_embedder(make_my_embedder)

`make_my_embedder()` creates the embedder. Every call must return the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, get_args

import numpy as np

from holdfast.embed.base import Embedder, Floats, Purpose
from holdfast.testing import collect_checks, run_check

Maker: TypeAlias = Callable[[], Embedder]
"""Creates an embedder; every call returns the same model."""
Check: TypeAlias = Callable[[Maker], None]
"""One requirement of an embedder; raises AssertionError if it is not met."""

TEXTS: Final = (
    "Where do we deploy to?",
    "def parse_url(path: str) -> None:",
    "我们在法兰克福部署服务。",
    "デプロイ先はどこですか",
    "배포는 어디로 하나요",
    "Ωμέγα кириллица العربية हिन्दी",
    "😀 🇩🇪 e\u0301 ﬁ",
    "x",
    "a" * 5_000,
    "word " * 3_000,
    "\x00 control \x07 codes",
    "half a pair \ud83d, a pair in halves \ud83d\ude00",
    "!?.,;:-",
)
"""Texts of many kinds; none of them is blank."""
_BLANK: Final = ("", " ", "\n\t  \n")
_LOOSE: Final = 1e-5
_EQUAL: Final = 1e-4
_PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)


def rows_match_the_space(make: Maker) -> None:
    """Each text gets one float32 row with as many columns as the space has dimensions; no texts give no rows."""
    embedder = make()
    for kind in _PURPOSES:
        for texts in ((), TEXTS[:1], TEXTS):
            rows = embedder.embed(texts, kind=kind)
            assert rows.shape == (len(texts), embedder.space.dimension), f"{rows.shape} for {len(texts)} texts"
            assert rows.dtype == np.float32, f"{rows.dtype}"


def rows_are_normalised(make: Maker) -> None:
    """A row has length 1 or is all zeros, for any script and any broken text; it never contains NaN."""
    embedder = make()
    for kind in _PURPOSES:
        lengths = np.linalg.norm(embedder.embed(TEXTS, kind=kind).astype(np.float64), axis=1)
        for text, length in zip(TEXTS, lengths.tolist(), strict=True):
            assert np.isfinite(length), f"{text[:40]!r} has no length"
            assert length == 0 or abs(length - 1) < _LOOSE, f"{text[:40]!r} has length {length}"


def blank_text_is_zero(make: Maker) -> None:
    """The row of a blank text is all zeros, even in a batch with other texts."""
    embedder = make()
    for kind in _PURPOSES:
        assert not embedder.embed(_BLANK, kind=kind).any(), "blank text has a direction"
        mixed = embedder.embed([_BLANK[0], TEXTS[0], _BLANK[1]], kind=kind)
        assert not mixed[0].any(), "blank text before another has a direction"
        assert not mixed[2].any(), "blank text after another has a direction"


def same_text_has_same_row(make: Maker) -> None:
    """A text has the same row every time, in any batch and in any order."""
    embedder = make()
    for kind in _PURPOSES:
        together = embedder.embed(TEXTS, kind=kind)
        _same(together, embedder.embed(TEXTS, kind=kind), TEXTS, "again")
        _same(together, embedder.embed(TEXTS[::-1], kind=kind)[::-1], TEXTS, "in another order")
        alone = np.concatenate([embedder.embed([text], kind=kind) for text in TEXTS])
        _same(together, alone, TEXTS, "alone")
        twice = embedder.embed([TEXTS[0], TEXTS[0]], kind=kind)
        _same(twice[:1], twice[1:], TEXTS[:1], "next to itself")


def surrounding_whitespace_is_ignored(make: Maker) -> None:
    """Whitespace before and after a text does not change its row, because caches compare texts without it."""
    embedder = make()
    for kind in _PURPOSES:
        bare, padded = (embedder.embed([text], kind=kind) for text in (TEXTS[0], f"  \n{TEXTS[0]} \t\n"))
        _same(bare, padded, TEXTS[:1], "with blanks around it")


def batches_keep_their_order(make: Maker) -> None:
    """Rows are in the order of their texts, however many there are."""
    embedder = make()
    texts = [f"{TEXTS[number % 7]} {'again ' * (number % 5)}" for number in range(150)]
    rows = embedder.embed(texts, kind="passage")
    places = (0, 1, 63, 64, 65, 127, 149)
    alone = embedder.embed([texts[place] for place in places], kind="passage")
    _same(rows[list(places)], alone, [texts[place] for place in places], "among many")


def space_identifies_the_model(make: Maker) -> None:
    """The space has a name, a dimension and a digest. Creating the embedder again gives the same space and vectors."""
    first = make()
    second = make()
    space = first.space
    assert space.name, "the space has no name"
    assert space.digest, "the space has no digest"
    assert space.dimension > 0, "the space has no dimension"
    assert first.space == second.space, f"{first.space} is not the same space as {second.space}"
    for kind in _PURPOSES:
        _same(
            first.embed(TEXTS[:5], kind=kind), second.embed(TEXTS[:5], kind=kind), TEXTS[:5], "from a second embedder"
        )
    assert first.space == space, "the space has changed during use"


def threads_can_share_an_embedder(make: Maker) -> None:
    """Threads can use an embedder at the same time; each gets the rows of its own texts."""
    embedder = make()
    parts = [TEXTS[start : start + 3] for start in range(0, 9, 3)] * 4
    expected = [embedder.embed(part, kind="passage") for part in parts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: embedder.embed(part, kind="passage"), parts))
    for rows, wanted, part in zip(found, expected, parts, strict=True):
        _same(rows, wanted, part, "in a thread")


def _same(first: Floats, second: Floats, texts: Sequence[str], how: str) -> None:
    for text, one, other in zip(texts, first, second, strict=True):
        difference = float(np.abs(one - other).max(initial=0))
        assert difference < _EQUAL, f"{text[:40]!r} has another row {how}: the difference is {difference:.2g}"


CHECKS: Final[tuple[Check, ...]] = collect_checks(globals())
"""Every check of an embedder."""


def check_embedder(make: Maker) -> None:
    """Run every check on an embedder; the first that fails raises AssertionError."""
    for check in CHECKS:
        run_check(check, make)
