"""Markdown that arrives in pieces, from someone who may mean no good."""

from __future__ import annotations

import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from holdfast_agent.screen import MarkdownBlocks, SafeMarkdown

TEXT = "# Title\n\nSome words\nand more.\n\n```python\na = 1\n\nb = 2\n```\nAfter.\n\n- one\n- two"


def drawn(prose: SafeMarkdown, *, width: int = 60) -> str:
    """What a terminal of this width shows."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(prose)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def blocks(pieces: list[str]) -> list[str]:
    """The blocks of a text that arrives so."""
    growing = MarkdownBlocks()
    found = [block for piece in pieces for block in growing.feed(piece)]
    return [*found, *filter(None, [growing.end()])]


class TestBlocks:
    def test_code_stays_together(self) -> None:
        """A blank line ends a block, but not within code; the end of code does."""
        code = "```python\na = 1\n\nb = 2\n```"
        assert blocks([TEXT]) == ["# Title", "Some words\nand more.", code, "After.", "- one\n- two"]

    @given(st.lists(st.integers(0, len(TEXT)), max_size=12))
    def test_it_does_not_matter_how_it_arrives(self, cuts: list[int]) -> None:
        """However a text is cut into pieces, its blocks are the same."""
        ends = sorted({0, *cuts, len(TEXT)})
        assert blocks([TEXT[a:b] for a, b in pairwise(ends)]) == blocks([TEXT])

    def test_a_longer_fence_holds_a_shorter_one(self) -> None:
        """Code about code ends with the fence that it began with."""
        text = "````md\n```\nx\n```\n\ny\n````"
        assert blocks([text]) == [text]

    def test_the_end_of_a_long_block_is_shown_as_code(self) -> None:
        """What is shown of code that continues begins with its fence, and is never long."""
        growing = MarkdownBlocks()
        list(growing.feed("```\n" + "a line of code\n" * 2_000))
        assert growing.tail.startswith("```\na line")
        assert len(growing.tail) < 4_100


class TestProse:
    def test_nothing_in_it_is_a_control_code(self) -> None:
        """Neither what is written nor what entities stand for."""
        shown = drawn(SafeMarkdown("a\x1b[2J &#x202e;b &#27;c\x9b1m `d\x07`"))
        assert not set(shown) & set("\x1b\x07\x9b\u202e")
        assert "a�[2J" in shown

    def test_nothing_is_hidden(self) -> None:
        """HTML is shown, and a link says where it leads."""
        assert drawn(SafeMarkdown("List<String> <b>x</b>")).strip() == "List<String> <b>x</b>"
        assert "https://b.example" in drawn(SafeMarkdown("[https://a.example](https://b.example)"))

    def test_it_begins_and_ends_with_words(self) -> None:
        """No blank lines around it, headings at the left, and only its last lines where that is asked for."""
        assert drawn(SafeMarkdown("# Title")).rstrip() == "Title"
        assert drawn(SafeMarkdown("```\na\nb\nc\n```", last=2)).split() == ["b", "c"]
        assert drawn(SafeMarkdown("  \n")) == ""

    def test_wide_characters_are_broken_where_they_must(self) -> None:
        """No line is wider than the terminal."""
        assert all(
            len(line.rstrip()) <= 5 for line in drawn(SafeMarkdown("一二三四五六七八九十"), width=10).splitlines()
        )
