"""Archiving any conversation: nothing is lost, nothing is stored twice, and no secret is written."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.archive_rows import make_rows
from holdfast.memory.block import Detail, Fact, render, strip_message
from holdfast.messages import Message, Text, ToolResult
from holdfast.store.base import Select
from holdfast.store.cutting import cut
from holdfast.store.sqlite import SqliteStore
from holdfast.text import term_spans, terms
from support.conversations import MARKS
from support.stores import SCOPE
from support.strategies import examples, messages, texts

SECRETS = (
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "sk-ant-api03-Zk3vQ9xW7bN2mL5pR8tY1uI4oA6sD0fG-hJ3kL9zX2cV5bN8mQ1wE4rT7yU0iOpA",
    "AKIAQ3EGRLWM5N7PXJ2K",
)
conversations = st.lists(messages(), max_size=6)


@given(conversation=conversations)
@settings(max_examples=examples(80), deadline=None)
def test_every_message_is_in_the_archive(conversation: list[Message]) -> None:
    """I1: without masking, the archive has what was sent, in order, except for recalled blocks."""
    kept = [row.message for row in make_rows(conversation, scope=SCOPE, redact=False, marks=MARKS)]
    assert kept == [own for message in conversation if (own := strip_message(message, MARKS)) is not None]


@given(conversation=conversations, cut=st.integers(0, 6))
@settings(max_examples=examples(40), deadline=None)
def test_the_same_history_again_adds_nothing(conversation: list[Message], cut: int) -> None:
    """I6: if a history is sent again, whole or in part, only new messages are added."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "store.db") as store:
        store.add_messages(make_rows(conversation[:cut], scope=SCOPE))
        numbers = store.add_messages(make_rows(conversation, scope=SCOPE))
        assert store.add_messages(make_rows(conversation, scope=SCOPE)) == numbers
        assert sorted(set(numbers)) == [row.id for row in store.read_messages(Select(scope=SCOPE))]


@given(conversation=conversations, secret=st.sampled_from(SECRETS), before=texts(), after=texts(), role=st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_no_secret_is_written(conversation: list[Message], secret: str, before: str, after: str, role: bool) -> None:  # noqa: FBT001 - drawn
    """I8: a secret, in words or in a tool's output, is in no row and in no file of the store."""
    words = f"{before} {secret} {after}"
    loud = Message(role="user", parts=(Text(text=words),))
    if role:
        loud = Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text=words),)),))
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "store.db") as store:
        store.add_messages(make_rows([*conversation, loud], scope=SCOPE))
        assert secret not in repr(store.read_messages(Select(scope=SCOPE)))
        assert secret not in repr(store.read_passages(Select(scope=SCOPE)))
        assert not any(secret.encode() in path.read_bytes() for path in Path(folder).iterdir())


@given(text=texts(), recalled=texts(), first=st.booleans())
def test_recalled_text_is_never_found(text: str, recalled: str, first: bool) -> None:  # noqa: FBT001 - drawn
    """Recalled text in a message is in none of its passages, wherever it is."""
    marked = f"canary {recalled}"
    block = render([Fact(type="issue", text=marked)], [Detail(role="user", time=0, text=marked)], MARKS)
    message = Message(role="user", parts=(Text(text=f"{block}\n\n{text}" if first else f"{text}\n\n{block}"),))
    rows = make_rows([message], scope=SCOPE, redact=False, marks=MARKS)
    assert not any("canary" in row.message.text for row in rows)
    assert not any("canary" in passage.text for row in rows for passage in row.passages)


@given(text=st.text(st.characters(exclude_categories=()), max_size=3000))
@settings(max_examples=examples(100), deadline=None)
def test_passages_cover_what_can_be_found(text: str) -> None:
    """The passages and windows of any text cover it from end to end."""
    passages = cut(text)
    assert "".join(passage.text for passage in passages) == text
    for passage in passages:
        assert passage.text == text[passage.start : passage.start + len(passage.text)]
        assert "".join(passage.text[start:stop] for start, stop in passage.windows) == passage.text
        assert len(passage.terms) == len(passage.windows)


@given(
    text=st.lists(texts() | st.text("aB1_.-/ \n\u2014\u8bc1\u4e66\u3002e\u0301", max_size=300), max_size=8).map(
        "".join
    ),
    name=st.sampled_from(["", "Ann"]),
)
@settings(deadline=None)
def test_windows_have_the_terms_of_their_words(text: str, name: str) -> None:
    """Each window is found by its words, even if it cuts them, and by its speaker."""
    for passage in cut(text, speaker=name):
        words = [passage.text[start:stop] for start, stop in passage.windows]
        assert [list(found) for found in passage.terms] == [terms(part) + terms(name) for part in words]
        spans = [[term for _, _, found in term_spans(part) for term in found] for part in words]
        assert [list(found) for found in passage.terms] == [found + terms(name) for found in spans]
