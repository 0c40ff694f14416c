"""The list of stored sessions, with titles by which a person recognises them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from holdfast.memory.archive import is_noise, unwrap
from holdfast.store.base import Scope, Select, Store

TURN: Final = "turn"
"""The kind of the records that hold the reports of past turns."""
MAX_TITLE_CHARS: Final = 72
_MAX_READ: Final = 40
"""How many messages at the beginning of a session are examined: a host may put its own before those of the user."""
_ENDS: Final = (". ", "? ", "! ", "。", "？", "！")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A stored session.

    Attributes:
        id: The id of the session.
        tenant: The tenant that it belongs to.
        project: The project that it belongs to.
        agent: The agent that it belongs to.
        title: The first real sentence of the user, shortened; empty if there is none.
        first_time: The time of its first message, in Unix milliseconds, if known.
        last_time: The time of its last message, in Unix milliseconds, if known.
        messages: The number of its archived messages.
        tokens: The tokens of its last request; 0 if it has made none through Holdfast.
    """

    id: str
    tenant: str
    project: str
    agent: str
    title: str
    first_time: int | None
    last_time: int | None
    messages: int
    tokens: int

    @property
    def scope(self) -> Scope:
        """The scope of its rows."""
        return Scope(tenant=self.tenant, project=self.project, agent=self.agent, session=self.id)

    def to_json(self) -> dict[str, Any]:
        """Return the session as JSON, with its id as `session`, as all rows name their owner."""
        fields = asdict(self)
        return {"session": fields.pop("id"), **fields}


def list_sessions(
    store: Store,
    *,
    tenant: str | None = None,
    project: str | None = None,
    agent: str | None = None,
    limit: int | None = None,
) -> list[SessionInfo]:
    """List stored sessions, the one with the newest message first; only those of a tenant, project or agent."""
    found: list[SessionInfo] = []
    for scope, count in store.sessions().items():
        if tenant not in {None, scope.tenant} or project not in {None, scope.project}:
            continue
        if agent not in {None, scope.agent}:
            continue
        if limit is not None and len(found) >= limit:
            break
        found.append(_describe(store, scope, messages=count))
    return found


def _describe(store: Store, scope: Scope, *, messages: int) -> SessionInfo:
    newest = Select(scope=scope, newest=True, limit=1)
    first = store.read_messages(Select(scope=scope, limit=1))
    last = store.read_messages(newest)
    turns = store.read_records(newest, kind=TURN)
    return SessionInfo(
        id=scope.session,
        tenant=scope.tenant,
        project=scope.project,
        agent=scope.agent,
        title=make_title(store, scope),
        first_time=first[0].message.timestamp if first else None,
        last_time=last[0].message.timestamp if last else None,
        messages=messages,
        tokens=int(turns[0].data["total_tokens"]) if turns else 0,
    )


def make_title(store: Store, scope: Scope) -> str:
    """Return the first real sentence of the user in a session, shortened; empty if there is none."""
    for row in store.read_messages(Select(scope=scope, limit=_MAX_READ)):
        if row.message.role != "user":
            continue
        text = unwrap(row.message.text)
        if text and not is_noise(text):
            return shorten(text)
    return ""


def shorten(text: str) -> str:
    """Return the first sentence of a text, on one line, at most `MAX_TITLE_CHARS` long."""
    line = " ".join(text.split())
    stops = [line.find(end) + len(end) for end in _ENDS if end in line]
    sentence = line[: min(stops, default=len(line))].strip()
    if len(sentence) <= MAX_TITLE_CHARS:
        return sentence
    cut = sentence[: MAX_TITLE_CHARS - 1]
    space = cut.rfind(" ")
    if space > MAX_TITLE_CHARS // 2:
        cut = cut[:space]
    return f"{cut.rstrip()}…"
