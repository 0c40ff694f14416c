"""What the files of a memory-context folder say, read line by line.

`segments.jsonl` and `knowledge.jsonl` are the plugin's; `holdfast.jsonl` is ours and holds what they cannot:
messages that are not plain words, records, jobs, flags, numbers, and digests of what was forgotten. A batch of
rows may reach over several files: it counts once all of its lines are there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.search.embed.base import Space
from holdfast.store.base import FactRow, Job, Record, Scope
from holdfast.store.lines_file import LinesFile, Placed
from holdfast.store.segments import (
    OWN,
    Unusable,
    content_key,
    fact_digest,
    message_of,
    read_fact,
    scope_from_json,
    scope_of,
    segment_problem,
)

__all__ = ["JOURNAL", "KNOWLEDGE", "SEGMENTS", "Entry", "Problem", "State"]

SEGMENTS: Final = "segments.jsonl"
KNOWLEDGE: Final = "knowledge.jsonl"
JOURNAL: Final = "holdfast.jsonl"
_FOREVER: Final = 2**63
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, HoldfastError)


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was left out, and why. It stays in its file."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message: where it stands, and what is needed to select it.

    `name` is what its vectors are kept under, `stamp` the moment by which it grows old. Noise is not findable.
    """

    number: int
    scope: Scope
    digest: str
    nonce: str
    file: str
    offset: int
    name: str
    stamp: int
    findable: bool = True
    pinned: bool = False
    buried: bool = False


