"""What holds for every text."""

from __future__ import annotations

import re
import unicodedata

import regex
from hypothesis import given
from hypothesis import strategies as st

from holdfast.text import clip, head, tail, term_spans, terms
from support.strategies import texts

TRICKY = "aB1_.-/ \n\r`~签か가ｶﾞ\u3099é\u0301\u200d👩🇩🇪\u0600ำ\ud800"
tricky = st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=()), max_size=60)
fenced = st.lists(
    st.sampled_from(["```\n", "```py\n", "````\n", "~~~\n", "words\n", "x", "\n", "`", "签"]), max_size=40
).map("".join)
limits = st.integers(-2, 70)


def boundaries(text: str) -> set[int]:
    """Return the places between what is read as one character each."""
    return {0, *(match.end() for match in regex.finditer(r"\X", text))}


class TestTerms:
    """Terms and their places."""

    @given(text=tricky | texts())
    def test_spans_and_terms_agree(self, text: str) -> None:
        """They have the same terms in the same order, each inside the text."""
        spans = list(term_spans(text))

        assert [term for _, _, found in spans for term in found] == terms(text)
        assert all(0 <= start < end <= len(text) for start, end, _ in spans)

    @given(text=st.text("abcxyz ,", max_size=30))
    def test_case_and_width_do_not_count(self, text: str) -> None:
        """Capital and full-width letters have the same terms."""
        wide = "".join(chr(ord(letter) + 0xFEE0) if letter.isalpha() else letter for letter in text)

        assert terms(text) == terms(text.upper()) == terms(wide) == terms(wide.upper())

    @given(text=st.text(st.characters(min_codepoint=0x3041, max_codepoint=0x9FFF), max_size=20))
    def test_every_letter_of_cjk_is_found(self, text: str) -> None:
        """It is found in any surroundings."""
        found = set(terms(text))

        for letter in regex.findall(r"\X", text):
            if letter.isalpha():
                assert terms(letter)
                assert set(terms(letter)) <= found

    @given(words=st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), min_size=2, max_size=5))
    def test_an_identifier_is_found_whole_and_in_parts(self, words: list[str]) -> None:
        """It is found in snake case, in camel case, as a path and with dots."""
        parts = {term for word in words for term in terms(word)}
        for name in ("_".join(words), "/".join(words), ".".join(words), words[0] + "".join(map(str.title, words[1:]))):
            assert parts | {name.lower()} == set(terms(name))

    @given(left=texts(), right=texts())
    def test_a_blank_line_parts_terms(self, left: str, right: str) -> None:
        """The terms of two paragraphs are the terms of each."""
        assert terms(f"{left}\n\n{right}") == terms(left) + terms(right)

    @given(text=tricky)
    def test_terms_do_not_depend_on_composition(self, text: str) -> None:
        """CJK text has the same terms in composed and decomposed form."""
        kana = re.sub(r"[^\u3041-\u30fa가-힣]", "", text)

        assert terms(kana) == terms(unicodedata.normalize("NFD", kana))


class TestCuts:
    """Heads, tails and clips."""

    @given(text=tricky, limit=limits)
    def test_a_cut_is_never_inside_of_a_character(self, text: str, limit: int) -> None:
        """It is at most as long as requested, and as long as possible within that."""
        places = boundaries(text)
        first, last = head(text, limit), tail(text, limit)

        assert text.startswith(first)
        assert text.endswith(last)
        assert len(first) == max(place for place in places if place <= max(0, limit))
        assert len(text) - len(last) == min(place for place in places if place >= len(text) - max(0, limit))

    @given(text=tricky | fenced, start=limits, end=limits)
    def test_a_clip_keeps_whole_characters_of_both_ends(self, text: str, start: int, end: int) -> None:
        """The result is a head and a tail of the text, or all of it, and never longer."""
        clipped = clip(text, head=start, tail=end, marker="⟪⟫")

        assert len(clipped) <= len(text)
        if clipped == text:
            return
        first, last = clipped.split("⟪⟫")
        kept_first, kept_last = re.sub(r"\n[`~]{3,}$", "", first), re.sub(r"^[`~]{3,}\n", "", last)
        assert any(text.startswith(kept) and len(kept) in boundaries(text) for kept in (first, kept_first))
        assert any(text.endswith(kept) and len(text) - len(kept) in boundaries(text) for kept in (last, kept_last))

    @given(text=fenced, start=limits, end=limits)
    def test_a_clip_leaves_code_code_and_words_words(self, text: str, start: int, end: int) -> None:
        """No fence is open at the marker, and the same one as before is open at the end."""
        clipped = clip(text, head=start, tail=end, marker="\n⟪⟫\n")

        before, marker, after = clipped.partition("\n⟪⟫\n")
        if marker:
            assert open_fence(before) == ""
        if not marker or after:
            assert open_fence(clipped)[:1] == open_fence(text)[:1]


def open_fence(text: str) -> str:
    """Return the fence that is open at the end of a Markdown text."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)$", line)
        if found is None or (found[1][0] == "`" and "`" in found[2]):
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return fence
