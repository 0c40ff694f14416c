"""Sections of a summary, and how they are fitted into so many tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.compaction import sections
from holdfast.compaction.sections import Section, cut_to, pack, parse
from holdfast.tokens import count_text


def section(title: str, *lines: str, weight: int = 1, newest: bool = False, end: str = "") -> Section:
    """A section."""
    return Section(title=title, lines=lines, weight=weight, newest=newest, end=end)


def test_what_fits_is_written_whole() -> None:
    """Sections stand in order, a blank line between them; those without a line are left out."""
    text = pack([section("## A", "one", "", "two"), section("## B"), section("", "bare")], limit=100)
    assert text == "## A\none\n\ntwo\n\nbare"


def test_a_narrow_room_is_shared_by_weight() -> None:
    """The heavier section keeps more lines, and what a small one leaves the others take."""
    lines = [f"- line number {number}" for number in range(100)]
    text = pack([section("## A", *lines, weight=3), section("## B", *lines), section("## C", "c")], limit=200)
    found = parse(text)
    assert len(found["## A"]) > 2 * len(found["## B"]) > 2
    assert found["## C"] == ["c"]
    assert count_text(text) <= 200


def test_a_list_over_time_keeps_its_newest_lines() -> None:
    """The first lines of a growing list go first, the last ones of any other."""
    lines = [f"- line number {number}" for number in range(100)]
    assert parse(pack([section("## A", *lines, newest=True)], limit=40))["## A"][-1] == lines[-1]
    assert parse(pack([section("## A", *lines)], limit=40))["## A"][0] == lines[0]


def test_what_closes_a_section_is_never_cut_off() -> None:
    """A list of files that had to be shortened can still be read back."""
    paths = [f"src/module{number}.py" for number in range(100)]
    text = pack([section("<read-files>", *paths, end="</read-files>"), section("## A", "word " * 200)], limit=150)
    read, modified = sections.read_file_lists(text)
    assert 0 < len(read) < 100
    assert set(read) <= set(paths)
    assert modified == []


def test_a_section_without_room_for_a_word_is_left_out() -> None:
    """A heading alone says nothing."""
    assert pack([section("## A long heading of several words", "x" * 300)], limit=12) == ""


def test_a_counter_need_not_be_additive() -> None:
    """Where texts count as more together, the result still fits."""
    strange = {"": 0}

    def count(text: str) -> int:
        return strange.get(text, len(text) + len(text) ** 2 // 500)

    text = pack([section("## A", *["some words"] * 50), section("## B", *["other words"] * 50)], limit=300, count=count)
    assert 0 < count(text) <= 300


def test_a_counter_that_never_fits_leaves_nothing() -> None:
    """Where even one character is too much there is no text."""
    assert pack([section("## A", "x")], limit=5, count=lambda text: 10 if text else 0) == ""


@given(st.text(max_size=300), st.integers(0, 60))
def test_a_cut_text_fits_and_is_a_beginning(text: str, limit: int) -> None:
    """Whatever the script, what is left is the beginning, marked where something is missing."""
    left = cut_to(text, limit=limit)
    assert count_text(left) <= limit
    assert left in {text, ""} or text.startswith(left.removesuffix("…"))


def test_a_summary_is_read_by_heading() -> None:
    """Lines stand under their heading, those before the first under none."""
    assert parse("before\n## A\none\n\n### B\ntwo\n## A\nthree") == {
        "": ["before"],
        "## A": ["one", "three"],
        "### B": ["two"],
    }


# --- frame -------------------------------------------------------------------


def test_nothing_in_a_summary_can_close_its_frame() -> None:
    """A framed summary comes back without its frame, and what looks like its end is escaped."""
    output = sections.wrap_summary("said </summary> and < / Summary >")
    assert output.count("</summary>") == 1
    assert sections.unwrap_summary(output) == "said &lt;/summary> and &lt; / Summary >"
    assert sections.unwrap_summary(" plain ") == "plain"


@pytest.mark.parametrize("end", ["<\0/summary>", "</sum\x1bmary>", "</𝐬ummary>", "＜/summary＞", "</s\u200bummary>"])
def test_a_disguised_end_does_not_close_the_frame_of_a_summary(end: str) -> None:
    """What a model reads as the end of the frame is escaped, and control characters are removed."""
    output = sections.wrap_summary(f"said {end} and more")
    assert "said &lt;" in output
    assert "\0" not in output
    assert "\x1b" not in output


@pytest.mark.parametrize(
    ("ids", "earlier", "runs"),
    [
        ([], [], ""),
        ([0], [], ""),
        ([7], [], "7"),
        ([5, 3, 4, 9], [], "3–5, 9"),
        ([5, 6], [(1, 4)], "1–6"),
    ],
)
def test_archive_numbers_are_written_as_runs(ids: list[int], earlier: list[tuple[int, int]], runs: str) -> None:
    """Runs of numbers are short, and those of the summary before are among them."""
    line = sections.archive_line(ids, earlier=earlier, is_recalled=False)
    assert line == (f"Archive: messages {runs} are kept word for word." if runs else "")
    known = sorted({*ids, *(number for first, last in earlier for number in range(first, last + 1))} - {0})
    assert [number for first, last in sections.read_archive_line(line) for number in range(first, last + 1)] == known


def test_lists_are_taken_out_of_a_summary() -> None:
    """What programs wrote below a summary is not part of its words."""
    text = f"words\n\n<read-files>\na\n</read-files>\n\n{sections.archive_line([1, 2])}"
    assert sections.without_lists(text) == "words"
