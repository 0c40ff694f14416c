"""What the recorded turns and edits of a session say about it, if some of them are not read or cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from msgspec import structs

from holdfast import Engine
from holdfast.context.edits import EDIT, Change, Edit, Forgotten, Pruned, Restored, Trimmed, to_json
from holdfast.server.inspector.past import Past, Pasts
from holdfast.store.base import Record, Scope, Store
from holdfast.timeline import WHOLE_TURNS, WINDOW, PastEdit, PastTurn, WindowSource

SCOPE = Scope(session="s")


def make_turn(number: int, *, edits: tuple[int, int], base: str = "", added: tuple[int, ...] = ()) -> PastTurn:
    """Return a turn that made the edits from one number up to another."""
    source = WindowSource(
        base=base,
        kept=0,
        added=added,
        system=(),
        edits=edits,
        limit=1000,
        provider="anthropic",
        window=1000,
        sizes=(),
        changes=(),
        quoted=(),
    )
    return PastTurn(record=number, key=str(number), number=number, time=0, source=source)


def make_edit(number: int, change: Change | None, *ids: int) -> PastEdit:
    """Return an edit of some messages; without a change, it cannot be read."""
    edit = None
    if change is not None:
        edit = Edit(change=change, ids=ids, reason="", tokens_before=9, tokens_after=0)
    return PastEdit(record=number, number=number, time=0, edit=edit)


TRIMMED = Trimmed(limit=1000)
FIRST = make_turn(1, edits=(0, 2), added=(1, 2, 3))
SECOND = make_turn(2, edits=(2, 5), base="1", added=(4,))
THIRD = make_turn(3, edits=(5, 6), base="2", added=(5,))


def test_messages_of_a_whole_history_are_new_in_it_only_if_all_turns_are_known() -> None:
    """Most of them were sent before, in turns that were not read."""
    turns = (FIRST, SECOND)
    assert Past(scope=SCOPE, turns=turns).first_turns == {1: 1, 2: 1, 3: 1, 4: 2}
    late = (make_turn(7, edits=(0, 2), added=(1, 2, 3)), make_turn(8, edits=(2, 2), base="7", added=(4,)))
    assert Past(scope=SCOPE, turns=late, is_whole=False).first_turns == {4: 8}


def test_a_message_that_is_sent_again_is_not_new_if_earlier_turns_are_not_known() -> None:
    """A client that goes back, and to the later branch again, adds what it had taken back."""
    whole = make_turn(7, edits=(0, 0), added=(1, 2, 3))
    back = make_turn(8, edits=(0, 0), base="7", added=(4,))
    again = make_turn(9, edits=(0, 0), base="8", added=(2, 3, 5))
    some = Past(scope=SCOPE, turns=(whole, back, again), is_whole=False)
    assert some.first_turns == {4: 8, 5: 9}
    assert not some.has(message=3)
    early = Past(scope=SCOPE, turns=(again,), around=(back,), is_whole=False)
    assert early.first_turns == {5: 9}


def test_the_edits_of_a_turn_are_found_among_others() -> None:
    """What was forgotten later has no number, some cannot be read, and others belong to other turns."""
    edits = (
        make_edit(0, TRIMMED, 1),
        make_edit(2, TRIMMED, 2),
        make_edit(3, None),
        make_edit(-1, Forgotten(), 9),
        make_edit(4, TRIMMED, 3),
        make_edit(5, TRIMMED, 4),
        make_edit(-1, Forgotten(), 8),
    )
    past = Past(scope=SCOPE, turns=(FIRST, SECOND, THIRD), edits=edits)
    assert [one.number for one in past.edits_of(FIRST)] == [0]
    assert [one.number for one in past.edits_of(SECOND)] == [2, 4]
    assert [one.number for one in past.edits_of(THIRD)] == [5]


def test_what_left_before_an_edit_does_not_depend_on_later_ones() -> None:
    """Neither on those that cannot be read."""
    edits = (
        make_edit(0, TRIMMED, 1, 2),
        make_edit(1, None),
        make_edit(2, Restored(), 1),
        make_edit(3, TRIMMED, 3),
        make_edit(4, Pruned(part=0, keep=(), note="", limit=None), 4),
    )
    past = Past(scope=SCOPE, turns=(FIRST, SECOND), edits=edits)
    assert past.cuts_before(2) == {1: 0, 2: 0}
    assert past.cuts_before(3) == {2: 0}
    assert past.cuts_before(4) == {2: 0, 3: 3}
    assert past.pruned_before(4) == {}
    assert past.pruned_before(5) == {4: edits[4]}


def test_an_edit_that_cannot_be_read_is_no_cut_that_can_be_undone() -> None:
    """The one before it is the last."""
    edits = (make_edit(0, TRIMMED, 1), make_edit(2, TRIMMED, 2), make_edit(5, None))
    assert Past(scope=SCOPE, turns=(FIRST, SECOND, THIRD), edits=edits).last_cut_turn == 2
    restored = (*edits, make_edit(5, Restored(), 2))
    assert Past(scope=SCOPE, turns=(FIRST, SECOND, THIRD), edits=restored).last_cut_turn == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LongPast:
    """A store with a session of 5,200 turns, each with one new message of its number, and all that is recorded."""

    store: Store
    whole: Past


@pytest.fixture(scope="module")
def long_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongPast]:
    """Rows as the turns would write them, and those of another session between them."""
    with Engine.open(tmp_path_factory.mktemp("long"), background=False) as engine:
        store = engine._memory.store
        scope = Scope(session="long")
        source = make_turn(1, edits=(0, 0)).source
        records: list[Record] = []
        for turn in range(1, 5_201):
            is_whole = turn == 1 or turn % WHOLE_TURNS == 0
            made = structs.replace(
                source,
                base="" if is_whole else f"{turn - 1:08d}:x",
                kept=0 if is_whole else turn - 1,
                added=tuple(range(1, turn + 1)) if is_whole else (turn,),
                edits=((turn - 1) // 8, turn // 8),
            )
            data = structs.asdict(made)
            records.append(Record(scope=scope, kind=WINDOW, key=f"{turn:08d}:x", data=data, time=turn))
            if turn % 3 == 0:
                records.append(
                    Record(scope=Scope(session="other"), kind=WINDOW, key=f"{turn:08d}:y", data=data, time=1)
                )
            if turn % 8 == 0:
                edit = to_json(
                    Edit(change=Trimmed(limit=8_000), ids=(turn - 7,), reason="oldest", tokens_before=9, tokens_after=0)
                )
                records.append(Record(scope=scope, kind=EDIT, key=f"{turn // 8 - 1:08d}", data=edit, time=turn))
        store.add_records(records)
        yield LongPast(store=store, whole=Pasts(store).read(scope))


class TestReadSome:
    """Of a session with thousands of turns, only those that a page needs."""

    @pytest.mark.parametrize("turn", [1, 2, 999, 1_000, 1_001, 1_700, 2_500, 3_990])
    def test_an_early_turn_is_read_without_most_others(self, turn: int, long_past: LongPast) -> None:
        """Its history and the makers of its edits are those of the whole past; what was not read is not guessed."""
        some = Pasts(long_past.store, max_newest=1_010).read_some(long_past.whole.scope, turn=turn)
        assert not some.is_whole
        assert len(some.around) <= 1_010
        for number in {turn, max(1, turn - 1)}:
            found = some.find_turn(number)
            assert found is not None
            assert found == long_past.whole.find_turn(number)
            assert some.histories.read(found.key) == long_past.whole.histories.read(found.key)
            assert some.edits_of(found) == long_past.whole.edits_of(found)
        for edit in long_past.whole.edits:
            assert some.find_turn_of(edit.number) in {None, long_past.whole.find_turn_of(edit.number)}

    @pytest.mark.parametrize("message", [1, 2, 1_000, 1_001, 2_500, 5_100])
    def test_an_early_message_is_read_without_most_turns(self, message: int, long_past: LongPast) -> None:
        """The turn that sent it first is known, and so is the last one."""
        some = Pasts(long_past.store, max_newest=1_010).read_some(long_past.whole.scope, message=message)
        assert some.first_turns[message] == long_past.whole.first_turns[message] == message
        assert some.last == long_past.whole.last
        assert some.is_whole == (message == 1_000)  # it was sent with a whole history

    def test_the_last_turn_is_read_without_most_others(self, long_past: LongPast) -> None:
        """Also if fewer turns are read than were recorded since the last one with a whole history."""
        for max_newest in (150, 600):
            some = Pasts(long_past.store, max_newest=max_newest).read_some(long_past.whole.scope)
            assert not some.is_whole
            for turn in some.turns[-2:]:
                assert some.histories.read(turn.key) == long_past.whole.histories.read(turn.key)

    def test_a_message_that_was_never_sent_has_no_turn(self, long_past: LongPast) -> None:
        """All turns are read before that is said."""
        some = Pasts(long_past.store, max_newest=1_010).read_some(long_past.whole.scope, message=9_999)
        assert some.is_whole
        assert 9_999 not in some.first_turns
