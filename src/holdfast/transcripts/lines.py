"""JSON Lines as they are found: streamed, in constant memory, nothing dropped in silence."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec

from holdfast.errors import TranscriptError
from holdfast.files import open_regular

__all__ = ["MAX_LINE_BYTES", "Line", "bounded_lines", "open_binary", "parse_line", "read_lines"]

MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is not read: what it says would take several times its size in memory."""

_BOM: Final = b"\xef\xbb\xbf"
_PROBE: Final = 8192


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: its bytes as they are (line end included), and what they say.

    `data` is None where the line is no JSON object; `problem` then says why, and `value` is what the
    line says where it is JSON of another kind.
    """

    number: int
    raw: bytes
    data: dict[str, Any] | None
    problem: str | None = None
    value: Any = None


@contextmanager
def open_binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, or the inside of a `.gz`, for reading; every failure is a TranscriptError that says what to do."""
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
    """Yield the lines of a file; of a line longer than `MAX_LINE_BYTES` only its first bytes, one more than that."""
    while raw := file.readline(MAX_LINE_BYTES + 1):
        yield raw
        while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE_BYTES + 1)


def read_lines(path: Path, *, skip_long: bool = False) -> Iterator[Line]:
    """Read a file line by line. Blank lines are kept as lines without data and without a problem.

    Raises:
        TranscriptError: The file cannot be read, or a line is too long; with `skip_long` that is the line's problem.
    """
    with open_binary(path) as file:
        for number, raw in enumerate(bounded_lines(file), start=1):
            if number == 1 and b"\0" in raw[:_PROBE]:
                raise TranscriptError("a binary file, not a transcript", path=path)
            line = parse_line(raw, number)
            if len(raw) > MAX_LINE_BYTES and not skip_long:
                raise TranscriptError(f"{line.problem}", path=path, line=number)
            yield line


def parse_line(raw: bytes, number: int) -> Line:
    """Read one line; a line that is no JSON object keeps its bytes and says what is wrong with it."""
    if len(raw) > MAX_LINE_BYTES:
        return Line(number, raw[:_PROBE], None, f"longer than {MAX_LINE_BYTES >> 20} MB: not read")
    text = raw.removeprefix(_BOM) if number == 1 else raw
    if not text or text.isspace():
        return Line(number, raw, None)
    try:
        data = _decode(text)
    except UnicodeDecodeError as error:
        return Line(number, raw, None, f"not UTF-8 at byte {error.start}")
    except RecursionError:
        return Line(number, raw, None, "nested too deeply")
    except ValueError as error:
        torn = "" if raw.endswith(b"\n") else "cut off: "
        return Line(number, raw, None, f"{torn}{error}")
    if not isinstance(data, dict):
        return Line(number, raw, None, f"a JSON {type(data).__name__}, not an object", data)
    return Line(number, raw, data)


def _decode(text: bytes) -> Any:
    """What a JSON text says: the fast reader first, then the one that also takes halves of surrogate pairs and NaN."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text)
