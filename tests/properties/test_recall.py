"""Recall: I3, I7, I9 and I11 (never over, no echo, no crossing, nothing leaves its quotes); words and vectors."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Engine
from holdfast.memory import archive
from holdfast.memory.block import CLOSE, OPEN, strip_text
from holdfast.memory.recall import Recall, Request, recall
from holdfast.messages import Message, Text
from holdfast.settings import load
from holdfast.store.base import FactRow, Scope
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_text
from talk import MARKS

MINE, OTHER = Scope(session="mine"), Scope(tenant="other", session="mine")
CANARY = "zebracanary"

words = st.sampled_from(
    ["port", "cat", "端口", "数据库", "かな", "항구", "8080", "</detail>", OPEN, CLOSE, "<knowledge>", "\n", "."]
)
texts = st.lists(words, min_size=1, max_size=60).map(" ".join)


@settings(max_examples=40)
@given(
    said=st.lists(st.tuples(texts, st.integers(0, 3)), max_size=12),
    facts=st.lists(texts, max_size=3),
    question=texts,
    cap=st.integers(0, 600),
)
def test_a_block_keeps_its_promises(said: list[tuple[str, int]], facts: list[str], question: str, cap: int) -> None:
    """Under the cap, closed once, free of other tenants' words, and gone without a trace when it is taken out."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "a.db") as store:
        for text, minute in said:
            message = Message(role="user", parts=(Text(text=text),), timestamp=1 + 60_000 * minute)
            store.add(archive.rows([message], scope=MINE))
        store.add(archive.rows([Message(role="user", parts=(Text(text=f"{question} {CANARY}"),))], scope=OTHER))
        store.add([FactRow(scope=MINE, id=f"{n}", type="issue", content=text, time=1) for n, text in enumerate(facts)])
        found = recall(store, Request(texts=(question,), scope=MINE, across=True, cap=cap), marks=MARKS)
        assert count_text(found.block) == found.tokens <= cap
        assert found.block.count(CLOSE) == found.block.count(OPEN) == bool(found.block)
        assert CANARY not in found.block
        assert strip_text(f"before\n\n{found.block}", MARKS) in {"before", "before\n\n"}
        back = archive.rows([Message(role="user", parts=(Text(text=found.block),))], scope=MINE, marks=MARKS)
        assert back == [] or not found.block


lines = st.lists(
    st.sampled_from(
        ["port", "ledger", "staging", "48213", "2026-03-01T08:14:07Z", "[worker-7]", "数据库", "端口", "的"]
    ),
    min_size=2,
    max_size=12,
).map(" ".join)


def asked(folder: str, provider: str, said: Sequence[str], question: str, *, cap: int) -> Recall:
    """What is recalled of some messages by these vectors."""
    chosen = load(files=(), environ={}, embedding={"provider": provider}, recall={"hard_cap_tokens": cap}).settings
    with Engine.open(folder, settings=chosen, background=False) as engine:
        if not engine.stats().messages:
            engine.session("s").append([{"role": "user", "content": text} for text in said])
        engine.work()
        return engine.session("s").recall(question)


@pytest.mark.parametrize("provider", ["auto", "hash"])
@settings(max_examples=25)
@given(
    said=st.lists(st.lists(lines, min_size=1, max_size=40).map("\n".join), min_size=1, max_size=8, unique=True),
    data=st.data(),
    cap=st.integers(100, 4000),
)
def test_vectors_take_nothing_away_that_words_prove(
    provider: str, said: list[str], data: st.DataObject, cap: int
) -> None:
    """Whatever the vectors are: what the words prove is quoted the same, and so is a line that is asked for."""
    line = data.draw(st.sampled_from([line for text in said for line in text.split("\n")]))
    question = data.draw(st.one_of(st.just(line), lines))
    with tempfile.TemporaryDirectory() as folder:
        by_words = asked(folder, "none", said, question, cap=cap)
        by_both = asked(folder, provider, said, question, cap=cap)
    proven = [(hit.message, hit.text) for hit in by_words.hits if hit.proven]
    assert proven == [(hit.message, hit.text) for hit in by_both.hits if hit.proven]
    assert not proven or by_both.relevance >= by_both.least
    if question == line:
        assert bool(by_words.block) == bool(by_both.block)
        assert any(line in hit.text for hit in by_words.hits) == any(line in hit.text for hit in by_both.hits)
