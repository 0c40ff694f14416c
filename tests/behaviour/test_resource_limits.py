"""Hostile or broken files take a bounded amount of time and memory, and give a clear error."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import holdfast
from holdfast.errors import SettingsError
from holdfast.redaction import redact
from holdfast.settings import load
from holdfast.transcripts.lines import MAX_LINE_BYTES

LINE = b'{"type":"user","uuid":"%s","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"hi"}}\n'

needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in a new home."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "memory"))
    monkeypatch.setenv("HOLDFAST_EMBEDDING__PROVIDER", "none")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(holdfast, [*map(str, arguments)])


@contextmanager
def peak_below(megabytes: int) -> Iterator[None]:
    """Fail if more memory is used."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes << 20


@pytest.mark.parametrize(
    "key",
    [
        "a" + ".a" * 30_000 + " = 1",
        "[" + "a . " * 15_000 + "a]",
        '"a"' + ".'b'" * 10_000 + " = 1",
        "x = {" + "a." * 20_000 + "a = 1}",
    ],
)
def test_a_settings_key_of_thousands_of_parts_is_refused(tmp_path: Path, key: str) -> None:
    """The parser would take gigabytes for it."""
    file = tmp_path / "holdfast.toml"
    file.write_text(f"[model]\nname = 'x/y'\n{key}\n")
    with peak_below(20), pytest.raises(SettingsError, match="line 3 has a key of more than 16 parts"):
        load(files=[file], environ={})


def test_settings_with_many_dots_in_their_values_are_read(tmp_path: Path) -> None:
    """Only keys are limited."""
    dots = ".".join("abcdefghijklmnop")
    file = tmp_path / "holdfast.toml"
    file.write_text(f'[model]\nname = "x/{dots}"  # 1.2.3.4.5.6\n')
    assert load(files=[file], environ={}).settings.model.name == f"x/{dots}"


@needs_pipes
def test_a_settings_file_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    """Reading it would wait forever."""
    os.mkfifo(tmp_path / "holdfast.toml")
    with pytest.raises(SettingsError, match="not a regular file"):
        load(files=[tmp_path / "holdfast.toml"], environ={})


@needs_pipes
@pytest.mark.parametrize("command", [("show",), ("import",), ("tokens",)])
def test_a_command_on_a_pipe_is_refused(call: Callable[..., Result], tmp_path: Path, command: tuple[str, ...]) -> None:
    """It does not wait until something is written."""
    os.mkfifo(tmp_path / "talk.jsonl")
    done = call(*command, tmp_path / "talk.jsonl")
    assert "not a regular file" in f"{done.output}\n{done.exception}"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_command_on_a_device_is_refused(call: Callable[..., Result]) -> None:
    """A device never ends."""
    done = call("show", "/dev/zero")
    assert "not a regular file" in f"{done.output}\n{done.exception}"


@pytest.mark.nightly
def test_a_line_of_100_megabytes_is_skipped_and_reported(call: Callable[..., Result], tmp_path: Path) -> None:
    """The lines before and after it are imported, and memory stays bounded."""
    with gzip.open(tmp_path / "talk.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(LINE % b"a")
        file.write(b'{"type":"user","uuid":"b","message":"')
        for _ in range(13):
            file.write(b"x" * (8 << 20))
        file.write(b'"}\n' + LINE % b"c")
    with peak_below(300):
        done = call("import", tmp_path / "talk.jsonl.gz")
    assert done.exit_code == 0, done.output
    assert "longer than 64 MB" in done.output
    assert "2 messages" in done.output


def test_a_document_that_is_one_huge_line_is_refused(call: Callable[..., Result], tmp_path: Path) -> None:
    """The error gives the reason."""
    with gzip.open(tmp_path / "talk.json.gz", "wb", compresslevel=1) as file:
        file.write(b'["')
        for _ in range(9):
            file.write(b"x" * (MAX_LINE_BYTES >> 3))
        file.write(b'"]')
    with peak_below(300):
        done = call("show", tmp_path / "talk.json.gz")
    assert "longer than 64 MB" in str(done.exception or done.output)


PIECES = (
    "?token= &auth= key= password: --token\t 密码是 ://a: 1:AA jdbc:oracle:thin:a/ -----BEGIN\tPRIVATE\tKEY-----"
    ' "token":\t curl\t-u\t secret\tis\t pass\t Cookie:\ta=1;\t mysql\t-p\t docker\tlogin\t-p\t'
)


@pytest.mark.variants
@pytest.mark.parametrize("piece", [piece.replace("\t", " ") for piece in PIECES.split(" ")])
def test_masking_takes_time_by_the_length_of_a_text(piece: str) -> None:
    """Twice the text takes about twice the time, and no text takes long."""
    redact(piece * 10)  # patterns are compiled when first needed
    times = []
    for size in (25_000, 100_000):
        start = process_time()
        redact(piece * (size // len(piece)))
        times.append(process_time() - start)
    assert times[1] < 12 * max(times[0], 0.05)


class CountedText(str):  # noqa: SLOT000 - it has a count
    """A text that counts how many of its characters are searched for line ends and other signs."""

    searched = 0

    def find(self, *arguments: Any) -> int:
        """Search forwards."""
        found = super().find(*arguments)
        start = arguments[1] if len(arguments) > 1 else 0
        end = arguments[2] if len(arguments) > 2 else len(self)
        self.searched += (end if found < 0 else found) - start
        return found

    def rfind(self, *arguments: Any) -> int:
        """Search backwards."""
        found = super().rfind(*arguments)
        start = arguments[1] if len(arguments) > 1 else 0
        end = arguments[2] if len(arguments) > 2 else len(self)
        self.searched += end - max(start, found)
        return found

    def __getitem__(self, key: Any) -> str:
        """Copy a part."""
        part = super().__getitem__(key)
        self.searched += len(part)
        return part


LONG_LINE = "x" * 1001
STRUCTURES = (
    *("|-", "+=", "| :-", "a|-", "| -|", "password,", "password;", "pwd,", "password\t=\t", "token\t", "api key;"),
    *("insert into a(", "kind: Secret ", "kind: Secret\n", f"{LONG_LINE}\n|-\n", f"{LONG_LINE}\npassword,a\n"),
)


@pytest.mark.variants
@pytest.mark.parametrize("piece", STRUCTURES)
def test_masking_searches_a_text_a_few_times(piece: str) -> None:
    """A line with many marks of tables is searched for its ends once, not once for each mark."""
    text = CountedText(piece * (40_000 // len(piece)))
    assert redact(text) == text
    assert text.searched < 100 * len(text)
