"""What any store must do. Each check is a contract: its docstring says what is promised.

    check_store(open_my_store, folder)

`open_my_store(folder)` opens the store that lies in a folder, again and again, several at once. The checks of
`processes` start other processes: for those it must be a function that can be pickled, at the top of a module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any, Final, get_args

import numpy as np

from holdfast import providers
from holdfast.errors import ConflictError, InputError
from holdfast.messages import Image, Message, Opaque, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.store.base import Job, Kind, MessageRow, Record, Row, Scope, SearchResult, Select, Store, VectorRow
from holdfast.testing import run_check
from holdfast.testing.processes import acknowledged_survives_a_kill, processes_share_a_store
from holdfast.testing.rows import (
    HERE,
    MODEL,
    Check,
    Opener,
    asks,
    fact,
    find_messages,
    is_visible,
    on_disk,
    opened,
    plant,
    refused,
    says,
    texts,
    vectors,
    word,
)

__all__ = ["CHECKS", "Check", "Opener", "check_store"]

MANY: Final = 1300
"""Passages enough for any index to have settled some and to hold others back."""
TOLERANCE: Final = 0.05
"""What a cosine may lose to rounding."""
CANARY: Final = "zanzibarquux"
SAME: Final = 0.98
"""Only a vector and itself are so much alike."""


def everything_reads_back(open_store: Opener, folder: Path) -> None:
    """Rows of every kind read back as they were written, by whoever opens the store next."""
    known = replace(fact("f1", "Use PostgreSQL"), evidence=(1, 2), quote="postgres it is", superseded_by="f2")
    record = Record(scope=HERE, kind="edit", key="e1", data={"why": "too long", "tokens": [1, 2]}, time=5)
    job = Job(scope=HERE, kind="embed", data={"from": 7}, time=6)
    said = [MessageRow(scope=HERE, message=message, nonce=f"{n} \udc00") for n, message in enumerate(_messages())]
    rows: list[Row] = [*said, known, record, job]
    with opened(open_store, folder) as store:
        numbers = store.add(rows)
        assert len([number for number in numbers if number > 0]) == len(rows), "one number for each row, from 1"
    with opened(open_store, folder) as store:
        _is_same(store.fetch(Select(kind="message", scope=HERE)), said)
        assert store.fetch(Select(kind="fact", scope=HERE)) == [known]
        assert store.fetch(Select(kind="record", scope=HERE)) == [replace(record, id=numbers[-2])]
        assert store.fetch(Select(kind="job", scope=HERE)) == [replace(job, id=numbers[-1])]


def _is_same(kept: list[MessageRow], said: list[MessageRow]) -> None:
    for row, original in zip(kept, said, strict=True):
        assert (row.message, row.nonce) == (original.message, original.nonce)
        for name in providers.FORMATS:
            assert row.message.wire(name) == original.message.wire(name), f"the {name} form came back changed"


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
        numbers = store.add(rows)
        assert find_messages(store.match(asks("time"))) == numbers[:2]
        assert find_messages(store.match(asks("end"))) == numbers[-1:]
    with opened(open_store, folder) as store:
        kept = store.fetch(Select(kind="message", scope=HERE))
        assert [row.message for row in kept] == [row.message for row in rows]
        assert len(store.fetch(Select(kind="passage", scope=HERE))) > len(rows)


def duplicates_keep_their_number(open_store: Opener, folder: Path) -> None:
    """A message that is already there keeps its number, in the same call, in a later one, after opening again."""
    row = says("Deploy to production")
    with opened(open_store, folder) as store:
        first, again, twin = store.add([row, row, replace(row, nonce="said twice")])
        assert first == again
        assert twin != first
        assert store.add([row]) == [first]
    with opened(open_store, folder) as store:
        assert store.add([row, says("something new")]) == [first, twin + 1]
        assert texts(store) == ["Deploy to production"] * 2 + ["something new"]


def messages_are_known_by_digest_and_nonce(open_store: Opener, folder: Path) -> None:
    """`find` gives the numbers of the messages of a session by digest and nonce, and those of no other session."""
    row = says("Deploy to production")
    twin, elsewhere = replace(row, nonce="said twice"), replace(row, scope=replace(HERE, session="another"))
    with opened(open_store, folder) as store:
        numbers = store.add([row, twin, elsewhere])
    with opened(open_store, folder) as store:
        digest = row.message.digest
        assert store.find(HERE, [digest, "0" * 32]) == {digest: {row.nonce: numbers[0], twin.nonce: numbers[1]}}
        store.remove(Select(kind="message", scope=HERE, ids=(numbers[0],)))
    with opened(open_store, folder) as store:
        assert store.find(HERE, [digest]) == {digest: {row.nonce: 0, twin.nonce: numbers[1]}}


def a_new_record_replaces_none(open_store: Opener, folder: Path) -> None:
    """Where a record that must be new is there already, nothing of the batch is kept."""
    record = Record(scope=HERE, kind="edit", key="1", data={"n": 1}, is_new=True)
    with opened(open_store, folder) as store, opened(open_store, folder) as other:
        store.add([record])
        with refused(ConflictError, "a record that is there already was replaced"):
            other.add([says("half of a batch"), replace(record, data={"n": 2})])
        assert [row.data for row in store.fetch(Select(kind="record", scope=HERE))] == [{"n": 1}]
        assert texts(store) == []


def a_batch_is_whole(open_store: Opener, folder: Path) -> None:
    """Where one row of a batch cannot be kept, none is, and the store goes on as if nothing had happened."""
    with opened(open_store, folder) as store:
        store.add([says("before the storm")])
        short = VectorRow(space=MODEL, passage=0, vectors=np.zeros((1, 3), np.int8))
        with refused(InputError, "vectors of the wrong length were taken"):
            store.add([says("half of a batch"), fact("f", "half"), short])
        assert texts(store) == ["before the storm"]
        assert store.fetch(Select(kind="fact", scope=HERE)) == []
        store.add([says("after the storm")])
        assert texts(store) == ["before the storm", "after the storm"]


def records_are_replaced(open_store: Opener, folder: Path) -> None:
    """A record takes the place of the older one of its kind and key and keeps its number; versions of facts stay."""
    with opened(open_store, folder) as store:
        record = Record(scope=HERE, kind="counter", key="a", data={"n": 1})
        one, two = store.add([record, replace(record, key="b")])
        assert store.add([replace(record, data={"n": 2})]) == [one]
        assert [(row.id, row.data["n"]) for row in store.fetch(Select(kind="record", scope=HERE))] == [
            (one, 2),
            (two, 1),
        ]
        store.add([fact("f", "first"), fact("f", "second")])
        assert [row.content for row in store.fetch(Select(kind="fact", scope=HERE))] == ["first", "second"]


def flags_can_change(open_store: Opener, folder: Path) -> None:
    """A message can be pinned and excluded from recall later; the flags of one that does not exist change nothing."""
    with opened(open_store, folder) as store:
        row = says("remember the milk")
        (number,) = store.add([row])
        assert store.add([replace(row, id=number, pinned=True)]) == [number]
        assert store.add([replace(row, id=number + 7, excluded=True)]) == [0]
        assert store.add([replace(row, id=number, excluded=True, scope=replace(HERE, session="other"))]) == [0]
    with opened(open_store, folder) as store:
        (kept,) = store.fetch(Select(kind="message", scope=HERE))
        assert (kept.pinned, kept.excluded) == (True, False)


def vectors_need_their_passage(open_store: Opener, folder: Path) -> None:
    """Vectors of a passage that is not there stay out."""
    with opened(open_store, folder) as store:
        store.add([says("the only passage")])
        assert store.add([vectors(1, [1])]) == [0]
        assert store.add([vectors(0, [1])])[0] > 0
        with refused(InputError, "two vectors for one window were taken"):
            store.add([vectors(0, [1, 2])])


def order_is_kept(open_store: Opener, folder: Path) -> None:
    """Rows come oldest first; selections by number, range, newest and limit keep that order."""
    with opened(open_store, folder) as store:
        numbers = store.add([says(f"message number {n}") for n in range(10)])
        assert numbers == sorted(numbers)
        selections: list[tuple[dict[str, Any], list[int]]] = [
            ({}, list(range(10))),
            ({"limit": 3}, [0, 1, 2]),
            ({"limit": 3, "newest": True}, [7, 8, 9]),
            ({"limit": 0}, []),
            ({"limit": 0, "newest": True}, []),
            ({"after": numbers[3], "before": numbers[7]}, [4, 5, 6]),
            ({"after": numbers[3], "limit": 2}, [4, 5]),
            ({"before": numbers[7], "limit": 2, "newest": True}, [5, 6]),
            ({"ids": (numbers[8], numbers[2], 10**9)}, [2, 8]),
            ({"ids": ()}, []),
        ]
        for chosen, expected in selections:
            rows = store.fetch(Select(kind="message", scope=HERE, **chosen))
            assert [numbers.index(row.id) for row in rows] == expected, f"{chosen} selects something else"


def keys_and_names_select(open_store: Opener, folder: Path) -> None:
    """Facts are selected by id, records by kind and key, jobs by kind."""
    with opened(open_store, folder) as store:
        store.add([Record(scope=HERE, kind=kind, key=key, data={}) for kind in ("edit", "report") for key in "ab"])
        store.add([fact("f1", "one"), fact("f2", "two"), fact("f1", "three")])
        store.add([Job(scope=HERE, kind=kind, data={}) for kind in ("embed", "extract", "embed")])
        records = store.fetch(Select(kind="record", scope=HERE, name="edit", keys=("b", "zzz")))
        assert [(row.kind, row.key) for row in records] == [("edit", "b")]
        assert [row.content for row in store.fetch(Select(kind="fact", scope=HERE, keys=("f1",)))] == ["one", "three"]
        assert {row.kind for row in store.fetch(Select(kind="job", scope=HERE, name="embed"))} == {"embed"}


def passages_say_where_they_stand(open_store: Opener, folder: Path) -> None:
    """A passage reads back with its words, place, windows, message, speaker and time."""
    long = " ".join(f"Sentence {n} says something about topic {n % 7}." for n in range(400))
    with opened(open_store, folder) as store:
        numbers = store.add([says("  short  "), says(long, role="assistant", time=9)])
        _, *passages = store.fetch(Select(kind="passage", scope=HERE))
        assert "".join(passage.text for passage in passages) == long
        for number, passage in enumerate(passages, start=1):
            assert passage.number == number
            assert long[passage.start :].startswith(passage.text)
            assert (passage.message, passage.speaker, passage.time) == (numbers[1], "assistant", 9)
            assert "".join(passage.text[start:stop] for start, stop in passage.windows) == passage.text


def no_scope_sees_another(open_store: Opener, folder: Path) -> None:
    """No read in one scope returns a row of another, asked for by number, key, word or vector; `across` opens
    the other sessions of the same agent and nothing else.
    """  # noqa: D205 - one sentence
    with opened(open_store, folder) as store:
        canaries = plant(store)
        for reader, across in product(canaries, (False, True)):
            own = {word for scope, word in canaries.items() if is_visible(scope, reader, across=across)}
            for seen in _everything(store, reader, across=across):
                words = {word for word in canaries.values() if word in repr(seen)}
                assert words <= own, f"{reader} saw a row of another scope"
            assert len(texts(store, scope=reader, across=across)) == len(own)


def _everything(store: Store, scope: Scope, *, across: bool) -> Iterator[object]:
    """Whatever a reader can lay hands on, one after the other."""
    every = tuple(range(200))
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        yield from store.fetch(Select(kind=kind, scope=scope, across=across))
        yield from store.fetch(Select(kind=kind, scope=scope, across=across, ids=every))
    for kind, key in (("fact", "shared-id"), ("record", "shared")):
        yield from store.fetch(Select(kind=kind, scope=scope, across=across, keys=(key,)))
    for named in ("record", "job"):
        yield from store.fetch(Select(kind=named, scope=scope, across=across, name="shared"))
    evidence = store.match(asks("shared word", scope=scope, across=across, seed=1))
    out = ~evidence.visible
    assert not evidence.keywords.passages[out].any(), "a score for what may not be seen"
    assert not evidence.keywords.share[out].any(), "a share for what may not be seen"
    assert evidence.cosine is not None
    assert not evidence.cosine[out[evidence.columns["passage"]]].any(), "a likeness to what may not be seen"
    numbers = np.flatnonzero(evidence.visible).tolist()
    yield from (evidence.scopes[number] for number in evidence.columns["scope"][numbers])
    yield from store.fetch(Select(kind="passage", scope=scope, across=across, ids=tuple(numbers)))
    assert len(find_messages(evidence)) == len(numbers)


def a_snapshot_stands(open_store: Opener, folder: Path) -> None:
    """What `match` returned stays as it was when more is added."""
    with opened(open_store, folder) as store:
        store.add([says(f"apple {n}") for n in range(3)])
        evidence = store.match(asks("apple"))
        store.add([says(f"apple again {n}") for n in range(3000)])
        store.match(asks("apple"))
        assert evidence.columns["length"].tolist() == [2, 2, 2]
        assert evidence.columns.passages == len(evidence.visible) == len(evidence.columns["message"])
        assert find_messages(evidence) == evidence.columns["message"].tolist()


def words_are_found_at_once(open_store: Opener, folder: Path) -> None:
    """A message is found by its words as soon as it was added, and by whoever opens the store later."""
    rows = [says(f"numbered {word('item', n)} of {word('kind', n % 3)}") for n in range(MANY)]
    with opened(open_store, folder) as store:
        numbers = store.add(rows[:5])
        assert find_messages(store.match(asks(word("item", 3)))) == [numbers[3]]
        numbers += store.add(rows[5:])
        _find_them(store, numbers)
        numbers += store.add([says("改用蓝色按钮")])
    with opened(open_store, folder) as store:
        _find_them(store, numbers)
        assert find_messages(store.match(asks("蓝色"))) == [numbers[-1]]


def _find_them(store: Store, numbers: list[int]) -> None:
    for n in (0, 4, 511, 512, MANY - 1):
        assert find_messages(store.match(asks(word("item", n)))) == [numbers[n]], f"item {n} was not found"
    assert find_messages(store.match(asks(word("kind", 1)))) == numbers[1:MANY:3]
    assert find_messages(store.match(asks("nowhere"))) == []
    assert find_messages(store.match(asks())) == []


def two_openers_see_each_other(open_store: Opener, folder: Path) -> None:
    """Two that have the same store open find what the other adds, however much it was."""
    with opened(open_store, folder) as one, opened(open_store, folder) as two:
        numbers: list[int] = []
        for step, size in enumerate((1, 600, 3, 700, 2, 2300, 1)):
            writer, reader = (one, two) if step % 2 else (two, one)
            reader.match(asks("anything"))
            numbers += writer.add([says(f"{word('w', len(numbers) + n)} common") for n in range(size)])
            for place in (0, len(numbers) // 2, len(numbers) - 1):
                for store in (reader, writer):
                    assert find_messages(store.match(asks(word("w", place)))) == [numbers[place]], (
                        f"word {place} is lost"
                    )
        assert find_messages(one.match(asks("common"))) == find_messages(two.match(asks("common"))) == numbers


def order_of_evidence(open_store: Opener, folder: Path) -> None:
    """Columns describe the passages in order: message, scope, time, speaker, size, the passage before."""
    other = replace(HERE, session="s2")
    rows = [says("first", time=5), says("elsewhere", scope=other, role="assistant"), says("second words", time=7)]
    with opened(open_store, folder) as store:
        numbers = store.add(rows)
        evidence = store.match(asks("words", across=True))
        columns = evidence.columns
        assert columns["message"].tolist() == numbers
        assert [evidence.scopes[scope] for scope in columns["scope"]] == [HERE, other, HERE]
        assert columns["time"].tolist() == [5, 0, 7]
        assert columns["human"].tolist() == [True, False, True]
        assert columns["previous"].tolist() == [-1, -1, 0]
        assert columns["size"].tolist() == [5, 9, 12]
        assert columns["alive"].all()
        assert evidence.visible.all()


def others_have_no_say(open_store: Opener, folder: Path) -> None:
    """What lies in another tenant's memory changes nothing in a ranking."""
    mine = [says(f"alpha beta {'gamma ' * n}") for n in range(4)]
    question = asks("alpha gamma missing")
    with opened(open_store, folder / "alone") as store:
        store.add(mine)
        alone = _scores(store.match(question))
    with opened(open_store, folder / "shared") as store:
        theirs = replace(HERE, tenant="them")
        store.add([says(f"gamma gamma alpha {n}", scope=theirs) for n in range(60)])
        store.add(mine)
        store.add([says(f"missing gamma {n}", scope=theirs) for n in range(60)])
        shared = _scores(store.match(question))
    assert np.allclose(alone, shared), "another tenant's words changed the ranking"


