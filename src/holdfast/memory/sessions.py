"""The list of stored sessions, with titles by which a person recognises them.

`session_lines` adds the outcome of the session to a title, for the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from holdfast.host_text import find_summary
from holdfast.memory.archive import is_acknowledgement, is_noise, unwrap, weigh_letters
from holdfast.memory.summary_topics import find_topic, is_part
from holdfast.messages import Message
from holdfast.patterns import NO_ABBREVIATION, compile_once, load
from holdfast.store.base import MessageRow, Record, Scope, Select, Store
from holdfast.store.figures import TURN

TITLE: Final = "title"
"""The kind of the record with the title that a host gave to a session."""
HOST_NAME: Final = "host_name"
"""The kind of the record with the name of the program that a session is from."""
MAX_TITLE_CHARS: Final = 72
"""The maximum characters of the title of a session."""
MAX_GREETING_WORDS: Final = 3
"""The maximum words of an exclamation that is not the title if more follows."""
_FIRST_READ: Final = 8
"""How many messages at the beginning of a session are read for its title."""
_MAX_FIRST_READ: Final = 40
"""How many are read if those have none, because a host may put its messages before those of the user."""
_MIN_TITLE: Final = 12
"""A sentence with fewer letters, such as "So, Redis.", is a title only together with the next one."""
_END: Final = re.compile(rf"[.?!]{NO_ABBREVIATION}\s|[。？！]")
_CLAUSE_END: Final = re.compile(r"[.?!,;:]\s|[。？！，；：、]|\s[–—-]\s")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a session, and the number of the archived message that it is from."""

    text: str
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A stored session.

    Attributes:
        id: The id of the session.
        tenant: The tenant that it belongs to.
        project: The project that it belongs to.
        agent: The agent that it belongs to.
        title: The title that its host gave to it, else the first real sentence of the user, else a line of a summary,
            else a greeting; empty if there is none.
        host: The program that it is from, such as `Claude Code`; empty if it is not known.
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
    host: str
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
    first = store.read_messages(Select(scope=scope, limit=_FIRST_READ))
    last = first
    if len(first) == _FIRST_READ:
        last = store.read_messages(newest)
    turns = store.read_records(newest, kind=TURN)
    first_time: int | None = None
    last_time: int | None = None
    tokens = 0
    if first:
        first_time = first[0].message.timestamp
    if last:
        last_time = last[-1].message.timestamp
    if turns:
        tokens = int(turns[0].data["total_tokens"])
    return SessionInfo(
        id=scope.session,
        tenant=scope.tenant,
        project=scope.project,
        agent=scope.agent,
        title=make_title(store, scope, first=first),
        host=read_host(store, scope),
        first_time=first_time,
        last_time=last_time,
        messages=messages,
        tokens=tokens,
    )


def record_title(store: Store, title: str, *, scope: Scope, time: int) -> None:
    """Record the title that a host gave to a session."""
    short = _cut(" ".join(title.split()))
    known = store.read_records(Select(scope=scope), kind=TITLE)
    if not short or any(record.data.get("title") == short or _is_final(record) for record in known):
        return
    store.add_records([Record(scope=scope, kind=TITLE, key="", data={"title": short}, time=time)])


def make_final_title(scope: Scope, title: str = "") -> Record:
    """Return the title record after a message was forgotten. Later titles, which may repeat it, are ignored."""
    return Record(scope=scope, kind=TITLE, key="", data={"title": title, "is_final": True})


def _is_final(record: Record) -> bool:
    # Earlier versions recorded an empty title instead of `is_final`.
    return record.data.get("is_final", False) or not record.data.get("title")


def read_title(store: Store, scope: Scope) -> str:
    """Return the title that a host gave to a session; empty if none was recorded."""
    for record in store.read_records(Select(scope=scope), kind=TITLE):
        return str(record.data.get("title", ""))
    return ""


