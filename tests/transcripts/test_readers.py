"""What holds for every reader: it claims its files, covers every line, and gives back what it read."""

import json
from pathlib import Path

import pytest

from holdfast import providers
from holdfast.errors import TranscriptError
from holdfast.messages import Message
from holdfast.transcripts import READERS, Entry, Problem, Transcript, read, stream
from support.agent_files import COPILOT, KIMI, OPENHANDS, OWN, REAL, name, wire_records
from support.external_data import needs_data
from support.paths import FIXTURES

own = pytest.mark.parametrize(("format_", "path"), OWN, ids=name)
real = pytest.mark.parametrize(("format_", "path"), REAL, ids=name)


@pytest.fixture(scope="module", params=REAL, ids=[f"{format_}-{path.name}" for format_, path in REAL])
def real_file(request: pytest.FixtureRequest) -> tuple[str, Transcript]:
    """Return the name of the format of a real file, and what was read from it."""
    format_, path = request.param
    return format_, read(path)


WIRE = {"claude_code", "codex", "pi", "message_list", "hermes", "request_log"}
"""Readers of records that hold a provider's messages; the others' records are their agent's own."""
WRITTEN = {"openclaw", "goose", "gemini", "qwen", "cline", "grok", "cursor"}
"""Readers whose files are written by their tests."""


class TestRecognition:
    """A file finds its reader by itself."""

    def test_every_reader_has_a_fixture(self) -> None:
        """No reader goes untested: those without a fixture read files that their tests write."""
        assert {format_ for format_, _ in OWN} | WRITTEN == set(READERS)

    @own
    def test_own(self, format_: str, path: Path) -> None:
        """Each file of ours is claimed by its own reader."""
        assert read(path).format == format_

    @pytest.mark.nightly
    @needs_data("transcripts")
    def test_real(self, real_file: tuple[str, Transcript]) -> None:
        """Each real file is claimed by its own reader."""
        format_, transcript = real_file
        assert transcript.format == format_

    @pytest.mark.parametrize(
        "path",
        [
            COPILOT / "events.jsonl",
            KIMI / "agents" / "main" / "wire.jsonl",
            KIMI / "state.json",
            OPENHANDS / "events",
            OPENHANDS / "events" / "event-00003-h3.json",
        ],
        ids=name,
    )
    def test_a_session_in_a_folder_is_found_by_a_file_in_it(self, path: Path) -> None:
        """Naming a file of a session folder reads the whole session."""
        home = next(home for home in (COPILOT, KIMI, OPENHANDS) if path.is_relative_to(home))
        assert read(path) == read(home)
        assert read(path).path == home

    def test_format_can_be_given(self) -> None:
        """A format that is passed is used without asking."""
        path = FIXTURES / "clawdbot" / "simple.jsonl"
        assert read(path, format="pi").format == "pi"

    def test_unknown_format_name(self) -> None:
        """A format that we do not have is refused with the list of those we do."""
        with pytest.raises(TranscriptError, match="'word' is not one of qwen, claude_code, codex, pi,"):
            read(FIXTURES / "clawdbot" / "simple.jsonl", format="word")

    def test_unknown_file(self, tmp_path: Path) -> None:
        """A file of no known format is refused with the list of those we know."""
        path = tmp_path / "notes.txt"
        path.write_text("Dear diary,\n")
        with pytest.raises(TranscriptError, match=r"in no format that we know; pass one of format=qwen\|claude_code"):
            read(path)


@own
def test_stream_and_read_agree(format_: str, path: Path) -> None:
    """Streaming yields the entries and problems that reading collects, in order."""
    items = list(stream(path, format=format_))
    whole = read(path)
    assert tuple(item for item in items if isinstance(item, Entry)) == whole.entries
    assert tuple(item for item in items if isinstance(item, Problem)) == whole.problems


@own
def test_own_files_are_clean(format_: str, path: Path) -> None:
    """A file without faults has no problems but the ones put there on purpose."""
    on_purpose = {"claude_code": 1, "request_log": 1}
    assert len(read(path).problems) == on_purpose.get(format_, 0)


def uncovered(transcript: Transcript) -> int:
    """How many lines of a JSON Lines file are neither an entry nor reported."""
    lines = [line for line in transcript.path.read_bytes().splitlines() if line.strip()]
    repeats = [int(problem.what.split()[0]) for problem in transcript.problems if "repeat" in problem.what]
    faults = {problem.line for problem in transcript.problems if "repeat" not in problem.what}
    output = faults | {entry.line for entry in transcript.entries}
    return len(lines) - len(output) - sum(repeats)


def is_lines(path: Path) -> bool:
    """Whether a file is plain JSON Lines."""
    return path.is_file() and path.suffix == ".jsonl"


class TestCoverage:
    """Every line becomes an entry or is reported."""

    @own
    def test_own(self, format_: str, path: Path) -> None:
        """No line of our files is passed over."""
        if is_lines(path):
            assert uncovered(read(path, format=format_)) == 0

    @pytest.mark.nightly
    @needs_data("transcripts")
    def test_real(self, real_file: tuple[str, Transcript]) -> None:
        """No line of the real files is passed over."""
        _, transcript = real_file
        if is_lines(transcript.path):
            assert uncovered(transcript) == 0


def assert_identical(transcript: Transcript) -> int:
    """Every message that was read from a provider's form renders as the very same JSON; how many there were."""
    compared = 0
    for entry in transcript.entries:
        own_text = (
            {json.dumps(record) for record in wire_records(transcript.format, entry)} if entry.messages else set()
        )
        for message in entry.messages if own_text else ():
            if is_beside_the_list(message, entry):
                continue
            origin = message.origin
            assert origin is not None
            (rendered,) = providers.render([message], origin.format)
            assert json.dumps(rendered) in own_text
            compared += 1
    return compared


def is_beside_the_list(message: Message, entry: Entry) -> bool:
    """Whether this is a system prompt that stands next to the list of messages."""
    return message.role == "system" and "system" in entry.data


class TestIdentity:
    """What was read and not edited is rendered byte for byte."""

    @own
    def test_own(self, format_: str, path: Path) -> None:
        """Each provider-shaped record of our files comes back as it was."""
        if format_ in WIRE:
            assert assert_identical(read(path)) > 0

    @pytest.mark.nightly
    @needs_data("transcripts")
    def test_real(self, real_file: tuple[str, Transcript]) -> None:
        """Each provider-shaped record of the real files comes back as it was."""
        format_, transcript = real_file
        if format_ in WIRE:
            assert assert_identical(transcript) > 0


@pytest.mark.variants
@needs_data("transcripts")
@real
def test_real_files_are_read_without_faults(format_: str, path: Path) -> None:
    """The only problems of the real files are two comment lines, repeated lines and restated messages."""
    known = ("not JSON: Expecting value", "513 lines repeat", "came again with a small change")
    transcript = read(path, format=format_)
    assert all(any(words in problem.what for words in known) for problem in transcript.problems)
    assert transcript.messages
