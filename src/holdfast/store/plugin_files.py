"""The files of the memory-context plugin: lines of `segments.jsonl` and `knowledge.jsonl`, and `vectors.bin`.

What the plugin knows is where the plugin looks for it; what only we know is under `holdfast`, which it ignores.

`vectors.bin` is VMEM version 1:

    header   magic "VMEM" · version · dimension · count            four unsigned 32-bit numbers, little-endian
    entry    length of the id (16 bits) · id (UTF-8) · vector (dimension x float32)
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from holdfast import patterns
from holdfast.errors import InputError
from holdfast.messages import Message, Text
from holdfast.store.base import FactRow, FactType, MessageRow, Scope
from holdfast.store.codec import DAMAGE, from_json, text_bytes, to_json
from holdfast.store.cutting import cut
from holdfast.transcripts import journal
from holdfast.transcripts.lines import Line

OWN: Final = "holdfast"
FOREIGN: Final = "segment:"
"""Prefix of the nonce of a message that the plugin wrote."""

ContentKey: TypeAlias = tuple[Scope, str, str]

_ROLES: Final = frozenset({"user", "assistant"})
_TYPES: Final = frozenset(get_args(FactType))
_FACT_EXTRAS: Final = ("subject", "slot", "evidence", "quote", "pinned")


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that cannot be used, and why. It stays in its file."""

    file: str
    line: int
    reason: str


def tokens(text: str) -> int:
    """How many tokens the plugin reckons a text has. It counts UTF-16 units, three to a token."""
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return max(1, math.ceil(units / 3))


