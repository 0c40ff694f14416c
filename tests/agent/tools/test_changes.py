"""What a person sees of a change of a file."""

from __future__ import annotations

from holdfast_agent.tools import MAX_COMPARED_LINES, list_changes


def test_only_lines_that_differ_are_listed() -> None:
    """With the number of the first line, and one line around each place."""
    before = "".join(f"第{number}行\n" for number in range(1, 21))
    after = before.replace("第5行\n", "第五行\n").replace("第15行\n", "").replace("第20行\n", "第20行\nend\n")
    assert list_changes(before, after) == [
        *("@ line 4", "  第4行", "- 第5行", "+ 第五行", "  第6行"),
        *("@ line 14", "  第14行", "- 第15行", "  第16行"),
        *("@ line 20", "  第20行", "+ end"),
    ]


def test_a_passage_begins_at_its_line() -> None:
    """The numbers are those of the file."""
    assert list_changes("a\nb", "a\nc", first_line=7) == ["@ line 7", "  a", "- b", "+ c"]


def test_a_new_file_is_listed_whole() -> None:
    """So are texts that are too long to compare, and a change of line breaks is named."""
    assert list_changes("", "a\nb\n") == ["+ a", "+ b"]
    long = "a\n" * MAX_COMPARED_LINES
    assert list_changes(long, "b")[:2] == ["@ line 1", "- a"]
    assert list_changes("a\n", "a\r\n") == ["(only line breaks change)"]
