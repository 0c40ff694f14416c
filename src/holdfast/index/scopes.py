"""Scopes: who owns a row. The table `scopes` numbers them from 0, and rows name their scope by its number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.errors import InputError
from holdfast.index.database import Database, Rows

Across: TypeAlias = bool | tuple[Literal["project", "agent", "session"], ...]
"""Which parts of a scope need not match: True for the session, so that an agent's other sessions are included.

A tuple names the parts. Only an operator who reads all of a store reads across projects or agents.
"""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Scope:
    """The owner of a row; part of every read and write."""

    tenant: str = "local"
    project: str = ""
    agent: str = "main"
    session: str = ""

    def __post_init__(self) -> None:
        # No database stores a lone surrogate, and a name that cannot be stored must not be confused with another.
        for part in ("tenant", "project", "agent", "session"):
            name = getattr(self, part)
            try:
                name.encode()
            except (UnicodeEncodeError, AttributeError):
                raise InputError(f"{part}={name!r}: give a name as text that UTF-8 can represent") from None

    def required(self, across: Across) -> dict[str, str]:
        """Return the parts that a row must have for a reader of this scope to see it."""
        parts = {"tenant": self.tenant, "project": self.project, "agent": self.agent, "session": self.session}
        if across is True:
            del parts["session"]
        elif across:
            for name in across:
                parts.pop(name, None)
        return parts


SCOPE_PARTS = ("tenant", "project", "agent", "session")


def scope_condition(db: Database, required: Mapping[str, str]) -> tuple[str, list[object]]:
    """Return the condition that a row of `scopes` has the required parts, and the values of its `?`."""
    clauses: list[str] = []
    values: list[object] = []
    for name, value in required.items():
        if name not in db.fixed:
            clauses.append(f"{name} = ?")
            values.append(value)
    condition = " AND ".join(clauses) or "true"
    return db.own + condition, values


def scope_number(db: Database, scope: Scope) -> int:
    """Return the number of a scope, which is created if it is new."""
    condition, values = scope_condition(db, scope.required(()))
    known = db.execute(f"SELECT id FROM scopes WHERE {condition}", values).fetchone()
    if known is not None:
        return int(known[0])
    (number,) = db.execute(f"SELECT coalesce(max(id) + 1, 0) FROM scopes WHERE {db.own}true").fetchone()
    columns = ", ".join(["id", *_stored_parts(db)])
    db.insert("scopes", columns, [(number, *values)])
    return int(number)


class Scopes:
    """The scopes of a database, or of one tenant, as far as they were read.

    Scopes are only ever added, so those that are known stay valid.
    """

    def __init__(self) -> None:
        self._known: list[Scope] = []

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, number: int) -> Scope:
        return self._known[number]

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._known)

    def clear(self) -> None:
        """Drop all of them."""
        self._known.clear()

    def load(self, db: Database) -> None:
        """Read the scopes that are not known yet.

        Raises:
            ValueError: A scope is missing or damaged.
        """
        self.add(db, self.find_new(db))

    def load_for(self, db: Database, rows: Sequence[Sequence[Any]]) -> None:
        """Read the scopes that are not known yet if one of these rows, whose second value is its scope, needs them.

        Scopes are hardly ever new, and a turn reads rows ten times.
        """
        known = len(self._known)
        if any(row[1] >= known for row in rows):
            self.load(db)

    def find_new(self, db: Database) -> Rows:
        """Select the scopes that are not known yet, for `add`."""
        columns = ", ".join(["id", *_stored_parts(db)])
        return db.execute(f"SELECT {columns} FROM scopes WHERE {db.own}id >= ? ORDER BY id", (len(self),))

    def add(self, db: Database, rows: Rows) -> None:
        """Read the rows that `find_new` selected."""
        parts = _stored_parts(db)
        for number, *names in rows:
            if number != len(self) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"scope {len(self)} is missing or damaged")
            self._known.append(Scope(**db.fixed, **dict(zip(parts, names, strict=True))))


def _stored_parts(db: Database) -> list[str]:
    """Return the parts of a scope that the table has columns for."""
    return [part for part in SCOPE_PARTS if part not in db.fixed]
