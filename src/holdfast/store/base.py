"""The rows of a store, and the protocol that every store implements.

Rows are plain values. A store assigns their numbers, keeps them durable, and never returns a row of one scope to a
reader of another. `holdfast.testing.store` has the suite that every store must pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from holdfast.errors import InputError
from holdfast.messages import Message

if TYPE_CHECKING:  # rows are read and written without numpy
    import numpy as np
    import numpy.typing as npt

    from holdfast.search.bm25 import Keywords
    from holdfast.search.centering import Centering
    from holdfast.search.columns import Bools, Columns, Floats
    from holdfast.search.embed.base import Space

__all__ = [
    "Across",
    "FactRow",
    "FactType",
    "Gap",
    "Job",
    "Kind",
    "MessageRow",
    "PassageText",
    "Record",
    "Row",
    "Scope",
    "SearchQuery",
    "SearchResult",
    "Select",
    "Store",
    "VectorRow",
]

Across: TypeAlias = bool | tuple[Literal["project", "agent", "session"], ...]
"""Which parts of a scope need not agree: True for the session, so that an agent's other sessions are included.

A tuple names the parts. Only an operator who reads all of a store reads across projects or agents.
"""
FactType: TypeAlias = Literal["decision", "implementation", "config", "issue", "task_state", "architecture"]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Scope:
    """The owner of a row; part of every read and write."""

    tenant: str = "local"
    project: str = ""
    agent: str = "main"
    session: str = ""

    def required(self, across: Across) -> dict[str, str]:
        """Return the parts that a row must have for a reader of this scope to see it."""
        open_parts = ("session",) if across is True else across or ()
        parts = {"tenant": self.tenant, "project": self.project, "agent": self.agent, "session": self.session}
        return {name: value for name, value in parts.items() if name not in open_parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A searchable part of a message: its text, its place in the message, its windows (offsets) and their terms.

    The store sets the number, message, speaker and time. Terms are empty when read back.
    """

    start: int
    text: str
    windows: tuple[tuple[int, int], ...]
    terms: tuple[tuple[str, ...], ...] = ()
    number: int = -1
    message: int = 0
    speaker: str = ""
    time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """An archived message.

    Attributes:
        scope: Its owner.
        message: The message, secrets masked.
        id: Its number; 0 until stored.
        nonce: Distinguishes it from other messages of the same words in the same session.
        passages: Its searchable parts; none for noise. Empty when read back.
        pinned: It stays in every window and survives every trim.
        excluded: It is never recalled.
    """

    scope: Scope
    message: Message
    id: int = 0
    nonce: str = ""
    passages: tuple[PassageText, ...] = ()
    pinned: bool = False
    excluded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """A version of a fact. Rows are never changed: a change is a newer row of the same id.

    Attributes:
        id: Shared by all versions of the fact.
        type: One of the six types of knowledge.
        content: The fact, in one sentence.
        context: The topic it came up in.
        time: When it was learned, in Unix milliseconds.
        subject: What the fact is about.
        slot: Which property of the subject it states; only the same slot supersedes.
        evidence: Numbers of the archived messages that support it.
        quote: The words that support it.
        superseded_by: The id of the fact that replaced it.
        pinned: It is shown before all others.
        deleted: It is no longer shown.
    """

    scope: Scope
    id: str
    type: FactType
    content: str
    context: str = ""
    time: int = 0
    subject: str = ""
    slot: str = ""
    evidence: tuple[int, ...] = ()
    quote: str = ""
    superseded_by: str | None = None
    pinned: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A document of the engine (an edit, a report, a session's counters), by kind and key.

    If `is_new`, storing it fails where a record of that kind and key exists.
    """

    scope: Scope
    kind: str
    key: str
    data: Mapping[str, Any]
    time: int = 0
    id: int = 0
    is_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work to do later. It survives a crash until it is removed."""

    scope: Scope
    kind: str
    data: Mapping[str, Any]
    time: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRow:
    """The vectors of one passage's windows, one signed byte for each dimension."""

    space: Space
    passage: int
    vectors: npt.NDArray[np.int8] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A damaged row that was left out of a result."""

    scope: Scope
    kind: Kind
    id: int

    def __str__(self) -> str:
        return f"{self.kind} {self.id} is damaged and was left out: run `holdfast doctor --repair`"


Row: TypeAlias = MessageRow | FactRow | Record | Job | VectorRow
Kind: TypeAlias = Literal["message", "passage", "fact", "record", "job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Which rows to read, oldest first.

    Attributes:
        kind: The kind of row.
        scope: The reader.
        across: Whether to include the agent's other sessions; see `Across`.
        ids: Only these numbers.
        keys: Only these ids (facts) or keys (records).
        name: Only this kind of record or job.
        after: Only rows with a higher number.
        before: Only rows with a lower number.
        newest: Read the newest instead of the oldest where `limit` cuts; the order stays oldest first.
        limit: At most so many.
    """

    kind: Kind
    scope: Scope
    across: Across = False
    ids: tuple[int, ...] | None = None
    keys: tuple[str, ...] | None = None
    name: str | None = None
    after: int | None = None
    before: int | None = None
    newest: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.keys is not None and self.kind not in {"fact", "record"}:
            raise InputError(f"a {self.kind} has no key: select it by `ids`")
        if self.name is not None and self.kind not in {"record", "job"}:
            raise InputError(f"a {self.kind} has no name: leave `name` out")
        if self.limit is not None and self.limit < 0:
            raise InputError("`limit` must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Terms with their weights, and optionally a vector and its space."""

    scope: Scope
    terms: Mapping[str, float]
    across: Across = False
    vector: Floats | None = field(default=None, repr=False)
    space: Space | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The columns of all passages, and how well each passage and window matches a query.

    Attributes:
        columns: All passages and windows.
        visible: Which passages the reader may see.
        keywords: The scores by terms.
        cosine: The cosine of each window and the query's vector; None without vectors.
        scopes: The scope of each scope number.
        centre: The mean of the visible vectors; None without vectors.
    """

    columns: Columns
    visible: Bools
    keywords: Keywords
    cosine: Floats | None
    scopes: Sequence[Scope]
    centre: Centering | None = None


class Store(Protocol):
    """Storage for rows and their index. Safe to use from several threads."""

    def add(self, rows: Sequence[Row], /) -> list[int]:
        """Store rows, all or none, durable when this returns, and return the number of each.

        A message that is stored already keeps its number. A record replaces the data of the record of the same kind
        and key. The number is 0 for a row that is not stored: a forgotten message or fact, flags of a message that
        does not exist, vectors of a passage that does not exist.

        Raises:
            ConflictError: A record that must be new exists. Nothing was stored.
        """
        ...

    def find(self, scope: Scope, digests: Sequence[str], /) -> dict[str, dict[str, int]]:
        """Return, for each digest that is known in a session, the numbers of its messages by nonce.

        The number of a forgotten message is 0.
        """
        ...

    def fetch(self, select: Select, /) -> list[Any]:
        """Read rows of one kind that the reader may see, oldest first."""
        ...

    def match(self, query: SearchQuery, /) -> SearchResult:
        """Score every visible passage."""
        ...

    def remove(self, select: Select, /) -> int:
        """Forget messages (with their passages and vectors) and facts for good: from tables, index and log.

        Records and jobs are deleted. Returns the number of rows.
        """
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...
