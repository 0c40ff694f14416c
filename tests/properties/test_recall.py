"""Recall by words and vectors: I3, I7, I9 and I11 (under the cap, no echo, no other tenant, quotes stay closed)."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.archive_rows import make_rows
from holdfast import Engine
from holdfast.memory.block import CLOSE, OPEN, strip_text
from holdfast.memory.passage_search import Hit
from holdfast.memory.query import RecallQuery
from holdfast.memory.recall import recall
from holdfast.messages import Message, Text
from holdfast.settings import load
from holdfast.store.base import FactRow, Scope, Select
from holdfast.store.sqlite import SqliteStore
from holdfast.tokens import count_text
from support import line_archives
from support.conversations import MARKS
from support.strategies import examples

MINE, OTHER = Scope(session="mine"), Scope(tenant="other", session="mine")
CANARY = "zebracanary"

words = st.sampled_from(
    ["port", "cat", "端口", "数据库", "かな", "항구", "8080", "</detail>", OPEN, CLOSE, "<knowledge>", "\n", "."]
)
texts = st.lists(words, min_size=1, max_size=60).map(" ".join)


@settings(max_examples=examples(40))
@given(
    messages=st.lists(st.tuples(texts, st.integers(0, 3)), max_size=12),
    facts=st.lists(texts, max_size=3),
    question=texts,
    cap=st.integers(0, 600),
)
def test_a_block_keeps_its_promises(messages: list[tuple[str, int]], facts: list[str], question: str, cap: int) -> None:
    """It is under the cap, closed once, free of other tenants' words, and removed without a trace."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "a.db") as store:
        for text, minute in messages:
            message = Message(role="user", parts=(Text(text=text),), timestamp=1 + 60_000 * minute)
            store.add_messages(make_rows([message], scope=MINE))
        store.add_messages(make_rows([Message(role="user", parts=(Text(text=f"{question} {CANARY}"),))], scope=OTHER))
        store.add_facts(
            [FactRow(scope=MINE, id=f"{n}", type="issue", content=text, time=1) for n, text in enumerate(facts)]
        )
        found = recall(store, RecallQuery(texts=(question,), scope=MINE, across=True, cap=cap), marks=MARKS)
        assert count_text(found.block) == found.tokens <= cap
        assert found.block.count(CLOSE) == found.block.count(OPEN) == bool(found.block)
        assert CANARY not in found.block
        assert strip_text(f"before\n\n{found.block}", MARKS) in {"before", "before\n\n"}
        back = make_rows([Message(role="user", parts=(Text(text=found.block),))], scope=MINE, marks=MARKS)
        assert back == [] or not found.block


PHRASES = {
    "chat": (
        *("we moved the ledger to port 48213", "the cat slept all day", "staging is down again"),
        *("Priya will look at it", "lunch at noon?", "the port of Lisbon is lovely", "no, I did not"),
    ),
    "chinese": (
        "账本服务改用端口 48213",
        "今天的猫很可爱",
        "数据库在上海",
        "签名证书由李婉清负责",
        "好的",
        "预发环境又挂了",
    ),
}
questions = st.sampled_from(
    [
        *("which port does the ledger use", "who owns the certificates", "is the staging database down", "ledger"),
        *("how do whales breathe", "48213", "tell me about worker shard cache", "账本服务用哪个端口", "数据库在哪里"),
        *("猫", "签名证书由谁负责", "队列 请求 超时", "Lisbon port and the 数据库", "expired invoice of the tenant"),
    ]
)


@st.composite
def archives(draw: st.DrawFn) -> list[str]:
    """Draw a few messages: chat, logs, code, tables, Chinese, or all of them."""
    messages: list[str] = []
    for kind in draw(st.lists(st.sampled_from([*PHRASES, *line_archives.KINDS]), min_size=1, max_size=6)):
        if kind in PHRASES:
            messages.append(". ".join(draw(st.lists(st.sampled_from(PHRASES[kind]), min_size=1, max_size=30))))
        else:
            seed, size = draw(st.integers(0, 99)), draw(st.sampled_from([100, 900, 5_000]))
            facts = [draw(st.sampled_from([*line_archives.ENGLISH, *line_archives.CHINESE]))]
            messages += line_archives.outputs(kind, facts, count=1, size=size, seed=seed)
    return messages


def ask(provider: str, said: Sequence[str], question: str, *, path: str, fusion: str, cap: int) -> tuple[Hit, ...]:
    """Return the passages recalled from some messages with these vectors, for a window or on request."""
    chosen = load(
        files=(),
        environ={},
        embedding={"provider": provider},
        recall={"hard_cap_tokens": cap, "deadline_ms": 600_000},
        search={"fusion": fusion},
    ).settings
    with tempfile.TemporaryDirectory() as folder, Engine.open(folder, settings=chosen, background=False) as engine:
        engine.session("s").append([{"role": "user", "content": text} for text in said])
        engine.work()
        if path == "recall":
            return engine.session("s").recall(question).hits
        asked = {"role": "user", "content": question}
        return engine.session("s").assemble([asked], limit=200_000).report.recalled


