"""The operations that a store with tables has, whatever database holds them.

Each operation is one transaction in which functions of `rows`, `adding`, `forgetting` and `holdfast.index` work on a
`Database`. A subclass connects, and runs the transactions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from holdfast.errors import StorageError
from holdfast.index.database import Database
from holdfast.store import adding, figures, rows
from holdfast.store.base import (
    Across,
    FactRow,
    Job,
    Kind,
    Known,
    MessageRow,
    PassageText,
    Period,
    Record,
    Scope,
    SearchQuery,
    Select,
    SessionSpan,
    TurnFigures,
    TurnSum,
    TypedRecord,
    UsageSum,
    VectorRow,
)
from holdfast.store.codec import DAMAGE
from holdfast.store.rows import Tables

if TYPE_CHECKING:
    from holdfast.search.candidates import Candidates

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", bound=FactRow | Job | MessageRow | Record)


class TableStore(ABC):
    """A store with tables. Safe to use from several threads."""

    readonly: bool
    has_figures = True

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

    # --- transactions ---------------------------------------------------------------

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Make the writes of a block one."""

    @abstractmethod
    def read(self, tenant: str, work: Callable[Concatenate[Tables, P], T], /, *args: P.args, **values: P.kwargs) -> T:
        """Call a function with the tables of a tenant, as of one moment, and return its result.

        It may be called again after a lost connection.
        """

    @abstractmethod
    def write(self, tenant: str, work: Callable[Concatenate[Tables, P], T], /, *args: P.args, **values: P.kwargs) -> T:
        """Call a function that changes the tables of a tenant in one transaction, and return its result.

        It may be called again after a lost connection.
        """

    @abstractmethod
    def _add(self, new: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        """Add rows of any tenants in one transaction; return their numbers."""

    @abstractmethod
    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Remove rows for good; return their number."""

    @abstractmethod
    def tenants(self) -> list[str]:
        """List the tenants that have rows."""

    # --- writing --------------------------------------------------------------------

    def add_messages(self, new: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages."""
        return self._add(new, adding.add_messages)

    def merge_messages(
        self, scope: Scope, digests: Sequence[str], make_rows: Callable[[Known], Sequence[MessageRow]], /
    ) -> list[int]:
        """Store the messages that `make_rows` returns for what `find` returns."""

        def merge(db: Tables) -> list[int]:
            known = rows.find_messages(db, scope, digests)
            return adding.add_messages(db, make_rows(known))

        return self.write(scope.tenant, merge)

    def add_facts(self, new: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts."""
        return self._add(new, adding.add_facts)

    def add_records(self, new: Sequence[Record], /) -> list[int]:
        """Store records, each in place of the record of the same kind and key."""
        return self._add(new, partial(adding.add_records, place=self.place))

    def add_jobs(self, new: Sequence[Job], /) -> list[int]:
        """Store jobs."""
        return self._add(new, adding.add_jobs)

    @abstractmethod
    def add_vectors(self, new: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""

    def set_flags(self, select: Select, /, *, pinned: bool | None = None, excluded: bool | None = None) -> int:
        """Set the flags of messages that are not None."""
        return self.write(select.scope.tenant, adding.set_flags, select, pinned=pinned, excluded=excluded)

    # --- reading --------------------------------------------------------------------

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return the archived messages of a session with these digests."""
        return self.read(scope.tenant, rows.find_messages, scope, digests)

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        """Read messages that the reader may see, oldest first."""
        return self.read(select.scope.tenant, rows.read_messages, select)

    def read_passages(self, select: Select, /) -> list[PassageText]:
        """Read passages that the reader may see, oldest first."""
        return self.read(select.scope.tenant, rows.read_passages, select)

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read versions of facts that the reader may see, oldest first."""
        return self.read(select.scope.tenant, rows.read_facts, select, keys=keys)

    def read_records(
        self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Record]:
        """Read records that the reader may see, oldest first."""
        return self.read(select.scope.tenant, rows.read_records, select, name=kind, keys=keys)

    def read_typed_records(self, select: Select, /, *, kind: str, form: type[T]) -> list[TypedRecord[T]]:
        """Read records of a kind that the reader may see, oldest first, their documents decoded into a type."""
        return self.read(select.scope.tenant, rows.read_typed_records, select, name=kind, form=form)

    def read_jobs(self, select: Select, /, *, kind: str | None = None) -> list[Job]:
        """Read jobs that the reader may see, oldest first."""
        return self.read(select.scope.tenant, rows.read_jobs, select, name=kind)

    def read_sessions(
        self,
        scope: Scope,
        /,
        *,
        across: Across = True,
        since: int | None = None,
        until: int | None = None,
        limit: int,
    ) -> list[SessionSpan]:
        """Read the last sessions that the reader may see, the newest first."""
        return self.read(scope.tenant, rows.read_sessions, scope, across=across, since=since, until=until, limit=limit)

    def has_passages(self, scope: Scope, /, *, across: Across = False, without_messages: Collection[int] = ()) -> bool:
        """Return whether the reader may see a passage of any message but some."""
        return self.read(scope.tenant, rows.has_passages, scope, across=across, without_messages=without_messages)

    def search(self, query: SearchQuery, /) -> Candidates:
        """Find the passages that are most promising by words and by vector, and those next to them."""
        return self.read(query.scope.tenant, self._search, query)

    def _search(self, db: Tables, query: SearchQuery) -> Candidates:
        from holdfast.index.reader import Index  # noqa: PLC0415 - messages and facts are read without numpy

        try:
            if db.cache.index is None:
                db.cache.index = Index()
            return db.cache.index.search(db, db.cache.scopes, query)
        except DAMAGE as error:
            raise StorageError(
                "the index is damaged. Run `holdfast reindex`: no message is lost.", path=self.place
            ) from error

    # --- figures --------------------------------------------------------------------

    def update_figures(self, tenant: str, /) -> bool:
        """Add the next new rows to the figures; return whether there may be more."""
        if self.readonly or self.read(tenant, figures.is_current):
            return False
        return self.write(tenant, figures.update)

    def sum_usage(self, period: Period, /) -> list[UsageSum]:
        """Add up the usage that models reported."""
        if not self.has_figures:
            return []
        return self.read(period.scope.tenant, figures.sum_usage, period)

    def sum_turns(self, period: Period, /) -> list[TurnSum]:
        """Add up turns."""
        if not self.has_figures:
            return []
        return self.read(period.scope.tenant, figures.sum_turns, period)

    def read_turns(self, scope: Scope, /, *, first: int, last: int) -> list[TurnFigures]:
        """Read the figures of turns of a session."""
        if not self.has_figures:
            return []
        return self.read(scope.tenant, figures.read_turns, scope, first=first, last=last)

    # --- forgetting -----------------------------------------------------------------

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
