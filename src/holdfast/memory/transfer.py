"""Export and import a memory: JSON Lines with everything, folders, and Markdown for people.

Forgotten rows are no longer in a store, so no export has them, and a store that forgot something does not import it
again. The memory-context plugin can read an exported folder (`segments.jsonl`, `knowledge.jsonl`, `vectors.bin`). Data
that its format cannot hold is in `holdfast-folder.db`. Importing a folder does not change it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from holdfast.embed.base import Embedder, unit
from holdfast.errors import InputError, StorageError
from holdfast.memory import facts
from holdfast.memory.archive import mask, passages_of, unwrap
from holdfast.memory.block import Marks, open_marks, strip_message
from holdfast.memory.embedding import vector_rows
from holdfast.memory.exclusion import Exclusions, exclude_imported, read_exclusions, settle
from holdfast.messages import ToolCall, ToolResult
from holdfast.redaction import redact
from holdfast.search.arrays import Floats
from holdfast.store.base import FactRow, MessageRow, Scope, Select, Store
from holdfast.store.codec import from_json, to_json

if TYPE_CHECKING:
    from holdfast.store.folder import FolderStore

T = TypeVar("T")

VERSION: Final = 1
_HEADER: Final = "holdfast-export"
_BATCH: Final = 500
_PLAIN: Final = Scope()
_FOREIGN: Final = "segment:"
"""Prefix of the nonce of a message that the plugin wrote."""


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield batch


def pages(store: Store, scope: Scope, *, across: bool = True) -> Iterator[MessageRow]:
    """Read every message of a scope, a page at a time."""
    after = 0
    while rows := store.read_messages(Select(scope=scope, across=across, after=after, limit=_BATCH)):
        yield from rows
        after = rows[-1].id


def to_jsonl(store: Store, scopes: Iterable[Scope], file: IO[str]) -> int:
    """Write the messages and facts of these agents, one per line; return their number."""
    _write(file, {"kind": _HEADER, "version": VERSION})
    count = 0
    for scope in scopes:
        hidden = read_exclusions(store, scope)
        for row in pages(store, scope):
            line: dict[str, Any] = {
                "kind": "message",
                "number": row.id,
                "scope": asdict(row.scope),
                "nonce": row.nonce,
            }
            if row.pinned:
                line["pinned"] = True
            if row.excluded:
                line["buried"] = True  # the name in the first version of this format
            line["message"] = to_json(row.message)
            _write(file, line)
            count += 1
        for fact in store.read_facts(Select(scope=scope, across=True)):
            line = {"kind": "fact", **asdict(fact)}
            if fact.id in hidden.facts:
                line["excluded"] = True
            settled = [pair - {fact.id} for pair in hidden.pairs if fact.id in pair]
            if settled:
                line["settled_with"] = sorted(frozenset().union(*settled))
            _write(file, line)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageLine:
    """A message of an export, and the number that it had."""

    row: MessageRow
    number: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _FactLine:
    """A version of a fact of an export, whether recall leaves it out, and the ids of facts that also hold."""

    row: FactRow
    excluded: bool
    settled_with: Sequence[str]


def load_jsonl(store: Store, path: Path) -> int:
    """Import what `to_jsonl` wrote; return the number of rows in the file. Importing it again changes nothing."""
    numbers: dict[int | None, int] = {}
    seen: set[tuple[str, str]] = set()
    known: dict[str, FactRow] = {}
    pairs: set[frozenset[str]] = set()
    left_out: set[str] = set()
    count = 0
    for kind, group in groupby(_read_rows(path, open_marks(store)), key=type):
        for batch in _batches(group):
            count += len(batch)
            if kind is _MessageLine:
                messages = cast("list[_MessageLine]", batch)
                rows = [line.row for line in messages]
                added = store.add_messages(rows)
                numbers.update(zip((line.number for line in messages), added, strict=True))
                _exclude_messages(store, rows, added)
            else:
                facts_to_add: list[FactRow] = []
                lines = cast("list[_FactLine]", batch)
                for version in lines:
                    fact = renumber_evidence(version.row, numbers)
                    if not is_known(store, fact, seen):
                        facts_to_add.append(fact)
                store.add_facts(facts_to_add)
                for line in lines:
                    known[line.row.id] = line.row
                    pairs.update(frozenset({line.row.id, other}) for other in line.settled_with)
                    if line.excluded:
                        left_out.add(line.row.id)
    _exclude_facts(store, list(known.values()), Exclusions(facts=frozenset(left_out), pairs=frozenset(pairs)))
    return count


def _exclude_facts(store: Store, versions: Sequence[FactRow], hidden: Exclusions) -> None:
    """Exclude facts from recall, and settle contradictions, as they were where these versions come from."""
    by_id = {fact.id: fact for fact in versions}
    exclude_imported(store, [fact for fact in by_id.values() if fact.id in hidden.facts])
    for pair in hidden.pairs:
        settle(store, [by_id[name] for name in pair if name in by_id], settled=True, time=0)


def _read_rows(path: Path, marks: Marks) -> Iterator[_MessageLine | _FactLine]:
    """Read the rows of an export."""
    from holdfast.transcripts.lines import read_lines  # noqa: PLC0415 - only what reads an export needs readers

    for line in read_lines(path):
        if line.problem is not None:
            raise InputError(f"{path}:{line.number}: {line.problem}")
        data = line.data
        if data is None or data.get("kind") == _HEADER:
            continue
        line_read: _MessageLine | _FactLine
        try:
            scope = Scope(**data["scope"])
            if data["kind"] == "message":
                message = from_json(data["message"])
                row = MessageRow(
                    scope=scope,
                    message=message,
                    nonce=data["nonce"],
                    passages=tuple(passages_of(message, marks)),
                    pinned=data.get("pinned", False),
                    excluded=data.get("buried", False),
                )
                line_read = _MessageLine(row=row, number=data.get("number"))
            else:
                values = {key: value for key, value in data.items() if key not in {"kind", "scope"}}
                excluded = values.pop("excluded", False)
                settled_with = values.pop("settled_with", ())
                for name in ("evidence", "questions"):  # JSON has no tuples
                    values[name] = tuple(values.get(name, ()))
                fact = FactRow(scope=scope, **values)
                line_read = _FactLine(row=fact, excluded=excluded, settled_with=settled_with)
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}:{line.number}: not a line of an export ({error})") from error
        yield line_read


def renumber_evidence(fact: FactRow, numbers: Mapping[Any, int]) -> FactRow:
    """Return a fact with its evidence renumbered; messages that were not imported are left out."""
    evidence = tuple(numbers[number] for number in fact.evidence if numbers.get(number))
    if evidence == fact.evidence:
        return fact
    return replace(fact, evidence=evidence)


def is_known(store: Store, row: FactRow, known: set[tuple[str, str]]) -> bool:
    """Return whether the store has this version of a fact; `known` are the versions before it in the import."""
    key = (row.id, json.dumps(asdict(row), sort_keys=True, default=str))
    versions = store.read_facts(Select(scope=row.scope), keys=(row.id,))
    is_stored = key in known or row in versions
    known.add(key)
    return is_stored


def to_markdown(store: Store, scopes: Iterable[Scope], file: IO[str], *, moment: Callable[[int | None], str]) -> int:
    """Write memory as a document: the facts first, then every session."""
    count = 0
    for scope in scopes:
        held = facts.current(store.read_facts(Select(scope=scope, across=True)))
        owner = scope.agent
        if scope.project:
            owner = f"{scope.agent} in {scope.project}"
        file.write(f"# Memory of {owner}\n\n")
        if held:
            file.write("## Facts\n\n")
            for fact in held:
                file.write(f"- [{fact.type}] {fact.content}\n")
            file.write("\n")
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
    pieces: list[str] = []
    if row.message.text:
        pieces.append(row.message.text)
    for part in row.message.parts:
        if isinstance(part, ToolCall):
            pieces.append(f"`{part.name}` {json.dumps(part.arguments, ensure_ascii=False, default=str)}")
        elif isinstance(part, ToolResult):
            longest = max(map(len, re.findall("`+", part.text)), default=0)  # a fence must be longer
            fence = "`" * max(3, longest + 1)
            pieces.append(f"{fence}text\n{part.text}\n{fence}")
    return "\n\n".join(pieces)


# --- memory-context folders ----------------------------------------------------------


def save_folder(store: Store, scopes: Iterable[Scope], folder: Path, *, embedder: Embedder | None = None) -> int:
    """Write the messages and facts of these agents to a new folder; return their number.

    With an embedder, their vectors are written too.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError("is there already: name a new folder", path=folder)
    from holdfast.store.folder import FolderStore  # noqa: PLC0415 - it reads lines as transcripts do

    count = 0
    marks = open_marks(store)
    with FolderStore(folder) as files:
        for scope in scopes:
            numbers: dict[int, int] = {}
            for rows in _batches(pages(store, scope)):
                new = [replace(row, id=0, passages=tuple(passages_of(row.message, marks))) for row in rows]
                added = files.add_messages(new)
                numbers.update(zip((row.id for row in rows), added, strict=True))
                _exclude_messages(files, new, added)
            known = store.read_facts(Select(scope=scope, across=True))
            files.add_facts([renumber_evidence(fact, numbers) for fact in known])
            _exclude_facts(files, known, read_exclusions(store, scope))
            count += len(numbers) + len(known)
        if embedder is not None:
            _write_vectors(files, embedder)
    return count


