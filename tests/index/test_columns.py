"""Columns: passages and windows as arrays that only grow."""

import numpy as np

from holdfast.index.columns import Columns, decode, encode
from support.passage_rows import PassageRow, append


def row(number: int, *, windows: tuple[int, ...] = (3,), previous: int = -1) -> PassageRow:
    """A passage that can be told from its number."""
    return PassageRow(
        message=100 + number,
        scope=number % 3,
        time=number * 10,
        previous=previous,
        human=number % 2 == 0,
        size=number + 1,
        window_lengths=windows,
    )


def filled(count: int) -> Columns:
    """So many passages; the n-th has one, two or three windows."""
    columns = Columns()
    for number in range(count):
        append(columns, row(number, windows=(5,) * (1 + number % 3), previous=max(-1, number - 3)))
    return columns


def test_what_is_appended_is_there() -> None:
    """Each passage stands at its number, each window at its own, whatever the size."""
    columns = filled(3000)
    assert (columns.passages, columns.windows) == (3000, 6000)
    assert columns["message"].tolist() == list(range(100, 3100))
    assert columns["length"][:4].tolist() == [5, 10, 15, 5]
    assert columns["first_window"][[2, 3, 2999]].tolist() == [3, 6, 5997]
    assert columns["passage"][3:7].tolist() == [2, 2, 2, 3]
    assert columns["alive"].all()


def test_blocks_make_the_same_columns() -> None:
    """Columns put together of encoded blocks are those that were appended one by one."""
    whole, blocks = filled(50), Columns()
    for start in range(0, 50, 10):
        part = Columns()
        for number in range(start, start + 10):
            append(part, row(number, windows=(5,) * (1 + number % 3), previous=max(-1, number - 3)))
        blocks.extend(decode(encode(part)))
    assert encode(blocks) == encode(whole)
    assert blocks["following"].tolist() == whole["following"].tolist()


def test_columns_can_be_cut_back() -> None:
    """Cut back to a number of passages, columns are as they were then, and grow from there."""
    columns = filled(50)
    columns.truncate(20)
    assert encode(columns) == encode(filled(20))
    columns.truncate(30)
    assert columns.passages == 20
    append(columns, row(20))
    assert columns["first_window"][20] == filled(20).windows


def test_a_snapshot_does_not_grow() -> None:
    """A snapshot stays as it was, also when the arrays behind it are replaced by larger ones."""
    columns = filled(1020)
    before = columns.snapshot()
    kept = encode(before)
    for number in range(3000):
        append(columns, row(number))
    assert encode(before) == kept
    assert len(before["passage"]) == before.windows


def test_the_next_passage_of_a_session_is_known() -> None:
    """What follows is the other way round of what came before."""
    columns = filled(5)
    before = columns.snapshot()
    for number in (5, 6, 7):
        append(columns, row(number, previous=max(-1, number - 3)))
    numbers = np.arange(8)
    assert columns.find_neighbours(numbers, "following").tolist() == [3, 4, 5, 6, 7, -1, -1, -1]
    assert columns.find_neighbours(numbers, "previous").tolist() == [-1, -1, -1, 0, 1, 2, 3, 4]
    assert columns.find_neighbours(np.array([-1, 0]), "following").tolist() == [-1, 3]
    assert before.find_neighbours(np.arange(5), "following").tolist() == [3, 4, -1, -1, -1]


def test_no_columns_are_fine() -> None:
    """Empty columns encode, decode and answer like any others."""
    columns = Columns()
    columns.extend(decode(encode(Columns())))
    assert (columns.passages, columns.windows) == (0, 0)
    assert columns.find_neighbours(np.zeros(0, np.int64), "following").tolist() == []
    assert columns["time"].dtype == np.int64
