"""Entries in a tree: moves, side entries, unknown types, and what cannot be linked."""

from holdfast.transcripts.entry import Entry
from holdfast.transcripts.records import read_entry
from holdfast.transcripts.session import Tree
from support.session_files import entry, rebuild, user


def texts(entries: list[Entry]) -> list[str]:
    """What the model sees where the entries stand."""
    return [message.text for message in rebuild(entries).messages]


def test_leaf_entry_moves_the_conversation() -> None:
    """A leaf entry shows its target's path, and is none of it; null shows nothing."""
    entries = [user("1", None), user("2", "1"), entry("leaf", "3", "2", targetId="1")]
    assert texts(entries) == ["1"]
    assert texts([*entries, entry("leaf", "4", "3", targetId=None)]) == []


def test_what_hangs_on_a_leaf_entry_follows_its_target() -> None:
    """A writer that does not know moves appends to the move itself; the target is what it answers to."""
    entries = [user("1", None), user("2", "1"), entry("leaf", "3", "2", targetId="1"), user("4", "3")]
    assert texts(entries) == ["1", "4"]


def test_leaf_entry_with_a_cursor_of_its_own() -> None:
    """An entry hung on the cursor that a move names answers to the visible leaf."""
    entries = [
        user("1", None),
        user("2", "1"),
        entry("leaf", "3", "2", targetId="1", appendParentId="2"),
        user("4", "2"),
    ]
    assert texts(entries) == ["1", "4"]
    assert texts([*entries[:3], user("4", "1")]) == ["1", "4"]


def test_leaf_entry_to_another_move() -> None:
    """A move to a move leads to where that one led."""
    entries = [user("1", None), user("2", "1"), entry("leaf", "3", "2", targetId="1"), user("4", "1")]
    assert texts([*entries, entry("leaf", "5", "4", targetId="3")]) == ["1"]


def test_leaf_entry_that_points_nowhere() -> None:
    """A move to an unknown, later or missing target is ignored, and what hangs on it is reachable."""
    for target in (
        {"targetId": "zz"},
        {"targetId": "4"},
        {},
        {"targetId": 5},
        {"targetId": "1", "appendParentId": "zz"},
    ):
        tree = Tree([user("1", None), user("2", "1")])
        assert "ignored" in (tree.add(entry("leaf", "3", "2", **target)) or "")
        assert tree.leaf == "2"
        tree.add(user("4", "3"))
        assert [entry.id for entry in tree.path("4")] == ["1", "2", "4"]
        assert tree.add(entry("leaf", "5", "4", targetId="3")) is not None


def test_side_entries() -> None:
    """A side entry moves the cursor and not the leaf: what is hung on it answers to the leaf."""
    entries = [
        user("1", None),
        entry("message", "2", "1", appendMode="side", message={"role": "user", "content": "aside"}),
    ]
    assert texts(entries) == ["1"]
    assert texts([*entries, user("3", "2")]) == ["1", "3"]


def test_unknown_types() -> None:
    """An unknown entry is kept: it moves the cursor and not the leaf, and what hangs on it is seen."""
    entries = [user("1", None), entry("telemetry", "2", "1")]
    tree = Tree(entries)
    assert (tree.leaf, tree.cursor) == ("1", "2")
    assert texts([*entries, user("3", "2")]) == ["1", "3"]


def test_entries_without_a_parent_field() -> None:
    """A known entry that states no parent follows the leaf; an unknown one stands alone."""
    loose = [
        read_entry({"type": "message", "id": "2", "message": {"role": "user", "content": "2"}}, 2),
        read_entry({"type": "telemetry", "id": "3"}, 3),
    ]
    tree = Tree([user("1", None), *loose])
    assert (tree.leaf, tree.cursor) == ("2", "2")
    assert [entry.id for entry in tree.path("2")] == ["1", "2"]


def test_entries_that_cannot_be_linked() -> None:
    """An entry without an id, or with one that is taken, is reported and is no part of the tree."""
    tree = Tree([user("1", None)])
    assert "without an id" in (tree.add(read_entry({"type": "message"}, 2)) or "")
    assert "taken by line 1" in (tree.add(user("1", None)) or "")
    assert tree.leaf == "1"
