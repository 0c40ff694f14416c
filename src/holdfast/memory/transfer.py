"""Memory out of a store and into another: JSON Lines that hold everything, and Markdown for people.

Forgotten rows are not in a store any more, so they are in no export; and a store that forgot something does not
take it back from one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any, Final

from holdfast.errors import InputError
from holdfast.memory import facts
from holdfast.memory.archive import passages_of
from holdfast.memory.block import Marks, open_marks
from holdfast.messages import ToolCall, ToolResult
from holdfast.store.base import FactRow, MessageRow, Scope, Select, Store
from holdfast.store.codec import from_json, to_json

VERSION: Final = 1
_HEADER: Final = "holdfast-export"
_PAGE: Final = 500
_BATCH: Final = 200


def pages(store: Store, scope: Scope, *, across: bool = True) -> Iterator[MessageRow]:
    """Read every message of a scope, a page at a time."""
    after = 0
    while rows := store.read_messages(Select(scope=scope, across=across, after=after, limit=_PAGE)):
        yield from rows
        after = rows[-1].id


def to_jsonl(
    store: Store, scopes: Iterable[Scope], file: IO[str], *, progress: Callable[[int], None] | None = None
) -> int:
    """Write the messages and facts of these agents, a line each; return their number."""
    _write(file, {"kind": _HEADER, "version": VERSION})
    count = 0
    for scope in scopes:
        for row in pages(store, scope):
            flags = {"pinned": row.pinned, "buried": row.excluded}
            line = {"kind": "message", "number": row.id, "scope": asdict(row.scope), "nonce": row.nonce}
            _write(
                file,
                line | {name: True for name, is_set in flags.items() if is_set} | {"message": to_json(row.message)},
            )
            count += 1
            if progress is not None:
                progress(1)
        for fact in store.read_facts(Select(scope=scope, across=True)):
            _write(file, {"kind": "fact", **asdict(fact)})
            count += 1
    return count


def _write(file: IO[str], data: Mapping[str, Any]) -> None:
    file.write(json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str) + "\n")


def claims(path: Path) -> bool:
    """Return whether a file is such an export."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(200).startswith(b'{"kind":"%s"' % _HEADER.encode())


def load_jsonl(store: Store, path: Path, *, progress: Callable[[int], None] | None = None) -> int:
    """Import what `to_jsonl` wrote; return the number of rows in the file. Importing it again changes nothing."""
    from holdfast.transcripts.lines import read_lines  # noqa: PLC0415 - only what reads an export needs readers

    importer, marks = _Importer(store), open_marks(store)
    for line in read_lines(path):
        if line.data is None or line.data.get("kind") == _HEADER:
            if line.problem is not None:
                raise InputError(f"{path}:{line.number}: {line.problem}")
            continue
        importer.add(_row(line.data, path, line.number, marks), number=line.data.get("number"))
        if progress is not None:
            progress(len(line.raw))
    importer.write()
    return importer.count


class _Importer:
    """Import rows in batches. Messages get new numbers, and the evidence of facts is renumbered."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._store = store
        self._batch: list[tuple[int | None, MessageRow]] = []
        self._numbers: dict[int | None, int] = {}
        self._known: set[tuple[str, str]] = set()

    def add(self, row: MessageRow | FactRow, *, number: int | None) -> None:
        """Add a row, with the number it had in the export."""
        self.count += 1
        if isinstance(row, MessageRow):
            self._batch.append((number, row))
            if len(self._batch) >= _BATCH:
                self.write()
            return
        self.write()
        fact = renumber_evidence(row, self._numbers)
        if not is_known(self._store, fact, self._known):
            self._store.add_facts([fact])

    def write(self) -> None:
        """Store the messages of the batch."""
        numbers = self._store.add_messages([row for _, row in self._batch])
        self._numbers.update(zip((number for number, _ in self._batch), numbers, strict=True))
        self._batch = []


def renumber_evidence(fact: FactRow, numbers: Mapping[Any, int]) -> FactRow:
    """Return a fact with its evidence renumbered; messages that were not imported are left out."""
    evidence = tuple(numbers[number] for number in fact.evidence if numbers.get(number))
    return fact if evidence == fact.evidence else replace(fact, evidence=evidence)


def _row(data: Mapping[str, Any], path: Path, number: int, marks: Marks) -> MessageRow | FactRow:
    try:
        scope = Scope(**data["scope"])
        if data["kind"] == "message":
            message = from_json(data["message"])
            return MessageRow(
                scope=scope,
                message=message,
                nonce=data["nonce"],
                passages=tuple(passages_of(message, marks)),
                pinned=data.get("pinned", False),
                excluded=data.get("buried", False),
            )
        values = {key: value for key, value in data.items() if key not in {"kind", "scope"}}
        return replace(FactRow(scope=scope, **values), evidence=tuple(values.get("evidence", ())))
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}:{number}: not a line of an export ({error})") from error


def is_known(store: Store, row: FactRow, known: set[tuple[str, str]]) -> bool:
    """Return whether the store has this version of a fact; `known` are the versions before it in the import."""
    key = (row.id, json.dumps(asdict(row), sort_keys=True, default=str))
    versions = store.read_facts(Select(scope=row.scope), keys=(row.id,))
    there = key in known or row in versions
    known.add(key)
    return there


def to_markdown(store: Store, scopes: Iterable[Scope], file: IO[str], *, moment: Callable[[int | None], str]) -> int:
    """Write memory as a document: the facts first, then every session."""
    count = 0
    for scope in scopes:
        held = facts.current(store.read_facts(Select(scope=scope, across=True)))
        file.write(f"# Memory of {scope.agent}{f' in {scope.project}' if scope.project else ''}\n\n")
        if held:
            file.write("## Facts\n\n" + "".join(f"- [{fact.type}] {fact.content}\n" for fact in held) + "\n")
        session = None
        for row in pages(store, scope):
            if row.scope.session != session:
                session = row.scope.session
                file.write(f"## Session {session}\n\n")
            file.write(f"### #{row.id} {row.message.role} {moment(row.message.timestamp)}".rstrip() + "\n\n")
            file.write(_markdown(row) + "\n\n")
            count += 1
    return count


def _markdown(row: MessageRow) -> str:
    pieces = [row.message.text] if row.message.text else []
    for part in row.message.parts:
        if isinstance(part, ToolCall):
            pieces.append(f"`{part.name}` {json.dumps(part.arguments, ensure_ascii=False, default=str)}")
        elif isinstance(part, ToolResult):
            longest = max(map(len, re.findall("`+", part.text)), default=0)  # a fence must be longer
            fence = "`" * max(3, longest + 1)
            pieces.append(f"{fence}text\n{part.text}\n{fence}")
    return "\n\n".join(pieces)