@pytest.mark.parametrize("provider", ["auto", "hash"])
@pytest.mark.parametrize("path", ["recall", "assemble"])
@settings(max_examples=examples(20))
@given(
    messages=archives(),
    data=st.data(),
    fusion=st.sampled_from(["recipe", "recipe", "rrf", "weighted"]),
)
def test_vectors_take_nothing_away(
    provider: str, path: str, messages: list[str], data: st.DataObject, fusion: str
) -> None:
    """What is recalled by words alone is recalled with vectors too: there is a block with the same first passage."""
    own = [line for text in messages for line in text.split("\n")]
    planted = [fact.question for fact in (*line_archives.ENGLISH, *line_archives.CHINESE)]
    question = data.draw(st.one_of(questions, st.sampled_from(planted), st.sampled_from(own)))
    cap = data.draw(st.integers(1_000, 4_000))
    by_words = ask("none", messages, question, path=path, fusion=fusion, cap=cap)
    by_both = ask(provider, messages, question, path=path, fusion=fusion, cap=cap)
    if by_words:
        first = max(by_words, key=lambda hit: (hit.score, -hit.passage))
        assert (first.message, first.text) in [(hit.message, hit.text) for hit in by_both]


@pytest.mark.parametrize("fusion", ["recipe", "rrf", "weighted"])
@pytest.mark.parametrize("path", ["recall", "assemble"])
def test_poor_vectors_do_not_hide_the_only_answer(path: str, fusion: str) -> None:
    """The formula of the original plugin would drop it, because its vector scores less than the minimum."""
    fact = "we moved the ledger to port 48213"
    hits = ask("hash", [fact], "which port does the ledger use", path=path, fusion=fusion, cap=1_000)
    assert [hit.text for hit in hits] == [fact]


THINGS = ["The retry limit of the importer", "The port of the ledger", "导入服务的超时"]
STATEMENTS = [
    *("{thing} is {number}.", "{thing} is {number} now.", "{thing} was raised to {number}.", "From now on: {number}."),
    *("{thing} is {number}, not 12.", "We no longer use it. {thing} is {number}.", "{thing}改成{number}秒。"),
]
FILLER = "The rest of the notes is about something else, and is kept only to be complete. " * 60


@st.composite
def messages_with_corrections(draw: st.DrawFn) -> list[Message]:
    """Draw messages of one to four statements, apart or in one passage; their times have any order."""
    statements = st.builds(
        lambda form, thing, number: form.format(thing=thing, number=number),
        st.sampled_from(STATEMENTS),
        st.sampled_from(THINGS),
        st.integers(10, 14),
    )
    messages: list[Message] = []
    for said in draw(st.lists(st.lists(statements, min_size=1, max_size=4), min_size=1, max_size=5)):
        text = draw(st.sampled_from(["\n", f"\n\n{FILLER}\n\n"])).join(said)
        messages.append(Message(role="user", parts=(Text(text=text),), timestamp=1 + 60_000 * draw(st.integers(0, 2))))
    return messages


@st.composite
def facts_of(draw: st.DrawFn, messages: Sequence[Message]) -> list[FactRow]:
    """Draw facts, each learned from one or two messages, at any time; some were replaced by another one."""
    rows: list[FactRow] = []
    for place in range(draw(st.integers(0, 4))):
        numbers = draw(st.lists(st.integers(1, len(messages)), min_size=1, max_size=2, unique=True))
        lines = [line for line in messages[numbers[0] - 1].text.split("\n") if line and line not in FILLER]
        said = draw(st.sampled_from(lines))
        successor = draw(st.sampled_from([None, "0", "1", "2", "3"]))
        time = draw(st.integers(1, 180_000))
        row = FactRow(scope=MINE, id=str(place), type="decision", content=said, quote=said, time=time)
        rows.append(replace(row, evidence=tuple(sorted(numbers)), superseded_by=successor))
    return rows


@settings(max_examples=examples(100))
@given(messages=messages_with_corrections(), thing=st.sampled_from(THINGS), data=st.data())
def test_what_replaces_a_passage_is_another_and_later_message(
    messages: list[Message], thing: str, data: st.DataObject
) -> None:
    """So nothing replaces itself, and no messages replace each other, whatever facts say about them."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "a.db") as store:
        store.add_messages(make_rows(messages, scope=MINE))
        store.add_facts(data.draw(facts_of(messages)))
        found = recall(
            store, RecallQuery(texts=(f"What is {thing}?",), scope=MINE, across=True, cap=4_000), marks=MARKS
        )
        moments = {row.id: (row.message.timestamp or 0, row.id) for row in store.read_messages(Select(scope=MINE))}
    for hit in found.hits:
        assert len(set(hit.replaced_by)) == len(hit.replaced_by)
        for later in hit.replaced_by:
            assert moments[later] > moments[hit.message]
