"""The sessions of an agent, on disk and between processes."""

import json
import multiprocessing
import re
from itertools import count
from pathlib import Path

import pytest

from holdfast.errors import InputError, StorageError
from holdfast.transcripts.registry import read
from holdfast_agent.sessions import SessionEntry, Sessions, session_key
from holdfast_agent.settings import AgentSettings, SessionReset, SessionSettings
from support.session_files import START, Ids, says

FOREVER = AgentSettings(session=SessionSettings(reset=SessionReset(mode="never")))
HOURLY = AgentSettings(session=SessionSettings(reset=SessionReset(mode="idle", idle_minutes=60)))
KEY = "agent:main:main"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The test's clock."""
    return Clock()


@pytest.fixture
def sessions(tmp_path: Path, clock: Clock) -> Sessions:
    """The sessions of the main agent."""
    return Sessions(tmp_path, clock, Ids())


class TestOpening:
    """Going on, or beginning."""

    def test_the_first_conversation_begins(self, sessions: Sessions, tmp_path: Path) -> None:
        """A transcript and an entry are made, for the user's eyes only."""
        session = sessions.open(KEY, FOREVER, cwd="/work")
        assert session.is_new
        assert session.transcript.file.parent == tmp_path / "agents" / "main" / "sessions"
        assert session.transcript.file.name == f"{session.entry.session_id}.jsonl"
        assert (session.transcript.id, session.transcript.cwd) == (session.entry.session_id, "/work")
        stored = json.loads(sessions.file.read_bytes())
        assert stored[KEY]["sessionId"] == session.entry.session_id
        assert stored[KEY]["updatedAt"] == START
        assert sessions.file.stat().st_mode & 0o777 == 0o600

    def test_it_goes_on(self, sessions: Sessions) -> None:
        """Opening again gives the same transcript with what was said."""
        sessions.open(KEY, FOREVER).transcript.append_message(says("你好"))
        again = sessions.open(KEY, FOREVER)
        assert not again.is_new
        assert [message.text for message in again.transcript.context().messages] == ["你好"]

    def test_a_pause_starts_it_afresh(self, sessions: Sessions, clock: Clock) -> None:
        """When it is due, the old transcript is put away under its time and stays readable."""
        first = sessions.open(KEY, HOURLY)
        first.transcript.append_message(says("kept"))
        assert sessions.due(KEY, HOURLY) == ""
        clock.now += 3_600_001
        assert sessions.due(KEY, HOURLY) == "idle"
        second = sessions.open(KEY, HOURLY)
        assert (second.is_new, second.why) == (True, "idle")
        assert second.archived is not None
        assert re.fullmatch(r"[0-9a-f-]+\.jsonl\.reset\.2026-02-10T15-00-00\.001Z", second.archived.name)
        assert not first.transcript.file.exists()
        assert [message.text for message in read(second.archived).messages] == ["kept"]
        with pytest.raises(StorageError, match="moved or removed"):
            first.transcript.append_message(says("too late"))

    def test_a_transcript_that_is_gone(self, sessions: Sessions) -> None:
        """An entry without its file begins again, and nothing is put away."""
        sessions.open(KEY, FOREVER).transcript.file.unlink()
        session = sessions.open(KEY, FOREVER)
        assert (session.is_new, session.why, session.archived) == (True, "", None)

    def test_problems_of_a_transcript_are_printed(self, sessions: Sessions) -> None:
        """What had to be mended in the file comes along."""
        session = sessions.open(KEY, FOREVER)
        with session.transcript.file.open("ab") as file:
            file.write(b"{broken")
        assert sessions.open(KEY, FOREVER).problems


class TestChanging:
    """New, reset, update."""

    def test_reset_keeps_the_old_transcript(self, sessions: Sessions) -> None:
        """A new transcript takes the place of the old one, which is kept."""
        first = sessions.open(KEY, FOREVER)
        second = sessions.reset(KEY)
        assert second.why == "asked"
        assert second.entry.session_id != first.entry.session_id
        assert second.archived is not None
        assert second.archived.exists()
        assert sessions.open(KEY, FOREVER).entry.session_id == second.entry.session_id

    def test_reset_of_nothing(self, sessions: Sessions) -> None:
        """Where there was no conversation one begins."""
        assert sessions.reset(KEY).archived is None

    def test_an_update_keeps_what_others_wrote(self, sessions: Sessions) -> None:
        """Other keys and unknown fields stay, also those that are no entries."""
        sessions.open(KEY, FOREVER)
        data = json.loads(sessions.file.read_bytes())
        data[KEY]["label"] = "mine"
        sessions.file.write_text(json.dumps(data | {"odd": [1]}), "utf-8")
        sessions.update(KEY, lambda entry: entry.with_compaction(9, now=START + 5))
        after = json.loads(sessions.file.read_bytes())
        assert (after[KEY]["label"], after[KEY]["compactionCount"], after["odd"]) == ("mine", 1, [1])

    def test_nothing_is_written_where_nothing_changes(self, sessions: Sessions) -> None:
        """Looking is not writing."""
        sessions.open(KEY, FOREVER)
        before = sessions.file.stat().st_mtime_ns, sessions.file.stat().st_ino
        sessions.open(KEY, FOREVER)
        assert (sessions.file.stat().st_mtime_ns, sessions.file.stat().st_ino) == before


