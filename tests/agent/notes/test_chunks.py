"""Notes as chunks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_agent.note_files import CHARS_PER_TOKEN, number_lines, split_chunks
from support.strategies import examples


def test_a_short_note_is_one_chunk() -> None:
    """It has all lines and their numbers from 1."""
    (chunk,) = split_chunks(number_lines("# Title\n\n- one\n- 二\n"), tokens=400, overlap=80)
    assert (chunk.start, chunk.end, chunk.text) == (1, 4, "# Title\n\n- one\n- 二")


def test_chunks_overlap_by_whole_lines() -> None:
    """Each chunk after the first begins with the last lines of the one before."""
    lines = [f"line {number:02d} {'x' * 31}" for number in range(1, 31)]
    found = split_chunks(number_lines("\n".join(lines)), tokens=50, overlap=10)
    assert [(chunk.start, chunk.end) for chunk in found][:3] == [(1, 5), (5, 9), (9, 13)]
    for chunk in found:
        assert chunk.text == "\n".join(lines[chunk.start - 1 : chunk.end])
        assert len(chunk.text) <= 50 * CHARS_PER_TOKEN


def test_a_character_of_chinese_weighs_as_a_token() -> None:
    """A chunk holds so many Chinese characters as tokens, not four times as many."""
    found = split_chunks(number_lines("\n".join(["汉字" * 5] * 40)), tokens=40, overlap=0)
    assert all(len(chunk.text.replace("\n", "")) <= 40 for chunk in found)


def test_a_very_long_line_falls_into_pieces() -> None:
    """The pieces have the number of their line and together all of its text."""
    text = "é" * 1_000 + "👩‍👩‍👧" * 50
    found = split_chunks([(7, text)], tokens=25, overlap=5)
    assert {(chunk.start, chunk.end) for chunk in found} == {(7, 7)}
    assert "".join(chunk.text.replace("\n", "") for chunk in found).startswith("é" * 100)
    assert all(len(chunk.text) <= 25 * CHARS_PER_TOKEN for chunk in found)
    assert split_chunks([(1, "x" * 500)], tokens=25, overlap=0)[-1].text.endswith("x")


def test_blank_notes_have_no_chunks() -> None:
    """Nothing to find, nothing to keep."""
    assert split_chunks(number_lines("\n \n\t\n"), tokens=400, overlap=80) == []
    assert split_chunks([], tokens=400, overlap=80) == []


@settings(max_examples=examples(50))
@given(
    st.lists(st.text(alphabet="ab 汉字é\u0301", max_size=60), max_size=30),
    st.integers(2, 20),
    st.integers(0, 19),
)
def test_every_line_is_in_a_chunk(lines: list[str], tokens: int, overlap: int) -> None:
    """No line that says anything is left out, numbers rise, and a chunk is hardly larger than it may be."""
    found = split_chunks(list(enumerate(lines, start=1)), tokens=tokens, overlap=min(overlap, tokens - 1))
    covered = {number for chunk in found for number in range(chunk.start, chunk.end + 1)}
    assert covered >= {number for number, line in enumerate(lines, start=1) if line.strip()}
    starts = [chunk.start for chunk in found]
    assert starts == sorted(starts)
    assert all(len(chunk.text) <= 2 * tokens * CHARS_PER_TOKEN for chunk in found)
