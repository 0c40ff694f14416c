"""The parts that all readers share: the Reader type, the way from records to entries, blocks, and SQLite access."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.providers.wire import decode_arguments, find, image_from_url
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, stamp, string, text
from holdfast.transcripts.lines import Head, Line, read_document, read_head, read_lines

Facts: TypeAlias = dict[str, tuple[str, ...]]
"""The paths in a record of `session`, `cwd`, `title`, `topic` (a title that the agent made up) and `model`."""


class Database(NamedTuple):
    """How an agent stores sessions in an SQLite file.

    `columns` identify its files, as `table.column`; `sessions` is a query for the `id`, `modified` (Unix milliseconds)
    and `size` of every session.
    """

    columns: tuple[str, ...]
    sessions: str


Claims: TypeAlias = Callable[[Path, Head], bool]
Messages: TypeAlias = Callable[[Entry], Sequence[Message]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The reader of one agent's session format.

    `stream` yields every record of a session in order, lazily if the format allows it. `describe` lists which fields of
    records describe the session. `claims` returns whether a file is of this agent, by its name and first lines alone.
    `folder` returns the folder that is the whole session, for that folder and for a file inside; None elsewhere.
    """

    name: str
    stream: Callable[[Path], Iterator[Item]]
    describe: Facts | Callable[[Json], Facts] = field(default_factory=dict)
    claims: Claims = lambda _path, _head: False
    folder: Callable[[Path], Path | None] = lambda _path: None
    database: Database | None = None


def claims_if(is_own: Callable[[Json], bool]) -> Claims:
    """Claim a file if one of its first records is the agent's own."""
    return lambda _path, head: any(is_own(record) for record in head.records)


def folder_with(*files: str, beside: Iterable[str] = (), claims: Claims | None = None) -> Callable[[Path], Path | None]:
    """Find the folder that contains all of `files`, for itself, for them and for the files next to them.

    `claims` judges the first file, which holds the records.
    """

    def find_folder(path: Path) -> Path | None:
        for home in (path, *path.parents[: len(Path(files[0]).parts)]):
            inside = {home / name for name in (*files, *beside)}
            if path in {home, *inside} and all((home / name).is_file() for name in files):
                records = home / files[0]
                try:
                    return home if claims is None or claims(records, read_head(records)) else None
                except TranscriptError:
                    return None
        return None

    return find_folder


def facts(**paths: str) -> Facts:
    """Name the paths of each fact; the first path with a text counts."""
    return {name: tuple(value.split()) for name, value in paths.items()}


def merge_facts(records: Iterable[Json], reader: Reader) -> dict[str, str]:
    """Merge what the records state: the first session and folder, the last title, else topic, and model."""
    merged: dict[str, str] = {}
    describe = reader.describe
    for record in records:
        for name, paths in (describe(record) if callable(describe) else describe).items():
            is_final = name in merged and name in ("session", "cwd")
            if not is_final and (value := text(record, *paths)):
                merged[name] = value
    topic = merged.pop("topic", None)
    return {"title": topic, **merged} if topic else merged


# --- from records to entries ---------------------------------------------------


def read_rows(path: Path) -> Iterator[Line | Problem]:
    """Yield the lines that hold a JSON object or list, the others that are not blank as problems.

    A file that cannot be opened raises; one that fails later ends with a problem.
    """
    number = 0
    try:
        for line in read_lines(path, skip_long=True):
            number = line.number
            if line.data is not None or isinstance(line.value, list):
                yield line
            elif not line.raw.isspace():
                yield Problem(number, line.problem or "not a record")
    except TranscriptError as error:
        if number == 0:
            raise
        yield Problem(number + 1, f"the rest is lost: {error}")


def read_values(path: Path) -> Iterator[tuple[int, Any] | Problem]:
    """Yield every JSON object and list of a document or a JSON Lines file with its line; the rest as problems."""
    head = read_head(path)
    if head.document:
        yield 1, head.values[0]
        return
    for row in read_rows(path):
        yield row if isinstance(row, Problem) else (row.number, row.value)


