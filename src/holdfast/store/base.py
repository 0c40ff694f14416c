"""What a store keeps, and the five things it can do.

Rows are plain values. A store assigns their numbers, keeps them durable, and never shows a row of one scope
to a reader of another. `holdfast.testing.store` holds the suite that every store must pass.
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
    "Evidence",
    "FactRow",
    "FactType",
    "Gap",
    "Job",
    "Kind",
    "MessageRow",
    "PassageText",
    "Question",
    "Record",
    "Row",
    "Scope",
    "Select",
    "Store",
    "VectorRow",
]

Across: TypeAlias = bool | tuple[Literal["project", "agent", "session"], ...]
"""Which parts of a scope need not agree: True for the session, so that an agent's other sessions may be seen too.

A tuple names the parts. Only an operator who asks for all of a store reads across projects or agents.
"""
FactType: TypeAlias = Literal["decision", "implementation", "config", "issue", "task_state", "architecture"]


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Scope:
    """Whose memory it is. A part of every read and write."""

    tenant: str = "local"
    project: str = ""
    agent: str = "main"
    session: str = ""

    def required(self, across: Across) -> dict[str, str]:
        """The parts that a row must have for a reader of this scope to see it."""
        open_parts = ("session",) if across is True else across or ()
        parts = {"tenant": self.tenant, "project": self.project, "agent": self.agent, "session": self.session}
        return {name: value for name, value in parts.items() if name not in open_parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A passage: its words, its place in the message, its windows (offsets in its own text) and their terms.

    Its number, message, speaker and time are given by the store; terms are not filled in when read back.
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
        scope: Whose it is.
        message: The message, secrets masked.
        id: Its number; 0 until stored.
        nonce: What tells it from another message of the same words in the same session.
        passages: What of it can be found; empty for noise. Not filled in when read back.
        pinned: It stays in every window and survives every trim.
        buried: It is never recalled.
    """

    scope: Scope
    message: Message
    id: int = 0
    nonce: str = ""
    passages: tuple[PassageText, ...] = ()
    pinned: bool = False
    buried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """Something that was decided or learned. Rows are never changed: a change is a newer row of the same id.

    Attributes:
        id: What all versions of the fact share.
        type: One of the six kinds of knowledge.
        content: The fact, in one sentence.
        context: What it was said about.
        time: When it was learned, in Unix milliseconds.
        subject: What the fact is about.
        slot: Which property of the subject it states; only the same slot supersedes.
        evidence: Archived messages it rests on.
        quote: The words it rests on.
        superseded_by: The fact that took its place.
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
    """A small document of the engine's own (an edit, a turn's report, a session's counters), by kind and key.

    Where it `is_new`, there must be no record of that kind and key yet.
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
    """Work that must be done some time, and survives a crash until it is removed."""

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
    """A row that is damaged, and so was left out of what was read."""

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
        kind: What to read.
        scope: Who reads.
        across: Whether the agent's other sessions may be seen too; see `Across`.
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
class Question:
    """What is looked for: terms with their weights, and the question's vector where there is one."""

    scope: Scope
    terms: Mapping[str, float]
    across: Across = False
    vector: Floats | None = field(default=None, repr=False)
    space: Space | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the store knows about a question: the columns, and what each passage and window has to do with it.

    Attributes:
        columns: All passages and windows.
        visible: Which passages the reader may see.
        keywords: What the terms say.
        cosine: How alike each window is to the question's vector; None without vectors.
        scopes: The scope of each scope number.
        centre: What the visible windows have in common; None without vectors.
    """

    columns: Columns
    visible: Bools
    keywords: Keywords
    cosine: Floats | None
    scopes: Sequence[Scope]
    centre: Centering | None = None


class Store(Protocol):
    """Where memory rests."""

    def add(self, rows: Sequence[Row], /) -> list[int]:
        """Keep rows, all or none, durable when this returns, and give the number of each.

        A message that is already there keeps its number, and so does a record of the same kind and key, whose
        data is replaced. The number is 0 for what stays out: a message that was forgotten, a version of a fact
        that was, flags of a message that is not there, vectors of a passage that is not.

        Raises:
            ConflictError: A record that must be new is there already. Nothing was kept.
        """
        ...

    def find(self, scope: Scope, digests: Sequence[str], /) -> dict[str, dict[str, int]]:
        """Return, for each digest that is known in a session, the numbers of its messages by nonce.

        The number of a forgotten message is 0.
        """
        ...

    def fetch(self, select: Select, /) -> list[Any]:
        """Read rows of one kind that the reader may see."""
        ...

    def match(self, question: Question, /) -> Evidence:
        """Say what every visible passage has to do with a question."""
        ...

    def remove(self, select: Select, /) -> int:
        """Forget messages (with their passages and vectors) and facts for good: from tables, index and log.

        Records and jobs are only taken out. How many rows there were is returned.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
