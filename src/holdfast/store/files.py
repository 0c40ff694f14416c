"""A memory-context folder as a store: the plugin's files in place, readable by the plugin as before.

    segments.jsonl    what users and assistants said        holdfast.jsonl    everything else, ours alone
    knowledge.jsonl   facts                                 vectors.bin       their vectors

Good for a folder that is there already, and for taking memory elsewhere: the index lives in memory and is built
when the first question is asked.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from holdfast.errors import InputError, StorageError
from holdfast.messages import Message
from holdfast.search.bm25 import Corpus, score
from holdfast.search.centering import Centering
from holdfast.search.columns import Bools, Floats
from holdfast.search.embed.base import Space
from holdfast.search.vectors import Bytes, Matrix
from holdfast.store import files_forgetting, files_vectors, vmem
from holdfast.store.base import Across, Evidence, FactRow, Kind, MessageRow, PassageText, Question, Row, Scope, Select
from holdfast.store.codec import from_json
from holdfast.store.cutting import cut
from holdfast.store.files_index import FilesIndex, Limits
from holdfast.store.files_plan import Plan
from holdfast.store.files_state import JOURNAL, SEGMENTS, Entry, Problem, State
from holdfast.store.lines_file import encode_line
from holdfast.store.segments import fact_digest, findable_of, message_of, scope_to_json
from holdfast.transcripts import journal

__all__ = ["FilesStore", "Limits", "Problem"]

WASTE: Final = 1000
"""Lines of our own file that may say nothing before it is written anew."""


def _now() -> int:
    return time.time_ns() // 1_000_000


class FilesStore:
    """A store in a memory-context folder. Safe to use from several threads and processes.

    Opened `readonly`, or where it may not be written, nothing in the folder is changed.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        clock: Callable[[], int] = _now,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        readonly: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self._limits, self._clock, self._new_id = limits, clock, new_id
        self._lock = threading.Lock()
        self._writable = not readonly and self._prepare()
        self._state = State(self.folder)
        self._index: FilesIndex | None = None
        self._matrices: dict[Space, tuple[tuple[object, ...], Matrix | None]] = {}
        with self._current():
            self._tidy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open between two calls."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Lines that were left out, and why. They stay in their files."""
        return tuple(self._state.problems())

    def scopes(self) -> list[Scope]:
        """Everybody whose messages or facts are in the folder."""
        with self._current():
            messages = {entry.scope for entry in self._state.messages.values()}
            return sorted(messages | {fact.scope for fact in self._state.facts.values()})

    # --- keeping up with the files -------------------------------------------------

    def _prepare(self) -> bool:
        """Make what is missing; tell whether the folder may be written."""
        path = self.folder / JOURNAL
        if path.exists():
            return os.access(path, os.W_OK)
        try:
            journal.create(path, [])  # empty: another process may append to it in the same moment
        except StorageError:
            if not self.folder.is_dir():
                raise
        return path.exists()

    def _start_over(self) -> None:
        """Read all files again. Passages keep the numbers they have been given."""
        self._state = State(self.folder)
        self._state.read()
        if self._index is not None:
            self._index.forget(self._state.messages)
            self._state.new = [number for number in self._state.messages if number > self._index.newest]

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Nobody else writes meanwhile, and everything that was written is known."""
        with self._lock:
            if not self._writable:
                self._read()
                self._adopted()
                yield
                return
            with journal.locked(self.folder / JOURNAL):
                self._read()
                self._state.journal.append(self._adopted())
                yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._writable:
            raise StorageError("the folder is read-only: make it writable or choose another place", path=self.folder)
        with self._current():
            yield

    def _read(self) -> None:
        try:
            if self._state.is_stale():
                self._start_over()
            else:
                self._state.read()
        except BaseException:
            self._state, self._index = State(self.folder), None
            raise

    def _adopted(self) -> list[bytes]:
        """Give numbers to segments that another program wrote; the lines that make them last are returned."""
        lines = []
        for name in list(self._state.strangers):
            number = self._state.numbers["message"] + 1
            self._state.adopt(name, number)
            lines.append(encode_line({"kind": "adopted", "segment": name, "n": number}))
        return lines

    def _tidy(self) -> None:
        """Finish forgetting that was cut short; write our own file anew where most of it says nothing any more."""
        state = self._state
        if not self._writable:
            return
        if state.leftovers:
            self._rewrite()
            self._start_over()
        elif state.waste > max(WASTE, len(state.messages) + len(state.records)):
            files_forgetting.compact(state)
            self._start_over()

    # --- writing ---------------------------------------------------------------------

    def add(self, rows: Sequence[Row], /) -> list[int]:
        """Keep rows, all or none, durable when this returns."""
        with self._writing():
            plan = Plan(self._state, self._clock, self._new_id, index=self._indexed)
            numbers = [plan.take(row) for row in rows]
            for space, vectors in plan.vectors.items():
                self._write_vectors(space, vectors)
            plan.write()
            self._read()
        return numbers

    def _write_vectors(self, space: Space, vectors: dict[int, dict[int, Floats]]) -> None:
        """Set vectors of windows, by message and window."""
        index = self._indexed()
        path, rows = self._vectors(space)
        for number, windows in vectors.items():
            name = self._state.messages[number].name
            files_vectors.set_rows(rows, name, windows, windows=len(index.windows(number)))
        self._state.journal.append([encode_line(files_vectors.note(path, space, rows))])
        vmem.write(path, rows, dimension=space.dimension)
        self._state.read()

    def _vectors(self, space: Space) -> tuple[Path, dict[str, Floats]]:
        """The file for the vectors of a space, and those that are in it."""
        first = self.folder / files_vectors.VECTORS
        path = files_vectors.file_of(self.folder, space, first=self._space_of(first))
        found = vmem.read(path) if self._space_of(path) == space else None
        return path, dict(found.rows) if found is not None else {}

    def _space_of(self, path: Path) -> Space | None:
        segments = (entry for entry in self._state.messages.values() if entry.file == SEGMENTS)
        texts = ((entry.name, self._said(entry)[1]) for entry in segments)
        return files_vectors.space_of(path, self._state.spaces, texts)

    # --- reading ---------------------------------------------------------------------

    def fetch(self, select: Select, /) -> list[Any]:
        """Read rows of one kind that the reader may see, oldest first."""
        with self._current():
            found = self._selected(select)
            return [self._row(select, number) for number in found]

    def _selected(self, select: Select) -> list[int]:
        """The numbers of the rows of a selection, oldest first."""
        candidates = set(self._rows_of(select.kind))
        if select.ids is not None:
            candidates &= set(select.ids)
        found = sorted(number for number in candidates if _fits(select, number, *self._about(select, number)))
        if select.limit is None:
            return found
        return found[max(0, len(found) - select.limit) :] if select.newest else found[: select.limit]

    def _rows_of(self, kind: Kind) -> Iterable[int]:
        """The numbers of all rows of a kind."""
        match kind:
            case "message":
                return self._state.messages
            case "passage":
                return self._indexed().kept()
            case "fact":
                return self._state.facts
            case "record":
                return self._state.records
            case "job":
                return self._state.jobs

    def _about(self, select: Select, number: int) -> tuple[Scope, str, str]:
        """What rows are selected by: scope, key and name."""
        state = self._state
        match select.kind:
            case "message":
                return state.messages[number].scope, "", ""
            case "passage":
                return state.messages[self._indexed().places[number][0]].scope, "", ""
            case "fact":
                fact = state.facts[number]
                return self._owner(fact, select.scope), fact.id, ""
            case "record":
                record = state.records[number]
                return record.scope, record.key, record.kind
            case "job":
                return state.jobs[number].scope, "", state.jobs[number].kind

    def _owner(self, fact: FactRow, reader: Scope) -> Scope:
        """Whose a fact is. One that the plugin wrote belongs to every session of the folder."""
        everyones = fact.id in self._state.shared and fact.scope == Scope()
        return replace(Scope(), session=reader.session) if everyones else fact.scope

    def _row(self, select: Select, number: int) -> Any:
        match select.kind:
            case "message":
                return self._message(self._state.messages[number])
            case "passage":
                return self._passage(number)
            case "fact":
                return self._state.facts[number]
            case "record":
                return self._state.records[number]
            case "job":
                return self._state.jobs[number]

    def _message(self, entry: Entry) -> MessageRow:
        return MessageRow(
            scope=entry.scope,
            message=self._said(entry)[0],
            id=entry.number,
            nonce=entry.nonce,
            pinned=entry.pinned,
            buried=entry.buried,
        )

    def _said(self, entry: Entry) -> tuple[Message, str]:
        """A message, and what can be found of it."""
        data = self._state.files[entry.file].read_at(entry.offset)
        if entry.file == SEGMENTS:
            return message_of(data), findable_of(data)
        return from_json(data["body"]), data.get("text", "")

    def _passage(self, number: int) -> PassageText:
        message, place = self._indexed().places[number]
        said, text = self._said(self._state.messages[message])
        return replace(cut(text, said)[place], number=number, message=message, terms=())

    def _indexed(self) -> FilesIndex:
        """The index of everything that was read so far."""
        if self._index is None:
            self._index = FilesIndex(self._limits)
            self._state.new = list(self._state.messages)
        if self._state.new:
            new, self._state.new = sorted(self._state.new), []
            self._index.add([self._state.messages[number] for number in new], self._said, now=self._clock())
        return self._index

    def find(self, scope: Scope, digests: Sequence[str], /) -> dict[str, dict[str, int]]:
        """Return, for each digest that is known in a session, the numbers of its messages by nonce."""
        wanted = set(digests)
        found: dict[str, dict[str, int]] = {}
        with self._current():
            known = dict.fromkeys(self._state.forgotten_messages, 0) | self._state.known
            for (owner, digest, nonce), number in known.items():
                if owner == scope and digest in wanted:
                    found.setdefault(digest, {})[nonce] = number
        return found

    def match(self, question: Question, /) -> Evidence:
        """Say what every visible passage has to do with a question."""
        if question.vector is not None and question.space and question.vector.shape != (question.space.dimension,):
            raise InputError(f"a question in {question.space.name} is one vector of {question.space.dimension}")
        with self._current():
            index = self._indexed()
            columns = index.inner.columns.snapshot()
            visible = index.visible(lambda scope: _may_see(scope, question.scope, across=question.across))
            keywords = score(index.postings(question.terms), Corpus.of(columns, visible))
            cosine, centre = self._likeness(question, visible[columns["passage"]])
            return Evidence(columns, visible, keywords, cosine, tuple(index.scopes), centre)

    def _likeness(self, question: Question, seen: Bools) -> tuple[Floats | None, Centering | None]:
        matrix = None if question.space is None else self._matrix(question.space)
        if question.vector is None or matrix is None:
            return None, None
        cosine = matrix.cosine(question.vector, windows=len(seen), visible=seen)
        return cosine, matrix.centre(question.vector, cosine, visible=seen)

    def _matrix(self, space: Space) -> Matrix | None:
        """The vectors of a space; None where there are none. Made again when a file or the index has changed."""
        index = self._indexed()
        files = files_vectors.files(self.folder)
        stamp = (len(index.places), *((path.name, path.stat().st_mtime_ns, path.stat().st_ino) for path in files))
        known, matrix = self._matrices.get(space, ((), None))
        if known == stamp:
            return matrix
        _, rows = self._vectors(space)
        held = ((number, self._rows(rows, number)) for number in index.by_message)
        found = {number: vectors for number, vectors in held if vectors is not None}
        matrix = index.matrix(found, dimension=space.dimension) if rows else None
        self._matrices[space] = stamp, matrix
        return matrix

    def _rows(self, rows: Mapping[str, Floats], number: int) -> Bytes | None:
        if number not in self._state.messages:
            return None
        name, windows = self._state.messages[number].name, len(self._indexed().windows(number))
        return files_vectors.rows_of_message(rows, name, windows=windows)

    # --- forgetting ------------------------------------------------------------------

    def remove(self, select: Select, /) -> int:
        """Forget messages and facts for good, from every file; take out records and jobs."""
        if select.kind == "passage":
            raise InputError("a passage goes with its message: remove that")
        with self._writing():
            numbers = self._selected(select)
            if not numbers:
                return 0
            if select.kind in {"record", "job"}:
                line = {"kind": "done", "what": select.kind, "numbers": numbers}
                self._state.journal.append([encode_line(line)])
                self._read()
            else:
                self._forget(select.kind, numbers)
            return len(numbers)

    def _forget(self, kind: str, numbers: Sequence[int]) -> None:
        """Say first, in our own file, what is to go: should a crash come between, the next who opens finishes it."""
        state = self._state
        lines: list[dict[str, Any]] = [{"kind": "numbers", "numbers": state.numbers}, state.settled()]
        about: dict[str, Any]
        for number in numbers:
            if kind == "message":
                entry = state.messages[number]
                scope, about = entry.scope, {"digest": entry.digest, "numbers": [number], "name": entry.name}
                about["until"] = self._clock()
                if state.number_of(entry.name) is None:  # a segment of another program has no nonce that others know
                    about["nonce"] = entry.nonce
            else:
                scope, about = state.facts[number].scope, {"digest": fact_digest(state.facts[number].id)}
            lines.append({"kind": "forgotten", "scope": scope_to_json(scope), **about})
        state.journal.append(map(encode_line, lines))
        state.read()
        self._rewrite()
        self._start_over()

    def _rewrite(self) -> None:
        """Write every file anew without what is forgotten, ours last."""
        spaces = {path: self._space_of(path) for path in files_vectors.files(self.folder)}
        files_forgetting.rewrite_lines(self._state)
        for path, space in spaces.items():
            files_forgetting.rewrite_vectors(self._state, path, space=space)
        files_forgetting.rewrite_journal(self._state)


def _may_see(row: Scope, reader: Scope, *, across: Across) -> bool:
    return all(getattr(row, name) == value for name, value in reader.required(across).items())


def _fits(select: Select, number: int, scope: Scope, key: str, name: str) -> bool:
    tests = (
        _may_see(scope, select.scope, across=select.across),
        select.ids is None or number in select.ids,
        select.keys is None or key in select.keys,
        select.name is None or name == select.name,
        select.after is None or number > select.after,
        select.before is None or number < select.before,
    )
    return all(tests)
