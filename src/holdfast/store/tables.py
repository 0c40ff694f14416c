"""The operations that every store with tables has, whatever database holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from holdfast.errors import StorageError
from holdfast.index.database import Database
from holdfast.store import rows as tables
from holdfast.store.base import (
    FactRow,
    Job,
    Kind,
    Known,
    MessageRow,
    PassageText,
    Record,
    Scope,
    SearchQuery,
    Select,
    VectorRow,
)
from holdfast.store.codec import DAMAGE
from holdfast.store.rows import RowReader

if TYPE_CHECKING:
    from holdfast.search.candidates import Candidates

# The index is imported where it is used: messages and facts are read without numpy.

T = TypeVar("T")
R = TypeVar("R", bound=FactRow | Job | MessageRow | Record)


class TableStore(ABC):
    """A store with tables. Safe to use from several threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def place(self) -> str:
        """The file or address, as messages name it."""

    @property
    def progress(self) -> str:
        """Nothing: what is stored is indexed."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Make the writes of a block one."""

    @abstractmethod
    def _add(self, rows: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        """Add rows in one transaction; return their numbers."""

    @abstractmethod
    def change_rows(self, tenant: str, work: Callable[[Database], T]) -> T:
        """Change rows of a tenant in one transaction."""

    @abstractmethod
    def read_rows(self, tenant: str, work: Callable[[RowReader], T]) -> T:
        """Read rows of a tenant, as of one moment."""

    @abstractmethod
    def tenants(self) -> list[str]:
        """List the tenants that have rows."""

    @abstractmethod
    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Remove rows for good."""

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages."""
        return self._add(rows, tables.add_messages)

    def merge_messages(
        self, scope: Scope, digests: Sequence[str], make_rows: Callable[[Known], Sequence[MessageRow]], /
    ) -> list[int]:
        """Store the messages that `make_rows` returns for what `find` returns."""

        def work(db: Database) -> list[int]:
            return tables.add_messages(db, make_rows(tables.find_messages(db, scope, digests)))

        return self.change_rows(scope.tenant, work)

    def add_facts(self, rows: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts."""
        return self._add(rows, tables.add_facts)

    def add_records(self, rows: Sequence[Record], /) -> list[int]:
        """Store records, each in place of the record of the same kind and key."""
        return self._add(rows, partial(tables.add_records, place=self.place))

    def add_jobs(self, rows: Sequence[Job], /) -> list[int]:
        """Store jobs."""
        return self._add(rows, tables.add_jobs)

    def set_flags(self, select: Select, /, *, pinned: bool | None = None, excluded: bool | None = None) -> int:
        """Set the flags of messages that are not None."""
        return self.change_rows(
            select.scope.tenant, lambda db: tables.set_flags(db, select, pinned=pinned, excluded=excluded)
        )

    @abstractmethod
    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        """Read messages that the reader may see, oldest first."""
        return self.read_rows(select.scope.tenant, lambda rows: rows.read("message", select))

    def read_passages(self, select: Select, /) -> list[PassageText]:
        """Read passages that the reader may see, oldest first."""
        return self.read_rows(select.scope.tenant, lambda rows: rows.read("passage", select))

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read versions of facts that the reader may see, oldest first."""
        return self.read_rows(select.scope.tenant, lambda rows: rows.read("fact", select, keys=keys))

    def read_records(
        self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Record]:
        """Read records that the reader may see, oldest first."""
        return self.read_rows(select.scope.tenant, lambda rows: rows.read("record", select, name=kind, keys=keys))

    def read_jobs(self, select: Select, /, *, kind: str | None = None) -> list[Job]:
        """Read jobs that the reader may see, oldest first."""
        return self.read_rows(select.scope.tenant, lambda rows: rows.read("job", select, name=kind))

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return what a session knows of the messages with these digests."""
        return self.read_rows(scope.tenant, lambda rows: tables.find_messages(rows.db, scope, digests))

    def search(self, query: SearchQuery, /) -> Candidates:
        """Find the passages that are most promising by words and by vector, and those beside them."""
        from holdfast.index.reader import Index  # noqa: PLC0415 - see above

        def work(rows: RowReader) -> Candidates:
            try:
                rows.index = rows.index or Index()
                return rows.index.search(rows.db, rows.scopes, query)
            except DAMAGE as error:
                raise StorageError(
                    "the index is damaged. Run `holdfast reindex`: no message is lost.", path=self.place
                ) from error

        return self.read_rows(query.scope.tenant, work)

    def remove_messages(self, select: Select, /) -> int:
        """Forget messages for good, with passages and vectors: from tables, index and log."""
        return self._remove("message", select)

    def remove_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> int:
        """Forget facts for good, from tables and log."""
        return self._remove("fact", select, keys=keys)

    def remove_records(self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Delete records."""
        return self._remove("record", select, name=kind, keys=keys)

    def remove_jobs(self, select: Select, /) -> int:
        """Delete jobs."""
        return self._remove("job", select)