def record_host(store: Store, name: str, *, scope: Scope, time: int) -> None:
    """Record the program that a session is from."""
    data = {"name": name}
    # It is only a figure: no reply needs to wait for the disk because of it.
    store.add_records([Record(scope=scope, kind=HOST_NAME, key="", data=data, time=time, is_durable=False)])


def read_host(store: Store, scope: Scope) -> str:
    """Return the program that a session is from; empty if it is not known."""
    for record in store.read_records(Select(scope=scope), kind=HOST_NAME):
        return str(record.data.get("name", ""))
    return ""


def make_title(store: Store, scope: Scope, *, first: Sequence[MessageRow] | None = None) -> str:
    """Return the title of a session: that of its host, or the first real sentence of the user; empty if it has none.

    A session of nothing else is named by its greeting. `first` are its first messages, if they were read.
    """
    title = read_title(store, scope)
    if title:
        return title
    rows = first
    if rows is None:
        rows = store.read_messages(Select(scope=scope, limit=_FIRST_READ))
    request = find_request(store, scope, first=rows)
    if request is None:
        return _find_greeting(row.message for row in rows)
    return request.text


def _find_greeting(messages: Iterable[Message]) -> str:
    """Return the first words of the user that ask nothing, such as "Hello there."; empty if there are none."""
    for message in messages:
        if message.role != "user":
            continue
        text = " ".join(unwrap(message.text).split())
        if text and is_acknowledgement(text):
            return _cut(text)
    return ""


