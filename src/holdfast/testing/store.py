"""Checks that every store must pass. The docstring of each describes the requirement.

    check_store(open_my_store, folder)

`open_my_store(folder)` opens the store in a folder. It is called repeatedly, even while the store is open. Some checks
start other processes, so it must be possible to pickle the function: define it at the top level of a module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any, Final

import numpy as np
from msgspec import Struct

from holdfast import providers
from holdfast.errors import ConflictError, InputError
from holdfast.messages import Usage
from holdfast.search.candidates import Candidates
from holdfast.store.base import (
    Job,
    Known,
    MessageRow,
    Period,
    Record,
    Scope,
    Select,
    Store,
    TurnSum,
    UsageSum,
    VectorRow,
)
from holdfast.testing import collect_checks, run_check
from holdfast.testing.processes import acknowledged_writes_survive_a_kill, processes_can_share_a_store
from holdfast.testing.rows import (
    HERE,
    MODEL,
    Check,
    Opener,
    add_canaries,
    expect_error,
    fact,
    files_containing,
    find_messages,
    is_visible,
    make_message,
    make_query,
    readers,
    sample_messages,
    texts,
    use_store,
    vectors,
    word,
)

MANY: Final = 1100
"""Enough passages for an index to have merged some blocks while others are still open."""
TOLERANCE: Final = 0.05
"""The maximum error of a cosine because of rounding."""
CANARY: Final = "zanzibarquux"
SAME: Final = 0.98
"""A cosine that a vector reaches only with itself."""


def rows_read_back_unchanged(open_store: Opener, folder: Path) -> None:
    """Rows of every kind read back as they were written, after the store is opened again."""
    known = replace(fact("f1", "Use PostgreSQL"), evidence=(1, 2), quote="postgres it is", superseded_by="f2")
    known = replace(known, questions=("Which database?", "用哪个数据库?"))
    record = Record(scope=HERE, kind="edit", key="e1", data={"why": "too long", "tokens": [1, 2]}, time=5)
    job = Job(scope=HERE, kind="embed", data={"from": 7}, time=6)
    rows = [MessageRow(scope=HERE, message=message, nonce=f"{n} \udc00") for n, message in enumerate(sample_messages())]
    with use_store(open_store, folder) as store:
        numbers = [*store.add_messages(rows), *store.add_facts([known])]
        numbers += [*store.add_records([record]), *store.add_jobs([job])]
        assert len([number for number in numbers if number > 0]) == len(rows) + 3, "one number for each row, from 1"
    with use_store(open_store, folder) as store:
        _check_rows(store.read_messages(Select(scope=HERE)), rows)
        assert store.read_facts(Select(scope=HERE)) == [known]
        assert store.read_records(Select(scope=HERE)) == [replace(record, id=numbers[-2])]
        assert store.read_jobs(Select(scope=HERE)) == [replace(job, id=numbers[-1])]


def _check_rows(kept: list[MessageRow], rows: list[MessageRow]) -> None:
    for row, original in zip(kept, rows, strict=True):
        assert (row.message, row.nonce) == (original.message, original.nonce)
        for name in providers.FORMATS:
            assert row.message.wire(name) == original.message.wire(name), f"the {name} form came back changed"


def extreme_values_are_kept(open_store: Opener, folder: Path) -> None:
    """Times out of range, lone surrogates and very long words are kept and found like anything else."""
    rows = [
        make_message("before time", time=-(10**30)),
        make_message("after time", time=10**30),
        make_message("half \ud83d of it"),
    ]
    named = make_message("said by somebody")
    rows.append(replace(named, message=replace(named.message, name="half \ud800")))
    rows.append(make_message("x" * 100_000 + " end"))
    with use_store(open_store, folder) as store:
        numbers = store.add_messages(rows)
        assert find_messages(store.search(make_query("time"))) == numbers[:2]
        assert find_messages(store.search(make_query("end"))) == numbers[-1:]
    with use_store(open_store, folder) as store:
        kept = store.read_messages(Select(scope=HERE))
        assert [row.message for row in kept] == [row.message for row in rows]
        assert len(store.read_passages(Select(scope=HERE))) > len(rows)


def duplicates_keep_their_number(open_store: Opener, folder: Path) -> None:
    """Adding a message again returns its number: in the same call, in a later one, and after the store is reopened."""
    row = make_message("Deploy to production")
    with use_store(open_store, folder) as store:
        first, again, twin = store.add_messages([row, row, replace(row, nonce="said twice")])
        assert first == again
        assert twin != first
        assert store.add_messages([row]) == [first]
    with use_store(open_store, folder) as store:
        assert store.add_messages([row, make_message("something new")]) == [first, twin + 1]
        assert texts(store) == ["Deploy to production"] * 2 + ["something new"]


def find_returns_numbers_by_digest_and_nonce(open_store: Opener, folder: Path) -> None:
    """`find` returns the numbers of a session's messages by digest and nonce, and nothing of other sessions."""
    row = make_message("Deploy to production")
    twin = replace(row, nonce="said twice")
    elsewhere = replace(row, scope=replace(HERE, session="another"))
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([row, twin, elsewhere])
    with use_store(open_store, folder) as store:
        digest = row.message.digest
        known = store.find(HERE, [digest, "0" * 32])
        assert known.numbers == {digest: {row.nonce: numbers[0], twin.nonce: numbers[1]}}
        assert known.forgotten == {}
        store.remove_messages(Select(scope=HERE, ids=(numbers[0],)))
    with use_store(open_store, folder) as store:
        assert store.find(HERE, [digest]).numbers == {digest: {row.nonce: 0, twin.nonce: numbers[1]}}
        assert store.find(HERE, []).forgotten == {row.nonce: [digest]}


