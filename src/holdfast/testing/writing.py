"""Contracts of `add`: what is kept, under which number, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from holdfast import providers
from holdfast.errors import ConflictError, InputError
from holdfast.messages import Image, Message, Opaque, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.store.base import Job, MessageRow, Record, Select, Store, VectorRow
from holdfast.testing.rows import HERE, MODEL, Check, Opener, asks, fact, find_messages, opened, says, texts, vectors

__all__ = ["CHECKS"]


def everything_reads_back(open_store: Opener, folder: Path) -> None:
    """Rows of every kind read back as they were written, by whoever opens the store next."""
    known = replace(fact("f1", "Use PostgreSQL"), evidence=(1, 2), quote="postgres it is", superseded_by="f2")
    record = Record(scope=HERE, kind="edit", key="e1", data={"why": "too long", "tokens": [1, 2]}, time=5)
    job = Job(scope=HERE, kind="embed", data={"from": 7}, time=6)
    said = [MessageRow(scope=HERE, message=message, nonce=f"{n} \udc00") for n, message in enumerate(_messages())]
    with opened(open_store, folder) as store:
        numbers = [*store.add_messages(said), *store.add_facts([known])]
        numbers += [*store.add_records([record]), *store.add_jobs([job])]
        assert len([number for number in numbers if number > 0]) == len(said) + 3, "one number for each row, from 1"
    with opened(open_store, folder) as store:
        kept = store.read_messages(Select(scope=HERE))
        for row, original in zip(kept, said, strict=True):
            assert (row.message, row.nonce) == (original.message, original.nonce)
            _same_origin(row.message, original.message)
        assert store.read_facts(Select(scope=HERE)) == [known]
        assert store.read_records(Select(scope=HERE)) == [replace(record, id=numbers[-2])]
        assert store.read_jobs(Select(scope=HERE)) == [replace(job, id=numbers[-1])]


def _same_origin(kept: Message, original: Message) -> None:
    for name in providers.FORMATS:
        assert kept.wire(name) == original.wire(name), f"the {name} form came back changed"


def _messages() -> list[Message]:
    """Every kind of part, and messages as two providers write them."""
    call = ToolCall(id="c1", name="read", arguments={"path": "a.py", "lines": [1, 2.5, None, True]})
    result = ToolResult(call_id="c1", content=(Text(text="def a(): ..."), Image(data="aGk=", media_type="image/png")))
    wire = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ls", "input": {"b": 1, "a": 1.0}}]},
    ]
    edited = providers.read(wire, format="anthropic")[0]
    return [
        Message(role="system", parts=(Text(text="You are an agent."),)),
        Message(role="user", parts=(Text(text="改用蓝色 \ud83d half \0 nul 🦀"),), id="e-\udc00", timestamp=10**30),
        Message(
            role="assistant",
            parts=(Thinking(text="hm", signature="sig"), Text(text=""), call),
            usage=Usage(input=3, output=4),
            model="m",
            stop="tool_use",
            timestamp=-5,
        ),
        Message(role="tool", parts=(result, Opaque(kind="x", data={"deep": [{"er": None}]}))),
        Message(role="tool", parts=(ToolResult(call_id="c2", is_error=True, name="read"),)),
        *providers.read(wire, format="anthropic"),
        replace(edited, parts=(*edited.parts, Text(text="added"))),
        Message(role="user", parts=()),
    ]


def strange_values_are_kept(open_store: Opener, folder: Path) -> None:
    """Moments beyond any calendar, halves of characters and long words are kept like anything else, and found."""
    rows = [says("before time", time=-(10**30)), says("after time", time=10**30), says("half \ud83d of it")]
    named = says("said by somebody")
    rows.append(replace(named, message=replace(named.message, name="half \ud800")))
    rows.append(says("x" * 100_000 + " end"))
    with opened(open_store, folder) as store:
        numbers = store.add_messages(rows)
        assert find_messages(store.search(asks("time"))) == numbers[:2]
        assert find_messages(store.search(asks("end"))) == numbers[-1:]
    with opened(open_store, folder) as store:
        kept = store.read_messages(Select(scope=HERE))
        assert [row.message for row in kept] == [row.message for row in rows]
        assert len(store.read_passages(Select(scope=HERE))) > len(rows)


def duplicates_keep_their_number(open_store: Opener, folder: Path) -> None:
    """A message that is already there keeps its number, in the same call, in a later one, after opening again."""
    row = says("Deploy to production")
    with opened(open_store, folder) as store:
        first, again, twin = store.add_messages([row, row, replace(row, nonce="said twice")])
        assert first == again
        assert twin != first
        assert store.add_messages([row]) == [first]
    with opened(open_store, folder) as store:
        assert store.add_messages([row, says("something new")]) == [first, twin + 1]
        assert texts(store) == ["Deploy to production"] * 2 + ["something new"]


def messages_are_known_by_digest_and_nonce(open_store: Opener, folder: Path) -> None:
    """`find` gives the numbers of the messages of a session by digest and nonce, and those of no other session."""
    row = says("Deploy to production")
    twin, elsewhere = replace(row, nonce="said twice"), replace(row, scope=replace(HERE, session="another"))
    with opened(open_store, folder) as store:
        numbers = store.add_messages([row, twin, elsewhere])
    with opened(open_store, folder) as store:
        digest = row.message.digest
        assert store.find(HERE, [digest, "0" * 32]) == {digest: {row.nonce: numbers[0], twin.nonce: numbers[1]}}
        store.remove_messages(Select(scope=HERE, ids=(numbers[0],)))
    with opened(open_store, folder) as store:
        assert store.find(HERE, [digest]) == {digest: {row.nonce: 0, twin.nonce: numbers[1]}}


def a_new_record_replaces_none(open_store: Opener, folder: Path) -> None:
    """Where a record that must be new is there already, nothing of the batch is kept."""
    record = Record(scope=HERE, kind="edit", key="1", data={"n": 1}, is_new=True)
    with opened(open_store, folder) as store, opened(open_store, folder) as other:
        store.add_records([record])
        try:
            with other.transaction():
                other.add_messages([says("half of a batch")])
                other.add_records([replace(record, data={"n": 2})])
        except ConflictError:
            pass
        else:
            raise AssertionError("a record that is there already was replaced")
        assert [row.data for row in store.read_records(Select(scope=HERE))] == [{"n": 1}]
        assert texts(store) == []


def a_batch_is_whole(open_store: Opener, folder: Path) -> None:
    """Where one row of a transaction cannot be kept, none is, and the store goes on as if nothing had happened."""
    with opened(open_store, folder) as store:
        store.add_messages([says("before the storm")])
        short = VectorRow(space=MODEL, passage=0, vectors=np.zeros((1, 3), np.int8))
        try:
            with store.transaction():
                store.add_messages([says("half of a batch")])
                store.add_facts([fact("f", "half")])
                store.add_vectors([short])
        except InputError:
            pass
        else:
            raise AssertionError("vectors of the wrong length were taken")
        assert texts(store) == ["before the storm"]
        assert store.read_facts(Select(scope=HERE)) == []
        store.add_messages([says("after the storm")])
        assert texts(store) == ["before the storm", "after the storm"]


def records_are_replaced(open_store: Opener, folder: Path) -> None:
    """A record takes the place of the older one of its kind and key and keeps its number; versions of facts stay."""
    with opened(open_store, folder) as store:
        one, two = store.add_records([_record("a", 1), _record("b", 1)])
        assert store.add_records([_record("a", 2)]) == [one]
        assert [(row.id, row.data["n"]) for row in store.read_records(Select(scope=HERE))] == [
            (one, 2),
            (two, 1),
        ]
        store.add_facts([fact("f", "first"), fact("f", "second")])
        assert [row.content for row in store.read_facts(Select(scope=HERE))] == ["first", "second"]


def _record(key: str, value: int) -> Record:
    return Record(scope=HERE, kind="counter", key=key, data={"n": value})


def flags_can_change(open_store: Opener, folder: Path) -> None:
    """A message can be pinned and excluded from recall later; a flag that is not named stays as it is."""
    with opened(open_store, folder) as store:
        number, _ = store.add_messages([says("remember the milk"), says("and the bread")])
        this = Select(scope=HERE, ids=(number,))
        assert store.set_flags(this, pinned=True) == 1
        assert store.set_flags(this, excluded=True) == 1
        assert store.set_flags(this, excluded=False) == 1
        assert store.set_flags(Select(scope=HERE, ids=(number + 7,)), excluded=True) == 0
        assert store.set_flags(replace(this, scope=replace(HERE, session="other")), excluded=True) == 0
    with opened(open_store, folder) as store:
        kept, other = store.read_messages(Select(scope=HERE))
        assert (kept.pinned, kept.excluded) == (True, False)
        assert (other.pinned, other.excluded) == (False, False)


def vectors_need_their_passage(open_store: Opener, folder: Path) -> None:
    """Vectors of a passage that is not there stay out."""
    with opened(open_store, folder) as store:
        store.add_messages([says("the only passage")])
        assert store.add_vectors([vectors(1, [1])]) == 0
        assert store.add_vectors([vectors(0, [1]), vectors(1, [1])]) == 1
        _wrong_number_of_vectors(store)


def _wrong_number_of_vectors(store: Store) -> None:
    try:
        store.add_vectors([vectors(0, [1, 2])])
    except InputError:
        return
    raise AssertionError("two vectors for one window were taken")


CHECKS: Final[tuple[Check, ...]] = (
    everything_reads_back,
    strange_values_are_kept,
    duplicates_keep_their_number,
    messages_are_known_by_digest_and_nonce,
    a_new_record_replaces_none,
    a_batch_is_whole,
    records_are_replaced,
    flags_can_change,
    vectors_need_their_passage,
)
