"""The rows of a store, and the protocol that every store implements.

Rows are plain values. A store assigns their numbers, keeps them durable, and never returns a row of one scope to a
reader of another. `holdfast.testing.store` has the suite that every store must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.errors import InputError
from holdfast.index.query import PassageText, SearchQuery
from holdfast.index.scopes import Across, Scope
from holdfast.messages import Message, Usage

if TYPE_CHECKING:  # rows are read and written without numpy
    import numpy as np
    import numpy.typing as npt

    from holdfast.embed.base import Space
    from holdfast.search.candidates import Candidates

__all__ = [
    "Across",
    "FactRow",
    "FactType",
    "Gap",
    "Grouping",
    "Job",
    "Kind",
    "Known",
    "MessageRow",
    "PassageText",
    "Period",
    "Record",
    "Scope",
    "SearchQuery",
    "Select",
    "SessionSpan",
    "Store",
    "TurnFigures",
    "TurnSum",
    "TypedRecord",
    "UsageSum",
    "VectorRow",
]

T = TypeVar("T")

FactType: TypeAlias = Literal["decision", "implementation", "config", "issue", "task_state", "architecture"]


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
class Known:
    """The messages of a session that have some digests.

    Attributes:
        numbers: For each digest that is known, the numbers of its messages by nonce; 0 for a forgotten message.
        forgotten: The digests of all forgotten messages of the session by nonce.
    """

    numbers: Mapping[str, Mapping[str, int]]
    forgotten: Mapping[str, Sequence[str]]


MIN_ID_CHARS: Final = 8
"""The first characters of the id of a fact that are enough to name it."""


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
        questions: Questions that it answers, in other words than its own; they are searched with it.
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
    questions: tuple[str, ...] = ()
    superseded_by: str | None = None
    pinned: bool = False
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A document of the engine (an edit, a report, a session's counters), by kind and key.

    If `is_new`, storing it fails if a record of that kind and key exists. A store may write one that is not
    `is_durable` without waiting for the disk: it survives the end of the process, but maybe not a power cut.
    """

    scope: Scope
    kind: str
    key: str
    data: Mapping[str, Any]
    time: int = 0
    id: int = 0
    is_new: bool = False
    is_durable: bool = True


