"""I3, I7, I9 and I11 for recall: never over, no echo, no crossing, nothing gets out of its quotes."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.memory import archive
from holdfast.memory.block import CLOSE, OPEN, strip_text
from holdfast.memory.recall import Request, recall
from holdfast.messages import Message, Text
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
