"""Export memory to a memory-context folder, and import one: `segments.jsonl`, `knowledge.jsonl`, `vectors.bin`.

The plugin can read an exported folder; what it has no place for is in `holdfast-folder.db`. Importing a folder does not
change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.errors import StorageError
from holdfast.memory.archive import mask, passages_of, unwrap
from holdfast.memory.block import Marks, open_marks, strip_message
from holdfast.memory.embedding import vector_rows
from holdfast.memory.transfer import is_known, pages, renumber_evidence
from holdfast.redact import redact
from holdfast.search.columns import Floats
from holdfast.search.embed.base import Embedder, unit
from holdfast.store.base import FactRow, MessageRow, Scope, Select, Store
from holdfast.store.folder import FolderStore

_BATCH: Final = 500
_FOREIGN: Final = "segment:"
"""Prefix of the nonce of a message that the plugin wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The result of an import: the number of rows, and the lines that could not be read."""

    rows: int
    problems: tuple[str, ...] = ()


# --- out -------------------------------------------------------------------------


def save(
    store: Store,
    scopes: Iterable[Scope],
    folder: Path,
    *,
    embedder: Embedder | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Write the messages and facts of these agents to a new folder; return their number.

    With an embedder their vectors go along.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError("is there already: name a new folder", path=folder)
    count, marks = 0, open_marks(store)
    with FolderStore(folder) as files:
        for scope in scopes:
            numbers: dict[int, int] = {}
            for rows in _batches(pages(store, scope)):
                new = [replace(row, id=0, passages=tuple(passages_of(row.message, marks))) for row in rows]
                numbers.update(zip((row.id for row in rows), files.add_messages(new), strict=True))
                progress(len(rows))
            known = store.read_facts(Select(scope=scope, across=True))
            files.add_facts([renumber_evidence(fact, numbers) for fact in known])
            count += len(numbers) + len(known)
        if embedder is not None:
            _write_vectors(files, embedder)
    return count


def _write_vectors(files: FolderStore, embedder: Embedder) -> None:
    """Embed every passage; the plugin gets one vector for each segment, the mean of its windows."""
    means: dict[int, Floats] = {}
    while passages := files.without_vectors(embedder.space, limit=_BATCH):
        rows = vector_rows(passages, embedder)
        files.add_vectors(rows)
        for passage, row in zip(passages, rows, strict=True):
            means[passage.message] = means.get(passage.message, 0) + row.vectors.sum(axis=0, dtype=np.float32)
    files.write_vectors({number: unit(mean[None])[0] for number, mean in means.items()}, embedder.space)


def _batches(rows: Iterable[MessageRow]) -> Iterator[list[MessageRow]]:
    left = iter(rows)
    while batch := list(islice(left, _BATCH)):
        yield batch


# --- in --------------------------------------------------------------------------


def load(
    store: Store,
    folder: Path,
    *,
    project: str = "",
    agent: str = "main",
    masked: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> Taken:
    """Import a folder. Importing it again changes nothing.

    What Holdfast wrote there goes to those it belonged to; what the plugin wrote goes to this project and agent,
    as far as its session does not say it already. Secrets are masked, and recalled blocks stay out.
    """
    with FolderStore(folder, readonly=True) as files:
        agents = sorted({replace(scope, session="") for scope in files.scopes()})
        count, marks = 0, open_marks(store)
        numbers: dict[int, int] = {}
        texts = _SessionTexts(store)
        for scope in agents:
            for rows in _batches(pages(files, scope)):
                numbers.update(_import_rows(texts, rows, marks, Scope(project=project, agent=agent), masked=masked))
                count += len(rows)
                progress(len(rows))
        for scope in agents:
            known: list[FactRow] = files.read_facts(Select(scope=scope, across=True))
            hide, facts = redact if masked else str, list[FactRow]()
            for fact in known:
                owner = replace(fact.scope, project=project, agent=agent) if fact.scope == Scope() else fact.scope
                words = hide(fact.content), hide(fact.context), hide(fact.quote)
                own = replace(fact, scope=owner, content=words[0], context=words[1], quote=words[2])
                facts.append(renumber_evidence(own, numbers))
            seen: set[tuple[str, str]] = set()
            store.add_facts([fact for fact in facts if not is_known(store, fact, seen)])
            count += len(facts)
        problems = tuple(f"{folder / each.file}:{each.line}: {each.reason}" for each in files.problems)
    return Taken(rows=count, problems=problems)


def _import_rows(
    texts: _SessionTexts, rows: Sequence[MessageRow], marks: Marks, owner: Scope, *, masked: bool
) -> dict[int, int]:
    """Archive rows; return the new number of each by its old one."""
    new: dict[int, MessageRow] = {}
    for row in rows:
        message = strip_message(row.message, marks)
        if message is None:
            continue
        kept = mask(message) if masked else message
        scope = row.scope
        if row.nonce.startswith(_FOREIGN):
            scope = replace(owner, session=row.scope.session)
            if (kept.role, kept.text) in texts[scope]:
                continue
        new[row.id] = replace(row, id=0, scope=scope, message=kept, passages=tuple(passages_of(kept, marks)))
    return dict(zip(new, texts.store.add_messages(list(new.values())), strict=True))


class _SessionTexts(dict[Scope, set[tuple[str, str]]]):
    """The texts of a session that did not come from a folder, without the frames that channels add."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __missing__(self, scope: Scope) -> set[tuple[str, str]]:
        rows = (row for row in pages(self.store, scope, across=False) if not row.nonce.startswith(_FOREIGN))
        self[scope] = {(row.message.role, unwrap(row.message.text)) for row in rows}
        return self[scope]