class TypedRecord(Struct, Generic[T], frozen=True, kw_only=True, gc=False):
    """A record whose document was decoded straight into a type; `data` is None if it does not fit the type.

    A session may have tens of thousands. Neither they nor structs with `gc=False` in them count for the garbage
    collector, which would otherwise take as long as decoding them.
    """

    id: int
    key: str
    time: int
    data: T | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Work to do later. It survives a crash until it is removed."""

    scope: Scope
    kind: str
    data: Mapping[str, Any]
    time: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpan:
    """A session, and when its first and its last searchable message were sent, in Unix milliseconds."""

    scope: Scope
    first_time: int
    last_time: int


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


Kind: TypeAlias = Literal["message", "passage", "fact", "record", "job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """Which rows to read or remove, oldest first: of the reader `scope`, or `across` its sessions.

    `after` and `before` are numbers, neither of them included. With `newest`, `limit` keeps the newest instead of the
    oldest; the order is oldest first in both cases.
    """

    scope: Scope
    across: Across = False
    ids: tuple[int, ...] | None = None
    after: int | None = None
    before: int | None = None
    newest: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InputError("`limit` must not be negative")


Grouping: TypeAlias = Literal["quarter", "hour", "session", "all"]
"""What figures are added up by: sessions, sessions and hours or quarters of hours, or nothing. Quarters of hours make
up the days of every time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Which figures to add up: of the reader `scope`, or `across` its sessions, in a period or of all times.

    Attributes:
        scope: The reader.
        across: Which parts of the scope need not match.
        since: The first millisecond of the period, in Unix milliseconds; None for no limit.
        until: The first millisecond after it; None for no limit.
        by: What they are added up by.
    """

    scope: Scope
    across: Across = False
    since: int | None = None
    until: int | None = None
    by: Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """The usage that a model reported: in a session, in an hour or a quarter of one, or in all.

    Attributes:
        scope: The session; None for the sum of all.
        start: The beginning of the hour or its quarter, in Unix milliseconds, if they are added up by time.
        model: The model; empty if the messages do not name one.
        replies: How many replies reported usage.
        usage: The tokens.
    """

    scope: Scope | None
    start: int
    model: str
    replies: int
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSum:
    """The turns of a session, of an hour or a quarter of one, or all.

    Attributes:
        scope: The session; None for the sum of all.
        start: The beginning of the hour or its quarter, in Unix milliseconds, if they are added up by time.
        turns: How many windows were made.
        sent: The tokens of the windows, by our counter.
        saved: The tokens that sending the whole conversations would have taken in addition.
        cuts: Turns that removed messages from the window.
        recalls: Turns that recalled something.
        followed: Recalls after which the model called a tool of memory for the same question.
        failures: Turns in which memory failed in part.
        refusals: Turns that the provider refused or did not answer.
        assembling: The time of assembling all of them, in milliseconds.
        replies: Replies whose time is known.
        replying: The time of these replies, in milliseconds.
        last_time: When the last one was made, in Unix milliseconds.
    """

    scope: Scope | None = None
    start: int = 0
    turns: int = 0
    sent: int = 0
    saved: int = 0
    cuts: int = 0
    recalls: int = 0
    followed: int = 0
    failures: int = 0
    refusals: int = 0
    assembling: float = 0.0
    replies: int = 0
    replying: int = 0
    last_time: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """The figures of one turn.

    Attributes:
        turn: Its number.
        time: When it was made, in Unix milliseconds.
        sent: The tokens of its window, by our counter.
        saved: The tokens that sending the whole conversation would have taken in addition.
        is_cut: Whether it removed messages from the window.
        is_recalled: Whether it recalled something.
        is_followed: Whether the model then called a tool of memory for the same question.
        is_failed: Whether memory failed in part.
        is_refused: Whether the provider refused it or did not answer.
        assembling: The time of assembling, in milliseconds.
        replying: The time of the reply, in milliseconds; None if it is not known.
        model: The model that replied; empty if it is not known.
        usage: The usage that it reported, if it did.
    """

    turn: int
    time: int
    sent: int
    saved: int
    is_cut: bool
    is_recalled: bool
    is_followed: bool
    is_failed: bool
    is_refused: bool
    assembling: float
    replying: int | None
    model: str
    usage: Usage | None


class Store(Protocol):
    """Storage for rows and their index. Safe to use from several threads.

    Every `add_*` and `set_flags` is durable when it returns, and stores all of its rows or none. Every `read_*` returns
    only rows that the reader may see, oldest first; damaged ones are left out and listed in `gaps`.
    """

    @property
    def path(self) -> Path:
        """The file or folder; of a store on a server, the folder of local files."""

    @property
    def place(self) -> str:
        """The file, folder or address (without password), as messages name it."""

    @property
    def readonly(self) -> bool:
        """Whether the store cannot be written."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reads have left out so far."""

    @property
    def progress(self) -> str:
        """The progress of indexing, as a sentence; empty if everything is indexed."""

    def close(self) -> None:
        """Close files and connections."""

    # --- writing -------------------------------------------------------------

    def transaction(self) -> AbstractContextManager[None]:
        """Make the writes of a block one: all or none, durable when the block ends. Nothing can be removed in it."""

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages; return the number of each.

        A message that is stored already keeps its number; the number of a forgotten one is 0.
        """

    def merge_messages(
        self, scope: Scope, digests: Sequence[str], make_rows: Callable[[Known], Sequence[MessageRow]], /
    ) -> list[int]:
        """Store the messages that `make_rows` returns for what `find` returns; return their numbers.

        No other writer comes between. `make_rows` may be called again after a lost connection.
        """

    def add_facts(self, rows: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts; return the number of each version, 0 for a forgotten fact."""

    def add_records(self, rows: Sequence[Record], /) -> list[int]:
        """Store records, each in place of the record of the same kind and key; return their numbers.

        Raises:
            ConflictError: A record that must be new exists. Nothing was stored.
        """

    def add_jobs(self, rows: Sequence[Job], /) -> list[int]:
        """Store jobs; return their numbers."""

    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages in place of earlier ones; return how many of the passages exist."""

    def set_flags(self, select: Select, /, *, pinned: bool | None = None, excluded: bool | None = None) -> int:
        """Set the flags of messages that are not None; return the number of messages."""

    # --- reading -------------------------------------------------------------

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return the archived messages of a session with these digests."""

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        """Read messages."""

    def read_passages(self, select: Select, /) -> list[PassageText]:
        """Read passages."""

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read all versions of facts; with `keys` only of the facts with these ids."""

    def read_records(
        self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Record]:
        """Read records; only those of a kind, or with these keys."""

    def read_typed_records(self, select: Select, /, *, kind: str, form: type[T]) -> list[TypedRecord[T]]:
        """Read records of a kind, their documents decoded as `msgspec` does for a type: in a third of the time.

        The `data` of a record whose document does not fit the type is None.
        """

    def read_jobs(self, select: Select, /, *, kind: str | None = None) -> list[Job]:
        """Read jobs; only those of a kind."""

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
        """Read the last sessions that the reader may see and that have searchable messages, the newest first.

        Only those that overlap a period, if one is given: `since` is its first millisecond, `until` the first after it.
        """

    def has_passages(self, scope: Scope, /, *, across: Across = False, without_messages: Collection[int] = ()) -> bool:
        """Return whether the reader may see a passage of any message but some: whether a search can find anything.

        A store that does not know returns True.
        """

    def search(self, query: SearchQuery, /) -> Candidates:
        """Find the passages that are most promising by words and by vector, and those next to them.

        Their signals depend on passages that the reader may see and on nothing else. If the reader sees no more than
        `query.limit` passages, all of them are candidates.
        """

    # --- figures -------------------------------------------------------------

    def update_figures(self, tenant: str, /) -> bool:
        """Add the next messages and records that are new to the figures; return whether there may be more.

        A store with one index for all tenants may do so for all of them.
        """

    def sum_usage(self, period: Period, /) -> list[UsageSum]:
        """Add up the usage that models reported, by model and by session or time, as far as figures are up to date."""

    def sum_turns(self, period: Period, /) -> list[TurnSum]:
        """Add up turns by session or time, as far as figures are up to date."""

    def read_turns(self, scope: Scope, /, *, first: int, last: int) -> list[TurnFigures]:
        """Read the figures of the turns of a session from one number to another, in order."""

    # --- of all scopes -------------------------------------------------------

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope."""

    def lock_work(self, space: Space | None, *, tenant: str | None = None) -> AbstractContextManager[bool]:
        """Let one process at a time do the jobs of a tenant, or embed in a space; yield whether this one may.

        On a server this is so for each tenant: inside, only the work of one tenant is found. Unless it is named, it is
        one whose passages have no vectors in the space, or, without a space, one that has jobs.
        """

    def listen(self, notify: Callable[[], None]) -> None:
        """Call a function whenever another machine has left work, if the store can tell."""

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet."""

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""

    # --- forgetting ----------------------------------------------------------

    def remove_messages(self, select: Select, /) -> int:
        """Forget messages for good, with passages and vectors: from tables, index and log. Return their number."""

    def remove_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> int:
        """Forget facts for good, from tables and log; return the number of versions."""

    def remove_records(self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Delete records; return their number."""

    def remove_jobs(self, select: Select, /) -> int:
        """Delete jobs; return their number."""