def _scores(evidence: SearchResult) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    keywords, seen = evidence.keywords, evidence.visible
    return np.stack([keywords.passages[seen], keywords.share[seen]])


def vectors_are_compared(open_store: Opener, folder: Path) -> None:
    """The windows whose vectors are most like the question's have the highest cosine, wherever they were added."""
    with opened(open_store, folder) as store:
        store.add([says(f"passage {n}") for n in range(MANY)])
        assert store.match(asks(seed=1)).cosine is None
        store.add([vectors(n, [n]) for n in range(0, MANY, 2)])
        _most_alike(store, MANY - 2)
        store.add([vectors(n, [n]) for n in range(1, MANY, 2)])
        _most_alike(store, 7)
        store.add([vectors(7, [10_000])])
        _most_alike(store, 7, seed=10_000)
    with opened(open_store, folder) as store:
        _most_alike(store, 7, seed=10_000)
        _most_alike(store, MANY - 1)


def _most_alike(store: Store, passage: int, *, seed: int | None = None) -> None:
    cosine = store.match(asks(seed=passage if seed is None else seed)).cosine
    assert cosine is not None
    assert int(cosine.argmax()) == passage
    assert abs(cosine.max() - 1) < TOLERANCE


def spaces_never_meet(open_store: Opener, folder: Path) -> None:
    """A question in one space is compared with no vector of another, whatever their names and dimensions share."""
    spaces = [MODEL, replace(MODEL, digest="d2"), replace(MODEL, name="other"), replace(MODEL, dimension=16)]
    with opened(open_store, folder) as store:
        store.add([says(f"passage {n}") for n in range(len(spaces))])
        for number, space in enumerate(spaces):
            store.add([vectors(number, [7], space=space)])
        for number, space in enumerate(spaces):
            cosine = store.match(asks(seed=7, space=space)).cosine
            assert cosine is not None
            assert np.flatnonzero(cosine > 1 - TOLERANCE).tolist() == [number], f"{space} met another space"