def _exclude_messages(store: Store, rows: Sequence[MessageRow], numbers: Sequence[int]) -> None:
    """Exclude those of the rows from recall that were excluded elsewhere. They have these numbers in the store."""
    hidden: list[MessageRow] = []
    for row, number in zip(rows, numbers, strict=True):
        if row.excluded and number:  # 0 is the number of one that was forgotten here
            hidden.append(replace(row, id=number))
    exclude_imported(store, hidden)


def _write_vectors(files: FolderStore, embedder: Embedder) -> None:
    """Embed every passage; the plugin gets one vector for each segment, the mean of its windows."""
    means: dict[int, Floats] = {}
    while passages := files.without_vectors(embedder.space, limit=_BATCH):
        rows = vector_rows(passages, embedder)
        files.add_vectors(rows)
        for passage, row in zip(passages, rows, strict=True):
            means[passage.message] = means.get(passage.message, 0) + row.vectors.sum(axis=0, dtype=np.float32)
    files.write_vectors({number: unit(mean[None])[0] for number, mean in means.items()}, embedder.space)


def load_folder(store: Store, folder: Path, *, owner: Scope = _PLAIN, masked: bool = True) -> tuple[int, list[str]]:
    """Import a folder; return the number of rows, and the lines that could not be read.

    Importing it again changes nothing. Rows of Holdfast keep their owner. Rows of the plugin get `owner`, unless the
    session has the same text already. Secrets are masked, and recalled blocks are removed.
    """
    from holdfast.store.folder import FolderStore  # noqa: PLC0415 - it reads lines as transcripts do

    with FolderStore(folder, readonly=True) as files:
        agents = sorted({replace(scope, session="") for scope in files.scopes()})
        count = 0
        marks = open_marks(store)
        numbers: dict[int, int] = {}
        texts = _SessionTexts(store)
        for scope in agents:
            for rows in _batches(pages(files, scope)):
                numbers.update(_import_rows(texts, rows, marks, owner, masked=masked))
                count += len(rows)
        for scope in agents:
            known: list[FactRow] = files.read_facts(Select(scope=scope, across=True))
            owned: list[FactRow] = []
            for fact in known:
                own = fact
                if masked:
                    own = _mask_fact(own)
                if fact.scope == _PLAIN:
                    own = replace(own, scope=owner)
                owned.append(renumber_evidence(own, numbers))
            seen: set[tuple[str, str]] = set()
            store.add_facts([fact for fact in owned if not is_known(store, fact, seen)])
            _exclude_facts(store, owned, read_exclusions(files, scope))
            count += len(owned)
        return count, [f"{folder / problem.file}:{problem.line}: {problem.reason}" for problem in files.problems]


