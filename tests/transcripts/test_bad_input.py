"""What bad files get: a typed error that says what is wrong, or a problem in its place and nothing else lost."""

import gzip
import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from holdfast.errors import TranscriptError
from holdfast.transcripts import Entry, read, stream
from holdfast.transcripts.entry import timestamp
from holdfast.transcripts.lines import read_document, read_head
from support.cases import each
from support.paths import FIXTURES

CLAUDE = FIXTURES / "claude_code" / "harbour.jsonl"
NOISE = random.Random(7)  # noqa: S311 - text that does not compress, the same in every run
LINE = '{"type":"user","uuid":"%s","parentUuid":null,"message":{"role":"user","content":"hi"}}\n'

root_reads_everything = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="run by root, who may read every file"
)


class TestRefused:
    """Files that cannot be a transcript."""

    def test_missing(self, tmp_path: Path) -> None:
        """A file that is not there."""
        with pytest.raises(TranscriptError, match="no such file"):
            read(tmp_path / "nothing.jsonl")

    @root_reads_everything
    def test_unreadable(self, tmp_path: Path) -> None:
        """A file that may not be read."""
        path = tmp_path / "closed.jsonl"
        path.touch(mode=0)
        with pytest.raises(TranscriptError, match="check its permissions"):
            read(path)

    def test_folder(self, tmp_path: Path) -> None:
        """A folder that is no session: the error says how to look into it."""
        with pytest.raises(TranscriptError, match="use `holdfast sessions FOLDER`"):
            read(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        """A file with nothing in it."""
        path = tmp_path / "empty.jsonl"
        path.write_text(" \n\n")
        with pytest.raises(TranscriptError, match="an empty file"):
            read(path)

    @pytest.mark.parametrize("format_", [None, "claude_code"])
    def test_binary(self, tmp_path: Path, format_: str | None) -> None:
        """A binary file, also where it is said to be a transcript."""
        path = tmp_path / "picture.jsonl"
        path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
        with pytest.raises(TranscriptError, match="a binary file"):
            read(path, format=format_)

    def test_not_packed(self, tmp_path: Path) -> None:
        """A `.gz` that is none."""
        path = tmp_path / "log.jsonl.gz"
        path.write_text("plain")
        with pytest.raises(TranscriptError, match="could not be read"):
            read(path)


class TestReported:
    """Faults in a file that is a transcript."""

    def test_half_a_line(self, tmp_path: Path) -> None:
        """A line that breaks off is reported with its place; the others are read."""
        path = tmp_path / "s.jsonl"
        path.write_text(LINE % 1 + '{"type":"user","mess\n' + LINE % 2 + '{"type":"us')
        transcript = read(path)
        assert [entry.line for entry in transcript.entries] == [1, 3]
        assert [problem.line for problem in transcript.problems] == [2, 4]
        assert transcript.problems[1].what.startswith("cut off: ")

    def test_half_a_first_line(self, tmp_path: Path) -> None:
        """A first line that breaks off does not keep the file from being known."""
        path = tmp_path / "s.jsonl"
        path.write_text('{"type":"us\n' + LINE % 1)
        assert read(path).format == "claude_code"
        assert [problem.line for problem in read(path).problems] == [1]

    def test_not_utf_8(self, tmp_path: Path) -> None:
        """A line that is not UTF-8 is reported with its place; the others are read."""
        path = tmp_path / "s.jsonl"
        path.write_bytes((LINE % 1).encode() + b'{"type":"caf\xe9"}\n' + (LINE % 2).encode())
        transcript = read(path)
        assert [entry.line for entry in transcript.entries] == [1, 3]
        assert [(problem.line, problem.what) for problem in transcript.problems] == [(2, "not UTF-8 at byte 12")]

    def test_other_json(self, tmp_path: Path) -> None:
        """A line that is JSON and no object is reported."""
        path = tmp_path / "s.jsonl"
        path.write_text(LINE % 1 + "[1]\n7\nnull\n" + "[" * 100_000 + "\n" + LINE % 2)
        transcript = read(path)
        assert [problem.line for problem in transcript.problems] == [2, 3, 4, 5]
        assert len(transcript.entries) == 2

    def test_a_message_that_cannot_be_read(self, tmp_path: Path) -> None:
        """A record with a broken message is an entry all the same, with its id, and reported."""
        path = tmp_path / "s.jsonl"
        path.write_text(
            LINE % 1 + '{"type":"user","uuid":"2","parentUuid":"1","message":{"role":"user","content":7}}\n'
        )
        transcript = read(path)
        assert [entry.id for entry in transcript.entries] == ["1", "2"]
        (problem,) = transcript.problems
        assert problem.what == (
            "kept without its message: line 2: message.content: expected text or a list of blocks, found int"
        )

    def test_a_record_without_its_message(self, tmp_path: Path) -> None:
        """A record that should hold a message and does not is reported."""
        path = tmp_path / "s.jsonl"
        path.write_text(LINE % 1 + '{"type":"assistant","uuid":"2","parentUuid":"1"}\n')
        assert "no message in it" in read(path).problems[0].what

    def test_packed_and_broken_off(self, tmp_path: Path) -> None:
        """Of a packed file that breaks off, the whole lines before the break are read, and the break is reported."""
        path = tmp_path / "s.jsonl.gz"
        text = "".join(LINE % NOISE.randbytes(16).hex() for _ in range(4_000))
        packed = gzip.compress(text.encode())
        path.write_bytes(packed[: len(packed) * 3 // 4])
        transcript = read(path)
        assert len(transcript.entries) > 2_000
        assert "the rest is lost" in transcript.problems[-1].what

    def test_packed_and_damaged(self, tmp_path: Path) -> None:
        """Of a packed file that is damaged in the middle, the lines before are read."""
        path = tmp_path / "s.jsonl.gz"
        text = "".join(LINE % NOISE.randbytes(16).hex() for _ in range(4_000))
        packed = bytearray(gzip.compress(text.encode()))
        packed[len(packed) * 3 // 4 :][:64] = b"\xff" * 64
        packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 64] = b"\xff" * 64
        path.write_bytes(packed)
        transcript = read(path)
        assert len(transcript.entries) > 1000
        assert transcript.problems

    def test_bom(self, tmp_path: Path) -> None:
        """A byte order mark before the first record or document is no fault."""
        lines, document = tmp_path / "s.jsonl", tmp_path / "d.json"
        lines.write_bytes(b"\xef\xbb\xbf" + CLAUDE.read_bytes())
        document.write_bytes(b"\xef\xbb\xbf" + (FIXTURES / "opencode" / "export.json").read_bytes())
        assert read(lines).entries == read(CLAUDE).entries
        assert read(document).format == "opencode"


class TestLarge:
    """Files that are larger than what one wants to hold."""

    @pytest.mark.nightly
    def test_a_line_of_60_megabytes(self, tmp_path: Path) -> None:
        """A line of 60 MB is a line."""
        size = 60 << 20
        path = tmp_path / "s.jsonl"
        with path.open("wb") as file:
            file.write(b'{"type":"user","uuid":"1","parentUuid":null,"message":{"role":"user","content":"')
            for _ in range(60):
                file.write(b"a" * (1 << 20))
            file.write(b'"}}\n' + (LINE % 2).encode())
        first, second = stream(path)
        assert isinstance(first, Entry)
        assert isinstance(second, Entry)
        assert len(first.messages[0].text) == size
        assert second.messages[0].text == "hi"

    def test_streaming_needs_little_memory(self, tmp_path: Path) -> None:
        """A file of many records is streamed in a small part of its size."""
        path = tmp_path / "s.jsonl"
        filler = "x" * 4000
        record = {"type": "user", "parentUuid": None, "message": {"role": "user", "content": filler}}
        with path.open("w") as file:
            for number in range(1000):
                file.write(json.dumps({**record, "uuid": str(number)}) + "\n")
        tracemalloc.start()
        try:
            count = sum(isinstance(item, Entry) for item in stream(path))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert count == 1000
        assert peak < path.stat().st_size / 5


def test_a_document_over_the_limit_is_not_read(tmp_path: Path) -> None:
    """Looking through a folder, a JSON document over the limit is judged by its first lines."""
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"a": [1, 2]}, indent=1))
    assert read_head(path).document
    assert not read_head(path, limit=5).document


def test_a_document_nested_too_deeply(tmp_path: Path) -> None:
    """A document that is nested too deeply is no JSON value that we can read."""
    path = tmp_path / "d.json"
    path.write_text("[\n" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_document(path)
    with pytest.raises(TranscriptError, match="in no format that we know"):
        read(path)


@each(
    ("value", "expected"),
    [
        ("2026-03-01T09:00:00.123Z", 1772355600123),
        ("2026-03-01T10:00:00+01:00", 1772355600000),
        ("2026-03-01 09:00:00", 1772355600000),
        (1772355600, 1772355600000),
        (1772355600.5, 1772355600500),
        (1772355600123, 1772355600123),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("yesterday", None),
        ("", None),
        (None, None),
        ([], None),
    ],
)
def test_times(value: object, expected: int | None) -> None:
    """Times are ISO text, seconds or milliseconds; anything else is no time."""
    assert timestamp(value) == expected
