"""Facts under any conversation: idempotent, proved, within scope, and never lost to a stranger."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.updates_corpus import look_alikes, updates
from fact_talk import NOW, SCOPE, Script, facts_json, learn, rows, said
from holdfast.memory import answers, facts
from holdfast.memory.block import Detail, render
from holdfast.memory.block import Fact as Line
from holdfast.memory.claims import same_subject
from holdfast.memory.quotes import is_quoted, plain
from holdfast.memory.rules import drafts
from holdfast.store.base import FactRow
from talk import MARKS

_SAID = st.sampled_from(sorted({text for pair in (*updates(), *look_alikes()) for text in (pair.before, pair.after)}))
_NOISE = st.text(max_size=60)
_TALK = st.lists(st.one_of(_SAID, _NOISE, st.tuples(_SAID, _NOISE).map(" ".join)), max_size=12)


def told(texts: list[str], *, timed: bool = True) -> list[FactRow]:
    """Every row that a conversation leaves behind, message by message."""
    known: list[FactRow] = []
    for number, text in enumerate(texts, 1):
        known += learn([said(number, text, timed=timed)], known=known).rows_to_add
    return known


@given(_TALK, st.booleans())
@settings(max_examples=60)
def test_reading_the_same_messages_again_adds_nothing(texts: list[str], timed: bool) -> None:  # noqa: FBT001
    """However a conversation was read before, all at once or message by message, reading it again changes nothing."""
    talk = [said(number, text, timed=timed) for number, text in enumerate(texts, 1)]
    known = list(learn(talk).rows_to_add)
    assert learn(talk, known=known).rows_to_add == ()
    again = told(texts, timed=timed)
    assert learn(talk, known=again).rows_to_add == ()


@given(_TALK)
@settings(max_examples=60)
def test_only_the_same_subject_and_slot_supersedes(texts: list[str]) -> None:
    """Whatever is said, a fact is succeeded by a fact about the same property of the same thing, and is not older."""
    known = told(texts)
    latest = {row.id: row for row in known}
    for row in known:
        if row.superseded_by is not None:
            successor = latest[row.superseded_by]
            assert same_subject(row.subject, successor.subject)
            assert row.slot == successor.slot
            assert max(row.evidence) < max(version.evidence[-1] for version in known if version.id == successor.id)


@given(_TALK)
@settings(max_examples=40)
def test_every_fact_has_evidence(texts: list[str]) -> None:
    """The quote of a fact stands in the message that it names, and the fact is in the scope that it was read for."""
    for row in told(texts):
        assert row.scope == SCOPE
        assert any(plain(row.quote) in plain(texts[number - 1]) for number in row.evidence)
        assert row.time > NOW


@given(st.lists(_SAID, min_size=1, max_size=5))
@settings(max_examples=40)
def test_what_was_recalled_is_never_learned(texts: list[str]) -> None:
    """I7: facts and passages in a recalled block state nothing, wherever the block stands."""
    block = render(
        [Line(type="config", text=text) for text in texts],
        [Detail(role="user", time=NOW, text=text) for text in texts],
        MARKS,
    )
    assert drafts(rows(block, f"hello\n\n{block}\n\nbye"), MARKS) == []
    model = Script('{"facts": []}')
    learn(rows(f"Look at this please.\n\n{block}"), model=model, marks=MARKS)
    assert model.asked[0].messages[1].text == "[1 user] Look at this please."


@given(st.text(max_size=80), st.text(max_size=200))
@settings(max_examples=60)
def test_a_made_up_quote_never_passes(quote: str, message: str) -> None:
    """A fact of a model is kept only if its quote is in the text, whatever both are."""
    fact = {"content": "Something.", "quote": quote}
    found = learn(rows(f"Something. {message}"), model=Script(facts_json(fact)))
    if found.rows_to_add:
        assert is_quoted(quote, plain(f"Something. {message}"))


@given(st.text(max_size=300))
@settings(max_examples=60)
def test_any_answer_can_be_read(text: str) -> None:
    """An answer of any shape is facts or nothing, never an error."""
    found = answers.read(text, name="facts", key="content")
    assert found is None or all("content" in each for each in found)
    assert answers.read('{"facts": []}' + text.replace("{", ""), name="facts", key="content") == []


def test_as_of_any_moment_there_is_one_value() -> None:
    """Going back in time gives the value of that time, however often it changed."""
    texts = [f"The API port is {8000 + number % 3}." for number in range(9)]
    known = told(texts)
    for number, text in enumerate(texts, 1):
        held = facts.as_of(known, time=said(number, text).message.timestamp or 0)
        assert [row.content for row in held] == [text]