class State:
    """Everything that the files said so far."""

    def __init__(self, folder: Path) -> None:
        self.segments = LinesFile(folder / SEGMENTS)
        self.knowledge = LinesFile(folder / KNOWLEDGE)
        self.journal = LinesFile(folder / JOURNAL)
        self.messages: dict[int, Entry] = {}
        self.known: dict[tuple[Scope, str, str], int] = {}
        self.foreign: dict[tuple[Scope, str], int] = {}
        self.contents: set[tuple[Scope, str, str]] = set()
        self.facts: dict[int, FactRow] = {}
        self.shared: set[str] = set()
        self.records: dict[int, Record] = {}
        self.record_numbers: dict[tuple[Scope, str, str], int] = {}
        self.jobs: dict[int, Job] = {}
        self.forgotten: dict[tuple[Scope, str], int] = {}
        """Digests of forgotten facts and words, and until when: another program's segments are told by their words."""
        self.forgotten_messages: set[tuple[Scope, str, str]] = set()
        self._forgotten_words: dict[tuple[Scope, str], int] = {}
        """Words that were forgotten without a nonce: a segment of another program, or a message in version 0.1."""
        self.removed: dict[int, str] = {}
        """Numbers of forgotten messages, and the names that their vectors had."""
        self.spaces: dict[tuple[str, str], Space] = {}
        """The space of a vector file, by its name and the digest of what it holds."""
        self.numbers = {"message": 0, "fact": 0, "record": 0, "job": 0, "batch": 0}
        self._problems: list[Problem] = []
        self.strangers: dict[str, Placed] = {}
        self.new: list[int] = []
        self.leftovers = False
        self.waste = 0
        """Lines of our own file that say nothing any more."""
        self._adopted: dict[str, int] = {}
        self._latest: dict[str, FactRow] = {}
        self._flags: dict[int, tuple[bool, bool]] = {}
        self._settled = 0
        self._broken: frozenset[int] = frozenset()
        self._open: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self._doers: dict[str, Callable[[Mapping[str, Any], int], None]] = {
            "message": self._add_own,
            "flags": self._set_flags,
            "record": self._put_record,
            "job": self._put_job,
            "done": self._drop,
            "forgotten": self._forget,
            "adopted": self._note_adopted,
            "vectors": self._note_vectors,
            "numbers": self._note_numbers,
            "settled": self._settle,
        }

    @property
    def files(self) -> dict[str, LinesFile]:
        """The three files by name, in the order in which they are read."""
        return {JOURNAL: self.journal, SEGMENTS: self.segments, KNOWLEDGE: self.knowledge}

    def is_stale(self) -> bool:
        """Tell whether a file was replaced, so that all must be read anew."""
        return any(file.is_another() for file in self.files.values())

    def read(self) -> None:
        """Read on in every file."""
        takers = {JOURNAL: self._take_own, SEGMENTS: self._take_segment, KNOWLEDGE: self._take_fact}
        for name, file in self.files.items():
            for placed in file.read_new():
                self._take(name, placed, takers[name])
        self._meet_strangers()

    def _take(self, name: str, placed: Placed, taker: Callable[[Placed, dict[str, Any]], None]) -> None:
        line = placed.line
        if line.data is None:
            if line.problem:
                self._report(name, line.number, line.problem)
            return
        try:
            taker(placed, line.data)
        except _DAMAGE as error:
            self._report(name, line.number, f"not what it should be: {error}")

    def _report(self, name: str, line: int, reason: str) -> None:
        self._problems.append(Problem(name, line, reason))

    def problems(self) -> list[Problem]:
        """Everything that was left out so far, and writes that were cut short."""
        torn = [name for name, file in self.files.items() if file.torn]
        return [
            *self._problems,
            *(Problem(name, 0, "the last line has no end: a write was cut short") for name in torn),
            *(Problem(JOURNAL, 0, f"batch {number} was cut short: none of it counts") for number in self._open),
        ]

    def _commit(self, data: Mapping[str, Any], action: Callable[[], None]) -> None:
        """Do what a line says, once its batch is complete."""
        number, size = data.get("batch", (0, 1))
        self._count("batch", number)
        if number <= self._settled and number not in self._broken:
            action()
            return
        self._open[number].append(action)
        if len(self._open[number]) == size:
            self._close(number)

    def _close(self, number: int) -> None:
        for step in self._open.pop(number):
            step()

    def settled(self) -> dict[str, Any]:
        """The line that says which batches count, though lines of them will be gone."""
        return {"kind": "settled", "upto": self.numbers["batch"], "except": sorted({*self._broken, *self._open})}

    def _settle(self, data: Mapping[str, Any], _: int) -> None:
        self._settled, self._broken = data["upto"], frozenset(data["except"])
        for number in sorted(self._open):
            if number <= self._settled and number not in self._broken:
                self._close(number)

    def _count(self, kind: str, number: int) -> int:
        self.numbers[kind] = max(self.numbers[kind], number)
        return number

    # --- segments.jsonl ----------------------------------------------------------

    def _take_segment(self, placed: Placed, data: dict[str, Any]) -> None:
        if (problem := segment_problem(data)) is not None:
            self._report(SEGMENTS, placed.line.number, problem)
            return
        own = data.get(OWN)
        if isinstance(own, dict) and "n" in own:
            number = self._count("message", own["n"])
            self._commit(own, lambda: self._add_segment(number, placed.offset, data, own))
        elif data["id"] in self._adopted:
            self._add_foreign(self._adopted[data["id"]], placed.offset, data)
        else:
            self.strangers[data["id"]] = placed

    def _add_segment(self, number: int, offset: int, data: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        entry = Entry(
            number=number,
            scope=scope_of(data, data["sessionId"]),
            digest=own["digest"],
            nonce=own["nonce"],
            file=SEGMENTS,
            offset=offset,
            name=data["id"],
            stamp=int(data["timestamp"]),
        )
        self.contents.add(content_key(entry.scope, data["role"], data["content"]))
        self._add(entry)

    def _add_foreign(self, number: int, offset: int, data: Mapping[str, Any]) -> None:
        message = message_of(data)
        scope = Scope(session=data["sessionId"])
        self.contents.add(content_key(scope, data["role"], data["content"]))
        self.foreign[scope, message.digest] = number
        self._add(
            Entry(
                number=number,
                scope=scope,
                digest=message.digest,
                nonce=f"segment:{data['id']}",
                file=SEGMENTS,
                offset=offset,
                name=data["id"],
                stamp=message.timestamp or 0,
            )
        )

    def _add(self, entry: Entry) -> None:
        if entry.number in self.removed:
            self.leftovers = True  # forgetting was cut short
            return
        pinned, buried = self._flags.get(entry.number, (False, False))
        self.messages[entry.number] = replace(entry, pinned=pinned, buried=buried)
        self.known.setdefault((entry.scope, entry.digest, entry.nonce), entry.number)
        self.new.append(entry.number)

    def _meet_strangers(self) -> None:
        """Leave out segments of others that say what is known or forgotten already."""
        seen = set(self.contents)
        for name, placed in list(self.strangers.items()):
            data = placed.line.data or {}
            scope = Scope(session=data["sessionId"])
            key = content_key(scope, data["role"], data["content"])
            if key in seen or self.is_forgotten_segment(data):
                del self.strangers[name]
            seen.add(key)

    def is_forgotten_segment(self, data: Mapping[str, Any]) -> bool:
        """Tell whether a segment that another program wrote says what was forgotten after it was said."""
        message = message_of(data)
        until = self.forgotten.get((Scope(session=data["sessionId"]), message.digest), -math.inf)
        return (message.timestamp or 0) <= until

    def is_forgotten(self, key: tuple[Scope, str, str], *, time: int) -> bool:
        """Tell whether a message of our own was forgotten, by scope, digest and nonce."""
        return key in self.forgotten_messages or time <= self._forgotten_words.get(key[:2], -math.inf)

    def number_of(self, name: str) -> int | None:
        """The number of a segment that another program wrote."""
        return self._adopted.get(name)

    def adopt(self, name: str, number: int) -> None:
        """Count a segment that another program wrote as a message of ours."""
        placed = self.strangers.pop(name)
        self._adopted[name] = self._count("message", number)
        self._add_foreign(number, placed.offset, placed.line.data or {})

    # --- knowledge.jsonl -----------------------------------------------------------

    def _take_fact(self, placed: Placed, data: dict[str, Any]) -> None:
        own = data[OWN] if isinstance(data.get(OWN), dict) else {}
        fact = read_fact(data, before=self._latest.get(str(data.get("id"))))
        if isinstance(fact, Unusable):
            self._report(KNOWLEDGE, placed.line.number, fact.reason)
            return
        version = self._count("fact", self.numbers["fact"] + 1)
        self._commit(own, lambda: self._add_fact(version, fact, shared="scope" not in own))

    def _add_fact(self, version: int, fact: FactRow, *, shared: bool) -> None:
        if (fact.scope, fact_digest(fact.id)) in self.forgotten:
            return
        self.facts[version] = self._latest[fact.id] = fact
        if shared:
            self.shared.add(fact.id)

    # --- holdfast.jsonl ------------------------------------------------------------

    def _take_own(self, placed: Placed, data: dict[str, Any]) -> None:
        kind = data.get("kind")
        if kind in self.numbers and isinstance(data.get("n"), int):
            self._count(str(kind), data["n"])
        doer = self._doers.get(str(kind))
        if doer is not None:
            self._commit(data, lambda: doer(data, placed.offset))

    def _add_own(self, data: Mapping[str, Any], offset: int) -> None:
        self._add(_entry(data, offset))

    def _put_record(self, data: Mapping[str, Any], _: int) -> None:
        record = _record(data)
        self.waste += record.id in self.records
        self.records[record.id] = record
        self.record_numbers[record.scope, record.kind, record.key] = record.id

    def _put_job(self, data: Mapping[str, Any], _: int) -> None:
        self.jobs[data["n"]] = _job(data)

    def _forget(self, data: Mapping[str, Any], _: int) -> None:
        key, until = (scope_from_json(data["scope"]), data["digest"]), data.get("until", _FOREVER)
        self.forgotten[key] = max(until, self.forgotten.get(key, 0))
        if "nonce" in data:
            self.forgotten_messages.add((*key, data["nonce"]))
        else:
            self._forgotten_words[key] = max(until, self._forgotten_words.get(key, 0))
        self.removed.update(dict.fromkeys(data.get("numbers", ()), data.get("name", "")))

    def _note_adopted(self, data: Mapping[str, Any], _: int) -> None:
        self._adopted[data["segment"]] = self._count("message", data["n"])

    def _note_vectors(self, data: Mapping[str, Any], _: int) -> None:
        name, dimension, digest = data["space"]
        self.spaces[data["file"], data["sha256"]] = Space(name=name, dimension=dimension, digest=digest)

    def _note_numbers(self, data: Mapping[str, Any], _: int) -> None:
        for name, number in data["numbers"].items():
            self._count(name, number)

    def _set_flags(self, data: Mapping[str, Any], _: int) -> None:
        pinned, buried = self._flags[data["of"]] = data["pinned"], data["buried"]
        if entry := self.messages.get(data["of"]):
            self.messages[entry.number] = replace(entry, pinned=pinned, buried=buried)

    def _drop(self, data: Mapping[str, Any], _: int) -> None:
        self.waste += 1 + len(data["numbers"])
        for number in data["numbers"]:
            if data["what"] == "job":
                self.jobs.pop(number, None)
            elif record := self.records.pop(number, None):
                del self.record_numbers[record.scope, record.kind, record.key]


def _entry(data: Mapping[str, Any], offset: int) -> Entry:
    return Entry(
        number=data["n"],
        scope=scope_from_json(data["scope"]),
        digest=data["digest"],
        nonce=data["nonce"],
        file=JOURNAL,
        offset=offset,
        name=f"message-{data['n']}",
        stamp=data["at"],
        findable=bool(data.get("text")),
    )


def _record(data: Mapping[str, Any]) -> Record:
    scope = scope_from_json(data["scope"])
    return Record(scope=scope, kind=data["of"], key=data["key"], data=data["data"], time=data["time"], id=data["n"])


def _job(data: Mapping[str, Any]) -> Job:
    scope = scope_from_json(data["scope"])
    return Job(scope=scope, kind=data["of"], data=data["data"], time=data["time"], id=data["n"])
