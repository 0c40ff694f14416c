"""The protocol of a database with Holdfast's tables: a SQLite file, or one tenant's part of a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # rows are read and written without numpy
    from holdfast.embed.base import Space
    from holdfast.index.columns import Columns
    from holdfast.index.vectors import Matrix


class Rows(Protocol):
    """The rows of a statement. All waiting statements are sent to a server when the rows of one are read."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """Runs statements, with `?` for each value.

    Attributes:
        own: The condition on the tenant that every statement has, with `AND` after it; empty if the rows of all tenants
            are numbered together.
        fixed: The parts of a scope that all rows have in common, so that the tables have no columns for them.
        first_passage: Added to the number of a passage, so that it differs from those of other tenants.
        max_loaded_windows: With this many windows or more, vectors are not loaded, but left to `open_matrix`.
    """

    own: str
    fixed: Mapping[str, str]
    first_passage: int
    max_loaded_windows: int

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows at once."""

    def insert_numbered(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Insert rows that get a number, and return the numbers."""

    def last_number(self, table: str) -> int:
        """Return the last number that was given to a row of a table; 0 before the first."""

    def skip_numbers(self, table: str, last: int) -> None:
        """Give new rows of a table only numbers above `last`."""

    def each(self, numbers: Sequence[int]) -> tuple[str, object]:
        """Return a table of numbers, its column named `value`, and the value of its `?`."""

    def among(self, column: str, wanted: Sequence[int] | Sequence[str] | Sequence[bytes]) -> tuple[str, list[object]]:
        """Return the condition that a column is one of some values, and the values of its `?`."""

    def find_vectors(self, space: Space, *, after: Mapping[str, int]) -> Mapping[str, Rows]:
        """Select vectors of a space by table: number of the row, first passage, and the vectors of its windows.

        Only rows with a higher number than `after` has for the table, in ascending order.
        """

    def open_vectors(self, space: Space) -> tuple[Matrix, dict[str, int]]:
        """Return the vectors of a space that need not be read, and for each table the last row that they include."""

    def open_matrix(
        self, space: Space, columns: Columns, scopes: Sequence[int] | None, known: Matrix | None
    ) -> Matrix | None:
        """Return vectors that stay in the database; None if there are none.

        `scopes` are those of the reader, None for all. `known` is what this returned for the last search.
        """

    def wipe_vectors(self, passages: Sequence[int]) -> None:
        """Erase the vectors of forgotten passages (in ascending order), in every space."""

    def drop_vectors(self, passages: Sequence[int]) -> None:
        """Delete the vectors of passages whose windows have changed, so that they are made again."""
