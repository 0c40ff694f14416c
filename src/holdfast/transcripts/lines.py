"""Read JSON Lines and JSON documents in bounded memory; a line that cannot be used is reported, not dropped."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Self, cast

from holdfast.errors import TranscriptError
from holdfast.files import open_regular
from holdfast.json_text import decode_json

MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is not read: decoding it would take several times its size in memory."""

_BOM: Final = b"\xef\xbb\xbf"
_PROBE_BYTES: Final = 8192
_HEAD_LINES: Final = 24
_HEAD_BYTES: Final = 1 << 18
_HEAD_TEXT_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its bytes, line end included, and its decoded JSON.

    `data` is the value if it is a JSON object; if it is None and the line is not blank, `problem` has the reason.
    """

    number: int
    raw: bytes
    data: dict[str, Any] | None
    problem: str | None = None
    value: Any = None

    @property
    def ended(self) -> bytes:
        """Its bytes with a line break at the end."""
        return self.raw if self.raw.endswith(b"\n") else self.raw + b"\n"


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, or the content of a `.gz`, for reading. Every failure raises a TranscriptError with the fix."""
    try:
        with open_regular(path) as file:
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
    except FileNotFoundError:
        raise TranscriptError("no such file", path=path) from None
    except IsADirectoryError:
        raise TranscriptError(
            "this is a folder: name a file in it, or use `holdfast sessions FOLDER`", path=path
        ) from None
    except PermissionError:
        raise TranscriptError("not readable by you: check its permissions", path=path) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TranscriptError(f"could not be read: {reason}", path=path) from error


def bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, each cut after `MAX_LINE_BYTES` + 1 bytes."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        yield raw
        while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES + 1)


def read_lines(path: Path, *, skip_long: bool = False) -> Iterator[Line]:
    """Read a file line by line. Blank lines come as lines without data and without a problem.

    A line that is too long raises a TranscriptError; with `skip_long` that is the line's problem.
    """
    with open_binary(path) as file:
        for number, raw in enumerate(bounded_lines(file), start=1):
            if number == 1 and b"\0" in raw[:_PROBE_BYTES]:
                raise TranscriptError("a binary file, not a transcript", path=path)
            line = parse_line(raw, number)
            if len(raw) > MAX_LINE_BYTES and not skip_long:
                raise TranscriptError(f"{line.problem}", path=path, line=number)
            yield line


def parse_line(raw: bytes, number: int) -> Line:
    """Decode one line; a line that is not a JSON object keeps its bytes and states its problem."""
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, raw[:_PROBE_BYTES], None, f"longer than {MAX_LINE_BYTES >> 20} MB: not read")
    text = raw.removeprefix(_BOM) if number == 1 else raw
    if not text or text.isspace():
        return Line(number, raw, None)
    try:
        data = decode(text)
    except UnicodeDecodeError as error:
        return Line(number, raw, None, f"not UTF-8 at byte {error.start}")
    except ValueError as error:
        torn = "not JSON" if raw.endswith(b"\n") else "cut off"
        return Line(number, raw, None, f"{torn}: {error}")
    if not isinstance(data, dict):
        return Line(number, raw, None, f"a JSON {type(data).__name__}, not an object", data)
    return Line(number, raw, data, value=data)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file: enough to tell which agent wrote it.

    `values` are the JSON objects and lists on its first lines; the whole document if the file is one.
    """

    values: tuple[Any, ...]
    text: str
    document: bool = False

    @property
    def records(self) -> list[Mapping[str, Any]]:
        """The JSON objects among the values."""
        return [value for value in self.values if isinstance(value, Mapping)]

    @classmethod
    def of(cls, path: Path, lines: list[Line], start: bytes, limit: int, *, is_whole: bool) -> Self:
        """Make the head of a file from its first lines and its first bytes."""
        if b"\0" in start[:_PROBE_BYTES]:
            raise TranscriptError("a binary file, not a transcript", path=path)
        if not lines:
            raise TranscriptError("an empty file, not a transcript", path=path)
        text = start.decode(errors="replace").removeprefix("\ufeff")
        is_open = lines[0].problem is not None and lines[0].value is None and text.lstrip()[:1] in {"{", "["}
        if is_open and path.stat().st_size <= limit:
            with suppress(ValueError):
                return cls((read_document(path),), text, document=True)
        values = tuple(line.value for line in lines if isinstance(line.value, dict | list))
        return cls(values, text, document=is_whole and len(lines) == 1 and isinstance(lines[0].value, list))


def read_head(path: Path, *, limit: int = sys.maxsize) -> Head:
    """Read the beginning of a file; a JSON document of up to `limit` bytes is read whole."""
    lines: list[Line] = []
    with open_binary(path) as file:
        for number, raw in enumerate(islice(bounded_lines(file), _HEAD_LINES), start=1):
            lines.append(parse_line(raw, number))
            if number == 1 and len(raw) > MAX_LINE_BYTES:
                raise TranscriptError(f"{lines[-1].problem}", path=path, line=number)
            if sum(len(line.raw) for line in lines) > _HEAD_BYTES:
                break
        rest = file.read(_HEAD_TEXT_BYTES)
    start = b"".join((*(line.raw[:_HEAD_TEXT_BYTES] for line in lines), rest))[:_HEAD_TEXT_BYTES]
    return Head.of(path, [line for line in lines if not line.raw.isspace()], start, limit, is_whole=not rest)


def read_document(path: Path) -> Any:
    """Decode a file as one JSON value.

    Raises:
        ValueError: It is not JSON.
        TranscriptError: It cannot be read.
    """
    with open_binary(path) as file:
        raw = file.read(MAX_LINE_BYTES + 1)
    if len(raw) > MAX_LINE_BYTES:
        raise TranscriptError(f"larger than {MAX_LINE_BYTES >> 20} MB as one JSON document: not read", path=path)
    return decode(raw.removeprefix(_BOM))


def decode(text: str | bytes) -> Any:
    """Decode JSON; raises a ValueError with the reason if it is not JSON or cannot be read."""
    try:
        return decode_json(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
