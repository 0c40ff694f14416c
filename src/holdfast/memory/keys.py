"""Secret keys that belong to a store. They are made once, kept in it, and never leave it."""

from __future__ import annotations

import re
import secrets
from typing import Final

from holdfast.store.base import Record, Scope, Select, Store

OWNER: Final = Scope(tenant="", project="", agent="", session="")
"""The scope of the keys. No reader of a tenant has it."""
_KEY: Final = re.compile("(?:[0-9a-f]{2})+")


def open_keys(store: Store, *, kind: str, size: int = 16) -> tuple[bytes, ...]:
    """Read the keys of a kind, oldest first; make one of `size` bytes if there is none.

    Two processes may each make one at the same time. Both then read both, and use the older one.

    Raises:
        StorageError: There is none, and the store cannot be written.
    """
    known = _read_keys(store, kind)
    if known:
        return known
    key = {"key": secrets.token_hex(size)}
    store.add_records([Record(scope=OWNER, kind=kind, key=secrets.token_hex(8), data=key)])
    return _read_keys(store, kind)


def _read_keys(store: Store, kind: str) -> tuple[bytes, ...]:
    keys: list[bytes] = []
    for row in store.read_records(Select(scope=OWNER), kind=kind):
        key = row.data.get("key")
        if isinstance(key, str) and _KEY.fullmatch(key):
            keys.append(bytes.fromhex(key))
    return tuple(keys)
