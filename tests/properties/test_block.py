"""The recalled block, whatever is quoted in it: it stays closed, and it comes out without a trace."""

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.block import CLOSE, OPEN, Detail, Fact, render, strip_message, strip_text
from holdfast.messages import Message, Text
from strategies import texts

TAGS = ("</recalled-context>", "<recalled-context>", OPEN, "</detail>", "<knowledge>", "< / DETAIL >", "&lt;/detail>")
nasty = st.lists(st.one_of(st.sampled_from(TAGS), texts()), max_size=5).map("".join)
facts = st.lists(st.builds(Fact, type=st.sampled_from(["decision", "issue"]), text=nasty), max_size=3)
details = st.lists(st.builds(Detail, role=nasty, time=st.integers(-1, 2**62), text=nasty), max_size=3)
plain = texts().filter(lambda text: "recalled-context" not in text.lower())


@given(known=facts, said=details)
def test_a_block_opens_and_closes_once(known: list[Fact], said: list[Detail]) -> None:
    """Stored text can neither close the block nor open another, nor any part of it."""
    block = render(known, said)
    assert bool(block) == bool(known or said)
    tags = re.findall(r"<\s*/?\s*(?:recalled-context|knowledge|detail)\b", block, re.IGNORECASE)
    expected = [
        ["<recalled-context"],
        *[["<knowledge", "</knowledge"]] * bool(known),
        *[["<detail", "</detail"]] * bool(said),
    ]
    assert tags == ([tag for group in [*expected, ["</recalled-context"]] for tag in group] if block else [])


@given(known=facts, said=details, before=plain, after=plain)
def test_a_block_comes_out_without_a_trace(known: list[Fact], said: list[Detail], before: str, after: str) -> None:
    """Text with a block before or after it is the same text once the block is out; taking it out again does nothing."""
    block = render(known, said) or f"{OPEN}{CLOSE}"
    for mixed, words in ((f"{block}\n\n{after}", after), (f"{before}\n\n{block}", before)):
        assert strip_text(mixed) in {words, words.removeprefix("\n"), words.removeprefix("\n\n")}
        assert strip_text(strip_text(mixed)) == strip_text(mixed)
    inside = strip_text(f"{before}x\n\n{block}\n\nx{after}")
    assert inside == f"{before}x\n\nx{after}"


@given(text=st.text(max_size=200))
def test_other_text_is_left_alone(text: str) -> None:
    """A text without a block is handed back as it is, and so is its message."""
    message = Message(role="user", parts=(Text(text=text),))
    if "<recalled-context" not in text.lower():
        assert strip_text(text) is text
        assert strip_message(message) is message