def merge_is_atomic(open_store: Opener, folder: Path) -> None:
    """If several writers add the same message unless the session has it, it is added once."""
    row = make_message("Deploy to production")
    digest = row.message.digest

    def merge(store: Store, name: str) -> None:
        def make_rows(known: Known) -> list[MessageRow]:
            nonce = next(iter(known.numbers.get(digest, {})), name)
            return [replace(row, nonce=nonce)]

        store.merge_messages(HERE, [digest], make_rows)

    with use_store(open_store, folder) as store, use_store(open_store, folder) as other:
        threads = [Thread(target=merge, args=(one, f"n{n}")) for n, one in enumerate([store, other] * 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts(store) == ["Deploy to production"]
        assert list(store.find(HERE, [digest]).numbers) == [digest]


def new_record_conflicts_with_an_existing_one(open_store: Opener, folder: Path) -> None:
    """If a record that must be new exists already, nothing in the transaction is stored."""
    record = Record(scope=HERE, kind="edit", key="1", data={"n": 1}, is_new=True)
    with use_store(open_store, folder) as store, use_store(open_store, folder) as other:
        store.add_records([record])
        with expect_error(ConflictError, "a record that is there already was replaced"), other.transaction():
            other.add_messages([make_message("half of a batch")])
            other.add_records([replace(record, data={"n": 2})])
        assert [row.data for row in store.read_records(Select(scope=HERE))] == [{"n": 1}]
        assert texts(store) == []


def transactions_are_atomic(open_store: Opener, folder: Path) -> None:
    """If one row of a transaction cannot be stored, none are, and the store can be used afterwards."""
    with use_store(open_store, folder) as store:
        store.add_messages([make_message("before the storm")])
        short = VectorRow(space=MODEL, passage=0, vectors=np.zeros((1, 3), np.int8))
        with expect_error(InputError, "vectors of the wrong length were accepted"), store.transaction():
            store.add_messages([make_message("half of a batch")])
            store.add_facts([fact("f", "half")])
            store.add_vectors([short])
        assert texts(store) == ["before the storm"]
        assert store.read_facts(Select(scope=HERE)) == []
        store.add_messages([make_message("after the storm")])
        assert texts(store) == ["before the storm", "after the storm"]


def records_replace_older_versions(open_store: Opener, folder: Path) -> None:
    """A record replaces the one with the same kind and key and keeps its number; all versions of a fact are kept."""
    with use_store(open_store, folder) as store:
        record = Record(scope=HERE, kind="counter", key="a", data={"n": 1})
        one, two = store.add_records([record, replace(record, key="b")])
        assert store.add_records([replace(record, data={"n": 2})]) == [one]
        assert [(row.id, row.data["n"]) for row in store.read_records(Select(scope=HERE))] == [(one, 2), (two, 1)]
        store.add_facts([fact("f", "first"), fact("f", "second")])
        assert [row.content for row in store.read_facts(Select(scope=HERE))] == ["first", "second"]


def flags_can_change(open_store: Opener, folder: Path) -> None:
    """A message can be pinned and excluded later; a flag that is not given does not change."""
    with use_store(open_store, folder) as store:
        number, _ = store.add_messages([make_message("remember the milk"), make_message("and the bread")])
        this = Select(scope=HERE, ids=(number,))
        assert store.set_flags(this, pinned=True) == 1
        assert store.set_flags(this, excluded=True) == 1
        assert store.set_flags(this, excluded=False) == 1
        assert store.set_flags(Select(scope=HERE, ids=(number + 7,)), excluded=True) == 0
        assert store.set_flags(replace(this, scope=replace(HERE, session="other")), excluded=True) == 0
    with use_store(open_store, folder) as store:
        kept, other = store.read_messages(Select(scope=HERE))
        assert (kept.pinned, kept.excluded) == (True, False)
        assert (other.pinned, other.excluded) == (False, False)


def vectors_require_a_passage(open_store: Opener, folder: Path) -> None:
    """Vectors of a passage that does not exist are not stored."""
    with use_store(open_store, folder) as store:
        store.add_messages([make_message("the only passage")])
        assert store.add_vectors([vectors(1, [1])]) == 0
        assert store.add_vectors([vectors(0, [1]), vectors(1, [1])]) == 1
        with expect_error(InputError, "two vectors for one window were accepted"):
            store.add_vectors([vectors(0, [1, 2])])


def selections_keep_their_order(open_store: Opener, folder: Path) -> None:
    """Rows are returned oldest first, even if they are selected by number, range, newest or limit."""
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([make_message(f"message number {n}") for n in range(10)])
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
            rows = store.read_messages(Select(scope=HERE, **chosen))
            assert [numbers.index(row.id) for row in rows] == expected, f"{chosen} selects something else"


def rows_are_selected_by_key(open_store: Opener, folder: Path) -> None:
    """Facts are selected by id, records by kind and key, jobs by kind."""
    with use_store(open_store, folder) as store:
        store.add_records(
            [Record(scope=HERE, kind=kind, key=key, data={}) for kind in ("edit", "report") for key in "ab"]
        )
        store.add_facts([fact("f1", "one"), fact("f2", "two"), fact("f1", "three")])
        store.add_jobs([Job(scope=HERE, kind=kind, data={}) for kind in ("embed", "extract", "embed")])
        records = store.read_records(Select(scope=HERE), kind="edit", keys=("b", "zzz"))
        assert [(row.kind, row.key) for row in records] == [("edit", "b")]
        assert [row.content for row in store.read_facts(Select(scope=HERE), keys=("f1",))] == ["one", "three"]
        assert {row.kind for row in store.read_jobs(Select(scope=HERE), kind="embed")} == {"embed"}


class _Counter(Struct, frozen=True, kw_only=True):
    """The type of a document that may have more fields."""

    name: str
    counts: tuple[int, ...] = ()


def records_are_decoded_into_a_type(open_store: Opener, folder: Path) -> None:
    """Documents of a kind are decoded into a type, or are None if they do not match it; other fields are ignored.

    The order, the limits and the scope are those of other reads.
    """
    documents: list[dict[str, Any]] = [
        {"name": "first", "counts": [1, 2], "other": None},
        {"name": 7},
        {"name": "第三 \ud83d"},
        {"name": "last", "counts": []},
    ]
    expected = [
        ("k0", 0, _Counter(name="first", counts=(1, 2))),
        ("k1", 1, None),
        ("k2", 2, _Counter(name="第三 \ud83d")),
        ("k3", 3, _Counter(name="last")),
    ]
    with use_store(open_store, folder) as store:
        records = [
            Record(scope=HERE, kind="counter", key=f"k{place}", data=data, time=place)
            for place, data in enumerate(documents)
        ]
        numbers = store.add_records([*records, replace(records[0], kind="other")])
        store.add_records([replace(records[0], scope=replace(HERE, session="other"))])
        read = store.read_typed_records(Select(scope=HERE), kind="counter", form=_Counter)
        assert [(row.key, row.time, row.data) for row in read] == expected
        assert [row.id for row in read] == numbers[:4]
        newest = Select(scope=HERE, newest=True, limit=3)
        assert store.read_typed_records(newest, kind="counter", form=_Counter) == read[1:]
        between = Select(scope=HERE, after=numbers[0], before=numbers[3])
        assert store.read_typed_records(between, kind="counter", form=_Counter) == read[1:3]
        assert store.gaps == ()


def passages_have_their_position(open_store: Opener, folder: Path) -> None:
    """A passage reads back with its text, position, windows, message, speaker and time."""
    long = " ".join(f"Sentence {n} says something about topic {n % 7}." for n in range(400))
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([make_message("  short  "), make_message(long, role="assistant", time=9)])
        _, *passages = store.read_passages(Select(scope=HERE))
        assert "".join(passage.text for passage in passages) == long
        for number, passage in enumerate(passages, start=1):
            assert passage.number == number
            assert long[passage.start :].startswith(passage.text)
            assert (passage.message, passage.speaker, passage.time) == (numbers[1], "assistant", 9)
            assert "".join(passage.text[start:stop] for start, stop in passage.windows) == passage.text


def sessions_are_listed_by_time(open_store: Opener, folder: Path) -> None:
    """`read_sessions` lists the sessions of a reader, the one with the newest searchable message first."""
    scopes = {name: replace(HERE, session=name) for name in ("old", "new", "between", "silent")}
    times = {"old": (10, 20), "new": (15, 90), "between": (40, 50)}
    with use_store(open_store, folder) as store:
        for name in ("new", "old", "between"):  # not in the order of their times
            store.add_messages([make_message(f"{name} {time}", scope=scopes[name], time=time) for time in times[name]])
        store.add_messages([replace(make_message("no passages", scope=scopes["silent"], time=70), passages=())])
        store.add_messages([make_message("another project", scope=replace(HERE, project="other"), time=95)])

        def list_names(**options: Any) -> list[str]:
            return [span.scope.session for span in store.read_sessions(HERE, **{"limit": 9, **options})]

        assert list_names() == ["new", "between", "old"]
        assert list_names(limit=2) == ["new", "between"]
        assert list_names(since=21) == ["new", "between"]
        assert list_names(until=15) == ["old"]
        assert list_names(since=20, until=40) == ["new", "old"]
        assert list_names(across=False) == []
        spans = store.read_sessions(scopes["new"], across=False, limit=9)
        assert [(span.scope, span.first_time, span.last_time) for span in spans] == [(scopes["new"], 15, 90)]
        store.remove_messages(Select(scope=scopes["new"]))
        assert list_names() == ["between", "old"]


def passages_of_other_messages_are_known(open_store: Opener, folder: Path) -> None:
    """`has_passages` returns whether a reader may see a passage of any message, not counting some."""
    other = replace(HERE, session="other")
    with use_store(open_store, folder) as store:
        assert not store.has_passages(HERE)
        first, second, silent = store.add_messages(
            [make_message("first"), make_message("second"), replace(make_message("no passages"), passages=())]
        )
        assert store.has_passages(HERE)
        assert store.has_passages(HERE, without_messages={first, silent})
        assert not store.has_passages(HERE, without_messages={first, second})
        assert not store.has_passages(replace(HERE, project="other"), across=True)
        store.add_messages([make_message("of another session", scope=other)])
        assert not store.has_passages(HERE, without_messages={first, second})
        assert store.has_passages(HERE, across=True, without_messages={first, second})
        store.remove_messages(Select(scope=other))
        assert not store.has_passages(HERE, across=True, without_messages={first, second})
        # Many messages that are left out, in numbers with one gap and with many.
        every = [first, second, *store.add_messages([make_message(f"message {place}") for place in range(50)])]
        assert not store.has_passages(HERE, without_messages=every)
        for place in (0, 25, 51):
            assert store.has_passages(HERE, without_messages={*every} - {every[place]})
        assert store.has_passages(HERE, without_messages=every[::2])
        store.remove_messages(Select(scope=HERE, ids=tuple(every[1::2])))
        assert not store.has_passages(HERE, without_messages=every[::2])


def scopes_are_isolated(open_store: Opener, folder: Path) -> None:
    """No read in a scope returns a row of another scope; `across` adds only the other sessions of the same agent."""
    with use_store(open_store, folder) as store:
        canaries = add_canaries(store)
        for reader, across in product(canaries, (False, True)):
            own = {word for scope, word in canaries.items() if is_visible(scope, reader, across=across)}
            for seen in _everything(store, reader, across=across):
                words = {word for word in canaries.values() if word in repr(seen)}
                assert words <= own, f"{reader} saw a row of another scope"
            assert len(texts(store, scope=reader, across=across)) == len(own)


def _everything(store: Store, scope: Scope, *, across: bool) -> Iterator[object]:
    """Yield everything that a reader can read."""
    select = Select(scope=scope, across=across)
    for read in readers(store):
        yield from read(select)
        yield from read(replace(select, ids=tuple(range(200))))
    yield from store.read_facts(select, keys=("shared-id",))
    yield from store.read_records(select, kind="shared", keys=("shared",))
    yield from store.read_typed_records(select, kind="shared", form=dict)
    yield from store.read_jobs(select, kind="shared")
    yield from store.read_sessions(scope, across=across, limit=100)
    found = store.search(make_query("shared word", scope=scope, across=across, seed=1))
    passages = store.read_passages(replace(select, ids=tuple(found.passages.tolist())))
    assert len(passages) == len(find_messages(found)) == len(found), "a candidate of another scope"
    yield from passages


def reads_are_snapshots(open_store: Opener, folder: Path) -> None:
    """The result of a search does not change when more rows are added."""
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([make_message(f"apple {n}") for n in range(3)])
        found = store.search(make_query("apple"))
        scores = found.score_windows(np.arange(3))[0].tolist()
        store.add_messages([make_message(f"apple again {n}") for n in range(MANY)])
        store.search(make_query("apple"))
        assert found.messages.tolist() == find_messages(found) == numbers
        assert found.score_windows(np.arange(3))[0].tolist() == scores


def new_messages_are_searchable(open_store: Opener, folder: Path) -> None:
    """A message is found by its words as soon as it is added, and after the store is opened again."""
    rows = [make_message(f"numbered {word('item', n)} of {word('kind', n % 3)}") for n in range(MANY)]
    with use_store(open_store, folder) as store:
        numbers = store.add_messages(rows[:5])
        assert find_messages(store.search(make_query(word("item", 3)))) == [numbers[3]]
        numbers += store.add_messages(rows[5:])
        _check_found(store, numbers)
        numbers += store.add_messages([make_message("改用蓝色按钮")])
    with use_store(open_store, folder) as store:
        _check_found(store, numbers)
        assert find_messages(store.search(make_query("蓝色"))) == [numbers[-1]]


def _check_found(store: Store, numbers: list[int]) -> None:
    for n in (0, 4, 511, 512, MANY - 1):
        assert find_messages(store.search(make_query(word("item", n)))) == [numbers[n]], f"item {n} was not found"
    assert find_messages(store.search(make_query(word("kind", 1)))) == numbers[1:MANY:3]
    assert find_messages(store.search(make_query("nowhere"))) == []
    assert find_messages(store.search(make_query())) == []


def two_connections_see_each_other(open_store: Opener, folder: Path) -> None:
    """Each of two connections to the same store finds what the other adds, however much it is."""
    with use_store(open_store, folder) as one, use_store(open_store, folder) as two:
        numbers: list[int] = []
        for step, size in enumerate((1, 600, 3, MANY, 2)):
            writer = two
            reader = one
            if step % 2:
                writer = one
                reader = two
            reader.search(make_query("anything"))
            numbers += writer.add_messages([make_message(f"{word('w', len(numbers) + n)} common") for n in range(size)])
            for place in (0, len(numbers) // 2, len(numbers) - 1):
                for store in (reader, writer):
                    found = find_messages(store.search(make_query(word("w", place))))
                    assert found == [numbers[place]], f"word {place} is lost"
        assert (
            find_messages(one.search(make_query("common")))
            == find_messages(two.search(make_query("common")))
            == numbers
        )


def candidates_have_metadata(open_store: Opener, folder: Path) -> None:
    """Candidates are in order, with message, session, time, role, size and neighbouring passages."""
    other = replace(HERE, session="s2")
    rows = [
        make_message("first", time=5),
        make_message("elsewhere", scope=other, role="assistant"),
        make_message("second words", time=7),
    ]
    with use_store(open_store, folder) as store:
        numbers = store.add_messages(rows)
        found = store.search(make_query("words", across=True))
        assert found.messages.tolist() == numbers
        assert found.sessions[0] == found.sessions[2] != found.sessions[1]
        assert (found.times.tolist(), found.human.tolist()) == ([5, 0, 7], [True, False, True])
        assert (found.previous.tolist(), found.following.tolist()) == ([-1, -1, 0], [2, -1, -1])
        assert (found.sizes.tolist(), found.windows.tolist()) == ([5, 9, 12], [1, 1, 1])
        assert found.eligible.all()
        passages = store.read_passages(Select(scope=HERE, across=True, ids=tuple(found.passages.tolist())))
        assert [passage.message for passage in passages] == numbers
        words, cosines = found.score_windows(np.arange(3))
        assert ((words > 0).tolist(), cosines) == ([False, False, True], None)


def search_respects_its_limit(open_store: Opener, folder: Path) -> None:
    """A search returns at most `limit` candidates and their neighbours, including the best by words and by vector."""
    with use_store(open_store, folder) as store:
        store.add_messages([make_message(f"passage {n} {'' if n % 100 else 'apple'}") for n in range(MANY)])
        store.add_vectors([vectors(n, [n]) for n in range(MANY)])
        question = replace(make_query("apple", seed=777), limit=40)
        assert len(store.search(question)) <= question.limit
        found = store.search(replace(question, neighbours=1))
        assert len(found) <= 3 * question.limit
        assert {777, *range(0, MANY, 100)} <= set(found.passages.tolist())
        place = found.passages.tolist().index(777)
        assert found.passages[[found.previous[place], found.following[place]]].tolist() == [776, 778]


def excluded_rows_are_not_ranked(open_store: Opener, folder: Path) -> None:
    """Messages and passages that the query excludes, by number, time or `newest`, get no score from any signal."""
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([make_message(f"apple {n}", time=10 * n) for n in range(6)])
        store.add_vectors([vectors(n, [7]) for n in range(6)])
        question = make_query("apple", seed=7)
        for more, expected in (
            ({}, [0, 1, 2, 3, 4, 5]),
            ({"without_messages": numbers[:2]}, [2, 3, 4, 5]),
            ({"without_passages": (3, 99)}, [0, 1, 2, 4, 5]),
            ({"since": 30}, [0, 3, 4, 5]),
            ({"newest": 2}, [4, 5]),
            ({"newest": 0}, []),
        ):
            found = store.search(replace(question, **more))
            assert found.passages[found.eligible].tolist() == expected, f"{more} selects something else"
            assert bool(found.nearest.max(initial=0) > 0) == bool(expected), "an excluded vector has a score"


def other_scopes_do_not_affect_scores(open_store: Opener, folder: Path) -> None:
    """Rows of another tenant do not change the scores."""
    mine = [make_message(f"alpha beta {'gamma ' * n}") for n in range(4)]
    question = make_query("alpha gamma missing")
    with use_store(open_store, folder / "alone") as store:
        store.add_messages(mine)
        alone = _scores(store.search(question))
    with use_store(open_store, folder / "shared") as store:
        theirs = replace(HERE, tenant="them")
        store.add_messages([make_message(f"gamma gamma alpha {n}", scope=theirs) for n in range(60)])
        store.add_messages(mine)
        store.add_messages([make_message(f"missing gamma {n}", scope=theirs) for n in range(60)])
        shared = _scores(store.search(question))
    assert np.allclose(alone, shared), "rows of another tenant changed the scores"


def _scores(found: Candidates) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.stack([found.keyword, found.share, found.together, found.session_keyword])


def nearest_vectors_score_highest(open_store: Opener, folder: Path) -> None:
    """The windows whose vectors are nearest to that of the query have the highest cosine, whenever they were added."""
    with use_store(open_store, folder) as store:
        store.add_messages([make_message(f"passage {n}") for n in range(MANY)])
        assert store.search(make_query(seed=1)).cosine is None
        store.add_vectors([vectors(n, [n]) for n in range(0, MANY, 2)])
        _check_nearest(store, MANY - 2)
        store.add_vectors([vectors(n, [n]) for n in range(1, MANY, 2)])
        _check_nearest(store, 7)
        store.add_vectors([vectors(7, [10_000])])
        _check_nearest(store, 7, seed=10_000)
    with use_store(open_store, folder) as store:
        _check_nearest(store, 7, seed=10_000)
        _check_nearest(store, MANY - 1)


def _check_nearest(store: Store, passage: int, *, seed: int | None = None) -> None:
    if seed is None:
        seed = passage
    found = store.search(make_query(seed=seed))
    assert found.cosine is not None
    assert found.passages[found.cosine.argmax()] == passage
    assert abs(found.cosine.max() - 1) < TOLERANCE
    assert abs(found.nearest.max() - 1) < TOLERANCE
    assert 0 < found.embedded_windows <= found.total_windows == MANY


def spaces_are_never_compared(open_store: Opener, folder: Path) -> None:
    """A query is never compared with vectors of another space, even if name or dimension are the same."""
    spaces = [MODEL, replace(MODEL, digest="d2"), replace(MODEL, name="other"), replace(MODEL, dimension=16)]
    with use_store(open_store, folder) as store:
        store.add_messages([make_message(f"passage {n}") for n in range(len(spaces))])
        for number, space in enumerate(spaces):
            store.add_vectors([vectors(number, [7], space=space)])
        for number, space in enumerate(spaces):
            cosine = store.search(make_query(seed=7, space=space)).cosine
            assert cosine is not None
            assert np.flatnonzero(cosine > 1 - TOLERANCE).tolist() == [number], (
                f"{space} was compared with another space"
            )


def threads_can_share_a_store(open_store: Opener, folder: Path) -> None:
    """Threads can add, search and read through one store at the same time; nothing is lost."""
    failures: list[BaseException] = []
    with use_store(open_store, folder) as store:
        threads = [Thread(target=_use, args=(store, n, failures)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert len(store.read_messages(Select(scope=HERE, across=True))) == 4 * 20


def _use(store: Store, thread: int, failures: list[BaseException]) -> None:
    scope = Scope(project=HERE.project, session=f"thread {thread}")
    try:
        for n in range(20):
            (number,) = store.add_messages([make_message(f"thread {word('turn', n)}", scope=scope)])
            found = store.search(make_query(word("turn", n), scope=scope))
            assert find_messages(found) == [number]
            assert len(found) == n + 1
    except BaseException as error:  # noqa: BLE001 - whatever broke is raised in the thread of the check
        failures.append(error)


def figures_are_added_up(open_store: Opener, folder: Path) -> None:
    """Usage and turns are added up by session and time, within one scope, and without forgotten messages."""
    other = replace(HERE, session="另一个")
    stranger = replace(HERE, tenant="stranger")
    report = {"total_tokens": 100, "whole_tokens": 400, "milliseconds": {"plan": 1.5, "recall": 2.0}, "user_message": 3}
    cut = {**report, "turn": 1, "changes": [{"kind": "trimmed"}, {"kind": "recalled"}], "failures": 1}
    lookup = {**report, "turn": 2, "changes": [], "lookups": 2}
    old = {"turn": 1, "total_tokens": 50, "changes": [], "milliseconds": {}}
    with use_store(open_store, folder) as store:
        rows: list[MessageRow] = []
        for number, scope in enumerate((HERE, HERE, other, stranger)):
            usage = Usage(input=10, output=5, cache_read=30, cache_write=1)
            row = make_message(f"reply {number} 答复", scope=scope)
            message = replace(row.message, role="assistant", model="模型-1", usage=usage, timestamp=number * 900_000)
            rows.append(replace(row, message=message))
        numbers = store.add_messages(rows)
        store.add_records(
            [
                Record(scope=HERE, kind="turn", key="1", data=cut, time=5),
                Record(scope=HERE, kind="reply", key="1", data={"milliseconds": 700, "message": numbers[0]}, time=6),
                Record(scope=HERE, kind="turn", key="2", data=lookup, time=900_005),
                Record(scope=HERE, kind="reply", key="2", data={"error": "429"}, time=900_006),
                Record(scope=other, kind="turn", key="1", data=old, time=900_007),
                Record(scope=other, kind="turn", key="broken", data={}, time=900_008),
            ]
        )
        while store.update_figures(HERE.tenant):
            pass
        here = Usage(input=20, output=10, cache_read=60, cache_write=2)
        (found,) = store.sum_usage(Period(scope=HERE, by="session"))
        assert found == UsageSum(scope=HERE, start=0, model="模型-1", replies=2, usage=here), f"{found}"
        by_time = store.sum_usage(Period(scope=HERE, across=True, since=900_000, until=1_800_001, by="quarter"))
        assert sorted(one.start for one in by_time) == [900_000, 1_800_000], f"{by_time}"
        assert {one.scope for one in store.sum_usage(Period(scope=HERE, across=True, by="session"))} == {HERE, other}
        (turns,) = store.sum_turns(Period(scope=HERE, by="session"))
        assert turns == TurnSum(
            scope=HERE,
            turns=2,
            sent=200,
            saved=600,
            cuts=1,
            recalls=1,
            followed=1,
            failures=1,
            refusals=1,
            assembling=7.0,
            replies=1,
            replying=700,
            last_time=900_005,
        ), f"{turns}"
        by_quarter = store.sum_turns(Period(scope=HERE, across=True, by="quarter"))
        quarters = {(each.scope, each.start): (each.turns, each.saved) for each in by_quarter}
        assert quarters == {(HERE, 0): (1, 300), (HERE, 900_000): (1, 300), (other, 900_000): (1, 0)}, f"{quarters}"
        (whole,) = store.sum_turns(Period(scope=HERE, across=True, by="all"))
        assert (whole.scope, whole.start, whole.turns) == (None, 0, 3), f"{whole}"
        (spent,) = store.sum_usage(Period(scope=HERE, across=True, by="all"))
        assert (spent.replies, spent.scope) == (3, None), f"{spent}"
        assert store.sum_turns(Period(scope=HERE, since=2**50, by="all")) == [], "the sum of no turns is none"
        assert {each.start for each in store.sum_turns(Period(scope=HERE, across=True, by="hour"))} == {0}
        (one, two) = store.read_turns(HERE, first=1, last=9)
        assert (one.turn, one.saved, one.replying, one.model) == (1, 300, 700, "模型-1"), f"{one}"
        assert (two.turn, two.is_refused, two.replying, two.usage) == (2, True, None, None), f"{two}"
        store.remove_messages(Select(scope=HERE, ids=(numbers[0],)))
        store.remove_records(Select(scope=other))
        store.update_figures(HERE.tenant)
        (found,) = store.sum_usage(Period(scope=HERE, by="session"))
        assert found.replies == 1, "the usage of a forgotten message is still counted"
        left = store.sum_turns(Period(scope=other, by="session"))
        assert left == [], "turns whose records are deleted are still counted"


def forgotten_messages_are_gone(open_store: Opener, folder: Path) -> None:
    """A removed message is in no row, passage, search result, vector or file. The other rows do not change."""
    with use_store(open_store, folder) as store, use_store(open_store, folder) as other:
        numbers = store.add_messages([make_message(f"plain words {n}") for n in range(600)])
        (secret,) = store.add_messages([make_message(f"the password is {CANARY}")])
        numbers += store.add_messages([make_message(f"more words {n}") for n in range(500)])
        store.add_vectors([vectors(n, [n]) for n in range(1101)])
        assert find_messages(other.search(make_query(CANARY, seed=600))) == [secret]
        assert store.remove_messages(Select(scope=HERE, ids=(secret,))) == 1
        for reader in (store, other):
            _check_gone(reader, secret, numbers)
        assert files_containing(folder, CANARY) == []
    with use_store(open_store, folder) as store:
        _check_gone(store, secret, numbers)
    assert files_containing(folder, CANARY) == []


def _check_gone(store: Store, secret: int, numbers: list[int]) -> None:
    evidence = store.search(make_query(CANARY, seed=600))
    assert find_messages(evidence) == [], "still found by its words"
    assert evidence.cosine is not None, "all vectors are lost"
    assert evidence.cosine.max() < SAME, "still found by its vector"
    assert store.read_messages(Select(scope=HERE, ids=(secret,))) == []
    passages = {passage.message for passage in store.read_passages(Select(scope=HERE))}
    assert secret not in passages | set(evidence.messages)
    found = [find_messages(store.search(make_query(text))) for text in ("words", "499")]
    rows = store.read_messages(Select(scope=HERE))
    assert [[row.id for row in rows], *found] == [numbers, numbers, [numbers[499], numbers[1099]]]


def forgotten_rows_are_not_imported_again(open_store: Opener, folder: Path) -> None:
    """Adding removed messages and facts again does not restore them; the same words in another message are new."""
    row = make_message(CANARY)
    known = fact("f1", CANARY)
    with use_store(open_store, folder) as store:
        number, _ = store.add_messages([row, make_message("a neighbour")])
        store.add_facts([known])
        store.remove_messages(Select(scope=HERE, ids=(number,)))
        store.remove_facts(Select(scope=HERE), keys=("f1",))
    with use_store(open_store, folder) as store:
        assert store.add_messages([row]) == store.add_facts([known]) == [0]
        assert texts(store) == ["a neighbour"]
        assert store.read_facts(Select(scope=HERE)) == []
        assert files_containing(folder, CANARY) == []
        elsewhere = replace(HERE, session="s2")
        assert all(store.add_messages([replace(row, scope=elsewhere)]) + store.add_facts([fact("f2", "something")]))
        assert texts(store, scope=elsewhere) == [CANARY]
        assert all(store.add_messages([replace(row, nonce="again")])), (
            "another message with the same words was not added"
        )
    with use_store(open_store, folder) as store:
        assert store.add_messages([row]) == [0]
        assert texts(store) == ["a neighbour", CANARY]


def numbers_are_not_reused(open_store: Opener, folder: Path) -> None:
    """A message that is added after another was removed gets a new number, and is found by it."""
    with use_store(open_store, folder) as store:
        (first,) = store.add_messages([make_message("to be forgotten")])
        store.remove_messages(Select(scope=HERE))
    with use_store(open_store, folder) as store:
        (second,) = store.add_messages([make_message("to be kept")])
        assert second > first
        assert find_messages(store.search(make_query("kept"))) == [second]
        (passage,) = store.read_passages(Select(scope=HERE))
        store.remove_messages(Select(scope=HERE))
        (third,) = store.add_messages([make_message("to be kept too")])
        assert find_messages(store.search(make_query("kept"))) == [third]
        assert store.add_vectors([vectors(passage.number, [1])]) == 0, "vectors of a forgotten passage were accepted"


def remove_respects_the_selection(open_store: Opener, folder: Path) -> None:
    """Removing messages respects scope, numbers and limit."""
    other = replace(HERE, session="s2")
    with use_store(open_store, folder) as store:
        numbers = store.add_messages([make_message(f"message {n}") for n in range(6)])
        store.add_messages([make_message("of the other session", scope=other)])
        assert store.remove_messages(Select(scope=HERE, limit=1)) == 1
        assert store.remove_messages(Select(scope=HERE, newest=True, limit=1)) == 1
        assert store.remove_messages(Select(scope=HERE, ids=(numbers[2],))) == 1
        assert store.remove_messages(Select(scope=other, ids=tuple(numbers))) == 0
        assert texts(store) == ["message 1", "message 3", "message 4"]
        left = len(texts(store, across=True))
        assert store.remove_messages(Select(scope=HERE, across=True)) == left
        assert texts(store, across=True) == []


def records_and_jobs_are_removed_individually(open_store: Opener, folder: Path) -> None:
    """Records and jobs can be removed one by one."""
    with use_store(open_store, folder) as store:
        store.add_records([Record(scope=HERE, kind="edit", key=key, data={}) for key in "abc"])
        job, _ = store.add_jobs([Job(scope=HERE, kind="embed", data={}), Job(scope=HERE, kind="embed", data={})])
        assert store.remove_records(Select(scope=HERE), keys=("b",)) == 1
        assert store.remove_jobs(Select(scope=HERE, ids=(job,))) == 1
    with use_store(open_store, folder) as store:
        assert [row.key for row in store.read_records(Select(scope=HERE))] == ["a", "c"]
        assert [row.id > job for row in store.read_jobs(Select(scope=HERE))] == [True]


CHECKS: Final[tuple[Check, ...]] = (
    *collect_checks(globals()),
    processes_can_share_a_store,
    acknowledged_writes_survive_a_kill,
)
"""Every check of a store."""


def check_store(open_store: Opener, folder: Path) -> None:
    """Run every check on a store, each in a separate folder; the first that fails raises AssertionError."""
    for check in CHECKS:
        place = folder / check.__name__
        place.mkdir(parents=True, exist_ok=True)
        run_check(check, open_store, place)