def read_entries(path: Path, messages: Messages, frame: Callable[[Json, int], Entry] = make_entry) -> Iterator[Item]:
    """Stream a JSON Lines file. `frame` makes an entry of a record, `messages` reads the entry's messages.

    A record whose message cannot be read becomes an entry without messages, and a problem. A line that repeats
    an earlier record with the same id is skipped; the repeats are reported once.
    """
    seen: set[tuple[str, int]] = set()  # ids and hashes only, so that a large file needs little memory
    repeats = first_repeat = 0
    for line in read_rows(path):
        if isinstance(line, Problem):
            yield line
            continue
        if line.data is None:
            yield Problem(line.number, line.problem or "not a record")
            continue
        entry = frame(line.data, line.number)
        key = (entry.id or "", hash(line.raw.rstrip()))
        if entry.id is None or key not in seen:
            seen.add(key)
            yield from attach_messages(entry, messages)
        else:
            repeats += 1
            first_repeat = first_repeat or entry.line
    if repeats:
        yield Problem(first_repeat, f"{repeats} lines repeat an earlier record word for word and were read once")


def attach_messages(entry: Entry, messages: Messages) -> Iterator[Item]:
    """Yield the entry with its messages, which get its id, and its time if they have none."""
    try:
        stamped = tuple([stamp(message, entry) for message in messages(entry)])
    except FormatError as error:
        yield entry
        yield Problem(entry.line, f"kept without its message: {error}")
        return
    yield replace(entry, messages=stamped) if stamped else entry


def read_object(path: Path) -> Any:
    """Decode a file as one JSON value; raises a TranscriptError if it cannot be read."""
    try:
        return read_document(path)
    except ValueError as error:
        raise TranscriptError(f"not a JSON document: {error}", path=path) from error


_MAX_DELAYED: Final = 32


def delay_items(items: Iterable[Item], amend: Callable[[deque[Item], Entry], None]) -> Iterator[Item]:
    """Yield items late enough that `amend` may still change the last messages before the entry that it receives.

    Agents write the usage of a reply after the reply, or on each of its lines.
    """
    delayed: deque[Item] = deque()
    with_messages = 0
    for item in items:
        if isinstance(item, Entry):
            amend(delayed, item)
            with_messages += bool(item.messages)
        delayed.append(item)
        while with_messages > _MAX_DELAYED:
            oldest = delayed.popleft()
            with_messages -= isinstance(oldest, Entry) and bool(oldest.messages)
            yield oldest
    yield from delayed


def amend_last(delayed: deque[Item], is_meant: Callable[[Entry], bool], change: Callable[[Message], Message]) -> None:
    """Change the last message of the last entry that matches."""
    for index in range(len(delayed) - 1, -1, -1):
        item = delayed[index]
        if isinstance(item, Entry) and item.messages and is_meant(item):
            delayed[index] = replace(item, messages=(*item.messages[:-1], change(item.messages[-1])))
            return


# --- content ---------------------------------------------------------------------


def read_block(data: Json, format: str) -> Part:
    """Read a content block as most agents write it; a block of another kind is kept unchanged."""
    part: Part = Opaque(kind=string(data, "type"), data=data)
    url = text(data, "imageUrl.url", "image_url.url")
    match data.get("type"):
        case "text" if isinstance(data.get("text"), str):
            part = Text(text=data["text"])
        case "thinking" | "think":
            signature = text(data, "signature", "encrypted")
            part = Thinking(text=text(data, "thinking", "think") or "", signature=signature)
        case "image" if isinstance(data.get("data"), str):
            part = Image(media_type=string(data, "mimeType"), data=data["data"])
        case _ if url is not None:
            part = image_from_url(url)
    return part.read_from(data, format=format)


