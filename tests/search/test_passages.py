"""Texts cut into passages and windows: from end to end, in order, at sentences where there are any."""

from itertools import pairwise

import pytest

from holdfast.search.passages import LINES, LONGEST_WINDOW, PASSAGE, WHOLE, passages, windows
from support import line_archives
from support.cases import each
from support.line_archives import ENGLISH

PROSE = " ".join(f"This is sentence number {n}, and it says a thing or two." for n in range(300))
CHINESE = "".join(f"这是第{n}句话，它说了一些事情。" for n in range(300))


def test_a_short_text_is_one_window() -> None:
    """What is short stays whole; nothing is nothing."""
    assert windows("short") == [(0, 5)]
    assert windows("x" * WHOLE) == [(0, WHOLE)]
    assert windows("") == []
    assert passages("") == []


@each("text", [PROSE, CHINESE, "word " * 3000, "字" * 3000, "x" * 5000, "line\n" * 2000, "a. " * 2000, "🦀" * 2000])
def test_windows_cover_the_text(text: str) -> None:
    """Windows follow each other without gap or overlap, and none is too long."""
    cut = windows(text)
    assert cut[0][0] == 0
    assert cut[-1][1] == len(text)
    assert all(before[1] == after[0] for before, after in pairwise(cut))
    assert all(0 < stop - start <= LONGEST_WINDOW for start, stop in cut)


@pytest.mark.parametrize(("text", "ends"), [(PROSE, "."), (CHINESE, "。")])
def test_windows_end_with_sentences(text: str, ends: str) -> None:
    """Where there are sentences, a window ends with one."""
    assert all(text[start:stop].rstrip().endswith(ends) for start, stop in windows(text))


@pytest.mark.parametrize("kind", line_archives.KINDS)
def test_logs_tables_and_code_are_cut_into_lines(kind: str) -> None:
    """A window of them is a few whole lines; prose keeps its longer windows."""
    text = line_archives.outputs(kind, ENGLISH[:1], count=1)[0]
    cut = windows(text)
    assert all(text[stop - 1] == "\n" for _, stop in cut[:-1])
    assert len(text) / len(cut) < LINES < len(PROSE) / len(windows(PROSE))


def test_long_words_are_cut_between_characters() -> None:
    """What is read as one character is never cut in two."""
    family = "👨‍👩‍👧‍👦"
    assert all((stop - start) % len(family) == 0 for start, stop in windows(family * 400))


def test_passages_are_made_of_whole_windows() -> None:
    """Passages cover the text, hold the windows of the text in order, and are not too long."""
    cut = passages(PROSE)
    assert len(cut) > 3
    assert [window for passage in cut for window in passage.windows] == windows(PROSE)
    for passage in cut:
        assert (passage.start, passage.stop) == (passage.windows[0][0], passage.windows[-1][1])
        assert passage.stop - passage.start <= PASSAGE


@pytest.mark.parametrize("text", [". " * 40_000, '."' * 40_000, "\n" * 80_000, "。" * 80_000, '.")]' * 20_000])
def test_hostile_text_is_cut_in_time(text: str) -> None:
    """Text made to be slow is cut like any other."""
    assert windows(text)[-1][1] == len(text)
