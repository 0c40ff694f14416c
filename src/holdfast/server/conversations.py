"""Find out which session a model request belongs to.

Hosts name their session. A client that names none is recognised by its history: a request continues a conversation if
it repeats everything that is known of it. Two users of one program may begin with the same words and get the same
replies, so a shared beginning is never enough. What no two conversations share are ids that the provider has made up
for a reply, such as those of tool calls: a request with one of them continues its conversation, also after the client
has dropped, edited or summarised messages. Every other request begins a new conversation.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Final

from holdfast.cache import LruCache
from holdfast.engine import Engine
from holdfast.errors import StorageError
from holdfast.memory.archive import FIRST, ReplyContent
from holdfast.messages import Message, RedactedThinking, Thinking, ToolCall
from holdfast.store.base import Record, Scope, Select

OWN_HEADER: Final = "x-holdfast-session"
"""The header in which a user names a session: every request with it belongs to the conversation."""
CLAUDE_CODE_HEADER: Final = "x-claude-code-session-id"
"""The header in which Claude Code names its session."""
SESSION_HEADERS: Final = (
    OWN_HEADER,
    CLAUDE_CODE_HEADER,
    "session-id",
    "x-session-id",
    "agent-session-id",
)
"""Headers in which hosts name their session, the most specific first."""
SUBAGENT_HEADER: Final = "x-claude-code-agent-id"
"""The header in which Claude Code names a subagent, which has a separate conversation inside the session."""
CHAT: Final = "chat-"
"""Prefix of the names of sessions that no client has named."""
RECORD: Final = "conversation"
"""The kind of the records with the known end of a conversation."""
RESPONSE: Final = "response"
"""The kind of the records that have the place after a response of the provider, by a keyed digest of its id."""
NEWEST: Final = "newest"
"""The key of the record that has the place after the newest response of a session."""
MAX_CONVERSATIONS: Final = 1_000
"""Conversations without a name of one caller that are compared, the newest."""
MAX_ID_CHARS: Final = 1_000
"""Maximum length of the id of a response or the name of a session. Real ones have less than a hundred characters."""
MAX_CALLERS: Final = 64
"""Callers whose conversations are kept in memory; those of others are read from the store again."""
MAX_BEGINNINGS: Final = 64
"""Histories of which the digests are kept. They take a few hundred bytes for each message."""
MAX_MARKS: Final = 8
"""Ids of a conversation's replies, the newest, by which it is recognised."""
_RANDOM: Final = re.compile(r"[A-Za-z0-9+/]{20,}")
MIN_KINDS: Final = 3
"""Letters and digits that an id must have to be a random one: `call_9fK2…` is, `get_current_weather_0` is not."""


def host_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the session that the host names in its headers or in the body; empty if it names none.

    `prompt_cache_key` is not a name: programs use one for all of their users. A name that is too long gets a digest.
    """
    name = _find_name(headers, body)
    if len(name) <= MAX_ID_CHARS:
        return name
    return f"{name[:100]}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()}"


def _find_name(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    for name in SESSION_HEADERS:
        value = headers.get(name, "").strip()
        if value:
            subagent = headers.get(SUBAGENT_HEADER, "").strip()
            return f"{value}/{subagent}" if subagent else value
    conversation = body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    if isinstance(named, str) and named:
        return named
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    return _session_of_user(user) if isinstance(user, str) else ""


def _session_of_user(user: str) -> str:
    """Return the session inside `metadata.user_id`: a JSON object with `session_id`, or text that ends in it."""
    try:
        value = json.loads(user)
    except ValueError:
        return user.rpartition("_session_")[2] if "_session_" in user else ""
    named = value.get("session_id") if isinstance(value, dict) else None
    return named if isinstance(named, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A message of the user or of a tool, or everything that the model wrote between two of them, as a digest."""

    is_reply: bool
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The known end of a conversation, as keyed digests.

    Attributes:
        base: Everything up to the last message of the user or a tool.
        reply: The reply to it; empty if none came, or only a part of it.
        marks: The newest random ids in its replies.
    """

    base: str
    reply: str = ""
    marks: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Known:
    """The known state of a conversation.

    `is_open` while a reply to it is expected: then the same request from another client is not a second try. It is also
    open if the store has no reply, because another server may wait for one.
    """

    end: _End
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The position of a request whose earlier messages are stored by the provider.

    Attributes:
        session: The name of its session; empty if it is not known.
        place: The place of its first message, for `after` of `Session.append`; empty if it is not known.
    """

    session: str = ""
    place: str = ""