class TestDamage:
    """Bad stores."""

    @pytest.mark.parametrize("data", [b"{broken", b"[1, 2]", b"\xff\xfe"])
    def test_a_store_that_cannot_be_read_is_kept_and_made_anew(self, sessions: Sessions, data: bytes) -> None:
        """The newest transcript continues, a copy of the damage stays, and the user gets a notice."""
        before = sessions.open(KEY, FOREVER)
        before.transcript.append_message(says("still here"))
        sessions.file.write_bytes(data)
        assert sessions.due(KEY, HOURLY) == ""
        after = sessions.open(KEY, FOREVER)
        assert not after.is_new
        assert [message.text for message in after.transcript.context().messages] == ["still here"]
        assert "could not be read" in after.problems[0]
        copies = [place for place in sessions.folder.iterdir() if ".bak." in place.name]
        assert [copy.read_bytes() for copy in copies] == [data]

    def test_damage_without_a_transcript(self, sessions: Sessions) -> None:
        """With nothing to continue with, a conversation begins."""
        sessions.folder.mkdir(parents=True)
        sessions.file.write_bytes(b"{broken")
        assert sessions.open(KEY, FOREVER).is_new

    def test_an_empty_store(self, sessions: Sessions) -> None:
        """A file of no bytes holds no sessions."""
        sessions.folder.mkdir(parents=True)
        sessions.file.touch()
        assert sessions.due(KEY, HOURLY) == ""
        assert sessions.open(KEY, FOREVER).is_new

    @pytest.mark.parametrize("file", ["../../../../etc/passwd", "/etc/passwd", "x.txt", ".."])
    def test_a_file_outside_is_never_taken(self, sessions: Sessions, file: str) -> None:
        """A name that leads out of the folder counts as none."""
        entry = SessionEntry(session_id="abc", session_file=file)
        assert sessions.transcript(entry) == sessions.folder / "abc.jsonl"

    def test_a_store_that_cannot_be_opened(self, sessions: Sessions) -> None:
        """A folder in its place is a storage error, not a crash."""
        sessions.file.mkdir(parents=True)
        with pytest.raises(StorageError):
            sessions.due(KEY, HOURLY)
        with pytest.raises(StorageError):
            sessions.open(KEY, FOREVER)


class TestNames:
    """Agents and keys."""

    def test_keys(self) -> None:
        """A key names the agent and the conversation, in lower case."""
        assert session_key() == KEY
        assert session_key("Work-1", " Telegram:Group:5 ") == "agent:work-1:telegram:group:5"

    @pytest.mark.parametrize("agent", ["", "..", "a/b", "-a", "a" * 65, "ä"])
    def test_names_that_no_agent_can_have(self, agent: str, tmp_path: Path, clock: Clock) -> None:
        """A name that could lead elsewhere is refused, in a key and as a folder."""
        with pytest.raises(InputError, match="cannot name an agent"):
            session_key(agent)
        with pytest.raises(InputError, match="cannot name an agent"):
            Sessions(tmp_path, clock, Ids(), agent).open(KEY, FOREVER)


def _work(home: Path, worker: int, times: int) -> None:
    ids = (f"{worker:08x}-0000-4000-8000-{number:012x}" for number in count())
    own = Sessions(home, lambda: START, lambda: next(ids))
    for _ in range(times):
        own.update(KEY, lambda entry: entry.with_compaction(0, now=START))
        own.open(f"agent:main:{worker}", FOREVER)


def test_processes_do_not_lose_each_others_changes(tmp_path: Path) -> None:
    """Of many updates by several processes at once every one counts, and only one of them begins a conversation."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(tmp_path, number, 15)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sessions = Sessions(tmp_path, lambda: START, Ids())
    stored = json.loads(sessions.file.read_bytes())
    assert stored[KEY]["compactionCount"] == 60
    assert len(list(sessions.folder.glob("*.jsonl"))) == 4
    assert not [worker for worker in workers if worker.exitcode]