def encode_line(data: Mapping[str, Any]) -> str:
    """Return an object as one line. Halves of surrogate pairs are written as escapes, which every reader knows."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")) + "\n"
    return text


def append_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Append lines in one write, durable when this returns, on a line of their own where the last one has no end."""
    with journal.storage(path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size:
                os.lseek(descriptor, size - 1, os.SEEK_SET)
            start = b"\n" if size and os.read(descriptor, 1) != b"\n" else b""
            journal.append(descriptor, start + b"".join(lines), durable=True)
        finally:
            os.close(descriptor)


# --- scopes ------------------------------------------------------------------


def scope_to_json(scope: Scope) -> list[str]:
    """A scope as it is kept."""
    return [scope.tenant, scope.project, scope.agent, scope.session]


def scope_of(data: Mapping[str, Any], session: str) -> Scope:
    """The scope of a line; one that is not ours belongs to its session alone."""
    own = data.get(OWN)
    if not isinstance(own, dict) or "scope" not in own:
        return Scope(session=session)
    return scope_from_json(own["scope"])


def scope_from_json(data: Sequence[str]) -> Scope:
    """The scope that `scope_to_json` wrote."""
    tenant, project, agent, session = data
    return Scope(tenant=tenant, project=project, agent=agent, session=session)


# --- segments ------------------------------------------------------------------


def content_of(row: MessageRow) -> str:
    """What of a message the plugin would keep: the words of a user or an assistant; nothing of noise."""
    if row.message.role not in _ROLES or not row.scope.session or not row.passages:
        return ""
    if row.message.calls or row.message.results:
        return row.message.text
    return "".join(passage.text for passage in row.passages)


def segment_line(row: MessageRow, content: str, *, name: str, now: int) -> dict[str, Any]:
    """A message as a line of `segments.jsonl`."""
    time = row.message.timestamp
    line: dict[str, Any] = {
        "id": name,
        "sessionId": row.scope.session,
        "timestamp": now if time is None else time,
        "role": row.message.role,
        "content": content,
        "tokens": tokens(content),
        "metadata": {"topics": topics(content), "entities": entities(content)},
    }
    found = "".join(passage.text for passage in row.passages)
    plain = _plain(line) == row.message and row.message.origin is None
    more = ({} if plain else {"body": to_json(row.message)}) | ({} if found == content else {"text": found})
    own = {"scope": scope_to_json(row.scope), "digest": row.message.digest, "nonce": row.nonce}
    return line | {OWN: own | more}


def segment_problem(data: Mapping[str, Any]) -> str | None:
    """Why a line of `segments.jsonl` is no segment; None where it is one."""
    time = data.get("timestamp")
    for wrong, reason in (
        (not data.get("id") or not isinstance(data["id"], str), "no id"),
        (not data.get("sessionId") or not isinstance(data["sessionId"], str), "no session"),
        (data.get("role") not in _ROLES, "not said by a user or an assistant"),
        (not isinstance(data.get("content"), str), "no text"),
        (isinstance(time, bool) or not isinstance(time, int | float) or time != time, "no time"),  # noqa: PLR0124 - NaN
    ):
        if wrong:
            return reason
    return None


def segment_of(line: Line) -> dict[str, Any] | None:
    """The data of a line that is a segment."""
    return line.data if line.data is not None and segment_problem(line.data) is None else None


def segment_row(data: Mapping[str, Any]) -> MessageRow | None:
    """The message of a segment; None where our own part of the line is damaged."""
    own = data.get(OWN)
    known = own if isinstance(own, dict) else {}
    try:
        message = from_json(known["body"]) if "body" in known else _plain(data)
        nonce = known["nonce"] if isinstance(own, dict) else f"{FOREIGN}{data['id']}"
        passages = tuple(cut(str(known.get("text", data["content"])), speaker=message.name or ""))
        return MessageRow(scope=scope_of(data, data["sessionId"]), message=message, nonce=nonce, passages=passages)
    except DAMAGE:
        return None


def segment_key(data: Mapping[str, Any]) -> ContentKey:
    """What the plugin tells this segment apart by."""
    return content_key(scope_of(data, data["sessionId"]), data["role"], data["content"])


def line_problem(line: Line, facts: dict[str, FactRow], *, is_segment: bool) -> str | None:
    """Why a line cannot be used; `facts` are the latest versions before it."""
    if (data := line.data) is None:
        return line.problem
    if is_segment:
        lost = "not a message of Holdfast"
        return segment_problem(data) or (lost if segment_row(data) is None else None)
    fact = read_fact(data, before=facts.get(str(data.get("id"))))
    if isinstance(fact, str):
        return fact
    facts[fact.id] = fact
    return None


def _plain(data: Mapping[str, Any]) -> Message:
    return Message(role=data["role"], parts=(Text(text=data["content"]),), timestamp=_whole(data["timestamp"]))


# --- facts ---------------------------------------------------------------------


def fact_line(row: FactRow) -> dict[str, Any]:
    """A version of a fact as a line of `knowledge.jsonl`; one that belongs to the whole folder has no scope."""
    line: dict[str, Any] = {"id": row.id, "type": row.type, "content": row.content}
    if row.context:
        line["context"] = row.context
    line["timestamp"] = row.time
    if row.superseded_by is not None:
        line["supersededBy"] = row.superseded_by
    if row.deleted:
        line["_deleted"] = True
    extras = {key: value for key in _FACT_EXTRAS if (value := getattr(row, key))}
    kept = extras if row.scope == Scope() else {"scope": scope_to_json(row.scope), **extras}
    return line | {OWN: kept} if kept else line


def read_fact(data: Mapping[str, Any], *, before: FactRow | None) -> FactRow | str:
    """Return the version of a fact that a line states, or why it states none.

    One that is only deleted keeps the content of the version before.
    """
    name = data.get("id")
    if not isinstance(name, str) or not name:
        return "no id"
    deleted = data.get("_deleted") is True
    if deleted and before is not None and "content" not in data:
        data = {"type": before.type, "content": before.content, **data}
    if data.get("type") not in _TYPES or not isinstance(data.get("content"), str):
        return "not a fact of a known type"
    after = data.get("supersededBy")
    return FactRow(
        scope=scope_of(data, ""),
        id=name,
        type=cast("FactType", data["type"]),
        content=data["content"],
        context=str(data.get("context") or ""),
        time=_whole(data.get("timestamp")),
        superseded_by=after if isinstance(after, str) else None,
        deleted=deleted,
        **_extras(data.get(OWN)),
    )


def _whole(number: object) -> int:
    return int(number) if isinstance(number, int | float) and math.isfinite(number) else 0


def _extras(own: object) -> dict[str, Any]:
    if not isinstance(own, dict):
        return {}
    return {key: tuple(value) if key == "evidence" else value for key, value in own.items() if key in _FACT_EXTRAS}


def content_key(scope: Scope, role: str, content: str) -> ContentKey:
    """What the plugin tells segments apart by: session, role and a digest of the text."""
    return scope, role, hashlib.sha256(text_bytes(content)).hexdigest()[:16]


# --- topics and entities ---------------------------------------------------------

_WORD: Final = re.compile(r"[^\W_]+")


def topics(text: str) -> list[str]:
    """List the topics of a text: an English keyword counts as a whole word, a Chinese one anywhere."""
    words = set(_WORD.findall(text.lower()))
    keywords = patterns.load("plugin")["topics"].items()
    return [
        name
        for name, known in keywords
        if any(word in words if word.isascii() else word in text for word in known.split())
    ]


def entities(text: str) -> list[dict[str, Any]]:
    """List what a text names, each once, kind by kind: what kind of thing, its name, and where it is."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    tables = patterns.load("plugin")
    for kind, source in (*tables["addresses"].items(), *tables["entities"].items()):
        pattern = patterns.compile_once(source)
        for match in pattern.finditer(text):
            value, offset = match.group(pattern.groups), match.start(pattern.groups)
            found.setdefault((kind, value), {"type": kind, "value": value, "offset": offset})
        if kind in tables["addresses"]:
            text = pattern.sub(lambda match: " " * len(match.group()), text)
    return list(found.values())


# --- vectors.bin -------------------------------------------------------------------

VECTORS_MAGIC: Final = 0x4D454D56
VECTORS_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4I")
_LENGTH: Final = struct.Struct("<H")
_MAX_ID_BYTES: Final = 0xFFFF

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a file by id, the last of several; `missing` are entries that the header promises in vain."""

    dimension: int
    rows: dict[str, Floats]
    missing: int = 0


def read_vectors(path: Path) -> Vectors | None:
    """What a file holds; None where there is no such file, or it is none of this format and version."""
    with journal.storage(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    return decode_vectors(data)


def decode_vectors(data: bytes) -> Vectors | None:
    """The vectors in these bytes; None where they are something else. A tail that is cut off ends the reading."""
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, count = _HEADER.unpack_from(data)
    if (magic, version) != (VECTORS_MAGIC, VECTORS_VERSION):
        return None
    rows: dict[str, Floats] = {}
    place, done = _HEADER.size, 0
    while done < count and place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        start = place + _LENGTH.size + length
        if start + 4 * dimension > len(data):
            break
        name = data[place + _LENGTH.size : start].decode("utf-8", "replace")
        rows[name] = np.frombuffer(data, "<f4", dimension, offset=start).astype(np.float32)
        place, done = start + 4 * dimension, done + 1
    return Vectors(dimension, rows, missing=count - done)


def encode_vectors(rows: Mapping[str, Sequence[float] | Floats], *, dimension: int) -> Iterator[bytes]:
    """A file of these vectors, piece by piece. One that is too short is filled up with zeros, a longer one refused."""
    yield _HEADER.pack(VECTORS_MAGIC, VECTORS_VERSION, dimension, len(rows))
    for name, row in rows.items():
        raw = name.encode("utf-8", "replace")
        if len(raw) > _MAX_ID_BYTES or len(row) > dimension:
            raise InputError(f"{name[:80]!r} does not fit into a vector file of dimension {dimension}")
        whole = np.zeros(dimension, "<f4")
        whole[: len(row)] = row
        yield _LENGTH.pack(len(raw)) + raw + whole.tobytes()


def write_vectors(path: Path, rows: Mapping[str, Sequence[float] | Floats], *, dimension: int) -> None:
    """Put these vectors in the place of the file: whoever reads sees the old or the new ones, also after a crash."""
    journal.replace(path, list(encode_vectors(rows, dimension=dimension)))


def remove_vectors(path: Path, names: set[str]) -> None:
    """Remove the vectors of segments, and of their windows, from a file."""
    vectors = read_vectors(path)
    if vectors is None:
        return
    kept = {name: row for name, row in vectors.rows.items() if name.split("#")[0] not in names}
    if len(kept) < len(vectors.rows):
        write_vectors(path, kept, dimension=vectors.dimension)
