"""Forgetting for good in a memory-context folder: every file is written anew without what is forgotten."""

from __future__ import annotations

from pathlib import Path

from holdfast.search.embed.base import Space
from holdfast.store import files_vectors, vmem
from holdfast.store.files_state import State
from holdfast.store.lines_file import encode_line
from holdfast.store.segments import OWN, fact_digest, scope_of, segment_problem
from holdfast.transcripts.lines import Line

__all__ = ["compact", "rewrite_journal", "rewrite_lines", "rewrite_vectors"]


def rewrite_lines(state: State) -> None:
    """Take forgotten messages and facts out of the plugin's files."""
    state.segments.rewrite(lambda line: not _is_gone(line, state))
    state.knowledge.rewrite(lambda line: not _is_forgotten_fact(line, state))


def rewrite_journal(state: State) -> None:
    """Take forgotten messages out of our own file. It goes last: until then it says what is to go."""
    state.journal.rewrite(lambda line: _number_in_journal(line) not in state.removed)


def compact(state: State) -> None:
    """Take lines out of our own file that say nothing any more: older versions of records, jobs that are done."""
    state.journal.append(map(encode_line, [{"kind": "numbers", "numbers": state.numbers}, state.settled()]))
    latest: dict[int, int] = {}
    state.journal.rewrite(lambda line: _note_record(line, latest))
    state.journal.rewrite(lambda line: _still_says_something(line, latest, state))


def _note_record(line: Line, latest: dict[int, int]) -> bool:
    data = line.data or {}
    if data.get("kind") == "record":
        latest[data["n"]] = line.number
    return True


def _still_says_something(line: Line, latest: dict[int, int], state: State) -> bool:
    data = line.data or {}
    match data.get("kind"):
        case "record":
            return data["n"] in state.records and latest[data["n"]] == line.number
        case "job":
            return data["n"] in state.jobs
        case kind:
            return kind != "done"


def rewrite_vectors(state: State, path: Path, *, space: Space | None) -> None:
    """Take the vectors of forgotten messages out of a file."""
    found = vmem.read(path)
    names = set(state.removed.values())
    if found is None or not any(row.split("#")[0] in names for row in found.rows):
        return
    rows = {name: row for name, row in found.rows.items() if name.split("#")[0] not in names}
    if space is not None:
        state.journal.append([encode_line(files_vectors.note(path, space, rows))])
    vmem.write(path, rows, dimension=found.dimension)


def _is_gone(line: Line, state: State) -> bool:
    """Tell whether a segment was forgotten: by its number, or by what it says where another program wrote it."""
    data = line.data
    if data is None or segment_problem(data) is not None:
        return False
    own = data.get(OWN)
    number = own.get("n") if isinstance(own, dict) else state.number_of(data["id"])
    if number is not None:
        return number in state.removed
    return state.is_forgotten_segment(data)


def _is_forgotten_fact(line: Line, state: State) -> bool:
    data = line.data
    if data is None or not isinstance(data.get("id"), str):
        return False
    return (scope_of(data, ""), fact_digest(data["id"])) in state.forgotten


def _number_in_journal(line: Line) -> int:
    """The number of the message that a line of ours is about; 0 where it is about something else."""
    data = line.data or {}
    number = data.get({"message": "n", "flags": "of"}.get(str(data.get("kind")), ""))
    return number if isinstance(number, int) else 0