@dataclass(slots=True, kw_only=True)
class _Chats:
    """The conversations of one caller by session, and the number of the last record that was read."""

    known: LruCache[str, _Known] = field(default_factory=lambda: LruCache(MAX_CONVERSATIONS))
    last_record: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beginning:
    """A history up to its last message of the user or a tool. The next request continues it.

    Attributes:
        digests: The digests of its messages, without those of the system. They cover all that is read of a message.
        steps: Its steps.
        ids: The random ids in it.
        places: The place of each message of the user or a tool by the digest of everything up to it.
        base: The digest of everything up to the last of them; empty if there is none.
    """

    digests: Sequence[str] = ()
    steps: Sequence[_Step] = ()
    ids: frozenset[str] = frozenset()
    places: Mapping[str, int] = field(default_factory=dict)
    base: str = ""


class _History:
    """The steps of a history, and a digest of each of its beginnings.

    Args:
        messages: Its messages.
        key: The key of the digests.
        known: What was read of an earlier history, with the same key. If this one continues it, only the rest is read.

    Attributes:
        beginning: What was read of it up to the last message of the user or a tool.
        places: The place of each message of the user or a tool by the digest of everything up to it.
        base: The digest of everything up to the last of them.
        opening: What follows it: the beginning of a reply that the model is to complete.
    """

    def __init__(self, messages: Sequence[Message], key: bytes, known: _Beginning = _Beginning()) -> None:
        self._key = key
        self.opening = _trailing_replies(messages)
        spoken = [message for message in messages if message.role != "system"]
        digests = [message.digest for message in spoken]
        if digests[: len(known.digests)] != known.digests:
            known = _Beginning()
        end = len(spoken) - len(_trailing_replies(spoken))
        self.beginning = self._extend(known, spoken[len(known.digests) : end], digests=digests[:end])
        self.places = self.beginning.places
        self.base = self.beginning.base
        self._steps = [*self.beginning.steps, *_read_steps(spoken[end:])]
        self._ids = self.beginning.ids.union(_find_random_ids(spoken[end:]))

    def _extend(self, known: _Beginning, messages: Sequence[Message], *, digests: Sequence[str]) -> _Beginning:
        """Return the beginning that has some messages after the known ones."""
        steps = list(known.steps)
        places = dict(known.places)
        base = digest = known.base
        for step in _read_steps(messages):
            digest = self._sign("chain", digest, step.digest)
            if not step.is_reply:
                places[digest] = len(steps)
                base = digest
            steps.append(step)
        ids = known.ids.union(_find_random_ids(messages))
        return _Beginning(digests=digests, steps=steps, ids=ids, places=places, base=base)

    def _sign(self, *parts: str) -> str:
        return hmac.digest(self._key, json.dumps(parts).encode(), "sha256").hex()[:32]

    def sign_reply(self, messages: Sequence[Message]) -> str:
        """Return the digest of a reply to this history; empty if the reply has no content."""
        for step in _read_reply([*self.opening, *messages]):
            return self._sign("reply", step.digest)
        return ""

    def sign_ids(self, messages: Sequence[Message]) -> tuple[str, ...]:
        """Return the digests of the random ids in a reply."""
        return tuple(self._sign("id", text) for text in _find_random_ids(messages))

    def marks(self) -> set[str]:
        """Return the digests of all random ids in this history."""
        return {self._sign("id", text) for text in self._ids}

    def repeats(self, known: _Known) -> bool:
        """Return whether this history repeats everything that is known of a conversation."""
        place = self.places.get(known.end.base)
        if place is None or known.is_open:
            return False
        if not known.end.reply:
            return True
        following = self._steps[place + 1 : place + 2]
        return bool(following) and self._sign("reply", following[0].digest) == known.end.reply


