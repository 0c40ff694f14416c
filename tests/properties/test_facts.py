"""Facts in any conversation: reading again adds nothing; facts are proved, in scope, and replaced only by rivals."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.memory import facts
from holdfast.memory.block import Detail, render
from holdfast.memory.block import Fact as Line
from holdfast.memory.extract import is_quoted, parse_objects, plain, read_explicit
from holdfast.memory.facts import same_subject
from holdfast.store.base import FactRow
from support.conversations import MARKS
from support.fact_scripts import NOW, SCOPE, Script, facts_json, learn, make_row, rows
from support.strategies import examples

_THINGS = st.sampled_from(["the API", "the staging API", "the worker", "Kafka"])
_PORTS = st.sampled_from(["8080", "9090", "9192"])
_SAID = st.one_of(
    st.builds("We moved {} to port {}.".format, _THINGS, _PORTS),
    st.builds("We moved {} from port {} to port {}.".format, _THINGS, _PORTS, _PORTS),
    st.builds("{}={}".format, st.sampled_from(["MAX_JOBS", "API_PORT"]), _PORTS),
    st.builds("- [{}] write the {}".format, st.sampled_from([" ", "x"]), st.sampled_from(["docs", "migration"])),
    st.builds("我们把{}的端口改为 {}。".format, st.sampled_from(["网关", "支付服务"]), _PORTS),
    st.sampled_from(["We decided to keep SQLite.", "Remember that the customer pays late.", "我们决定用 Redis 缓存。"]),
)
_NOISE = st.text(max_size=60)
_TALK = st.lists(st.one_of(_SAID, _NOISE, st.tuples(_SAID, _NOISE).map("\n".join)), max_size=12)


def told(texts: list[str], *, timed: bool = True) -> list[FactRow]:
    """Return every row that a conversation produces, message by message."""
    known: list[FactRow] = []
    for number, text in enumerate(texts, 1):
        known += learn([make_row(number, text, timed=timed)], known=known).rows_to_add
    return known


@given(_TALK, st.booleans())
@settings(max_examples=examples(60))
def test_reading_the_same_messages_again_adds_nothing(texts: list[str], timed: bool) -> None:  # noqa: FBT001
    """After any way of reading a conversation, all at once or message by message, reading it again changes nothing."""
    conversation = [make_row(number, text, timed=timed) for number, text in enumerate(texts, 1)]
    known = list(learn(conversation).rows_to_add)
    assert learn(conversation, known=known).rows_to_add == ()
    again = told(texts, timed=timed)
    assert learn(conversation, known=again).rows_to_add == ()


@given(_TALK)
@settings(max_examples=examples(60))
def test_only_the_same_subject_and_slot_supersedes(texts: list[str]) -> None:
    """A fact is only succeeded by one about the same property of the same thing that is not older."""
    known = told(texts)
    latest = {row.id: row for row in known}
    for row in known:
        if row.superseded_by is not None:
            successor = latest[row.superseded_by]
            assert same_subject(row.subject, successor.subject)
            assert row.slot == successor.slot
            assert max(row.evidence) < max(version.evidence[-1] for version in known if version.id == successor.id)


@given(_TALK)
@settings(max_examples=examples(40))
def test_every_fact_has_evidence(texts: list[str]) -> None:
    """The quote of a fact is in the message that it names, and the fact is in the scope that it was read for."""
    for row in told(texts):
        assert row.scope == SCOPE
        assert any(plain(row.quote) in plain(texts[number - 1]) for number in row.evidence)
        assert row.time > NOW


@given(st.lists(_SAID, min_size=1, max_size=5))
@settings(max_examples=examples(40))
def test_what_was_recalled_is_never_learned(texts: list[str]) -> None:
    """I7: facts and passages in a recalled block state nothing, wherever the block is."""
    block = render(
        [Line(type="config", text=text) for text in texts],
        [Detail(role="user", time=NOW, text=text) for text in texts],
        MARKS,
    )
    assert read_explicit(rows(block, f"hello\n\n{block}\n\nbye"), MARKS) == []
    model = Script('{"facts": []}')
    learn(rows(f"Look at this please.\n\n{block}"), model=model, marks=MARKS)
    assert model.asked[0].messages[1].text == "[1 user] Look at this please."


@given(st.text(max_size=80), st.text(max_size=200))
@settings(max_examples=examples(60))
def test_a_made_up_quote_never_passes(quote: str, message: str) -> None:
    """A fact of a model is kept only if its quote is in the text, for any quote and text."""
    fact = {"content": "Something.", "quote": quote}
    found = learn(rows(f"Something. {message}"), model=Script(facts_json(fact)))
    if found.rows_to_add:
        assert is_quoted(quote, plain(f"Something. {message}"))


@given(st.text(max_size=300))
@settings(max_examples=examples(60))
def test_any_answer_can_be_read(text: str) -> None:
    """An answer of any shape is facts or nothing, never an error."""
    found = parse_objects(text, name="facts", key="content")
    assert found is None or all("content" in each for each in found)
    assert parse_objects('{"facts": []}' + text.replace("{", ""), name="facts", key="content") == []


def test_as_of_any_moment_there_is_one_value() -> None:
    """The facts as of any moment have the value of that time, however often it changed."""
    texts = [f"We moved the API to port {8000 + number % 3}." for number in range(9)]
    known = told(texts)
    for number, text in enumerate(texts, 1):
        held = facts.as_of(known, time=make_row(number, text).message.timestamp or 0)
        assert [row.content for row in held] == [text]
