"""The mark of a recalled block: what tells our own block from any text that only looks like one.

A mark is made of a digest of what the block says and of a proof that only the key of the store can make. So every
process that opens the store knows its blocks again without a list of them, the same block always has the same mark, and
nobody can write one who has not seen it. A block of another store is text like any other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from holdfast.store.base import Record, Scope, Select, Store
from holdfast.store.codec import text_bytes

__all__ = ["LENGTH", "NO_MARKS", "UNKEPT", "Marks", "open_marks"]

LENGTH: Final = 15
"""Characters of a mark: `a` to `z` and `2` to `7`."""
_DIGEST: Final = 5
_OWNER: Final = Scope(tenant="", project="", agent="", session="")
"""Nobody's scope: a key belongs to the store."""
_KIND: Final = "recall key"
_KEY: Final = re.compile("(?:[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Marks:
    """The keys of a store's blocks, oldest first. The first one marks; without any, no text is a block."""

    keys: tuple[bytes, ...] = ()

    def sign(self, text: str) -> str:
        """Return the mark of a block that says this."""
        digest = _short(hashlib.sha256(text_bytes(text)).digest())[:_DIGEST]
        return digest + _proof(self.keys[0], digest)

    def is_ours(self, mark: str) -> bool:
        """Tell whether a mark was made with one of the keys."""
        digest, proof = mark[:_DIGEST], mark[_DIGEST:]
        return any(hmac.compare_digest(proof, _proof(key, digest)) for key in self.keys)


NO_MARKS: Final = Marks()
"""For text that no block can have come into."""
UNKEPT: Final = Marks((b"",))
"""For a block that nobody has to know again."""


def open_marks(store: Store) -> Marks:
    """Read the keys of a store, making one where there is none.

    Two processes may each make one in the same moment: both then read both, and mark with the older.

    Raises:
        StorageError: There is none, and the store may not be written.
    """
    known = _read(store)
    if known.keys:
        return known
    key = {"key": secrets.token_hex(16)}
    store.add([Record(scope=_OWNER, kind=_KIND, key=secrets.token_hex(8), data=key)])
    return _read(store)


def _read(store: Store) -> Marks:
    rows: list[Record] = store.fetch(Select(kind="record", scope=_OWNER, name=_KIND))
    found = (row.data.get("key") for row in rows)
    return Marks(tuple(bytes.fromhex(key) for key in found if isinstance(key, str) and _KEY.fullmatch(key)))


def _proof(key: bytes, digest: str) -> str:
    return _short(hmac.digest(key, digest.encode(), "sha256"))[: LENGTH - _DIGEST]


def _short(data: bytes) -> str:
    return base64.b32encode(data).decode().lower()
