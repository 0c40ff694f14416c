"""A window as a grid."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.charts import LOOKS, draw_grid, draw_legend, grid_to_json, make_cells
from holdfast.report import NAMES, Category


def parts(**tokens: int) -> list[Category]:
    """Parts of a window by name; an underscore is a blank."""
    return [Category(name=name.replace("_", " "), tokens=count) for name, count in tokens.items()]


@given(st.lists(st.integers(min_value=0, max_value=1_000_000), min_size=len(NAMES), max_size=len(NAMES)))
def test_the_cells_are_always_as_many_as_asked_for(tokens: list[int]) -> None:
    """Whatever the sizes are, and every part that is there has a cell of its own."""
    categories = [Category(name=name, tokens=count) for name, count in zip(NAMES, tokens, strict=True)]
    found = make_cells(categories, count=100)
    assert len(found) == (100 if any(tokens) else 0)
    assert {cell.category for cell in found} == {part.name for part in categories if part.tokens}
    assert all(0 <= cell.fullness <= 1 for cell in found)


def test_symbols_distinguish_parts_without_colours() -> None:
    """No two parts share one."""
    assert len({symbol for symbol, _ in LOOKS.values()}) == len(LOOKS) == len(NAMES)


def test_the_grid_has_its_rows_and_the_legend_its_shares() -> None:
    """Half of the window is half of the cells."""
    categories = parts(history=500, free=500)
    lines = draw_grid(make_cells(categories, count=40), columns=10)
    assert [line.plain for line in lines] == ["■ " * 10, "■ " * 10, "· " * 10, "· " * 10]
    assert draw_legend(categories, total=1000)[0].plain.split() == ["■", "history", "500", "50.0%"]


def test_an_unknown_part_is_drawn_too() -> None:
    """A part that a later version adds has a look."""
    assert draw_grid(make_cells(parts(skills=5), count=2), columns=2)[0].plain == "▪ ▪ "


def test_rows_as_data_have_the_names_of_claude_code() -> None:
    """Each square says what it shows and how full it is."""
    categories = parts(history=250, free=750)
    rows = grid_to_json(make_cells(categories, count=4), categories, columns=2)
    assert [len(row) for row in rows] == [2, 2]
    assert rows[0][0]["categoryName"] == "history"
    assert rows[0][0]["isFilled"]
    assert not rows[1][1]["isFilled"]
    assert rows[0][0]["percentage"] == 25.0