def _mask_fact(fact: FactRow) -> FactRow:
    """Mask the secrets in every text of a fact."""
    return replace(
        fact,
        content=redact(fact.content),
        context=redact(fact.context),
        subject=redact(fact.subject),
        slot=redact(fact.slot),
        quote=redact(fact.quote),
        questions=tuple(map(redact, fact.questions)),
    )


def _import_rows(
    texts: _SessionTexts, rows: Sequence[MessageRow], marks: Marks, owner: Scope, *, masked: bool
) -> dict[int, int]:
    """Archive rows; return the new number of each by its old one."""
    new: dict[int, MessageRow] = {}
    for row in rows:
        message = strip_message(row.message, marks)
        if message is None:
            continue
        if masked:
            message = mask(message)
        scope = row.scope
        if row.nonce.startswith(_FOREIGN):
            scope = replace(owner, session=row.scope.session)
            if (message.role, message.text) in texts[scope]:  # the plugin and Holdfast both archived it
                continue
        new[row.id] = replace(row, id=0, scope=scope, message=message, passages=tuple(passages_of(message, marks)))
    rows_to_add = list(new.values())
    added = texts.store.add_messages(rows_to_add)
    _exclude_messages(texts.store, rows_to_add, added)
    return dict(zip(new, added, strict=True))


class _SessionTexts(dict[Scope, set[tuple[str, str]]]):
    """The texts of each session that did not come from a folder, without what channels add."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __missing__(self, scope: Scope) -> set[tuple[str, str]]:
        texts: set[tuple[str, str]] = set()
        for row in pages(self.store, scope, across=False):
            if not row.nonce.startswith(_FOREIGN):
                texts.add((row.message.role, unwrap(row.message.text)))
        self[scope] = texts
        return texts