def find_request(
    store: Store,
    scope: Scope,
    *,
    has_excluded: bool = True,
    first: Sequence[MessageRow] | None = None,
    outdated: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> Sentence | None:
    """Find the first real sentence of the user in a session; without `has_excluded`, in messages that may be recalled.

    If there is none, a line of a summary says what the session was about. A sentence with words that are `outdated`,
    by message, is left out.
    """
    rows = first
    if rows is None:
        rows = store.read_messages(Select(scope=scope, limit=_FIRST_READ))
    request = find_holding(list_requests(rows, has_excluded=has_excluded), outdated)
    if request is None and len(rows) >= _FIRST_READ:
        more = store.read_messages(Select(scope=scope, after=rows[-1].id, limit=_MAX_FIRST_READ - _FIRST_READ))
        request = find_holding(list_requests(more, has_excluded=has_excluded), outdated)
        rows = [*rows, *more]
    if request is None:
        request = find_holding(_list_topics(rows, has_excluded=has_excluded), outdated)
    return request


def find_holding(sentences: Iterable[Sentence], outdated: Mapping[int, Sequence[str]]) -> Sentence | None:
    """Find the first sentence that still holds."""
    return next((sentence for sentence in sentences if does_hold(sentence, outdated)), None)


def does_hold(sentence: Sentence, outdated: Mapping[int, Sequence[str]]) -> bool:
    """Return whether a sentence has none of the words that are outdated, by message. It may have been cut."""
    texts = outdated.get(sentence.message, ())
    return not any(text in sentence.text or sentence.text.rstrip("…") in text for text in texts)


def list_requests(rows: Iterable[MessageRow], *, has_excluded: bool = True) -> Iterator[Sentence]:
    """List the first real sentence of each message of the user."""
    for row in rows:
        if row.message.role != "user" or (row.excluded and not has_excluded):
            continue
        title = make_title_of(row.message.text)
        if title:
            yield Sentence(title, row.id)


def make_title_of(message: str) -> str:
    """Return the first real sentence of a message, shortened.

    Empty for a command, a greeting, a program's text, the question where the last session ended, and a pasted part of a
    text that begins within a sentence.
    """
    text = unwrap(message)
    if not text or is_noise(text) or is_part(text) or _asks_to_continue(text):
        return ""
    return shorten(text)


def _list_topics(rows: Iterable[MessageRow], *, has_excluded: bool = True) -> Iterator[Sentence]:
    """List what the summaries and pasted parts of texts in the user's place are about."""
    for row in rows:
        if row.message.role != "user" or (row.excluded and not has_excluded):
            continue
        topic = _make_topic_of(row.message.text)
        if topic:
            yield Sentence(topic, row.id)


def _make_topic_of(message: str) -> str:
    """Return what a message is about that is a summary or a pasted part of a text, shortened; empty for any other."""
    summary = find_summary(message)
    if summary:
        return shorten(find_topic(summary))
    text = unwrap(message)
    if is_part(text):
        return shorten(find_topic(text))
    return ""


def find_title(messages: Iterable[Message]) -> str:
    """Return the title that the first messages of a session give to it, once it is stored; empty if they give none."""
    topic = ""
    read = list(islice(messages, _MAX_FIRST_READ))
    for message in read:
        if message.role != "user":
            continue
        title = make_title_of(message.text)
        if title:
            return title
        topic = topic or _make_topic_of(message.text)
    return topic or _find_greeting(read[:_FIRST_READ])


def shorten(text: str, *, max_chars: int = MAX_TITLE_CHARS) -> str:
    """Return the first sentence of a text that says something, on one line, at most `max_chars` long.

    Greetings, and sentences that only announce others, are left out if another one follows.
    """
    rest = " ".join(text.split())
    begun = ""
    sentence = ""
    while rest:
        end = _END.search(rest)
        stop = len(rest)
        if end is not None:
            stop = end.end()
        sentence = f"{begun}{rest[:stop]}".strip()
        begun = ""
        rest = rest[stop:].strip()
        if _is_greeting(sentence) or _is_announcement(sentence) or _asks_to_continue(sentence):
            continue
        if weigh_letters(sentence) >= _MIN_TITLE:
            break
        begun = f"{sentence} "
    return _cut(sentence, max_chars=max_chars)


def _is_greeting(sentence: str) -> bool:
    """Return whether a sentence is an acknowledgement or a short exclamation, such as "Good morning!"."""
    is_exclamation = len(sentence.split()) <= MAX_GREETING_WORDS and sentence.endswith(("!", "！"))
    return is_exclamation or is_acknowledgement(sentence)


def _asks_to_continue(text: str) -> bool:
    return compile_once(load("outcomes")["continuation"], re.IGNORECASE | re.VERBOSE).search(text) is not None


def _is_announcement(sentence: str) -> bool:
    """Return whether a sentence only says that others follow, such as "Three things to keep in mind."."""
    return compile_once(load("outcomes")["announcement"], re.IGNORECASE | re.VERBOSE).search(sentence) is not None


def _cut(line: str, *, max_chars: int = MAX_TITLE_CHARS) -> str:
    """Shorten a line: at the end of a clause in the last third of the room, else between two words.

    It does not end with a negation: "the old engine is never…" says nothing, and hides that something is denied.
    """
    if len(line) <= max_chars:
        return line
    room = max_chars - 1
    cut = line[:room]
    space = cut.rfind(" ")
    clauses = [match.start() for match in _CLAUSE_END.finditer(line, 2 * room // 3) if match.start() <= room]
    if clauses:
        cut = line[: clauses[-1]]
    elif space > max_chars // 2:
        cut = cut[:space]
    cut = cut.rstrip()
    bare = compile_once(load("outcomes")["last_negation"], re.IGNORECASE | re.VERBOSE).sub("", cut)
    return f"{bare or cut}…"


def name_hosts(store: Store, tenants: Iterable[str]) -> Callable[[Scope], str]:
    """Return a function that names the host of a session: the recorded one, or the agent that a caller named.

    The name is empty if neither is known.
    """
    hosts: dict[Scope, str] = {}
    for tenant in tenants:
        select = Select(scope=Scope(tenant=tenant), across=("project", "agent", "session"))
        for record in store.read_records(select, kind=HOST_NAME):
            hosts[record.scope] = str(record.data.get("name", ""))

    def name(scope: Scope) -> str:
        if hosts.get(scope):
            return hosts[scope]
        if scope.agent == Scope().agent:
            return ""
        return scope.agent

    return name
