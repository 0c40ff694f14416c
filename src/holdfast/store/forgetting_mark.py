"""A mark that changes whenever something is forgotten, so that nobody records what they have read before.

A request reads passages and facts, and then records a block that quotes them. If they are forgotten in between, by
another thread or process, the block must not be recorded: nobody would find it any more.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

from holdfast.store.base import Record, Scope, Select, Store

_KIND: Final = "forgetting"
_BYTES: Final = 8


def read_mark(store: Store, scope: Scope) -> str:
    """Return the mark of the last time that something of an agent and project was forgotten; empty if nothing was."""
    records = store.read_records(Select(scope=_owner_of(scope)), kind=_KIND)
    return "".join(record.data["mark"] for record in records)


def change_mark(store: Store, scope: Scope) -> None:
    """Change the mark of an agent and project."""
    data = {"mark": secrets.token_hex(_BYTES)}
    store.add_records([Record(scope=_owner_of(scope), kind=_KIND, key="", data=data)])


def _owner_of(scope: Scope) -> Scope:
    """Return the scope of an agent and project, which no session has."""
    return replace(scope, session="")