def threads_share_a_store(open_store: Opener, folder: Path) -> None:
    """Threads add, search and read at once through one store; nothing is lost and nothing breaks."""
    failures: list[BaseException] = []
    with opened(open_store, folder) as store:
        threads = [Thread(target=_use, args=(store, n, failures)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert len(store.fetch(Select(kind="message", scope=HERE, across=True))) == 4 * 40


def _use(store: Store, thread: int, failures: list[BaseException]) -> None:
    scope = Scope(project=HERE.project, session=f"thread {thread}")
    try:
        for n in range(40):
            (number,) = store.add([says(f"thread {word('turn', n)}", scope=scope)])
            evidence = store.match(asks(word("turn", n), scope=scope))
            assert find_messages(evidence) == [number]
            assert len(evidence.visible) == len(evidence.columns["alive"])
    except BaseException as error:  # noqa: BLE001 - whatever broke is raised in the thread of the check
        failures.append(error)


def forgotten_is_gone(open_store: Opener, folder: Path) -> None:
    """A forgotten message is in no row, no passage, no search, no vector and no file; the others stay as they were."""
    with opened(open_store, folder) as store, opened(open_store, folder) as other:
        numbers = store.add([says(f"plain words {n}") for n in range(600)])
        (secret,) = store.add([says(f"the password is {CANARY}")])
        numbers += store.add([says(f"more words {n}") for n in range(600)])
        store.add([vectors(n, [n]) for n in range(1201)])
        assert find_messages(other.match(asks(CANARY, seed=600))) == [secret]
        assert store.remove(Select(kind="message", scope=HERE, ids=(secret,))) == 1
        for reader in (store, other):
            _is_gone(reader, secret, numbers)
        assert on_disk(folder, CANARY) == []
    with opened(open_store, folder) as store:
        _is_gone(store, secret, numbers)
    assert on_disk(folder, CANARY) == []


def _is_gone(store: Store, secret: int, numbers: list[int]) -> None:
    evidence = store.match(asks(CANARY, seed=600))
    assert find_messages(evidence) == [], "still found by its words"
    assert evidence.cosine is not None
    assert evidence.cosine.max() < SAME, "still found by its vector"
    assert store.fetch(Select(kind="message", scope=HERE, ids=(secret,))) == []
    assert secret not in {passage.message for passage in store.fetch(Select(kind="passage", scope=HERE))}
    found = [find_messages(store.match(asks(text))) for text in ("words", "599")]
    rows = store.fetch(Select(kind="message", scope=HERE))
    assert [[row.id for row in rows], *found] == [numbers, numbers, [numbers[599], numbers[1199]]]


def forgotten_stays_out(open_store: Opener, folder: Path) -> None:
    """An import does not bring forgotten messages and facts back; the same words in another message are new."""
    row, told = says(CANARY), fact("f1", CANARY)
    with opened(open_store, folder) as store:
        number, _, _ = store.add([row, told, says("a neighbour")])
        store.remove(Select(kind="message", scope=HERE, ids=(number,)))
        store.remove(Select(kind="fact", scope=HERE, keys=("f1",)))
    with opened(open_store, folder) as store:
        assert store.add([row, told]) == [0, 0]
        assert texts(store) == ["a neighbour"]
        assert store.fetch(Select(kind="fact", scope=HERE)) == []
        assert on_disk(folder, CANARY) == []
        elsewhere = replace(HERE, session="s2")
        assert all(store.add([replace(row, scope=elsewhere), fact("f2", "something else")]))
        assert texts(store, scope=elsewhere) == [CANARY]
        assert all(store.add([replace(row, nonce="again")])), "another message of the same words was left out"
    with opened(open_store, folder) as store:
        assert store.add([row]) == [0]
        assert texts(store) == ["a neighbour", CANARY]


def numbers_are_not_used_again(open_store: Opener, folder: Path) -> None:
    """What comes after a forgotten message gets a new number, and is found under it."""
    with opened(open_store, folder) as store:
        (first,) = store.add([says("to be forgotten")])
        store.remove(Select(kind="message", scope=HERE))
    with opened(open_store, folder) as store:
        (second,) = store.add([says("to be kept")])
        assert second > first
        assert find_messages(store.match(asks("kept"))) == [second]
        (passage,) = store.fetch(Select(kind="passage", scope=HERE))
        store.remove(Select(kind="message", scope=HERE))
        (third,) = store.add([says("to be kept too")])
        assert find_messages(store.match(asks("kept"))) == [third]
        assert store.add([vectors(passage.number, [1])]) == [0], "vectors of a forgotten passage were taken"


def only_what_is_selected_goes(open_store: Opener, folder: Path) -> None:
    """Removing messages keeps to scope, numbers and limit."""
    other = replace(HERE, session="s2")
    with opened(open_store, folder) as store:
        numbers = store.add([says(f"message {n}") for n in range(6)])
        store.add([says("of the other session", scope=other)])
        assert store.remove(Select(kind="message", scope=HERE, limit=1)) == 1
        assert store.remove(Select(kind="message", scope=HERE, newest=True, limit=1)) == 1
        assert store.remove(Select(kind="message", scope=HERE, ids=(numbers[2],))) == 1
        assert store.remove(Select(kind="message", scope=other, ids=tuple(numbers))) == 0
        assert texts(store) == ["message 1", "message 3", "message 4"]
        left = len(texts(store, across=True))
        assert store.remove(Select(kind="message", scope=HERE, across=True)) == left
        assert texts(store, across=True) == []


def records_and_jobs_go_alone(open_store: Opener, folder: Path) -> None:
    """Records and jobs are taken out one by one and stay out; passages cannot go without their message."""
    with opened(open_store, folder) as store:
        store.add([Record(scope=HERE, kind="edit", key=key, data={}) for key in "abc"])
        job, _ = store.add([Job(scope=HERE, kind="embed", data={}), Job(scope=HERE, kind="embed", data={})])
        assert store.remove(Select(kind="record", scope=HERE, keys=("b",))) == 1
        assert store.remove(Select(kind="job", scope=HERE, ids=(job,))) == 1
        with refused(InputError, "passages were removed without their message"):
            store.remove(Select(kind="passage", scope=HERE))
    with opened(open_store, folder) as store:
        assert [row.key for row in store.fetch(Select(kind="record", scope=HERE))] == ["a", "c"]
        assert [row.id > job for row in store.fetch(Select(kind="job", scope=HERE))] == [True]


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
    order_is_kept,
    keys_and_names_select,
    passages_say_where_they_stand,
    no_scope_sees_another,
    a_snapshot_stands,
    words_are_found_at_once,
    two_openers_see_each_other,
    order_of_evidence,
    others_have_no_say,
    vectors_are_compared,
    spaces_never_meet,
    threads_share_a_store,
    forgotten_is_gone,
    forgotten_stays_out,
    numbers_are_not_used_again,
    only_what_is_selected_goes,
    records_and_jobs_go_alone,
    processes_share_a_store,
    acknowledged_survives_a_kill,
)
"""Every contract of a store."""


def check_store(open_store: Opener, folder: Path) -> None:
    """Hold a store to every contract, each in a folder of its own; the first that is broken raises AssertionError."""
    for check in CHECKS:
        place = folder / check.__name__
        place.mkdir(parents=True, exist_ok=True)
        run_check(check, open_store, place)
