"""What the recorded turns and edits of a session say about it, if some of them are not read or cannot be."""

from __future__ import annotations

from holdfast.context.edits import Change, Edit, Forgotten, Pruned, Restored, Trimmed
from holdfast.server.inspector.past import Past
from holdfast.store.base import Scope
from holdfast.timeline import PastEdit, PastTurn, WindowSource

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
    assert Past(scope=SCOPE, turns=turns, is_whole=False).first_turns == {4: 2}


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
    assert past.shortened_before(4) == {}
    assert past.shortened_before(5) == {4: edits[4]}


def test_an_edit_that_cannot_be_read_is_no_cut_that_can_be_undone() -> None:
    """The one before it is the last."""
    edits = (make_edit(0, TRIMMED, 1), make_edit(2, TRIMMED, 2), make_edit(5, None))
    assert Past(scope=SCOPE, turns=(FIRST, SECOND, THIRD), edits=edits).last_cut_turn == 2
    restored = (*edits, make_edit(5, Restored(), 2))
    assert Past(scope=SCOPE, turns=(FIRST, SECOND, THIRD), edits=restored).last_cut_turn == 1
