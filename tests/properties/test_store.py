"""After any operations in any order, a store has what a plain list would have, and shows it only to its owner."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from benchmarks.scopes import crossings
from holdfast import providers
from holdfast.memory import archive
from holdfast.messages import Message
from holdfast.store.base import MessageRow, Scope, Select, Store, VectorRow
from holdfast.store.codec import decode_message, decode_words, encode_message, words
from holdfast.store.sqlite import SqliteStore
from holdfast.store.upkeep import check
from holdfast.testing.rows import MODEL, add_canaries, files_containing, find_messages, make_message, make_query, word
from support.stores import open_files, open_sqlite
from support.strategies import anthropic, chat, examples, messages, pi, responses

SCOPES = [Scope(tenant=tenant, session=session) for tenant in ("a", "b") for session in ("1", "2")]
WORDS = [word("thing", number) for number in range(6)]
OTHER = replace(MODEL, digest="another")

FORMS = {"anthropic": anthropic(), "openai_chat": chat(), "openai_responses": responses(), "pi": pi()}

scopes = st.sampled_from(SCOPES)
bodies = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
batches = st.lists(st.tuples(scopes, bodies, st.sampled_from(["", "twin"])), max_size=5)


class StoreMachine(RuleBasedStateMachine):
    """A store and a model of it: the rows that were kept, by number, and what was forgotten."""

    opener: Callable[[Path], Store]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-property-"))
        self.kept: dict[int, tuple[Scope, str, str]] = {}
        self.forgotten: set[tuple[Scope, str, str]] = set()
        self.given: set[int] = set()

    @initialize()
    def open(self) -> None:
        """Open it twice."""
        self.stores = [type(self).opener(self.folder), type(self).opener(self.folder)]

    @rule(batch=batches, which=st.integers(0, 1), bulk=st.sampled_from([0, 0, 0, 300]))
    def add(self, batch: list[tuple[Scope, str, str]], which: int, bulk: int) -> None:
        """I6, I13: a known message keeps its number, a forgotten one stays out, and any other gets a new number."""
        filler = [(SCOPES[0], f"{word('bulk', len(self.given) * 1000 + n)}", "") for n in range(bulk)]
        rows = [make_message(text, scope=scope, nonce=nonce) for scope, text, nonce in [*batch, *filler]]
        numbers = self.stores[which].add_messages(rows)
        known = {key: number for number, key in self.kept.items()}
        for key, number in zip([*batch, *filler], numbers, strict=True):
            if key in self.forgotten:
                assert number == 0
            elif key in known:
                assert number == known[key]
            else:
                assert number not in self.given
                known[key], self.kept[number] = number, key
                self.given.add(number)

    @rule(scope=scopes, which=st.integers(0, 1), data=st.data())
    def forget(self, scope: Scope, which: int, data: st.DataObject) -> None:
        """I13: what is forgotten is in no file, no row and no search result."""
        mine = sorted(number for number, key in self.kept.items() if key[0] == scope)
        if not mine:
            return
        gone = data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=3, unique=True))
        assert self.stores[which].remove_messages(Select(scope=scope, ids=tuple(gone))) == len(gone)
        for number in gone:
            _, text, _ = key = self.kept.pop(number)
            self.forgotten.add(key)
            if not any(text in other for _, other, _ in self.kept.values()):
                assert files_containing(self.folder, text) == []

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        """After it is opened again, it is the same."""
        self.stores[which].close()
        self.stores[which] = type(self).opener(self.folder)

    @rule(scope=scopes, across=st.booleans(), asked=st.sampled_from(WORDS), which=st.integers(0, 1))
    def match(self, scope: Scope, across: bool, asked: str, which: int) -> None:  # noqa: FBT001 - drawn
        """I9: both find exactly the visible messages that contain a word."""
        expected = [
            number
            for number, (owner, text, _) in sorted(self.kept.items())
            if (owner == scope or (across and owner.tenant == scope.tenant)) and asked in text.split()
        ]
        assert find_messages(self.stores[which].search(make_query(asked, scope=scope, across=across))) == expected

    @invariant()
    def the_archive_is_what_was_kept(self) -> None:
        """I1, I9: every scope reads back its own messages, unchanged, in order, and no others."""
        if not hasattr(self, "stores"):
            return
        for scope in SCOPES:
            rows = self.stores[0].read_messages(Select(scope=scope))
            expected = [(number, key[1]) for number, key in sorted(self.kept.items()) if key[0] == scope]
            assert [(row.id, row.message.text) for row in rows] == expected

    def teardown(self) -> None:
        """Delete everything."""
        for store in getattr(self, "stores", []):
            store.close()
        path = self.folder / "store.db"
        sound = not path.exists() or check(path).sound
        shutil.rmtree(self.folder)
        assert sound


class SqliteMachine(StoreMachine):
    """The embedded store."""

    opener = staticmethod(open_sqlite)


class FilesMachine(StoreMachine):
    """A memory-context folder."""

    opener = staticmethod(open_files)


LIMITS = settings(
    max_examples=examples(12), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = LIMITS
TestFiles = FilesMachine.TestCase
TestFiles.settings = LIMITS


@pytest.mark.parametrize("opener", [open_sqlite, open_files])
def test_canaries_are_never_seen_from_another_scope(opener: Callable[[Path], Store], tmp_path: Path) -> None:
    """I9: no read path, chosen at random, shows a row of another scope."""
    store = opener(tmp_path)
    try:
        assert crossings(store, add_canaries(store), reads=300, seed=3) == 0
    finally:
        store.close()


@given(message=messages())
@settings(max_examples=examples(300), deadline=None)
def test_any_message_survives_the_archive(message: Message) -> None:
    """I1: any message comes back the same, and renders the same for every provider."""
    kept = decode_message(encode_message(message))
    assert decode_words(encode_message(message)) == words(message)
    assert kept == message
    assert kept.digest == message.digest
    for name in providers.FORMATS:
        assert providers.render([kept], name) == providers.render([message], name)


@given(data=st.data(), name=st.sampled_from(sorted(FORMS)))
@settings(max_examples=examples(200), deadline=None)
def test_any_providers_message_survives_the_archive(data: st.DataObject, name: str) -> None:
    """I1: a message of a provider comes back byte for byte, masked or not; masking never fails."""
    wire = data.draw(FORMS[name])
    (message,) = providers.read([wire], format=name)
    kept = decode_message(encode_message(message))
    assert decode_words(encode_message(message)) == words(message)
    assert kept == message
    assert providers.render([kept], name) == providers.render([message], name) == [wire]
    masked = archive.mask(message)
    assert decode_message(encode_message(masked)) == masked


@given(conversation=st.lists(messages(), max_size=4))
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_messages_survive_a_store(conversation: list[Message], tmp_path_factory: pytest.TempPathFactory) -> None:
    """I1, I6: every message is stored as it was sent; sending it again adds nothing."""
    path = tmp_path_factory.mktemp("store") / "store.db"
    rows = [MessageRow(scope=SCOPES[0], message=message, nonce=f"{n}") for n, message in enumerate(conversation)]
    with SqliteStore(path) as store:
        numbers = store.add_messages(rows)
        assert store.add_messages(rows) == numbers
    with SqliteStore(path) as store:
        kept = store.read_messages(Select(scope=SCOPES[0]))
        assert [(row.id, row.message) for row in kept] == list(zip(numbers, conversation, strict=True))


@given(placed=st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 5)), max_size=15))
@settings(max_examples=examples(30), deadline=None)
def test_spaces_never_meet(placed: list[tuple[int, bool, int]]) -> None:
    """I12: a question in one space is only compared with vectors of that space, the last ones of each passage."""
    spaces = (MODEL, OTHER)
    model: dict[tuple[int, int], int] = {}
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder) / "store.db") as store:
        store.add_messages([make_message(f"passage {n}", scope=SCOPES[0]) for n in range(10)])
        for passage, which, seed in placed:
            store.add_vectors([_basis(passage, spaces[which], seed)])
            model[int(which), passage] = seed
        for owner, space in enumerate(spaces):
            for seed in range(6):
                question = replace(make_query(scope=SCOPES[0], space=space), vector=np.eye(8, dtype=np.float32)[seed])
                cosine = store.search(question).cosine
                alike = [] if cosine is None else np.flatnonzero(cosine > 0.5).tolist()
                assert alike == sorted(passage for (of, passage), at in model.items() if (of, at) == (owner, seed))


def _basis(passage: int, space: Any, seed: int) -> VectorRow:
    return VectorRow(space=space, passage=passage, vectors=(np.eye(8, dtype=np.int8)[seed] * 127).reshape(1, 8))