def _read_steps(messages: Sequence[Message]) -> Iterator[_Step]:
    replies: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            replies.append(message)
        elif message.role != "system":
            yield from _read_reply(replies)
            replies = []
            yield _Step(is_reply=False, digest=message.digest)
    yield from _read_reply(replies)


def _read_reply(messages: Sequence[Message]) -> Iterator[_Step]:
    """Yield one step for consecutive replies; none if they have neither text nor tool calls."""
    content = ReplyContent.read(messages)
    if content.text or content.calls:
        data = json.dumps([content.text, *content.calls]).encode()
        yield _Step(is_reply=True, digest=hashlib.sha256(data).hexdigest())


def _trailing_replies(messages: Sequence[Message]) -> list[Message]:
    found: list[Message] = []
    for message in reversed(messages):
        if message.role != "assistant":
            break
        found.insert(0, message)
    return found


def _find_random_ids(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the ids that a provider has made up for a reply: of tool calls and of items, and signatures."""
    for message in messages:
        for result in message.results:
            yield from _keep_random(result.call_id)
        if message.role != "assistant":
            continue
        yield from _keep_random(message.id)
        for part in message.parts:
            match part:
                case ToolCall():
                    yield from _keep_random(part.id)
                case Thinking():
                    yield from _keep_random(part.signature)
                case RedactedThinking():
                    yield from _keep_random(part.data)


def _keep_random(text: str | None) -> Iterator[str]:
    """Yield an id that is too random to be repeated by chance."""
    for run in _RANDOM.findall((text or "").replace("-", "")):
        digits = sum(character.isdigit() for character in run)
        if digits >= MIN_KINDS and len(run) - digits >= MIN_KINDS:
            yield str(text)
            return


class Conversation:
    """A request of a conversation without a name, on its way.

    Attributes:
        session: The name of its session.
    """

    def __init__(self, session: str, *, finish: Callable[[Sequence[Message]], None]) -> None:
        self.session = session
        self._finish = finish

    def finish(self, reply: Sequence[Message] = ()) -> None:
        """Note the reply, before the client has all of it; without one, that none came, which never waits."""
        self._finish(reply)


class Conversations:
    """The conversations of clients that name none, and the places of the provider's responses.

    The store keeps the end of each conversation and the place of each response, as keyed digests, so that conversations
    continue after a restart. Several servers with one store see what the others have recorded. All calls read and write
    the store: they are not for the thread of the event loop.

    Args:
        engine: The memory.
        key: Returns the key of the digests.
    """

    def __init__(self, engine: Engine, *, key: Callable[[], bytes]) -> None:
        self._engine = engine
        self._memory = engine._memory
        self._key = key
        self._chats: LruCache[Scope, _Chats] = LruCache(MAX_CALLERS)
        self._beginnings: LruCache[tuple[bytes, str], _Beginning] = LruCache(MAX_BEGINNINGS)
        self._lock = Lock()  # of both

    # --- responses -------------------------------------------------------------------

    def add_response(self, response: str, *, session: Scope, place: str, is_whole: bool) -> None:
        """Remember the place after a response of the provider.

        The next request of a conversation that the provider keeps follows the newest response that is whole.
        """
        keys: list[str] = []
        if response and len(response) <= MAX_ID_CHARS:
            keys.append(self._sign_response(response))
        if is_whole:
            keys.append(NEWEST)
        self._store_places(keys, session=session, place=place)

    def find_previous(self, body: Mapping[str, Any], *, owner: Scope) -> Previous:
        """Return the place of the response that a request of a caller continues."""
        response = body.get("previous_response_id")
        if not isinstance(response, str) or not response:
            return Previous()
        select = Select(scope=owner, across=True, newest=True, limit=1)
        for record in self._read_records(select, kind=RESPONSE, key=self._sign_response(response)):
            return Previous(session=record.scope.session, place=_read_place(record))
        return Previous()

    def find_newest(self, session: Scope) -> str:
        """Return the place after the newest response of a session; empty if it is not known.

        A session without a message begins here: this is stored, so that its first request may be repeated.
        """
        for record in self._read_records(Select(scope=session), kind=RESPONSE, key=NEWEST):
            return _read_place(record)
        read = partial(self._memory.store.read_messages, Select(scope=session, limit=1))
        try:
            messages = self._engine._ask_memory(read, scope=replace(session, session=""))
        except StorageError:
            return ""
        if messages:
            return ""
        self._store_places([NEWEST], session=session, place=FIRST)
        return FIRST

    def _sign_response(self, response: str) -> str:
        return hmac.digest(self._key(), response.encode(errors="replace"), "sha256").hex()[:32]

    def _store_places(self, keys: Sequence[str], *, session: Scope, place: str) -> None:
        now = self._memory.clock()
        records = [Record(scope=session, kind=RESPONSE, key=key, data={"place": place}, time=now) for key in keys]
        if not records:
            return
        add = partial(self._memory.store.add_records, records)
        with suppress(StorageError):  # archiving the messages reports it
            self._engine._ask_memory(add, scope=replace(session, session=""))

    # --- histories -------------------------------------------------------------------

    def find(self, messages: Sequence[Message], *, owner: Scope) -> str:
        """Return the session that a history of a caller continues; empty if there is none."""
        history = self._read_history(messages)
        with self._lock:
            return self._find(history, self._load(owner), owner)

    def begin(self, messages: Sequence[Message], *, owner: Scope, is_aside: bool = False) -> Conversation | None:
        """Return the conversation that a request of a caller continues, or a new one; None without any message.

        A request that is only an aside, such as one for a summary, does not move the end of a known conversation.
        """
        history = self._read_history(messages)
        if not history.places:
            return None
        with self._lock:
            chats = self._load(owner)
            found = self._find(history, chats, owner)
            if found and is_aside:
                return Conversation(found, finish=lambda _: None)
            session = found or f"{CHAT}{self._memory.new_id().replace('-', '')[:12]}"
            scope = replace(owner, session=session)
            marks = chats.known[session].end.marks if found else ()
            end = _End(base=history.base, marks=marks)
            self._store(chats, scope, _Known(end=end, is_open=True))

        def finish(reply: Sequence[Message]) -> None:
            with self._lock:
                known = chats.known.get(session)
                if known is None or known.end != end:
                    return  # another request has continued it meanwhile
                if not reply:
                    known.is_open = False
                    return
                newest = (*end.marks, *history.sign_ids(reply))[-MAX_MARKS:]
                self._store(
                    chats, scope, _Known(end=_End(base=end.base, reply=history.sign_reply(reply), marks=newest))
                )

        return Conversation(session, finish=finish)

    def _read_history(self, messages: Sequence[Message]) -> _History:
        """Read a history; of one that continues the last with the same first message only the rest."""
        key = self._key()
        first = next((message.digest for message in messages if message.role != "system"), "")
        with self._lock:
            known = self._beginnings.get((key, first), _Beginning())
        history = _History(messages, key, known)
        with self._lock:
            self._beginnings[key, first] = history.beginning
        return history

    def name(self, scope: Scope) -> None:
        """Note that a request names a session: what it adds is not known here, so that no history continues it."""
        if not scope.session.startswith(CHAT):
            return
        with self._lock:
            chats = self._load(replace(scope, session=""))
            if chats.known.pop(scope.session) is not None:
                remove = partial(self._memory.store.remove_records, Select(scope=scope), kind=RECORD)
                with suppress(StorageError):
                    self._engine._ask_memory(remove, scope=replace(scope, session=""))

    def _find(self, history: _History, chats: _Chats, owner: Scope) -> str:
        """Return the session that a history continues; empty if there is none, or if it is ambiguous."""
        while True:
            session = _match(history, chats.known)
            if session:
                known = chats.known[session]
                stored = self._read_end(replace(owner, session=session))
                if stored == known.end:
                    return session
                # Another server has continued the conversation, or its owner has forgotten it.
                chats.known.pop(session)
                if stored is not None:
                    chats.known[session] = _Known(end=stored, is_open=not stored.reply)
            elif not self._read_new(chats, owner):
                return ""

    # --- records ---------------------------------------------------------------------

    def _load(self, owner: Scope) -> _Chats:
        """Return the conversations of a caller. The callers that were here last are kept."""
        chats = self._chats.get(owner)
        if chats is None:
            chats = _Chats()
            self._read_new(chats, owner)
            self._chats[owner] = chats
        return chats

    def _read_new(self, chats: _Chats, owner: Scope) -> bool:
        """Read the conversations that were begun since the last call; whether there are any."""
        select = Select(scope=owner, across=True, after=chats.last_record, newest=True, limit=MAX_CONVERSATIONS)
        is_new = False
        for record in self._read_records(select, kind=RECORD):
            chats.last_record = max(chats.last_record, record.id)
            end = _read_end(record)
            if end is not None and record.scope.session not in chats.known:
                chats.known[record.scope.session] = _Known(end=end, is_open=not end.reply)
                is_new = True
        return is_new

    def _read_end(self, scope: Scope) -> _End | None:
        records = self._read_records(Select(scope=scope), kind=RECORD)
        return _read_end(records[0]) if records else None

    def _read_records(self, select: Select, *, kind: str, key: str | None = None) -> list[Record]:
        """Read records; none if the store fails, which assembling the window reports."""
        keys = None if key is None else [key]
        read = partial(self._memory.store.read_records, select, kind=kind, keys=keys)
        try:
            return self._engine._ask_memory(read, scope=replace(select.scope, session=""))
        except StorageError:
            return []

    def _store(self, chats: _Chats, scope: Scope, known: _Known) -> None:
        chats.known[scope.session] = known
        end = known.end
        data = {"base": end.base, "reply": end.reply, "marks": end.marks}
        record = Record(scope=scope, kind=RECORD, key="end", data=data, time=self._memory.clock(), is_durable=False)
        with suppress(StorageError):  # assembling the window reports it
            self._engine._ask_memory(lambda: self._memory.store.add_records([record]), scope=replace(scope, session=""))


def _read_end(record: Record) -> _End | None:
    base, reply, marks = (record.data.get(name) for name in ("base", "reply", "marks"))
    if not isinstance(base, str) or not isinstance(reply, str) or not isinstance(marks, list | tuple):
        return None
    return _End(base=base, reply=reply, marks=tuple(map(str, marks)))


def _read_place(record: Record) -> str:
    place = record.data.get("place")
    return place if isinstance(place, str) else ""


def _match(history: _History, known: LruCache[str, _Known]) -> str:
    """Return the session that a history continues; empty if there is none.

    Of several conversations that it repeats, it continues the longest. If several have the same id, it is ambiguous and
    the result is empty.
    """
    best = ""
    longest = -1
    for session, one in known.items():
        if history.repeats(one) and history.places[one.end.base] >= longest:
            best = session
            longest = history.places[one.end.base]
    if best:
        return best
    marks = history.marks()
    marked = [session for session, one in known.items() if not marks.isdisjoint(one.end.marks)]
    return marked[0] if len(marked) == 1 else ""