def read_blocks(data: Json, path: str, format: str) -> tuple[Part, ...]:
    """Read the content at a path: one text, or a list of blocks."""
    value = find(data, path)
    return (Text(text=value),) if isinstance(value, str) else tuple(read_block(b, format) for b in objects(data, path))


def make_call(call_id: str, name: str, arguments: object) -> ToolCall:
    """Make a call; arguments that are text are decoded, those that are neither text nor an object left out."""
    value = decode_arguments(arguments) if isinstance(arguments, str) else mapping(arguments)
    return ToolCall(id=call_id, name=name, arguments=value)


def make_result(
    call_id: str, content: Iterable[Part], *, is_error: bool = False, name: str | None = None
) -> tuple[Message, ...]:
    """Make the message of a tool result, with the parts that a result may hold."""
    allowed = tuple(part for part in content if isinstance(part, ResultContent))
    result = ToolResult(call_id=call_id, content=allowed, is_error=is_error, name=name)
    return (Message(role="tool", parts=(result,)),)


# --- SQLite files ----------------------------------------------------------------
# A file holds many sessions. A session is addressed as a path below the file: `opencode.db/ses_1`.

_MAGIC: Final = b"SQLite format 3\0"


class StoredSession(NamedTuple):
    """A session in an SQLite file."""

    path: Path
    modified: int
    size: int


def database_file(path: Path) -> Path | None:
    """Return the SQLite file that a path names, or names a session of; None for any other path."""
    file = next((one for one in (path, *path.parents) if os.path.isfile(one)), None)  # noqa: PTH113 - never raises
    try:
        if file is None:
            return None
        with file.open("rb") as opened:
            return file if opened.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None


def has_columns(file: Path, columns: Iterable[str]) -> bool:
    """Return whether an SQLite file has these columns, each given as `table.column`."""
    with _connect(file) as query:
        sql = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return all(query(sql, *column.split(".")) for column in columns)


def list_sessions(file: Path, database: Database) -> list[StoredSession]:
    """List every session of a file, the oldest first."""
    with _connect(file) as query:
        rows = query(database.sessions)
    stored = [StoredSession(file / str(row["id"]), int(row["modified"] or 0), int(row["size"] or 0)) for row in rows]
    return sorted(stored, key=lambda one: (one.modified, one.path))


def select_session(path: Path, file: Path, database: Database) -> Path:
    """Return the path of the session that a path names; a file with one session needs no name."""
    stored = [one.path for one in list_sessions(file, database)]
    if path in stored:
        return path
    if path != file:
        raise TranscriptError(f"no session of that name in {file}", path=path)
    if not stored:
        raise TranscriptError("a database without a session", path=file)
    if len(stored) > 1:
        raise TranscriptError(f"holds {len(stored):,} sessions: name one, for example {stored[-1]}", path=file)
    return stored[0]


@contextmanager
def open_session(path: Path) -> Iterator[tuple[Callable[..., list[dict[str, Any]]], str]]:
    """Yield a function that runs a query, and the id of the session that the path names."""
    file = database_file(path)
    if file is None:
        raise TranscriptError("not a session in an SQLite file", path=path)
    with _connect(file) as query:
        yield query, path.relative_to(file).as_posix()


@contextmanager
def _connect(file: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Open a file for reading; in a read-only folder without the log that SQLite would create next to it."""
    address = f"file:{quote(str(file.absolute()))}?mode=ro"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=10)
        try:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            connection.close()
            if not isinstance(error, sqlite3.OperationalError):
                raise
            connection = sqlite3.connect(f"{address}&immutable=1", uri=True)
        with closing(connection):
            connection.row_factory = sqlite3.Row
            yield lambda sql, *values: [dict(row) for row in connection.execute(sql, values)]
    except sqlite3.Error as error:
        raise TranscriptError(f"could not be read: {error}", path=file) from error
