"""The beginning of a file: enough to tell whose it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.transcripts.lines import MAX_LINE_BYTES, Line, bounded_lines, open_binary, parse_line

__all__ = ["Head", "read_document", "read_head"]

_LINES: Final = 24
_ENOUGH: Final = 1 << 18
_TEXT: Final = 1 << 16
_PROBE: Final = 8192
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file.

    Attributes:
        values: The JSON objects and lists on its first lines; the whole document where the file is one.
        text: Its first characters.
        document: The file is one JSON document: a list, or spread over several lines.
    """

    values: tuple[Any, ...]
    text: str
    document: bool = False


def read_head(path: Path, *, limit: int | None = None) -> Head:
    """Read the beginning of a file; a JSON document of up to `limit` bytes is read whole.

    Raises:
        TranscriptError: The file is binary, empty, or cannot be read, or its first line is too long.
    """
    lines, start, whole = _beginning(path)
    if b"\0" in start[:_PROBE]:
        raise TranscriptError("a binary file, not a transcript", path=path)
    if not lines:
        raise TranscriptError("an empty file, not a transcript", path=path)
    text = start.decode(errors="replace").removeprefix("\ufeff")
    values = tuple(value for line in lines if isinstance(value := _value(line), dict | list))
    if _is_open(lines[0]) and (limit is None or path.stat().st_size <= limit):
        return _document(path, text) or Head(values, text)
    return Head(values, text, document=whole and len(lines) == 1 and isinstance(_value(lines[0]), list))


def _beginning(path: Path) -> tuple[list[Line], bytes, bool]:
    """The first lines that are not blank, the first bytes, and whether these lines are all there is."""
    lines: list[Line] = []
    with open_binary(path) as file:
        for number, raw in enumerate(islice(bounded_lines(file), _LINES), start=1):
            lines.append(parse_line(raw, number))
            if number == 1 and len(raw) > MAX_LINE_BYTES:
                raise TranscriptError(f"{lines[-1].problem}", path=path, line=number)
            if sum(len(line.raw) for line in lines) > _ENOUGH:
                break
        rest = file.read(_TEXT)
    start = b"".join(raw[:_TEXT] for raw in (*(line.raw for line in lines), rest))
    return [line for line in lines if not line.raw.isspace()], start[:_TEXT], not rest


def _value(line: Line) -> Any:
    return line.value if line.data is None else line.data


def _is_open(line: Line) -> bool:
    """Whether a line begins a JSON value and does not end it."""
    begins = line.raw[:_PROBE].removeprefix(_BOM).lstrip()[:1] in {b"{", b"["}
    return begins and line.problem is not None and line.value is None


def _document(path: Path, text: str) -> Head | None:
    try:
        return Head((read_document(path),), text, document=True)
    except ValueError:
        return None


def read_document(path: Path) -> Any:
    """A file as one JSON value.

    Raises:
        ValueError: It is not one.
        TranscriptError: It cannot be read, or is too large to be read at once.
    """
    with open_binary(path) as file:
        raw = file.read(MAX_LINE_BYTES + 1)
    if len(raw) > MAX_LINE_BYTES:
        raise TranscriptError(f"larger than {MAX_LINE_BYTES >> 20} MB as one JSON document: not read", path=path)
    try:
        return json.loads(raw.removeprefix(_BOM))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
